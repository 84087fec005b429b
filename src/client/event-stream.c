/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "client/connection.h"
#include "client/http-client.h"

#define EVENT_MAX (size_t)(256 * 1024)

struct http_event_stream {
	struct connection conn;
	size_t used; /* bytes of the body that were looked at */
	bool ended;
	bool delivered; /* what is in type and data was handed out */
	char type[32];
	struct buf data;
};

struct http_event_stream *http_event_stream_free(struct http_event_stream *stream)
{
	if (!stream)
		return NULL;
	connection_done(&stream->conn);
	buf_done(&stream->data);
	free(stream);
	return NULL;
}

int http_event_stream_open(const char *socket_path, const char *path, uint64_t timeout_usec,
			   const struct http_tick *tick, struct http_event_stream **ret,
			   struct error *err)
{
	_cleanup_(http_event_stream_freep) struct http_event_stream *stream = calloc(
		1, sizeof(*stream));
	uint64_t deadline = clock_now_usec() + timeout_usec;
	const struct http_parse *parse;
	int r;

	if (!stream)
		return error_set_errno(err, ENOMEM, "event stream");
	parse = &stream->conn.parse;
	r = connection_open(&stream->conn, socket_path, "GET", path, NULL, deadline, err);
	stream->conn.tick = tick;
	while (r == 0 && !parse->headers_done)
		r = connection_read(&stream->conn, deadline, err);
	if (r < 0)
		return r;
	if (parse->status != 200 || strcmp(parse->content_type, "text/event-stream") != 0)
		return error_set(err, EPROTO, "%s is no event stream (status %d)", path,
				 parse->status);
	stream->conn.tick = NULL;
	stream->ended = r > 0;
	stream->delivered = true; /* nothing is pending */
	*ret = TAKE(stream);
	return 0;
}

int http_event_stream_fd(const struct http_event_stream *stream)
{
	return stream->conn.fd;
}

/* One line of the stream. True when it ends an event that has data. */
static bool take_line(struct http_event_stream *s, const char *line, size_t n)
{
	size_t name = n;
	const char *value;

	if (n == 0) {
		if (s->data.len == 0)
			str_copy_cut(s->type, sizeof(s->type), "message");
		return s->data.len > 0;
	}
	if (memchr(line, ':', n))
		name = (size_t)((const char *)memchr(line, ':', n) - line);
	value = line + MIN(name + 1, n);
	if (value < line + n && *value == ' ')
		value++;
	n -= (size_t)(value - line);
	if (name == 5 && memcmp(line, "event", 5) == 0) {
		size_t keep = MIN(n, sizeof(s->type) - 1);

		memcpy(s->type, value, keep);
		s->type[keep] = '\0';
	} else if (name == 4 && memcmp(line, "data", 4) == 0) {
		/* Each data line ends in a newline, so an empty one counts too. */
		buf_add(&s->data, value, n);
		buf_add_char(&s->data, '\n');
	}
	return false;
}

/* Looks through what has come in. True when there is an event. */
static bool take_event(struct http_event_stream *s)
{
	struct buf *body = &s->conn.parse.body;

	while (s->used < body->len) {
		const char *line = body->data + s->used;
		const char *end = memchr(line, '\n', body->len - s->used);
		size_t n;

		if (!end)
			break;
		n = (size_t)(end - line);
		s->used += n + 1;
		if (n > 0 && line[n - 1] == '\r')
			n--;
		if (take_line(s, line, n))
			return true;
	}
	/* Keep only the line that is not complete yet. */
	if (s->used > 0) {
		memmove(body->data, body->data + s->used, body->len - s->used);
		body->len -= s->used;
		s->used = 0;
	}
	return false;
}

int http_event_stream_next(struct http_event_stream *s, uint64_t timeout_usec,
			   const char **ret_type, const char **ret_data, struct error *err)
{
	uint64_t deadline = clock_now_usec() + timeout_usec;

	/* Not after a time-out: the event may be there in part. */
	if (s->delivered) {
		buf_clear(&s->data);
		str_copy_cut(s->type, sizeof(s->type), "message");
		s->delivered = false;
	}
	for (;;) {
		int r;

		if (take_event(s)) {
			if (buf_finish(&s->data) < 0)
				return error_set_errno(err, ENOMEM, "event stream");
			s->data.data[s->data.len - 1] = '\0';
			s->delivered = true;
			*ret_type = s->type;
			*ret_data = s->data.data;
			return 1;
		}
		if (s->conn.parse.body.len + s->data.len > EVENT_MAX)
			return error_set(err, EMSGSIZE, "an event is too large");
		if (s->ended)
			return error_set(err, EPIPE, "the event stream has ended");
		r = connection_read(&s->conn, deadline, err);
		if (r == -ETIMEDOUT)
			return 0;
		if (r < 0)
			return r;
		s->ended = r > 0;
	}
}
