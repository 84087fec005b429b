/* SPDX-License-Identifier: Apache-2.0 */
#include "model/policy.h"

#include <errno.h>
#include <string.h>

static const char *const policy_names[POLICY_COUNT] = {
	[POLICY_LEAST_WASTE] = "least_waste",
	[POLICY_LEAST_LOADED] = "least_loaded",
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

uint64_t policy_loss(const struct placement_view *v, const struct policy_mix *mix, struct placement_span span)
{
	uint64_t loss = 0;

	for (unsigned i = 0; i < v->n; i++) {
		const struct placement_class *c = &v->classes[i];

		loss += weight_of(mix, c->size) * c->size *
			placement_count(c->free & placement_class_touched(c, span));
	}
	return loss;
}

/* A card and a placement on it, with what ranks them. */
struct candidate {
	const struct policy_card *card;
	struct placement_span span;
	uint64_t loss;
};

/* Fewer quarantined VFs, known placements before unknown ones, least loss, then the fuller card (so that
 * whole cards stay empty), the lower address. The first id in table order wins by being seen first. */
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

static void consider(const struct policy_card *card, struct placement_span span, struct candidate *best)
{
	struct candidate c = { .card = card, .span = span };

	if (card->type)
		c.loss = policy_loss(card->view, card->mix, span);
	if (!best->card || wastes_less(&c, best))
		*best = c;
}

static void consider_card(const struct policy_card *card, struct candidate *best)
{
	const struct placement_type *t = card->type;

	if (!t) {
		consider(card, (struct placement_span){ 0 }, best);
		return;
	}
	for (unsigned i = 0; i < t->n_ids; i++) {
		if (!(card->free >> i & 1))
			continue;
		consider(card, (struct placement_span){ t->ids[i], t->size }, best);
		if (card->first_fit_only)
			return;
	}
}

static int choose_least_waste(const struct policy_card *cards, unsigned n, struct policy_choice *ret)
{
	struct candidate best = { 0 };

	for (unsigned i = 0; i < n; i++)
		if (is_usable(&cards[i]))
			consider_card(&cards[i], &best);
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
		return choose_least_waste(cards, n, ret);
	case POLICY_LEAST_LOADED:
		return choose_least_loaded(cards, n, ret);
	}
	return -EINVAL;
}
