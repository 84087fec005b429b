/* SPDX-License-Identifier: Apache-2.0 */
#include "workload.h"

#include <string.h>

#include "twister.h"

static const struct {
	uint16_t size;
	unsigned maximum; /* in equal-size mode; it shapes the mixed ids */
} profiles[WORKLOAD_CLASSES] = {
	{ 48, 1 }, { 24, 2 }, { 16, 3 }, { 12, 4 }, { 8, 6 },
	{ 6, 8 },  { 4, 12 }, { 3, 16 }, { 2, 24 }, { 1, 32 },
};

const struct workload_mix workload_mixes[WORKLOAD_MIXES] = {
	{ "small", 3, { { 9, 4 }, { 8, 4 }, { 6, 2 } } },
	{ "office", 3, { { 8, 4 }, { 6, 4 }, { 4, 1 } } },
	{ "broad", 6, { { 9, 3 }, { 8, 3 }, { 6, 3 }, { 4, 2 }, { 3, 1 }, { 1, 1 } } },
	{ "bimodal", 2, { { 8, 8 }, { 1, 1 } } },
};

struct placement_type workload_types[WORKLOAD_CLASSES];

/* The middle of each 6 GB takes no 1 GB vGPU. */
static void add_id(struct placement_type *t, unsigned id)
{
	if (t->size == 1 && (id % 6 == 2 || id % 6 == 3))
		return;
	t->ids[t->n_ids++] = (uint16_t)id;
}

/* The driver's generator of mixed-size placements: halves of halves, on the side that is left over.
 */
static void split(unsigned class, unsigned low, unsigned high, unsigned parts, bool left)
{
	unsigned maximum = profiles[class].maximum, half = 1, middle = (low + high) / 2;
	struct placement_type *t = &workload_types[class];
	bool want_left = false, want_right = false;

	if (parts > 16)
		return;
	while (half * 2 <= maximum)
		half *= 2;
	if (2 * parts == maximum) {
		want_left = want_right = true;
	} else if ((half < maximum && half == parts) || (parts == 1 && maximum == 1)) {
		want_left = left;
		want_right = !left;
	}
	if (want_left)
		add_id(t, low);
	if (want_right)
		add_id(t, high - t->size);
	split(class, low, middle, parts * 2, true);
	split(class, middle, high, parts * 2, false);
}

void workload_make(void)
{
	for (unsigned c = 0; c < WORKLOAD_CLASSES; c++) {
		workload_types[c] = (struct placement_type){ .type_id = c + 1,
							     .size = profiles[c].size };
		split(c, 0, WORKLOAD_REGION, 1, true);
		workload_types[c].creatable = (UINT64_C(1) << workload_types[c].n_ids) - 1;
	}
}

const struct workload_mix *workload_find_mix(const char *name)
{
	for (unsigned i = 0; i < WORKLOAD_MIXES; i++)
		if (strcmp(workload_mixes[i].name, name) == 0)
			return &workload_mixes[i];
	return NULL;
}

static unsigned total_of(const struct workload_mix *mix)
{
	unsigned total = 0;

	for (unsigned i = 0; i < mix->n; i++)
		total += mix->items[i].weight;
	return total;
}

double workload_rate(const struct workload_mix *mix, unsigned n_cards, double load)
{
	double gb = 0;

	for (unsigned i = 0; i < mix->n; i++)
		gb += profiles[mix->items[i].class].size * mix->items[i].weight;
	return load * n_cards * WORKLOAD_REGION / (gb / total_of(mix));
}

unsigned workload_draw(const struct workload_mix *mix)
{
	double x = twister_random() * total_of(mix);
	unsigned sum = 0, i;

	for (i = 0; i + 1 < mix->n; i++) {
		sum += mix->items[i].weight;
		if (x < sum)
			break;
	}
	return mix->items[i].class;
}

double workload_hold(void)
{
	return twister_log_normal(-0.5, 1);
}
