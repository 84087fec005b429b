/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where console logs may lie, and how they are opened: beneath one of the allowed folders, by way
 * of no symlink below it, and only regular files. The folders themselves are the operator's and may
 * be links. console_path_check() and console_archive() are declared in console-tail.h.
 */
#pragma once

#include <sys/stat.h>

#include "base/error.h"

/* -errno, -ENOENT too when the log or a folder on the way is not there (yet). */
int console_open(const char *const dirs[], size_t n_dirs, const char *path, struct stat *ret_st,
		 int *ret_fd) _must_check_;
/* The folder in which the log lies. */
int console_open_folder(const char *const dirs[], size_t n_dirs, const char *path,
			int *ret_fd) _must_check_;

/* `rel` beneath dir_fd, without "..". A descriptor, or -errno; a symlink is -ELOOP or -ENOTDIR. */
int console_open_beneath(int dir_fd, const char *rel, int flags) _must_check_;
/* The same for kernels without openat2. */
int console_open_by_component(int dir_fd, const char *rel, int flags) _must_check_;
