/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pod has which device, from the kubelet's pod-resources socket.
 *
 * Every failure, the rate limit too, means "not known": the last answer stays in force.
 */
#pragma once

#include "plugin/plugin-set.h"

#include <systemd/sd-event.h>

struct pod_client;

/* ret_devices: the caller's, NULL when it failed (err says why). From the loop. */
typedef void (*pod_done_fn)(struct pod_devices *take, const struct error *err, void *userdata);

int pod_client_new(sd_event *event, const char *socket, pod_done_fn done, void *userdata,
		   struct pod_client **ret) _must_check_;
struct pod_client *pod_client_free(struct pod_client *c);
/* Asks, unless a question is out already. */
void pod_client_ask(struct pod_client *c);
bool pod_client_is_busy(const struct pod_client *c);

/* Takes an answer apart. -EBADMSG, -ENOMEM, -E2BIG. */
int pod_resources_parse(const void *msg, size_t size, struct pod_devices *ret) _must_check_;
