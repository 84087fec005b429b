/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data_dir/gpu/vf-health.json: the health records on disk, compatible with what hypeman writes.
 *
 *   {"version": 1, "records": [{"vf_address", "failures": [{"instance_id", "assigned_at",
 * "reported_at"}], "quarantined_at"}]}
 *
 * Failing closed: a file that is unreadable, cut, of another version, with a duplicate or a bad
 * record is UNREADABLE, never empty: no VF may be placed, mutations are refused, loading is tried
 * again every second, the file stays as it is. Replaced by way of vf-health.json.tmp (fsync,
 * rename, fsync of the folder). Before each write the file's identity is compared: one that
 * somebody edited is loaded first (the write then fails with -EAGAIN and the caller reports again).
 * An edit by hand is noticed within a second. Files are read and written by the worker thread it is
 * given; everything else runs in the loop.
 *
 * A write that failed makes the store UNREADABLE too, until writing what is in memory has worked
 * (tried every second): what cannot be stored cannot be relied on after a restart. A file that
 * vanishes counts as unreadable at first, as an editor may be replacing it, and as emptied by a
 * person at the second look.
 *
 * Fields that are not named above are passed over, for files of later versions of hypeman, and are
 * gone after the next write, as they are with hypeman; a known name in other letters (Go reads it
 * all the same) is a bad record. null is as good as absent.
 */
#pragma once

#include <systemd/sd-event.h>

#include "base/error.h"
#include "base/worker.h"
#include "model/health.h"
#include "store/claim-store.h" /* enum store_state */

struct health_store;

struct health_store_config {
	sd_event *event;
	struct worker *worker; /* borrowed; jobs of others may be in it too */
	const char *data_dir;  /* copied */
	uint64_t retry_usec;   /* between looks at the file; 0: 1 s */
	/* From the loop, when content or state changed other than by a write of ours. err: why
	 * UNREADABLE; with READY NULL, or (code 0) something a person should read although it was
	 * loaded. Neither this nor a `done` may free the store. */
	void (*changed)(struct health_store *s, enum store_state state, const struct error *err,
			void *userdata);
	void *userdata;
};

int health_store_new(const struct health_store_config *config, struct health_store **ret,
		     struct error *err) _must_check_;
/* Changes that were not reported back are dropped without `done`. The worker may be freed before or
 * after. */
struct health_store *health_store_free(struct health_store *s);

enum store_state health_store_get_state(const struct health_store *s);
/* Why it is UNREADABLE; "" when READY. */
const char *health_store_reason(const struct health_store *s);
/* The records as stored and in memory; empty while not READY. Borrowed until the loop's next turn.
 */
const struct health *health_store_get(const struct health_store *s);

/* Makes a change on disk, then in memory: `change` edits a copy and returns a negative code to give
 * up; `done` runs from the loop with 0, or a negative code after which nothing has changed anywhere
 * (-E_HEALTH_STORE_UNAVAILABLE while UNREADABLE, -EAGAIN after an edit by hand, -errno of the
 * write). Changes are made one after another; while LOADING they wait. A change that leaves the
 * records equal writes nothing. -ENOMEM: nothing is called. */
typedef int (*health_change_fn)(struct health *h, void *userdata);
typedef void (*health_done_fn)(int result, const struct error *err, void *userdata);
int health_store_change(struct health_store *s, health_change_fn change, health_done_fn done,
			void *userdata) _must_check_;

/* The parser and writer, for tests and the device plugin (which only reads). -EINVAL with file
 * offset. */
int health_parse(const char *text, size_t len, struct health *ret, struct error *err) _must_check_;
int health_render(const struct health *h, char **ret, size_t *ret_len) _must_check_;
