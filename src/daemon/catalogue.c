/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/catalogue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/recover.h"

int catalogue_add(struct card *c, const struct profile *p)
{
	struct profile_list *l = &c->types;

	for (unsigned i = 0; i < l->n; i++) {
		if (l->items[i].type_id != p->type_id)
			continue;
		if (p->name[0] && strcmp(l->items[i].name, p->name) != 0) {
			memcpy(l->items[i].name, p->name, sizeof p->name);
			c->catalogue_stored = false;
		}
		if (p->framebuffer_mb && l->items[i].framebuffer_mb != p->framebuffer_mb) {
			l->items[i].framebuffer_mb = p->framebuffer_mb;
			c->catalogue_stored = false;
		}
		return (int)i;
	}
	if (l->n == PROFILE_TYPES_MAX)
		return -E2BIG;
	l->items[l->n] = *p;
	c->max_instances[l->n] = 0;
	c->gi_profile[l->n] = c->gi_room[l->n] = NVML_GI_NONE;
	c->catalogue_stored = false;
	return (int)l->n++;
}

static char *catalogue_to_text(const struct card *c)
{
	json_t *types = json_array(), *root;
	char *text;

	for (unsigned i = 0; i < c->types.n; i++) {
		const struct profile *p = &c->types.items[i];

		json_array_append_new(
			types, json_pack("{s:I,s:s,s:I}", "id", (json_int_t)p->type_id, "name",
					 p->name, "framebuffer_mb", (json_int_t)p->framebuffer_mb));
	}
	root = json_pack("{s:s,s:b,s:o}", "name", c->name, "complete", c->catalogue_complete,
			 "types", types);
	text = root ? json_dumps(root, JSON_COMPACT) : NULL;
	json_decref(root);
	return text;
}

void catalogue_save(struct node *n, struct card *c)
{
	_free_ char *text = NULL;
	struct store_op *op;

	if (c->catalogue_stored || !node_is_ready(n))
		return;
	text = catalogue_to_text(c);
	op = calloc(1, sizeof *op);
	if (text && op) {
		op->kind = STORE_OP_CATALOGUE;
		op->card = c->address;
		op->text = text;
		/* Only a convenience for the next start: a failure shows with the next claim. */
		c->catalogue_stored = claim_store_submit(n->store, op, 1, NULL, NULL) == 0;
	}
	free(op);
}

void catalogue_take_nvml(struct node *n, struct card *c, const struct nvml_card *answer)
{
	if (answer->n_types == 0)
		return; /* nvidia-vgpud has not sent its types yet */
	for (unsigned i = 0; i < answer->n_types; i++) {
		const struct nvml_type *t = &answer->types[i];
		int at = catalogue_add(c, &t->profile);

		if (at < 0)
			continue;
		c->max_instances[at] = t->max_instances;
		c->gi_profile[at] = t->gi_profile;
		c->gi_room[at] = t->gi_count == NVML_GI_NONE ? NVML_GI_NONE
							     : t->gi_count * t->gi_vgpus;
	}
	if (!c->catalogue_complete)
		c->catalogue_stored = false;
	c->catalogue_complete = true;
	catalogue_save(n, c);
}

void catalogue_take_lists(struct node *n, struct card *c, const struct card_reply *reply)
{
	int index[PROFILE_TYPES_MAX];
	bool unconfigured = true, any = false;

	for (unsigned t = 0; t < reply->types.n; t++) {
		struct profile p = reply->types.items[t];

		if (p.framebuffer_mb == 0)
			p.framebuffer_mb = profile_name_framebuffer_mb(p.name);
		index[t] = catalogue_add(c, &p);
	}
	for (unsigned i = 0; i < reply->n_vfs; i++) {
		struct vf *v = node_find_vf(n, reply->vfs[i].address, NULL);

		if (!v)
			continue;
		v->list_known = reply->list_errors[i] == 0;
		memset(v->list, 0, sizeof v->list);
		for (unsigned t = 0; v->list_known && t < reply->types.n; t++)
			if (index[t] >= 0 && (reply->lists[i][t / 64] >> (t % 64) & 1))
				v->list[index[t] / 64] |= UINT64_C(1) << (index[t] % 64);
		any |= v->list_known;
		unconfigured &= v->type_id == 0;
	}
	/* An empty card lists every non-MIG type; a used one hides some. */
	if (any && unconfigured && reply->types.n > 0 && !c->catalogue_complete) {
		c->catalogue_complete = true;
		c->catalogue_stored = false;
	}
	catalogue_save(n, c);
}

static void restore_types(struct card *c, const json_t *types)
{
	const json_t *item;
	size_t i;

	json_array_foreach((json_t *)types, i, item) {
		const char *name = json_string_value(json_object_get(item, "name"));
		json_int_t id = json_integer_value(json_object_get(item, "id"));
		json_int_t mb = json_integer_value(json_object_get(item, "framebuffer_mb"));
		struct profile p = { 0 };

		if (!name || id <= 0 || id > UINT32_MAX || mb < 0 || mb > UINT32_MAX ||
		    str_copy(p.name, sizeof p.name, name) < 0)
			continue;
		p.type_id = (uint32_t)id;
		p.framebuffer_mb = (uint32_t)mb;
		if (catalogue_add(c, &p) < 0)
			return;
	}
}

void catalogue_forget_recovery(struct node *n, const struct card *c)
{
	for (unsigned i = 0; i < n->n_records; i++) {
		if (!pci_addr_equal(n->records[i].card, c->address))
			continue;
		free(n->records[i].recovery);
		n->records[i].recovery = NULL;
		n->records[i].cordoned = c->cordoned;
	}
}

void catalogue_restore(struct node *n, struct card *c)
{
	for (unsigned i = 0; i < n->n_records; i++) {
		const struct card_record *record = &n->records[i];
		json_t *root;
		const char *name;

		if (!pci_addr_equal(record->card, c->address))
			continue;
		if (!c->recovery)
			c->cordoned = record->cordoned;
		if (record->recovery && !c->recovery)
			recover_restore(n, c, record->recovery);
		if (c->types.n > 0 || !record->catalogue)
			return;
		root = json_loads(record->catalogue, JSON_REJECT_DUPLICATES, NULL);
		if (!root) {
			log_warning("catalogue: stored text is not valid, ignoring it until the "
				    "card is read");
			return;
		}
		name = json_string_value(json_object_get(root, "name"));
		if (name && *name)
			str_copy_cut(c->name, sizeof c->name, name);
		restore_types(c, json_object_get(root, "types"));
		c->catalogue_complete = json_is_true(json_object_get(root, "complete"));
		c->catalogue_stored = true;
		json_decref(root);
		return;
	}
}

void catalogue_set_cordon(struct node *n, struct card *c, bool cordoned)
{
	struct card_record *more;

	c->cordoned = cordoned;
	for (unsigned i = 0; i < n->n_records; i++) {
		if (!pci_addr_equal(n->records[i].card, c->address))
			continue;
		n->records[i].cordoned = cordoned;
		return;
	}
	more = reallocarray(n->records, n->n_records + 1, sizeof *more);
	if (!more)
		return;
	n->records = more;
	more[n->n_records++] = (struct card_record){ .card = c->address, .cordoned = cordoned };
}

bool catalogue_all_complete(const struct node *n)
{
	for (unsigned i = 0; i < n->n_cards; i++)
		if (n->cards[i]->present && n->cards[i]->has_vfs &&
		    !n->cards[i]->catalogue_complete)
			return false;
	return true;
}
