/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kubelet's side of life: which sockets stand in its folder, and who is registered.
 *
 * Each resource is served first and registered then, and again whenever the kubelet's socket is
 * another one, our own is gone or replaced, or no stream of the newest registration is open. Files
 * are noticed by inotify and, because that may fail or miss things, by looking every few seconds. A
 * kubelet that is not there is waited for; one that refuses is asked again, less and less often,
 * for ever.
 */
#pragma once

#include "plugin/plugin.h"

struct device_plugin;
struct watch;

/* -EINVAL unless absolute, -ENAMETOOLONG when sockets in it would not fit into sun_path. */
int kubelet_check_folder(const char *folder, struct error *err) _must_check_;

int kubelet_new(struct plugin *p, struct kubelet **ret, struct error *err) _must_check_;
struct kubelet *kubelet_free(struct kubelet *k);

/* Looks at the files and does what is due; cheap. From the loop. */
void kubelet_look(struct kubelet *k);
/* Has kubelet_look() run soon. */
void kubelet_wake(struct kubelet *k);
bool kubelet_is_there(const struct kubelet *k); /* its socket is */

void kubelet_watch_opened(struct device_plugin *dp);
void kubelet_watch_closed(struct device_plugin *dp, const struct watch *w);

/* "berth-1a2b3c4d5e6f-0.sock": the same for a resource each time, another one for each slot. */
void kubelet_socket_name(const char *resource, unsigned slot, char ret[static 48]);
