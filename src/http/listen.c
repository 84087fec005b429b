/* SPDX-License-Identifier: Apache-2.0 */
#include "http/listen.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"

#define BACKLOG 128

static int unix_address(const char *path, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	return str_copy(ret->sun_path, sizeof(ret->sun_path), path);
}

/* Is there something at path that must stay? 0 when the way is free. */
static int check_old_socket(const char *path, struct error *err)
{
	_close_ int fd = -1;
	struct sockaddr_un addr;
	struct stat st;
	int r;

	if (lstat(path, &st) < 0)
		return errno == ENOENT
			       ? 0
			       : error_set_errno(err, errno, "cannot look at socket %s", path);
	if (!S_ISSOCK(st.st_mode))
		return error_set(err, EEXIST, "%s is there and is no socket", path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return error_set_errno(err, errno, "cannot make a socket");
	r = unix_address(path, &addr);
	if (r < 0)
		return error_set_errno(err, r, "socket path %s", path);
	/* EAGAIN: its backlog is full, so somebody is there. */
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0 || errno == EAGAIN)
		return error_set(err, EADDRINUSE, "another daemon answers at socket %s", path);
	if (errno == ECONNREFUSED || errno == ENOENT)
		return 0;
	return error_set_errno(err, errno, "cannot ask who is at socket %s", path);
}

static int make_parent(const char *path, struct error *err)
{
	_free_ char *parent = strdup(path);
	char *slash;
	int r;

	if (!parent)
		return error_set_errno(err, ENOMEM, "socket path");
	slash = strrchr(parent, '/');
	if (!slash || slash == parent)
		return 0;
	*slash = '\0';
	r = file_make_dirs(parent, 0755);
	return r < 0 ? error_set_errno(err, r, "cannot make folder %s", parent) : 0;
}

int http_listen_unix(const char *path, int *ret_fd, struct stat *ret_id, struct error *err)
{
	_close_ int fd = -1;
	_free_ char *fresh = NULL;
	struct sockaddr_un addr;
	int r;

	r = make_parent(path, err);
	if (r < 0)
		return r;
	r = check_old_socket(path, err);
	if (r < 0)
		return r;
	fresh = str_printf("%s.new", path);
	if (!fresh)
		return error_set_errno(err, ENOMEM, "socket path");
	r = unix_address(fresh, &addr);
	if (r < 0)
		return error_set_errno(err, r, "socket path %s", path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return error_set_errno(err, errno, "cannot make a socket");
	(void)unlink(fresh);
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		return error_set_errno(err, errno, "cannot bind socket %s", path);
	if (chmod(fresh, 0660) < 0 || listen(fd, BACKLOG) < 0 || lstat(fresh, ret_id) < 0 ||
	    rename(fresh, path) < 0) {
		r = error_set_errno(err, errno, "cannot set up socket %s", path);
		(void)unlink(fresh);
		return r;
	}
	*ret_fd = TAKE_FD(fd);
	return 0;
}

void http_unlink_unix(const char *path, const struct stat *id)
{
	struct stat st;

	if (lstat(path, &st) == 0 && st.st_dev == id->st_dev && st.st_ino == id->st_ino)
		(void)unlink(path);
}

/* Splits "HOST:PORT" in place. */
static int split_address(char *text, char **ret_host, char **ret_port)
{
	char *colon = strrchr(text, ':');
	uint32_t port;

	if (!colon || str_to_u32(colon + 1, &port) < 0 || port > 65535)
		return -EINVAL;
	*colon = '\0';
	if (text[0] == '[') {
		if (colon - text < 3 || colon[-1] != ']')
			return -EINVAL;
		colon[-1] = '\0';
		text++;
	} else if (strchr(text, ':') || text[0] == '\0') {
		return -EINVAL;
	}
	*ret_host = text;
	*ret_port = colon + 1;
	return 0;
}

static int bind_tcp(const struct addrinfo *ai, int *ret_fd)
{
	_close_ int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int one = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int http_listen_tcp(const char *listen_at, int *ret_fd, char *ret_host, size_t host_size,
		    struct error *err)
{
	const struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
	};
	_free_ char *text = strdup(listen_at);
	struct addrinfo *ai;
	char *host, *port;
	int r;

	if (!text)
		return error_set_errno(err, ENOMEM, "listen address");
	if (split_address(text, &host, &port) < 0 || str_copy(ret_host, host_size, host) < 0)
		return error_set(err, EINVAL, "listen address \"%s\" is not ADDRESS:PORT",
				 listen_at);
	r = getaddrinfo(strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, port, &hints, &ai);
	if (r != 0)
		return error_set(err, EINVAL, "listen address \"%s\": %s", listen_at,
				 gai_strerror(r));
	r = bind_tcp(ai, ret_fd);
	freeaddrinfo(ai);
	return r < 0 ? error_set_errno(err, r, "cannot listen at %s", listen_at) : 0;
}
