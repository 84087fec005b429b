/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A made-up host as plain folders and files below a temporary folder: sys/ and dev/. Attributes are
 * ordinary files, so a write always succeeds and nothing reacts to it; tests of what the driver
 * does use the simulator. Anything that fails ends the test.
 */
#pragma once

#include "model/pci.h"

struct plain_tree {
	char root[64];
	char sys[80];
	char dev[80];
	int next_group;
};

void plain_tree_init(struct plain_tree *t);
void plain_tree_done(struct plain_tree *t); /* removes all of it */

/* Paths are relative to the root; folders above are made. */
void plain_tree_dir(struct plain_tree *t, const char *path);
void plain_tree_write(struct plain_tree *t, const char *path, const char *text);
void plain_tree_link(struct plain_tree *t, const char *path, const char *target);
void plain_tree_remove(struct plain_tree *t, const char *path); /* recursively */
/* Into one of a few static buffers. */
char *plain_tree_path(const struct plain_tree *t, const char *path);
char *plain_tree_read(struct plain_tree *t, const char *path);

/* "sys/bus/pci/devices/<bdf>[/name]", in one of a few static buffers. */
char *plain_tree_device(struct pci_addr a, const char *name);

/* A PF with NVIDIA's attributes, SR-IOV, bound to nvidia. */
void plain_tree_card(struct plain_tree *t, struct pci_addr a, unsigned total_vfs, int numa_node);
/* VF `number` of it at the given distance, of vendor VFIO, free, with group and vfio-dev nodes. */
struct pci_addr plain_tree_vf(struct plain_tree *t, struct pci_addr card, unsigned number,
			      unsigned offset);
struct pci_addr plain_tree_vf_address(struct pci_addr card, unsigned number, unsigned offset);
