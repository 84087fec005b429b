/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/map-draw.h"
#include "cli/table.h"

#include <cmocka.h>

static const struct terminal ascii = { .columns = 80 };

static void add(struct map_strip *strip, unsigned id, unsigned size, const char *label)
{
	struct map_block *b = &strip->blocks[strip->n_blocks++];

	b->id = id;
	b->size = size;
	snprintf(b->label, sizeof(b->label), "%s", label);
}

static void check(struct map_strip *strip, const struct terminal *terminal, const char *want)
{
	_buf_ struct buf out = BUF_INIT;

	map_sort(strip);
	assert_int_equal(map_draw(strip, terminal, &out), 0);
	assert_string_equal(out.data, want);
}

static void an_empty_card(void **state)
{
	struct map_strip strip = { .region = 48 };

	(void)state;
	check(&strip, &ascii,
	      "  0       8       16      24      32      40\n"
	      "  ................... 48 free ....................\n");
}

static void blocks_of_all_sizes(void **state)
{
	struct map_strip strip = { .region = 48 };

	(void)state;
	/* Given out of order. */
	add(&strip, 24, 12, "12Q train-1");
	add(&strip, 0, 4, "4Q vm1");
	add(&strip, 4, 1, "1Q");
	add(&strip, 5, 2, "2Q");
	add(&strip, 8, 8, "8Q vm2");
	check(&strip, &ascii,
	      "  0       8       16      24      32      40\n"
	      "  [a-]bcc.[d 8Q v]........[e 12Q trai]. 12 free ..\n");
}

static void a_full_card(void **state)
{
	struct map_strip strip = { .region = 48 };

	(void)state;
	add(&strip, 0, 48, "48Q big");
	check(&strip, &ascii,
	      "  0       8       16      24      32      40\n"
	      "  [a 48Q big-------------------------------------]\n");
}

/* Every line fits, and all lines of one card begin at a round number. */
static void wide_regions_are_folded(void **state)
{
	static const struct {
		unsigned region;
		unsigned columns;
		unsigned lines;
	} cases[] = {
		{ 48, 80, 1 },	{ 48, 40, 2 },	{ 80, 80, 2 },	{ 94, 80, 2 },	 { 96, 80, 2 },
		{ 96, 120, 1 }, { 141, 80, 2 }, { 512, 80, 7 }, { 512, 40, 15 }, { 1, 40, 1 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct terminal terminal = { .columns = cases[i].columns };
		struct map_strip strip = { .region = cases[i].region };
		_buf_ struct buf out = BUF_INIT;
		unsigned lines = 0;

		assert_int_equal(map_draw(&strip, &terminal, &out), 0);
		for (char *line = strtok(out.data, "\n"); line; line = strtok(NULL, "\n")) {
			assert_in_range(strlen(line), 3, cases[i].columns);
			lines++;
		}
		if (lines != 2 * cases[i].lines)
			fail_msg("region %u in %u columns: %u lines", cases[i].region,
				 cases[i].columns, lines);
	}
}

static void a_block_goes_on_in_the_next_line(void **state)
{
	struct map_strip strip = { .region = 96 };

	(void)state;
	add(&strip, 40, 16, "16Q vm1");
	check(&strip, &ascii,
	      "  0       8       16      24      32      40\n"
	      "  ............... 40 free ................[a 16Q v\n"
	      "  48      56      64      72      80      88\n"
	      "  m1-----]............... 40 free ................\n");
}

static void a_wide_terminal_has_several_columns_a_unit(void **state)
{
	const struct terminal wide = { .columns = 200 };
	struct map_strip strip = { .region = 16 };

	(void)state;
	add(&strip, 0, 1, "1Q vm");
	add(&strip, 2, 2, "2Q vm2");
	check(&strip, &wide,
	      "  0               4               8               12\n"
	      "  [a-]....[b 2Q v]................... 12 free ....................\n");
}

static void utf8_and_colours(void **state)
{
	const struct terminal fancy = { .columns = 80, .utf8 = true, .colour = true };
	struct map_strip strip = { .region = 8 };

	(void)state;
	if (!setlocale(LC_CTYPE, "C.UTF-8"))
		skip();
	add(&strip, 0, 2, "2Q ü");
	add(&strip, 2, 1, "1Q");
	check(&strip, &fancy,
	      "  0               4\n" /* four columns a unit */
	      "  \033[30;42m[a 2Q ü]\033[30;46m[b─]\033[0m······ 5 free ······\n");
	setlocale(LC_CTYPE, "C");
}

static void blocks_outside_are_refused(void **state)
{
	static const unsigned cases[][2] = {
		{ 48, 1 }, { 47, 2 }, { 0, 49 }, { 0, 0 }, { 4294967295U, 1 }, { 1, 4294967295U },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct map_strip strip = { .region = 48 };
		_buf_ struct buf out = BUF_INIT;

		add(&strip, cases[i][0], cases[i][1], "x");
		assert_int_equal(map_draw(&strip, &ascii, &out), -ERANGE);
	}
	for (unsigned region = 0; region <= MAP_UNITS_MAX + 1; region += MAP_UNITS_MAX + 1) {
		struct map_strip strip = { .region = region };
		_buf_ struct buf out = BUF_INIT;

		assert_int_equal(map_draw(&strip, &ascii, &out), -ERANGE);
	}
}

static void more_blocks_than_letters(void **state)
{
	struct map_strip strip = { .region = 64 };
	_buf_ struct buf out = BUF_INIT;

	(void)state;
	for (unsigned i = 0; i < 64; i++)
		add(&strip, i, 1, "");
	map_sort(&strip);
	assert_int_equal(strip.blocks[61].key, '9');
	assert_int_equal(strip.blocks[63].key, '#');
	assert_int_equal(map_draw(&strip, &ascii, &out), 0);
	assert_non_null(strstr(out.data, "abcdefghijklm"));
}

/* What contradicts itself is drawn as well as it can be. */
static void blocks_that_overlap(void **state)
{
	struct map_strip strip = { .region = 12 };
	_buf_ struct buf out = BUF_INIT;

	(void)state;
	add(&strip, 0, 8, "8Q");
	add(&strip, 4, 2, "2Q");
	map_sort(&strip);
	assert_int_equal(map_draw(&strip, &ascii, &out), 0);
	buf_clear(&out);
	map_list_free(&strip, &out);
	assert_string_equal(out.data, "8-11 (4)");
}

static void free_units_are_listed(void **state)
{
	struct map_strip strip = { .region = 16 };
	_buf_ struct buf out = BUF_INIT;

	(void)state;
	add(&strip, 0, 4, "");
	add(&strip, 5, 3, "");
	map_list_free(&strip, &out);
	assert_string_equal(out.data, "4 (1), 8-15 (8)");
	buf_clear(&out);
	strip.n_blocks = 0;
	add(&strip, 0, 16, "");
	map_list_free(&strip, &out);
	assert_string_equal(out.data, "none");
}

static void a_table_is_aligned_and_safe(void **state)
{
	static const char *const heads[] = { "NAME", ">N", "LAST" };
	_table_ struct table t = { 0 };
	_buf_ struct buf out = BUF_INIT;

	(void)state;
	table_init(&t, heads, ARRAY_SIZE(heads));
	table_add(&t, "a");
	table_addf(&t, "%d", 10000);
	table_add(&t, "x\033[31m\n");
	table_add(&t, "a longer one");
	table_add(&t, "1");
	table_add(&t, "");
	assert_int_equal(table_render(&t, &out), 0);
	assert_string_equal(out.data, "NAME              N  LAST\n"
				      "a             10000  x?[31m?\n"
				      "a longer one      1  \n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_card),
		cmocka_unit_test(blocks_of_all_sizes),
		cmocka_unit_test(a_full_card),
		cmocka_unit_test(wide_regions_are_folded),
		cmocka_unit_test(a_block_goes_on_in_the_next_line),
		cmocka_unit_test(a_wide_terminal_has_several_columns_a_unit),
		cmocka_unit_test(utf8_and_colours),
		cmocka_unit_test(blocks_outside_are_refused),
		cmocka_unit_test(more_blocks_than_letters),
		cmocka_unit_test(blocks_that_overlap),
		cmocka_unit_test(free_units_are_listed),
		cmocka_unit_test(a_table_is_aligned_and_safe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
