/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The set in force: what the last good scan found, what pods still have, what berthd quarantined,
 * and how one set differs from the next. Pure.
 *
 * An ID that a pod has never leaves its resource: a restart of its container would fail. Where pods
 * are asked but no answer has come yet, every ID counts as had: unknown is never "no pods".
 */
#pragma once

#include "plugin/device.h"

#define POD_DEVICES_MAX 4096

struct pod_device {
	char resource[RESOURCE_NAME_MAX];
	char id[DEVICE_ID_MAX];
};

struct pod_devices {
	bool asked; /* a pod-resources socket was given */
	bool known; /* it has answered at least once */
	unsigned n;
	struct pod_device *items; /* owned */
};

void pod_devices_done(struct pod_devices *p);
/* -ENOMEM, -E2BIG. */
int pod_devices_add(struct pod_devices *p, const char *resource, size_t resource_len,
		    const char *id) _must_check_;
bool pod_devices_have(const struct pod_devices *p, const char *resource, const char *id);

struct quarantine {
	bool loaded;	 /* a read has gone well once */
	bool unreadable; /* vfs are those of the last good read; without one every VF counts */
	unsigned n;
	struct pci_addr *vfs; /* owned */
};

bool quarantine_has(const struct quarantine *q, struct pci_addr vf);

/* The next set, with the presence that `current` knows carried over. current may be NULL. -ENOMEM.
 */
int plugin_set_compute(const struct discovery *scanned, const struct discovery *current,
		       const struct pod_devices *pods, const struct quarantine *quarantine,
		       struct discovery **ret) _must_check_;

enum set_change_kind {
	SET_CHANGE_START,  /* a resource that was not there */
	SET_CHANGE_UPDATE, /* its list reads otherwise: IDs, health or topology */
	SET_CHANGE_STOP,
};

struct set_change {
	enum set_change_kind kind;
	char resource[RESOURCE_NAME_MAX];
	unsigned added, removed; /* devices */
};

/* Changes by content, in order of names. `from` may be NULL. *ret is the caller's. -ENOMEM. */
int plugin_set_diff(const struct discovery *from, const struct discovery *to,
		    struct set_change **ret, unsigned *ret_n) _must_check_;
