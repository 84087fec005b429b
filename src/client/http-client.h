/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP over the daemon's Unix socket, blocking, one request a connection; and the reading of its
 * event stream. For programs that do one thing at a time: not for the daemon's loop.
 */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "base/macro.h"

#define HTTP_CLIENT_BODY_MAX ((size_t)16 * 1024 * 1024)

struct http_answer {
	int status;
	char content_type[64]; /* lower case, without parameters */
	char *body;	       /* NUL behind it; never NULL after success */
	size_t len;
};

void http_answer_done(struct http_answer *answer);
#define _answer_ _cleanup_(http_answer_done)

/* path must be encoded already; body may be NULL. timeout_usec covers all of it. 0, whatever the
 * status is; -E_UNREACHABLE: nobody at the socket, or not allowed to it; -ETIMEDOUT, -EBADMSG,
 * -EMSGSIZE, -errno. */
int http_client_request(const char *socket_path, const char *method, const char *path,
			const json_t *body, uint64_t timeout_usec, struct http_answer *ret,
			struct error *err) _must_check_;

/* While an answer is waited for: fn, if there is one, is called about once a second; the wait ends
 * with -EINTR when stop_fd is readable (-1: none). */
struct http_tick {
	void (*fn)(void *userdata);
	void *userdata;
	int stop_fd;
};

int http_client_request_ticking(const char *socket_path, const char *method, const char *path,
				const json_t *body, uint64_t timeout_usec,
				const struct http_tick *tick, struct http_answer *ret,
				struct error *err) _must_check_;

/* Encodes one path segment, all but [A-Za-z0-9._~-]. -ENAMETOOLONG. */
int http_client_encode(const char *segment, char *ret, size_t size) _must_check_;

struct http_event_stream;

/* GET path, an event stream. -EPROTO where the answer is anything but one. tick may be NULL. */
int http_event_stream_open(const char *socket_path, const char *path, uint64_t timeout_usec,
			   const struct http_tick *tick, struct http_event_stream **ret,
			   struct error *err) _must_check_;
struct http_event_stream *http_event_stream_free(struct http_event_stream *stream);
static inline void http_event_stream_freep(struct http_event_stream **stream)
{
	http_event_stream_free(*stream);
}

/* For poll(): readable when http_event_stream_next() may have something. What it has read already
 * does not show there, so it is called until it gives 0 first. */
int http_event_stream_fd(const struct http_event_stream *stream);

/* Waits for the next event; a comment is none. 1 with its name and data, which stay valid until the
 * next call; 0: none within timeout_usec; -EPIPE: the stream has ended. */
int http_event_stream_next(struct http_event_stream *stream, uint64_t timeout_usec,
			   const char **ret_type, const char **ret_data,
			   struct error *err) _must_check_;
