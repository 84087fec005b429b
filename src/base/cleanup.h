/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scope-bound release of common resources: `_free_ char *s`, `_close_ int fd = -1`.
 */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/macro.h"

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_close(int *fd)
{
	if (*fd >= 0) {
		int saved = errno;

		close(*fd);
		errno = saved;
	}
}

static inline void cleanup_fclose(FILE **f)
{
	if (*f)
		fclose(*f);
}

static inline void cleanup_closedir(DIR **d)
{
	if (*d)
		closedir(*d);
}

#define _free_	   _cleanup_(cleanup_free)
#define _close_	   _cleanup_(cleanup_close)
#define _fclose_   _cleanup_(cleanup_fclose)
#define _closedir_ _cleanup_(cleanup_closedir)

/* Hands a descriptor over and leaves -1 behind. */
#define TAKE_FD(fd)                                                                                \
	({                                                                                         \
		int *_take_fd = &(fd);                                                             \
		int _take_fdv = *_take_fd;                                                         \
		*_take_fd = -1;                                                                    \
		_take_fdv;                                                                         \
	})
