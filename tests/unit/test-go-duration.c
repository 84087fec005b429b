/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plugin/go-duration.h"

/* Values as Go's own documentation and tests of ParseDuration state them. */
static void test_good(void **state)
{
	static const struct {
		const char *text;
		int64_t nsec;
	} cases[] = {
		{ "0", 0 },
		{ "+0", 0 },
		{ "-0", 0 },
		{ "5s", INT64_C(5000000000) },
		{ "+5s", INT64_C(5000000000) },
		{ "-5s", INT64_C(-5000000000) },
		{ "5.0s", INT64_C(5000000000) },
		{ "5.s", INT64_C(5000000000) },
		{ ".5s", 500000000 },
		{ "1.0001s", 1000100000 },
		{ "10ns", 10 },
		{ "11us", 11000 },
		{ "12\302\265s", 12000 },
		{ "12\316\274s", 12000 },
		{ "13ms", 13000000 },
		{ "15m", INT64_C(900000000000) },
		{ "16h", INT64_C(57600000000000) },
		{ "3h30m", INT64_C(12600000000000) },
		{ "10.5s4m", INT64_C(250500000000) },
		{ "-2m3.4s", INT64_C(-123400000000) },
		{ "39h9m14.425s", INT64_C(140954425000000) },
		{ "0.3333333333333333333h", INT64_C(1200000000000) },
		{ "9007199254740993ns", INT64_C(9007199254740993) },
		{ "9223372036854775807ns", INT64_MAX },
		{ "9223372036s854ms775us807ns", INT64_MAX },
		{ "-9223372036854775808ns", INT64_MIN },
		{ "0.100000000000000000000h", INT64_C(360000000000) },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int64_t nsec = 1;

		assert_int_equal(go_duration_parse(cases[i].text, &nsec), 0);
		assert_int_equal(nsec, cases[i].nsec);
	}
}

static void test_bad(void **state)
{
	static const struct {
		const char *text;
		int code;
	} cases[] = {
		{ "", -EINVAL },
		{ "3", -EINVAL },
		{ "-", -EINVAL },
		{ "s", -EINVAL },
		{ ".", -EINVAL },
		{ "-.", -EINVAL },
		{ ".s", -EINVAL },
		{ "+.s", -EINVAL },
		{ "1d", -EINVAL },
		{ "5 s", -EINVAL },
		{ " 5s", -EINVAL },
		{ "5s ", -EINVAL },
		{ "5S", -EINVAL },
		{ "--5s", -EINVAL },
		{ "5s-1s", -EINVAL },
		{ "5ss", -EINVAL },
		{ "1e3s", -EINVAL },
		{ "0x5s", -EINVAL },
		{ "9223372036854775808ns", -ERANGE },
		{ "2562048h", -ERANGE },
		{ "9223372036855ms", -ERANGE },
		{ "99999999999999999999s", -ERANGE },
		{ "-9223372036854775809ns", -ERANGE },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int64_t nsec = 77;

		assert_int_equal(go_duration_parse(cases[i].text, &nsec), cases[i].code);
		assert_int_equal(nsec, 77);
	}
}

static void test_interval(void **state)
{
	static const struct {
		const char *text;
		int code;
		uint64_t usec;
		bool raised;
	} cases[] = {
		{ NULL, 0, 0, false },	       { "", 0, 0, false },
		{ "0", 0, 0, false },	       { "0s", 0, 0, false },
		{ "1ns", 0, 5000000, true },   { "4.999999999s", 0, 5000000, true },
		{ "5s", 0, 5000000, false },   { "5.000001s", 0, 5000001, false },
		{ "30s", 0, 30000000, false }, { "-1ns", -EINVAL, 0, false },
		{ "30", -EINVAL, 0, false },   { "often", -EINVAL, 0, false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct rescan_interval r = { 0 };
		struct error err = ERROR_INIT;

		assert_int_equal(rescan_interval_parse("NAME", cases[i].text, &r, &err),
				 cases[i].code);
		assert_int_equal(r.usec, cases[i].usec);
		assert_int_equal(r.raised, cases[i].raised);
		if (cases[i].code)
			assert_non_null(strstr(error_text(&err), "NAME"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_interval),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
