/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "daemon/allocate.h"
#include "daemon/reconcile.h"
#include "daemon/release.h"
#include "daemon/recover.h"
#include "daemon/sentinel.h"
#include "daemon/service.h"

struct card *node_find_card(const struct node *n, struct pci_addr address)
{
	for (unsigned i = 0; i < n->n_cards; i++)
		if (pci_addr_equal(n->cards[i]->address, address))
			return n->cards[i];
	return NULL;
}

struct vf *node_find_vf(const struct node *n, struct pci_addr address, struct card **ret_card)
{
	for (unsigned i = 0; i < n->n_cards; i++) {
		struct card *c = n->cards[i];

		if (!c->present)
			continue;
		for (unsigned k = 0; k < c->n_vfs; k++) {
			if (!pci_addr_equal(c->vfs[k].address, address))
				continue;
			if (ret_card)
				*ret_card = c;
			return &c->vfs[k];
		}
	}
	return NULL;
}

/* Index of name, or where it belongs. */
static unsigned claim_index(const struct node *n, const char *name, bool *ret_found)
{
	unsigned low = 0, high = n->n_claims;

	while (low < high) {
		unsigned middle = (low + high) / 2;
		int order = strcmp(n->claims[middle]->claim.name, name);

		if (order == 0) {
			*ret_found = true;
			return middle;
		}
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	*ret_found = false;
	return low;
}

struct claim_entry *node_find_claim(const struct node *n, const char *name)
{
	bool found;
	unsigned i = claim_index(n, name, &found);

	return found ? n->claims[i] : NULL;
}

struct claim_entry *node_find_claim_by_vf(const struct node *n, struct pci_addr vf)
{
	for (unsigned i = 0; i < n->n_claims; i++)
		if (pci_addr_equal(n->claims[i]->claim.vf, vf))
			return n->claims[i];
	return NULL;
}

int node_add_claim(struct node *n, const struct claim *claim, struct claim_entry **ret)
{
	struct claim_entry *entry;
	bool found;
	unsigned at;
	int r;

	at = claim_index(n, claim->name, &found);
	if (found)
		return -EEXIST;
	r = array_reserve(n->claims, n->n_claims, n->claims_cap);
	if (r < 0)
		return r;
	entry = calloc(1, sizeof *entry);
	if (!entry)
		return -ENOMEM;
	entry->claim = *claim;
	memmove(n->claims + at + 1, n->claims + at,
		(n->n_claims - at) * sizeof(struct claim_entry *));
	n->claims[at] = entry;
	n->n_claims++;
	sentinel_watch(n, &entry->claim);
	*ret = entry;
	return 0;
}

void node_remove_claim(struct node *n, struct claim_entry *entry)
{
	bool found;
	unsigned at = claim_index(n, entry->claim.name, &found);
	struct vf *v = node_find_vf(n, entry->claim.vf, NULL);

	if (!found || n->claims[at] != entry)
		return;
	if (v && v->claim == entry) {
		v->claim = NULL;
		v->hold = VF_HOLD_NONE;
	}
	sentinel_unwatch(n, entry->claim.name);
	n->n_claims--;
	memmove(n->claims + at, n->claims + at + 1,
		(n->n_claims - at) * sizeof(struct claim_entry *));
	free(entry);
	node_changed(n);
}

int node_add_undo(struct node *n, const struct undo_record *record, struct undo **ret)
{
	struct undo *undo = node_find_undo(n, record->vf);
	struct vf *v;
	int r;

	if (!undo) {
		r = array_reserve(n->undos, n->n_undos, n->undos_cap);
		if (r < 0)
			return r;
		undo = calloc(1, sizeof *undo);
		if (!undo)
			return -ENOMEM;
		n->undos[n->n_undos++] = undo;
	}
	undo->record = *record;
	v = node_find_vf(n, record->vf, NULL);
	if (v && v->hold != VF_HOLD_CLAIM) {
		v->hold = VF_HOLD_UNDO;
		v->planned_type = record->type_id;
	}
	node_changed(n);
	*ret = undo;
	return 0;
}

struct undo *node_find_undo(const struct node *n, struct pci_addr vf)
{
	for (unsigned i = 0; i < n->n_undos; i++)
		if (pci_addr_equal(n->undos[i]->record.vf, vf))
			return n->undos[i];
	return NULL;
}

void node_remove_undo(struct node *n, struct undo *undo)
{
	struct vf *v = node_find_vf(n, undo->record.vf, NULL);

	for (unsigned i = 0; i < n->n_undos; i++) {
		if (n->undos[i] != undo)
			continue;
		n->undos[i] = n->undos[--n->n_undos];
		if (v && v->hold == VF_HOLD_UNDO) {
			v->hold = VF_HOLD_NONE;
			v->planned_type = 0;
		}
		free(undo);
		node_changed(n);
		return;
	}
}

struct node_job *node_job_new(struct node *n, struct card *c, struct pci_addr vf)
{
	struct node_job *job;

	if (array_reserve(n->jobs, n->n_jobs, n->jobs_cap) < 0)
		return NULL;
	job = malloc(sizeof *job);
	if (!job)
		return NULL;
	*job = (struct node_job){ n, c, vf };
	n->jobs[n->n_jobs++] = job;
	return job;
}

void node_job_free(struct node_job *job)
{
	struct node *n = job->node;

	for (unsigned i = 0; i < n->n_jobs; i++) {
		if (n->jobs[i] != job)
			continue;
		n->jobs[i] = n->jobs[--n->n_jobs];
		break;
	}
	free(job);
}

void node_relink(struct node *n)
{
	for (unsigned i = 0; i < n->n_cards; i++) {
		for (unsigned k = 0; k < n->cards[i]->n_vfs; k++) {
			struct vf *v = &n->cards[i]->vfs[k];

			if (health_store_get_state(n->health) == STORE_STATE_READY)
				v->quarantined = health_is_quarantined(health_store_get(n->health),
								       v->address);
			v->claim = NULL;
			v->adoptable = false;
			v->planned_type = 0;
			if (v->hold != VF_HOLD_RESET)
				v->hold = VF_HOLD_NONE;
		}
	}
	allocate_relink(n);
	for (unsigned i = 0; i < n->n_adoptable; i++) {
		struct vf *v = node_find_vf(n, n->adoptable[i], NULL);

		if (v)
			v->adoptable = true;
	}
	for (unsigned i = 0; i < n->n_undos; i++) {
		struct vf *v = node_find_vf(n, n->undos[i]->record.vf, NULL);

		if (!v)
			continue;
		v->hold = VF_HOLD_UNDO;
		v->planned_type = n->undos[i]->record.type_id;
	}
	for (unsigned i = 0; i < n->n_claims; i++) {
		struct vf *v = node_find_vf(n, n->claims[i]->claim.vf, NULL);

		if (!v)
			continue;
		v->hold = VF_HOLD_CLAIM;
		v->claim = n->claims[i];
	}
}

void node_changed(struct node *n)
{
	n->revision++;
	if (n->changed)
		n->changed(n, n->changed_userdata);
	service_changed(n);
}

uint64_t node_next_seq(struct node *n)
{
	return ++n->seq;
}

bool node_is_ready(const struct node *n)
{
	return !*node_not_ready_reason(n);
}

const char *node_not_ready_reason(const struct node *n)
{
	switch (claim_store_get_state(n->store)) {
	case STORE_STATE_LOADING:
		return "the claims database is being loaded";
	case STORE_STATE_UNREADABLE:
		return n->store_reason;
	case STORE_STATE_READY:
		break;
	}
	if (health_store_get_state(n->health) == STORE_STATE_LOADING)
		return "the health records are being loaded";
	if (n->stage == NODE_STARTING)
		return "the first look at the host has not ended";
	if (n->stage == NODE_STOPPING)
		return "berthd is stopping";
	return "";
}

bool node_is_before_570(const struct node *n)
{
	return n->driver_branch > 0 && n->driver_branch < 570;
}

bool card_is_usable(const struct card *c)
{
	return c->present && !c->excluded;
}

bool vf_is_free(const struct card *c, const struct vf *v)
{
	return card_is_usable(c) && v->usable && v->known && !v->excluded && !v->adoptable &&
	       v->type_id == 0 && v->hold == VF_HOLD_NONE && v->busy == 0;
}

static bool is_allocatable_alone(const struct node *n, const struct card *c, const struct vf *v)
{
	return claim_store_get_state(n->store) == STORE_STATE_READY &&
	       health_store_get_state(n->health) == STORE_STATE_READY && n->stage == NODE_READY &&
	       !c->stuck && !c->cordoned && !v->quarantined && vf_is_free(c, v);
}

bool node_vf_is_blocked(const struct node *n, const struct vf *v)
{
	bool before = true;

	for (unsigned i = 0; v->group_shared && i < n->n_cards; i++) {
		const struct card *c = n->cards[i];

		for (unsigned k = 0; c->present && k < c->n_vfs; k++) {
			const struct vf *other = &c->vfs[k];

			if (other == v)
				before = false;
			else if (other->vfio_group == v->vfio_group &&
				 (other->type_id != 0 || other->hold != VF_HOLD_NONE ||
				  other->busy > 0 || (before && is_allocatable_alone(n, c, other))))
				return true;
		}
	}
	return false;
}

bool node_vf_is_allocatable(const struct node *n, const struct card *c, const struct vf *v)
{
	return is_allocatable_alone(n, c, v) && !node_vf_is_blocked(n, v);
}

static void card_free(struct card *c)
{
	card_client_free(c->client);
	recovery_free(c->recovery);
	free(c->nvml);
	free(c);
}

struct node *node_free(struct node *n)
{
	if (!n)
		return NULL;
	sd_event_source_disable_unref(n->poll_timer);
	sd_event_source_disable_unref(n->reconcile_timer);
	sd_event_source_disable_unref(n->plan_timer);
	sd_event_source_disable_unref(n->defer);
	sd_event_source_disable_unref(n->probe_timer);
	sd_event_source_disable_unref(n->patience_timer);
	sentinel_free(n->sentinel);
	n->service = service_free(n->service);
	health_store_free(n->health);
	worker_free(n->files);
	worker_free(n->scanner);
	nvml_client_free(n->nvml);
	allocate_free_all(n);
	for (unsigned i = 0; i < n->n_cards; i++)
		card_free(n->cards[i]);
	claim_store_free(n->store);
	for (unsigned i = 0; i < n->n_claims; i++) {
		release_free(n->claims[i]->release);
		free(n->claims[i]);
	}
	free(n->claims);
	for (unsigned i = 0; i < n->n_jobs; i++)
		free(n->jobs[i]);
	free(n->jobs);
	for (unsigned i = 0; i < n->n_undos; i++)
		free(n->undos[i]);
	free(n->undos);
	for (unsigned i = 0; i < n->n_records; i++) {
		free(n->records[i].catalogue);
		free(n->records[i].recovery);
	}
	free(n->records);
	free(n->adoptable);
	free(n->adoption);
	free(n->stale);
	reconcile_free(n->reconcile);
	inventory_free(n->inventory);
	metrics_free(n->metrics);
	config_free(n->config);
	free(n->m);
	free(n);
	return NULL;
}
