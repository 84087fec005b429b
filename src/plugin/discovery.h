/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From what the host shows to what is offered. Pure: the same input always gives the same result.
 *
 * A VF is offered under the profile that its own card's catalogue (what its VFs list, and what NVML
 * says of that card) gives its type; a type without a name there is left out, never looked up on
 * another card. An IOMMU group with several devices is offered once (the lowest address), for two
 * VMs cannot share it.
 */
#pragma once

#include "model/profile.h"
#include "plugin/host-scan.h"

/* A VF whose type cannot be read stays as it was for one scan: a single failure changes nothing. */
#define READ_FAILURES_BEARABLE 1

struct vf_reading {
	struct pci_addr address;
	bool known;	   /* type_id has been read at least once */
	uint32_t type_id;  /* as last read; 0: free */
	int error;	   /* -errno of the newest read; 0: type_id is current */
	unsigned failures; /* reads in a row that failed */
};

/* What is known of one card besides the inventory. */
struct card_reading {
	struct pci_addr address;
	bool stuck; /* the card's driver does not answer: readings are older */
	char reason[128];
	unsigned n_vfs;
	struct vf_reading vfs[INVENTORY_VFS_MAX];
	struct profile_list catalogue; /* of this card alone, for as long as its VFs are there */
};

struct discovery_input {
	const struct host_scan *host;
	const struct card_reading *const *cards; /* those with vendor-VFIO VFs, any order */
	unsigned n_cards;
	const struct name_map *names; /* NULL: none */
	/* Name of a GPU in pci.ids; 0, or negative where it has none. May be NULL. */
	int (*gpu_name)(uint32_t device_id, char ret[static NAME_SOURCE_MAX], void *userdata);
	void *userdata;
};

/* -ENOMEM. */
int discovery_build(const struct discovery_input *in, struct discovery **ret) _must_check_;
