/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/start.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/allocate.h"
#include "daemon/cards.h"
#include "daemon/catalogue.h"
#include "daemon/reconcile.h"
#include "daemon/release.h"
#include "daemon/snapshot.h"

/* --- The claims database ---------------------------------------------------------------------- */

static int take_records(struct node *n, const struct store_content *content)
{
	n->records = calloc(MAX(content->n_cards, 1U), sizeof *n->records);
	if (!n->records)
		return -ENOMEM;
	for (unsigned i = 0; i < content->n_cards; i++) {
		struct card_record *r = &n->records[n->n_records++];

		*r = content->cards[i];
		r->catalogue = content->cards[i].catalogue ? strdup(content->cards[i].catalogue)
							   : NULL;
		r->recovery = content->cards[i].recovery ? strdup(content->cards[i].recovery)
							 : NULL;
	}
	return 0;
}

/* An intent is never shown: what is left of it is a VF that has to read 0 and a record that has to
 * go. */
static int take_intent(struct node *n, const struct claim *claim)
{
	struct undo_record record = { claim->vf, claim->card, claim->type_id };
	struct undo *undo;
	int r;

	if (allocate_is_pending(n, claim->name))
		return 0; /* loaded anew in the middle of it: it looks after its record itself */
	log_notice("claim: was on its way when berthd ended, undoing it claim=%s", claim->name);
	r = node_add_undo(n, &record, &undo);
	if (r < 0)
		return r;
	memcpy(undo->claim_name, claim->name, sizeof undo->claim_name);
	return 0;
}

/* What a claim of an earlier boot names is gone with it. It is neither shown nor in anybody's way,
 * and leaves the disk before the start ends. A claim that does not say when it was made counts as
 * valid. */
static bool take_if_stale(struct node *n, const struct claim *claim)
{
	if (!claim->boot_id[0] || strcmp(claim->boot_id, n->boot_id) == 0)
		return false;
	log_notice("claim: of an earlier boot, dropping it claim=%s", claim->name);
	memcpy(n->stale[n->n_stale++], claim->name, sizeof claim->name);
	return true;
}

static int take_content(struct node *n, const struct store_content *content)
{
	int r;

	n->store_fresh = content->fresh;
	n->stale = calloc(MAX(content->n_claims, 1U), sizeof *n->stale);
	if (!n->stale)
		return -ENOMEM;
	r = n->records ? 0 : take_records(n, content);
	for (unsigned i = 0; r == 0 && i < content->n_undos; i++) {
		struct undo *undo;

		r = node_add_undo(n, &content->undos[i], &undo);
		if (r == 0)
			undo->stored = true;
	}
	for (unsigned i = 0; r == 0 && i < content->n_claims; i++) {
		struct claim_entry *entry;

		if (take_if_stale(n, &content->claims[i]))
			continue;
		if (content->claims[i].state == CLAIM_STATE_INTENT)
			r = take_intent(n, &content->claims[i]);
		else if (!node_find_claim(n, content->claims[i].name))
			r = node_add_claim(n, &content->claims[i], &entry);
		policy_demand_add(&n->demand, (uint16_t)content->claims[i].placement_size);
	}
	n->adoptable = calloc(MAX(content->n_adoptable, 1U), sizeof *n->adoptable);
	if (!n->adoptable)
		return -ENOMEM;
	while (n->n_adoptable < content->n_adoptable) {
		n->adoptable[n->n_adoptable] = content->adoptable[n->n_adoptable];
		n->n_adoptable++;
	}
	return r;
}

/* A database that became unreadable and is read again starts from what it says, but for claims that
 * are being released: those go on and come to their end. */
static void forget_content(struct node *n)
{
	for (unsigned i = n->n_claims; i-- > 0;)
		if (!n->claims[i]->release)
			node_remove_claim(n, n->claims[i]);
	while (n->n_undos > 0)
		node_remove_undo(n, n->undos[n->n_undos - 1]);
	free(n->adoptable);
	n->adoptable = NULL;
	n->n_adoptable = 0;
	free(n->stale);
	n->stale = NULL;
	n->n_stale = 0;
}

void start_store_loaded(struct claim_store *s, enum store_state state,
			const struct store_content *content, const struct error *err,
			void *userdata)
{
	struct node *n = userdata;

	(void)s;
	if (state != STORE_STATE_READY) {
		str_copy_cut(n->store_reason, sizeof n->store_reason, error_text(err));
		log_error("claims database: cannot be used, nothing is offered or reset until it "
			  "can: %s",
			  n->store_reason);
		reconcile_count_failure(n, "store");
		node_changed(n);
		allocate_plan(n);
		if (n->ready)
			n->ready(n);
		return;
	}
	if (content->note[0])
		log_warning("claims database: %s", content->note);
	n->store_reason[0] = '\0';
	n->stage = NODE_STARTING;
	forget_content(n);
	if (take_content(n, content) < 0) {
		log_error("claims database: out of memory while taking it over");
		str_copy_cut(n->store_reason, sizeof n->store_reason, "out of memory");
		return;
	}
	n->store_taken = true;
	node_relink(n);
	for (unsigned i = 0; i < n->n_cards; i++)
		catalogue_restore(n, n->cards[i]);
	cards_judge_claims(n);
	node_changed(n);
	start_try_finish(n);
}

/* --- Adoption ----------------------------------------------------------------------------------
 */

static void make_external(const struct node *n, const struct card *c, const struct vf *v,
			  struct claim *ret)
{
	const struct profile *p = profile_list_find_id(&c->types, v->type_id);

	*ret = (struct claim){
		.state = CLAIM_STATE_EXTERNAL,
		.type_id = v->type_id,
		.vf = v->address,
		.card = c->address,
		.placement_id = v->span.size ? v->span.id : -1,
		.placement_size = v->span.size,
	};
	claim_name_external(v->address, ret->name);
	if (p)
		memcpy(ret->profile, p->name, sizeof ret->profile);
	clock_rfc3339_now(ret->assigned_at);
	memcpy(ret->boot_id, n->boot_id, sizeof ret->boot_id);
}

struct adoption {
	unsigned n_ops;
	struct store_op ops[];
};

static void finish_start(struct node *n);

static void adopted(int result, const struct error *err, void *userdata)
{
	struct node *n = userdata;
	_free_ struct adoption *a = TAKE(n->adoption);
	char vf[PCI_ADDR_MAX];

	n->adopting = false;
	if (result < 0)
		log_error("claims database: what is configured cannot be adopted, retrying: %s",
			  error_text(err));
	for (unsigned i = 0; result == 0 && i < a->n_ops; i++) {
		struct store_op *op = &a->ops[i];
		struct claim_entry *entry;

		switch (op->kind) {
		case STORE_OP_PUT_CLAIM:
			log_warning("claim: adopted, was configured before there was a claims "
				    "database claim=%s "
				    "vf=%s type=%u",
				    op->claim.name, pci_addr_format(op->claim.vf, vf),
				    op->claim.type_id);
			if (node_add_claim(n, &op->claim, &entry) < 0)
				log_error("claim: out of memory claim=%s", op->claim.name);
			break;
		case STORE_OP_DROP_ADOPTABLE:
			for (unsigned k = 0; k < n->n_adoptable; k++)
				if (pci_addr_equal(n->adoptable[k], op->undo.vf))
					n->adoptable[k] = n->adoptable[--n->n_adoptable];
			break;
		case STORE_OP_ADOPTABLE: {
			struct pci_addr *more = reallocarray(n->adoptable, n->n_adoptable + 1,
							     sizeof *more);

			if (more) {
				n->adoptable = more;
				more[n->n_adoptable++] = op->undo.vf;
			}
			break;
		}
		case STORE_OP_DROP_CLAIM:
		case STORE_OP_PUT_UNDO:
		case STORE_OP_DROP_UNDO:
		case STORE_OP_CORDON:
		case STORE_OP_CATALOGUE:
		case STORE_OP_RECOVERY:
			break;
		}
	}
	if (result == 0) {
		n->store_fresh = false;
		node_relink(n);
		start_try_finish(n);
	}
}

static int submit_adoption(struct node *n, struct adoption *a)
{
	n->adopting = true;
	n->adoption = a; /* also when berthd ends before it is committed */
	if (claim_store_submit(n->store, a->ops, a->n_ops, adopted, n) == 0)
		return 0;
	n->adopting = false;
	n->adoption = NULL;
	free(a);
	return -EIO;
}

static struct adoption *adoption_new(unsigned n_ops)
{
	return calloc(1, sizeof(struct adoption) + n_ops * sizeof(struct store_op));
}

/* Everything that is configured, in one commit, which is also the one that makes the database. */
static void adopt_all(struct node *n)
{
	struct adoption *a = adoption_new(INVENTORY_VFS_MAX * n->n_cards);

	if (!a)
		return;
	for (unsigned i = 0; i < n->n_cards; i++) {
		struct card *c = n->cards[i];

		for (unsigned k = 0; k < c->n_vfs; k++) {
			struct vf *v = &c->vfs[k];
			struct store_op *op = &a->ops[a->n_ops];

			if (!v->listed || v->excluded || v->hold != VF_HOLD_NONE ||
			    (v->known && v->type_id == 0))
				continue;
			op->kind = v->known ? STORE_OP_PUT_CLAIM : STORE_OP_ADOPTABLE;
			op->undo.vf = v->address;
			if (v->known)
				make_external(n, c, v, &op->claim);
			a->n_ops++;
		}
	}
	log_warning("claims database: there was none, adopting what is configured data_dir=%s",
		    n->config->data_dir);
	if (a->n_ops > 0) {
		submit_adoption(n, a);
		return;
	}
	free(a);
	n->store_fresh = false;
	finish_start(n);
}

static void adopt_late(struct node *n, struct card *c, struct vf *v)
{
	struct adoption *a = adoption_new(2);

	if (!a)
		return;
	a->ops[0].kind = STORE_OP_DROP_ADOPTABLE;
	a->ops[0].undo.vf = v->address;
	a->n_ops = 1;
	if (v->type_id != 0) {
		a->ops[1].kind = STORE_OP_PUT_CLAIM;
		make_external(n, c, v, &a->ops[1].claim);
		a->n_ops = 2;
	}
	submit_adoption(n, a);
}

void start_vfs_read(struct node *n)
{
	for (unsigned i = 0; i < n->n_cards && n->n_adoptable > 0; i++) {
		struct card *c = n->cards[i];

		for (unsigned k = 0; k < c->n_vfs && !n->adopting; k++)
			if (c->vfs[k].adoptable && c->vfs[k].known && c->vfs[k].usable)
				adopt_late(n, c, &c->vfs[k]);
	}
	start_try_finish(n);
}

/* --- Records of an earlier start
 * ---------------------------------------------------------------------- */

/* An intent left behind, which holds up its name. */
static bool holds_a_name(const struct undo *undo)
{
	return !undo->stored && undo->claim_name[0];
}

static bool has_old_records(const struct node *n)
{
	for (unsigned i = 0; i < n->n_undos; i++)
		if (holds_a_name(n->undos[i]))
			return true;
	return n->n_stale > 0;
}

static void old_records_settled(int result, const struct error *err, void *userdata)
{
	struct node *n = userdata;

	n->adopting = false;
	if (result < 0) {
		log_error("claims database: records of an earlier start cannot be settled, "
			  "retrying: %s",
			  error_text(err));
		return;
	}
	n->n_stale = 0;
	for (unsigned i = 0; i < n->n_undos; i++) {
		n->undos[i]->stored = true;
		n->undos[i]->claim_name[0] = '\0';
	}
	start_try_finish(n);
}

/* Claims of an earlier boot go; intents become undo records of their VFs, so that their names are
 * free when the start ends, however long a VF takes. */
static void settle_old_records(struct node *n)
{
	struct store_op *ops = calloc(n->n_stale + n->n_undos, sizeof *ops);
	unsigned count = 0;

	if (!ops)
		return;
	for (unsigned i = 0; i < n->n_stale; i++) {
		ops[count].kind = STORE_OP_DROP_CLAIM;
		memcpy(ops[count++].claim.name, n->stale[i], sizeof ops[0].claim.name);
	}
	for (unsigned i = 0; i < n->n_undos; i++) {
		if (!holds_a_name(n->undos[i]))
			continue;
		ops[count].kind = STORE_OP_PUT_UNDO;
		ops[count].undo = n->undos[i]->record;
		memcpy(ops[count++].claim.name, n->undos[i]->claim_name, sizeof ops[0].claim.name);
	}
	n->adopting = claim_store_submit(n->store, ops, count, old_records_settled, n) == 0;
	free(ops);
}

/* --- The end of the start ------------------------------------------------------------------------
 */

static bool first_look_has_ended(const struct node *n)
{
	if (!n->store_taken || !n->inventory_known || !n->snapshot_loaded || n->adopting ||
	    snapshot_waits_for_lists(n))
		return false;
	for (unsigned i = 0; i < n->n_cards; i++)
		if (n->cards[i]->present && n->cards[i]->has_vfs && !n->cards[i]->read_once)
			return false;
	return claim_store_get_state(n->store) == STORE_STATE_READY;
}

static void warn_if_read_only(const struct node *n)
{
	for (unsigned i = 0; i < n->n_cards; i++) {
		const struct card *c = n->cards[i];
		_free_ char *path = NULL;
		char text[PCI_ADDR_MAX];

		if (c->n_vfs == 0 || !c->vfs[0].listed)
			continue;
		path = str_printf("%s/bus/pci/devices/%s/nvidia/current_vgpu_type",
				  n->config->sysfs_root, pci_addr_format(c->vfs[0].address, text));
		if (path && access(path, W_OK) < 0 && errno == EROFS)
			log_warning("sysfs: mounted read-only where berthd runs: claims will be "
				    "refused root=%s",
				    n->config->sysfs_root);
		return;
	}
}

static void finish_start(struct node *n)
{
	struct {
		unsigned cards, vfs;
	} seen = { 0 };

	n->stage = NODE_READY;
	node_relink(n);
	for (unsigned i = 0; i < n->n_cards; i++) {
		struct card *c = n->cards[i];

		seen.cards += c->present;
		for (unsigned k = 0; k < c->n_vfs; k++)
			seen.vfs += c->vfs[k].usable;
		catalogue_save(n, c);
	}
	log_notice("berthd: ready cards=%u vfs=%u claims=%u undos=%u", seen.cards, seen.vfs,
		   n->n_claims, n->n_undos);
	warn_if_read_only(n);
	node_changed(n);
	reconcile_pass(n);
	allocate_plan(n);
	if (n->ready)
		n->ready(n);
}

void start_try_finish(struct node *n)
{
	if (n->stage != NODE_STARTING || !first_look_has_ended(n))
		return;
	if (has_old_records(n))
		settle_old_records(n);
	else if (n->store_fresh)
		adopt_all(n);
	else
		finish_start(n);
}
