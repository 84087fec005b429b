/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What identifies an open file when /proc/<pid>/fd is searched: the device number of a character
 * device, else file system and inode. Link texts lie across mount namespaces.
 */
#pragma once

#include <sys/stat.h>

#include "base/macro.h"

struct file_key {
	bool character_device;
	dev_t dev; /* rdev of a character device */
	ino_t ino; /* 0 for one */
};

/* Of a name in a folder, or ("") of the descriptor itself. Never asks a file server: behind a
 * descriptor of another process may be a hung NFS or FUSE mount, and a stat of it would hang with
 * it. What the kernel has cached of an open file is enough. -errno. */
int file_key_of(int dir_fd, const char *name, struct file_key *ret) _must_check_;
bool file_key_equal(const struct file_key *a, const struct file_key *b);
