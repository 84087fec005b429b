/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables come from an own generator (recursive halving, as the driver makes them before
 * Blackwell) and the card from a first-fit driver of a few lines, so that the module is checked
 * against something that shares no code with it.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "model/placement.h"

#include <cmocka.h>

#define L40S_REGION 48

/* Largest number in equal-size mode on an L40S, by size in GiB. */
static unsigned l40s_equal_size_max(unsigned size)
{
	static const unsigned max[49] = {
		[1] = 32, [2] = 24, [3] = 16, [4] = 12, [6] = 8,
		[8] = 6,  [12] = 4, [16] = 3, [24] = 2, [48] = 1,
	};

	return max[size];
}

/* On Ada a 1 GiB vGPU may not stand at these units. */
static bool is_denied_to_1gb(unsigned id)
{
	return id < 48 && (id % 6 == 2 || id % 6 == 3);
}

static void add_id(struct placement_type *t, unsigned id)
{
	if (t->size == 1 && is_denied_to_1gb(id))
		return;
	assert_true(t->n_ids < PLACEMENT_IDS_MAX);
	t->ids[t->n_ids++] = (uint16_t)id;
}

static void generate(struct placement_type *t, unsigned max, unsigned lo, unsigned hi,
		     unsigned parts, bool left)
{
	unsigned h = 1, mid = (lo + hi) / 2;
	bool at_left, at_right;

	if (parts > 16)
		return;
	while (h * 2 <= max)
		h *= 2;
	at_left = at_right = 2 * parts == max;
	if ((h < max && h == parts) || (parts == 1 && max == 1)) {
		at_left = left;
		at_right = !left;
	}
	if (at_left)
		add_id(t, lo);
	if (at_right)
		add_id(t, hi - t->size);
	generate(t, max, lo, mid, parts * 2, true);
	generate(t, max, mid, hi, parts * 2, false);
}

static struct placement_type l40s_type(unsigned size)
{
	struct placement_type t = { .type_id = 1000 + size, .size = (uint16_t)size };

	generate(&t, l40s_equal_size_max(size), 0, L40S_REGION, 1, true);
	t.creatable = t.n_ids == 64 ? UINT64_MAX : (UINT64_C(1) << t.n_ids) - 1;
	return t;
}

static const char *ids_text(const struct placement_type *t, uint64_t mask, struct buf *b)
{
	buf_clear(b);
	buf_add_str(b, "");
	for (unsigned i = 0; i < t->n_ids; i++)
		if (mask >> i & 1)
			buf_printf(b, "%s%u", b->len ? " " : "", t->ids[i]);
	return b->data;
}

static void generator_makes_the_published_tables(void **state)
{
	static const struct {
		unsigned size;
		const char *ids;
	} rows[] = {
		{ 48, "0" },
		{ 24, "0 24" },
		{ 16, "0 32" },
		{ 12, "0 12 24 36" },
		{ 8, "0 16 24 40" },
		{ 6, "0 6 12 18 24 30 36 42" },
		{ 4, "0 8 12 20 24 32 36 44" },
		{ 3, "0 3 6 9 12 15 18 21 24 27 30 33 36 39 42 45" },
		{ 2, "0 4 6 10 12 16 18 22 24 28 30 34 36 40 42 46" },
		{ 1, "0 5 6 11 12 17 18 23 24 29 30 35 36 41 42 47" },
	};
	_buf_ struct buf b = BUF_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct placement_type t = l40s_type(rows[i].size);

		assert_string_equal(ids_text(&t, t.creatable, &b), rows[i].ids);
	}
}

/* The driver: every vGPU takes the first id of its type's table that is clear. */
static int place(struct placement_set *card, unsigned size)
{
	struct placement_type t = l40s_type(size);
	struct placement_span span;

	if (placement_type_first_fit(&t, placement_type_free(&t, card), &span) < 0)
		return -1;
	assert_int_equal(span.size, size);
	assert_false(placement_set_overlaps(card, span));
	placement_set_add(card, span);
	return span.id;
}

static void expect_free(const struct placement_set *card, unsigned size, const char *ids)
{
	struct placement_type t = l40s_type(size);
	_buf_ struct buf b = BUF_INIT;

	assert_string_equal(ids_text(&t, placement_type_free(&t, card), &b), ids);
}

static void fills_an_l40s_as_the_driver_was_seen_to(void **state)
{
	static const struct {
		unsigned size;
		int id;
		const char *free_4q; /* afterwards */
	} steps[] = {
		{ 4, 0, "8 12 20 24 32 36 44" },
		{ 4, 8, "12 20 24 32 36 44" },
		{ 4, 12, "20 24 32 36 44" },
		{ 4, 20, "24 32 36 44" },
		{ 4, 24, "32 36 44" },
		{ 4, 32, "36 44" },
		{ 2, 4, "36 44" },
		{ 2, 6, "36 44" },
		{ 2, 16, "36 44" },
		{ 2, 18, "36 44" },
		{ 2, 28, "36 44" }, /* 11 vGPUs */
		{ 2, 30, "36 44" }, /* 12: sysfs hides 4Q from here on, the placements are free */
		{ 4, 36, "44" },
		{ 4, 44, "" },
		{ 4, -1, "" },
		{ 2, 40, "" },
		{ 2, 42, "" },
		{ 2, -1, "" },
		{ 1, -1, "" },
	};
	struct placement_set card = { 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		int id = place(&card, steps[i].size);

		if (id != steps[i].id)
			fail_msg("step %zu: %uQ went to %d, not %d", i, steps[i].size, id,
				 steps[i].id);
		expect_free(&card, 4, steps[i].free_4q);
	}
}

static void fills_48_of_48_with_four_sizes(void **state)
{
	struct placement_set card = { 0 };

	(void)state;
	assert_int_equal(place(&card, 12), 0);
	assert_int_equal(place(&card, 8), 16);
	assert_int_equal(place(&card, 4), 12);
	assert_int_equal(place(&card, 24), 24);
	assert_true(card.units[0] == (UINT64_C(1) << 48) - 1);
	assert_int_equal(place(&card, 1), -1);
}

static void small_ones_kill_large_placements(void **state)
{
	static const unsigned four[] = { 0, 12, 24, 36 };
	struct placement_set card = { 0 };

	(void)state;
	assert_int_equal(place(&card, 1), 0);
	expect_free(&card, 48, "");
	expect_free(&card, 24, "24");
	expect_free(&card, 16, "32");
	expect_free(&card, 12, "12 24 36");

	placement_set_add(&card, (struct placement_span){ .id = 24, .size = 1 });
	expect_free(&card, 24, "");

	card = (struct placement_set){ 0 };
	for (size_t i = 0; i < ARRAY_SIZE(four); i++)
		placement_set_add(&card,
				  (struct placement_span){ .id = (uint16_t)four[i], .size = 1 });
	expect_free(&card, 12, "");
	/* One 1Q in each span of an 8Q. */
	card = (struct placement_set){ 0 };
	placement_set_add(&card, (struct placement_span){ .id = 0, .size = 1 });
	placement_set_add(&card, (struct placement_span){ .id = 18, .size = 1 });
	placement_set_add(&card, (struct placement_span){ .id = 24, .size = 1 });
	expect_free(&card, 8, "40");
	placement_set_add(&card, (struct placement_span){ .id = 47, .size = 1 });
	expect_free(&card, 8, "");
}

static void sixteen_1q_close_a_card_at_a_third_of_it(void **state)
{
	static const unsigned all[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 48 };
	struct placement_set card = { 0 };

	(void)state;
	for (unsigned i = 0; i < 16; i++)
		assert_true(place(&card, 1) >= 0);
	assert_int_equal(placement_count(card.units[0]), 16);
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		assert_int_equal(place(&card, all[i]), -1);
}

static void creatable_and_overlay_must_both_agree(void **state)
{
	struct placement_type t = l40s_type(12);
	struct placement_set overlay = { 0 };
	struct placement_span span = { .id = 99, .size = 99 };

	(void)state;
	t.creatable = 0x5; /* 0 and 24 */
	assert_true(placement_type_free(&t, &overlay) == 0x5);
	placement_set_add(&overlay, (struct placement_span){ .id = 23, .size = 1 });
	assert_true(placement_type_clear_of(&t, &overlay) == 0xd);
	assert_true(placement_type_free(&t, &overlay) == 0x5);
	placement_set_add(&overlay, (struct placement_span){ .id = 24, .size = 1 });
	assert_true(placement_type_free(&t, &overlay) == 0x1);
	placement_set_add(&overlay, (struct placement_span){ .id = 11, .size = 1 });
	assert_true(placement_type_free(&t, &overlay) == 0);
	assert_int_equal(placement_type_first_fit(&t, 0, &span), -ENOENT);
	/* Bits beyond the table stand for nothing. */
	assert_int_equal(placement_type_first_fit(&t, ~UINT64_C(0xf), &span), -ENOENT);
	assert_int_equal(span.id, 99);
}

static void first_fit_follows_the_table_not_the_number(void **state)
{
	struct placement_type t = { .size = 2, .n_ids = 3, .ids = { 8, 0, 4 }, .creatable = 0x7 };
	struct placement_span span;

	(void)state;
	assert_int_equal(placement_type_first_fit(&t, 0x7, &span), 0);
	assert_int_equal(span.id, 8);
	assert_int_equal(placement_type_first_fit(&t, 0x6, &span), 0);
	assert_int_equal(span.id, 0);
	assert_int_equal(placement_type_find(&t, 4), 2);
	assert_int_equal(placement_type_find(&t, 8), 0);
	assert_int_equal(placement_type_find(&t, 5), -ENOENT);
	assert_int_equal(placement_type_find(&t, PLACEMENT_NONE), -ENOENT);
}

static void spans_work_across_words_and_at_the_end(void **state)
{
	static const struct {
		unsigned id, size;
		unsigned probe_id, probe_size;
		bool overlaps;
	} cases[] = {
		{ 60, 8, 64, 1, true },		 { 60, 8, 67, 1, true },
		{ 60, 8, 68, 1, false },	 { 60, 8, 59, 1, false },
		{ 60, 8, 50, 10, false },	 { 60, 8, 50, 11, true },
		{ 511, 1, 511, 1, true },	 { 511, 1, 510, 1, false },
		{ 511, 100, 511, 1, true },	 { 512, 8, 0, 512, false },
		{ 65535, 65535, 0, 512, false }, { 0, 65535, 511, 1, true },
		{ 8, 0, 0, 512, false },	 { 8, 8, 10, 0, false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct placement_span span = { (uint16_t)cases[i].id, (uint16_t)cases[i].size };
		struct placement_span probe = { (uint16_t)cases[i].probe_id,
						(uint16_t)cases[i].probe_size };
		struct placement_set s = { 0 };

		placement_set_add(&s, span);
		if (placement_set_overlaps(&s, probe) != cases[i].overlaps)
			fail_msg("case %zu", i);
	}
}

static void sixty_four_ids_use_the_whole_mask(void **state)
{
	struct placement_type t = { .size = 1,
				    .n_ids = PLACEMENT_IDS_MAX,
				    .creatable = UINT64_MAX };
	struct placement_set taken = { 0 };
	struct placement_span span;

	(void)state;
	for (unsigned i = 0; i < PLACEMENT_IDS_MAX; i++)
		t.ids[i] = (uint16_t)(8 * i);
	assert_int_equal(placement_count(placement_type_free(&t, &taken)), 64);
	placement_set_add(&taken, (struct placement_span){ .id = 0, .size = 504 });
	assert_true(placement_type_free(&t, &taken) == UINT64_C(1) << 63);
	assert_int_equal(placement_type_first_fit(&t, UINT64_C(1) << 63, &span), 0);
	assert_int_equal(span.id, 504);
}

static void holes_are_what_nothing_touches(void **state)
{
	struct placement_set taken = { 0 };
	struct placement_span holes[8];

	(void)state;
	assert_int_equal(placement_find_holes(&taken, 48, holes, 8), 1);
	assert_int_equal(holes[0].id, 0);
	assert_int_equal(holes[0].size, 48);
	placement_set_add(&taken, (struct placement_span){ 0, 8 });
	placement_set_add(&taken, (struct placement_span){ 12, 4 });
	placement_set_add(&taken, (struct placement_span){ 47, 1 });
	assert_int_equal(placement_find_holes(&taken, 48, holes, 8), 2);
	assert_int_equal(holes[0].id, 8);
	assert_int_equal(holes[0].size, 4);
	assert_int_equal(holes[1].id, 16);
	assert_int_equal(holes[1].size, 31);
	assert_int_equal(placement_find_holes(&taken, 48, holes, 1), 1);
	placement_set_add(&taken, (struct placement_span){ 0, 48 });
	assert_int_equal(placement_find_holes(&taken, 48, holes, 8), 0);
	assert_int_equal(placement_find_holes(&taken, 0, holes, 8), 0);
	/* The region may end beyond what a set can hold. */
	assert_int_equal(placement_find_holes(&taken, 600, holes, 8), 1);
	assert_int_equal(holes[0].id, 48);
	assert_int_equal(holes[0].size, PLACEMENT_UNITS_MAX - 48);
}

static void what_fits_in_a_hole_lies_in_it_whole(void **state)
{
	struct placement_type t = { .size = 4, .n_ids = 4, .ids = { 0, 4, 6, 12 } };

	(void)state;
	assert_int_equal(placement_type_within(&t, (struct placement_span){ 0, 48 }), 0xf);
	assert_int_equal(placement_type_within(&t, (struct placement_span){ 4, 6 }), 0x6);
	assert_int_equal(placement_type_within(&t, (struct placement_span){ 4, 5 }), 0x2);
	assert_int_equal(placement_type_within(&t, (struct placement_span){ 5, 6 }), 0x4);
	assert_int_equal(placement_type_within(&t, (struct placement_span){ 13, 30 }), 0);
	assert_int_equal(placement_type_within(&t, (struct placement_span){ 4, 0 }), 0);
}

/* Whatever is taken, each free placement lies in exactly one hole. */
static void holes_and_placements_agree(void **state)
{
	static const unsigned sizes[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 48 };
	uint32_t seed = 7;

	(void)state;
	for (unsigned round = 0; round < 200; round++) {
		struct placement_set taken = { 0 };
		struct placement_span holes[32];
		unsigned n_holes;

		for (unsigned k = 0; k < round % 9; k++) {
			seed = seed * 1103515245U + 12345U;
			placement_set_add(
				&taken, (struct placement_span){ (uint16_t)(seed >> 16) % 48,
								 (uint16_t)(1 + (seed >> 8) % 9) });
		}
		n_holes = placement_find_holes(&taken, L40S_REGION, holes, 32);
		for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
			struct placement_type t = l40s_type(sizes[i]);
			uint64_t in_holes = 0, free = placement_type_free(&t, &taken);

			for (unsigned k = 0; k < n_holes; k++) {
				uint64_t here = free & placement_type_within(&t, holes[k]);

				assert_int_equal(in_holes & here, 0);
				in_holes |= here;
			}
			assert_int_equal(in_holes, free);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(generator_makes_the_published_tables),
		cmocka_unit_test(fills_an_l40s_as_the_driver_was_seen_to),
		cmocka_unit_test(fills_48_of_48_with_four_sizes),
		cmocka_unit_test(small_ones_kill_large_placements),
		cmocka_unit_test(sixteen_1q_close_a_card_at_a_third_of_it),
		cmocka_unit_test(creatable_and_overlay_must_both_agree),
		cmocka_unit_test(first_fit_follows_the_table_not_the_number),
		cmocka_unit_test(spans_work_across_words_and_at_the_end),
		cmocka_unit_test(sixty_four_ids_use_the_whole_mask),
		cmocka_unit_test(holes_are_what_nothing_touches),
		cmocka_unit_test(what_fits_in_a_hole_lies_in_it_whole),
		cmocka_unit_test(holes_and_placements_agree),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
