/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/simctl.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "sim/simcommand.h"

#define REQUEST_MAX 65536

struct client {
	struct simctl *owner;
	int fd;
	bool running; /* the request was handed over */
	struct buf in;
	sd_event_source *source;
};

struct simctl {
	struct sim *sim;
	sd_event *event;
	struct simcommand *command;
	char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
	int fd;
	sd_event_source *source;
	struct client *clients[SIMCTL_CLIENTS_MAX];
};

static int make_address(const char *root, struct sockaddr_un *ret)
{
	int n = snprintf(ret->sun_path, sizeof(ret->sun_path), "%s/ctl.sock", root);

	ret->sun_family = AF_UNIX;
	return n < 0 || (size_t)n >= sizeof(ret->sun_path) ? -ENAMETOOLONG : 0;
}

static void client_free(struct client *client)
{
	struct simctl *c = client->owner;

	for (size_t i = 0; i < SIMCTL_CLIENTS_MAX; i++)
		if (c->clients[i] == client)
			c->clients[i] = NULL;
	simcommand_forget(c->command, client);
	sd_event_source_disable_unref(client->source);
	close(client->fd);
	buf_done(&client->in);
	free(client);
}

static int write_all(int fd, const char *data, size_t n)
{
	while (n > 0) {
		ssize_t r = send(fd, data, n, MSG_NOSIGNAL);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		data += r;
		n -= (size_t)r;
	}
	return 0;
}

/* The answer of the largest host is some 300 kB: more than a socket takes at once, so the socket
 * blocks here, for as long as a client that has asked takes to read. */
static void answer_client(void *userdata, int status, const char *out, const char *err)
{
	struct client *client = userdata;
	json_t *answer = json_pack("{si ss ss}", "exit", status, "out", out, "err", err);
	_free_ char *text = answer ? json_dumps(answer, JSON_COMPACT) : NULL;
	struct timeval limit = { .tv_sec = 2 };

	json_decref(answer);
	setsockopt(client->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (text && write_all(client->fd, text, strlen(text)) >= 0)
		(void)!write_all(client->fd, "\n", 1);
	client_free(client);
}

static void run_request(struct client *client, const char *line)
{
	json_t *request = json_loads(line, 0, NULL), *argv, *item;
	const char *args[SIMCOMMAND_ARGS_MAX + 1] = { NULL };
	const char *cwd = "/";
	size_t i, n = 0;

	client->running = true;
	if (json_unpack(request, "{s?s so}", "cwd", &cwd, "argv", &argv) < 0 ||
	    !json_is_array(argv) || json_array_size(argv) > SIMCOMMAND_ARGS_MAX) {
		answer_client(client, 2, "", "malformed request\n");
		json_decref(request);
		return;
	}
	json_array_foreach(argv, i, item)
		if (json_is_string(item))
			args[n++] = json_string_value(item);
	/* May answer at once, which frees the client. */
	simcommand_run(client->owner->command, (int)n, args, cwd, answer_client, client);
	json_decref(request);
}

static int on_client(sd_event_source *source, int fd, uint32_t revents _unused_, void *userdata)
{
	struct client *client = userdata;
	char data[4096];
	ssize_t n = recv(fd, data, sizeof(data), MSG_DONTWAIT);
	char *end;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0) {
		client_free(client);
		return 0;
	}
	if (client->running)
		return 0; /* only one request is taken */
	buf_add(&client->in, data, (size_t)n);
	if (buf_finish(&client->in) < 0 || client->in.len > REQUEST_MAX) {
		client_free(client);
		return 0;
	}
	end = memchr(client->in.data, '\n', client->in.len);
	if (end) {
		*end = '\0';
		sd_event_source_ref(source);
		run_request(client, client->in.data);
		sd_event_source_unref(source);
	}
	return 0;
}

static int on_connection(sd_event_source *source _unused_, int fd, uint32_t revents _unused_,
			 void *userdata)
{
	struct simctl *c = userdata;
	_close_ int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	struct client *client;

	if (peer < 0)
		return 0;
	for (size_t i = 0; i < SIMCTL_CLIENTS_MAX; i++) {
		if (c->clients[i])
			continue;
		client = calloc(1, sizeof(*client));
		if (!client)
			return 0;
		*client = (struct client){ .owner = c, .fd = peer };
		if (sd_event_add_io(c->event, &client->source, peer, EPOLLIN, on_client, client) <
		    0) {
			free(client);
			return 0;
		}
		(void)TAKE_FD(peer);
		c->clients[i] = client;
		return 0;
	}
	return 0; /* too many: hung up on */
}

int simctl_new(struct sim *sim, sd_event *event, struct simcommand *command, struct simctl **ret,
	       struct error *err)
{
	struct sockaddr_un address;
	_close_ int fd = -1;
	struct simctl *c;
	int r;

	if (make_address(sim->root, &address) < 0)
		return error_set(err, ENAMETOOLONG, "%s/ctl.sock is too long for a socket",
				 sim->root);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	unlink(address.sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(fd, 64) < 0)
		return error_set_errno(err, errno, "cannot listen on %s", address.sun_path);
	c = calloc(1, sizeof(*c));
	if (!c)
		return error_set_errno(err, ENOMEM, "control socket");
	*c = (struct simctl){ .sim = sim, .event = event, .command = command, .fd = TAKE_FD(fd) };
	memcpy(c->path, address.sun_path, sizeof(c->path));
	r = sd_event_add_io(event, &c->source, c->fd, EPOLLIN, on_connection, c);
	if (r < 0) {
		simctl_free(c);
		return error_set_errno(err, r, "event loop");
	}
	*ret = c;
	return 0;
}

struct simctl *simctl_free(struct simctl *c)
{
	if (!c)
		return NULL;
	for (size_t i = 0; i < SIMCTL_CLIENTS_MAX; i++)
		if (c->clients[i])
			client_free(c->clients[i]);
	sd_event_source_disable_unref(c->source);
	close(c->fd);
	unlink(c->path);
	free(c);
	return NULL;
}

/* --- client ---------------------------------------------------------------------------------- */

static int client_exchange(const char *root, const char *request, struct buf *ret)
{
	struct sockaddr_un address;
	_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char data[4096];
	ssize_t n;
	int r = make_address(root, &address);

	if (r < 0)
		return r;
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	r = write_all(fd, request, strlen(request));
	if (r >= 0)
		r = write_all(fd, "\n", 1);
	if (r < 0)
		return r;
	while ((n = recv(fd, data, sizeof(data), 0)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		buf_add(ret, data, (size_t)n);
	}
	return buf_finish(ret);
}

int simctl_client(const char *root, int argc, char *argv[])
{
	_buf_ struct buf in = BUF_INIT;
	_free_ char *cwd = getcwd(NULL, 0);
	json_t *args = json_array(), *request, *answer;
	_free_ char *text = NULL;
	const char *out, *err;
	int status = 1, r;

	for (int i = 0; i < argc; i++)
		if (json_array_append_new(args, json_string(argv[i])) < 0) {
			fprintf(stderr, "berth-sim ctl: an argument is no UTF-8 text\n");
			json_decref(args);
			return 2;
		}
	request = json_pack("{ss so}", "cwd", cwd ?: "/", "argv", args);
	text = request ? json_dumps(request, JSON_COMPACT) : NULL;
	json_decref(request);
	r = text ? client_exchange(root, text, &in) : -ENOMEM;
	if (r < 0) {
		fprintf(stderr, "berth-sim ctl: no simulator at %s: %s\n", root, strerror(-r));
		return 1;
	}
	answer = in.data ? json_loads(in.data, 0, NULL) : NULL;
	if (json_unpack(answer, "{si ss ss}", "exit", &status, "out", &out, "err", &err) < 0) {
		fprintf(stderr, "berth-sim ctl: the simulator ended before it answered\n");
		status = 1;
	} else {
		fputs(out, stdout);
		fprintf(stderr, "%s%s", *err ? "berth-sim ctl: " : "", err);
	}
	json_decref(answer);
	return status;
}
