/* SPDX-License-Identifier: Apache-2.0 */
/* Framing, grpc-timeout, grpc-message, status and content-type: tables, both sides of each limit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "grpc/wire.h"

#define MAX_SIZE 10

static int read_in_steps(struct grpc_reader *r, const uint8_t *data, size_t n, size_t step)
{
	int e = 0;

	grpc_reader_init(r, MAX_SIZE);
	for (size_t at = 0; at < n && e == 0; at += step)
		e = grpc_reader_feed(r, data + at, MIN(step, n - at));
	return e < 0 ? e : grpc_reader_finish(r);
}

static void test_reader(void **state)
{
	static const struct {
		const char *bytes;
		size_t n;
		int result;
		size_t size;
	} cases[] = {
		{ "", 0, -ENODATA, 0 },
		{ "\0\0\0\0", 4, -EBADMSG, 0 },
		{ "\0\0\0\0\0", 5, 0, 0 },
		{ "\0\0\0\0\3abc", 8, 0, 3 },
		{ "\0\0\0\0\3ab", 7, -EBADMSG, 0 },
		{ "\0\0\0\0\3abcd", 9, -EBADMSG, 0 },
		{ "\0\0\0\0\0\0\0\0\0\0", 10, -EBADMSG, 0 },
		{ "\0\0\0\0\12abcdefghij", 15, 0, 10 },
		{ "\0\0\0\0\13abcdefghijk", 16, -EMSGSIZE, 0 },
		{ "\0\377\377\377\377", 5, -EMSGSIZE, 0 },
		{ "\1\0\0\0\0", 5, -EOPNOTSUPP, 0 },
		{ "\2\0\0\0\0", 5, -EBADMSG, 0 },
		{ "\377\0\0\0\0", 5, -EBADMSG, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		for (size_t step = 1; step <= 16; step++) {
			struct grpc_reader r;
			const uint8_t *bytes = (const uint8_t *)cases[i].bytes;
			int e = read_in_steps(&r, bytes, cases[i].n, step);

			assert_int_equal(e, cases[i].result);
			if (e == 0) {
				assert_int_equal(r.have, cases[i].size);
				assert_memory_equal(r.msg ? r.msg : bytes + GRPC_PREFIX_SIZE,
						    bytes + GRPC_PREFIX_SIZE, cases[i].size);
			}
			grpc_reader_done(&r);
		}
	}
}

/* What was announced costs nothing until it comes. */
static void test_reader_grows_with_the_data(void **state)
{
	static const uint8_t prefix[] = { 0, 0, 64, 0, 0 };
	uint8_t data[100] = { 0 };
	struct grpc_reader r;

	(void)state;
	grpc_reader_init(&r, GRPC_MESSAGE_MAX);
	assert_int_equal(grpc_reader_feed(&r, prefix, sizeof(prefix)), 0);
	assert_int_equal(r.size, GRPC_MESSAGE_MAX);
	assert_int_equal(r.cap, 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(grpc_reader_feed(&r, data, sizeof(data)), 0);
	assert_in_range(r.cap, 10000, 20000);
	grpc_reader_done(&r);
	assert_null(r.msg);
}

static void test_prefix(void **state)
{
	uint8_t prefix[GRPC_PREFIX_SIZE];

	(void)state;
	grpc_prefix_write(prefix, 0x01020304);
	assert_memory_equal(prefix, "\0\1\2\3\4", 5);
}

static void test_timeout_parse(void **state)
{
	static const struct {
		const char *text;
		int result;
		uint64_t usec;
	} cases[] = {
		{ "29999983u", 0, 29999983 },
		{ "1H", 0, 3600 * USEC_PER_SEC },
		{ "2M", 0, 120 * USEC_PER_SEC },
		{ "10S", 0, 10 * USEC_PER_SEC },
		{ "300m", 0, 300000 },
		{ "0u", 0, 0 },
		{ "1n", 0, 1 },
		{ "1000n", 0, 1 },
		{ "1001n", 0, 2 },
		{ "99999999H", 0, UINT64_C(99999999) * 3600 * USEC_PER_SEC },
		{ "00000001S", 0, USEC_PER_SEC },
		{ "", -EINVAL, 0 },
		{ "S", -EINVAL, 0 },
		{ "5", -EINVAL, 0 },
		{ "123456789S", -EINVAL, 0 },
		{ "5s", -EINVAL, 0 },
		{ "5 S", -EINVAL, 0 },
		{ "-5S", -EINVAL, 0 },
		{ "+5S", -EINVAL, 0 },
		{ "5SS", -EINVAL, 0 },
		{ "0x5S", -EINVAL, 0 },
		{ "1.5S", -EINVAL, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t usec = 77;
		int r = grpc_timeout_parse(cases[i].text, strlen(cases[i].text), &usec);

		assert_int_equal(r, cases[i].result);
		assert_true(usec == (r < 0 ? 77 : cases[i].usec));
	}
}

static void test_timeout_format(void **state)
{
	static const struct {
		uint64_t usec;
		const char *text;
	} cases[] = {
		{ 1, "1u" },
		{ 99999999, "99999999u" },
		{ 100000000, "100000m" },
		{ 100000001, "100001m" },
		{ UINT64_C(99999999000), "99999999m" },
		{ UINT64_C(99999999001), "100000S" },
		{ UINT64_C(99999999) * USEC_PER_SEC, "99999999S" },
		{ UINT64_C(100000000) * USEC_PER_SEC, "27778H" },
		{ UINT64_MAX, "99999999H" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char text[GRPC_TIMEOUT_TEXT_MAX];
		uint64_t back = 0;

		grpc_timeout_format(cases[i].usec, text);
		if (cases[i].usec != UINT64_MAX) {
			assert_string_equal(text, cases[i].text);
			assert_int_equal(grpc_timeout_parse(text, strlen(text), &back), 0);
			assert_true(back >= cases[i].usec);
		}
		assert_in_range(strlen(text), 2, 9);
	}
}

static void test_text(void **state)
{
	static const struct {
		const char *text, *encoded, *back;
	} cases[] = {
		{ "", "", NULL },
		{ "plain text", "plain text", NULL },
		{ "100%", "100%25", NULL },
		{ "Gr\303\266\303\237e", "Gr%C3%B6%C3%9Fe", NULL },
		{ "a\nb\177", "a?b?", "a?b?" },
		{ "cut \303", "cut ?", "cut ?" },
		{ "~ %41", "~ %2541", NULL },
	};
	char encoded[GRPC_ENCODED_TEXT_MAX], back[GRPC_TEXT_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		grpc_text_encode(cases[i].text, encoded);
		assert_string_equal(encoded, cases[i].encoded);
		grpc_text_decode(encoded, strlen(encoded), back);
		assert_string_equal(back, cases[i].back ? cases[i].back : cases[i].text);
	}
}

static void test_text_decode_is_lenient(void **state)
{
	static const struct {
		const char *text, *back;
	} cases[] = {
		{ "%", "%" },	  { "%4", "%4" },   { "%4g", "%4g" },
		{ "%g4", "%g4" }, { "%%41", "%A" }, { "%c3%b6", "\303\266" },
		{ "%00x", "?x" }, { "%0A", "?" },   { "\303\266", "\303\266" },
		{ "%FF", "?" },
	};
	char back[GRPC_TEXT_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		grpc_text_decode(cases[i].text, strlen(cases[i].text), back);
		assert_string_equal(back, cases[i].back);
	}
}

static void test_text_is_cut(void **state)
{
	char encoded[GRPC_ENCODED_TEXT_MAX], back[GRPC_TEXT_MAX];
	char text[4 * GRPC_TEXT_MAX];

	(void)state;
	memset(text, '%', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	grpc_text_encode(text, encoded);
	assert_int_equal(strlen(encoded), 3 * (GRPC_TEXT_MAX - 1));
	grpc_text_decode(text, sizeof(text) - 1, back);
	assert_int_equal(strlen(back), GRPC_TEXT_MAX - 1);
}

static void test_status(void **state)
{
	(void)state;
	assert_int_equal(grpc_status_parse("0", 1), GRPC_OK);
	assert_int_equal(grpc_status_parse("16", 2), GRPC_UNAUTHENTICATED);
	assert_int_equal(grpc_status_parse("17", 2), GRPC_UNKNOWN);
	assert_int_equal(grpc_status_parse("", 0), GRPC_UNKNOWN);
	assert_int_equal(grpc_status_parse("-1", 2), GRPC_UNKNOWN);
	assert_int_equal(grpc_status_parse("99999999999999", 14), GRPC_UNKNOWN);
	assert_string_equal(grpc_status_name(GRPC_OK), "OK");
	assert_string_equal(grpc_status_name(GRPC_UNAUTHENTICATED), "UNAUTHENTICATED");
	assert_string_equal(grpc_status_name((enum grpc_status)17), "UNKNOWN");
	assert_string_equal(grpc_status_name((enum grpc_status) - 1), "UNKNOWN");
}

static void test_content_type(void **state)
{
	static const char *const good[] = { "application/grpc", "application/grpc+proto",
					    "application/grpc;charset=x", "Application/gRPC" };
	static const char *const bad[] = { "", "application/grp", "application/grpc-web",
					   "application/json", "application/grpcx" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(grpc_content_type_ok(good[i], strlen(good[i])));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(grpc_content_type_ok(bad[i], strlen(bad[i])));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reader),
		cmocka_unit_test(test_reader_grows_with_the_data),
		cmocka_unit_test(test_prefix),
		cmocka_unit_test(test_timeout_parse),
		cmocka_unit_test(test_timeout_format),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_text_decode_is_lenient),
		cmocka_unit_test(test_text_is_cut),
		cmocka_unit_test(test_status),
		cmocka_unit_test(test_content_type),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
