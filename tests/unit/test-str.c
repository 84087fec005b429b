/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#include <cmocka.h>

static void numbers_are_whole_or_refused(void **state)
{
	static const struct {
		const char *text;
		int r32, r64;
		uint64_t value;
	} cases[] = {
		{ "0", 0, 0, 0 },
		{ "7", 0, 0, 7 },
		{ "007", 0, 0, 7 },
		{ "4294967295", 0, 0, UINT32_MAX },
		{ "4294967296", -ERANGE, 0, UINT64_C(4294967296) },
		{ "18446744073709551615", -ERANGE, 0, UINT64_MAX },
		{ "18446744073709551616", -ERANGE, -ERANGE, 0 },
		{ "99999999999999999999999", -ERANGE, -ERANGE, 0 },
		{ "", -EINVAL, -EINVAL, 0 },
		{ "-1", -EINVAL, -EINVAL, 0 },
		{ "+1", -EINVAL, -EINVAL, 0 },
		{ "1.0", -EINVAL, -EINVAL, 0 },
		{ "0x1", -EINVAL, -EINVAL, 0 },
		{ "1k", -EINVAL, -EINVAL, 0 },
		{ "/", -EINVAL, -EINVAL, 0 },
		{ ":", -EINVAL, -EINVAL, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint32_t v32 = 77;
		uint64_t v64 = 77;

		assert_int_equal(str_to_u32(cases[i].text, &v32), cases[i].r32);
		assert_int_equal(str_to_u64(cases[i].text, &v64), cases[i].r64);
		assert_int_equal(v32, cases[i].r32 ? 77 : cases[i].value);
		assert_true(v64 == (cases[i].r64 ? 77 : cases[i].value));
	}
}

static void counted_numbers_pass_over_blanks_around(void **state)
{
	static const struct {
		const char *text;
		size_t n;
		int r;
		uint32_t value;
	} cases[] = {
		{ "1150\n", 5, 0, 1150 }, { " \t12\r\n ", 7, 0, 12 },
		{ "123456", 3, 0, 123 },  { "", 0, -EINVAL, 0 },
		{ " \n", 2, -EINVAL, 0 }, { "1 2", 3, -EINVAL, 0 },
		{ "1\0", 2, -EINVAL, 0 }, { "4294967296\n", 11, -ERANGE, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint32_t v = 77;

		assert_int_equal(str_to_u32_n(cases[i].text, cases[i].n, &v), cases[i].r);
		assert_int_equal(v, cases[i].r ? 77 : cases[i].value);
	}
}

static void durations_have_units(void **state)
{
	static const struct {
		const char *text;
		int r;
		uint64_t usec;
	} cases[] = {
		{ "0", 0, 0 },
		{ "3", 0, 3000000 },
		{ "500ms", 0, 500000 },
		{ "7us", 0, 7 },
		{ "2s", 0, 2000000 },
		{ "1m", 0, 60000000 },
		{ "1h", 0, UINT64_C(3600000000) },
		{ "5124095576h", 0, UINT64_C(5124095576) * UINT64_C(3600000000) },
		{ "5124095577h", -ERANGE, 0 },
		{ "18446744073709551615", -ERANGE, 0 },
		{ "18446744073709551616us", -ERANGE, 0 },
		{ "", -EINVAL, 0 },
		{ "s", -EINVAL, 0 },
		{ "1 s", -EINVAL, 0 },
		{ " 1s", -EINVAL, 0 },
		{ "1s ", -EINVAL, 0 },
		{ "1.5s", -EINVAL, 0 },
		{ "-1s", -EINVAL, 0 },
		{ "1S", -EINVAL, 0 },
		{ "1d", -EINVAL, 0 },
		{ "1m30s", -EINVAL, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t usec = 77;

		if (str_to_usec(cases[i].text, &usec) != cases[i].r)
			fail_msg("'%s'", cases[i].text);
		assert_true(usec == (cases[i].r ? 77 : cases[i].usec));
	}
}

static void copies_whole_or_not_at_all(void **state)
{
	char buf[5] = "old";

	(void)state;
	assert_int_equal(str_copy(buf, sizeof buf, "12345"), -ENAMETOOLONG);
	assert_string_equal(buf, "old");
	assert_int_equal(str_copy(buf, sizeof buf, "1234"), 0);
	assert_string_equal(buf, "1234");
	assert_int_equal(str_copy(buf, sizeof buf, ""), 0);
	assert_string_equal(buf, "");
	str_copy_cut(buf, sizeof buf, "123456789");
	assert_string_equal(buf, "1234");
	str_copy_cut(buf, sizeof buf, "ab");
	assert_string_equal(buf, "ab");
	str_copy_cut(buf, 1, "ab");
	assert_string_equal(buf, "");
}

static void outside_text_is_made_safe(void **state)
{
	static const struct {
		const char *text;
		bool utf8;
		const char *safe;
	} cases[] = {
		{ "", true, "" },
		{ "plain ~", true, "plain ~" },
		{ "a\nb\tc\r", true, "a?b?c?" },
		{ "\x1b[31m", true, "?[31m" },
		{ "\x7f", true, "?" },
		{ "caf\xc3\xa9", true, "caf\xc3\xa9" },
		{ "\xe2\x82\xac", true, "\xe2\x82\xac" },
		{ "\xf0\x9f\x98\x80", true, "\xf0\x9f\x98\x80" },
		{ "\xc2\xa1", true, "\xc2\xa1" },
		{ "\xdf\xbf", true, "\xdf\xbf" },
		{ "\xe0\xa0\x80", true, "\xe0\xa0\x80" },
		{ "\xed\x9f\xbf", true, "\xed\x9f\xbf" },
		{ "\xed\xbf\xbf", false, "???" },
		{ "\xee\x80\x80", true, "\xee\x80\x80" },
		{ "\xef\xbf\xbf", true, "\xef\xbf\xbf" },
		{ "\xf0\x90\x80\x80", true, "\xf0\x90\x80\x80" },
		{ "\xf4\x8f\xbf\xbf", true, "\xf4\x8f\xbf\xbf" },
		{ "\xc2\x9b", true, "??" }, /* U+009B, a control character */
		{ "\xc2\xa0", true, "\xc2\xa0" },
		{ "\xd8\x9b", true, "\xd8\x9b" },
		{ "\xd8\x9c", true, "??" }, /* U+061C, and others that change the direction */
		{ "\xe2\x80\x8d", true, "\xe2\x80\x8d" },
		{ "\xe2\x80\x8e", true, "???" },
		{ "\xe2\x80\xa7", true, "\xe2\x80\xa7" },
		{ "a\xe2\x80\xa8z", true, "a???z" },
		{ "a\xe2\x80\xaez", true, "a???z" },
		{ "\xe2\x80\xaf", true, "\xe2\x80\xaf" },
		{ "\xe2\x81\xa5", true, "\xe2\x81\xa5" },
		{ "\xe2\x81\xa6", true, "???" },
		{ "\xe2\x81\xa9", true, "???" },
		{ "\xe2\x81\xaa", true, "\xe2\x81\xaa" },
		{ "\x80", false, "?" },
		{ "\xff", false, "?" },
		{ "\xc3", false, "?" },
		{ "\xc3(", false, "?(" },
		{ "\xe2\x82", false, "??" },
		{ "\xc0\xaf", false, "??" },	       /* overlong */
		{ "\xe0\x80\xaf", false, "???" },      /* overlong */
		{ "\xf0\x80\x80\xaf", false, "????" }, /* overlong */
		{ "\xed\xa0\x80", false, "???" },      /* surrogate */
		{ "\xf4\x90\x80\x80", false, "????" }, /* beyond U+10FFFF */
		{ "\xf5\x80\x80\x80", false, "????" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char *copy = strdup(cases[i].text);
		size_t n = strlen(copy);

		assert_int_equal(str_is_utf8(copy, n), cases[i].utf8);
		str_sanitize(copy, n);
		assert_string_equal(copy, cases[i].safe);
		assert_true(str_is_utf8(copy, n));
		free(copy);
	}
}

static void a_counted_text_may_hold_nul_and_end_anywhere(void **state)
{
	char text[4] = { 'a', '\0', '\xc3', '\xa9' };

	(void)state;
	assert_true(str_is_utf8(text, 4));
	assert_false(str_is_utf8(text, 3));
	str_sanitize(text, 3);
	assert_memory_equal(text, "a??\xa9", 4);
}

static void starts_and_ends(void **state)
{
	(void)state;
	assert_true(str_starts_with("virtfn0", "virtfn"));
	assert_true(str_starts_with("x", ""));
	assert_false(str_starts_with("virt", "virtfn"));
	assert_true(str_ends_with("a.sock", ".sock"));
	assert_true(str_ends_with(".sock", ".sock"));
	assert_false(str_ends_with("sock", ".sock"));
	assert_false(str_ends_with("a.sock", ".lock"));
	assert_true(str_ends_with("x", ""));
	assert_true(str_is_empty(NULL));
	assert_true(str_is_empty(""));
	assert_false(str_is_empty(" "));
}

static void prints_into_fresh_memory(void **state)
{
	char *s = str_printf("%s/%d", "a", 5);

	(void)state;
	assert_string_equal(s, "a/5");
	free(s);
	s = str_printf("%s", "");
	assert_string_equal(s, "");
	free(s);
}

static void times_are_dates_that_exist(void **state)
{
	static const char *const good[] = {
		"2026-11-29T16:38:00Z",
		"2026-11-29T16:38:00.123456789Z",
		"2028-02-29T23:59:59+05:30",
		"2000-02-29T00:00:00-23:59",
		"2026-01-31T00:00:00.000000000000Z",
		"0001-01-01T00:00:00Z",
	};
	static const char *const bad[] = {
		"",
		"Z",
		"2026",
		"2026-11-29",
		"2026-11-29T16:38:00",
		"2026-11-29T16:38Z",
		"2026-11-29 16:38:00Z",
		"2026-11-29t16:38:00z",
		"2026-11-29T16:38:00.Z",
		"2026-11-29T16:38:00ZZ",
		"2026-11-29T16:38:00Z ",
		" 2026-11-29T16:38:00Z",
		"2026-00-29T16:38:00Z",
		"2026-13-29T16:38:00Z",
		"2026-11-00T16:38:00Z",
		"2026-11-31T16:38:00Z",
		"2027-02-29T16:38:00Z",
		"1900-02-29T16:38:00Z",
		"2026-11-29T24:00:00Z",
		"2026-11-29T16:60:00Z",
		"2026-11-29T16:38:60Z",
		"2026-11-29T16:38:00+0100",
		"2026-11-29T16:38:00+24:00",
		"2026-11-29T16:38:00+01:60",
		"2026-11-29T16:38:00*01:00",
		"2026-11-29T16:38:00+01:0x",
		"2o26-11-29T16:38:00Z",
		"2026-11-29T16:38:00.1",
		"-026-11-29T16:38:00Z",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		if (!str_is_rfc3339(good[i], strlen(good[i])))
			fail_msg("refused: %s", good[i]);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (str_is_rfc3339(bad[i], strlen(bad[i])))
			fail_msg("accepted: %s", bad[i]);
	/* No byte beyond its end is looked at. */
	for (size_t n = 0; n < strlen(good[1]); n++)
		assert_false(str_is_rfc3339(good[1], n));
}

static void test_hex_digit(void **state)
{
	static const char digits[] = "0123456789abcdef";

	(void)state;
	for (int c = CHAR_MIN; c <= CHAR_MAX; c++) {
		const char *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c)
				   : NULL;

		assert_int_equal(str_hex_digit((char)c), at ? at - digits : -1);
	}
}

static void quotes_so_that_the_end_is_seen(void **state)
{
	static const struct {
		const char *text;
		size_t size;
		const char *quoted;
	} cases[] = {
		{ "", 3, "\"\"" },
		{ "a", 3, "\"\"" }, /* cut, but quoted */
		{ "a", 4, "\"a\"" },
		{ "qemu", 20, "\"qemu\"" },
		{ "a\" uid=0", 20, "\"a\\\" uid=0\"" },
		{ "a\\", 20, "\"a\\\\\"" },
		{ "a\"", 5, "\"a\"" }, /* never half an escape */
		{ "a\"", 6, "\"a\\\"\"" },
		{ "abcdef", 6, "\"abc\"" },
	};
	char out[32];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		memset(out, 'x', sizeof out);
		assert_ptr_equal(str_quote(cases[i].text, out, cases[i].size), out);
		assert_string_equal(out, cases[i].quoted);
		assert_int_equal(out[cases[i].size], 'x');
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hex_digit),
		cmocka_unit_test(numbers_are_whole_or_refused),
		cmocka_unit_test(counted_numbers_pass_over_blanks_around),
		cmocka_unit_test(durations_have_units),
		cmocka_unit_test(copies_whole_or_not_at_all),
		cmocka_unit_test(outside_text_is_made_safe),
		cmocka_unit_test(a_counted_text_may_hold_nul_and_end_anywhere),
		cmocka_unit_test(starts_and_ends),
		cmocka_unit_test(prints_into_fresh_memory),
		cmocka_unit_test(times_are_dates_that_exist),
		cmocka_unit_test(quotes_so_that_the_end_is_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
