/* SPDX-License-Identifier: Apache-2.0 */
/* The /dev tree. Its nodes are plain files of the FUSE mount; opening one is what counts. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "sim/simtree.h"

enum dev_folder {
	DEV_VFIO,
	DEV_VFIO_DEVICES,
};

enum dev_plain {
	PLAIN_NVIDIACTL,
	PLAIN_IOMMU,
	PLAIN_VFIO,
};

/* Nodes of an earlier boot are other nodes. */
static struct sim_node plain_node(const struct sim *sim, enum dev_plain which)
{
	return (struct sim_node){ .kind = SIM_KIND_DEV_PLAIN,
				  .attr = which,
				  .generation = sim->boot };
}

static void list_root(struct sim *sim, struct sim_listing *l)
{
	struct sim_node node = plain_node(sim, PLAIN_NVIDIACTL);

	sim_listing_add(l, "vfio",
			&(struct sim_node){ .kind = SIM_KIND_DEV_FOLDER, .attr = DEV_VFIO });
	sim_listing_add(l, "nvidiactl", &node);
	node = plain_node(sim, PLAIN_IOMMU);
	sim_listing_add(l, "iommu", &node);
	for (uint32_t i = 0; i < sim->card_count; i++) {
		char name[24];

		if (!sim->cards[i].present)
			continue;
		snprintf(name, sizeof(name), "nvidia%u", i);
		node = sim_function_node(&sim->cards[i], SIM_FUNCTION_PF, SIM_KIND_DEV_NVIDIA, 0);
		sim_listing_add(l, name, &node);
	}
}

/* The VF that stands for its IOMMU group: the first visible one in it. */
static bool is_first_of_group(struct sim *sim, const struct sim_vf *vf)
{
	for (uint32_t i = 0; i < sim->card_count; i++)
		for (uint32_t j = 0; j < sim->cards[i].vf_count; j++) {
			const struct sim_vf *other = &sim->cards[i].vfs[j];

			if (other->group == vf->group && sim_vf_visible(other))
				return other == vf;
		}
	return false;
}

static void list_vfio(struct sim *sim, bool devices, struct sim_listing *l)
{
	for (uint32_t i = 0; i < sim->card_count; i++)
		for (uint32_t j = 0; j < sim->cards[i].vf_count; j++) {
			struct sim_vf *vf = &sim->cards[i].vfs[j];
			struct sim_node node = sim_function_node(
				vf->card, j, devices ? SIM_KIND_DEV_VFIO : SIM_KIND_DEV_GROUP, 0);
			char name[24];

			if (!sim_vf_visible(vf))
				continue;
			snprintf(name, sizeof(name), devices ? "vfio%u" : "%u",
				 devices ? vf->vfio : vf->group);
			if (devices || is_first_of_group(sim, vf))
				sim_listing_add(l, name, &node);
		}
}

int simdev_list(struct sim *sim, uint64_t ino, struct sim_listing *l)
{
	struct sim_node node = sim_node_unpack(ino), plain = plain_node(sim, PLAIN_VFIO);

	if (node.kind == SIM_KIND_DEV_ROOT) {
		list_root(sim, l);
	} else if (node.kind == SIM_KIND_DEV_FOLDER && node.attr == DEV_VFIO) {
		sim_listing_add(l, "vfio", &plain);
		sim_listing_add(l, "devices",
				&(struct sim_node){ .kind = SIM_KIND_DEV_FOLDER,
						    .attr = DEV_VFIO_DEVICES });
		list_vfio(sim, false, l);
	} else if (node.kind == SIM_KIND_DEV_FOLDER) {
		list_vfio(sim, true, l);
	} else {
		return -ENOTDIR;
	}
	return l->failed ? -ENOMEM : 0;
}

static bool alive(struct sim *sim, const struct sim_node *node)
{
	if (node->kind == SIM_KIND_DEV_PLAIN)
		return node->generation == (sim->boot & 0xffff);
	return sim_node_alive(sim, node);
}

mode_t simdev_mode(uint64_t ino)
{
	struct sim_node node = sim_node_unpack(ino);

	if (node.kind == SIM_KIND_DEV_ROOT || node.kind == SIM_KIND_DEV_FOLDER)
		return S_IFDIR | 0755;
	/* As udev makes them: VFIO and iommufd for root, the rest for everybody. */
	if (node.kind == SIM_KIND_DEV_NVIDIA ||
	    (node.kind == SIM_KIND_DEV_PLAIN && node.attr != PLAIN_IOMMU))
		return S_IFREG | 0666;
	return S_IFREG | 0600;
}

static void count_vf(struct simdev_handle *h, struct sim_vf *vf)
{
	if (h->count >= ARRAY_SIZE(h->vf))
		return;
	h->vf[h->count] = vf;
	h->generation[h->count++] = vf->generation;
	vf->open_count++;
}

static int open_vfio(struct sim *sim, const struct sim_node *node, struct simdev_handle *h)
{
	struct sim_vf *named = &sim->cards[node->card].vfs[node->fn];

	if (node->kind == SIM_KIND_DEV_VFIO) {
		if (!named->type && !named->rebound)
			return -ENODEV;
		count_vf(h, named);
		return 0;
	}
	for (uint32_t i = 0; i < sim->card_count; i++)
		for (uint32_t j = 0; j < sim->cards[i].vf_count; j++) {
			struct sim_vf *vf = &sim->cards[i].vfs[j];

			if (vf->group == named->group && sim_vf_visible(vf) &&
			    (vf->type || vf->rebound))
				count_vf(h, vf);
		}
	return h->count ? 0 : -ENODEV;
}

int simdev_open(struct sim *sim, uint64_t ino, struct simdev_handle *ret)
{
	struct sim_node node = sim_node_unpack(ino);
	struct simdev_handle h = { .boot = sim->boot };
	int r = 0;

	if (!alive(sim, &node))
		return -ENXIO;
	if (node.kind == SIM_KIND_DEV_NVIDIA) {
		h.card = &sim->cards[node.card];
		h.card_generation = h.card->generation;
		h.card->node_open_count++;
	} else if (node.kind == SIM_KIND_DEV_PLAIN) {
		h.ctl = node.attr == PLAIN_NVIDIACTL;
		sim->ctl_open_count += h.ctl;
	} else {
		r = open_vfio(sim, &node, &h);
	}
	if (r == 0)
		*ret = h;
	return r;
}

void simdev_close(struct sim *sim, struct simdev_handle *handle)
{
	for (uint32_t i = 0; i < handle->count; i++)
		if (handle->vf[i]->generation == handle->generation[i] &&
		    handle->vf[i]->open_count > 0)
			handle->vf[i]->open_count--;
	if (handle->card && handle->card->generation == handle->card_generation &&
	    handle->card->node_open_count > 0)
		handle->card->node_open_count--;
	if (handle->ctl && handle->boot == sim->boot && sim->ctl_open_count > 0)
		sim->ctl_open_count--;
	*handle = (struct simdev_handle){ 0 };
}
