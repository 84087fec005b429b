/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device plugin of one resource: its socket, the streams that watch its list, and the calls.
 *
 * It serves before it registers and while it does: a kubelet asks for the options before it answers
 * Register. When and whether it registers is kubelet.c's matter, and so are the fields for that.
 */
#pragma once

#include "grpc/grpc.h"
#include "plugin/plugin.h"

#define STREAMS_MAX 16 /* kubelets that watch: one, and old ones whose connections linger */

struct watch {
	struct grpc_call *call;
	uint64_t registration; /* of ours that came before it */
	uint64_t opened_usec;
	bool behind; /* the newest list waits until the peer reads */
};

struct device_plugin {
	struct plugin *plugin;
	char resource[RESOURCE_NAME_MAX];
	char socket_name[48];
	struct grpc_server *server; /* NULL while it does not serve */
	unsigned n_watches;
	struct watch watches[STREAMS_MAX];
	uint8_t *list; /* owned; the packed answer of ListAndWatch */
	size_t list_size;
	bool ending; /* the resource is gone: the last list is empty, then it is freed */
	uint64_t ended_usec;

	/* kubelet.c */
	struct grpc_unary *call; /* Register, while it runs */
	uint64_t registration;	 /* counts our registrations */
	bool registered;	 /* the newest one was taken, and its list is or will be watched */
	bool watched;		 /* a stream came with it */
	uint64_t registered_usec;
	uint64_t next_try_usec;
	uint64_t backoff_usec;
	unsigned losses; /* of a registration, none of which had been left alone for a while */
	unsigned slot;	 /* of the socket's name */
	bool complained;
	char last_problem[160];
};

int device_plugin_new(struct plugin *p, const char *resource,
		      struct device_plugin **ret) _must_check_;
struct device_plugin *device_plugin_free(struct device_plugin *dp);

/* Packs the list that is in force and sends it where it reads otherwise than the last. */
void device_plugin_list_changed(struct device_plugin *dp);
/* Sends an empty list and ends the streams; freed by the owner once nothing is open. */
void device_plugin_end(struct device_plugin *dp);
/* Takes an ending one into use again. */
void device_plugin_revive(struct device_plugin *dp);

/* Streams that were opened since the newest registration. */
unsigned device_plugin_watches(const struct device_plugin *dp);

/* Starts serving at the path. */
int device_plugin_serve(struct device_plugin *dp, const char *path, struct error *err) _must_check_;
void device_plugin_close(struct device_plugin *dp);
