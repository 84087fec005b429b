/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

static ssize_t read_retry(int fd, void *buf, size_t n)
{
	ssize_t r;

	do
		r = read(fd, buf, n);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r;
}

int file_read_fd(int fd, size_t limit, char **ret, size_t *ret_len)
{
	_free_ char *data = NULL;
	size_t len = 0, cap = 0;

	for (;;) {
		ssize_t r;

		if (len + 1 >= cap) {
			size_t bigger = MAX(cap * 2, (size_t)4096);
			char *p = realloc(data, bigger);

			if (!p)
				return -ENOMEM;
			data = p;
			cap = bigger;
		}
		r = read_retry(fd, data + len, cap - 1 - len);
		if (r < 0)
			return (int)r;
		if (r == 0)
			break;
		len += (size_t)r;
		if (len > limit)
			return -EFBIG;
	}
	data[len] = '\0';
	*ret = TAKE(data);
	if (ret_len)
		*ret_len = len;
	return 0;
}

int file_read_at(int dir_fd, const char *path, size_t limit, char **ret, size_t *ret_len)
{
	_close_ int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	/* Nobody waits for a writer here, and without one it would look like an empty file. */
	if (S_ISFIFO(st.st_mode))
		return -EINVAL;
	return file_read_fd(fd, limit, ret, ret_len);
}

int file_read_into(int dir_fd, const char *path, char *buf, size_t size, size_t *ret_len)
{
	_close_ int fd = -1;
	size_t len = 0;

	fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	while (len < size) {
		ssize_t r = read_retry(fd, buf + len, size - len);

		if (r < 0)
			return (int)r;
		if (r == 0)
			break;
		len += (size_t)r;
	}
	if (len >= size)
		return -EFBIG;
	buf[len] = '\0';
	if (ret_len)
		*ret_len = len;
	return 0;
}

static int write_all(int fd, const char *data, size_t n)
{
	while (n > 0) {
		ssize_t r = write(fd, data, n);

		if (r < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		data += r;
		n -= (size_t)r;
	}
	return 0;
}

int file_sync_folder_of(const char *path)
{
	_free_ char *folder = strdup(path);
	_close_ int fd = -1;
	char *slash;

	if (!folder)
		return -ENOMEM;
	slash = strrchr(folder, '/');
	if (!slash)
		memcpy(folder, ".", sizeof ".");
	else
		slash[slash == folder ? 1 : 0] = '\0';
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return fsync(fd) < 0 ? -errno : 0;
}

int file_replace_stat(const char *path, const void *data, size_t n, mode_t mode,
		      struct stat *ret_st)
{
	_free_ char *tmp = str_printf("%s.tmp", path);
	_close_ int fd = -1;
	struct stat st;
	int r;

	if (!tmp)
		return -ENOMEM;
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
	if (fd < 0)
		return -errno;
	r = write_all(fd, data, n);
	if (r == 0 && (fsync(fd) < 0 || fstat(fd, &st) < 0))
		r = -errno;
	if (r == 0 && rename(tmp, path) < 0)
		r = -errno;
	if (r < 0) {
		unlink(tmp);
		return r;
	}
	*ret_st = st;
	return file_sync_folder_of(path);
}

int file_replace(const char *path, const void *data, size_t n, mode_t mode)
{
	struct stat st;

	return file_replace_stat(path, data, n, mode, &st);
}

int file_make_dirs(const char *path, mode_t mode)
{
	char part[PATH_MAX];
	struct stat st;
	int r;

	if (str_is_empty(path))
		return -ENOENT;
	r = str_copy(part, sizeof part, path);
	if (r < 0)
		return r;
	for (char *p = part + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		if (mkdir(part, mode) < 0 && errno != EEXIST)
			return -errno;
		*p = '/';
	}
	if (mkdir(part, mode) == 0)
		return 0;
	if (errno != EEXIST)
		return -errno;
	/* What is there may be something else than a folder. */
	if (stat(part, &st) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

int file_link_basename(int dir_fd, const char *path, char *ret, size_t size)
{
	char target[PATH_MAX];
	const char *base;
	ssize_t n;

	n = readlinkat(dir_fd, path, target, sizeof target - 1);
	if (n < 0)
		return -errno;
	target[n] = '\0';
	base = strrchr(target, '/');
	return str_copy(ret, size, base ? base + 1 : target);
}

void file_reserve_standard(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDONLY); /* no O_CLOEXEC: children get it, too */
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}
