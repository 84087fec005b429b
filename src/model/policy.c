/* SPDX-License-Identifier: Apache-2.0 */
#include "model/policy.h"

#include <errno.h>
#include <string.h>

static const char *const policy_names[POLICY_COUNT] = {
	[POLICY_LEAST_WASTE] = "least_waste",
	[POLICY_LEAST_LOADED] = "least_loaded",
	[POLICY_FORESIGHT] = "foresight",
};

int policy_from_name(const char *name, enum policy *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(policy_names); i++) {
		if (strcmp(name, policy_names[i]) != 0)
			continue;
		*ret = (enum policy)i;
		return 0;
	}
	return -EINVAL;
}

const char *policy_name(enum policy p)
{
	return policy_names[p];
}

/* A card whose placements are known and all taken is no candidate, whatever the caller thought. */
static bool is_usable(const struct policy_card *c)
{
	return !c->type || c->free != 0;
}

static bool goes_before(const struct policy_card *a, const struct policy_card *b)
{
	if (a->quarantined_vfs != b->quarantined_vfs)
		return a->quarantined_vfs < b->quarantined_vfs;
	if (a->used_mb != b->used_mb)
		return a->used_mb < b->used_mb;
	return pci_addr_compare(a->address, b->address) < 0;
}

static int choose_least_loaded(const struct policy_card *cards, unsigned n,
			       struct policy_choice *ret)
{
	const struct policy_card *best = NULL;
	struct policy_choice choice = { 0 };

	for (unsigned i = 0; i < n; i++)
		if (is_usable(&cards[i]) && (!best || goes_before(&cards[i], best)))
			best = &cards[i];
	if (!best)
		return -ENOENT;
	choice.card = (unsigned)(best - cards);
	if (best->type && placement_type_first_fit(best->type, best->free, &choice.span) < 0)
		return -ENOENT;
	*ret = choice;
	return 0;
}

static uint64_t weight_of(const struct policy_mix *mix, uint16_t size)
{
	for (unsigned i = 0; mix && i < mix->n; i++)
		if (mix->items[i].size == size)
			return mix->items[i].weight;
	return mix && mix->only ? 0 : 1;
}

uint64_t policy_loss(const struct placement_view *v, const struct policy_mix *mix,
		     struct placement_span span)
{
	uint64_t loss = 0;

	for (unsigned i = 0; i < v->n; i++) {
		const struct placement_class *c = &v->classes[i];

		loss += weight_of(mix, c->size) * c->size *
			placement_count(c->free & placement_class_touched(c, span));
	}
	return loss;
}

/* --- What is asked for -------------------------------------------------------------------------
 */

void policy_demand_add(struct policy_demand *d, uint16_t size)
{
	if (size == 0)
		return;
	d->sizes[d->next] = size;
	d->next = (d->next + 1) % POLICY_DEMAND_CLAIMS;
	if (d->n < POLICY_DEMAND_CLAIMS)
		d->n++;
}

void policy_demand_mix(const struct policy_demand *d, const struct placement_view *v,
		       struct policy_mix *ret)
{
	*ret = (struct policy_mix){ .only = true, .n = v->n };
	for (unsigned i = 0; i < v->n; i++) {
		uint32_t count = 0;

		for (unsigned k = 0; k < d->n; k++)
			count += d->sizes[k] == v->classes[i].size;
		ret->items[i].size = v->classes[i].size;
		ret->items[i].weight = d->n > 0 ? count * 10 * v->n + d->n : 1;
	}
}

/* --- Cost of every placement of a card -----------------------------------------------------------
 */

#define SHARE_ONE    (1U << 16) /* fixed point: all of the demand */
#define SCARCITY_ONE (1U << 10)
#define FREE_ONE_LOG                                                                               \
	16 /* what a placement counts that is free now; each vGPU in the way leaves a quarter */
#define COSTS_MAX ((unsigned)PLACEMENT_CLASSES_MAX * PLACEMENT_IDS_MAX)

/* What losing each placement of a card costs; those that cost nothing are left out. Taking a span
 * costs the sum over those that it touches. The largest sum is 2^16 x 2^9 x 2^10 x 64 x 2^16 <
 * 2^58. */
struct costs {
	unsigned n;
	uint32_t begin[COSTS_MAX], end[COSTS_MAX];
	uint64_t cost[COSTS_MAX];
};

static void add_class(struct costs *costs, const struct placement_class *c, uint64_t per_free,
		      bool foresight)
{
	for (unsigned i = 0; i < c->n_ids; i++) {
		bool is_free = c->free >> i & 1;
		/* Something that nobody knows may be in the way. */
		unsigned in_the_way = is_free ? 0 : MAX(c->in_the_way[i], (uint8_t)1);

		if (per_free == 0 || (foresight ? 2 * in_the_way > FREE_ONE_LOG : !is_free))
			continue;
		costs->begin[costs->n] = c->ids[i];
		costs->end[costs->n] = (uint32_t)c->ids[i] + c->size;
		costs->cost[costs->n++] = foresight ? per_free << (FREE_ONE_LOG - 2 * in_the_way)
						    : per_free;
	}
}

/* Free placements of each size over all candidates: the fewer there are, the more each is worth. */
struct supply {
	unsigned free[PLACEMENT_UNITS_MAX + 1]; /* by size */
};

static void count_supply(const struct policy_card *cards, unsigned n, struct supply *ret)
{
	*ret = (struct supply){ 0 };
	for (unsigned i = 0; i < n; i++) {
		const struct placement_view *v = cards[i].type ? cards[i].view : NULL;

		for (unsigned k = 0; v && k < v->n; k++)
			if (v->classes[k].size <= PLACEMENT_UNITS_MAX)
				ret->free[v->classes[k].size] += placement_count(
					v->classes[k].free);
	}
}

/* `supply` is NULL for least_waste. */
static void make_costs(const struct policy_card *card, const struct supply *supply,
		       struct costs *ret)
{
	const struct placement_view *v = card->view;
	uint64_t weights = 0;

	ret->n = 0;
	for (unsigned i = 0; i < v->n; i++)
		weights += weight_of(card->mix, v->classes[i].size);
	for (unsigned i = 0; i < v->n; i++) {
		const struct placement_class *c = &v->classes[i];
		uint64_t cost = weight_of(card->mix, c->size) * c->size;

		if (supply && c->size <= PLACEMENT_UNITS_MAX)
			cost = cost * SHARE_ONE / MAX(weights, (uint64_t)1) * SCARCITY_ONE /
			       MAX(supply->free[c->size], 1U);
		add_class(ret, c, cost, supply != NULL);
	}
}

static uint64_t cost_of(const struct costs *costs, struct placement_span span)
{
	uint32_t begin = span.id, end = begin + span.size;
	uint64_t sum = 0;

	/* Without branches: this is the inner loop of a choice. */
	for (unsigned i = 0; i < costs->n; i++)
		sum += costs->cost[i] &
		       -(uint64_t)((costs->begin[i] < end) & (begin < costs->end[i]));
	return sum;
}

/* --- Choosing by cost ----------------------------------------------------------------------------
 */

/* A card and a placement on it, with what ranks them. */
struct candidate {
	const struct policy_card *card;
	struct placement_span span;
	uint64_t loss;
};

/* Fewer quarantined VFs, known placements before unknown ones, least loss, then the fuller card (so
 * that whole cards stay empty), the lower address. The first id in table order wins by being seen
 * first. */
static bool wastes_less(const struct candidate *a, const struct candidate *b)
{
	if (a->card->quarantined_vfs != b->card->quarantined_vfs)
		return a->card->quarantined_vfs < b->card->quarantined_vfs;
	if (!a->card->type != !b->card->type)
		return a->card->type != NULL;
	if (a->loss != b->loss)
		return a->loss < b->loss;
	if (a->card->used_mb != b->card->used_mb)
		return a->card->used_mb > b->card->used_mb;
	return pci_addr_compare(a->card->address, b->card->address) < 0;
}

static void consider(const struct policy_card *card, struct placement_span span, uint64_t loss,
		     struct candidate *best)
{
	struct candidate c = { .card = card, .span = span, .loss = loss };

	if (!best->card || wastes_less(&c, best))
		*best = c;
}

static void consider_card(const struct policy_card *card, const struct costs *costs,
			  struct candidate *best)
{
	const struct placement_type *t = card->type;

	for (unsigned i = 0; i < t->n_ids; i++) {
		struct placement_span span = { t->ids[i], t->size };

		if (!(card->free >> i & 1))
			continue;
		consider(card, span, cost_of(costs, span), best);
		if (card->first_fit_only)
			return;
	}
}

static int choose_by_cost(enum policy policy, const struct policy_card *cards, unsigned n,
			  struct policy_choice *ret)
{
	bool foresight = policy == POLICY_FORESIGHT;
	struct candidate best = { 0 };
	struct supply supply;
	struct costs costs;

	if (foresight)
		count_supply(cards, n, &supply);
	for (unsigned i = 0; i < n; i++) {
		if (!is_usable(&cards[i]))
			continue;
		if (!cards[i].type) {
			consider(&cards[i], (struct placement_span){ 0 }, 0, &best);
			continue;
		}
		make_costs(&cards[i], foresight ? &supply : NULL, &costs);
		consider_card(&cards[i], &costs, &best);
	}
	if (!best.card)
		return -ENOENT;
	ret->card = (unsigned)(best.card - cards);
	ret->span = best.span;
	return 0;
}

int policy_choose(enum policy policy, const struct policy_card *cards, unsigned n,
		  struct policy_choice *ret)
{
	switch (policy) {
	case POLICY_LEAST_WASTE:
	case POLICY_FORESIGHT:
		return choose_by_cost(policy, cards, n, ret);
	case POLICY_LEAST_LOADED:
		return choose_least_loaded(cards, n, ret);
	}
	return -EINVAL;
}
