/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/fit-query.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "daemon/capacity.h"
#include "daemon/cards.h"
#include "daemon/catalogue.h"
#include "model/outcome.h"

struct fit_job {
	struct fit_query query;
	fit_query_done_fn done;
	void *userdata;
	struct fit_query_result result;
	struct fit_card cards[FIT_CARDS_MAX];
	uint64_t deadline_usec;
};

static bool time_is_up(void *userdata)
{
	struct fit_job *job = userdata;

	return clock_now_usec() > job->deadline_usec;
}

static void run(void *userdata)
{
	struct fit_job *job = userdata;
	struct fit_query_result *r = &job->result;
	const struct fit_query *q = &job->query;
	int k;

	job->deadline_usec = clock_now_usec() + FIT_QUERY_LIMIT_USEC;
	r->code = fit_search(job->cards, r->n_cards, q->counts, q->n_profiles, time_is_up, job,
			     &r->fit);
	if (r->code < 0 || q->max_of < 0)
		return;
	k = fit_max(job->cards, r->n_cards, q->counts, q->n_profiles, (unsigned)q->max_of,
		    time_is_up, job, &r->max, &r->max_exact);
	r->has_max = k == 0;
}

static void finish(void *userdata)
{
	struct fit_job *job = userdata;

	if (job->result.code < 0 && !job->result.detail[0])
		str_copy_cut(job->result.detail, sizeof job->result.detail, "out of memory");
	job->done(&job->query, &job->result, job->userdata);
	free(job);
}

static void drop(void *userdata)
{
	struct fit_job *job = userdata;

	job->result.code = -E_NOT_READY;
	str_copy_cut(job->result.detail, sizeof job->result.detail, "berthd is stopping");
	finish(job);
}

/* Copies what the search needs of a card; false when its placements are not known. */
static bool copy_card(const struct node *n, const struct card *c, struct fit_job *job)
{
	struct fit_card *f = &job->cards[job->result.n_cards];
	struct placement_view view = { 0 };
	struct placement_set overlay;

	if (c->fallback != NVML_REASON_NONE || !c->nvml)
		return false;
	capacity_overlay(n, c, &overlay);
	for (unsigned i = 0; i < c->nvml->n_types; i++)
		placement_view_add(&view, &c->nvml->types[i].placement, &overlay);
	f->address = c->address;
	f->free_vfs = c->cordoned || c->stuck ? 0 : capacity_free_vfs(n, c);
	fit_card_set_view(f, &view);
	for (unsigned p = 0; p < job->query.n_profiles; p++) {
		const struct profile *profile = profile_list_find_name(&c->types,
								       job->query.names[p]);

		f->sizes[p] = profile ? cards_type_size(c, profile->type_id) : 0;
	}
	return true;
}

/* A profile that no card has is a mistake in the question, not a "no". */
static int check_profiles(const struct node *n, struct fit_job *job)
{
	for (unsigned p = 0; p < job->query.n_profiles; p++) {
		bool known = false;

		for (unsigned i = 0; i < n->n_cards; i++)
			known |= n->cards[i]->present &&
				 profile_list_find_name(&n->cards[i]->types, job->query.names[p]) !=
					 NULL;
		if (known)
			continue;
		snprintf(job->result.detail, sizeof job->result.detail,
			 "no card of this host has the profile %s", job->query.names[p]);
		return catalogue_all_complete(n) ? -E_UNKNOWN_PROFILE : -E_PROFILE_NOT_KNOWN_YET;
	}
	return 0;
}

void fit_query_submit(struct node *n, const struct fit_query *query, fit_query_done_fn done,
		      void *userdata)
{
	static const struct fit_query_result no_memory = { .code = -E_INTERNAL,
							   .detail = "out of memory" };
	struct fit_job *job = calloc(1, sizeof *job);

	if (!job) {
		done(query, &no_memory, userdata);
		return;
	}
	job->query = *query;
	job->done = done;
	job->userdata = userdata;
	if (!node_is_ready(n)) {
		job->result.code = claim_store_get_state(n->store) == STORE_STATE_UNREADABLE
					   ? -E_STORE_UNAVAILABLE
					   : -E_NOT_READY;
		str_copy_cut(job->result.detail, sizeof job->result.detail,
			     node_not_ready_reason(n));
	} else {
		job->result.code = check_profiles(n, job);
	}
	if (job->result.code < 0) {
		finish(job);
		return;
	}
	for (unsigned i = 0; i < n->n_cards && job->result.n_cards < FIT_CARDS_MAX; i++) {
		const struct card *c = n->cards[i];

		if (!card_is_usable(c) || !c->has_vfs)
			continue;
		if (copy_card(n, c, job))
			job->result.cards[job->result.n_cards++] = c->address;
		else
			job->result.ignored[job->result.n_ignored++] = c->address;
	}
	if (worker_submit(n->scanner, run, finish, drop, job) < 0) {
		job->result.code = -E_INTERNAL;
		finish(job);
	}
}
