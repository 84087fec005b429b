/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include "base/error.h"

#include <cmocka.h>

static void either_sign_gives_the_negative_code(void **state)
{
	struct error e = ERROR_INIT;

	(void)state;
	assert_int_equal(error_set(&e, EINVAL, "a %d", 1), -EINVAL);
	assert_int_equal(e.code, EINVAL);
	assert_string_equal(e.msg, "a 1");
	assert_int_equal(error_set(&e, -1005, "b"), -1005);
	assert_int_equal(e.code, 1005);
	assert_int_equal(error_set(NULL, -ENOENT, "c"), -ENOENT);
	assert_int_equal(error_set(NULL, ENOENT, "c"), -ENOENT);
	assert_int_equal(error_set_errno(NULL, ENOENT, "c"), -ENOENT);
}

static void errno_is_spelt_out(void **state)
{
	struct error e = ERROR_INIT;

	(void)state;
	assert_int_equal(error_set_errno(&e, -ENOENT, "open %s", "/x"), -ENOENT);
	assert_string_equal(e.msg, "open /x: No such file or directory");
	assert_int_equal(error_set_errno(&e, 99999, "odd"), -99999);
	assert_string_equal(e.msg, "odd: unknown error");
}

static void wrapping_puts_words_in_front(void **state)
{
	struct error e = ERROR_INIT;

	(void)state;
	error_set(&e, EBUSY, "cause");
	assert_int_equal(error_wrap(&e, "step %d", 2), -EBUSY);
	assert_string_equal(e.msg, "step 2: cause");
	assert_int_equal(error_wrap(&e, "whole"), -EBUSY);
	assert_string_equal(e.msg, "whole: step 2: cause");
	assert_true(error_wrap(NULL, "x") < 0);
}

static void long_sentences_are_cut(void **state)
{
	struct error e = ERROR_INIT;
	char text[1000];

	(void)state;
	memset(text, 'x', sizeof text);
	text[sizeof text - 1] = '\0';
	assert_int_equal(error_set(&e, EIO, "%s", text), -EIO);
	assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(error_wrap(&e, "%s", text), -EIO);
	assert_true(strlen(e.msg) < sizeof e.msg);
	assert_int_equal(error_set_errno(&e, EIO, "%s", text), -EIO);
	/* What failed may be cut, why it failed must stay. */
	assert_non_null(strstr(e.msg, ": Input/output error"));
}

static void there_is_always_a_text(void **state)
{
	struct error e = ERROR_INIT;

	(void)state;
	assert_non_null(error_text(NULL));
	assert_true(strlen(error_text(&e)) > 0);
	error_set(&e, EIO, "why");
	assert_string_equal(error_text(&e), "why");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(either_sign_gives_the_negative_code),
		cmocka_unit_test(errno_is_spelt_out),
		cmocka_unit_test(wrapping_puts_words_in_front),
		cmocka_unit_test(long_sentences_are_cut),
		cmocka_unit_test(there_is_always_a_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
