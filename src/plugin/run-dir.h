/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder of this instance's own for the lock files of its card helpers.
 *
 * Two instances may run beside each other (a rolling update), and both only read; so each has its
 * own locks, in a folder that ends with it. What an instance left behind that was killed is removed
 * by the next one.
 */
#pragma once

#include "base/error.h"

struct run_dir {
	char path[64];
	int fd; /* locked for life; -1: none */
};

#define RUN_DIR_INIT ((struct run_dir){ .fd = -1 })

/* In $RUNTIME_DIRECTORY, /run, /dev/shm or /tmp, whichever can be written to first. */
int run_dir_make(struct run_dir *ret, struct error *err) _must_check_;
/* Removes it with the files in it. */
void run_dir_done(struct run_dir *r);
