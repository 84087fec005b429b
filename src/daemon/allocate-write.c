/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/allocate-internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/cards.h"
#include "daemon/node-metrics.h"
#include "daemon/reconcile.h"
#include "daemon/release.h"
#include "daemon/snapshot.h"
#include "host/console-tail.h"
#include "model/outcome.h"

static const char *vf_text(const struct allocation *a)
{
	static char text[PCI_ADDR_MAX]; /* the loop is one thread */

	return pci_addr_format(a->claim.vf, text);
}

/* --- Taking the intent off the disk ---------------------------------------------------------- */

static void dropped(int result, const struct error *err, void *userdata)
{
	struct allocation *a = userdata;
	struct node *n = a->node;
	struct card *c = a->card;

	if (result < 0) {
		/* The record is still there: the VF stays in hand until it is gone. */
		struct undo_record record = { a->claim.vf, a->claim.card, a->claim.type_id };
		struct undo *undo = NULL;

		log_error("claims database: intent cannot be removed, retrying claim=%s: %s",
			  a->claim.name, error_text(err));
		allocation_unhold(a);
		if (node_add_undo(n, &record, &undo) == 0) {
			undo->clean = !a->make_undo;
			memcpy(undo->claim_name, a->claim.name, sizeof undo->claim_name);
		}
		a->retry = false;
		if (a->code == 0)
			a->code = -E_STORE_UNAVAILABLE;
		reconcile_soon(n);
	} else if (a->make_undo) {
		struct undo *undo = node_find_undo(n, a->claim.vf);

		if (undo)
			undo->stored = true;
		allocation_unhold(a);
		if (undo)
			node_relink(n);
	} else {
		allocation_unhold(a);
	}
	a->make_undo = false;
	allocation_write_next(n, c);
	if (a->retry && !a->abandoned) {
		a->stage = ALLOCATION_WAITING;
		snapshot_request(n);
		allocate_plan(n);
		return;
	}
	if (a->code == 0)
		a->code = -E_CLIENT_GONE;
	allocation_end(a, a->code, a->detail, NULL, NULL, 0);
	allocate_plan(n);
}

void allocation_drop(struct allocation *a, int code, const char *detail)
{
	struct store_op *op = calloc(1, sizeof *op);
	struct error err = ERROR_INIT;
	struct undo *undo;
	int r;

	a->stage = ALLOCATION_DROPPING;
	a->code = code;
	a->retry = code == 0;
	str_copy_cut(a->detail, sizeof a->detail, detail);
	if (!op) {
		error_set(&err, ENOMEM, "out of memory");
		dropped(-ENOMEM, &err, a);
		return;
	}
	op->kind = STORE_OP_DROP_CLAIM;
	op->claim = a->claim;
	if (a->make_undo) {
		op->kind = STORE_OP_PUT_UNDO;
		op->undo = (struct undo_record){ a->claim.vf, a->claim.card, a->claim.type_id };
		if (node_add_undo(a->node, &op->undo, &undo) < 0)
			log_error("claim: out of memory for an undo record vf=%s", vf_text(a));
	}
	r = claim_store_submit(a->node->store, op, 1, dropped, a);
	free(op);
	if (r < 0) {
		error_set(&err, r, "the claims database takes nothing now");
		dropped(r, &err, a);
	}
}

/* --- Undoing after a later step failed -------------------------------------------------------- */

static void undone(const struct card_reply *reply, void *userdata)
{
	struct allocation *a = userdata;
	struct card *c = a->card;
	struct vf *v;

	cards_write_end(a->node, c, a->claim.vf);
	v = node_find_vf(a->node, a->claim.vf, NULL);
	if (reply->result == 0) {
		if (v)
			cards_observe_vf(a->node, c, v, 0, PLACEMENT_NONE);
	} else if (!cards_is_gone(reply->result)) {
		log_warning("claim: VF cannot be reset, retrying later vf=%s: %s", vf_text(a),
			    reply->text);
		a->make_undo = true;
		reconcile_soon(a->node);
	}
	snapshot_request(a->node);
	allocation_drop(a, a->code, a->detail);
}

/* Writes 0 to the VF, then drops the intent and ends with code. */
static void undo(struct allocation *a, int code, const char *detail)
{
	struct card_request request = {
		.op = CARD_OP_RELEASE,
		.n_vfs = 1,
		.vfs = { a->claim.vf },
		.type_id = a->claim.type_id,
	};
	struct vf *v = node_find_vf(a->node, a->claim.vf, NULL);

	a->stage = ALLOCATION_UNDOING;
	a->code = code;
	str_copy_cut(a->detail, sizeof a->detail, detail);
	if (v)
		cards_write_begin(a->node, a->card, v);
	else
		a->card->writes++;
	if (card_client_submit(a->card->client, &request, undone, a) < 0) {
		cards_write_end(a->node, a->card, a->claim.vf);
		a->make_undo = true;
		allocation_drop(a, code, detail);
	}
}

/* --- Binding --------------------------------------------------------------------------------- */

static void publish_claim(struct node *n, const struct claim *c)
{
	char vf[PCI_ADDR_MAX], gpu[PCI_ADDR_MAX];
	json_t *data = json_pack("{s:s,s:s,s:s,s:s,s:s}", "name", c->name, "state",
				 claim_state_name(c->state), "profile", c->profile, "vf",
				 pci_addr_format(c->vf, vf), "gpu", pci_addr_format(c->card, gpu));

	if (data && http_events_publish(n->events, "claim", data) < 0)
		log_debug("events: a claim event was not published, ignoring");
}

static void bound(int result, const struct error *err, void *userdata)
{
	struct allocation *a = userdata;
	struct node *n = a->node;
	struct claim_entry *entry = NULL;
	struct vf *v;

	if (result < 0) {
		char detail[NODE_TEXT_MAX];

		snprintf(detail, sizeof detail, "the claim could not be stored: %.150s",
			 error_text(err));
		log_error("claims database: %s claim=%s", detail, a->claim.name);
		undo(a, -E_STORE_UNAVAILABLE, detail);
		return;
	}
	fault_point("claim.bound");
	if (a->abandoned) {
		undo(a, -E_CLIENT_GONE, "the client hung up");
		return;
	}
	if (node_add_claim(n, &a->claim, &entry) < 0) {
		undo(a, -E_INTERNAL, "out of memory");
		return;
	}
	policy_demand_add(&n->demand, (uint16_t)a->claim.placement_size);
	v = node_find_vf(n, a->claim.vf, NULL);
	if (v) {
		v->hold = VF_HOLD_CLAIM;
		v->claim = entry;
		v->planned_type = 0;
	}
	cards_judge_claims(n);
	publish_claim(n, &a->claim);
	allocation_end(a, 0, "", entry, NULL, 0);
}

static void bind_claim(struct allocation *a, const struct card_reply *reply)
{
	struct store_op *op = calloc(1, sizeof *op);
	uint16_t id = reply->vfs[0].placement_id;

	if (id != PLACEMENT_NONE)
		a->claim.placement_id = id;
	else if (!reply->steered)
		a->claim.placement_id = -1;
	clock_rfc3339_now(a->claim.assigned_at);
	a->claim.state = CLAIM_STATE_BOUND;
	a->stage = ALLOCATION_BINDING;
	if (op) {
		op->kind = STORE_OP_PUT_CLAIM;
		op->claim = a->claim;
	}
	if (!op || claim_store_submit(a->node->store, op, 1, bound, a) < 0)
		undo(a, -E_STORE_UNAVAILABLE, "the claims database takes nothing now");
	free(op);
}

/* --- Writing --------------------------------------------------------------------------------- */

static void mark_tried(struct allocation *a, bool whole_card)
{
	if (a->n_tried_vfs < ALLOCATION_TRIED_MAX)
		a->tried_vfs[a->n_tried_vfs++] = a->claim.vf;
	if ((whole_card || ++a->vf_tries >= ALLOCATION_VF_TRIES) &&
	    a->n_tried_cards < INVENTORY_CARDS_MAX) {
		a->tried_cards[a->n_tried_cards++] = a->claim.card;
		a->vf_tries = 0;
	}
}

/* What a failed write means for the claim (design: EPERM another VF, EIO another card, EROFS none).
 */
static void configure_failed(struct allocation *a, const struct card_reply *reply)
{
	struct node *n = a->node;
	struct card *c = a->card;

	str_copy_cut(a->refusal, sizeof a->refusal, reply->text);
	log_notice("claim: the driver refused claim=%s vf=%s type=%u: %s", a->claim.name,
		   vf_text(a), a->claim.type_id, reply->text);
	a->make_undo = reply->step != CARD_STEP_BEFORE && !reply->undone &&
		       !cards_is_gone(reply->result);
	if (a->make_undo)
		reconcile_soon(n);
	if (cards_is_gone(reply->result))
		node_request_scan(n);
	if (reply->step == CARD_STEP_BEFORE)
		node_read_card(n, c);
	if (reply->result == -E_DRIVER_STUCK) {
		allocation_drop(a, -E_DRIVER_STUCK, reply->text);
	} else if (reply->result == -EROFS) {
		allocation_drop(a, -E_SYSFS_READ_ONLY, "sysfs is read-only where berthd runs");
	} else if (a->abandoned) {
		allocation_drop(a, -E_CLIENT_GONE, "the client hung up");
	} else {
		bool other_vf = reply->step == CARD_STEP_BEFORE || reply->result == -EPERM ||
				reply->result == -EINVAL || cards_is_gone(reply->result);

		mark_tried(a, !other_vf);
		if (!other_vf)
			a->arrived_seq = node_next_seq(
				n); /* the answer in use was wrong about this card */
		allocation_drop(a, 0, "");
	}
	allocation_replan_card(n, c);
}

static void configured(const struct card_reply *reply, void *userdata)
{
	struct allocation *a = userdata;
	struct node *n = a->node;
	struct card *c = a->card;
	struct vf *v;
	bool as_planned;

	fault_point("claim.configured");
	cards_write_end(n, c, a->claim.vf);
	c->configuring = NULL;
	snapshot_request(n);
	if (reply->result < 0) {
		v = node_find_vf(n, a->claim.vf, NULL);
		if (v && reply->undone)
			cards_observe_vf(n, c, v, 0, PLACEMENT_NONE);
		configure_failed(a, reply);
		allocation_write_next(n, c);
		return;
	}
	if (reply->steer_error)
		node_metrics_count_steer_failure(n);
	v = node_find_vf(n, a->claim.vf, NULL);
	as_planned = a->span.id == PLACEMENT_NONE || reply->vfs[0].placement_id == a->span.id ||
		     reply->steered;
	if (v) {
		uint16_t id = reply->vfs[0].placement_id;

		if (id == PLACEMENT_NONE && reply->steered)
			id = a->span.id;
		cards_observe_vf(n, c, v, a->claim.type_id, id);
	}
	if (a->abandoned)
		undo(a, -E_CLIENT_GONE, "the client hung up");
	else
		bind_claim(a, reply);
	if (!as_planned)
		allocation_replan_card(n, c);
	allocation_write_next(n, c);
}

static void configure(struct allocation *a)
{
	struct card *c = a->card;
	struct vf *v = node_find_vf(a->node, a->claim.vf, NULL);
	bool before_570 = node_is_before_570(a->node);
	bool pin = before_570 && a->node->config->pin_placements == CONFIG_PINS_ALWAYS;
	bool steer = !before_570 && a->request.policy != POLICY_LEAST_LOADED;
	struct card_request request = {
		.op = CARD_OP_CONFIGURE,
		.n_vfs = 1,
		.vfs = { a->claim.vf },
		.type_id = a->claim.type_id,
		/* least_loaded leaves the placement to the driver, but before 570 nothing is
		 * reserved unless it is pinned. */
		.placement_id = pin || steer ? a->span.id : PLACEMENT_NONE,
		.pin = pin && a->span.id != PLACEMENT_NONE,
	};

	a->stage = ALLOCATION_CONFIGURING;
	/* Gone, or excluded by a reload since it was chosen. */
	if (!v || v->excluded) {
		allocation_drop(a, 0, "");
		return;
	}
	fault_point("claim.before-write");
	c->configuring = a;
	cards_write_begin(a->node, c, v);
	if (card_client_submit(c->client, &request, configured, a) < 0) {
		c->configuring = NULL;
		cards_write_end(a->node, c, a->claim.vf);
		/* Nothing was written: where the card hangs another one may do. */
		allocation_drop(a, c->stuck ? 0 : -E_DRIVER_STUCK, card_client_reason(c->client));
	}
}

void allocation_write_next(struct node *n, struct card *c)
{
	for (unsigned i = 0; c && !c->configuring && i < n->n_allocations; i++) {
		struct allocation *a = n->allocations[i];

		if (a->card != c || a->stage != ALLOCATION_QUEUED)
			continue;
		if (a->abandoned)
			allocation_drop(a, -E_CLIENT_GONE, "the client hung up");
		else
			configure(a);
	}
}

static void intent_stored(int result, const struct error *err, void *userdata)
{
	struct allocation *a = userdata;
	struct card *c = a->card;

	if (result < 0) {
		char detail[NODE_TEXT_MAX];

		snprintf(detail, sizeof detail, "the claim could not be stored: %.150s",
			 error_text(err));
		log_error("claims database: %s claim=%s", detail, a->claim.name);
		allocation_unhold(a);
		allocation_end(a, -E_STORE_UNAVAILABLE, detail, NULL, NULL, 0);
		return;
	}
	fault_point("claim.intent-stored");
	a->stage = ALLOCATION_QUEUED;
	allocation_write_next(a->node, c);
}

void allocation_store_intent(struct allocation *a)
{
	struct store_op *op = calloc(1, sizeof *op);
	int r = -ENOMEM;

	a->stage = ALLOCATION_INTENT;
	if (op) {
		op->kind = STORE_OP_PUT_CLAIM;
		op->claim = a->claim;
		r = claim_store_submit(a->node->store, op, 1, intent_stored, a);
	}
	free(op);
	if (r < 0) {
		allocation_unhold(a);
		allocation_end(a, -E_STORE_UNAVAILABLE, "the claims database takes nothing now",
			       NULL, NULL, 0);
	}
}

/* --- The older console log
 * ------------------------------------------------------------------------- */

struct archive_job {
	struct allocation *allocation;
	struct config *config; /* a reference, given up in the loop */
	char path[CLAIM_PATH_MAX];
	struct error err;
	int result;
};

static void archive_run(void *userdata)
{
	struct archive_job *job = userdata;

	job->result = console_archive((const char *const *)job->config->console_dirs,
				      job->config->n_console_dirs, job->path, &job->err);
}

static void archive_free(struct archive_job *job)
{
	if (!job)
		return;
	config_free(job->config);
	free(job);
}

static void archive_done(void *userdata)
{
	struct archive_job *job = userdata;
	struct allocation *a = job->allocation;
	char detail[NODE_TEXT_MAX];

	if (job->result < 0) {
		snprintf(detail, sizeof detail, "the old console log could not be archived: %.140s",
			 error_text(&job->err));
		log_error("claim: %s claim=%s", detail, a->claim.name);
	}
	if (a->abandoned || job->result < 0) {
		int code = a->abandoned ? -E_CLIENT_GONE : -E_ARCHIVE_FAILED;

		allocation_unhold(a);
		allocation_end(a, code, job->result < 0 ? detail : "the client hung up", NULL, NULL,
			       0);
	} else {
		allocation_store_intent(a);
	}
	archive_free(job);
}

static void archive_drop(void *userdata)
{
	archive_free(userdata); /* berthd is stopping; allocations are freed with the node */
}

void allocation_begin(struct allocation *a)
{
	struct archive_job *job;

	if (!a->claim.console_log[0]) {
		allocation_store_intent(a);
		return;
	}
	a->stage = ALLOCATION_ARCHIVING;
	job = calloc(1, sizeof *job);
	if (job) {
		job->allocation = a;
		job->config = config_ref(a->node->config);
		memcpy(job->path, a->claim.console_log, sizeof job->path);
		if (worker_submit(a->node->files, archive_run, archive_done, archive_drop, job) ==
		    0)
			return;
	}
	archive_free(job);
	allocation_unhold(a);
	allocation_end(a, -E_INTERNAL, "out of memory", NULL, NULL, 0);
}
