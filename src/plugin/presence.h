/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Are the functions and their VFIO nodes there? Three folder listings tell it of all devices.
 *
 * Nothing tells of sysfs changes, and the devices' nodes may come back at any time, so this is
 * looked at every few seconds and whenever the set changes.
 */
#pragma once

#include "plugin/device.h"

#define GROUPS_MAX	 65536
#define VFIO_DEVICES_MAX 65536

struct presence {
	bool functions_known;
	unsigned n_functions, size_functions;
	struct pci_addr *functions; /* owned; sorted */
	bool vfio_node;		    /* /dev/vfio/vfio */
	bool iommu_node;	    /* /dev/iommu */
	uint8_t groups[GROUPS_MAX / 8];
	uint8_t vfio_devices[VFIO_DEVICES_MAX / 8];
};

/* Looks. What cannot be listed counts as last seen for functions, as missing for nodes. */
void presence_look(struct presence *p, const char *sysfs_root, const char *dev_root);
void presence_done(struct presence *p);

/* Sets d->presence; true when that turned a healthy device into an unhealthy one or back. */
bool presence_judge(const struct presence *p, struct device *d);
bool presence_has_vfio_device(const struct presence *p, const char *name);
