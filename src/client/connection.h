/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection to the daemon's socket, used by http-client.c and event-stream.c only.
 */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "base/macro.h"
#include "client/http-client.h"
#include "client/http-parse.h"

struct connection {
	int fd;
	const struct http_tick *tick; /* NULL: none; set after connection_open() */
	struct http_parse parse;
};

/* Connects and sends the request. Either way to be released by connection_done(). */
int connection_open(struct connection *c, const char *socket_path, const char *method,
		    const char *path, const json_t *body, uint64_t deadline_usec,
		    struct error *err) _must_check_;
/* Reads once. 1: the answer is complete, 0: some bytes came, -ETIMEDOUT, -EBADMSG, ... */
int connection_read(struct connection *c, uint64_t deadline_usec, struct error *err) _must_check_;
void connection_done(struct connection *c);
