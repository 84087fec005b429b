/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/array.h"

static void test_room_for_each_item(void **state)
{
	uint32_t *items = NULL;
	unsigned n = 0, cap = 0, moves = 0;

	(void)state;
	while (n < 1000) {
		unsigned before = cap;

		assert_int_equal(array_reserve(items, n, cap), 0);
		assert_true(cap > n);
		moves += cap != before;
		/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): cmocka has ended it if so */
		items[n] = n;
		n++;
	}
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(items[i], i);
	assert_true(moves < 10); /* doubles */
	free(items);
}

static void test_nothing_changes_without_memory(void **state)
{
	struct big {
		char bytes[SIZE_MAX / 64];
	} *items = NULL;
	size_t cap = 0;

	(void)state;
	assert_int_equal(array_reserve(items, 0, cap), -ENOMEM);
	assert_null(items);
	assert_int_equal(cap, 0);
	/* 32 of them are more bytes than a size_t counts. */
	cap = (size_t)16 * 64;
	assert_int_equal(array_reserve(items, cap, cap), -ENOMEM);
	assert_int_equal(cap, 16 * 64);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_room_for_each_item),
		cmocka_unit_test(test_nothing_changes_without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
