/* SPDX-License-Identifier: Apache-2.0 */
#include "host/console-path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "host/console-tail.h"
#include "model/claim.h"

#define ARCHIVES_MAX 9

/* --- By the letters --------------------------------------------------------------- */

/* What is left of path below the folder, or NULL. Compared by components. */
static const char *below(const char *dir, const char *path)
{
	for (;;) {
		size_t n;

		dir += strspn(dir, "/");
		path += strspn(path, "/");
		n = strcspn(dir, "/");
		if (n == 0)
			return *path ? path : NULL;
		if (strcspn(path, "/") != n || memcmp(dir, path, n) != 0)
			return NULL;
		dir += n;
		path += n;
	}
}

static bool is_plain(const char *rel)
{
	while (*rel) {
		size_t n = strcspn(rel, "/");

		if (n > NAME_MAX || (n == 1 && rel[0] == '.') ||
		    (n == 2 && rel[0] == '.' && rel[1] == '.'))
			return false;
		rel += n;
		if (*rel == '/' && !rel[strspn(rel, "/")])
			return false; /* names a folder */
		rel += strspn(rel, "/");
	}
	return true;
}

/* Of nested folders the innermost counts: nothing below it may be a link. */
static const char *find_dir(const char *const dirs[], size_t n_dirs, const char *path,
			    const char **ret_rel)
{
	const char *found = NULL;

	if (path[0] != '/' || strlen(path) >= CLAIM_PATH_MAX)
		return NULL;
	for (size_t i = 0; i < n_dirs; i++) {
		const char *rel = dirs[i][0] == '/' ? below(dirs[i], path) : NULL;

		if (!rel || !is_plain(rel) || (found && strlen(rel) >= strlen(*ret_rel)))
			continue;
		found = dirs[i];
		*ret_rel = rel;
	}
	return found;
}

int console_path_check(const char *const dirs[], size_t n_dirs, const char *path, struct error *err)
{
	const char *rel;

	if (find_dir(dirs, n_dirs, path, &rel))
		return 0;
	return error_set(err, EACCES,
			 "console log '%s' does not lie under a folder of sentinel.console_dirs",
			 path);
}

/* --- Opening ---------------------------------------------------------------------- */

int console_open_by_component(int dir_fd, const char *rel, int flags)
{
	_close_ int folder = -1;

	for (;;) {
		char name[NAME_MAX + 1];
		size_t n = strcspn(rel, "/");
		const char *next = rel + n + strspn(rel + n, "/");
		int fd;

		if (n == 0 || n > NAME_MAX)
			return -EINVAL;
		memcpy(name, rel, n);
		name[n] = '\0';
		if (strcmp(name, "..") == 0)
			return -EXDEV;
		fd = openat(folder >= 0 ? folder : dir_fd, name,
			    O_NOFOLLOW | O_CLOEXEC | (*next ? O_PATH | O_DIRECTORY : flags));
		if (fd < 0 || !*next)
			return fd < 0 ? -errno : fd;
		if (folder >= 0)
			close(folder);
		folder = fd;
		rel = next;
	}
}

int console_open_beneath(int dir_fd, const char *rel, int flags)
{
	const struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};
	long fd = syscall(SYS_openat2, dir_fd, rel, &how, sizeof how);

	if (fd >= 0)
		return (int)fd;
	/* EPERM is what container runtimes say to calls that they do not know. */
	if (errno == ENOSYS || errno == EPERM)
		return console_open_by_component(dir_fd, rel, flags);
	return -errno;
}

static int open_dir(const char *const dirs[], size_t n_dirs, const char *path, const char **ret_rel,
		    int *ret_fd)
{
	const char *dir = find_dir(dirs, n_dirs, path, ret_rel);
	int fd;

	if (!dir)
		return -EACCES;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

int console_open(const char *const dirs[], size_t n_dirs, const char *path, struct stat *ret_st,
		 int *ret_fd)
{
	_close_ int dir_fd = -1, fd = -1;
	struct stat st;
	const char *rel;
	int r = open_dir(dirs, n_dirs, path, &rel, &dir_fd);

	if (r < 0)
		return r;
	fd = console_open_beneath(dir_fd, rel, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -ENOTSUP;
	*ret_st = st;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int console_open_folder(const char *const dirs[], size_t n_dirs, const char *path, int *ret_fd)
{
	_close_ int dir_fd = -1;
	char folder[CLAIM_PATH_MAX];
	const char *rel, *slash;
	int r = open_dir(dirs, n_dirs, path, &rel, &dir_fd);

	if (r < 0)
		return r;
	slash = strrchr(rel, '/');
	if (!slash) {
		*ret_fd = TAKE_FD(dir_fd);
		return 0;
	}
	memcpy(folder, rel, (size_t)(slash - rel));
	folder[slash - rel] = '\0';
	r = console_open_beneath(dir_fd, folder, O_RDONLY | O_DIRECTORY);
	if (r < 0)
		return r;
	*ret_fd = r;
	return 0;
}

/* --- Archiving -------------------------------------------------------------------- */

struct archive {
	int folder;
	const char *name;
};

/* Of number 0, the log itself. */
static int archive_name(const struct archive *a, unsigned number, char *ret, size_t size)
{
	int n = number == 0 ? snprintf(ret, size, "%s", a->name)
			    : snprintf(ret, size, "%s.%u", a->name, number);

	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

static int shift(const struct archive *a, unsigned number)
{
	char from[NAME_MAX + 1], to[NAME_MAX + 1];
	int r = archive_name(a, number, from, sizeof from);

	if (r == 0)
		r = archive_name(a, number + 1, to, sizeof to);
	if (r == 0 && renameat(a->folder, from, a->folder, to) < 0)
		r = -errno;
	return r;
}

/* Only as many are shifted as stand without a gap, so that none is lost before all nine are there.
 */
static int count_archives(const struct archive *a)
{
	unsigned n = 0;

	while (n < ARCHIVES_MAX) {
		char name[NAME_MAX + 1];
		struct stat st;
		int r = archive_name(a, n + 1, name, sizeof name);

		if (r < 0)
			return r;
		if (fstatat(a->folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return errno == ENOENT ? (int)n : -errno;
		n++;
	}
	return ARCHIVES_MAX - 1; /* the oldest is written over */
}

static int archive_in(int folder, const char *name)
{
	struct archive a = { .folder = folder, .name = name };
	struct stat st;
	int n, r;

	if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISREG(st.st_mode))
		return S_ISLNK(st.st_mode) ? -ELOOP : -ENOTSUP;
	n = count_archives(&a);
	if (n < 0)
		return n;
	for (; n >= 0; n--) {
		r = shift(&a, (unsigned)n);
		if (r < 0)
			return r;
	}
	return fsync(folder) < 0 ? -errno : 0;
}

int console_archive(const char *const dirs[], size_t n_dirs, const char *path, struct error *err)
{
	_close_ int folder = -1;
	int r = console_path_check(dirs, n_dirs, path, err);

	if (r < 0)
		return r;
	r = console_open_folder(dirs, n_dirs, path, &folder);
	if (r == -ENOENT)
		return 0;
	if (r == 0)
		r = archive_in(folder, strrchr(path, '/') + 1);
	return r < 0 ? error_set_errno(err, r, "console log '%s' cannot be moved away", path) : 0;
}
