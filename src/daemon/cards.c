/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/cards.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/allocate.h"
#include "daemon/catalogue.h"
#include "daemon/drift.h"
#include "daemon/reconcile.h"
#include "daemon/snapshot.h"
#include "daemon/start.h"

#define POLL_USEC	 USEC_PER_SEC
#define CARD_NAME_FORMAT "NVIDIA GPU 10de:%04x"

uint16_t cards_type_size(const struct card *c, uint32_t type_id)
{
	const struct profile *p = profile_list_find_id(&c->types, type_id);

	for (unsigned i = 0; c->nvml && i < c->nvml->n_types; i++)
		if (c->nvml->types[i].profile.type_id == type_id &&
		    c->nvml->types[i].placement.size > 0)
			return c->nvml->types[i].placement.size;
	return p ? (uint16_t)((p->framebuffer_mb + 1023) / 1024) : 0;
}

void cards_update_span(const struct card *c, struct vf *v)
{
	if (v->hold == VF_HOLD_ALLOCATION && v->type_id == 0)
		return; /* a plan, not yet a vGPU */
	if (v->type_id == 0 || v->placement_id == PLACEMENT_NONE)
		v->span = (struct placement_span){ 0 };
	else
		v->span = (struct placement_span){ v->placement_id,
						   cards_type_size(c, v->type_id) };
}

void cards_observe_vf(struct node *n, struct card *c, struct vf *v, uint32_t type_id,
		      uint16_t placement_id)
{
	bool first = !v->known;
	bool type_changed = v->type_id != type_id;

	if (v->claim && v->claim->claim.type_id == type_id && placement_id == PLACEMENT_NONE &&
	    v->claim->claim.placement_id >= 0)
		placement_id = (uint16_t)v->claim->claim
				       .placement_id; /* a pin: no file tells it before 570 */
	v->known = true;
	if (!first && !type_changed && v->placement_id == placement_id)
		return;
	if (type_changed) {
		v->unclaimed_since_usec = 0;
		v->unclaimed_open = false;
		v->reset_error = 0;
		v->span_counted = false;
	}
	v->type_id = type_id;
	v->placement_id = placement_id;
	c->changes++;
	cards_update_span(c, v);
	node_changed(n);
}

void cards_write_begin(struct node *n, struct card *c, struct vf *v)
{
	v->busy++;
	v->changed_seq = node_next_seq(n);
	c->write_seq++;
	c->writes++;
}

void cards_write_end(struct node *n, struct card *c, struct pci_addr vf)
{
	struct vf *v = node_find_vf(n, vf, NULL);

	c->write_seq++;
	c->writes--;
	if (v) {
		v->changed_seq = node_next_seq(n);
		if (v->busy > 0)
			v->busy--;
	}
}

bool cards_was_read_after(const struct card *c, uint64_t seq)
{
	return !c->reading && c->read_seq > seq;
}

bool cards_is_gone(int result)
{
	return result == -ENOENT || result == -ENODEV || result == -ENOTDIR;
}

void cards_judge_claims(struct node *n)
{
	for (unsigned i = 0; i < n->n_claims; i++) {
		struct claim_entry *e = n->claims[i];
		struct card *c = node_find_card(n, e->claim.card);
		struct vf *v = node_find_vf(n, e->claim.vf, NULL);
		bool present = v && v->listed && (v->usable || (c && c->stuck));
		enum claim_problem problem;

		if (!n->inventory_known || (v && v->listed && !v->known && !(c && c->stuck)))
			continue; /* not looked yet */
		problem = claim_problem_judge(&e->claim, present, v ? v->type_id : 0,
					      c && c->stuck);
		if (problem == e->problem)
			continue;
		e->problem = problem;
		if (problem == CLAIM_PROBLEM_NONE)
			log_notice("claim: VF is as it should be again claim=%s", e->claim.name);
		else
			log_warning("claim: the VF is not as it was left claim=%s problem=%s",
				    e->claim.name, claim_problem_name(problem));
		node_changed(n);
	}
}

/* --- The poll ------------------------------------------------------------------------------- */

static void apply_read_of_vf(struct node *n, struct card *c, const struct card_vf_state *state,
			     bool *ret_gone, bool *ret_changed)
{
	struct vf *v = node_find_vf(n, state->address, NULL);
	char text[PCI_ADDR_MAX];
	uint32_t old_type;

	if (!v || !v->listed || v->busy > 0 || v->changed_seq > c->read_seq)
		return; /* gone, or written since the read was sent: an older value must not replace
			   it */
	if (state->error) {
		*ret_gone |= cards_is_gone(state->error);
		if (v->usable || !v->reason[0]) {
			v->usable = false;
			snprintf(v->reason, sizeof v->reason,
				 "current_vgpu_type cannot be read: %s",
				 strerrordesc_np(-state->error) ?: "unknown error");
			/* Of one that is gone the scan tells, in one line for all. */
			if (!cards_is_gone(state->error))
				log_warning("vf: not usable, ignoring it vf=%s: %s",
					    pci_addr_format(v->address, text), v->reason);
			*ret_changed = true;
			node_changed(n);
		}
		return;
	}
	if (!v->usable) {
		v->usable = true;
		v->reason[0] = '\0';
		node_changed(n);
		*ret_changed = true;
	}
	old_type = v->type_id;
	if (v->known && old_type != state->type_id) {
		log_notice("vf: configured by another program vf=%s type=%u was=%u",
			   pci_addr_format(v->address, text), state->type_id, old_type);
		*ret_changed = true;
	}
	if (!v->known && state->type_id != 0)
		*ret_changed = true;
	cards_observe_vf(n, c, v, state->type_id, state->placement_id);
}

static void read_done(const struct card_reply *reply, void *userdata)
{
	struct node_job *job = userdata;
	struct node *n = job->node;
	struct card *c = job->card;
	bool gone = false, changed = false, first = !c->read_once;

	node_job_free(job);
	c->reading = false;
	c->read_once = true;
	for (unsigned i = 0; reply->result == 0 && i < reply->n_vfs; i++)
		apply_read_of_vf(n, c, &reply->vfs[i], &gone, &changed);
	if (cards_is_gone(reply->result) || gone)
		node_request_scan(n);
	if (changed || first) {
		cards_judge_claims(n);
		snapshot_request(n);
		allocate_capacity_changed(n);
	} else {
		drift_vfs_were_read(n, c);
	}
	start_vfs_read(n);
}

void node_read_card(struct node *n, struct card *c)
{
	struct card_request request = { .op = CARD_OP_READ };
	struct node_job *job;

	if (c->reading || !c->client || !c->present)
		return;
	for (unsigned i = 0; i < c->n_vfs && request.n_vfs < CARD_VFS_MAX; i++)
		if (c->vfs[i].listed)
			request.vfs[request.n_vfs++] = c->vfs[i].address;
	if (request.n_vfs == 0) {
		c->read_once = true;
		return;
	}
	job = node_job_new(n, c, c->address);
	if (!job)
		return;
	c->read_seq = node_next_seq(n);
	if (card_client_submit(c->client, &request, read_done, job) < 0) {
		node_job_free(job);
		c->read_once = true;
		return;
	}
	c->reading = true;
}

static int poll_tick(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct node *n = userdata;
	uint64_t fingerprint;
	int r;

	r = inventory_fingerprint(n->config->sysfs_root, &fingerprint);
	if (n->scan_unsettled || (r == 0 && fingerprint != n->fingerprint)) {
		/* A second after the change: one right behind it may have seen the same half. */
		n->scan_settles = !n->scanning;
		node_request_scan(n);
	}
	for (unsigned i = 0; i < n->n_cards; i++)
		node_read_card(n, n->cards[i]);
	(void)usec;
	sd_event_source_set_time(source, clock_now_usec() + POLL_USEC);
	return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

/* --- Helpers of the cards ------------------------------------------------------------------- */

static void client_state_changed(struct card_client *client, enum card_client_state state,
				 void *userdata)
{
	struct node *n = userdata;
	struct card *c = NULL;
	char text[PCI_ADDR_MAX];
	bool stuck = state == CARD_CLIENT_STUCK;

	for (unsigned i = 0; i < n->n_cards; i++)
		if (n->cards[i]->client == client)
			c = n->cards[i];
	if (!c || c->stuck == stuck)
		return;
	c->stuck = stuck;
	pci_addr_format(c->address, text);
	if (stuck) {
		log_error("card: stuck in the driver, nothing of it is offered card=%s: %s", text,
			  card_client_reason(client));
	} else {
		log_notice("card: the driver answers again card=%s", text);
		node_read_card(n, c);
		snapshot_request(n);
		reconcile_soon(n);
	}
	cards_judge_claims(n);
	node_changed(n);
}

static void start_helper(struct node *n, struct card *c)
{
	_free_ char *lock_dir = str_printf("%s/run", n->config->data_dir);
	struct card_client_config config = {
		.event = n->event,
		.card = c->address,
		.sysfs_root = n->config->sysfs_root,
		.dev_root = n->config->dev_root,
		.proc_root = n->config->proc_root,
		.lock_dir = lock_dir,
		.timeout_usec = n->config->card_timeout_usec,
		.state_changed = client_state_changed,
		.userdata = n,
	};
	struct error err = ERROR_INIT;
	char text[PCI_ADDR_MAX];

	if (!lock_dir || card_client_new(&config, &c->client, &err) < 0) {
		log_error("card: helper does not start card=%s: %s",
			  pci_addr_format(c->address, text), error_text(&err));
		return;
	}
	if (card_client_get_state(c->client) == CARD_CLIENT_STUCK)
		client_state_changed(c->client, CARD_CLIENT_STUCK, n);
}

/* --- Scans ---------------------------------------------------------------------------------- */

static bool is_excluded(const struct node *n, struct pci_addr address)
{
	for (size_t i = 0; i < n->config->n_exclude; i++)
		if (pci_addr_equal(n->config->exclude[i], address))
			return true;
	return false;
}

void cards_config_changed(struct node *n)
{
	for (unsigned i = 0; i < n->n_cards; i++) {
		struct card *c = n->cards[i];

		if (c->client)
			card_client_set_timeout(c->client, n->config->card_timeout_usec);
		c->excluded = is_excluded(n, c->address);
		for (unsigned k = 0; k < c->n_vfs; k++) {
			struct vf *v = &c->vfs[k];
			bool excluded = c->excluded || is_excluded(n, v->address);

			/* What was seen of it before says nothing of how long it is nobody's. */
			if (v->excluded != excluded)
				v->unclaimed_since_usec = 0;
			v->excluded = excluded;
		}
	}
	cards_judge_claims(n);
	node_changed(n);
}

static void take_over_vfs(struct node *n, struct card *c, const struct inventory_card *found)
{
	struct vf *old = c->n_vfs ? calloc(c->n_vfs, sizeof *old) : NULL;
	unsigned n_old = old ? c->n_vfs : 0;

	if (old)
		memcpy(old, c->vfs, n_old * sizeof *old);
	memset(c->vfs, 0, sizeof c->vfs);
	c->n_vfs = found->n_vfs;
	for (unsigned i = 0; i < found->n_vfs; i++) {
		const struct inventory_vf *f = &found->vfs[i];
		struct vf *v = &c->vfs[i];
		bool usable;

		v->placement_id = PLACEMENT_NONE;
		for (unsigned k = 0; k < n_old; k++)
			if (pci_addr_equal(old[k].address, f->address))
				*v = old[k];
		usable = v->usable && f->vendor_vfio;
		v->address = f->address;
		v->number = f->number;
		v->listed = f->vendor_vfio;
		v->excluded = c->excluded || is_excluded(n, f->address);
		if (!v->listed)
			v->known = false;
		if (!v->listed || !v->usable)
			str_copy_cut(v->reason, sizeof v->reason, f->reason);
		v->usable = usable;
		str_copy_cut(v->driver, sizeof v->driver, f->driver);
		v->vfio_group = f->vfio_group;
		str_copy_cut(v->vfio_device, sizeof v->vfio_device, f->vfio_device);
		v->vfio_node = f->vfio_node;
		c->has_vfs |= f->vendor_vfio;
	}
	free(old);
}

static struct card *add_card(struct node *n, struct pci_addr address)
{
	struct card *c;
	unsigned at = 0;

	if (n->n_cards == INVENTORY_CARDS_MAX)
		return NULL;
	c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	c->address = address;
	while (at < n->n_cards && pci_addr_compare(n->cards[at]->address, address) < 0)
		at++;
	memmove(n->cards + at + 1, n->cards + at, (n->n_cards - at) * sizeof(struct card *));
	n->cards[at] = c;
	n->n_cards++;
	return c;
}

static void take_over_card(struct node *n, const struct inventory_card *found)
{
	struct card *c = node_find_card(n, found->address);
	char text[PCI_ADDR_MAX];

	if (!c)
		c = add_card(n, found->address);
	if (!c) {
		log_error("card: no room for one more, ignoring it card=%s",
			  pci_addr_format(found->address, text));
		return;
	}
	if (found->reason[0] && strcmp(c->reason, found->reason) != 0)
		log_warning("card: not wholly readable card=%s: %s",
			    pci_addr_format(c->address, text), found->reason);
	c->present = true;
	c->excluded = is_excluded(n, found->address);
	c->device_id = found->device_id;
	c->numa_node = found->numa_node;
	c->total_vfs = found->total_vfs;
	str_copy_cut(c->driver, sizeof c->driver, found->driver);
	str_copy_cut(c->reason, sizeof c->reason, found->reason);
	if (!c->name[0])
		snprintf(c->name, sizeof c->name, CARD_NAME_FORMAT, found->device_id & 0xffffU);
	take_over_vfs(n, c, found);
	catalogue_restore(n, c);
	if (c->has_vfs && !c->client)
		start_helper(n, c);
}

/* One line where the picture of a card has changed. */
static void log_card(const struct card *c, unsigned before, bool was_present)
{
	const char *reason = "";
	char text[PCI_ADDR_MAX];
	unsigned listed = 0;

	for (unsigned i = 0; i < c->n_vfs; i++) {
		listed += c->vfs[i].listed;
		if (!c->vfs[i].listed && !*reason)
			reason = c->vfs[i].reason;
	}
	pci_addr_format(c->address, text);
	if (!c->present && was_present)
		log_warning("card: gone from the bus card=%s", text);
	else if (c->present && (!was_present || listed != before))
		log_notice("card: found card=%s driver=%s vfs=%u usable=%u%s%s", text,
			   c->driver[0] ? c->driver : "none", c->n_vfs, listed, *reason ? ": " : "",
			   reason);
}

static int compare_groups(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return x < y ? -1 : x > y;
}

static void mark_shared_groups(struct node *n)
{
	static int groups[INVENTORY_CARDS_MAX * INVENTORY_VFS_MAX];
	size_t count = 0;

	for (unsigned i = 0; i < n->n_cards; i++)
		for (unsigned k = 0; k < n->cards[i]->n_vfs; k++)
			if (n->cards[i]->vfs[k].vfio_group >= 0)
				groups[count++] = n->cards[i]->vfs[k].vfio_group;
	qsort(groups, count, sizeof groups[0], compare_groups);
	for (unsigned i = 0; i < n->n_cards; i++) {
		for (unsigned k = 0; k < n->cards[i]->n_vfs; k++) {
			struct vf *v = &n->cards[i]->vfs[k];
			const int *at = bsearch(&v->vfio_group, groups, count, sizeof groups[0],
						compare_groups);

			v->group_shared = at && ((at > groups && at[-1] == *at) ||
						 (at + 1 < groups + count && at[1] == *at));
		}
	}
}

static void apply_inventory(struct node *n, struct inventory *inv)
{
	unsigned listed[INVENTORY_CARDS_MAX] = { 0 };
	bool present[INVENTORY_CARDS_MAX] = { 0 };
	struct pci_addr known[INVENTORY_CARDS_MAX];
	unsigned n_known = n->n_cards;

	for (unsigned i = 0; i < n->n_cards; i++) {
		known[i] = n->cards[i]->address;
		present[i] = n->cards[i]->present;
		for (unsigned k = 0; k < n->cards[i]->n_vfs; k++)
			listed[i] += n->cards[i]->vfs[k].listed;
		n->cards[i]->present = false;
	}
	for (unsigned i = 0; i < inv->n_cards; i++)
		take_over_card(n, &inv->cards[i]);
	for (unsigned i = 0; i < n->n_cards; i++) {
		struct card *c = n->cards[i];
		unsigned k = 0;

		if (!c->present)
			c->n_vfs = 0;
		while (k < n_known && !pci_addr_equal(known[k], c->address))
			k++;
		log_card(c, k < n_known ? listed[k] : 0, k < n_known && present[k]);
	}
	mark_shared_groups(n);
	n->framework = inv->framework;
	n->inventory_known = true;
	inventory_free(n->inventory);
	n->inventory = inv;
}

struct scan_job {
	struct node *n;
	char *sysfs_root;
	char *dev_root;
	struct inventory *result;
	uint64_t before, after; /* fingerprints */
	struct error err;
	int r;
};

static void scan_run(void *userdata)
{
	struct scan_job *job = userdata;

	(void)!inventory_fingerprint(job->sysfs_root, &job->before);
	job->r = inventory_scan(job->sysfs_root, &job->result, &job->err);
	if (inventory_fingerprint(job->sysfs_root, &job->after) < 0)
		job->after = job->before;
	if (job->r >= 0)
		inventory_find_nodes(job->result, job->dev_root);
}

static void scan_drop(void *userdata)
{
	struct scan_job *job = userdata;

	inventory_free(job->result);
	free(job->sysfs_root);
	free(job->dev_root);
	free(job);
}

/* True: the scan shows something else than the one before it. */
static bool judge_change(struct node *n, const struct scan_job *job)
{
	bool changed = !n->inventory || !inventory_equal(n->inventory, job->result);

	if (changed || job->before != job->after)
		n->scan_unsettled = true;
	else if (n->scan_settles)
		n->scan_unsettled = false;
	n->scan_settles = false;
	n->fingerprint = job->after;
	return changed;
}

static void scan_done(void *userdata)
{
	struct scan_job *job = userdata;
	struct node *n = job->n;
	bool changed;

	n->scanning = false;
	if (job->r < 0) {
		log_error("inventory: cannot be read, keeping what is known: %s",
			  error_text(&job->err));
		reconcile_count_failure(n, "inventory");
	} else {
		n->scanned_seq = n->scan_seq;
		changed = judge_change(n, job);
		apply_inventory(n, TAKE(job->result));
		node_relink(n);
		for (unsigned i = 0; i < n->n_cards; i++)
			node_read_card(n, n->cards[i]);
		cards_judge_claims(n);
		if (changed) {
			snapshot_request(n);
			node_changed(n);
		}
	}
	scan_drop(job);
	if (n->scan_again)
		node_request_scan(n);
	start_try_finish(n);
}

void node_request_scan(struct node *n)
{
	struct scan_job *job;

	if (n->scanning) {
		n->scan_again = true;
		return;
	}
	n->scan_again = false;
	job = calloc(1, sizeof *job);
	if (!job)
		return;
	job->n = n;
	job->sysfs_root = strdup(n->config->sysfs_root);
	job->dev_root = strdup(n->config->dev_root);
	if (!job->sysfs_root || !job->dev_root ||
	    worker_submit(n->scanner, scan_run, scan_done, scan_drop, job) < 0) {
		scan_drop(job);
		return;
	}
	n->scanning = true;
	n->scan_seq = node_next_seq(n);
}

int cards_start(struct node *n, struct error *err)
{
	int r;

	r = worker_new(n->event, "berth-scan", &n->scanner);
	if (r < 0)
		return error_set_errno(err, r, "scan thread");
	node_request_scan(n);
	r = sd_event_add_time(n->event, &n->poll_timer, CLOCK_MONOTONIC,
			      clock_now_usec() + POLL_USEC, 0, poll_tick, n);
	if (r < 0)
		return error_set_errno(err, r, "poll timer");
	return 0;
}
