/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/discovery.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/str.h"

#define KUBEVIRT_DOMAIN_MAX 0xffff /* KubeVirt takes addresses with four digits of domain only */

struct candidate {
	char resource[RESOURCE_NAME_MAX];
	char source[NAME_SOURCE_MAX];
	struct device device;
};

struct build {
	const struct discovery_input *in;
	struct discovery *d;
	unsigned n, size;
	struct candidate *candidates;
};

static int add_candidate(struct build *b, const struct candidate *c)
{
	if (array_reserve(b->candidates, b->n, b->size) < 0)
		return -ENOMEM;
	b->candidates[b->n++] = *c;
	return 0;
}

/* The operator's name, else one made from the source. */
static int name_resource(const struct build *b, struct candidate *c, const char *map_key,
			 bool pci_ids, struct error *err)
{
	const char *own = name_map_find(b->in->names, map_key);

	if (own)
		return str_copy(c->resource, sizeof c->resource, own);
	return pci_ids ? names_from_pci_ids(c->source, c->resource, err)
		       : names_from_profile(c->source, c->resource, err);
}

/* --- VFs ------------------------------------------------------------------------------------- */

static const struct card_reading *find_reading(const struct build *b, struct pci_addr card)
{
	for (unsigned i = 0; i < b->in->n_cards; i++)
		if (pci_addr_equal(b->in->cards[i]->address, card))
			return b->in->cards[i];
	return NULL;
}

static const struct vf_reading *find_vf_reading(const struct card_reading *c, unsigned hint,
						struct pci_addr vf)
{
	/* Readings follow the inventory's order. */
	if (c && hint < c->n_vfs && pci_addr_equal(c->vfs[hint].address, vf))
		return &c->vfs[hint];
	for (unsigned i = 0; c && i < c->n_vfs; i++)
		if (pci_addr_equal(c->vfs[i].address, vf))
			return &c->vfs[i];
	return NULL;
}

/* Why a VF with a type cannot be offered; "" when it can. */
static void judge_vf(const struct inventory_card *card, const struct inventory_vf *vf, char *ret,
		     size_t size)
{
	ret[0] = '\0';
	if (vf->address.domain > KUBEVIRT_DOMAIN_MAX)
		snprintf(ret, size, "KubeVirt takes no PCI domain above ffff");
	else if (vf->vfio_group < 0)
		snprintf(ret, size, "it has no IOMMU group");
	else if (vf->vfio_group == card->iommu_group)
		snprintf(ret, size, "its IOMMU group %d holds the card itself", vf->vfio_group);
}

static int add_configured(struct build *b, const struct inventory_card *card,
			  const struct inventory_vf *vf, const struct card_reading *reading,
			  const struct vf_reading *state)
{
	struct candidate c = { .device = { .kind = DEVICE_VF,
					   .address = vf->address,
					   .card = card->address,
					   .device_id = card->device_id,
					   .type_id = state->type_id,
					   .group = vf->vfio_group,
					   .numa_node = card->numa_node } };
	const struct profile *p = profile_list_find_id(&reading->catalogue, state->type_id);
	struct error err = ERROR_INIT;
	char bdf[PCI_ADDR_MAX], reason[128];

	pci_addr_format(vf->address, bdf);
	judge_vf(card, vf, reason, sizeof reason);
	if (reason[0])
		return discovery_leave_out(b->d, bdf, "%s", reason);
	if (!p || !p->name[0])
		return discovery_leave_out(b->d, bdf, "neither its card nor NVML names type %u",
					   state->type_id);
	str_copy_cut(c.source, sizeof c.source, p->name);
	if (name_resource(b, &c, p->name, false, &err) < 0)
		return discovery_leave_out(b->d, bdf, "%s", error_text(&err));
	memcpy(c.device.id, bdf, sizeof bdf);
	memcpy(c.device.vfio_device, vf->vfio_device, sizeof vf->vfio_device);
	if (state->failures > READ_FAILURES_BEARABLE)
		snprintf(c.device.problem, sizeof c.device.problem,
			 "its type cannot be read: %.80s",
			 strerrordesc_np(-state->error) ?: reading->reason);
	return add_candidate(b, &c);
}

static int take_vf(struct build *b, const struct inventory_card *card, unsigned i,
		   const struct card_reading *reading)
{
	const struct inventory_vf *vf = &card->vfs[i];
	const struct vf_reading *state = find_vf_reading(reading, i, vf->address);
	char bdf[PCI_ADDR_MAX];

	pci_addr_format(vf->address, bdf);
	if (!vf->vendor_vfio)
		return vf->mdev ? 0 : discovery_leave_out(b->d, bdf, "%s", vf->reason);
	if (!state || !state->known)
		return discovery_leave_out(b->d, bdf, "its type could not be read yet: %s",
					   state && state->error ? strerrordesc_np(-state->error)
									   ?: reading->reason
								 : "not asked");
	if (state->type_id == 0) {
		b->d->n_free++;
		return 0;
	}
	return add_configured(b, card, vf, reading, state);
}

/* --- Whole GPUs ------------------------------------------------------------------------------ */

static const struct gpu_group *find_group(const struct build *b, struct pci_addr gpu)
{
	for (unsigned i = 0; i < b->in->host->n_groups; i++)
		if (pci_addr_equal(b->in->host->groups[i].gpu, gpu))
			return &b->in->host->groups[i];
	return NULL;
}

static void judge_gpu(const struct build *b, const struct inventory_card *card, char *ret,
		      size_t size)
{
	const struct gpu_group *g = find_group(b, card->address);

	ret[0] = '\0';
	if (card->n_vfs > 0)
		snprintf(ret, size, "it has VFs, so it cannot be passed through whole");
	else if (card->address.domain > KUBEVIRT_DOMAIN_MAX)
		snprintf(ret, size, "KubeVirt takes no PCI domain above ffff");
	else if (card->iommu_group < 0)
		snprintf(ret, size, "it has no IOMMU group");
	for (unsigned i = 0; !ret[0] && g && i < g->n; i++) {
		const struct group_member *m = &g->members[i];
		char bdf[PCI_ADDR_MAX];

		/* The kernel lets a group go to a VM only as a whole. */
		if (!m->driver[0] || m->bridge || host_is_vfio_driver(m->driver) ||
		    strcmp(m->driver, "pci-stub") == 0)
			continue;
		snprintf(ret, size, "%s in its IOMMU group %d is bound to %s",
			 pci_addr_format(m->address, bdf), card->iommu_group, m->driver);
	}
}

/* Named by the operator's map, by pci.ids, else after its id. */
static int name_gpu(const struct build *b, const struct inventory_card *card, struct candidate *c,
		    struct error *err)
{
	char key[16];

	snprintf(key, sizeof key, "10de:%04x", card->device_id);
	if (b->in->gpu_name && b->in->gpu_name(card->device_id, c->source, b->in->userdata) == 0 &&
	    name_resource(b, c, key, true, err) == 0)
		return 0;
	*err = ERROR_INIT;
	snprintf(c->source, sizeof c->source, "%04x", card->device_id);
	return name_resource(b, c, key, false, err);
}

static int take_gpu(struct build *b, const struct inventory_card *card)
{
	struct candidate c = { .device = { .kind = DEVICE_GPU,
					   .address = card->address,
					   .card = card->address,
					   .device_id = card->device_id,
					   .group = card->iommu_group,
					   .numa_node = card->numa_node } };
	const struct gpu_group *g = find_group(b, card->address);
	struct error err = ERROR_INIT;
	char bdf[PCI_ADDR_MAX], reason[128];

	pci_addr_format(card->address, bdf);
	judge_gpu(b, card, reason, sizeof reason);
	if (reason[0])
		return discovery_leave_out(b->d, bdf, "%s", reason);
	if (name_gpu(b, card, &c, &err) < 0)
		return discovery_leave_out(b->d, bdf, "%s", error_text(&err));
	memcpy(c.device.id, bdf, sizeof bdf);
	for (unsigned i = 0; g && i < g->n; i++)
		if (pci_addr_equal(g->members[i].address, card->address))
			memcpy(c.device.vfio_device, g->members[i].vfio_device,
			       sizeof c.device.vfio_device);
	return add_candidate(b, &c);
}

/* --- Mediated devices ------------------------------------------------------------------------ */

/* The NVIDIA card that has the function, itself or as a VF; NULL for other vendors' devices. */
static const struct inventory_card *find_card_of(const struct inventory *inv,
						 struct pci_addr function)
{
	for (unsigned c = 0; c < inv->n_cards; c++) {
		if (pci_addr_equal(inv->cards[c].address, function))
			return &inv->cards[c];
		for (unsigned i = 0; i < inv->cards[c].n_vfs; i++)
			if (pci_addr_equal(inv->cards[c].vfs[i].address, function))
				return &inv->cards[c];
	}
	return NULL;
}

static int take_mdev(struct build *b, const struct mdev *m)
{
	const struct inventory_card *card = find_card_of(b->in->host->inventory, m->parent);
	struct candidate c = {
		.device = { .kind = DEVICE_MDEV, .address = m->parent, .group = m->group }
	};
	struct error err = ERROR_INIT;

	if (!card)
		return 0;
	if (m->group < 0)
		return discovery_leave_out(b->d, m->uuid, "it has no IOMMU group");
	c.device.card = card->address;
	c.device.device_id = card->device_id;
	c.device.numa_node = card->numa_node;
	memcpy(c.device.id, m->uuid, sizeof m->uuid);
	str_copy_cut(c.source, sizeof c.source, m->type_name);
	if (name_resource(b, &c, m->type_name, false, &err) < 0)
		return discovery_leave_out(b->d, m->uuid, "%s", error_text(&err));
	return add_candidate(b, &c);
}

/* --- What pods may have though it is not offered --------------------------------------------- */

static int add_function(struct build *b, const struct inventory_card *card,
			const struct inventory_vf *vf)
{
	struct device d = { .kind = vf ? DEVICE_VF : DEVICE_GPU,
			    .address = vf ? vf->address : card->address,
			    .card = card->address,
			    .device_id = card->device_id,
			    .group = vf ? vf->vfio_group : card->iommu_group,
			    .numa_node = card->numa_node };

	pci_addr_format(d.address, d.id);
	return discovery_add_function(b->d, &d);
}

static int add_name(struct build *b, const struct candidate *c)
{
	struct device_name name = { .card = c->device.card, .kind = c->device.kind };

	memcpy(name.resource, c->resource, sizeof name.resource);
	memcpy(name.source, c->source, sizeof name.source);
	return discovery_add_name(b->d, &name);
}

static int add_functions(struct build *b, const struct inventory_card *card,
			 const struct card_reading *reading)
{
	struct candidate c = { .device = { .kind = DEVICE_VF, .card = card->address } };
	struct error err = ERROR_INIT;
	int r = add_function(b, card, NULL);

	for (unsigned i = 0; r >= 0 && i < card->n_vfs; i++)
		r = add_function(b, card, &card->vfs[i]);
	for (unsigned i = 0; r >= 0 && reading && i < reading->catalogue.n; i++) {
		str_copy_cut(c.source, sizeof c.source, reading->catalogue.items[i].name);
		if (name_resource(b, &c, c.source, false, &err) == 0)
			r = add_name(b, &c);
	}
	c.device.kind = DEVICE_GPU;
	if (r >= 0 && card->n_vfs == 0 && name_gpu(b, card, &c, &err) == 0)
		r = add_name(b, &c);
	return r;
}

/* --- Groups, and the result ------------------------------------------------------------------ */

static int compare_candidates(const void *a, const void *b)
{
	const struct device *x = &((const struct candidate *)a)->device;
	const struct device *y = &((const struct candidate *)b)->device;
	int r;

	if (x->group != y->group)
		return x->group < y->group ? -1 : 1;
	r = pci_addr_compare(x->address, y->address);
	return r ? r : strcmp(x->id, y->id);
}

static int add_devices(struct build *b)
{
	struct error err = ERROR_INIT;

	if (b->n > 0)
		qsort(b->candidates, b->n, sizeof b->candidates[0], compare_candidates);
	for (unsigned i = 0; i < b->n; i++) {
		const struct candidate *c = &b->candidates[i], *first = c;
		int r;

		while (first > b->candidates && first[-1].device.group == c->device.group)
			first--;
		if (first != c)
			r = discovery_leave_out(
				b->d, c->device.id,
				"IOMMU group %d is offered once, as %s: no two VMs can share it",
				c->device.group, first->device.id);
		else
			r = discovery_add(b->d, c->resource, c->source, &c->device, &err);
		if (r == -EEXIST)
			r = discovery_leave_out(b->d, c->device.id, "%s", error_text(&err));
		if (r < 0)
			return r;
	}
	discovery_sort(b->d);
	return 0;
}

static int take_host(struct build *b)
{
	const struct host_scan *host = b->in->host;
	int r = 0;

	for (unsigned c = 0; r >= 0 && c < host->inventory->n_cards; c++) {
		const struct inventory_card *card = &host->inventory->cards[c];
		const struct card_reading *reading = find_reading(b, card->address);

		r = add_functions(b, card, reading);
		if (r >= 0 && host_is_vfio_driver(card->driver))
			r = take_gpu(b, card);
		for (unsigned i = 0; r >= 0 && i < card->n_vfs; i++)
			r = take_vf(b, card, i, reading);
	}
	for (unsigned i = 0; r >= 0 && i < host->n_mdevs; i++)
		r = take_mdev(b, &host->mdevs[i]);
	if (r < 0 || host->n_egms == 0)
		return r;
	b->d->egms = calloc(host->n_egms, sizeof *b->d->egms);
	if (!b->d->egms)
		return -ENOMEM;
	memcpy(b->d->egms, host->egms, host->n_egms * sizeof *b->d->egms);
	b->d->n_egms = host->n_egms;
	return 0;
}

int discovery_build(const struct discovery_input *in, struct discovery **ret)
{
	_cleanup_(discovery_freep) struct discovery *d = discovery_new();
	struct build b = { .in = in, .d = d };
	int r;

	if (!d)
		return -ENOMEM;
	r = take_host(&b);
	if (r >= 0)
		r = add_devices(&b);
	free(b.candidates);
	if (r < 0)
		return r;
	*ret = TAKE(d);
	return 0;
}
