/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/reconcile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/allocate.h"
#include "daemon/cards.h"
#include "daemon/node-metrics.h"
#include "daemon/process.h"
#include "daemon/release.h"
#include "daemon/snapshot.h"

#define SOON_FIRST_USEC USEC_PER_SEC
#define SOON_MAX_USEC	(30 * USEC_PER_SEC)
#define IDLE_PASSES	2 /* with the holder gone and the VF not open */

struct reconcile {
	uint64_t next_usec; /* when the timer fires */
	uint64_t soon_usec; /* delay of the next pass after a failure */
	bool failed;	    /* since the last pass began */
	unsigned n_failures;
	struct reconcile_failure failures[RECONCILE_STAGES_MAX];
};

struct reconcile *reconcile_free(struct reconcile *r)
{
	free(r);
	return NULL;
}

static void arm_at(struct node *n, uint64_t at)
{
	if (at >= n->reconcile->next_usec)
		return;
	n->reconcile->next_usec = at;
	sd_event_source_set_time(n->reconcile_timer, at);
	sd_event_source_set_enabled(n->reconcile_timer, SD_EVENT_ONESHOT);
}

void reconcile_soon(struct node *n)
{
	if (!n->reconcile)
		return;
	arm_at(n, clock_now_usec() + n->reconcile->soon_usec);
	n->reconcile->failed = true;
}

void reconcile_count_failure(struct node *n, const char *stage)
{
	struct reconcile *r = n->reconcile;
	uint64_t now = clock_now_usec();
	unsigned i = 0;

	node_metrics_count_reconcile_failure(n, stage);
	if (!r)
		return;
	while (i < r->n_failures && strcmp(r->failures[i].stage, stage) != 0)
		i++;
	if (i == RECONCILE_STAGES_MAX)
		return;
	if (i == r->n_failures)
		r->failures[r->n_failures++] = (struct reconcile_failure){ .stage = stage };
	/* A pass has gone by without one: what fails now is something new. */
	if (now - r->failures[i].last_usec > 2 * n->config->reconcile_interval_usec)
		r->failures[i].count = 0;
	r->failures[i].count++;
	r->failures[i].last_usec = now;
}

unsigned reconcile_failures(const struct node *n,
			    struct reconcile_failure ret[static RECONCILE_STAGES_MAX])
{
	if (!n->reconcile)
		return 0;
	memcpy(ret, n->reconcile->failures, sizeof n->reconcile->failures);
	return n->reconcile->n_failures;
}

/* --- Undo records ---------------------------------------------------------------------------- */

static void undo_dropped(int result, const struct error *err, void *userdata)
{
	struct node_job *job = userdata;
	struct node *n = job->node;
	struct undo *undo = node_find_undo(n, job->vf);
	char vf[PCI_ADDR_MAX];

	node_job_free(job);
	if (!undo)
		return;
	undo->busy = false;
	if (result < 0) {
		log_error("claims database: undo record cannot be removed, retrying vf=%s: %s",
			  pci_addr_format(undo->record.vf, vf), error_text(err));
		reconcile_count_failure(n, "undo");
		reconcile_soon(n);
		return;
	}
	log_notice("vf: undone and free again vf=%s", pci_addr_format(undo->record.vf, vf));
	node_remove_undo(n, undo);
	snapshot_request(n);
	allocate_capacity_changed(n);
}

static void drop_undo(struct node *n, struct undo *undo)
{
	struct node_job *job = node_job_new(n, NULL, undo->record.vf);
	struct store_op *ops = calloc(2, sizeof *ops);
	unsigned count = 0;

	if (job && ops) {
		if (undo->claim_name[0]) {
			ops[count].kind = STORE_OP_DROP_CLAIM;
			memcpy(ops[count].claim.name, undo->claim_name, sizeof undo->claim_name);
			count++;
		}
		ops[count].kind = STORE_OP_DROP_UNDO;
		ops[count++].undo = undo->record;
		if (claim_store_submit(n->store, ops, count, undo_dropped, job) == 0) {
			undo->busy = true;
			job = NULL;
		}
	}
	free(ops);
	if (job)
		node_job_free(job);
}

static void undo_written(const struct card_reply *reply, void *userdata)
{
	struct node_job *job = userdata;
	struct node *n = job->node;
	struct undo *undo = node_find_undo(n, job->vf);
	struct card *c = job->card;
	struct vf *v;
	char text[PCI_ADDR_MAX];

	cards_write_end(n, c, job->vf);
	v = node_find_vf(n, job->vf, NULL);
	node_job_free(job);
	if (!undo)
		return; /* the database was loaded anew meanwhile and has no such record */
	fault_point("undo.written");
	undo->busy = false;
	if (reply->result == 0 || reply->step == CARD_STEP_CHANGED) {
		if (reply->result == 0 && v)
			cards_observe_vf(n, c, v, 0, PLACEMENT_NONE);
		undo->clean = true;
		snapshot_request(n);
		drop_undo(n, undo);
		return;
	}
	if (strcmp(undo->said, reply->text) != 0)
		log_warning("vf: cannot be reset, retrying vf=%s: %s",
			    pci_addr_format(undo->record.vf, text), reply->text);
	str_copy_cut(undo->said, sizeof undo->said, reply->text);
	reconcile_count_failure(n, "undo");
	reconcile_soon(n);
}

static void try_undo(struct node *n, struct undo *undo)
{
	struct card *c = NULL;
	struct vf *v = node_find_vf(n, undo->record.vf, &c);
	struct card_request request = { .op = CARD_OP_RELEASE,
					.n_vfs = 1,
					.vfs = { undo->record.vf },
					.type_id = undo->record.type_id };
	struct node_job *job;

	if (undo->busy)
		return;
	if (undo->clean) {
		drop_undo(n, undo);
		return;
	}
	if (!v || !v->listed || c->stuck || v->excluded || !c->client)
		return; /* tried again when it is back */
	job = node_job_new(n, c, undo->record.vf);
	if (!job)
		return;
	cards_write_begin(n, c, v);
	if (card_client_submit(c->client, &request, undo_written, job) < 0) {
		cards_write_end(n, c, undo->record.vf);
		node_job_free(job);
		return;
	}
	undo->busy = true;
}

/* --- VFs that are configured but nobody's ----------------------------------------------------- */

static bool is_unclaimed(const struct vf *v)
{
	return v->usable && v->known && v->type_id != 0 && v->hold == VF_HOLD_NONE &&
	       v->busy == 0 && !v->adoptable && !v->excluded;
}

static void set_unclaimed_open(struct node *n, struct vf *v, bool open, const char *holder)
{
	char text[PCI_ADDR_MAX];

	if (v->unclaimed_open == open)
		return;
	v->unclaimed_open = open;
	pci_addr_format(v->address, text);
	if (open)
		log_notice("vf: configured, nobody's, and open: left alone vf=%s type=%u "
			   "holder=\"%s\"",
			   text, v->type_id, holder);
	else
		log_notice("vf: configured, nobody's, and not open any more vf=%s type=%u", text,
			   v->type_id);
	node_changed(n);
}

static void unclaimed_reset(const struct card_reply *reply, void *userdata)
{
	struct node_job *job = userdata;
	struct node *n = job->node;
	struct card *c = job->card;
	struct vf *v;
	char text[PCI_ADDR_MAX];

	cards_write_end(n, c, job->vf);
	v = node_find_vf(n, job->vf, NULL);
	pci_addr_format(job->vf, text);
	node_job_free(job);
	if (v && v->hold == VF_HOLD_RESET)
		v->hold = VF_HOLD_NONE;
	snapshot_request(n);
	if (reply->result == 0) {
		log_notice("vf: was configured and nobody's, reset vf=%s", text);
		if (v)
			cards_observe_vf(n, c, v, 0, PLACEMENT_NONE);
		allocate_capacity_changed(n);
	} else if (reply->step == CARD_STEP_SCAN && v) {
		v->unclaimed_since_usec = 0;
		if (reply->n_vfs > 0 && reply->vfs[0].open == CARD_OPEN_YES)
			set_unclaimed_open(n, v, true, reply->holder);
	} else if (reply->step != CARD_STEP_CHANGED && !cards_is_gone(reply->result)) {
		if (v && v->reset_error != reply->result) {
			v->reset_error = reply->result;
			log_warning(
				"vf: configured and nobody's, cannot be reset, retrying vf=%s: %s",
				text, reply->text);
		}
		reconcile_count_failure(n, "reset_unclaimed_vfs");
	}
	node_changed(n);
}

static void reset_unclaimed(struct node *n, struct card *c, struct vf *v)
{
	struct card_request request = {
		.op = CARD_OP_RELEASE, .n_vfs = 1, .vfs = { v->address }, .type_id = v->type_id
	};
	struct node_job *job = node_job_new(n, c, v->address);

	if (!job)
		return;
	v->hold = VF_HOLD_RESET;
	cards_write_begin(n, c, v);
	if (card_client_submit(c->client, &request, unclaimed_reset, job) < 0) {
		cards_write_end(n, c, v->address);
		v->hold = VF_HOLD_NONE;
		node_job_free(job);
	}
}

static void judge_unclaimed(struct node *n, struct card *c, struct vf *v, enum card_open open,
			    const char *holder)
{
	uint64_t now = clock_now_usec();

	switch (open) {
	case CARD_OPEN_UNKNOWN:
		reconcile_count_failure(n, "open_scan");
		return;
	case CARD_OPEN_YES:
		v->unclaimed_since_usec = 0;
		reconcile_count_failure(n, "unclaimed_vf_open");
		set_unclaimed_open(n, v, true, holder);
		return;
	case CARD_OPEN_NO:
		break;
	}
	set_unclaimed_open(n, v, false, "");
	if (v->unclaimed_since_usec == 0)
		v->unclaimed_since_usec = now;
	if (n->config->unclaimed_vfs != CONFIG_UNCLAIMED_RESET)
		return;
	if (now >= v->unclaimed_since_usec + n->config->unclaimed_grace_usec)
		reset_unclaimed(n, c, v);
	else
		arm_at(n, v->unclaimed_since_usec + n->config->unclaimed_grace_usec);
}

/* A VM may go on without the process that the claim names. */
static void set_held_open(struct claim_entry *entry, bool open)
{
	if (open && !entry->held_open)
		log_notice("claim: its holder is gone but its VF is open: left alone claim=%s "
			   "pid=%u",
			   entry->claim.name, entry->claim.pid);
	entry->held_open = open;
}

static void judge_idle_claim(struct node *n, struct claim_entry *entry, enum card_open open)
{
	set_held_open(entry, open == CARD_OPEN_YES);
	switch (open) {
	case CARD_OPEN_UNKNOWN:
		reconcile_count_failure(n, "open_scan");
		entry->idle_passes = 0;
		return;
	case CARD_OPEN_YES:
		reconcile_count_failure(n, "holder_gone_vf_open");
		entry->idle_passes = 0;
		return;
	case CARD_OPEN_NO:
		break;
	}
	if (++entry->idle_passes < IDLE_PASSES)
		return;
	log_notice("claim: its holder is gone and the VF is not open, releasing claim=%s pid=%u",
		   entry->claim.name, entry->claim.pid);
	release_start(n, entry, NULL, NULL);
}

static bool holder_is_gone(const struct node *n, const struct claim_entry *entry)
{
	uint64_t start;
	int r;

	if (entry->claim.pid == 0 || entry->release)
		return false;
	r = process_start_time(n->config->proc_root, entry->claim.pid, &start);
	return r == -ESRCH || (r == 0 && start != entry->claim.pid_start);
}

static void say_open_scan(struct card *c, const struct card_reply *reply)
{
	const char *text = reply->result < 0 ? reply->text : "";
	char bdf[PCI_ADDR_MAX];

	for (unsigned i = 0; i < reply->n_vfs; i++)
		if (reply->vfs[i].open == CARD_OPEN_UNKNOWN)
			text = reply->text;
	if (strcmp(c->scan_said, text) == 0)
		return;
	pci_addr_format(c->address, bdf);
	if (*text)
		log_warning("reconcile: cannot tell which VFs are open, leaving them alone, "
			    "retrying card=%s: %s",
			    bdf, text);
	else
		log_notice("reconcile: can tell again which VFs are open card=%s", bdf);
	str_copy_cut(c->scan_said, sizeof c->scan_said, text);
}

static void pass_scanned(const struct card_reply *reply, void *userdata)
{
	struct node_job *job = userdata;
	struct node *n = job->node;
	struct card *c = job->card;

	node_job_free(job);
	say_open_scan(c, reply);
	if (reply->result < 0 && reply->n_vfs == 0)
		reconcile_count_failure(n, "open_scan");
	for (unsigned i = 0; i < reply->n_vfs; i++) {
		struct vf *v = node_find_vf(n, reply->vfs[i].address, NULL);

		if (!v)
			continue;
		if (is_unclaimed(v))
			judge_unclaimed(n, c, v, reply->vfs[i].open, i == 0 ? reply->holder : "");
		else if (v->claim && holder_is_gone(n, v->claim))
			judge_idle_claim(n, v->claim, reply->vfs[i].open);
	}
}

/* One scan of a card's VFs whose fate depends on whether they are open. */
static void scan_card(struct node *n, struct card *c)
{
	struct card_request request = { .op = CARD_OP_SCAN };
	struct node_job *job;

	if (!c->client || c->stuck || !c->present)
		return;
	for (unsigned i = 0; i < c->n_vfs && request.n_vfs < CARD_VFS_MAX; i++) {
		struct vf *v = &c->vfs[i];

		if (is_unclaimed(v) || (v->claim && holder_is_gone(n, v->claim)))
			request.vfs[request.n_vfs++] = v->address;
		else if (v->claim)
			v->claim->idle_passes = 0;
	}
	if (request.n_vfs == 0)
		return;
	job = node_job_new(n, c, c->address);
	if (!job)
		return;
	if (card_client_submit(c->client, &request, pass_scanned, job) < 0)
		node_job_free(job);
}

/* --- The pass -------------------------------------------------------------------------------- */

void reconcile_pass(struct node *n)
{
	node_request_scan(n);
	if (!node_is_ready(n)) {
		if (claim_store_get_state(n->store) == STORE_STATE_UNREADABLE)
			reconcile_count_failure(n, "store");
		return;
	}
	/* Dropping an undo ends later: the array does not change below this loop. */
	for (unsigned i = 0; i < n->n_undos; i++)
		try_undo(n, n->undos[i]);
	release_retry_all(n);
	for (unsigned i = 0; i < n->n_claims; i++)
		if (n->claims[i]->claim.state == CLAIM_STATE_RELEASING && !n->claims[i]->release)
			release_start(n, n->claims[i], NULL, NULL);
	for (unsigned i = 0; i < n->n_cards; i++)
		scan_card(n, n->cards[i]);
	snapshot_request(n);
}

static int timer_fired(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct node *n = userdata;
	struct reconcile *r = n->reconcile;

	(void)source;
	(void)usec;
	r->soon_usec = r->failed ? MIN(r->soon_usec * 2, SOON_MAX_USEC) : SOON_FIRST_USEC;
	r->failed = false;
	r->next_usec = UINT64_MAX;
	arm_at(n, clock_now_usec() + n->config->reconcile_interval_usec);
	reconcile_pass(n);
	return 0;
}

int reconcile_start(struct node *n, struct error *err)
{
	int r;

	n->reconcile = calloc(1, sizeof *n->reconcile);
	if (!n->reconcile)
		return error_set(err, ENOMEM, "out of memory");
	n->reconcile->soon_usec = SOON_FIRST_USEC;
	n->reconcile->next_usec = clock_now_usec() + n->config->reconcile_interval_usec;
	r = sd_event_add_time(n->event, &n->reconcile_timer, CLOCK_MONOTONIC,
			      n->reconcile->next_usec, 0, timer_fired, n);
	if (r < 0)
		return error_set_errno(err, r, "reconcile timer");
	return 0;
}

void reconcile_config_changed(struct node *n, const struct config *before)
{
	bool resets = before->unclaimed_vfs != CONFIG_UNCLAIMED_RESET &&
		      n->config->unclaimed_vfs == CONFIG_UNCLAIMED_RESET;

	/* Those who switch resets on have the grace to think better of it. */
	for (unsigned i = 0; i < n->n_cards && resets; i++)
		for (unsigned k = 0; k < n->cards[i]->n_vfs; k++)
			n->cards[i]->vfs[k].unclaimed_since_usec = 0;
	/* A pass arms the timer by the new intervals. */
	if (n->stage == NODE_READY)
		arm_at(n, clock_now_usec());
}
