/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/pod-resources.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "grpc/grpc.h"
#include "proto/podresources.pb-c.h"

#define LIST_LIMIT_USEC (5 * USEC_PER_SEC)
#define LIST_MAX_BYTES	(16u << 20)

struct pod_client {
	sd_event *event;
	const char *socket;
	pod_done_fn done;
	void *userdata;
	struct grpc_unary *call;
};

static int take_container(const V1__ContainerResources *c, struct pod_devices *ret)
{
	int r = 0;

	for (size_t d = 0; d < c->n_devices; d++) {
		const V1__ContainerDevices *devices = c->devices[d];

		for (size_t i = 0; r == 0 && i < devices->n_device_ids; i++)
			r = pod_devices_add(ret, devices->resource_name,
					    strlen(devices->resource_name), devices->device_ids[i]);
	}
	return r;
}

int pod_resources_parse(const void *msg, size_t size, struct pod_devices *ret)
{
	V1__ListPodResourcesResponse *list = v1__list_pod_resources_response__unpack(NULL, size,
										     msg);
	struct pod_devices found = { .asked = true, .known = true };
	int r = 0;

	if (!list)
		return -EBADMSG;
	for (size_t p = 0; p < list->n_pod_resources; p++)
		for (size_t c = 0; r == 0 && c < list->pod_resources[p]->n_containers; c++)
			r = take_container(list->pod_resources[p]->containers[c], &found);
	v1__list_pod_resources_response__free_unpacked(list, NULL);
	if (r < 0) {
		pod_devices_done(&found);
		return r;
	}
	*ret = found;
	return 0;
}

static void list_done(struct grpc_unary *call, const struct grpc_reply *reply, void *userdata)
{
	struct pod_client *c = userdata;
	struct pod_devices found;
	struct error err = ERROR_INIT;
	int r;

	(void)call;
	if (reply->status != GRPC_OK) {
		error_set(&err, EIO, "%s: %.150s", grpc_status_name(reply->status), reply->text);
	} else {
		r = pod_resources_parse(reply->msg, reply->size, &found);
		if (r < 0)
			error_set_errno(&err, r, "the answer cannot be understood");
	}
	c->call = grpc_unary_free(c->call);
	c->done(err.code ? NULL : &found, &err, c->userdata);
}

void pod_client_ask(struct pod_client *c)
{
	struct grpc_request request = { .socket = c->socket,
					.path = "/v1.PodResourcesLister/List",
					.msg = "",
					.timeout_usec = LIST_LIMIT_USEC,
					.reply_max = LIST_MAX_BYTES,
					.done = list_done,
					.userdata = c };
	struct error err = ERROR_INIT;

	if (c->call)
		return;
	if (grpc_unary_new(c->event, &request, &c->call, &err) < 0)
		c->done(NULL, &err, c->userdata);
}

bool pod_client_is_busy(const struct pod_client *c)
{
	return c->call != NULL;
}

int pod_client_new(sd_event *event, const char *socket, pod_done_fn done, void *userdata,
		   struct pod_client **ret)
{
	struct pod_client *c = calloc(1, sizeof *c);

	if (!c)
		return -ENOMEM;
	*c = (struct pod_client){
		.event = event, .socket = socket, .done = done, .userdata = userdata
	};
	*ret = c;
	return 0;
}

struct pod_client *pod_client_free(struct pod_client *c)
{
	if (c)
		grpc_unary_free(c->call);
	free(c);
	return NULL;
}
