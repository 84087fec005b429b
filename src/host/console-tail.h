/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Console logs of guests, followed in a thread of their own: open, read, split into lines.
 *
 * A guest writes whatever it likes: memory per log is bounded (a line above `line_max` is thrown
 * away to its end, NULs are bytes like others). A log is known by device, inode and a fingerprint
 * of its head, all from the open file; shorter or different means a new file, read from 0, after
 * the rest of the old one where it is still open or a ".1" holds it (rotation, copytruncate,
 * replacement; F65 F67 F69). Paths must lie under one of the given folders; no symlink is followed
 * on the way below it. It interprets nothing: each complete line that contains `needle` is handed
 * over, in order.
 */
#pragma once

#include <systemd/sd-event.h>

#include "base/error.h"

struct console_tail;

struct console_tail_config {
	sd_event *event;
	const char *const *dirs; /* allowed folders; copied */
	size_t n_dirs;
	uint64_t scan_usec; /* how often files are looked at where no event tells */
	size_t line_max;    /* bytes */
	const char *needle; /* only lines with this are handed over; copied */
	/* From the loop. key: of console_tail_add(). line: without newline, not NUL-terminated. */
	void (*line)(const char *key, const char *line, size_t len, void *userdata);
	/* A pass over this log has ended in which lines were handed over. */
	void (*pass)(const char *key, void *userdata);
	/* May be NULL. A log cannot be followed (other than that it is not there yet): code and
	 * sentence; code 0: it can again. It is tried again at each scan. */
	void (*trouble)(const char *key, const struct error *err, void *userdata);
	void *userdata;
};

int console_tail_new(const struct console_tail_config *config, struct console_tail **ret,
		     struct error *err) _must_check_;
struct console_tail *console_tail_free(struct console_tail *t);

/* New folders and interval while it runs. Logs that are followed already stay under the folders
 * that they began with. -ENOMEM: nothing has changed. */
int console_tail_configure(struct console_tail *t, const char *const dirs[], size_t n_dirs,
			   uint64_t scan_usec) _must_check_;

/* Follows a log from its beginning (it may not exist yet). -EEXIST, -EACCES when outside the
 * folders. */
int console_tail_add(struct console_tail *t, const char *key, const char *path,
		     struct error *err) _must_check_;
void console_tail_remove(struct console_tail *t, const char *key);

/* 0 when the path is one that may be followed. */
int console_path_check(const char *const dirs[], size_t n_dirs, const char *path,
		       struct error *err) _must_check_;
/* Moves an existing log away: path -> path.1, older ones shifted up to .9; no log there is success.
 */
int console_archive(const char *const dirs[], size_t n_dirs, const char *path,
		    struct error *err) _must_check_;
