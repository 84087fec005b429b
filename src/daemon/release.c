/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/release.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/allocate.h"
#include "daemon/cards.h"
#include "daemon/node-metrics.h"
#include "daemon/reconcile.h"
#include "daemon/snapshot.h"
#include "model/outcome.h"

#define PATIENCE_USEC	 USEC_PER_SEC
#define RETRY_FIRST_USEC (250 * USEC_PER_MSEC)
#define RETRY_MAX_USEC	 (30 * USEC_PER_SEC)

enum release_stage {
	RELEASE_SCANNING,
	RELEASE_MARKING,   /* `releasing` being committed */
	RELEASE_RESETTING, /* 0 being written */
	RELEASE_WAITING,   /* for the next try */
	RELEASE_DROPPING,  /* the drop being committed */
	RELEASE_REVERTING, /* the old state being committed again */
};

struct release_waiter {
	release_done_fn done;
	void *userdata;
};

struct release {
	struct node *node;
	struct claim_entry *entry;
	enum release_stage stage;
	enum claim_state before;
	bool late; /* the second is over */
	bool marked;
	bool must_be_closed; /* an open VF is a reason to stay even if its type is not ours */
	uint64_t backoff_usec;
	char said[CARD_TEXT_MAX]; /* why it was not released at the last try */
	int code;		  /* of REVERTING */
	char detail[NODE_TEXT_MAX];
	unsigned n_waiters, waiters_cap;
	struct release_waiter *waiters;
	sd_event_source *timer;
};

static const char *name_of(const struct release *r)
{
	return r->entry->claim.name;
}

/* --- Answering ------------------------------------------------------------------------------ */

static void tell(struct release *r, enum release_end end, int code, const char *detail,
		 const struct claim *claim)
{
	struct release_result result = { end, code, detail, claim };
	struct release_waiter *waiters = TAKE(r->waiters);
	unsigned n = r->n_waiters;

	r->n_waiters = r->waiters_cap = 0;
	for (unsigned i = 0; i < n; i++)
		if (waiters[i].done)
			waiters[i].done(&result, waiters[i].userdata);
	free(waiters);
}

static void publish(struct node *n, const struct claim *c)
{
	char vf[PCI_ADDR_MAX];
	json_t *data = json_pack("{s:s,s:s,s:s}", "name", c->name, "profile", c->profile, "vf",
				 pci_addr_format(c->vf, vf));

	if (data && http_events_publish(n->events, "release", data) < 0)
		log_debug("events: a release event was not published, ignoring");
}

/* The claim is gone from disk. */
static void finish(struct release *r)
{
	struct node *n = r->node;
	struct claim_entry *entry = r->entry;
	struct claim claim = entry->claim;
	char vf[PCI_ADDR_MAX];

	entry->release = NULL;
	node_remove_claim(n, entry);
	node_metrics_count_claim(n, "released", 0);
	log_info("claim: released claim=%s vf=%s", claim.name, pci_addr_format(claim.vf, vf));
	publish(n, &claim);
	snapshot_request(n);
	tell(r, RELEASE_END_DONE, 0, "", &claim);
	release_free(r);
	allocate_capacity_changed(n);
}

static void fail(struct release *r, int code, const char *detail)
{
	log_info("claim: not released claim=%s result=%s: %s", name_of(r), outcome_of(code)->name,
		 detail);
	r->entry->release = NULL;
	tell(r, RELEASE_END_FAILED, code, detail, NULL);
	release_free(r);
}

static void tell_pending(struct release *r)
{
	if (r->n_waiters > 0)
		tell(r, RELEASE_END_PENDING, 0, "", &r->entry->claim);
}

/* --- Steps ---------------------------------------------------------------------------------- */

static void reset(struct release *r);
static void drop(struct release *r);

static int submit_claim(struct release *r, enum store_op_kind kind, store_done_fn done)
{
	struct store_op *op = calloc(1, sizeof *op);
	int result = -ENOMEM;

	if (op) {
		op->kind = kind;
		op->claim = r->entry->claim;
		result = claim_store_submit(r->node->store, op, 1, done, r);
	}
	free(op);
	return result;
}

static int timer_fired(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct release *r = userdata;

	(void)source;
	(void)usec;
	if (!r->late) {
		r->late = true;
		if (r->marked)
			tell_pending(r);
	}
	if (r->stage == RELEASE_WAITING)
		reset(r);
	return 0;
}

static void arm(struct release *r, uint64_t usec)
{
	uint64_t at = clock_now_usec() + usec;

	if (!r->timer)
		sd_event_add_time(r->node->event, &r->timer, CLOCK_MONOTONIC, at, USEC_PER_MSEC,
				  timer_fired, r);
	else {
		sd_event_source_set_time(r->timer, at);
		sd_event_source_set_enabled(r->timer, SD_EVENT_ONESHOT);
	}
}

static void try_again_later(struct release *r, const char *why)
{
	if (strncmp(r->said, why, sizeof r->said - 1) != 0)
		log_notice("claim: not released yet, retrying claim=%s: %s", name_of(r), why);
	str_copy_cut(r->said, sizeof r->said, why);
	r->stage = RELEASE_WAITING;
	r->late = true;
	arm(r, r->backoff_usec);
	r->backoff_usec = MIN(r->backoff_usec * 2, RETRY_MAX_USEC);
	tell_pending(r);
}

static void reverted(int result, const struct error *err, void *userdata)
{
	struct release *r = userdata;

	if (result < 0)
		log_error("claims database: %s claim=%s, ignoring until the next start",
			  error_text(err), name_of(r));
	node_changed(r->node);
	fail(r, r->code, r->detail);
}

/* Back to what it was, with this answer. */
static void revert(struct release *r, int code, const char *detail)
{
	r->stage = RELEASE_REVERTING;
	r->code = code;
	str_copy_cut(r->detail, sizeof r->detail, detail);
	r->entry->claim.state = r->before;
	if (submit_claim(r, STORE_OP_PUT_CLAIM, reverted) < 0)
		reverted(0, NULL, r);
}

static void dropped(int result, const struct error *err, void *userdata)
{
	struct release *r = userdata;

	if (result < 0) {
		try_again_later(r, error_text(err));
		return;
	}
	fault_point("release.dropped");
	finish(r);
}

static void drop(struct release *r)
{
	r->stage = RELEASE_DROPPING;
	if (submit_claim(r, STORE_OP_DROP_CLAIM, dropped) < 0)
		try_again_later(r, "the claims database takes nothing now");
}

static const char *holder_text(const struct card_reply *reply)
{
	static char text[NODE_TEXT_MAX]; /* the loop is one thread */

	snprintf(text, sizeof text, "the VF is open%s%s", reply->holder[0] ? ": " : "",
		 reply->holder);
	return text;
}

static void reset_done(const struct card_reply *reply, void *userdata)
{
	struct release *r = userdata;
	struct node *n = r->node;
	struct claim *claim = &r->entry->claim;
	struct card *c = node_find_card(n, claim->card);
	struct vf *v;

	fault_point("release.written");
	cards_write_end(n, c, claim->vf);
	v = node_find_vf(n, claim->vf, NULL);
	snapshot_request(n);
	if (reply->result == 0 || reply->step == CARD_STEP_CHANGED ||
	    cards_is_gone(reply->result)) {
		if (reply->result == 0 && v)
			cards_observe_vf(n, c, v, 0, PLACEMENT_NONE);
		drop(r);
	} else if (reply->step == CARD_STEP_SCAN && reply->n_vfs > 0 &&
		   reply->vfs[0].open == CARD_OPEN_YES) {
		revert(r, -E_IN_USE, holder_text(reply));
	} else if (reply->result == -EPERM && reply->scan_partial) {
		revert(r, -E_IN_USE,
		       "the driver says that the VF is open, by a process that cannot be looked "
		       "into");
	} else if (reply->result == -EROFS) {
		revert(r, -E_SYSFS_READ_ONLY, "sysfs is read-only where berthd runs");
	} else {
		reconcile_count_failure(n, "release");
		if (reply->result == -E_DRIVER_STUCK)
			tell(r, RELEASE_END_FAILED, -E_DRIVER_STUCK, reply->text, NULL);
		try_again_later(r, reply->text);
	}
}

/* Read, and neither free nor what the claim left there. The card's helper looks again before it
 * writes. */
static bool is_not_ours(const struct vf *v, const struct claim *claim)
{
	return v->usable && v->known && v->type_id != claim->type_id;
}

static void reset(struct release *r)
{
	struct claim *claim = &r->entry->claim;
	struct node *n = r->node;
	struct card *c = NULL;
	struct vf *v = node_find_vf(n, claim->vf, &c);
	struct card_request request = {
		.op = CARD_OP_RELEASE, .n_vfs = 1, .vfs = { claim->vf }, .type_id = claim->type_id
	};

	r->stage = RELEASE_RESETTING;
	if (!v || !v->listed || !c->client || is_not_ours(v, claim)) {
		drop(r); /* there is nothing (of ours) left to write to */
		return;
	}
	if (v->excluded) {
		try_again_later(r, "excluded by the configuration, not written");
		return;
	}
	if (c->stuck) {
		try_again_later(r, card_client_reason(c->client));
		return;
	}
	cards_write_begin(n, c, v);
	if (card_client_submit(c->client, &request, reset_done, r) < 0) {
		cards_write_end(n, c, claim->vf);
		try_again_later(r, card_client_reason(c->client));
	}
}

static void marked(int result, const struct error *err, void *userdata)
{
	struct release *r = userdata;

	if (result < 0) {
		r->entry->claim.state = r->before;
		fail(r, -E_STORE_UNAVAILABLE, error_text(err));
		return;
	}
	fault_point("release.marked");
	r->marked = true;
	node_changed(r->node);
	if (r->late)
		tell_pending(r);
	reset(r);
}

static void mark(struct release *r)
{
	r->stage = RELEASE_MARKING;
	r->entry->claim.state = CLAIM_STATE_RELEASING;
	fault_point("release.before-mark");
	if (submit_claim(r, STORE_OP_PUT_CLAIM, marked) < 0) {
		r->entry->claim.state = r->before;
		fail(r, -E_STORE_UNAVAILABLE, "the claims database takes nothing now");
	}
}

static void scanned(const struct card_reply *reply, void *userdata)
{
	struct release *r = userdata;
	enum card_open open = reply->n_vfs > 0 ? reply->vfs[0].open : CARD_OPEN_UNKNOWN;

	if (reply->result == -E_DRIVER_STUCK) {
		fail(r, -E_DRIVER_STUCK, reply->text);
	} else if (open == CARD_OPEN_YES) {
		fail(r, -E_IN_USE, holder_text(reply));
	} else if (open == CARD_OPEN_UNKNOWN && !cards_is_gone(reply->result)) {
		char detail[NODE_TEXT_MAX];

		snprintf(detail, sizeof detail, "it cannot be told whether the VF is open: %.120s",
			 reply->text);
		fail(r, -E_IN_USE, detail);
	} else {
		mark(r);
	}
}

static void scan(struct release *r)
{
	struct claim *claim = &r->entry->claim;
	struct card *c = NULL;
	struct vf *v = node_find_vf(r->node, claim->vf, &c);
	struct card_request request = { .op = CARD_OP_SCAN, .n_vfs = 1, .vfs = { claim->vf } };

	r->stage = RELEASE_SCANNING;
	if (!v || !v->listed || !c->client || (is_not_ours(v, claim) && !r->must_be_closed)) {
		mark(r);
		return;
	}
	if (v->excluded && !is_not_ours(v, claim)) {
		fail(r, -E_FORBIDDEN,
		     "the VF is excluded by the configuration: it is never written");
		return;
	}
	if (card_client_submit(c->client, &request, scanned, r) < 0)
		fail(r, -E_DRIVER_STUCK, card_client_reason(c->client));
}

/* --- Requests ------------------------------------------------------------------------------- */

static int add_waiter(struct release *r, release_done_fn done, void *userdata)
{
	if (array_reserve(r->waiters, r->n_waiters, r->waiters_cap) < 0)
		return -ENOMEM;
	r->waiters[r->n_waiters++] = (struct release_waiter){ done, userdata };
	return 0;
}

static void answer(release_done_fn done, void *userdata, enum release_end end, int code,
		   const char *detail, const struct claim *claim)
{
	struct release_result result = { end, code, detail, claim };

	if (done)
		done(&result, userdata);
}

/* Joins a release under way. */
static void join(struct release *r, release_done_fn done, void *userdata)
{
	if (r->marked && r->late) {
		answer(done, userdata, RELEASE_END_PENDING, 0, "", &r->entry->claim);
		if (r->stage == RELEASE_WAITING)
			arm(r, 0);
	} else if (add_waiter(r, done, userdata) < 0) {
		answer(done, userdata, RELEASE_END_FAILED, -E_INTERNAL, "out of memory", NULL);
	}
}

static void start(struct node *n, struct claim_entry *entry, bool must_be_closed,
		  release_done_fn done, void *userdata)
{
	struct release *r = calloc(1, sizeof *r);

	if (!r || add_waiter(r, done, userdata) < 0) {
		free(r);
		answer(done, userdata, RELEASE_END_FAILED, -E_INTERNAL, "out of memory", NULL);
		return;
	}
	r->node = n;
	r->entry = entry;
	r->before = entry->claim.state;
	r->must_be_closed = must_be_closed;
	r->backoff_usec = RETRY_FIRST_USEC;
	entry->release = r;
	node_changed(n);
	if (entry->claim.state == CLAIM_STATE_RELEASING) {
		r->before = CLAIM_STATE_BOUND;
		r->marked = r->late = true;
		reset(r);
		return;
	}
	arm(r, PATIENCE_USEC);
	scan(r);
}

void release_start(struct node *n, struct claim_entry *entry, release_done_fn done, void *userdata)
{
	if (entry->release)
		join(entry->release, done, userdata);
	else
		start(n, entry, false, done, userdata);
}

void release_lost(struct node *n, struct claim_entry *entry, release_done_fn done, void *userdata)
{
	start(n, entry, true, done, userdata);
}

struct release *release_free(struct release *r)
{
	if (!r)
		return NULL;
	sd_event_source_disable_unref(r->timer);
	free(r->waiters);
	free(r);
	return NULL;
}

struct deferred_release {
	struct node *node;
	char name[CLAIM_NAME_MAX];
	struct claimant who;
	release_done_fn done;
	void *userdata;
};

static void claim_ended(void *userdata)
{
	struct deferred_release *d = userdata;

	release_submit(d->node, d->name, &d->who, d->done, d->userdata);
	free(d);
}

/* A claim of that name is on its way: it is released when it has ended. */
static void submit_after_claim(struct node *n, const char *name, const struct claimant *who,
			       release_done_fn done, void *userdata)
{
	struct deferred_release *d = calloc(1, sizeof *d);

	if (d) {
		*d = (struct deferred_release){
			.node = n, .who = *who, .done = done, .userdata = userdata
		};
		str_copy_cut(d->name, sizeof d->name, name);
		if (allocate_when_ended(n, name, claim_ended, d) == 0)
			return;
	}
	free(d);
	answer(done, userdata, RELEASE_END_FAILED, -E_INTERNAL, "out of memory", NULL);
}

const char *release_owner_sentence(uint32_t uid, const char *peer, const char *verb,
				   char ret[static NODE_TEXT_MAX])
{
	char owner[80];

	snprintf(ret, NODE_TEXT_MAX,
		 "the claim belongs to %s: only that one, root on this host and certificates in "
		 "tls.admins may %s it",
		 claimant_describe(uid, peer, owner, sizeof owner), verb);
	return ret;
}

void release_submit(struct node *n, const char *name, const struct claimant *who,
		    release_done_fn done, void *userdata)
{
	struct claim_entry *entry;
	char detail[NODE_TEXT_MAX];

	if (claim_store_get_state(n->store) != STORE_STATE_READY || n->stage != NODE_READY) {
		bool starting = claim_store_get_state(n->store) != STORE_STATE_UNREADABLE &&
				n->stage == NODE_STARTING;

		answer(done, userdata, RELEASE_END_FAILED,
		       starting ? -E_NOT_READY : -E_STORE_UNAVAILABLE, node_not_ready_reason(n),
		       NULL);
		return;
	}
	if (allocate_is_pending(n, name)) {
		submit_after_claim(n, name, who, done, userdata);
		return;
	}
	entry = node_find_claim(n, name);
	if (!entry) {
		answer(done, userdata, RELEASE_END_NOTHING, 0, "", NULL);
		return;
	}
	if (n->config->claims != CONFIG_CLAIMS_SHARED &&
	    !claimant_owns(who, entry->claim.uid, entry->claim.peer)) {
		answer(done, userdata, RELEASE_END_FAILED, -E_FORBIDDEN,
		       release_owner_sentence(entry->claim.uid, entry->claim.peer, "release",
					      detail),
		       NULL);
		return;
	}
	release_start(n, entry, done, userdata);
}

void release_retry_all(struct node *n)
{
	for (unsigned i = 0; i < n->n_claims; i++) {
		struct release *r = n->claims[i]->release;

		if (r && r->stage == RELEASE_WAITING)
			arm(r, 0);
	}
}
