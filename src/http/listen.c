/* SPDX-License-Identifier: Apache-2.0 */
#include "http/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "base/unix-socket.h"

#define BACKLOG 128

/* Is there something at path that must stay? 0 when the way is free. */
static int check_old_socket(const char *path, struct error *err)
{
	_close_ int fd = -1;
	struct stat st;
	int r;

	if (lstat(path, &st) < 0)
		return errno == ENOENT
			       ? 0
			       : error_set_errno(err, errno, "cannot look at socket %s", path);
	if (!S_ISSOCK(st.st_mode))
		return error_set(err, EEXIST, "%s is there and is no socket", path);
	r = unix_socket_connect(path, &fd);
	/* EAGAIN: its backlog is full, so somebody is there. */
	if (r == 0 || r == -EAGAIN)
		return error_set(err, EADDRINUSE, "another daemon answers at socket %s", path);
	if (r == -ECONNREFUSED || r == -ENOENT)
		return 0;
	return error_set_errno(err, r, "cannot ask who is at socket %s", path);
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
	int r;

	r = make_parent(path, err);
	if (r == 0)
		r = check_old_socket(path, err);
	return r < 0 ? r : unix_socket_listen(path, 0660, ret_fd, ret_id, err);
}

void http_unlink_unix(const char *path, const struct stat *id)
{
	if (unix_socket_is_at(path, id))
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

/* Also says which host was meant, as it is written. NULL: not to be understood, err says why. */
static struct addrinfo *resolve(const char *listen_at, char *ret_host, size_t host_size,
				struct error *err)
{
	const struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
	};
	_free_ char *text = strdup(listen_at);
	struct addrinfo *ai = NULL;
	char *host, *port;
	int r;

	if (!text) {
		error_set_errno(err, ENOMEM, "listen address");
		return NULL;
	}
	if (split_address(text, &host, &port) < 0 || str_copy(ret_host, host_size, host) < 0) {
		error_set(err, EINVAL, "listen address \"%s\" is not ADDRESS:PORT", listen_at);
		return NULL;
	}
	r = getaddrinfo(strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, port, &hints, &ai);
	if (r != 0) {
		error_set(err, EINVAL, "listen address \"%s\": %s", listen_at, gai_strerror(r));
		return NULL;
	}
	return ai;
}

int http_listen_tcp(const char *listen_at, int *ret_fd, char *ret_host, size_t host_size,
		    struct error *err)
{
	struct addrinfo *ai = resolve(listen_at, ret_host, host_size, err);
	int r;

	if (!ai)
		return -EINVAL;
	r = bind_tcp(ai, ret_fd);
	freeaddrinfo(ai);
	return r < 0 ? error_set_errno(err, r, "cannot listen at %s", listen_at) : 0;
}

/* --- Inherited sockets ---------------------------------------------------------------------- */

static int socket_option(int fd, int option)
{
	socklen_t size = sizeof(int);
	int value;

	return getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -errno;
}

static int check_listening(int fd, const char *what, struct error *err)
{
	int flags = fcntl(fd, F_GETFL);

	if (socket_option(fd, SO_TYPE) != SOCK_STREAM || socket_option(fd, SO_ACCEPTCONN) != 1)
		return error_set(err, EINVAL,
				 "the inherited socket for %s does not listen for streams", what);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
	    fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return error_set_errno(err, errno, "the inherited socket for %s", what);
	return 0;
}

int http_listen_check_unix(int fd, const char *path, struct error *err)
{
	struct sockaddr_un addr = { 0 };
	socklen_t size = sizeof(addr) - 1; /* there is a NUL behind it then */
	struct stat own = { 0 }, st = { 0 };

	if (getsockname(fd, (struct sockaddr *)&addr, &size) < 0 || addr.sun_family != AF_UNIX)
		return error_set(err, EINVAL, "the inherited socket is no Unix socket");
	/* Two spellings of one path are one place: /var/run and /run. */
	if (strcmp(addr.sun_path, path) != 0 &&
	    (!addr.sun_path[0] || stat(addr.sun_path, &own) < 0 || stat(path, &st) < 0 ||
	     own.st_dev != st.st_dev || own.st_ino != st.st_ino))
		return error_set(err, EINVAL,
				 "the inherited socket is at \"%.100s\", but `socket` is %.100s",
				 addr.sun_path, path);
	return check_listening(fd, "socket", err);
}

union tcp_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* A wanted port of 0 stands for any. */
static bool same_address(const union tcp_address *have, const union tcp_address *want)
{
	if (have->any.sa_family != want->any.sa_family)
		return false;
	if (want->any.sa_family == AF_INET)
		return have->v4.sin_addr.s_addr == want->v4.sin_addr.s_addr &&
		       (want->v4.sin_port == 0 || have->v4.sin_port == want->v4.sin_port);
	return memcmp(&have->v6.sin6_addr, &want->v6.sin6_addr, sizeof(have->v6.sin6_addr)) == 0 &&
	       (want->v6.sin6_port == 0 || have->v6.sin6_port == want->v6.sin6_port);
}

int http_listen_check_tcp(int fd, const char *listen_at, char *ret_host, size_t host_size,
			  struct error *err)
{
	union tcp_address have = { 0 }, want = { 0 };
	struct addrinfo *ai = resolve(listen_at, ret_host, host_size, err);
	socklen_t size = sizeof(have);

	if (!ai)
		return -EINVAL;
	memcpy(&want, ai->ai_addr, MIN((size_t)ai->ai_addrlen, sizeof(want)));
	freeaddrinfo(ai);
	if (getsockname(fd, &have.any, &size) < 0 || !same_address(&have, &want))
		return error_set(err, EINVAL, "the inherited socket does not listen at %s",
				 listen_at);
	return check_listening(fd, "listen", err);
}

void http_listen_peer_address(int fd, char *ret, size_t size)
{
	struct sockaddr_storage addr = { 0 };
	socklen_t len = sizeof(addr);
	char host[NI_MAXHOST], port[NI_MAXSERV];

	ret[0] = '\0';
	if (getpeername(fd, (struct sockaddr *)&addr, &len) < 0 ||
	    getnameinfo((struct sockaddr *)&addr, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		return;
	snprintf(ret, size, addr.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}
