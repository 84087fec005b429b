/* SPDX-License-Identifier: Apache-2.0 */
#include "model/policy.h"

#include <errno.h>
#include <string.h>

static const char *const policy_names[POLICY_COUNT] = {
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

int policy_choose(enum policy policy, const struct policy_card *cards, unsigned n,
		  struct policy_choice *ret)
{
	switch (policy) {
	case POLICY_LEAST_LOADED:
		return choose_least_loaded(cards, n, ret);
	}
	return -EINVAL;
}
