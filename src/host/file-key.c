/* SPDX-License-Identifier: Apache-2.0 */
#include "host/file-key.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/sysmacros.h>

int file_key_of(int dir_fd, const char *name, struct file_key *ret)
{
	struct statx st;

	if (statx(dir_fd, name, AT_STATX_DONT_SYNC | (*name ? 0 : AT_EMPTY_PATH),
		  STATX_TYPE | STATX_INO, &st) < 0)
		return -errno;
	if (S_ISCHR(st.stx_mode))
		*ret = (struct file_key){ true, makedev(st.stx_rdev_major, st.stx_rdev_minor), 0 };
	else
		*ret = (struct file_key){ false, makedev(st.stx_dev_major, st.stx_dev_minor),
					  st.stx_ino };
	return 0;
}

bool file_key_equal(const struct file_key *a, const struct file_key *b)
{
	return a->character_device == b->character_device && a->dev == b->dev && a->ino == b->ino;
}
