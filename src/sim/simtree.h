/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated files as a tree of numbered nodes: sysfs (simsys.c) and /dev (simdev.c).
 *
 * A node has no object: its inode number says what it is (kind, card, function, attribute), so the
 * tree is always what the driver model is at that moment and nothing has to be kept in step. The
 * number holds a generation too: a node of a function that went and came back is another node, and
 * the old one answers ENODEV, as kernfs does. This module knows nothing of FUSE.
 */
#pragma once

#include <sys/stat.h>

#include "base/macro.h"
#include "sim/simcard.h"

#define SIM_ATTRIBUTE_SIZE 4096
#define SIM_FUNCTION_PF	   0xffU /* as `fn`: the card's own function */

enum sim_kind {
	/* folders of sysfs */
	SIM_KIND_SYS_ROOT = 1,
	SIM_KIND_SYS_FOLDER, /* attr: enum of simsys.c */
	SIM_KIND_DRIVER,     /* attr: 0 nvidia, 1 vfio-pci */
	SIM_KIND_PCI_ROOT,   /* of that card's bus */
	SIM_KIND_FUNCTION,
	SIM_KIND_NVIDIA,   /* <VF>/nvidia */
	SIM_KIND_VFIO_DEV, /* <VF>/vfio-dev */
	SIM_KIND_VFIO_N,   /* <VF>/vfio-dev/vfioN */
	SIM_KIND_GROUP,	   /* kernel/iommu_groups/N: named by any of its functions */
	SIM_KIND_GROUP_DEVICES,
	/* files of sysfs */
	SIM_KIND_FUNCTION_ATTRIBUTE,
	SIM_KIND_NVIDIA_ATTRIBUTE,
	SIM_KIND_TEXT, /* attr: enum of simsys.c */
	/* symbolic links of sysfs */
	SIM_KIND_BUS_LINK,	/* bus/pci/devices/X, bus/pci/drivers/D/X (attr 1) */
	SIM_KIND_GROUP_LINK,	/* kernel/iommu_groups/N/devices/X */
	SIM_KIND_FUNCTION_LINK, /* attr: enum of simsys.c; virtfnN and physfn among them */
	SIM_KIND_VIRTFN_LINK,
	/* /dev */
	SIM_KIND_DEV_ROOT,
	SIM_KIND_DEV_FOLDER, /* attr: enum of simdev.c */
	SIM_KIND_DEV_PLAIN,  /* attr: enum of simdev.c: nodes that belong to no card */
	SIM_KIND_DEV_NVIDIA, /* nvidiaN */
	SIM_KIND_DEV_GROUP,  /* vfio/<group>: named by its first VF */
	SIM_KIND_DEV_VFIO,   /* vfio/devices/vfioN */
};

struct sim_node {
	enum sim_kind kind;
	uint32_t card, fn, attr;
	uint32_t generation;
};

uint64_t sim_node_pack(const struct sim_node *node);
struct sim_node sim_node_unpack(uint64_t ino);

struct sim_entry {
	uint64_t ino;
	char name[48];
};

/* Collects the entries of a folder, or looks for one name. */
struct sim_listing {
	const char *wanted; /* NULL: collect all */
	bool found;
	bool failed; /* out of memory */
	struct sim_entry match;
	struct sim_entry *entries; /* owned */
	size_t count, cap;
};

void sim_listing_done(struct sim_listing *l);
void sim_listing_add(struct sim_listing *l, const char *name, const struct sim_node *node);

/* The present number of a function's node, generation included. */
struct sim_node sim_function_node(const struct sim_card *card, uint32_t fn, enum sim_kind kind,
				  uint32_t attr);
/* Does the function that the node stands for still exist, in the node's generation? */
bool sim_node_alive(const struct sim *sim, const struct sim_node *node);
static inline const char *sim_function_address(const struct sim_card *card, uint32_t fn)
{
	return fn == SIM_FUNCTION_PF ? card->address : card->vfs[fn].address;
}

/* --- sysfs (simsys.c) ------------------------------------------------------------------------ */

/* Entries of a folder. -ENOENT if it is gone. */
int simsys_list(struct sim *sim, uint64_t ino, struct sim_listing *l) _must_check_;
/* S_IFDIR, S_IFREG or S_IFLNK with permissions; also of a node that is gone (fstat of an open
 * file). */
mode_t simsys_mode(uint64_t ino);
int simsys_readlink(struct sim *sim, uint64_t ino, char ret[SIM_ATTRIBUTE_SIZE]) _must_check_;
/* Makes the text of an attribute. Its length, or the driver's -errno. */
ssize_t simsys_read(struct sim *sim, uint64_t ino, char ret[SIM_ATTRIBUTE_SIZE]) _must_check_;
/* 0 or the driver's -errno. */
int simsys_write(struct sim *sim, uint64_t ino, const char *data, size_t n) _must_check_;
/* The VF whose nvidia/ folder holds this file, else NULL: faults and counters concern only these.
 */
struct sim_vf *simsys_attribute_vf(struct sim *sim, uint64_t ino);
/* A write to this node is a release: "0" to current_vgpu_type. */
bool simsys_is_release(uint64_t ino, const char *data, size_t n);

/* The file is a VF's placement_id. */
bool simsys_is_placement(uint64_t ino);
/* Reading has to wait until a sriov-manage run is over (sriov_numvfs). */
bool simsys_is_blocked(struct sim *sim, uint64_t ino);

/* --- /dev (simdev.c) ------------------------------------------------------------------------- */

int simdev_list(struct sim *sim, uint64_t ino, struct sim_listing *l) _must_check_;
mode_t simdev_mode(uint64_t ino);

/* What an open handle counts for; functions that were reset since do not have it any more. */
struct simdev_handle {
	uint32_t count;
	struct sim_vf *vf[8];
	uint32_t generation[8];
	struct sim_card *card;
	uint32_t card_generation;
	bool ctl;
	uint32_t boot;
};

/* 0, or the driver's -errno (-ENODEV: the VF has no type). */
int simdev_open(struct sim *sim, uint64_t ino, struct simdev_handle *ret) _must_check_;
void simdev_close(struct sim *sim, struct simdev_handle *handle);
