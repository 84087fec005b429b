/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "client/http-client.h"
#include "client/http-parse.h"

#include <cmocka.h>

#define OK "HTTP/1.1 200 OK\r\n"

/* Feeds in pieces of `step` bytes, then the end; returns the last result. */
static int parse(struct http_parse *p, const char *text, size_t n, size_t step)
{
	int r = 0;

	for (size_t at = 0; at < n && r == 0; at += step)
		r = http_parse_feed(p, text + at, MIN(step, n - at));
	return r == 0 ? http_parse_eof(p) : r;
}

static void refuses(void **state)
{
	static const struct {
		const char *text;
		int error;
	} cases[] = {
		{ "", -EBADMSG },
		{ "\r\n", -EBADMSG },
		{ "HTTP/2 200 OK\r\n\r\n", -EBADMSG },
		{ "HTTP/1.1 20 OK\r\n\r\n", -EBADMSG },
		{ "HTTP/1.1 2000 OK\r\n\r\n", -EBADMSG },
		{ "HTTP/1.1 600 OK\r\n\r\n", -EBADMSG },
		{ "HTTP/1.1  200 OK\r\n\r\n", -EBADMSG },
		{ "ICY 200 OK\r\n\r\n", -EBADMSG },
		{ OK, -EBADMSG },
		{ OK "Content-Length: 3\r\n\r\nab", -EBADMSG },
		{ OK "Content-Length: -1\r\n\r\n", -EBADMSG },
		{ OK "Content-Length: 1x\r\n\r\n", -EBADMSG },
		{ OK "Content-Length: \r\n\r\n", -EBADMSG },
		{ OK "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", -EBADMSG },
		{ OK "Content-Length: 99999999999999999999\r\n\r\n", -EBADMSG },
		{ OK "Content-Length: 101\r\n\r\n", -EMSGSIZE },
		{ OK "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", -EBADMSG },
		{ OK "Transfer-Encoding: gzip\r\n\r\n", -EBADMSG },
		{ OK "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		  -EBADMSG },
		{ OK "no colon\r\n\r\n", -EBADMSG },
		{ OK ": empty\r\n\r\n", -EBADMSG },
		{ OK "A : blank\r\n\r\n", -EBADMSG },
		{ OK " folded: x\r\n\r\n", -EBADMSG },
		{ OK "A: b\rc\r\n\r\n", -EBADMSG },
		{ OK "Transfer-Encoding: chunked\r\n\r\n\r\n", -EBADMSG },
		{ OK "Transfer-Encoding: chunked\r\n\r\n-1\r\n", -EBADMSG },
		{ OK "Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n", -EBADMSG },
		{ OK "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", -EBADMSG },
		{ OK "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n", -EBADMSG },
		{ OK "Transfer-Encoding: chunked\r\n\r\n0\r\n", -EBADMSG },
		{ OK "Transfer-Encoding: chunked\r\n\r\nfffffffff\r\n", -EMSGSIZE },
		{ "HTTP/1.1 101 Switching\r\n\r\n", -EBADMSG },
		{ "HTTP/1.1 100 Continue\r\nContent-Length: 1\r\n\r\n", -EBADMSG },
	};
	static const size_t steps[] = { 1, 7, 100000 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		for (size_t s = 0; s < ARRAY_SIZE(steps); s++) {
			struct http_parse p;

			http_parse_init(&p, 100);
			if (parse(&p, cases[i].text, strlen(cases[i].text), steps[s]) !=
			    cases[i].error)
				fail_msg("case %zu, step %zu", i, steps[s]);
			http_parse_done(&p);
		}
	}
}

static void takes(void **state)
{
	static const struct {
		const char *text;
		int status;
		const char *type;
		const char *body;
	} cases[] = {
		{ OK "Content-Length: 3\r\n\r\nabc", 200, "", "abc" },
		{ OK "content-length:3\r\nContent-Length: 3\r\n\r\nabc", 200, "", "abc" },
		{ OK "Content-Length: 3\r\n\r\nabcdef", 200, "", "abc" },
		{ OK "Content-Length: 0\r\n\r\n", 200, "", "" },
		{ OK "\r\nuntil the end", 200, "", "until the end" },
		{ "HTTP/1.0 404\r\nContent-Type: Text/HTML; charset=x\r\n\r\n", 404, "text/html",
		  "" },
		{ "HTTP/1.1 204 No Content\r\n\r\n", 204, "", "" },
		{ "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", 204, "", "" },
		{ OK "Transfer-Encoding: "
		     "Chunked\r\n\r\n3\r\nabc\r\n0a;x=y\r\n0123456789\r\n0\r\nT: x\r\n\r\n",
		  200, "", "abc0123456789" },
		{ "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\nx",
		  201, "", "x" },
		{ "HTTP/1.1 200 OK\nContent-Length: 1\n\nx", 200, "", "x" },
	};
	static const size_t steps[] = { 1, 7, 100000 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		for (size_t s = 0; s < ARRAY_SIZE(steps); s++) {
			struct http_parse p;

			http_parse_init(&p, 100);
			if (parse(&p, cases[i].text, strlen(cases[i].text), steps[s]) != 1)
				fail_msg("case %zu, step %zu", i, steps[s]);
			assert_int_equal(p.status, cases[i].status);
			assert_string_equal(p.content_type, cases[i].type);
			assert_int_equal(p.body.len, strlen(cases[i].body));
			assert_memory_equal(p.body.data ? p.body.data : "", cases[i].body,
					    p.body.len);
			http_parse_done(&p);
		}
	}
}

static int feed(struct http_parse *p, const char *text)
{
	return http_parse_feed(p, text, strlen(text));
}

static void has_limits(void **state)
{
	static char line[HTTP_PARSE_LINE_MAX + 10];
	struct http_parse p;

	(void)state;
	/* A line: both sides. The CR counts. */
	for (size_t n = HTTP_PARSE_LINE_MAX - 2; n <= HTTP_PARSE_LINE_MAX - 1; n++) {
		memset(line, 'x', n);
		line[1] = ':';
		strcpy(line + n, "\r\n");
		http_parse_init(&p, 100);
		assert_int_equal(feed(&p, OK), 0);
		assert_int_equal(feed(&p, line), n < HTTP_PARSE_LINE_MAX - 1 ? 0 : -EMSGSIZE);
		http_parse_done(&p);
	}
	http_parse_init(&p, 100);
	assert_int_equal(feed(&p, OK), 0);
	for (int i = 0; i < HTTP_PARSE_HEADERS_MAX; i++)
		assert_int_equal(feed(&p, "A: b\r\n"), 0);
	assert_int_equal(feed(&p, "A: b\r\n"), -EMSGSIZE);
	http_parse_done(&p);

	/* The body, in each of its forms. */
	http_parse_init(&p, 4);
	assert_int_equal(feed(&p, OK "Content-Length: 4\r\n\r\nabcd"), 1);
	http_parse_done(&p);
	http_parse_init(&p, 4);
	assert_int_equal(feed(&p, OK "\r\nabcd"), 0);
	assert_int_equal(feed(&p, "e"), -EMSGSIZE);
	http_parse_done(&p);
	http_parse_init(&p, 4);
	assert_int_equal(feed(&p, OK "Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n"), 0);
	assert_int_equal(feed(&p, "1\r\ne"), -EMSGSIZE);
	http_parse_done(&p);
}

static void a_body_can_be_taken_as_it_comes(void **state)
{
	struct http_parse p;

	(void)state;
	http_parse_init(&p, 4);
	assert_int_equal(feed(&p, OK "Transfer-Encoding: chunked\r\n\r\n"), 0);
	assert_true(p.headers_done);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(feed(&p, "4\r\nabcd\r\n"), 0);
		assert_int_equal(p.body.len, 4);
		buf_clear(&p.body);
	}
	assert_int_equal(feed(&p, "0\r\n\r\n"), 1);
	http_parse_done(&p);
}

static void a_head_request_has_no_body(void **state)
{
	struct http_parse p;

	(void)state;
	http_parse_init(&p, 4);
	p.no_body = true;
	assert_int_equal(feed(&p, OK "Content-Length: 4000\r\n\r\n"), 1);
	http_parse_done(&p);
}

static void nul_bytes_are_refused(void **state)
{
	static const char text[] = OK "A: b\0c\r\n\r\n";
	struct http_parse p;

	(void)state;
	http_parse_init(&p, 4);
	assert_int_equal(http_parse_feed(&p, text, sizeof(text) - 1), -EBADMSG);
	http_parse_done(&p);
}

static void segments_are_encoded(void **state)
{
	char out[16];

	(void)state;
	assert_int_equal(http_client_encode("a/ü%", out, sizeof(out)), 0);
	assert_string_equal(out, "a%2F%C3%BC%25");
	assert_int_equal(http_client_encode("AZaz09._~-", out, sizeof(out)), 0);
	assert_string_equal(out, "AZaz09._~-");
	assert_int_equal(http_client_encode("0123456789abcde", out, sizeof(out)), 0);
	assert_int_equal(http_client_encode("0123456789abcdef", out, sizeof(out)), -ENAMETOOLONG);
	assert_int_equal(http_client_encode("/////", out, sizeof(out)), 0);
	assert_int_equal(http_client_encode("/////", out, 15), -ENAMETOOLONG);
	assert_int_equal(http_client_encode("", out, 0), -ENAMETOOLONG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses),
		cmocka_unit_test(takes),
		cmocka_unit_test(has_limits),
		cmocka_unit_test(a_body_can_be_taken_as_it_comes),
		cmocka_unit_test(a_head_request_has_no_body),
		cmocka_unit_test(nul_bytes_are_refused),
		cmocka_unit_test(segments_are_encoded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
