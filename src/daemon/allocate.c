/* SPDX-License-Identifier: Apache-2.0 */
#include "base/array.h"
#include "daemon/allocate-internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/cards.h"
#include "daemon/node-metrics.h"
#include "daemon/release.h"
#include "daemon/snapshot.h"
#include "model/outcome.h"

static struct allocation *find(const struct node *n, const char *name)
{
	for (unsigned i = 0; i < n->n_allocations; i++)
		if (strcmp(n->allocations[i]->request.name, name) == 0)
			return n->allocations[i];
	return NULL;
}

bool allocate_waits(const struct node *n, uint64_t from, uint64_t to)
{
	for (unsigned i = 0; i < n->n_allocations; i++) {
		const struct allocation *a = n->allocations[i];

		if (a->stage == ALLOCATION_WAITING && a->arrived_seq >= from && a->arrived_seq < to)
			return true;
	}
	return false;
}

bool allocate_is_pending(const struct node *n, const char *name)
{
	return find(n, name) != NULL;
}

/* --- Ending --------------------------------------------------------------------------------- */

static void forget(struct allocation *a)
{
	struct node *n = a->node;

	for (unsigned i = 0; i < n->n_allocations; i++) {
		if (n->allocations[i] != a)
			continue;
		n->n_allocations--;
		memmove(n->allocations + i, n->allocations + i + 1,
			(n->n_allocations - i) * sizeof(struct allocation *));
		return;
	}
}

static void allocation_free(struct allocation *a)
{
	sd_event_source_disable_unref(a->timer);
	for (unsigned i = 0; i < a->n_waiters; i++)
		free(a->waiters[i]);
	free(a->waiters);
	free(a);
}

static void log_end(const struct allocation *a, int code, const char *detail)
{
	const struct claim *c = &a->claim;
	char vf[PCI_ADDR_MAX];

	if (code == 0)
		log_info("claim: bound claim=%s profile=\"%s\" vf=%s placement=%d", c->name,
			 c->profile, pci_addr_format(c->vf, vf), c->placement_id);
	else if (a->abandoned)
		log_info("claim: undone, the client hung up claim=%s", a->request.name);
	else
		log_info("claim: refused claim=%s profile=\"%s\" result=%s: %s", a->request.name,
			 a->request.profile, outcome_of(code)->name, detail);
}

void allocation_end(struct allocation *a, int code, const char *detail,
		    const struct claim_entry *entry, const struct allocation_refusal *refusals,
		    unsigned n_refusals)
{
	struct node *n = a->node;

	forget(a);
	log_end(a, code, detail);
	if (!a->abandoned)
		node_metrics_count_claim(n, code == 0 ? "ok" : outcome_of(code)->name,
					 clock_now_usec() - a->arrived_usec);
	for (unsigned i = 0; i < a->n_waiters; i++) {
		struct allocation_waiter *w = a->waiters[i];
		struct allocation_result result = {
			.code = code,
			.detail = detail,
			.created = w->first,
			.entry = entry,
			.n_refusals = n_refusals,
			.refusals = refusals,
		};

		if (w->done)
			w->done(&result, w->userdata);
		else
			w->ended(w->userdata);
	}
	allocation_free(a);
	node_changed(n);
}

/* --- Planning what waits -------------------------------------------------------------------- */

/* Only with one_query_per_claim: whoever else waits is as if it had arrived now. */
static void use_up_answer(const struct allocation *user)
{
	struct node *n = user->node;

	for (unsigned i = 0; i < n->n_allocations; i++) {
		struct allocation *a = n->allocations[i];

		if (a == user || a->stage != ALLOCATION_WAITING)
			continue;
		a->arrived_seq = node_next_seq(n);
		snapshot_request(n);
	}
}

static void plan_one(struct allocation *a)
{
	struct allocation_refusal refusals[INVENTORY_CARDS_MAX];
	char detail[NODE_TEXT_MAX] = "";
	unsigned n_refusals = 0;
	int r;

	r = allocation_choose(a, detail, refusals, &n_refusals);
	if (r != -EAGAIN && a->node->one_query_per_claim)
		use_up_answer(a);
	if (r == 0) {
		allocation_begin(a);
		return;
	}
	if (r == -EAGAIN)
		return;
	if (r == -E_INSUFFICIENT_RESOURCES && a->deadline_usec > clock_now_usec())
		return;
	allocation_end(a, r, detail, NULL, refusals, n_refusals);
}

void allocate_plan(struct node *n)
{
	const char *reason = node_not_ready_reason(n);
	bool dead = *reason && (claim_store_get_state(n->store) == STORE_STATE_UNREADABLE ||
				n->stage == NODE_STOPPING);

	if (*reason && !dead)
		return;
	/* Ending one moves the others down. */
	for (unsigned i = 0; i < n->n_allocations;) {
		struct allocation *a = n->allocations[i];

		if (a->stage == ALLOCATION_WAITING && dead)
			allocation_end(a, -E_STORE_UNAVAILABLE, reason, NULL, NULL, 0);
		else if (a->stage == ALLOCATION_WAITING)
			plan_one(a);
		if (i < n->n_allocations && n->allocations[i] == a)
			i++;
	}
}

void allocate_capacity_changed(struct node *n)
{
	for (unsigned i = 0; i < n->n_allocations; i++) {
		if (n->allocations[i]->stage == ALLOCATION_WAITING) {
			snapshot_request(n);
			return;
		}
	}
}

/* --- Requests ------------------------------------------------------------------------------- */

static struct allocation_waiter *add_waiter(struct allocation *a, allocate_done_fn done,
					    void (*ended)(void *), void *userdata)
{
	struct allocation_waiter *w = calloc(1, sizeof *w);

	if (!w)
		return NULL;
	*w = (struct allocation_waiter){ a, done, ended, userdata, done && a->n_waiters == 0 };
	if (array_reserve(a->waiters, a->n_waiters, a->waiters_cap) < 0) {
		free(w);
		return NULL;
	}
	a->waiters[a->n_waiters++] = w;
	return w;
}

/* The answer to a request that no allocation is made for. */
static void answer(struct node *n, allocate_done_fn done, void *userdata, int code,
		   const char *detail, const struct claim_entry *entry)
{
	struct allocation_result result = { .code = code, .detail = detail, .entry = entry };

	if (code < 0)
		node_metrics_count_claim(n, outcome_of(code)->name, 0);
	done(&result, userdata);
}

/* Its VF is gone, or is not what the claim left there: no use to anybody. One that only cannot be
 * read now may be all right. */
static bool is_lost(const struct node *n, const struct claim_entry *e)
{
	const struct vf *v;

	switch (e->problem) {
	case CLAIM_PROBLEM_VF_MISSING:
		v = node_find_vf(n, e->claim.vf, NULL);
		return !v || !v->listed;
	case CLAIM_PROBLEM_TYPE_LOST:
	case CLAIM_PROBLEM_TYPE_CHANGED:
		return true;
	case CLAIM_PROBLEM_NONE:
	case CLAIM_PROBLEM_CARD_STUCK:
		break;
	}
	return false;
}

/* True when the request was answered: the claim is another's. */
static bool refuse_stranger(struct node *n, const struct allocation_request *request, uint32_t uid,
			    const char *peer, allocate_done_fn done, void *userdata)
{
	char detail[NODE_TEXT_MAX];

	if (n->config->claims == CONFIG_CLAIMS_SHARED || claimant_owns(&request->who, uid, peer))
		return false;
	answer(n, done, userdata, -E_FORBIDDEN, release_owner_sentence(uid, peer, "have", detail),
	       NULL);
	return true;
}

/* An existing claim of that name: true when the request was answered by it. */
static bool answer_existing(struct node *n, const struct allocation_request *request,
			    allocate_done_fn done, void *userdata)
{
	struct claim_entry *e = node_find_claim(n, request->name);

	if (!e)
		return false;
	if (e->claim.state == CLAIM_STATE_RELEASING || e->release) {
		answer(n, done, userdata, -E_RELEASING,
		       "the claim of that name is still being released", NULL);
		return true;
	}
	if (!profile_name_equal(e->claim.profile, request->profile)) {
		answer(n, done, userdata, -E_CLAIM_EXISTS,
		       "a claim of that name has another profile", NULL);
		return true;
	}
	if (refuse_stranger(n, request, e->claim.uid, e->claim.peer, done, userdata))
		return true;
	if (is_lost(n, e))
		return false;
	answer(n, done, userdata, 0, "", e);
	return true;
}

static int waited_enough(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct allocation *a = userdata;

	(void)source;
	(void)usec;
	if (a->stage == ALLOCATION_WAITING) {
		a->deadline_usec = 0;
		plan_one(a);
	}
	return 0;
}

static struct allocation *allocation_new(struct node *n, const struct allocation_request *request)
{
	struct allocation *a = calloc(1, sizeof *a);

	if (!a)
		return NULL;
	a->node = n;
	a->request = *request;
	a->arrived_seq = node_next_seq(n);
	a->arrived_usec = clock_now_usec();
	if (request->wait_usec > 0) {
		a->deadline_usec = a->arrived_usec + request->wait_usec;
		if (sd_event_add_time(n->event, &a->timer, CLOCK_MONOTONIC, a->deadline_usec,
				      10 * USEC_PER_MSEC, waited_enough, a) < 0) {
			free(a);
			return NULL;
		}
	}
	return a;
}

static void replaced(const struct release_result *result, void *userdata)
{
	struct allocation *a = userdata;

	switch (result->end) {
	case RELEASE_END_DONE:
	case RELEASE_END_NOTHING:
		if (a->abandoned) {
			allocation_end(a, -E_CLIENT_GONE, "the client hung up", NULL, NULL, 0);
			return;
		}
		a->stage = ALLOCATION_WAITING;
		a->arrived_seq = node_next_seq(a->node);
		snapshot_request(a->node);
		return;
	case RELEASE_END_PENDING:
		allocation_end(a, -E_RELEASING, "the lost VF of that name is still being released",
			       NULL, NULL, 0);
		return;
	case RELEASE_END_FAILED:
		allocation_end(a, result->code, result->detail, NULL, NULL, 0);
		return;
	}
}

static void start(struct node *n, const struct allocation_request *request, allocate_done_fn done,
		  void *userdata, struct allocation_waiter **ret_waiter)
{
	struct claim_entry *old = node_find_claim(n, request->name);
	struct allocation *a = allocation_new(n, request);
	struct allocation_refusal refusals[INVENTORY_CARDS_MAX];
	char detail[NODE_TEXT_MAX] = "";
	struct allocation_waiter *w;
	unsigned n_refusals = 0;
	int r;

	w = a ? add_waiter(a, done, NULL, userdata) : NULL;
	if (!w || array_reserve(n->allocations, n->n_allocations, n->allocations_cap) < 0) {
		if (a)
			allocation_free(a);
		answer(n, done, userdata, -E_INTERNAL, "out of memory", NULL);
		return;
	}
	n->allocations[n->n_allocations++] = a;
	if (old) {
		release_lost(n, old, replaced, a);
		*ret_waiter = find(n, request->name) ? w : NULL; /* it may have failed at once */
		return;
	}
	a->stage = ALLOCATION_WAITING;
	r = node_is_ready(n) ? allocation_precheck(a, detail, refusals, &n_refusals) : 0;
	if (r < 0 && !(r == -E_INSUFFICIENT_RESOURCES && a->deadline_usec > 0)) {
		allocation_end(a, r, detail, NULL, refusals, n_refusals);
		return;
	}
	*ret_waiter = w;
	if (r == 0)
		snapshot_request(n);
}

void allocate_submit(struct node *n, const struct allocation_request *request,
		     allocate_done_fn done, void *userdata, struct allocation_waiter **ret_waiter)
{
	struct allocation *a;

	*ret_waiter = NULL;
	if (claim_store_get_state(n->store) == STORE_STATE_UNREADABLE ||
	    n->stage == NODE_STOPPING) {
		answer(n, done, userdata, -E_STORE_UNAVAILABLE, node_not_ready_reason(n), NULL);
		return;
	}
	if (health_store_get_state(n->health) == STORE_STATE_UNREADABLE &&
	    !node_find_claim(n, request->name)) {
		answer(n, done, userdata, -E_HEALTH_STORE_UNAVAILABLE,
		       health_store_reason(n->health), NULL);
		return;
	}
	a = find(n, request->name);
	if (!a && answer_existing(n, request, done, userdata))
		return;
	for (unsigned i = 0; n->stage == NODE_READY && i < n->n_undos; i++) {
		if (strcmp(n->undos[i]->claim_name, request->name) == 0) {
			answer(n, done, userdata, -E_STORE_UNAVAILABLE,
			       "an earlier claim of that name could not be taken off the disk yet",
			       NULL);
			return;
		}
	}
	if (!a) {
		start(n, request, done, userdata, ret_waiter);
		return;
	}
	if (!profile_name_equal(a->request.profile, request->profile)) {
		answer(n, done, userdata, -E_CLAIM_EXISTS,
		       "a claim of that name is under way with another profile", NULL);
		return;
	}
	if (refuse_stranger(n, request, a->request.who.uid, a->request.who.peer, done, userdata))
		return;
	if (a->abandoned) {
		answer(n, done, userdata, -E_RELEASING,
		       "an earlier claim of that name is being undone", NULL);
		return;
	}
	*ret_waiter = add_waiter(a, done, NULL, userdata);
	if (!*ret_waiter)
		answer(n, done, userdata, -E_INTERNAL, "out of memory", NULL);
}

void allocate_cancel(struct node *n, struct allocation_waiter *waiter)
{
	struct allocation *a = waiter->allocation;
	bool anybody = false;

	(void)n;
	for (unsigned i = 0; i < a->n_waiters; i++) {
		if (a->waiters[i] == waiter) {
			a->waiters[i] = a->waiters[--a->n_waiters];
			free(waiter);
			break;
		}
	}
	for (unsigned i = 0; i < a->n_waiters; i++)
		anybody |= a->waiters[i]->done != NULL;
	if (anybody)
		return;
	/* Later stages look at the flag when their step ends. */
	a->abandoned = true;
	if (a->stage == ALLOCATION_WAITING)
		allocation_end(a, -E_CLIENT_GONE, "the client hung up", NULL, NULL, 0);
}

int allocate_when_ended(struct node *n, const char *name, void (*fn)(void *userdata),
			void *userdata)
{
	struct allocation *a = find(n, name);

	if (!a)
		return -ENOENT;
	return add_waiter(a, NULL, fn, userdata) ? 0 : -ENOMEM;
}

void allocate_relink(struct node *n)
{
	for (unsigned i = 0; i < n->n_allocations; i++) {
		struct allocation *a = n->allocations[i];
		struct vf *v = a->card ? node_find_vf(n, a->claim.vf, NULL) : NULL;

		if (!v)
			continue;
		v->hold = VF_HOLD_ALLOCATION;
		v->planned_type = a->claim.type_id;
		if (v->type_id == 0)
			v->span = a->span;
	}
}

void allocate_free_all(struct node *n)
{
	for (unsigned i = 0; i < n->n_allocations; i++)
		allocation_free(n->allocations[i]);
	free(n->allocations);
	n->allocations = NULL;
	n->n_allocations = 0;
}
