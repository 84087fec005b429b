/* SPDX-License-Identifier: Apache-2.0 */
/*
 * berthd as a service of systemd: sockets handed over, ready, reloading, watchdog, one line of
 * status. Without systemd all of it does nothing.
 */
#pragma once

#include "daemon/node.h"
#include "http/server.h"

struct service;

/* Takes the sockets of LISTEN_FDS: one Unix socket for `socket`, one TCP socket for `listen`. Their
 * addresses are checked by whoever listens. -EINVAL for anything else. */
int service_take_sockets(const struct config *config, struct http_sockets *ret,
			 struct error *err) _must_check_;

/* Keeps the watchdog quiet while the loop turns, and the status line true. */
int service_start(struct node *n, struct error *err) _must_check_;
struct service *service_free(struct service *s);

void service_ready(struct node *n);
/* Around a reload; only the end of it where the start has not ended. */
void service_reloading(struct node *n);
void service_reloaded(struct node *n);
void service_stopping(void);

/* Something that the status line may show has changed. */
void service_changed(struct node *n);
