/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a scan of sysfs finds: NVIDIA cards, their VFs, and how they are bound.
 *
 * Only attributes of the PCI core and links are read here; the driver's own attributes (nvidia/...)
 * take the driver's lock and are read by berth-card alone (this module looks whether they exist).
 * A folder listing is no snapshot: whatever vanishes or cannot be read costs that VF or card, with
 * one reason, never the scan. `sriov_numvfs` is not read (it can block during sriov-manage).
 */
#pragma once

#include "base/error.h"
#include "model/pci.h"

#define INVENTORY_CARDS_MAX  64
#define INVENTORY_VFS_MAX    64 /* per card */
#define INVENTORY_REASON_MAX 96

enum inventory_framework {
	FRAMEWORK_NONE,
	FRAMEWORK_VENDOR_VFIO,
	FRAMEWORK_MDEV,
};

struct inventory_vf {
	struct pci_addr address;
	unsigned number;		   /* N of virtfnN */
	char driver[32];		   /* "" when unbound */
	bool vendor_vfio;		   /* bound to nvidia, with nvidia/current_vgpu_type */
	bool mdev;			   /* has mdev_supported_types */
	int vfio_group;			   /* -1: none */
	char vfio_device[24];		   /* "vfio12"; "" none */
	bool vfio_node;			   /* its node is there (inventory_find_nodes()) */
	char reason[INVENTORY_REASON_MAX]; /* why it is not usable; "" when it is (vendor_vfio) */
};

struct inventory_card {
	struct pci_addr address;
	uint32_t device_id; /* PCI device id */
	char driver[32];
	int numa_node;	    /* -1: unset, missing, or not a node of this machine */
	unsigned total_vfs; /* sriov_totalvfs; 0: no SR-IOV */
	int iommu_group;
	unsigned n_vfs;
	struct inventory_vf vfs[INVENTORY_VFS_MAX]; /* by number */
	char reason[INVENTORY_REASON_MAX];	    /* what could not be read of the card */
};

/*
 * The framework is vendor VFIO where a VF shows it; else mdev where a card, a VF or the class
 * mdev_bus shows that; else vendor VFIO where a card with SR-IOV is bound to `nvidia` (its VFs may
 * come later; before they do, a card that will become mdev cannot be told apart); else none.
 */
struct inventory {
	enum inventory_framework framework;
	unsigned n_cards;
	unsigned n_cards_beyond; /* above INVENTORY_CARDS_MAX: left out, the highest addresses */
	bool iommufd;		 /* /dev/iommu is there (inventory_find_nodes()) */
	struct inventory_card
		*cards; /* owned; by address; also cards without SR-IOV (passthrough) */
};

/* Scans `sysfs_root`. -errno only when bus/pci/devices itself cannot be listed. */
int inventory_scan(const char *sysfs_root, struct inventory **ret, struct error *err) _must_check_;
struct inventory *inventory_free(struct inventory *inv);

/* Looks which nodes are in `dev_root`. The kernel makes them together with the entries in sysfs. */
void inventory_find_nodes(struct inventory *inv, const char *dev_root);

/* Both show the same. Two scans in a row that do were not taken in the middle of a change. */
bool inventory_equal(const struct inventory *a, const struct inventory *b);

/* A fingerprint of the names in bus/pci/devices, and of which driver the VFs are bound to is NOT in
 * it: cheap enough for once a second. -errno. */
int inventory_fingerprint(const char *sysfs_root, uint64_t *ret) _must_check_;

const char *inventory_framework_name(
	enum inventory_framework f); /* "vendor_vfio", "mdev", "none" */
