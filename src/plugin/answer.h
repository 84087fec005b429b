/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a container gets: device nodes and the variables in which KubeVirt looks for addresses.
 * Pure.
 *
 * Nodes are named as the kubelet sees them, in /dev. The variable of a container holds its own
 * addresses only, in the order of the request: KubeVirt hands them out by position.
 */
#pragma once

#include "plugin/device.h"
#include "plugin/host-scan.h"

/* One device, checked. */
struct answer_device {
	const struct device *device;
	int group;
	bool group_node; /* /dev/vfio/<group> is there */
	unsigned n_cdevs;
	char cdevs[GROUP_MEMBERS_MAX][24]; /* "vfio7": of all functions of its group */
	bool cdevs_complete;		   /* each function has one, and the nodes are there */
};

struct answer_container {
	unsigned n;
	const struct answer_device *devices;
};

struct answer_host {
	bool iommu_node; /* /dev/iommu is there */
	const struct egm *egms;
	unsigned n_egms;
};

/* The packed AllocateResponse. IOMMUFD nodes are in only where every one of them is there. -ENOMEM.
 */
int answer_build(const char *resource, const struct answer_container *containers, unsigned n,
		 const struct answer_host *host, uint8_t **ret, size_t *ret_size) _must_check_;
