/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which card takes a vGPU, and where on it.
 *
 * The caller lists candidate cards (those that the claim may use and that have a free healthy VF);
 * a policy picks one and a placement on it. Cards with fewer quarantined VFs always go first.
 * docs/placement.md explains the policies and how they compare.
 */
#pragma once

#include "model/pci.h"
#include "model/placement.h"

enum policy {
	POLICY_LEAST_WASTE, /* the placement that costs least of what else would fit, on any card */
	POLICY_LEAST_LOADED, /* least framebuffer in use, lowest address, the driver's first fit */
	POLICY_FORESIGHT, /* least_waste that also counts what will come free, by what is asked for
			   */
};
#define POLICY_COUNT (POLICY_FORESIGHT + 1)

/* How much a size counts. Sizes not listed have weight 1, unless `only` is set: then 0. */
struct policy_mix {
	bool only;
	unsigned n;
	struct {
		uint16_t size;
		uint32_t weight;
	} items[PLACEMENT_CLASSES_MAX];
};

int policy_from_name(const char *name, enum policy *ret) _must_check_; /* "least_loaded"; -EINVAL */
const char *policy_name(enum policy p);

/* The sizes of the last claims: what is asked for here, as far as anybody can know. */
#define POLICY_DEMAND_CLAIMS 128
struct policy_demand {
	unsigned n, next;
	uint16_t sizes[POLICY_DEMAND_CLAIMS];
};

void policy_demand_add(struct policy_demand *d, uint16_t size);

/* The share of each size of a card among them, and a tenth spread over all its sizes, so that none
 * is forgotten. Every size alike while nothing is known. */
void policy_demand_mix(const struct policy_demand *d, const struct placement_view *v,
		       struct policy_mix *ret);

struct policy_card {
	struct pci_addr address;
	unsigned quarantined_vfs;
	uint64_t used_mb; /* framebuffer of the configured and reserved vGPUs, MiB */
	const struct placement_type
		*type; /* of the wanted profile on this card; NULL: placements unknown (fallback) */
	uint64_t free; /* mask over type->ids; any bit set (unused when type is NULL) */
	const struct placement_view
		*view; /* all sizes of the card; needed but for least_loaded when type is set */
	const struct policy_mix *mix; /* in this card's sizes; NULL: all sizes alike */
	bool first_fit_only;	      /* the driver's own choice cannot be changed afterwards */
};

struct policy_choice {
	unsigned card; /* index into the candidates */
	struct placement_span
		span; /* size 0 when the driver will choose and placements are unknown */
};

/* What taking a span costs: sum over sizes of weight x size x placements that it makes impossible.
 */
uint64_t policy_loss(const struct placement_view *v, const struct policy_mix *mix,
		     struct placement_span span);

/* -ENOENT when there is no candidate; a card whose placements are known and none free is none. */
int policy_choose(enum policy policy, const struct policy_card *cards, unsigned n,
		  struct policy_choice *ret) _must_check_;
