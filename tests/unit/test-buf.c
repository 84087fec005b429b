/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

#include <cmocka.h>

static void grows_piece_by_piece(void **state)
{
	_buf_ struct buf b = BUF_INIT;
	size_t n = 0;

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		buf_add_str(&b, "ab");
		buf_add_char(&b, '\0');
		buf_printf(&b, "%03u", i);
		buf_add(&b, "xyz", 2);
		n += 8;
		assert_int_equal(b.len, n);
		assert_int_equal(b.data[b.len], '\0');
	}
	assert_int_equal(buf_finish(&b), 0);
	assert_memory_equal(b.data + 8L * 999,
			    "ab\0"
			    "999xy",
			    8);
}

static void prints_what_does_not_fit_at_first(void **state)
{
	_buf_ struct buf b = BUF_INIT;
	char text[5000];

	(void)state;
	memset(text, 'x', sizeof text);
	text[sizeof text - 1] = '\0';
	for (unsigned n = 60; n < 70; n++) { /* around the first size */
		buf_done(&b);
		buf_printf(&b, "%.*s", (int)n, text);
		assert_int_equal(b.len, n);
		assert_int_equal(strlen(b.data), n);
	}
	buf_printf(&b, "%s", text);
	assert_int_equal(b.len, 69 + 4999);
}

static void a_failure_is_remembered(void **state)
{
	_buf_ struct buf b = BUF_INIT;
	volatile size_t impossible = SIZE_MAX;
	char *text = NULL;

	(void)state;
	buf_add_str(&b, "kept");
	buf_add(&b, "", impossible);
	buf_add_str(&b, "not added");
	buf_printf(&b, "not %s", "added");
	assert_int_equal(buf_finish(&b), -ENOMEM);
	assert_int_equal(buf_take(&b, &text, NULL), -ENOMEM);
	assert_null(text);
	assert_string_equal(b.data, "kept");
	buf_clear(&b);
	assert_int_equal(buf_finish(&b), 0);
	assert_int_equal(b.len, 0);
}

static void hands_its_text_over(void **state)
{
	struct buf b = BUF_INIT;
	size_t len = 99;
	char *text;

	(void)state;
	assert_int_equal(buf_take(&b, &text, &len), 0);
	assert_string_equal(text, "");
	assert_int_equal(len, 0);
	free(text);
	buf_add_str(&b, "abc");
	assert_int_equal(buf_take(&b, &text, &len), 0);
	assert_string_equal(text, "abc");
	assert_int_equal(len, 3);
	free(text);
	assert_null(b.data);
	assert_int_equal(b.len + b.cap, 0);
	buf_clear(&b);
	buf_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(grows_piece_by_piece),
		cmocka_unit_test(prints_what_does_not_fit_at_first),
		cmocka_unit_test(a_failure_is_remembered),
		cmocka_unit_test(hands_its_text_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
