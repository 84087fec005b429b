/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the plugin needs of the host besides the inventory: functions that share an IOMMU group with
 * a whole GPU, mediated devices, EGM memory.
 *
 * Only the PCI core's attributes and links are read, and the names of mdev types; a vGPU type of a
 * VF is berth-card's to read. It blocks: the scan runs in a worker, the small reads also in
 * Allocate.
 */
#pragma once

#include "host/inventory.h"
#include "plugin/device.h"

#define GROUP_MEMBERS_MAX 16
#define MDEVS_MAX	  1024
#define EGMS_MAX	  32

struct group_member {
	struct pci_addr address;
	char driver[32];      /* "" unbound */
	char vfio_device[24]; /* "vfio3"; "" none */
	bool bridge;	      /* PCI-to-PCI bridges share groups and harm nobody */
};

struct gpu_group {
	struct pci_addr gpu;
	unsigned n;
	struct group_member members[GROUP_MEMBERS_MAX]; /* the GPU itself too */
};

struct mdev {
	char uuid[DEVICE_ID_MAX];
	struct pci_addr parent;
	char type_name[NAME_SOURCE_MAX]; /* "NVIDIA A40-4Q" */
	int group;			 /* -1: none */
};

struct host_scan {
	struct inventory *inventory;
	unsigned n_groups;
	struct gpu_group *groups; /* of the whole GPUs */
	unsigned n_mdevs;
	struct mdev *mdevs;
	unsigned n_egms;
	struct egm egms[EGMS_MAX];
};

/* -errno only when the PCI devices cannot be listed, or memory is out. */
int host_scan_run(const char *sysfs_root, struct host_scan **ret, struct error *err) _must_check_;
struct host_scan *host_scan_free(struct host_scan *s);
static inline void host_scan_freep(struct host_scan **s)
{
	host_scan_free(*s);
}

/* Bound to one of the drivers with which a whole GPU is passed through. */
bool host_is_vfio_driver(const char *driver);

/* Who shares the function's IOMMU group, the function itself included; it alone where the group's
 * folder cannot be listed. */
void host_read_group(const char *sysfs_root, struct pci_addr function, struct gpu_group *ret);

/* The function as it is now, for a last look before it is handed out. -ENOENT: not there. */
struct function_now {
	uint32_t vendor;
	int group; /* -1: none */
	char driver[32];
	char vfio_device[24]; /* "" none */
};
int host_read_function(const char *sysfs_root, struct pci_addr function,
		       struct function_now *ret) _must_check_;
/* Group of an mdev, -1: none. -ENOENT: not there. */
int host_read_mdev_group(const char *sysfs_root, const char *uuid, int *ret) _must_check_;
