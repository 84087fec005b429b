/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"

int process_start_time(const char *proc_root, uint32_t pid, uint64_t *ret)
{
	_free_ char *path = str_printf("%s/%u/stat", proc_root, pid);
	char text[1024], *field, *save = NULL;
	int r;

	if (!path)
		return -ENOMEM;
	r = file_read_into(AT_FDCWD, path, text, sizeof text, NULL);
	if (r == -ENOENT)
		return -ESRCH;
	if (r < 0)
		return r;
	/* The command name (field 2) may hold blanks and parentheses: count from the last one. */
	field = strrchr(text, ')');
	if (!field)
		return -EBADMSG;
	field = strtok_r(field + 1, " ", &save);
	for (unsigned i = 3; field && i < 22; i++)
		field = strtok_r(NULL, " ", &save);
	if (!field)
		return -EBADMSG;
	return str_to_u64(field, ret);
}
