/* SPDX-License-Identifier: Apache-2.0 */
#include "grpc/grpc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "grpc/server-internal.h"
#include "base/unix-socket.h"

/* A peer that connects all the time, or a lack of descriptors (accept() then fails and the socket
 * stays readable), must not keep the loop busy. */
#define ACCEPT_PERIOD_USEC (USEC_PER_SEC / 10)
#define ACCEPT_BURST	   64

void grpc_server_forget(struct grpc_server *server, const struct grpc_connection *conn)
{
	for (size_t i = 0; i < GRPC_CONNECTIONS_MAX; i++)
		if (server->connections[i] == conn)
			server->connections[i] = NULL;
}

static struct grpc_connection **free_slot(struct grpc_server *server)
{
	for (size_t i = 0; i < GRPC_CONNECTIONS_MAX; i++)
		if (!server->connections[i])
			return &server->connections[i];
	return NULL;
}

/* Whoever holds connections open without using them must not lock others out. */
static void drop_most_idle(struct grpc_server *server)
{
	struct grpc_connection *idlest = NULL;

	for (size_t i = 0; i < GRPC_CONNECTIONS_MAX; i++) {
		struct grpc_connection *c = server->connections[i];

		if (c->n_calls == 0 && (!idlest || c->idle_since_usec < idlest->idle_since_usec))
			idlest = c;
	}
	if (idlest)
		grpc_connection_close(idlest);
}

static int on_accept(sd_event_source *s, int fd, uint32_t revents, void *userdata)
{
	struct grpc_server *server = userdata;
	struct grpc_connection **slot;
	int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)s;
	(void)revents;
	if (peer < 0)
		return 0;
	slot = free_slot(server);
	if (!slot) {
		drop_most_idle(server);
		slot = free_slot(server);
	}
	if (!slot)
		close(peer);
	else if (grpc_connection_new(server, peer, slot) < 0)
		*slot = NULL;
	return 0;
}

int grpc_server_new(sd_event *event, const char *path, const struct grpc_method *methods,
		    size_t n_methods, void *userdata, struct grpc_server **ret, struct error *err)
{
	_grpc_server_ struct grpc_server *server = calloc(1, sizeof(*server));
	int r;

	if (!server)
		return error_set_errno(err, ENOMEM, "gRPC server");
	server->fd = -1;
	server->event = sd_event_ref(event);
	server->methods = methods;
	server->n_methods = n_methods;
	server->userdata = userdata;
	r = unix_socket_listen(path, 0600, &server->fd, &server->id, err);
	if (r < 0)
		return r;
	server->path = strdup(path);
	if (!server->path) {
		(void)unlink(path);
		return error_set_errno(err, ENOMEM, "gRPC server");
	}
	r = sd_event_add_io(event, &server->accept, server->fd, EPOLLIN, on_accept, server);
	if (r >= 0)
		r = sd_event_source_set_ratelimit(server->accept, ACCEPT_PERIOD_USEC, ACCEPT_BURST);
	if (r < 0)
		return error_set_errno(err, r, "cannot watch socket %s", path);
	*ret = TAKE(server);
	return 0;
}

struct grpc_server *grpc_server_free(struct grpc_server *server)
{
	if (!server)
		return NULL;
	sd_event_source_disable_unref(server->accept);
	if (server->path && grpc_server_is_reachable(server))
		(void)unlink(server->path);
	if (server->fd >= 0)
		close(server->fd);
	for (size_t i = 0; i < GRPC_CONNECTIONS_MAX; i++) {
		if (!server->connections[i])
			continue;
		grpc_connection_say_goodbye(server->connections[i]);
		grpc_connection_close(server->connections[i]);
	}
	sd_event_unref(server->event);
	free(server->path);
	free(server);
	return NULL;
}

bool grpc_server_is_reachable(const struct grpc_server *server)
{
	return unix_socket_is_at(server->path, &server->id);
}

const char *grpc_server_path(const struct grpc_server *server)
{
	return server->path;
}

size_t grpc_server_connections(const struct grpc_server *server)
{
	size_t n = 0;

	for (size_t i = 0; i < GRPC_CONNECTIONS_MAX; i++)
		n += server->connections[i] != NULL;
	return n;
}

static size_t started_calls(const struct grpc_connection *conn)
{
	size_t n = 0;

	for (size_t i = 0; i < GRPC_STREAMS_MAX; i++)
		n += conn->calls[i] && conn->calls[i]->started;
	return n;
}

size_t grpc_server_calls(const struct grpc_server *server)
{
	size_t n = 0;

	for (size_t i = 0; i < GRPC_CONNECTIONS_MAX; i++)
		if (server->connections[i])
			n += started_calls(server->connections[i]);
	return n;
}
