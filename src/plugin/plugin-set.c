/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/plugin-set.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

/* --- What others say ------------------------------------------------------------------------- */

void pod_devices_done(struct pod_devices *p)
{
	free(p->items);
	p->items = NULL;
	p->n = 0;
}

int pod_devices_add(struct pod_devices *p, const char *resource, size_t resource_len,
		    const char *id)
{
	struct pod_device *all = p->items;

	if (resource_len >= RESOURCE_NAME_MAX || strlen(id) >= DEVICE_ID_MAX)
		return 0; /* none of ours looks like that */
	if (p->n == POD_DEVICES_MAX)
		return -E2BIG;
	if (p->n % 64 == 0)
		all = reallocarray(p->items, p->n + 64, sizeof *all);
	if (!all)
		return -ENOMEM;
	p->items = all;
	memcpy(all[p->n].resource, resource, resource_len);
	all[p->n].resource[resource_len] = '\0';
	str_copy_cut(all[p->n].id, sizeof all[p->n].id, id);
	p->n++;
	return 0;
}

bool pod_devices_have(const struct pod_devices *p, const char *resource, const char *id)
{
	for (unsigned i = 0; i < p->n; i++)
		if (strcmp(p->items[i].id, id) == 0 && strcmp(p->items[i].resource, resource) == 0)
			return true;
	return false;
}

bool quarantine_has(const struct quarantine *q, struct pci_addr vf)
{
	if (q->unreadable && !q->loaded)
		return true;
	for (unsigned i = 0; i < q->n; i++)
		if (pci_addr_equal(q->vfs[i], vf))
			return true;
	return false;
}

/* May a pod have it? Yes, where that is not known. */
static bool may_be_had(const struct pod_devices *pods, const char *resource, const char *id)
{
	return !pods->asked || !pods->known || pod_devices_have(pods, resource, id);
}

/* --- The next set ---------------------------------------------------------------------------- */

struct compute {
	const struct discovery *scanned, *current;
	const struct pod_devices *pods;
	const struct quarantine *quarantine;
	struct discovery *next;
};

/* The resource under which another list has the device, or NULL. */
static const struct resource *holder_of(const struct discovery *d, const char *id)
{
	for (unsigned i = 0; d && i < d->n_resources; i++)
		if (resource_find(&d->resources[i], id))
			return &d->resources[i];
	return NULL;
}

/* The name under which a pod has the device, if it is another one than the scan found: it is not
 * for others. */
static const char *had_elsewhere(const struct compute *c, const struct resource *r, const char *id)
{
	const struct resource *old = holder_of(c->current, id);

	if (!c->pods->asked || pod_devices_have(c->pods, r->name, id))
		return NULL;
	if (old && strcmp(old->name, r->name) != 0 && may_be_had(c->pods, old->name, id))
		return old->name;
	/* Since before this plugin was started, perhaps. */
	for (unsigned i = 0; i < c->pods->n; i++)
		if (strcmp(c->pods->items[i].id, id) == 0)
			return c->pods->items[i].resource;
	return NULL;
}

static int take_scanned(struct compute *c, const struct resource *r, const struct device *found)
{
	const char *had = had_elsewhere(c, r, found->id);
	const struct resource *old_resource = c->current ? discovery_find(c->current, r->name)
							 : NULL;
	const struct device *old = old_resource ? resource_find(old_resource, found->id) : NULL;
	struct device d = *found;

	if (had)
		return discovery_leave_out(c->next, d.id, "a pod has it as %.120s", had);
	d.quarantined = d.kind == DEVICE_VF && quarantine_has(c->quarantine, d.address);
	if (d.quarantined && c->pods->asked && !may_be_had(c->pods, r->name, d.id))
		return discovery_leave_out(c->next, d.id, "quarantined by berthd");
	if (old)
		memcpy(d.presence, old->presence, sizeof d.presence);
	return discovery_add(c->next, r->name, r->source, &d, NULL);
}

static int keep(struct compute *c, const char *resource, const char *source,
		const struct device *device)
{
	const struct resource *other = holder_of(c->scanned, device->id);
	const char *reason = discovery_reason(c->scanned, device->id);
	struct error err = ERROR_INIT;
	struct device d = *device;
	int r;

	d.kept = true;
	d.quarantined = false;
	if (other)
		snprintf(d.problem, sizeof d.problem, "reconfigured as %.60s while a pod has it",
			 other->source);
	else
		str_copy_cut(d.problem, sizeof d.problem,
			     reason ?: "gone or without its type while a pod has it");
	r = discovery_add(c->next, resource, source, &d, &err);
	return r == -EEXIST ? discovery_leave_out(c->next, d.id, "%s", error_text(&err)) : r;
}

/* IDs that the scan does not have any more but pods do. */
static int keep_had(struct compute *c, const struct resource *old, const struct device *device)
{
	const struct resource *now = discovery_find(c->scanned, old->name);

	if ((now && resource_find(now, device->id)) || !may_be_had(c->pods, old->name, device->id))
		return 0;
	return keep(c, old->name, old->source, device);
}

static const struct device *find_function(const struct discovery *d, const char *id)
{
	for (unsigned i = 0; i < d->n_functions; i++)
		if (strcmp(d->functions[i].id, id) == 0)
			return &d->functions[i];
	return NULL;
}

static const struct device_name *find_name(const struct discovery *d, const struct device *function,
					   const char *resource)
{
	for (unsigned i = 0; i < d->n_names; i++)
		if (d->names[i].kind == function->kind &&
		    pci_addr_equal(d->names[i].card, function->card) &&
		    strcmp(d->names[i].resource, resource) == 0)
			return &d->names[i];
	return NULL;
}

/* What a pod has had since before this plugin was started, and the scan does not offer: known by
 * its name, which no other plugin's devices have. A resource of somebody else is never touched. */
static int keep_older(struct compute *c, const struct pod_device *had)
{
	const struct resource *r = discovery_find(c->next, had->resource);
	const struct device *function = find_function(c->scanned, had->id);
	const struct device_name *name = function ? find_name(c->scanned, function, had->resource)
						  : NULL;
	struct device gone = { .group = -1, .numa_node = -1 };

	if (r && resource_find(r, had->id))
		return 0;
	if (name)
		return keep(c, had->resource, r ? r->source : name->source, function);
	if (!r || function)
		return 0;
	/* Of one of ours, and off the bus. */
	gone.kind = r->kind;
	gone.device_id = r->device_id;
	str_copy_cut(gone.id, sizeof gone.id, had->id);
	if (gone.kind != DEVICE_MDEV && pci_addr_parse(gone.id, &gone.address) < 0)
		return 0;
	return keep(c, r->name, r->source, &gone);
}

static int copy_rest(struct compute *c)
{
	const struct discovery *s = c->scanned;

	c->next->n_free = s->n_free;
	for (unsigned i = 0; i < s->n_left_out; i++)
		if (discovery_leave_out(c->next, s->left_out[i].id, "%s", s->left_out[i].reason) <
		    0)
			return -ENOMEM;
	if (s->n_egms == 0)
		return 0;
	c->next->egms = calloc(s->n_egms, sizeof *s->egms);
	if (!c->next->egms)
		return -ENOMEM;
	memcpy(c->next->egms, s->egms, s->n_egms * sizeof *s->egms);
	c->next->n_egms = s->n_egms;
	return 0;
}

int plugin_set_compute(const struct discovery *scanned, const struct discovery *current,
		       const struct pod_devices *pods, const struct quarantine *quarantine,
		       struct discovery **ret)
{
	_cleanup_(discovery_freep) struct discovery *next = discovery_new();
	struct compute c = { scanned, current, pods, quarantine, next };
	int r;

	if (!next)
		return -ENOMEM;
	r = copy_rest(&c);
	for (unsigned i = 0; r >= 0 && i < scanned->n_resources; i++)
		for (unsigned k = 0; r >= 0 && k < scanned->resources[i].n_devices; k++)
			r = take_scanned(&c, &scanned->resources[i],
					 &scanned->resources[i].devices[k]);
	for (unsigned i = 0; r >= 0 && pods->asked && current && i < current->n_resources; i++)
		for (unsigned k = 0; r >= 0 && k < current->resources[i].n_devices; k++)
			r = keep_had(&c, &current->resources[i], &current->resources[i].devices[k]);
	for (unsigned i = 0; r >= 0 && i < pods->n; i++)
		r = keep_older(&c, &pods->items[i]);
	if (r < 0)
		return r;
	discovery_sort(next);
	*ret = TAKE(next);
	return 0;
}

/* --- Differences ----------------------------------------------------------------------------- */

static bool reads_alike(const struct device *a, const struct device *b)
{
	return a->numa_node == b->numa_node && !device_problem(a) == !device_problem(b);
}

/* Both are sorted by id. True when nothing that a list shows differs. */
static bool compare_resource(const struct resource *from, const struct resource *to,
			     struct set_change *c)
{
	unsigned i = 0, k = 0;
	bool alike = true;

	while (i < from->n_devices || k < to->n_devices) {
		int r = i == from->n_devices ? 1
			: k == to->n_devices ? -1
					     : strcmp(from->devices[i].id, to->devices[k].id);

		if (r < 0)
			c->removed++;
		else if (r > 0)
			c->added++;
		else
			alike &= reads_alike(&from->devices[i], &to->devices[k]);
		i += r <= 0;
		k += r >= 0;
	}
	return alike && c->added == 0 && c->removed == 0;
}

int plugin_set_diff(const struct discovery *from, const struct discovery *to,
		    struct set_change **ret, unsigned *ret_n)
{
	unsigned n_from = from ? from->n_resources : 0, n = 0;
	struct set_change *changes = calloc(n_from + to->n_resources + 1U, sizeof *changes);

	if (!changes)
		return -ENOMEM;
	for (unsigned i = 0; i < to->n_resources; i++) {
		const struct resource *r = &to->resources[i];
		const struct resource *old = from ? discovery_find(from, r->name) : NULL;
		struct set_change c = { .kind = old ? SET_CHANGE_UPDATE : SET_CHANGE_START };

		if (old && compare_resource(old, r, &c))
			continue;
		if (!old)
			c.added = r->n_devices;
		memcpy(c.resource, r->name, sizeof r->name);
		changes[n++] = c;
	}
	for (unsigned i = 0; i < n_from; i++) {
		struct set_change c = { .kind = SET_CHANGE_STOP,
					.removed = from->resources[i].n_devices };

		if (discovery_find(to, from->resources[i].name))
			continue;
		memcpy(c.resource, from->resources[i].name, sizeof c.resource);
		changes[n++] = c;
	}
	*ret = changes;
	*ret_n = n;
	return 0;
}
