/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names in a folder, read into a buffer of the caller's.
 *
 * For folders that are listed by the hundred (/proc/<pid>/fd, vfio-dev of each VF): opendir(3)
 * costs an allocation of 32 KiB and two more system calls for each.
 */
#pragma once

#include "base/macro.h"

struct listing {
	int fd; /* borrowed */
	ssize_t len;
	ssize_t pos;
	char data[4096] __attribute__((aligned(8)));
};

static inline void listing_init(struct listing *l, int fd)
{
	l->fd = fd;
	l->len = l->pos = 0;
}

/* The next name that does not start with a dot, valid until the next call; NULL at the end
 * (*ret_error is 0 then) or on an error (-errno). */
const char *listing_next(struct listing *l, int *ret_error);
