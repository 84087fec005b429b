/* SPDX-License-Identifier: Apache-2.0 */
#include "base/unix-socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/str.h"

#define BACKLOG 128

int unix_socket_address(const char *path, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	return str_copy(ret->sun_path, sizeof(ret->sun_path), path);
}

/* A name of our own in the folder of path: another instance may be doing the same. */
static char *fresh_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	uint32_t number;

	if (!slash || getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
		return NULL;
	return str_printf("%.*s.%08x", (int)(slash + 1 - path), path, number);
}

int unix_socket_listen(const char *path, mode_t mode, int *ret_fd, struct stat *ret_id,
		       struct error *err)
{
	_close_ int fd = -1;
	_free_ char *fresh = NULL;
	struct sockaddr_un addr;
	struct stat st;
	int r;

	if (path[0] != '/')
		return error_set(err, EINVAL, "socket path %s is not absolute", path);
	r = unix_socket_address(path, &addr);
	if (r < 0)
		return error_set_errno(err, r, "socket path %s", path);
	if (lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
		return error_set(err, EEXIST, "%s is there and is no socket", path);
	fresh = fresh_name(path);
	if (!fresh)
		return error_set_errno(err, ENOMEM, "socket path");
	r = unix_socket_address(fresh, &addr);
	if (r < 0)
		return error_set_errno(err, r, "socket path %s", fresh);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return error_set_errno(err, errno, "cannot make a socket");
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		return error_set_errno(err, errno, "cannot bind a socket in the folder of %s",
				       path);
	/* Nobody can connect before listen(), so the mode is right from the first moment. */
	if (chmod(fresh, mode) < 0 || listen(fd, BACKLOG) < 0 || lstat(fresh, &st) < 0 ||
	    rename(fresh, path) < 0) {
		r = error_set_errno(err, errno, "cannot set up socket %s", path);
		(void)unlink(fresh);
		return r;
	}
	*ret_id = st;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

bool unix_socket_is_at(const char *path, const struct stat *id)
{
	struct stat st;

	return lstat(path, &st) == 0 && st.st_dev == id->st_dev && st.st_ino == id->st_ino;
}

int unix_socket_connect(const char *path, int *ret_fd)
{
	_close_ int fd = -1;
	struct sockaddr_un addr;
	int r = unix_socket_address(path, &addr);

	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		return -errno;
	*ret_fd = TAKE_FD(fd);
	return 0;
}
