/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/run-dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

#define PREFIX "berth-device-plugin."

static void remove_files(int fd)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_closedir_ DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;

	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.')
			unlinkat(fd, e->d_name, 0);
	if (!dir && copy >= 0)
		close(copy);
}

/* A folder whose lock is free belongs to nobody any more. */
static void remove_stale(const char *base)
{
	_closedir_ DIR *dir = opendir(base);
	struct dirent *e;

	while (dir && (e = readdir(dir))) {
		_close_ int fd = -1;
		struct stat st;

		if (!str_starts_with(e->d_name, PREFIX))
			continue;
		fd = openat(dirfd(dir), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() ||
		    flock(fd, LOCK_EX | LOCK_NB) < 0)
			continue;
		remove_files(fd);
		unlinkat(dirfd(dir), e->d_name, AT_REMOVEDIR);
	}
}

static int make_in(const char *base, struct run_dir *ret)
{
	struct run_dir r = RUN_DIR_INIT;
	int n;

	n = snprintf(r.path, sizeof r.path, "%s/" PREFIX "XXXXXX", base);
	if (n < 0 || (size_t)n >= sizeof r.path)
		return -ENAMETOOLONG;
	if (!mkdtemp(r.path))
		return -errno;
	r.fd = open(r.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r.fd < 0 || flock(r.fd, LOCK_EX | LOCK_NB) < 0) {
		int error = -errno;

		run_dir_done(&r);
		return error;
	}
	remove_stale(base);
	*ret = r;
	return 0;
}

int run_dir_make(struct run_dir *ret, struct error *err)
{
	const char *bases[] = { getenv("RUNTIME_DIRECTORY"), "/run", "/dev/shm", "/tmp" };
	int r = -ENOENT;

	for (size_t i = 0; i < ARRAY_SIZE(bases); i++) {
		if (!bases[i])
			continue;
		r = make_in(bases[i], ret);
		if (r == 0)
			return 0;
	}
	return error_set_errno(err, r, "none of /run, /dev/shm and /tmp can be written to");
}

void run_dir_done(struct run_dir *r)
{
	if (r->fd >= 0) {
		remove_files(r->fd);
		close(r->fd);
		rmdir(r->path);
	}
	*r = RUN_DIR_INIT;
}
