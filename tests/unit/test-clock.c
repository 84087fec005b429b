/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

#include <cmocka.h>

static void monotonic_time_is_in_microseconds_and_never_falls(void **state)
{
	uint64_t last = clock_now_usec();
	struct timespec ts;

	(void)state;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	/* The same clock, read twice, is a minute apart at the very most. */
	assert_true((uint64_t)ts.tv_sec * USEC_PER_SEC + 60 * USEC_PER_SEC > last);
	assert_true((uint64_t)ts.tv_sec * USEC_PER_SEC < last + 60 * USEC_PER_SEC);
	for (unsigned i = 0; i < 10000; i++) {
		uint64_t now = clock_now_usec();

		assert_true(now >= last);
		last = now;
	}
}

static void records_carry_utc_with_nanoseconds(void **state)
{
	char text[CLOCK_RFC3339_MAX];
	struct timespec before, after;
	time_t then;
	struct tm tm = { 0 };
	const char *rest;

	(void)state;
	/* Not time(): it may lag by a tick. */
	clock_gettime(CLOCK_REALTIME, &before);
	clock_rfc3339_now(text);
	clock_gettime(CLOCK_REALTIME, &after);
	assert_int_equal(strlen(text), strlen("2026-11-29T16:38:00.123456789Z"));
	rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	assert_non_null(rest);
	assert_int_equal(rest[0], '.');
	assert_int_equal(strspn(rest + 1, "0123456789"), 9);
	assert_string_equal(rest + 10, "Z");
	then = timegm(&tm);
	assert_true(then >= before.tv_sec && then <= after.tv_sec);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(monotonic_time_is_in_microseconds_and_never_falls),
		cmocka_unit_test(records_carry_utc_with_nanoseconds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
