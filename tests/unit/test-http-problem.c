/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include "http/problem.h"
#include "model/outcome.h"

#include <cmocka.h>

static const char *text(const json_t *problem, const char *key)
{
	return json_string_value(json_object_get(problem, key));
}

static void standard_members(void **state)
{
	json_t *p = http_problem_json(-E_IN_USE, "held by pid 7", NULL);

	(void)state;
	assert_string_equal(text(p, "type"), "about:blank");
	assert_string_equal(text(p, "code"), "in_use");
	assert_string_equal(text(p, "detail"), "held by pid 7");
	assert_int_equal(json_integer_value(json_object_get(p, "status")), 409);
	assert_true(strlen(text(p, "title")) > 0);
	json_decref(p);
}

static void detail_may_be_missing_or_dirty(void **state)
{
	json_t *p = http_problem_json(E_NOT_FOUND, NULL, NULL);

	(void)state;
	assert_null(json_object_get(p, "detail"));
	json_decref(p);
	p = http_problem_json(E_NOT_FOUND, "a\033[31m\xff", NULL);
	assert_string_equal(text(p, "detail"), "a?[31m?");
	json_decref(p);
}

static void more_members_never_replace_the_standard_ones(void **state)
{
	json_t *p = http_problem_json(
		E_CORDONED, "x", json_pack("{s:s, s:s}", "code", "other", "gpu", "0000:41:00.0"));

	(void)state;
	assert_string_equal(text(p, "code"), "cordoned");
	assert_string_equal(text(p, "gpu"), "0000:41:00.0");
	json_decref(p);
}

static void unknown_codes_are_internal_errors(void **state)
{
	json_t *p = http_problem_json(-EIO, "disk", NULL);

	(void)state;
	assert_string_equal(text(p, "code"), "internal");
	json_decref(p);
	assert_int_equal(http_problem_status(-EIO), 500);
	assert_int_equal(http_problem_status(E_UNKNOWN_PROFILE), 422);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(standard_members),
		cmocka_unit_test(detail_may_be_missing_or_dirty),
		cmocka_unit_test(more_members_never_replace_the_standard_ones),
		cmocka_unit_test(unknown_codes_are_internal_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
