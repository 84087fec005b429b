/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Server-sent events: what is published goes to every client of GET /events.
 *
 * The last events are kept in one ring that all clients read from, so a client costs no buffer of
 * its own: one that falls behind by the whole ring, or does not read for a minute, is cut. A client
 * that comes back with Last-Event-ID gets what it missed if the ring still has it, else an event
 * "reset", after which it should fetch the state anew. Ids grow, also over a restart.
 */
#pragma once

#include <jansson.h>
#include <systemd/sd-event.h>

#include "base/macro.h"
#include "http/server.h"

#define HTTP_EVENTS_CLIENTS_MAX 64
#define HTTP_EVENTS_RING_EVENTS 256
#define HTTP_EVENTS_RING_BYTES	((size_t)1024 * 1024)

struct http_events;

struct http_events_config {
	sd_event *event;
	uint64_t keepalive_usec; /* a comment line after so much silence; 0: 15 s */
	uint64_t stall_usec;	 /* a client that takes nothing for so long is cut; 0: 60 s */
};

int http_events_new(const struct http_events_config *config, struct http_events **ret) _must_check_;
/* The server must be freed first, or all clients be gone. */
struct http_events *http_events_free(struct http_events *events);

/* type: a plain word such as "claim". Takes the reference to take_data, also on failure; an event
 * above 64 KiB is refused with -EMSGSIZE. */
int http_events_publish(struct http_events *events, const char *type,
			json_t *take_data) _must_check_;

/* The handler of GET /events: replies with the stream, or 503 when there are too many clients. */
void http_events_serve(struct http_events *events, struct http_request *req);

unsigned http_events_clients(const struct http_events *events);
