/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joint fit against brute force: every small question on random states of small cards is answered
 * by trying everything, with code that shares nothing with the module but the card.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "model/fit.h"

#include <cmocka.h>

/* An L4 in mixed-size mode (host-sysfs.md 3.4). */
static const struct placement_type l4[] = {
	{ .size = 24, .n_ids = 1, .ids = { 0 } },
	{ .size = 12, .n_ids = 2, .ids = { 0, 12 } },
	{ .size = 8, .n_ids = 2, .ids = { 0, 16 } },
	{ .size = 6, .n_ids = 4, .ids = { 0, 6, 12, 18 } },
	{ .size = 4, .n_ids = 4, .ids = { 0, 8, 12, 20 } },
	{ .size = 3, .n_ids = 8, .ids = { 0, 3, 6, 9, 12, 15, 18, 21 } },
	{ .size = 2, .n_ids = 8, .ids = { 0, 4, 6, 10, 12, 16, 18, 22 } },
	{ .size = 1,
	  .n_ids = 16,
	  .ids = { 0, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18, 20, 21, 23 } },
};
#define N_TYPES ARRAY_SIZE(l4)

static uint32_t random_state = 1;

static unsigned draw(unsigned below)
{
	random_state = random_state * 1664525u + 1013904223u;
	return (random_state >> 8) % below;
}

static void make_card(struct fit_card *card, const struct placement_set *taken,
		      const unsigned *profiles, unsigned n, unsigned free_vfs)
{
	struct placement_view view = { 0 };
	struct placement_type types[N_TYPES];

	memcpy(types, l4, sizeof types);
	for (size_t i = 0; i < N_TYPES; i++) {
		types[i].creatable = (UINT64_C(1) << types[i].n_ids) - 1;
		placement_view_add(&view, &types[i], taken);
	}
	memset(card, 0, sizeof *card);
	fit_card_set_view(card, &view);
	card->free_vfs = free_vfs;
	for (unsigned p = 0; p < n; p++)
		card->sizes[p] = l4[profiles[p]].size;
}

/* --- Brute force ---------------------------------------------------------------------------------
 */

struct brute_card {
	bool taken[24];
	unsigned free_vfs;
};

static bool brute_fits(struct brute_card *cards, unsigned n_cards, const unsigned *items,
		       unsigned n_items)
{
	const struct placement_type *t;

	if (n_items == 0)
		return true;
	t = &l4[items[0]];
	for (unsigned c = 0; c < n_cards; c++) {
		for (unsigned i = 0; cards[c].free_vfs && i < t->n_ids; i++) {
			bool ok = true;

			for (unsigned u = 0; u < t->size; u++)
				ok &= !cards[c].taken[t->ids[i] + u];
			if (!ok)
				continue;
			memset(cards[c].taken + t->ids[i], 1, t->size);
			cards[c].free_vfs--;
			ok = brute_fits(cards, n_cards, items + 1, n_items - 1);
			memset(cards[c].taken + t->ids[i], 0, t->size);
			cards[c].free_vfs++;
			if (ok)
				return true;
		}
	}
	return false;
}

/* A plan takes only what is free, nothing twice, no more VFs than there are, and what was asked
 * for. */
static void assert_plan(const struct fit_result *r, const struct fit_card *cards, unsigned n_cards,
			const unsigned *counts, unsigned n)
{
	struct placement_set taken[4] = { 0 };
	unsigned vfs[4] = { 0 }, placed[FIT_PROFILES_MAX] = { 0 };

	for (unsigned i = 0; i < r->n_steps; i++) {
		const struct fit_step *s = &r->steps[i];
		const struct placement_class *c = placement_view_find(&cards[s->card].view,
								      s->span.size);
		bool free_there = false;

		assert_true(s->card < n_cards);
		assert_non_null(c);
		assert_int_equal(s->span.size, cards[s->card].sizes[s->profile]);
		for (unsigned k = 0; k < c->n_ids; k++)
			free_there |= c->ids[k] == s->span.id && (c->free >> k & 1);
		assert_true(free_there);
		assert_false(placement_set_overlaps(&taken[s->card], s->span));
		placement_set_add(&taken[s->card], s->span);
		assert_true(++vfs[s->card] <= cards[s->card].free_vfs);
		placed[s->profile]++;
	}
	for (unsigned p = 0; p < n; p++) {
		assert_int_equal(placed[p], r->placed[p]);
		if (r->answer == FIT_YES)
			assert_int_equal(placed[p], counts[p]);
	}
}

static void answers_match_brute_force(void **state)
{
	struct fit_result *r = malloc(sizeof *r);
	unsigned yes = 0, no = 0;

	(void)state;
	for (unsigned round = 0; round < 3000; round++) {
		unsigned n_cards = 1 + draw(2), n = 1 + draw(3), n_items = 0, items[8];
		unsigned profiles[3], counts[3];
		struct brute_card brute[2] = { 0 };
		struct fit_card cards[2];

		for (unsigned p = 0; p < n; p++)
			profiles[p] = draw(N_TYPES);
		for (unsigned p = 0; p < n; p++) {
			counts[p] = draw(4);
			for (unsigned i = 0; i < counts[p] && n_items < 7; i++)
				items[n_items++] = profiles[p];
			if (n_items == 7)
				counts[p] = 0;
		}
		n_items = 0;
		for (unsigned p = 0; p < n; p++)
			for (unsigned i = 0; i < counts[p]; i++)
				items[n_items++] = profiles[p];
		for (unsigned c = 0; c < n_cards; c++) {
			struct placement_set taken = { 0 };

			for (unsigned i = draw(4); i > 0; i--) {
				const struct placement_type *t = &l4[3 + draw(N_TYPES - 3)];
				struct placement_span span = { t->ids[draw(t->n_ids)], t->size };

				placement_set_add(&taken, span);
				memset(brute[c].taken + span.id, 1, span.size);
			}
			brute[c].free_vfs = 1 + draw(6);
			make_card(&cards[c], &taken, profiles, n, brute[c].free_vfs);
		}
		assert_int_equal(fit_search(cards, n_cards, counts, n, NULL, NULL, r), 0);
		assert_int_equal(r->answer,
				 brute_fits(brute, n_cards, items, n_items) ? FIT_YES : FIT_NO);
		assert_plan(r, cards, n_cards, counts, n);
		yes += r->answer == FIT_YES;
		no += r->answer == FIT_NO;
	}
	/* Both kinds of answer were asked for often enough to mean something. */
	assert_true(yes > 300 && no > 300);
	free(r);
}

static void how_many_more_matches_asking_one_by_one(void **state)
{
	struct fit_result *r = malloc(sizeof *r);

	(void)state;
	for (unsigned round = 0; round < 200; round++) {
		unsigned profiles[2] = { draw(N_TYPES), draw(N_TYPES) }, counts[2] = { draw(2), 0 },
			 more = 0, got = 0;
		struct placement_set none = { 0 };
		struct fit_card card;
		bool exact = false;

		make_card(&card, &none, profiles, 2, 32);
		for (;; more++) {
			unsigned wanted[2] = { counts[0], more + 1 };

			assert_int_equal(fit_search(&card, 1, wanted, 2, NULL, NULL, r), 0);
			if (r->answer != FIT_YES)
				break;
		}
		assert_int_equal(fit_max(&card, 1, counts, 2, 1, NULL, NULL, &got, &exact), 0);
		assert_int_equal(got, more);
		assert_true(exact);
	}
	free(r);
}

static bool stop_at_once(void *userdata)
{
	(*(unsigned *)userdata)++;
	return true;
}

static void a_cut_search_says_so_and_keeps_what_it_placed(void **state)
{
	unsigned profiles[3] = { 7, 6, 5 }, counts[3] = { 13, 9, 9 }, asked = 0;
	struct fit_result *r = malloc(sizeof *r);
	struct placement_set none = { 0 };
	struct fit_card cards[2];

	(void)state;
	for (unsigned c = 0; c < 2; c++)
		make_card(&cards[c], &none, profiles, 3, 32);
	assert_int_equal(fit_search(cards, 2, counts, 3, stop_at_once, &asked, r), 0);
	if (asked > 0)
		assert_int_equal(r->answer, FIT_CUT);
	else
		assert_int_not_equal(r->answer, FIT_CUT);
	assert_true(r->n_steps > 0);
	assert_plan(r, cards, 2, counts, 3);
	free(r);
}

static void nonsense_is_refused(void **state)
{
	unsigned counts[1] = { FIT_ITEMS_MAX + 1 }, none[2] = { 0, 0 };
	struct fit_result *r = malloc(sizeof *r);

	(void)state;
	assert_int_equal(fit_search(NULL, 0, counts, 1, NULL, NULL, r), -E2BIG);
	counts[0] = UINT32_MAX;
	assert_int_equal(fit_search(NULL, 0, counts, 1, NULL, NULL, r), -E2BIG);
	counts[0] = 1;
	assert_int_equal(fit_search(NULL, 0, counts, 1, NULL, NULL, r), 0);
	assert_int_equal(r->answer, FIT_NO);
	assert_int_equal(fit_search(NULL, 0, none, 2, NULL, NULL, r), 0);
	assert_int_equal(r->answer, FIT_YES);
	free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers_match_brute_force),
		cmocka_unit_test(how_many_more_matches_asking_one_by_one),
		cmocka_unit_test(a_cut_search_says_so_and_keeps_what_it_placed),
		cmocka_unit_test(nonsense_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
