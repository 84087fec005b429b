/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include "model/policy.h"

#include <cmocka.h>

static const struct placement_type type_4q = {
	.type_id = 1150,
	.size = 4,
	.n_ids = 8,
	.ids = { 0, 8, 12, 20, 24, 32, 36, 44 },
	.creatable = 0xff,
};

/* The card at bus number `bus`. */
static struct policy_card card(unsigned bus, unsigned quarantined, uint64_t used_mb, uint64_t free)
{
	return (struct policy_card){
		.address = { .bus = (uint8_t)bus },
		.quarantined_vfs = quarantined,
		.used_mb = used_mb,
		.type = &type_4q,
		.free = free,
	};
}

static void knows_its_names(void **state)
{
	enum policy p = (enum policy)77;

	(void)state;
	assert_int_equal(policy_from_name("least-loaded", &p), -EINVAL);
	assert_int_equal(policy_from_name("", &p), -EINVAL);
	assert_int_equal(policy_from_name("LEAST_LOADED", &p), -EINVAL);
	assert_int_equal(p, 77);
	assert_int_equal(policy_from_name("least_loaded", &p), 0);
	assert_int_equal(p, POLICY_LEAST_LOADED);
	assert_string_equal(policy_name(p), "least_loaded");
}

static void no_candidate_is_told(void **state)
{
	struct policy_card full[] = { card(0x41, 0, 0, 0), card(0x81, 0, 0, 0) };
	struct policy_choice choice = { .card = 9 };

	(void)state;
	assert_int_equal(policy_choose(POLICY_LEAST_LOADED, NULL, 0, &choice), -ENOENT);
	assert_int_equal(policy_choose(POLICY_LEAST_LOADED, full, 2, &choice), -ENOENT);
	/* Free bits that no id stands for are no placement. */
	full[0].free = UINT64_C(1) << 8;
	assert_int_equal(policy_choose(POLICY_LEAST_LOADED, full, 2, &choice), -ENOENT);
	assert_int_equal(choice.card, 9);
}

static void least_loaded_goes_by_quarantine_then_load_then_address(void **state)
{
	struct policy_card cases[][3] = {
		/* the winner comes second each time */
		{ card(0x41, 1, 0, 0xff), card(0x81, 0, 40960, 0xff), card(0xc1, 2, 0, 0xff) },
		{ card(0x41, 1, 8193, 0xff), card(0x81, 1, 8192, 0xff), card(0xc1, 1, 8194, 0xff) },
		{ card(0x81, 0, 4096, 0xff), card(0x41, 0, 4096, 0xff), card(0xc1, 0, 4096, 0xff) },
		{ card(0x41, 0, 0, 0), card(0x81, 3, 40960, 0x80), card(0xc1, 4, 0, 0xff) },
	};
	struct policy_choice choice;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(policy_choose(POLICY_LEAST_LOADED, cases[i], 3, &choice), 0);
		if (choice.card != 1)
			fail_msg("case %zu chose %u", i, choice.card);
		assert_int_equal(choice.span.size, 4);
		assert_int_equal(choice.span.id, cases[i][1].free == 0x80 ? 44 : 0);
	}
}

static void takes_the_drivers_first_fit(void **state)
{
	struct policy_card c = card(0x41, 0, 0, 0xe8); /* 20 32 36 44 */
	struct policy_choice choice;

	(void)state;
	assert_int_equal(policy_choose(POLICY_LEAST_LOADED, &c, 1, &choice), 0);
	assert_int_equal(choice.card, 0);
	assert_int_equal(choice.span.id, 20);
}

static void unknown_placements_leave_the_choice_to_the_driver(void **state)
{
	struct policy_card cards[] = { card(0x41, 0, 4096, 0xff), card(0x81, 0, 0, 0) };
	struct policy_choice choice = { .span = { 1, 1 } };

	(void)state;
	cards[1].type = NULL;
	assert_int_equal(policy_choose(POLICY_LEAST_LOADED, cards, 2, &choice), 0);
	assert_int_equal(choice.card, 1);
	assert_int_equal(choice.span.size, 0);
}

/* --- least_waste ------------------------------------------------------------------------------ */

/* An L40S in mixed-size mode (host-sysfs.md 3.4). */
static const struct placement_type l40s[] = {
	{ .size = 48, .n_ids = 1, .ids = { 0 } },
	{ .size = 24, .n_ids = 2, .ids = { 0, 24 } },
	{ .size = 16, .n_ids = 2, .ids = { 0, 32 } },
	{ .size = 12, .n_ids = 4, .ids = { 0, 12, 24, 36 } },
	{ .size = 8, .n_ids = 4, .ids = { 0, 16, 24, 40 } },
	{ .size = 6, .n_ids = 8, .ids = { 0, 6, 12, 18, 24, 30, 36, 42 } },
	{ .size = 4, .n_ids = 8, .ids = { 0, 8, 12, 20, 24, 32, 36, 44 } },
	{ .size = 3,
	  .n_ids = 16,
	  .ids = { 0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45 } },
	{ .size = 2,
	  .n_ids = 16,
	  .ids = { 0, 4, 6, 10, 12, 16, 18, 22, 24, 28, 30, 34, 36, 40, 42, 46 } },
	{ .size = 1,
	  .n_ids = 16,
	  .ids = { 0, 5, 6, 11, 12, 17, 18, 23, 24, 29, 30, 35, 36, 41, 42, 47 } },
};

struct board {
	bool taken[48];
	struct placement_type types[ARRAY_SIZE(l40s)];
	struct placement_view view;
	uint64_t used_mb;
};

static bool span_is_free(const struct board *b, unsigned id, unsigned size)
{
	for (unsigned u = id; u < id + size; u++)
		if (b->taken[u])
			return false;
	return true;
}

/* Sum over sizes of size x placements, counted unit by unit. */
static unsigned board_value(const struct board *b)
{
	unsigned value = 0;

	for (size_t t = 0; t < ARRAY_SIZE(l40s); t++)
		for (unsigned i = 0; i < l40s[t].n_ids; i++)
			value += span_is_free(b, l40s[t].ids[i], l40s[t].size) ? l40s[t].size : 0;
	return value;
}

static void board_refresh(struct board *b)
{
	const struct placement_set none = { 0 };

	memcpy(b->types, l40s, sizeof b->types);
	b->view = (struct placement_view){ 0 };
	b->used_mb = 0;
	for (unsigned u = 0; u < 48; u++)
		b->used_mb += b->taken[u] * UINT64_C(1024);
	for (size_t t = 0; t < ARRAY_SIZE(l40s); t++) {
		for (unsigned i = 0; i < l40s[t].n_ids; i++)
			if (span_is_free(b, l40s[t].ids[i], l40s[t].size))
				b->types[t].creatable |= UINT64_C(1) << i;
		placement_view_add(&b->view, &b->types[t], &none);
	}
}

/* The rule by its definition: value before minus value after, then the fuller card, the lower one,
 * the first id. */
static bool choose_by_definition(struct board *boards, unsigned n, size_t type, unsigned *ret_card,
				 unsigned *ret_id)
{
	unsigned best_loss = 0;
	uint64_t best_used = 0;
	bool found = false;

	for (unsigned c = 0; c < n; c++) {
		for (unsigned i = 0; i < l40s[type].n_ids; i++) {
			unsigned id = l40s[type].ids[i], before = board_value(&boards[c]), loss;

			if (!span_is_free(&boards[c], id, l40s[type].size))
				continue;
			memset(boards[c].taken + id, 1, l40s[type].size);
			loss = before - board_value(&boards[c]);
			memset(boards[c].taken + id, 0, l40s[type].size);
			if (found && (loss > best_loss ||
				      (loss == best_loss && boards[c].used_mb <= best_used)))
				continue;
			found = true;
			best_loss = loss;
			best_used = boards[c].used_mb;
			*ret_card = c;
			*ret_id = id;
		}
	}
	return found;
}

static void least_waste_is_what_its_definition_says(void **state)
{
	struct board boards[3] = { 0 };
	uint32_t seed = 7;
	unsigned chosen = 0;

	(void)state;
	for (unsigned round = 0; round < 4000; round++) {
		struct policy_card cards[3] = { 0 };
		struct policy_choice choice;
		unsigned card = 0, id = 0;
		size_t type;
		bool any;
		int r;

		seed = seed * 1664525u + 1013904223u;
		type = (seed >> 8) % ARRAY_SIZE(l40s);
		if (round % 40 == 0)
			memset(boards, 0, sizeof boards);
		for (unsigned c = 0; c < 3; c++) {
			board_refresh(&boards[c]);
			cards[c] = (struct policy_card){
				.address = { .bus = (uint8_t)(c + 1) },
				.used_mb = boards[c].used_mb,
				.type = &boards[c].types[type],
				.free = boards[c].types[type].creatable,
				.view = &boards[c].view,
			};
		}
		any = choose_by_definition(boards, 3, type, &card, &id);
		r = policy_choose(POLICY_LEAST_WASTE, cards, 3, &choice);
		assert_int_equal(r, any ? 0 : -ENOENT);
		if (!any)
			continue;
		assert_int_equal(choice.card, card);
		assert_int_equal(choice.span.id, id);
		assert_int_equal(choice.span.size, l40s[type].size);
		memset(boards[card].taken + id, 1, l40s[type].size);
		chosen++;
	}
	assert_true(chosen > 500);
}

static void least_waste_respects_quarantine_and_what_cannot_be_steered(void **state)
{
	struct board boards[2] = { 0 };
	struct policy_card cards[3] = { 0 };
	struct policy_choice choice;

	(void)state;
	boards[0].taken[0] = true; /* a 1Q at 0: a second one is cheapest beside it */
	for (unsigned c = 0; c < 2; c++) {
		board_refresh(&boards[c]);
		cards[c] = (struct policy_card){
			.address = { .bus = (uint8_t)(c + 1) },
			.used_mb = boards[c].used_mb,
			.type = &boards[c].types[9],
			.free = boards[c].types[9].creatable,
			.view = &boards[c].view,
		};
	}
	assert_int_equal(policy_choose(POLICY_LEAST_WASTE, cards, 2, &choice), 0);
	assert_int_equal(choice.card, 0);
	cards[0].quarantined_vfs = 1;
	assert_int_equal(policy_choose(POLICY_LEAST_WASTE, cards, 2, &choice), 0);
	assert_int_equal(choice.card, 1);
	cards[1].first_fit_only = true;
	assert_int_equal(policy_choose(POLICY_LEAST_WASTE, cards, 2, &choice), 0);
	assert_int_equal(choice.span.id, 0);
	/* A card whose placements are unknown is taken when no other is left. */
	cards[2] = (struct policy_card){ .address = { .bus = 9 } };
	assert_int_equal(policy_choose(POLICY_LEAST_WASTE, cards + 1, 2, &choice), 0);
	assert_int_equal(choice.card, 0);
	assert_int_equal(policy_choose(POLICY_LEAST_WASTE, cards + 2, 1, &choice), 0);
	assert_int_equal(choice.span.size, 0);
}

static void a_mix_weighs_what_is_expected(void **state)
{
	const struct policy_mix only_24 = { .only = true, .n = 1, .items = { { 24, 3 } } };
	struct board b = { 0 };

	(void)state;
	board_refresh(&b);
	assert_int_equal(policy_loss(&b.view, &only_24, (struct placement_span){ 0, 1 }), 3 * 24);
	assert_int_equal(policy_loss(&b.view, &only_24, (struct placement_span){ 23, 2 }),
			 2 * 3 * 24);
	assert_int_equal(policy_loss(&b.view, NULL, (struct placement_span){ 0, 48 }),
			 board_value(&b));
}

/* --- foresight -----------------------------------------------------------------------------------
 */

/* A card by its vGPUs. */
struct rack {
	unsigned n;
	struct placement_span spans[32];
	struct board board;
};

static unsigned vgpus_on(const struct rack *r, unsigned id, unsigned size)
{
	unsigned count = 0;

	for (unsigned i = 0; i < r->n; i++)
		count += r->spans[i].id < id + size && id < r->spans[i].id + r->spans[i].size;
	return count;
}

static void rack_refresh(struct rack *r)
{
	memset(r->board.taken, 0, sizeof r->board.taken);
	for (unsigned i = 0; i < r->n; i++)
		memset(r->board.taken + r->spans[i].id, 1, r->spans[i].size);
	board_refresh(&r->board);
	for (unsigned i = 0; i < r->n; i++)
		placement_view_note(&r->board.view, r->spans[i]);
}

/* 2^16 for a free placement, a quarter of that for each vGPU on it, nothing above eight. */
static uint64_t worth(const struct rack *r, unsigned id, unsigned size)
{
	unsigned count = vgpus_on(r, id, size);

	return count > 8 ? 0 : UINT64_C(65536) >> 2 * count;
}

static uint64_t cost_by_definition(const struct rack *racks, unsigned n, unsigned card,
				   const struct policy_mix *mix, struct placement_span span)
{
	uint64_t weights = 0, cost = 0;

	for (unsigned i = 0; i < mix->n; i++)
		weights += mix->items[i].weight;
	for (size_t t = 0; t < ARRAY_SIZE(l40s); t++) {
		uint64_t lost = 0, is_free = 0;

		for (unsigned i = 0; i < l40s[t].n_ids; i++) {
			unsigned id = l40s[t].ids[i];

			if (id < span.id + span.size && span.id < id + l40s[t].size)
				lost += worth(&racks[card], id, l40s[t].size);
			for (unsigned c = 0; c < n; c++)
				is_free += vgpus_on(&racks[c], id, l40s[t].size) == 0;
		}
		cost += lost * (mix->items[t].weight * (uint64_t)l40s[t].size * 65536 /
				MAX(weights, UINT64_C(1)) * 1024 / MAX(is_free, UINT64_C(1)));
	}
	return cost;
}

static void foresight_is_what_its_definition_says(void **state)
{
	static struct rack racks[3];
	struct policy_demand demand = { 0 };
	struct policy_mix mix;
	uint32_t seed = 5;
	unsigned chosen = 0;

	(void)state;
	for (unsigned round = 0; round < 3000; round++) {
		struct policy_card cards[3];
		struct policy_choice choice, best = { 0 };
		uint64_t best_cost = UINT64_MAX;
		size_t type;
		int r;

		seed = seed * 1664525u + 1013904223u;
		type = (seed >> 8) % ARRAY_SIZE(l40s);
		for (unsigned c = 0; c < 3; c++) {
			struct rack *rack = &racks[c];

			if (rack->n > 0 && (seed >> (20 + c) & 1)) {
				rack->n--;
				rack->spans[(seed >> 4) % (rack->n + 1)] = rack->spans[rack->n];
			}
			rack_refresh(rack);
			cards[c] = (struct policy_card){
				.address = { .bus = (uint8_t)(c + 1) },
				.type = &rack->board.types[type],
				.free = rack->board.types[type].creatable,
				.view = &rack->board.view,
				.mix = &mix,
			};
		}
		policy_demand_mix(&demand, cards[0].view, &mix);
		for (unsigned c = 0; c < 3; c++)
			for (unsigned i = 0; i < l40s[type].n_ids; i++) {
				struct placement_span span = { l40s[type].ids[i], l40s[type].size };
				uint64_t cost = cost_by_definition(racks, 3, c, &mix, span);

				if (!(cards[c].free >> i & 1) || cost >= best_cost)
					continue;
				best_cost = cost;
				best = (struct policy_choice){ c, span };
			}
		r = policy_choose(POLICY_FORESIGHT, cards, 3, &choice);
		assert_int_equal(r, best_cost == UINT64_MAX ? -ENOENT : 0);
		if (r < 0)
			continue;
		assert_int_equal(choice.card, best.card);
		assert_int_equal(choice.span.id, best.span.id);
		racks[best.card].spans[racks[best.card].n++] = best.span;
		policy_demand_add(&demand, best.span.size);
		chosen++;
	}
	assert_true(chosen > 800);
}

static void foresight_fills_up_what_is_broken_anyway(void **state)
{
	static struct rack racks[2];
	struct policy_card cards[2];
	struct policy_choice choice;

	(void)state;
	/* One vGPU stands between the first card and a 48Q, three on the second: the next 1Q goes
	 * there. */
	racks[0].n = 1;
	racks[0].spans[0] = (struct placement_span){ 0, 3 };
	racks[1].n = 3;
	for (unsigned i = 0; i < 3; i++)
		racks[1].spans[i] = (struct placement_span){ (uint16_t)(i == 0 ? 0 : 12 * (i + 1)),
							     3 };
	for (unsigned c = 0; c < 2; c++) {
		rack_refresh(&racks[c]);
		cards[c] = (struct policy_card){
			.address = { .bus = (uint8_t)(c + 1) },
			.type = &racks[c].board.types[7],
			.free = racks[c].board.types[7].creatable,
			.view = &racks[c].board.view,
		};
	}
	assert_int_equal(policy_choose(POLICY_FORESIGHT, cards, 2, &choice), 0);
	assert_int_equal(choice.card, 1);
}

static void demand_is_of_the_last_claims(void **state)
{
	struct policy_demand demand = { 0 };
	struct board b = { 0 };
	struct policy_mix mix;

	(void)state;
	board_refresh(&b);
	policy_demand_add(&demand, 0); /* of unknown size */
	policy_demand_mix(&demand, &b.view, &mix);
	assert_int_equal(mix.n, ARRAY_SIZE(l40s));
	for (unsigned i = 0; i < mix.n; i++)
		assert_int_equal(mix.items[i].weight, 1);
	policy_demand_add(&demand, 24);
	policy_demand_mix(&demand, &b.view, &mix);
	assert_int_equal(mix.items[0].weight, 1);
	assert_int_equal(mix.items[1].weight, 101);
	for (unsigned i = 0; i < POLICY_DEMAND_CLAIMS; i++)
		policy_demand_add(&demand, 48);
	policy_demand_mix(&demand, &b.view, &mix);
	assert_int_equal(mix.items[0].weight, 101 * POLICY_DEMAND_CLAIMS);
	assert_int_equal(mix.items[1].weight, POLICY_DEMAND_CLAIMS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(knows_its_names),
		cmocka_unit_test(no_candidate_is_told),
		cmocka_unit_test(least_loaded_goes_by_quarantine_then_load_then_address),
		cmocka_unit_test(takes_the_drivers_first_fit),
		cmocka_unit_test(unknown_placements_leave_the_choice_to_the_driver),
		cmocka_unit_test(least_waste_is_what_its_definition_says),
		cmocka_unit_test(least_waste_respects_quarantine_and_what_cannot_be_steered),
		cmocka_unit_test(a_mix_weighs_what_is_expected),
		cmocka_unit_test(foresight_is_what_its_definition_says),
		cmocka_unit_test(foresight_fills_up_what_is_broken_anyway),
		cmocka_unit_test(demand_is_of_the_last_claims),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
