/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include "model/outcome.h"

#include <cmocka.h>

/* What clients rely on. */
static void every_code_has_its_row(void **state)
{
	static const struct {
		enum berth_code code;
		const char *name;
		int http, exit;
	} rows[] = {
		{ E_BAD_REQUEST, "bad_request", 400, 1 },
		{ E_FORBIDDEN, "forbidden", 403, 1 },
		{ E_NOT_FOUND, "not_found", 404, 4 },
		{ E_METHOD_NOT_ALLOWED, "method_not_allowed", 405, 1 },
		{ E_TOO_LARGE, "too_large", 413, 1 },
		{ E_INSUFFICIENT_RESOURCES, "insufficient_resources", 409, 3 },
		{ E_CLAIM_EXISTS, "claim_exists", 409, 1 },
		{ E_IN_USE, "in_use", 409, 1 },
		{ E_RELEASING, "releasing", 409, 1 },
		{ E_CORDONED, "cordoned", 409, 1 },
		{ E_UNKNOWN_PROFILE, "unknown_profile", 422, 4 },
		{ E_PROFILE_NOT_KNOWN_YET, "insufficient_resources", 409, 3 },
		{ E_NOT_SUPPORTED, "not_supported", 422, 1 },
		{ E_ARCHIVE_FAILED, "archive_failed", 500, 1 },
		{ E_HEALTH_STORE_UNAVAILABLE, "health_store_unavailable", 503, 1 },
		{ E_STORE_UNAVAILABLE, "store_unavailable", 503, 1 },
		{ E_SYSFS_READ_ONLY, "sysfs_read_only", 503, 1 },
		{ E_DRIVER_REFUSED, "driver_refused", 503, 1 },
		{ E_DRIVER_STUCK, "driver_stuck", 503, 1 },
		{ E_NOT_READY, "not_ready", 503, 1 },
		{ E_INTERNAL, "internal", 500, 1 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct outcome *o = outcome_of(-(int)rows[i].code);

		assert_ptr_equal(outcome_of((int)rows[i].code), o);
		assert_int_equal(o->code, rows[i].code);
		assert_string_equal(o->name, rows[i].name);
		assert_int_equal(o->http_status, rows[i].http);
		assert_int_equal(o->exit_status, rows[i].exit);
		assert_true(o->title && o->title[0]);
	}
	/* The whole enum, so that a new code without a row is noticed. */
	for (int code = E_BAD_REQUEST; code <= E_UNREACHABLE; code++)
		assert_int_equal(outcome_of(code)->code, code);
	assert_int_equal(outcome_of(E_UNREACHABLE)->exit_status, EXIT_STATUS_UNREACHABLE);
}

static void anything_else_is_internal(void **state)
{
	static const int others[] = { 0,       1,      -1, -ENOENT, -ENOMEM, 999, E_UNREACHABLE + 1,
				      INT_MAX, INT_MIN };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		assert_int_equal(outcome_of(others[i])->code, E_INTERNAL);
}

static void rows_are_found_by_name(void **state)
{
	(void)state;
	for (int code = E_BAD_REQUEST; code <= E_UNREACHABLE; code++) {
		const struct outcome *o = outcome_of(code);
		const struct outcome *found = outcome_by_name(o->name);

		assert_non_null(found);
		assert_string_equal(found->name, o->name);
		assert_int_equal(found->exit_status, o->exit_status);
		assert_int_equal(found->http_status, o->http_status);
	}
	assert_int_equal(outcome_by_name("insufficient_resources")->code, E_INSUFFICIENT_RESOURCES);
	assert_null(outcome_by_name(""));
	assert_null(outcome_by_name("Internal"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_code_has_its_row),
		cmocka_unit_test(anything_else_is_internal),
		cmocka_unit_test(rows_are_found_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
