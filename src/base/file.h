/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small files: read whole with a limit, replaced whole and durably.
 */
#pragma once

#include <sys/stat.h>

#include "base/macro.h"

/* Reads a file of at most `limit` bytes into fresh memory, with a NUL behind (not counted).
 * dir_fd may be AT_FDCWD. -EFBIG above the limit, -EINVAL for a FIFO, else -errno of open or
 * read. */
int file_read_at(int dir_fd, const char *path, size_t limit, char **ret,
		 size_t *ret_len) _must_check_;

/* The same of an open file, from where it stands. */
int file_read_fd(int fd, size_t limit, char **ret, size_t *ret_len) _must_check_;

/* The same into the caller's buffer of `size` bytes (NUL included); for sysfs attributes. */
int file_read_into(int dir_fd, const char *path, char *buf, size_t size,
		   size_t *ret_len) _must_check_;

/* Replaces path atomically and durably: path.tmp, fsync, rename, fsync of the folder. -errno. */
int file_replace(const char *path, const void *data, size_t n, mode_t mode) _must_check_;
/* The same, and says what stat tells of the new file, so that a change by others can be noticed
 * later. *ret_st is set once the new file is in place, even if the folder's fsync then fails. */
int file_replace_stat(const char *path, const void *data, size_t n, mode_t mode,
		      struct stat *ret_st) _must_check_;
/* fsync of the folder in which path lies. -errno. */
int file_sync_folder_of(const char *path) _must_check_;

/* mkdir -p. -errno. */
int file_make_dirs(const char *path, mode_t mode) _must_check_;

/* Final component of a symlink's target ("nvidia" of "../../../bus/pci/drivers/nvidia").
 * -errno of readlink, -ENAMETOOLONG. */
int file_link_basename(int dir_fd, const char *path, char *ret, size_t size) _must_check_;

/* Opens /dev/null, for reading, at those of the descriptors 0, 1 and 2 that are closed, so that
 * nothing opened later ends up where messages are written. First thing in main(). */
void file_reserve_standard(void);
