/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/device-plugin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "plugin/allocate.h"
#include "plugin/kubelet.h"
#include "plugin/preferred.h"
#include "proto/deviceplugin.pb-c.h"

#define LIST_WARN_BYTES (GRPC_MESSAGE_MAX / 2)

static const struct resource *find_resource(const struct device_plugin *dp)
{
	const struct discovery *d = dp->plugin->current;

	return d && !dp->ending ? discovery_find(d, dp->resource) : NULL;
}

/* --- The list -------------------------------------------------------------------------------- */

/* The pieces of one packed list. */
struct list_parts {
	V1beta1__Device *devices;
	V1beta1__Device **pointers;
	V1beta1__TopologyInfo *topologies;
	V1beta1__NUMANode *nodes;
	V1beta1__NUMANode **node_pointers;
};

static void list_parts_done(struct list_parts *l)
{
	free(l->devices);
	free(l->pointers);
	free(l->topologies);
	free(l->nodes);
	free(l->node_pointers);
}

static bool list_parts_init(struct list_parts *l, unsigned n)
{
	l->devices = calloc(n + 1U, sizeof *l->devices);
	l->pointers = calloc(n + 1U, sizeof(void *));
	l->topologies = calloc(n + 1U, sizeof *l->topologies);
	l->nodes = calloc(n + 1U, sizeof *l->nodes);
	l->node_pointers = calloc(n + 1U, sizeof(void *));
	return l->devices && l->pointers && l->topologies && l->nodes && l->node_pointers;
}

/* Without a node there is no topology: an empty list reads as "no node will do" to some kubelets.
 */
static void fill_device(struct list_parts *l, unsigned i, const struct device *d)
{
	static char healthy[] = "Healthy", unhealthy[] = "Unhealthy";

	v1beta1__device__init(&l->devices[i]);
	l->pointers[i] = &l->devices[i];
	l->devices[i].id = (char *)d->id;
	l->devices[i].health = device_problem(d) ? unhealthy : healthy;
	if (d->numa_node < 0)
		return;
	v1beta1__numanode__init(&l->nodes[i]);
	l->nodes[i].id = d->numa_node;
	l->node_pointers[i] = &l->nodes[i];
	v1beta1__topology_info__init(&l->topologies[i]);
	l->topologies[i].n_nodes = 1;
	l->topologies[i].nodes = &l->node_pointers[i];
	l->devices[i].topology = &l->topologies[i];
}

static int pack_list(const struct resource *r, uint8_t **ret, size_t *ret_size)
{
	_cleanup_(list_parts_done) struct list_parts l = { 0 };
	V1beta1__ListAndWatchResponse list = V1BETA1__LIST_AND_WATCH_RESPONSE__INIT;
	unsigned n = r ? r->n_devices : 0;
	uint8_t *data;
	size_t size;

	if (!list_parts_init(&l, n))
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++)
		fill_device(&l, i, &r->devices[i]);
	list.n_devices = n;
	list.devices = l.pointers;
	size = v1beta1__list_and_watch_response__get_packed_size(&list);
	data = malloc(size + 1);
	if (!data)
		return -ENOMEM;
	v1beta1__list_and_watch_response__pack(&list, data);
	*ret = data;
	*ret_size = size;
	return 0;
}

static void send_list(struct device_plugin *dp, struct watch *w)
{
	int r = grpc_call_send(w->call, dp->list, dp->list_size);

	w->behind = r == -EAGAIN || r == -ENOBUFS || r == -ENOMEM;
	if (r == -EMSGSIZE)
		log_error("plugin: the list of %zu bytes is larger than kubelets take resource=%s",
			  dp->list_size, dp->resource);
}

void device_plugin_list_changed(struct device_plugin *dp)
{
	uint8_t *list;
	size_t size;

	if (pack_list(find_resource(dp), &list, &size) < 0) {
		log_error("plugin: out of memory; the list stays as it was resource=%s",
			  dp->resource);
		return;
	}
	if (dp->list && size == dp->list_size && memcmp(list, dp->list, size) == 0) {
		free(list);
		return;
	}
	if (size > LIST_WARN_BYTES && dp->list_size <= LIST_WARN_BYTES)
		log_error("plugin: the list has %zu bytes, kubelets take %u resource=%s", size,
			  GRPC_MESSAGE_MAX, dp->resource);
	free(dp->list);
	dp->list = list;
	dp->list_size = size;
	plugin_metrics_list_sent(&dp->plugin->metrics, dp->resource);
	for (unsigned i = 0; i < dp->n_watches; i++)
		if (!dp->watches[i].behind)
			send_list(dp, &dp->watches[i]);
}

/* --- ListAndWatch ---------------------------------------------------------------------------- */

static void watch_start(struct grpc_call *call, const void *msg, size_t size, void *userdata)
{
	struct device_plugin *dp = userdata;
	struct watch *w = &dp->watches[dp->n_watches];

	(void)msg;
	(void)size;
	if (dp->n_watches == STREAMS_MAX) {
		grpc_call_finish(call, GRPC_RESOURCE_EXHAUSTED, "too many watch this list already");
		return;
	}
	*w = (struct watch){ .call = call,
			     .registration = dp->registration,
			     .opened_usec = clock_now_usec() };
	dp->n_watches++;
	if (!dp->list)
		device_plugin_list_changed(dp); /* which sends it to this one too */
	else
		send_list(dp, w);
	kubelet_watch_opened(dp);
}

static void watch_writable(struct grpc_call *call, void *userdata)
{
	struct device_plugin *dp = userdata;

	for (unsigned i = 0; i < dp->n_watches; i++) {
		struct watch *w = &dp->watches[i];

		if (w->call != call || !w->behind)
			continue;
		send_list(dp, w);
		if (dp->ending && !w->behind)
			grpc_call_finish(call, GRPC_OK, NULL);
	}
}

static void watch_closed(struct grpc_call *call, void *userdata)
{
	struct device_plugin *dp = userdata;

	for (unsigned i = 0; i < dp->n_watches; i++) {
		struct watch w = dp->watches[i];

		if (w.call != call)
			continue;
		dp->watches[i] = dp->watches[--dp->n_watches];
		kubelet_watch_closed(dp, &w);
		return;
	}
}

/* --- The small calls ------------------------------------------------------------------------- */

static void options_start(struct grpc_call *call, const void *msg, size_t size, void *userdata)
{
	V1beta1__DevicePluginOptions options = V1BETA1__DEVICE_PLUGIN_OPTIONS__INIT;
	uint8_t data[16];

	(void)msg;
	(void)size;
	(void)userdata;
	options.pre_start_required = true;
	options.get_preferred_allocation_available = true;
	grpc_call_reply(call, data, v1beta1__device_plugin_options__pack(&options, data));
}

/* One container's choice into memory of the caller's; ids point into the request. */
static int choose(const struct resource *r, const V1beta1__ContainerPreferredAllocationRequest *in,
		  V1beta1__ContainerPreferredAllocationResponse *out)
{
	unsigned chosen[PREFERRED_MAX];
	int n;

	v1beta1__container_preferred_allocation_response__init(out);
	if (in->allocation_size < 0 || in->n_available_deviceids > PREFERRED_MAX)
		return -EINVAL;
	n = preferred_choose(r, (const char *const *)in->available_deviceids,
			     (unsigned)in->n_available_deviceids,
			     (const char *const *)in->must_include_deviceids,
			     (unsigned)in->n_must_include_deviceids, (unsigned)in->allocation_size,
			     chosen);
	if (n < 0)
		return n;
	out->deviceids = calloc((size_t)n + 1, sizeof(char *));
	if (!out->deviceids)
		return -ENOMEM;
	for (int i = 0; i < n; i++)
		out->deviceids[i] = in->available_deviceids[chosen[i]];
	out->n_deviceids = (size_t)n;
	return 0;
}

static int answer_preferred(const struct resource *r, const V1beta1__PreferredAllocationRequest *in,
			    struct grpc_call *call)
{
	V1beta1__PreferredAllocationResponse out = V1BETA1__PREFERRED_ALLOCATION_RESPONSE__INIT;
	_free_ V1beta1__ContainerPreferredAllocationResponse *parts = NULL;
	_free_ V1beta1__ContainerPreferredAllocationResponse **pointers = NULL;
	_free_ uint8_t *data = NULL;
	int result = 0;

	parts = calloc(in->n_container_requests + 1, sizeof *parts);
	pointers = calloc(in->n_container_requests + 1, sizeof *pointers);
	if (!parts || !pointers)
		return -ENOMEM;
	for (size_t i = 0; result == 0 && i < in->n_container_requests; i++) {
		result = choose(r, in->container_requests[i], &parts[i]);
		pointers[i] = &parts[i];
		out.n_container_responses++;
	}
	out.container_responses = pointers;
	if (result == 0) {
		data = malloc(v1beta1__preferred_allocation_response__get_packed_size(&out) + 1);
		if (data)
			grpc_call_reply(call, data,
					v1beta1__preferred_allocation_response__pack(&out, data));
		else
			result = -ENOMEM;
	}
	for (size_t i = 0; i < out.n_container_responses; i++)
		free(parts[i].deviceids);
	return result;
}

static void preferred_start(struct grpc_call *call, const void *msg, size_t size, void *userdata)
{
	struct device_plugin *dp = userdata;
	const struct resource *r = find_resource(dp);
	V1beta1__PreferredAllocationRequest *in;
	int result;

	in = v1beta1__preferred_allocation_request__unpack(NULL, size, msg);
	if (!in) {
		grpc_call_finish(call, GRPC_INVALID_ARGUMENT, "the request cannot be understood");
		return;
	}
	result = r ? answer_preferred(r, in, call) : -ENOENT;
	if (result == -ENOENT)
		grpc_call_finishf(call, GRPC_NOT_FOUND, "%s is not offered any more", dp->resource);
	else if (result == -EINVAL)
		grpc_call_finish(
			call, GRPC_INVALID_ARGUMENT,
			"the devices to include are not among the available ones, or too many");
	else if (result < 0)
		grpc_call_finish(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
	v1beta1__preferred_allocation_request__free_unpacked(in, NULL);
}

static void allocate_call(struct grpc_call *call, const void *msg, size_t size, void *userdata)
{
	struct device_plugin *dp = userdata;

	allocate_start(dp->plugin, dp->resource, call, msg, size);
}

static void pre_start_call(struct grpc_call *call, const void *msg, size_t size, void *userdata)
{
	struct device_plugin *dp = userdata;

	allocate_pre_start(dp->plugin, dp->resource, call, msg, size);
}

static void check_closed(struct grpc_call *call, void *userdata)
{
	(void)userdata;
	allocate_closed(call);
}

static const struct grpc_method methods[] = {
	{ .path = "/v1beta1.DevicePlugin/GetDevicePluginOptions", .start = options_start },
	{ .path = "/v1beta1.DevicePlugin/ListAndWatch",
	  .start = watch_start,
	  .writable = watch_writable,
	  .closed = watch_closed },
	{ .path = "/v1beta1.DevicePlugin/GetPreferredAllocation", .start = preferred_start },
	{ .path = "/v1beta1.DevicePlugin/Allocate",
	  .start = allocate_call,
	  .closed = check_closed },
	{ .path = "/v1beta1.DevicePlugin/PreStartContainer",
	  .start = pre_start_call,
	  .closed = check_closed },
};

/* --- Life ------------------------------------------------------------------------------------ */

int device_plugin_new(struct plugin *p, const char *resource, struct device_plugin **ret)
{
	struct device_plugin *dp = calloc(1, sizeof *dp);

	if (!dp)
		return -ENOMEM;
	dp->plugin = p;
	str_copy_cut(dp->resource, sizeof dp->resource, resource);
	*ret = dp;
	return 0;
}

struct device_plugin *device_plugin_free(struct device_plugin *dp)
{
	if (!dp)
		return NULL;
	dp->ending = true;
	grpc_unary_free(dp->call);
	grpc_server_free(dp->server);
	free(dp->list);
	free(dp);
	return NULL;
}

void device_plugin_end(struct device_plugin *dp)
{
	dp->ending = true;
	dp->ended_usec = clock_now_usec();
	dp->call = grpc_unary_free(dp->call);
	device_plugin_list_changed(dp);
	for (unsigned i = 0; i < dp->n_watches; i++)
		if (!dp->watches[i].behind) /* else once the empty list has gone out */
			grpc_call_finish(dp->watches[i].call, GRPC_OK, NULL);
}

void device_plugin_revive(struct device_plugin *dp)
{
	dp->ending = false;
	dp->registered = false;
	dp->next_try_usec = dp->backoff_usec = 0;
	dp->losses = 0;
}

unsigned device_plugin_watches(const struct device_plugin *dp)
{
	unsigned n = 0;

	for (unsigned i = 0; i < dp->n_watches; i++)
		n += dp->watches[i].registration == dp->registration &&
		     !grpc_call_is_over(dp->watches[i].call);
	return n;
}

int device_plugin_serve(struct device_plugin *dp, const char *path, struct error *err)
{
	return grpc_server_new(dp->plugin->event, path, methods, ARRAY_SIZE(methods), dp,
			       &dp->server, err);
}

void device_plugin_close(struct device_plugin *dp)
{
	dp->server = grpc_server_free(dp->server);
}
