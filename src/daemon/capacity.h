/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fits: free placements and available vGPUs per card and profile, from what is in memory.
 *
 * Nothing here asks the driver: these numbers answer every GET. With NVML a profile's `available`
 * is min(free placements, free healthy VFs); in a fallback the VFs' own lists count, bounded by
 * what the card can hold (32 VFs that all list 4Q on a 48 GB card are 12, not 32).
 */
#pragma once

#include "daemon/node.h"

/* VFs that a claim may take now. */
unsigned capacity_free_vfs(const struct node *n, const struct card *c);

/* Spans that NVML's answer does not know of yet. */
void capacity_overlay(const struct node *n, const struct card *c, struct placement_set *ret);

/* Placement table of a type in NVML's answer; NULL in a fallback or when there is none. */
const struct placement_type *capacity_placement_type(const struct card *c, uint32_t type_id);

/* Free placements of a type, or -1 when they are not known (fallback). `overlay` of the same card.
 */
int capacity_free_placements(const struct card *c, uint32_t type_id,
			     const struct placement_set *overlay);

/* All spans that vGPUs take or are about to. False: not known for each of them (a fallback, or a
 * vGPU without a place so far), so what looks free need not be. */
bool capacity_taken(const struct card *c, struct placement_set *ret);

/* NVML says that nothing is free, but it was asked while something was written, and by what berth
 * knows a placement is: the driver puts a vGPU on its first fit before it is steered away from
 * there. */
bool capacity_is_doubtful(const struct node *n, const struct card *c, uint32_t type_id);

/* vGPUs of the card's type c->types.items[index] that could be claimed now. */
unsigned capacity_available(const struct node *n, const struct card *c, unsigned index,
			    const struct placement_set *overlay);

/* A free VF of the card that may take this type (in a fallback: one that lists it), chosen at
 * random among those for which `skip` (may be NULL) is false; NULL when there is none. */
struct vf *capacity_pick_vf(const struct node *n, struct card *c, unsigned index,
			    bool (*skip)(const struct vf *v, const void *userdata),
			    const void *userdata);

/* Framebuffer of the configured and planned vGPUs, MiB. */
uint64_t capacity_used_mb(const struct card *c);

struct capacity_slots {
	unsigned total, used, allocatable, quarantined;
};

/* Of one card; NULL: of the whole host. */
struct capacity_slots capacity_count_slots(const struct node *n, const struct card *c);
