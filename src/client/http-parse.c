/* SPDX-License-Identifier: Apache-2.0 */
#include "client/http-parse.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"

void http_parse_init(struct http_parse *p, size_t body_limit)
{
	memset(p, 0, sizeof(*p));
	p->body_limit = body_limit;
}

void http_parse_done(struct http_parse *p)
{
	buf_done(&p->body);
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* "HTTP/1.1 200 OK" */
static int status_line(struct http_parse *p, const char *line)
{
	if (strncmp(line, "HTTP/1.", 7) != 0 || !is_digit(line[7]) || line[8] != ' ' ||
	    line[9] < '1' || line[9] > '5' || !is_digit(line[10]) || !is_digit(line[11]) ||
	    (line[12] != ' ' && line[12] != '\0'))
		return -EBADMSG;
	p->status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
	p->state = HTTP_PARSE_HEADER;
	return 0;
}

static int content_length(struct http_parse *p, const char *value)
{
	uint64_t length;

	if (str_to_u64(value, &length) < 0)
		return -EBADMSG;
	/* Two that differ are the classic way to smuggle one answer into another. */
	if (p->has_length && length != p->left)
		return -EBADMSG;
	p->has_length = true;
	p->left = length;
	return 0;
}

static void content_type(struct http_parse *p, const char *value)
{
	size_t n = strcspn(value, "; \t");

	if (n >= sizeof(p->content_type))
		n = 0;
	for (size_t i = 0; i < n; i++)
		p->content_type[i] = (char)tolower((unsigned char)value[i]);
	p->content_type[n] = '\0';
}

static int header_line(struct http_parse *p, char *line)
{
	char *value = strchr(line, ':');
	size_t n;

	if (++p->n_headers > HTTP_PARSE_HEADERS_MAX)
		return -EMSGSIZE;
	/* No name, a blank before the colon, a continued line: all refused. */
	if (!value || value == line || strcspn(line, " \t") < (size_t)(value - line))
		return -EBADMSG;
	*value++ = '\0';
	value += strspn(value, " \t");
	n = strlen(value);
	while (n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\t'))
		value[--n] = '\0';
	if (strcasecmp(line, "Content-Length") == 0)
		return content_length(p, value);
	if (strcasecmp(line, "Content-Type") == 0)
		content_type(p, value);
	if (strcasecmp(line, "Transfer-Encoding") != 0)
		return 0;
	if (strcasecmp(value, "chunked") != 0 || p->chunked)
		return -EBADMSG;
	p->chunked = true;
	return 0;
}

static int headers_end(struct http_parse *p)
{
	if (p->chunked && p->has_length)
		return -EBADMSG;
	if (p->status < 200) {
		/* An interim answer; the real one follows. 101 was never asked for. */
		if (p->status == 101 || p->chunked || p->has_length)
			return -EBADMSG;
		p->state = HTTP_PARSE_STATUS;
		return 0;
	}
	p->headers_done = true;
	if (p->no_body || p->status == 204 || p->status == 304 || (p->has_length && p->left == 0))
		p->state = HTTP_PARSE_DONE;
	else if (p->chunked)
		p->state = HTTP_PARSE_CHUNK_SIZE;
	else
		p->state = p->has_length ? HTTP_PARSE_LENGTH : HTTP_PARSE_UNTIL_EOF;
	if (p->state == HTTP_PARSE_LENGTH && p->left > p->body_limit)
		return -EMSGSIZE;
	return 0;
}

static int chunk_size(struct http_parse *p, const char *line)
{
	uint64_t size = 0;
	size_t i;

	for (i = 0; isxdigit((unsigned char)line[i]); i++) {
		unsigned char c = (unsigned char)line[i];

		if (i >= 8)
			return -EMSGSIZE;
		size = size << 4 | (uint64_t)(is_digit((char)c) ? c - '0' : tolower(c) - 'a' + 10);
	}
	if (i == 0 || (line[i] != '\0' && line[i] != ';' && line[i] != ' '))
		return -EBADMSG;
	p->left = size;
	p->state = size ? HTTP_PARSE_CHUNK_DATA : HTTP_PARSE_TRAILER;
	return 0;
}

static int take_line(struct http_parse *p, char *line)
{
	switch (p->state) {
	case HTTP_PARSE_STATUS:
		return status_line(p, line);
	case HTTP_PARSE_HEADER:
		return *line ? header_line(p, line) : headers_end(p);
	case HTTP_PARSE_CHUNK_SIZE:
		return chunk_size(p, line);
	case HTTP_PARSE_CHUNK_END:
		p->state = HTTP_PARSE_CHUNK_SIZE;
		return *line ? -EBADMSG : 0;
	case HTTP_PARSE_TRAILER:
		if (*line == '\0')
			p->state = HTTP_PARSE_DONE;
		return ++p->n_headers > HTTP_PARSE_HEADERS_MAX ? -EMSGSIZE : 0;
	case HTTP_PARSE_LENGTH:
	case HTTP_PARSE_UNTIL_EOF:
	case HTTP_PARSE_CHUNK_DATA:
	case HTTP_PARSE_DONE:
		break;
	}
	return -EBADMSG;
}

/* Takes bytes of a line; returns how many, negative on failure. */
static ssize_t feed_line(struct http_parse *p, const char *data, size_t n)
{
	const char *end = memchr(data, '\n', n);
	size_t part = end ? (size_t)(end - data) : n;
	int r;

	if (memchr(data, '\0', part))
		return -EBADMSG;
	if (p->line_len + part >= sizeof(p->line))
		return -EMSGSIZE;
	memcpy(p->line + p->line_len, data, part);
	p->line_len += part;
	if (!end)
		return (ssize_t)n;
	if (p->line_len > 0 && p->line[p->line_len - 1] == '\r')
		p->line_len--;
	p->line[p->line_len] = '\0';
	p->line_len = 0;
	if (strchr(p->line, '\r'))
		return -EBADMSG;
	r = take_line(p, p->line);
	return r < 0 ? r : (ssize_t)part + 1;
}

static ssize_t feed_body(struct http_parse *p, const char *data, size_t n)
{
	if (p->state != HTTP_PARSE_UNTIL_EOF)
		n = (size_t)MIN((uint64_t)n, p->left);
	if (n > p->body_limit - MIN(p->body_limit, p->body.len))
		return -EMSGSIZE;
	buf_add(&p->body, data, n);
	if (p->body.failed)
		return -ENOMEM;
	if (p->state == HTTP_PARSE_UNTIL_EOF)
		return (ssize_t)n;
	p->left -= n;
	if (p->left == 0)
		p->state = p->state == HTTP_PARSE_LENGTH ? HTTP_PARSE_DONE : HTTP_PARSE_CHUNK_END;
	return (ssize_t)n;
}

int http_parse_feed(struct http_parse *p, const void *data, size_t n)
{
	const char *at = data;

	while (n > 0 && p->state != HTTP_PARSE_DONE) {
		bool in_body = p->state == HTTP_PARSE_LENGTH || p->state == HTTP_PARSE_UNTIL_EOF ||
			       p->state == HTTP_PARSE_CHUNK_DATA;
		ssize_t used = in_body ? feed_body(p, at, n) : feed_line(p, at, n);

		if (used < 0)
			return (int)used;
		at += used;
		n -= (size_t)used;
	}
	return p->state == HTTP_PARSE_DONE ? 1 : 0;
}

int http_parse_eof(struct http_parse *p)
{
	if (p->state != HTTP_PARSE_DONE && p->state != HTTP_PARSE_UNTIL_EOF)
		return -EBADMSG;
	p->state = HTTP_PARSE_DONE;
	return 1;
}
