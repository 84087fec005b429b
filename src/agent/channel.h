/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the host can ask the agent for its state: an AF_VSOCK port and a virtio-serial port.
 *
 * A line "status" is answered by one line of JSON:
 *   {"agent": "berth", "version", "state": "ok"|"failed"|"unknown", "watching": true|false,
 * "since", "nvrm"} Nothing else is understood. A client has little room, and its place until others
 * want it.
 */
#pragma once

#include <poll.h>

#include "base/macro.h"

#define CHANNEL_CLIENTS_MAX 4
#define CHANNEL_FDS_MAX	    (CHANNEL_CLIENTS_MAX + 2)

struct channel_client {
	int fd; /* -1: free */
	char line[32];
	size_t len;
};

struct agent_channel {
	int listener;	/* -1: none */
	int port;	/* virtio-serial, -1: none */
	bool port_idle; /* no host at the other end: not polled until SIGIO */
	struct channel_client port_client, clients[CHANNEL_CLIENTS_MAX];
	unsigned next; /* place that is given up for a client when all are taken */
	/* Fills in the answer, newline included; returns its length. */
	size_t (*answer)(char *ret, size_t size, void *userdata);
	void *userdata;

	uint32_t vsock_port;
	const char *virtio_path;
};

/* vsock_port 0: none. Neither being there is no error: a guest without the devices has no channel.
 */
void agent_channel_open(struct agent_channel *c, uint32_t vsock_port, const char *virtio_path);
/* What was wanted and not there is looked for again: drivers may be loaded after us. True while
 * something is still missing. */
bool agent_channel_open_missing(struct agent_channel *c);
/* A test's own listening socket instead of AF_VSOCK. */
void agent_channel_take_listener(struct agent_channel *c, int take_fd);
unsigned agent_channel_poll_fds(const struct agent_channel *c,
				struct pollfd ret[static CHANNEL_FDS_MAX]);
void agent_channel_handle(struct agent_channel *c, const struct pollfd *fds, unsigned n);
/* SIGIO came: the host may have connected to the virtio-serial port. */
void agent_channel_port_changed(struct agent_channel *c);
