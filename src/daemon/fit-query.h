/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "Do these counts of these profiles fit together, now?", answered from memory.
 *
 * The state of all cards is copied and searched in the scan thread, so the loop goes on; after 100
 * ms the search is cut and the answer says so. Cards without known placements (a fallback) are left
 * out and named.
 */
#pragma once

#include "daemon/node.h"
#include "model/fit.h"

#define FIT_QUERY_LIMIT_USEC 100000

struct fit_query {
	unsigned n_profiles;
	char names[FIT_PROFILES_MAX][PROFILE_NAME_MAX]; /* as asked for */
	unsigned counts[FIT_PROFILES_MAX];
	int max_of; /* index of the profile of which to tell how many more fit; -1: none */
};

struct fit_query_result {
	int code; /* 0, or -E_UNKNOWN_PROFILE and the like with detail */
	char detail[NODE_TEXT_MAX];
	unsigned n_cards; /* that were looked at */
	struct pci_addr cards[FIT_CARDS_MAX];
	unsigned n_ignored; /* cards whose placements are not known */
	struct pci_addr ignored[FIT_CARDS_MAX];
	struct fit_result fit;
	bool has_max, max_exact;
	unsigned max;
};

/* Runs once, later from the loop, or at once on a refusal; the result is borrowed. */
typedef void (*fit_query_done_fn)(const struct fit_query *query,
				  const struct fit_query_result *result, void *userdata);

void fit_query_submit(struct node *n, const struct fit_query *query, fit_query_done_fn done,
		      void *userdata);
