/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A FUSE mount of one of the simulated trees, on the event loop.
 *
 * It behaves as sysfs does: text is made when it is read from its beginning, nothing is cached,
 * truncation does nothing, a write succeeds or fails as the driver model says. Faults are injected
 * here: a slow request is answered by a timer, a hung one is kept until the fault is lifted and
 * then takes effect, whether its caller still lives or not. So a request never holds up another
 * one.
 */
#pragma once

#include "base/macro.h"
#include "sim/simcard.h"

struct error;
struct sd_event;
struct simfuse;

enum simfuse_tree {
	SIMFUSE_SYS,
	SIMFUSE_DEV,
};

/* Mounts on an existing folder; what a killed simulator left mounted there is taken away first.
 * Model and loop stay the caller's and must outlive the mount. */
int simfuse_new(struct sim *sim, struct sd_event *event, enum simfuse_tree tree,
		const char *mountpoint, struct simfuse **ret, struct error *err) _must_check_;
/* Unmounts; requests that are still open fail with EIO. */
struct simfuse *simfuse_free(struct simfuse *f);

/* A fault was changed, or a sriov-manage run has ended: answers what need not wait any more. */
void simfuse_changed(struct simfuse *f);
/* Handles every request the kernel has queued, so that what happened before is known (a close is
 * reported after close() has returned). */
void simfuse_drain(struct simfuse *f);
