/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is offered to Kubernetes: resources, each with its devices, and what is left out and why.
 *
 * A device is a VF with a vGPU type, a GPU that is passed through whole, or a mediated device.
 * These structures are plain values; discovery builds them, the set keeps the ones in force.
 */
#pragma once

#include "base/error.h"
#include "model/pci.h"
#include "plugin/names.h"

#define DEVICE_ID_MAX	   40 /* a PCI address or a UUID; with NUL */
#define DEVICE_PROBLEM_MAX 112

enum device_kind {
	DEVICE_VF,   /* SR-IOV function, bound to nvidia, with a vGPU type */
	DEVICE_GPU,  /* whole GPU, bound to a VFIO driver */
	DEVICE_MDEV, /* vGPU of the mdev framework */
};

const char *device_kind_name(enum device_kind kind); /* "vgpu", "gpu", "mdev" */

struct device {
	enum device_kind kind;
	char id[DEVICE_ID_MAX];
	struct pci_addr address; /* of the function; of an mdev its parent */
	struct pci_addr card;	 /* of a VF its physical function; else as address */
	uint32_t device_id;	 /* PCI device id */
	uint32_t type_id;	 /* of a VF */
	int group;		 /* IOMMU group */
	int numa_node;		 /* -1: unset */
	char vfio_device[24];	 /* "vfio12"; "" none */
	/* Why it is Unhealthy, in the order they count; "" where nothing is wrong. */
	char problem[DEVICE_PROBLEM_MAX];  /* found by the scan, or an ID that a pod keeps listed */
	char presence[DEVICE_PROBLEM_MAX]; /* a node or the function is missing */
	bool quarantined;		   /* by a berthd on this host */
	bool kept;			   /* gone from the scan; listed because a pod has it */
};

/* The first reason, or NULL for a healthy device. */
const char *device_problem(const struct device *d);

struct resource {
	char name[RESOURCE_NAME_MAX];
	char source[NAME_SOURCE_MAX]; /* what the driver, pci.ids or the PCI id says */
	enum device_kind kind;
	uint32_t device_id;
	unsigned n_devices;
	struct device *devices; /* owned; by id */
};

struct left_out {
	char id[DEVICE_ID_MAX];
	char reason[160];
};

/* A memory of Grace that belongs to some GPUs: its node goes with all of them only. */
#define EGM_GPUS_MAX 16
struct egm {
	char name[16]; /* "egm4", as in /dev */
	unsigned n_gpus;
	struct pci_addr gpus[EGM_GPUS_MAX];
};

/* A name under which functions of a card could be offered. */
struct device_name {
	struct pci_addr card;
	enum device_kind kind;
	char resource[RESOURCE_NAME_MAX];
	char source[NAME_SOURCE_MAX];
};

struct discovery {
	unsigned n_resources;
	struct resource *resources; /* owned; by name */
	unsigned n_left_out;
	struct left_out *left_out; /* owned */
	unsigned n_free;	   /* VFs without a type */
	unsigned n_egms;
	struct egm *egms; /* owned */
	/* Of a scan only: all functions of the cards, offered or not, and the names that those of
	 * each card can have. A pod may have one that is offered no more. */
	unsigned n_functions;
	struct device *functions; /* owned */
	unsigned n_names;
	struct device_name *names; /* owned */
};

struct discovery *discovery_new(void); /* empty; NULL: out of memory */
struct discovery *discovery_free(struct discovery *d);
static inline void discovery_freep(struct discovery **d)
{
	discovery_free(*d);
}

/* Adds a copy of the device to the resource, which is made where it is missing. -ENOMEM; -EEXIST
 * with the reason when the name already stands for another source or kind. Call discovery_sort()
 * after the last one. The others: -ENOMEM. */
int discovery_add(struct discovery *d, const char *resource, const char *source,
		  const struct device *device, struct error *err) _must_check_;
int discovery_leave_out(struct discovery *d, const char *id, const char *fmt, ...)
	_printf_(3, 4) _must_check_;
int discovery_add_function(struct discovery *d, const struct device *function) _must_check_;
int discovery_add_name(struct discovery *d, const struct device_name *name) _must_check_;
void discovery_sort(struct discovery *d);

struct resource *discovery_find(const struct discovery *d, const char *name);
struct device *resource_find(const struct resource *r, const char *id);
/* Why it is left out, or NULL. */
const char *discovery_reason(const struct discovery *d, const char *id);
