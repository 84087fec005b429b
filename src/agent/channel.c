/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_MAX	900
#define ANSWER_TRIES	50
#define ANSWER_PAUSE_MS 20

static int open_vsock(uint32_t port)
{
	struct sockaddr_vm address = { .svm_family = AF_VSOCK,
				       .svm_cid = VMADDR_CID_ANY,
				       .svm_port = port };
	int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
	    listen(fd, CHANNEL_CLIENTS_MAX) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* The port reports a hang-up for as long as no host is connected; SIGIO tells when that changes. */
static int open_port(const char *path)
{
	int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);

	if (fd >= 0) {
		(void)fcntl(fd, F_SETOWN, getpid());
		(void)fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK | O_ASYNC);
	}
	return fd;
}

void agent_channel_open(struct agent_channel *c, uint32_t vsock_port, const char *virtio_path)
{
	c->vsock_port = vsock_port;
	c->virtio_path = virtio_path;
	c->listener = c->port = c->port_client.fd = -1;
	for (unsigned i = 0; i < CHANNEL_CLIENTS_MAX; i++)
		c->clients[i].fd = -1;
	(void)agent_channel_open_missing(c);
}

bool agent_channel_open_missing(struct agent_channel *c)
{
	if (c->listener < 0 && c->vsock_port)
		c->listener = open_vsock(c->vsock_port);
	if (c->port < 0 && c->virtio_path)
		c->port = c->port_client.fd = open_port(c->virtio_path);
	return (c->listener < 0 && c->vsock_port) || (c->port < 0 && c->virtio_path);
}

void agent_channel_take_listener(struct agent_channel *c, int take_fd)
{
	if (c->listener >= 0)
		close(c->listener);
	c->listener = take_fd;
}

unsigned agent_channel_poll_fds(const struct agent_channel *c,
				struct pollfd ret[static CHANNEL_FDS_MAX])
{
	unsigned n = 0;

	if (c->listener >= 0)
		ret[n++] = (struct pollfd){ .fd = c->listener, .events = POLLIN };
	if (c->port >= 0 && !c->port_idle)
		ret[n++] = (struct pollfd){ .fd = c->port, .events = POLLIN };
	for (unsigned i = 0; i < CHANNEL_CLIENTS_MAX; i++)
		if (c->clients[i].fd >= 0)
			ret[n++] = (struct pollfd){ .fd = c->clients[i].fd, .events = POLLIN };
	return n;
}

static void answer_client(struct agent_channel *c, int fd)
{
	char answer[ANSWER_MAX];
	size_t n = c->answer(answer, sizeof answer, c->userdata);

	/* The answer fits any socket's buffer. The serial port refuses while its driver does not
	 * know yet that the host is there, and what the host wrote can be here before that. */
	for (unsigned i = 0; write(fd, answer, n) < 0 && errno == EAGAIN && i < ANSWER_TRIES; i++)
		(void)poll(NULL, 0, ANSWER_PAUSE_MS);
}

/* 0 when it has ended, -EAGAIN when there is nothing. */
static ssize_t read_more(struct channel_client *client)
{
	ssize_t n = read(client->fd, client->line + client->len, sizeof client->line - client->len);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? -EAGAIN : 0;
	client->len += (size_t)n;
	return n;
}

/* Answers the first line that is complete and drops it; false when none is. */
static bool take_line(struct agent_channel *c, struct channel_client *client)
{
	static const char request[] = "status";
	char *newline = memchr(client->line, '\n', client->len);
	size_t len;

	if (!newline)
		return false;
	len = (size_t)(newline - client->line);
	if (len > 0 && client->line[len - 1] == '\r')
		len--;
	if (len == sizeof request - 1 && memcmp(client->line, request, len) == 0)
		answer_client(c, client->fd);
	client->len -= (size_t)(newline - client->line) + 1;
	memmove(client->line, newline + 1, client->len);
	return true;
}

/* One request each; false when this client is done with. */
static bool serve_client(struct agent_channel *c, struct channel_client *client)
{
	ssize_t n = read_more(client);

	return n == -EAGAIN ||
	       (n > 0 && !take_line(c, client) && client->len < sizeof client->line);
}

static void accept_client(struct agent_channel *c)
{
	int fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	unsigned at = 0;

	if (fd < 0)
		return;
	while (at < CHANNEL_CLIENTS_MAX && c->clients[at].fd >= 0)
		at++;
	if (at == CHANNEL_CLIENTS_MAX) { /* nobody may keep others out by waiting */
		at = c->next++ % CHANNEL_CLIENTS_MAX;
		close(c->clients[at].fd);
	}
	c->clients[at] = (struct channel_client){ .fd = fd };
}

void agent_channel_port_changed(struct agent_channel *c)
{
	c->port_idle = false;
}

static void handle_port(struct agent_channel *c, short events)
{
	if (events & POLLIN) {
		if (read_more(&c->port_client) == 0)
			c->port_idle = true; /* the port itself stays */
		while (take_line(c, &c->port_client))
			;
		if (c->port_client.len == sizeof c->port_client.line)
			c->port_client.len =
				0; /* an over-long line: its rest is one that is no request */
	} else if (events & (POLLHUP | POLLERR)) {
		c->port_idle = true;
		c->port_client.len = 0;
	}
}

void agent_channel_handle(struct agent_channel *c, const struct pollfd *fds, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (!fds[i].revents)
			continue;
		if (fds[i].fd == c->listener)
			accept_client(c);
		else if (fds[i].fd == c->port)
			handle_port(c, fds[i].revents);
		for (unsigned k = 0; k < CHANNEL_CLIENTS_MAX; k++) {
			if (c->clients[k].fd != fds[i].fd || fds[i].fd == c->listener)
				continue;
			if (!serve_client(c, &c->clients[k])) {
				close(c->clients[k].fd);
				c->clients[k].fd = -1;
			}
		}
	}
}
