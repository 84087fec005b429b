/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file under a health store, as the thread that may block sees it: whether it is still the one
 * known, what is in it, replacing it. It decides nothing and keeps no records; the store's loop
 * side is health-store.c, the text itself health-file.c.
 */
#pragma once

#include <sys/stat.h>

#include "base/error.h"
#include "model/health.h"

struct health_disk {
	char *path;
	char *folder;
	bool prepared;	    /* the folder was made, and what a killed writer left looked at */
	bool exists;	    /* the file, when looked at last */
	bool settled;	    /* `st` was old enough then to tell every later change */
	unsigned n_missing; /* looks in a row at which a file that had been there was not */
	struct stat st;
};

int health_disk_init(struct health_disk *d, const char *data_dir) _must_check_; /* -ENOMEM */
void health_disk_done(struct health_disk *d);

/* Still the file (or still none) that was looked at or written last. One lstat: cheap enough for
 * the loop, once a second, so that nothing else has to wake up for it. */
bool health_disk_is_unchanged(const struct health_disk *d) _must_check_;
/* 0: still the file that was looked at or written last. 1: another one, or `force`: *ret is what is
 * in it, note (code 0) a sentence for a person or "". Negative: it cannot be used, and is left as
 * it is. */
int health_disk_look(struct health_disk *d, bool force, struct health *ret, struct error *note,
		     struct error *err) _must_check_;
/* Replaces the file. After a failure it may hold the new text nevertheless: write again. */
int health_disk_write(struct health_disk *d, const struct health *h,
		      struct error *err) _must_check_;
