/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joint fit: do these counts of these profiles fit together on these cards, and where?
 *
 * Single counts do not add up (each is the answer for one profile alone), so this is searched:
 * first greedily, largest first and by least waste, then exactly, depth first over placements in
 * one order per kind of vGPU, with bounds and a memory of what has failed. The answer is exact
 * unless `stop` cut the search; then it says so, and `placed` is what is proven to fit.
 *
 * Pure: no clock; the caller's stop function is asked every thousand steps or so.
 */
#pragma once

#include "model/pci.h"
#include "model/placement.h"

#define FIT_PROFILES_MAX 16
#define FIT_CARDS_MAX	 64
#define FIT_ITEMS_MAX	 1024 /* vGPUs in one question */

struct fit_card {
	struct pci_addr address;
	unsigned free_vfs;
	uint16_t sizes[FIT_PROFILES_MAX]; /* of each profile asked for; 0: the card does not have it
					   */
	struct placement_view view;
	uint16_t ids[PLACEMENT_CLASSES_MAX]
		    [PLACEMENT_IDS_MAX]; /* what view.classes[].ids point to */
};

/* Copies a view into the card, ids and all, so that it outlives the types it was made from. */
void fit_card_set_view(struct fit_card *card, const struct placement_view *view);

enum fit_answer {
	FIT_NO,
	FIT_YES,
	FIT_CUT, /* stopped before it was decided */
};

struct fit_step {
	unsigned profile; /* index into counts */
	unsigned card;	  /* index into cards */
	struct placement_span span;
};

struct fit_result {
	enum fit_answer answer;
	unsigned n_steps; /* YES: the plan; else the largest number of vGPUs that was placed */
	struct fit_step steps[FIT_ITEMS_MAX];
	unsigned placed[FIT_PROFILES_MAX]; /* per profile in steps */
};

/* -E2BIG when more than FIT_ITEMS_MAX vGPUs are asked for, -ENOMEM. stop may be NULL. */
int fit_search(const struct fit_card *cards, unsigned n_cards, const unsigned counts[],
	       unsigned n_profiles, bool (*stop)(void *userdata), void *userdata,
	       struct fit_result *ret) _must_check_;

/* How many vGPUs of profile `more` fit when counts[] are kept (counts[more] included in what is
 * kept). *ret_exact is false when the search was cut: then at least *ret_count fit. -ENOENT when
 * counts[] alone do not fit (or that was cut: *ret_exact tells). */
int fit_max(const struct fit_card *cards, unsigned n_cards, const unsigned counts[],
	    unsigned n_profiles, unsigned more, bool (*stop)(void *userdata), void *userdata,
	    unsigned *ret_count, bool *ret_exact) _must_check_;
