/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One background thread that runs jobs in the order submitted and hands each back to an sd_event
 * loop: for work that blocks (a disk, a scan of sysfs) and must not hold up the loop.
 *
 * A job belongs to the thread while it runs and to the loop before and after, so it needs no lock.
 * This is no pool: two jobs of one worker never run at the same time. Everything here is called
 * from the loop's thread.
 */
#pragma once

#include <systemd/sd-event.h>

#include "base/macro.h"

struct worker;

/* `name` shows up in ps and top; at most 15 bytes of it. -errno. */
int worker_new(sd_event *event, const char *name, struct worker **ret) _must_check_;

/* Waits for the running job, joins the thread, and drops every job that was not handed back yet,
 * whether it ran or not. Not to be called from a `done` function. */
struct worker *worker_free(struct worker *w);

typedef void (*worker_fn)(void *job);

/* `run` is called in the thread, then `done` from the loop. `drop` (may be NULL) is called instead
 * of `done` when the worker is freed first; it releases what the job owns. Exactly one of the two
 * is called. -ENOMEM: nothing is called and the job stays the caller's. */
int worker_submit(struct worker *w, worker_fn run, worker_fn done, worker_fn drop,
		  void *job) _must_check_;

static inline void worker_freep(struct worker **w)
{
	worker_free(*w);
}
