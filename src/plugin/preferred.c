/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/preferred.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

struct choice {
	unsigned index; /* among the available ones */
	const char *id;
	int node; /* INT_MAX: none */
	struct pci_addr card;
	bool chosen;
};

struct choices {
	unsigned n, n_chosen;
	struct choice *items;
	unsigned *ret;
};

static void choose(struct choices *c, struct choice *item)
{
	item->chosen = true;
	c->ret[c->n_chosen++] = item->index;
}

static unsigned count_free(const struct choices *c, int node)
{
	unsigned n = 0;

	for (unsigned i = 0; i < c->n; i++)
		n += !c->items[i].chosen && c->items[i].node == node;
	return n;
}

static unsigned count_chosen(const struct choices *c, int node)
{
	unsigned n = 0;

	for (unsigned i = 0; i < c->n; i++)
		n += c->items[i].chosen && c->items[i].node == node;
	return n;
}

/* The node to take from next: where devices are chosen already; then the one that is just large
 * enough, so that larger ones stay whole; else the largest; the lower number breaks ties, none
 * comes last. */
static int best_node(const struct choices *c, unsigned wanted)
{
	unsigned best_chosen = 0, best_free = 0;
	int best = -1;

	for (unsigned i = 0; i < c->n; i++) {
		int node = c->items[i].node;
		unsigned chosen = count_chosen(c, node), available = count_free(c, node);
		bool better;

		if (available == 0 || node == best)
			continue;
		if (best < 0)
			better = true;
		else if ((chosen > 0) != (best_chosen > 0))
			better = chosen > 0;
		else if ((node == INT_MAX) != (best == INT_MAX))
			better = best == INT_MAX;
		else if ((available >= wanted) != (best_free >= wanted))
			better = available >= wanted;
		else if (available != best_free)
			better = available >= wanted ? available < best_free
						     : available > best_free;
		else
			better = node < best;
		if (!better)
			continue;
		best = node;
		best_chosen = chosen;
		best_free = available;
	}
	return best;
}

/* On that node: from a card that is in the choice already, else the first by id. */
static struct choice *best_on_node(struct choices *c, int node)
{
	struct choice *first = NULL;

	for (unsigned i = 0; i < c->n; i++) {
		struct choice *item = &c->items[i];

		if (item->chosen || item->node != node)
			continue;
		for (unsigned k = 0; k < c->n; k++)
			if (c->items[k].chosen && pci_addr_equal(c->items[k].card, item->card))
				return item;
		if (!first)
			first = item;
	}
	return first;
}

static int compare_choices(const void *a, const void *b)
{
	return strcmp(((const struct choice *)a)->id, ((const struct choice *)b)->id);
}

static struct choice *find_choice(struct choices *c, const char *id)
{
	for (unsigned i = 0; i < c->n; i++)
		if (strcmp(c->items[i].id, id) == 0)
			return &c->items[i];
	return NULL;
}

int preferred_choose(const struct resource *r, const char *const *available, unsigned n_available,
		     const char *const *must, unsigned n_must, unsigned size,
		     unsigned ret[static PREFERRED_MAX])
{
	_free_ struct choice *items = NULL;
	struct choices c = { .ret = ret };

	if (n_available > PREFERRED_MAX || size > PREFERRED_MAX || n_must > size)
		return -EINVAL;
	c.items = items = calloc(n_available + 1U, sizeof *items);
	if (!items)
		return -ENOMEM;
	for (unsigned i = 0; i < n_available; i++) {
		const struct device *d = resource_find(r, available[i]);
		struct choice *item = &items[c.n];

		if (find_choice(&c, available[i]))
			continue; /* named twice */
		*item = (struct choice){ .index = i, .id = available[i], .node = INT_MAX };
		if (d && d->numa_node >= 0)
			item->node = d->numa_node;
		if (d)
			item->card = d->card;
		c.n++;
	}
	qsort(items, c.n, sizeof *items, compare_choices);
	for (unsigned i = 0; i < n_must; i++) {
		struct choice *item = find_choice(&c, must[i]);

		if (!item)
			return -EINVAL;
		if (!item->chosen)
			choose(&c, item);
	}
	while (c.n_chosen < MIN(size, c.n))
		choose(&c, best_on_node(&c, best_node(&c, size - c.n_chosen)));
	return (int)c.n_chosen;
}
