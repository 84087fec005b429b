/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at what may hang: in a child, with a deadline.
 *
 * A read of a driver attribute, a stat on a dead file server or a call of NVML can stay in the
 * kernel for ever, and nothing can be done about it from within. The child writes what it finds
 * into memory that it shares with its parent; it has no other descriptor of the parent's, so that
 * one that can not even be killed keeps neither the parent's end nor its pipes waiting.
 */
#pragma once

#include "base/macro.h"

/* Zeroed memory that a child shares. NULL: out of memory. */
void *doctor_probe_memory(size_t size) _must_check_;

typedef void (*doctor_probe_fn)(const void *context, void *memory);

struct doctor_probe {
	pid_t pid;
	int pidfd; /* -1: it could not be started */
	int error; /* -errno of that */
};

/* Starts a child that runs fn(context, memory); doctor_probe_wait() ends it in any case. */
struct doctor_probe doctor_probe_start(doctor_probe_fn fn, const void *context, void *memory);
/* 0: it came to its end; -ETIMEDOUT: it was killed, and what it wrote
 * until then may still change; -ECHILD: it died; -errno. deadline_usec is on the monotonic clock.
 */
int doctor_probe_wait(struct doctor_probe *p, uint64_t deadline_usec) _must_check_;
/* Both. */
int doctor_probe_run(doctor_probe_fn fn, const void *context, void *memory,
		     uint64_t timeout_usec) _must_check_;
