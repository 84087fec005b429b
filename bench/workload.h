/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The demand that placement is measured with: mixes of profiles, arrivals, how long a vGPU stays,
 * and the placements of an L40S in mixed-size mode. Everything random comes from twister.h, in the
 * order rate, class, hold of each arrival.
 */
#pragma once

#include "model/placement.h"

#define WORKLOAD_CLASSES 10U
#define WORKLOAD_REGION	 48U
#define WORKLOAD_MIXES	 4U

struct workload_mix {
	const char *name;
	unsigned n;
	struct {
		unsigned class, weight;
	} items[6];
};

extern const struct workload_mix workload_mixes[WORKLOAD_MIXES];
extern struct placement_type
	workload_types[WORKLOAD_CLASSES]; /* largest first; all placements creatable */

void workload_make(void);					/* fills in workload_types */
const struct workload_mix *workload_find_mix(const char *name); /* or NULL */

/* Arrivals in one mean-like unit of time, so that `load` of the cards' memory is asked for. */
double workload_rate(const struct workload_mix *mix, unsigned n_cards, double load);
unsigned workload_draw(const struct workload_mix *mix); /* a class */
double workload_hold(void);
