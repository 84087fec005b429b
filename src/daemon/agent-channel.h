/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking the agent in a guest over the channel that its claim names.
 *
 *   vsock:CID[:PORT]   AF_VSOCK (default port 52010)
 *   unix:PATH          a Unix socket that is the host's end of a virtio-serial port (QEMU)
 *   hvsock:PATH:PORT   a Unix socket that wants "CONNECT PORT\n" first (Firecracker, Cloud
 * Hypervisor)
 *
 * One line "status" is sent; the agent answers one line of JSON (see agent/channel.h). The guest is
 * not trusted: the answer is bounded in size and time and is only used to contradict a marker.
 */
#pragma once

#include <systemd/sd-event.h>

#include "base/error.h"

#define AGENT_PORT_DEFAULT 52010

enum agent_state {
	AGENT_UNKNOWN, /* no answer, or its watch is lost: contradicts nothing */
	AGENT_NEITHER, /* it watches, and has seen neither success nor failure */
	AGENT_OK,
	AGENT_FAILED,
};

struct agent_query;

/* Is this text a channel? -EINVAL with a sentence. */
int agent_channel_check(const char *channel, struct error *err) _must_check_;

typedef void (*agent_done_fn)(enum agent_state state, void *userdata);

/* Asks; done runs from the loop, once, within timeout_usec. -errno when it cannot even begin.
 * owner: whose claim names the channel. A Unix socket must have been opened by that user, unless it
 * is root: berthd would connect, as root, where the owner may not. */
int agent_query_new(sd_event *event, const char *channel, uid_t owner, uint64_t timeout_usec,
		    agent_done_fn done, void *userdata, struct agent_query **ret) _must_check_;
/* Ends it without calling done. */
struct agent_query *agent_query_free(struct agent_query *q);
