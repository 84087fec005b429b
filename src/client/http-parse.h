/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses an HTTP/1.1 answer as its bytes come in. The bytes are not trusted: everything has a limit
 * and whatever is not plainly right is refused. No I/O; see http-client.h for that.
 */
#pragma once

#include "base/buf.h"
#include "base/macro.h"

#define HTTP_PARSE_LINE_MAX    8192
#define HTTP_PARSE_HEADERS_MAX 64

enum http_parse_state {
	HTTP_PARSE_STATUS,
	HTTP_PARSE_HEADER,
	HTTP_PARSE_LENGTH, /* body of known length */
	HTTP_PARSE_UNTIL_EOF,
	HTTP_PARSE_CHUNK_SIZE,
	HTTP_PARSE_CHUNK_DATA,
	HTTP_PARSE_CHUNK_END,
	HTTP_PARSE_TRAILER,
	HTTP_PARSE_DONE,
};

struct http_parse {
	enum http_parse_state state;
	bool headers_done; /* status and content_type are known */
	int status;
	char content_type[64]; /* lower case, without parameters; empty: none */
	struct buf body;       /* the caller may take from it and clear it at any time */
	size_t body_limit;     /* of what is in `body` at one time */

	bool no_body; /* set before: the request was a HEAD */
	bool chunked;
	bool has_length;
	uint64_t left; /* of the body, or of the chunk */
	unsigned n_headers;
	size_t line_len;
	char line[HTTP_PARSE_LINE_MAX];
};

void http_parse_init(struct http_parse *p, size_t body_limit);
void http_parse_done(struct http_parse *p);

/* 1: the answer is complete (what follows is ignored), 0: more is wanted, -EBADMSG: no HTTP,
 * -EMSGSIZE: over a limit, -ENOMEM. */
int http_parse_feed(struct http_parse *p, const void *data, size_t n) _must_check_;
/* The peer closed. 1: that ends the answer, -EBADMSG: it is cut short. */
int http_parse_eof(struct http_parse *p) _must_check_;
