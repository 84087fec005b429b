/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/allocate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "model/outcome.h"
#include "plugin/answer.h"
#include "plugin/host-scan.h"
#include "proto/deviceplugin.pb-c.h"

#define VENDOR_NVIDIA 0x10de
#define DEVICES_MAX   1024 /* of one call */

struct check_device {
	struct device device; /* as it was when the call came */
	bool read;	      /* berth-card has answered */
	int read_error;
	uint32_t type_id;
};

struct check {
	struct plugin *plugin;
	struct grpc_call *call; /* NULL once it is over */
	char resource[RESOURCE_NAME_MAX];
	char source[NAME_SOURCE_MAX];
	bool pre_start;
	bool answered;
	unsigned pending; /* answers of berth-card; the check lives until the last one */
	char card_text[CARD_TEXT_MAX];
	uint64_t started_usec;
	sd_event_source *timer;
	unsigned n_containers;
	unsigned *container_sizes; /* owned */
	unsigned n_devices;
	struct check_device *devices; /* owned; of all containers in a row */
};

static void check_unref(struct check *c)
{
	if (c->pending > 0 || c->call)
		return;
	sd_event_source_disable_unref(c->timer);
	free(c->container_sizes);
	free(c->devices);
	free(c);
}

/* Counts, logs once and tells the peer. */
static void fail(struct check *c, enum grpc_status status, const struct error *err)
{
	c->answered = true;
	log_warning("plugin: %s refused resource=%s: %s", c->pre_start ? "start" : "allocation",
		    c->resource, error_text(err));
	plugin_metrics_allocated(&c->plugin->metrics, c->resource, c->pre_start, false,
				 clock_now_usec() - c->started_usec);
	if (c->call)
		grpc_call_finish(c->call, status, error_text(err));
}

/* --- The last look --------------------------------------------------------------------------- */

static bool node_exists(const struct plugin *p, const char *fmt, ...) _printf_(2, 3);

static bool node_exists(const struct plugin *p, const char *fmt, ...)
{
	char path[512];
	va_list ap;
	int n = snprintf(path, sizeof path, "%.400s/", p->options.dev_root);

	va_start(ap, fmt);
	vsnprintf(path + n, sizeof path - (size_t)n, fmt, ap);
	va_end(ap);
	return faccessat(AT_FDCWD, path, F_OK, 0) == 0;
}

static int check_type(const struct check *c, const struct check_device *d, struct error *err)
{
	if (d->read_error == -E_DRIVER_STUCK)
		return error_set(err, ETIMEDOUT, "%s: the driver of its card does not answer: %s",
				 d->device.id, c->card_text);
	if (d->read_error)
		return error_set_errno(err, EIO, "%s: current_vgpu_type cannot be read (%s)",
				       d->device.id, strerrordesc_np(-d->read_error) ?: "?");
	if (d->type_id == 0)
		return error_set(err, ESTALE,
				 "%s: it has no vGPU type any more; it was offered as %s (%u)",
				 d->device.id, c->source, d->device.type_id);
	if (d->type_id != d->device.type_id)
		return error_set(err, ESTALE,
				 "%s: its vGPU type is %u now; it was offered as %s (%u)",
				 d->device.id, d->type_id, c->source, d->device.type_id);
	return 0;
}

static int check_function(const struct device *d, const struct function_now *now, struct error *err)
{
	bool vf = d->kind == DEVICE_VF;

	if (now->vendor != VENDOR_NVIDIA)
		return error_set(err, ESTALE, "%s: its vendor is %04x, not NVIDIA's 10de", d->id,
				 now->vendor);
	if (now->group != d->group)
		return error_set(err, ESTALE,
				 "%s: its IOMMU group is %d now; it was offered in group %d", d->id,
				 now->group, d->group);
	if (vf ? strcmp(now->driver, "nvidia") != 0 : !host_is_vfio_driver(now->driver))
		return error_set(err, ESTALE, "%s: it is bound to %s now", d->id,
				 now->driver[0] ? now->driver : "no driver");
	return 0;
}

static void add_cdev(const struct check *c, struct answer_device *out, const char *name)
{
	if (!name[0] || out->n_cdevs == GROUP_MEMBERS_MAX ||
	    !node_exists(c->plugin, "vfio/devices/%s", name)) {
		out->cdevs_complete = false;
		return;
	}
	memcpy(out->cdevs[out->n_cdevs++], name, 24);
}

/* A whole GPU goes with all functions of its group. */
static void add_cdevs(const struct check *c, const struct device *d, const struct function_now *now,
		      struct answer_device *out)
{
	struct gpu_group group;

	out->cdevs_complete = true;
	if (d->kind == DEVICE_VF) {
		add_cdev(c, out, now->vfio_device);
		return;
	}
	host_read_group(c->plugin->options.sysfs_root, d->address, &group);
	for (unsigned i = 0; i < group.n; i++)
		if (group.members[i].driver[0] && !group.members[i].bridge)
			add_cdev(c, out, group.members[i].vfio_device);
}

static int check_device(const struct check *c, const struct check_device *d, bool iommu,
			struct answer_device *out, struct error *err)
{
	const char *sysfs_root = c->plugin->options.sysfs_root;
	struct function_now now = { .group = -1 };
	int r;

	*out = (struct answer_device){ .device = &d->device, .group = d->device.group };
	if (d->device.kind == DEVICE_VF && (r = check_type(c, d, err)) < 0)
		return r;
	if (d->device.kind == DEVICE_MDEV)
		r = host_read_mdev_group(sysfs_root, d->device.id, &now.group);
	else
		r = host_read_function(sysfs_root, d->device.address, &now);
	if (r < 0)
		return error_set(err, ENODEV, "%s: it is not there any more", d->device.id);
	if (d->device.kind == DEVICE_MDEV && now.group != d->device.group)
		return error_set(err, ESTALE,
				 "%s: its IOMMU group is %d now; it was offered in group %d",
				 d->device.id, now.group, d->device.group);
	if (d->device.kind != DEVICE_MDEV && (r = check_function(&d->device, &now, err)) < 0)
		return r;
	out->group_node = node_exists(c->plugin, "vfio/%d", d->device.group);
	if (!out->group_node)
		return error_set(err, ENODEV, "%s: /dev/vfio/%d is missing", d->device.id,
				 d->device.group);
	if (iommu && d->device.kind != DEVICE_MDEV && !c->pre_start)
		add_cdevs(c, &d->device, &now, out);
	return 0;
}

/* --- The end --------------------------------------------------------------------------------- */

static void send_answer(struct check *c, const struct answer_device *devices, bool iommu)
{
	const struct discovery *set = c->plugin->current;
	_free_ struct answer_container *containers = calloc(c->n_containers + 1U,
							    sizeof *containers);
	struct answer_host host = { .iommu_node = iommu };
	struct error err = ERROR_INIT;
	_free_ uint8_t *data = NULL;
	unsigned first = 0;
	size_t size = 0;

	if (set) {
		host.egms = set->egms;
		host.n_egms = set->n_egms;
	}
	for (unsigned i = 0; containers && i < c->n_containers; i++) {
		containers[i] = (struct answer_container){ c->container_sizes[i], devices + first };
		first += c->container_sizes[i];
	}
	if (!containers || (!c->pre_start && answer_build(c->resource, containers, c->n_containers,
							  &host, &data, &size) < 0)) {
		error_set(&err, ENOMEM, "out of memory");
		fail(c, GRPC_RESOURCE_EXHAUSTED, &err);
		return;
	}
	c->answered = true;
	plugin_metrics_allocated(&c->plugin->metrics, c->resource, c->pre_start, true,
				 clock_now_usec() - c->started_usec);
	for (unsigned i = 0; i < c->n_devices && !c->pre_start; i++)
		log_info("plugin: allocated resource=%s device=%s", c->resource,
			 c->devices[i].device.id);
	if (c->call)
		grpc_call_reply(c->call, data ? (const void *)data : "", size);
}

static void conclude(struct check *c)
{
	_free_ struct answer_device *devices = calloc(c->n_devices + 1U, sizeof *devices);
	bool iommu = node_exists(c->plugin, "iommu");
	struct error err = ERROR_INIT;
	int r = 0;

	if (c->answered || !c->call)
		return;
	if (!devices)
		r = error_set(&err, ENOMEM, "out of memory");
	else if (!node_exists(c->plugin, "vfio/vfio"))
		r = error_set(&err, ENODEV,
			      "/dev/vfio/vfio is missing: is the vfio module loaded?");
	for (unsigned i = 0; devices && r == 0 && i < c->n_devices; i++)
		r = check_device(c, &c->devices[i], iommu, &devices[i], &err);
	if (r == 0) {
		send_answer(c, devices, iommu);
		return;
	}
	fail(c,
	     r == -ENOMEM      ? GRPC_RESOURCE_EXHAUSTED
	     : r == -ETIMEDOUT ? GRPC_UNAVAILABLE
			       : GRPC_FAILED_PRECONDITION,
	     &err);
	plugin_suspect(c->plugin);
}

static int limit_passed(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct check *c = userdata;
	struct error err = ERROR_INIT;

	(void)source;
	(void)usec;
	for (unsigned i = 0; i < c->n_devices && !err.code; i++)
		if (c->devices[i].device.kind == DEVICE_VF && !c->devices[i].read)
			error_set(&err, ETIMEDOUT,
				  "%s: the driver did not tell its vGPU type within %d s",
				  c->devices[i].device.id,
				  (int)(ALLOCATE_LIMIT_USEC / USEC_PER_SEC));
	if (!c->answered)
		fail(c, GRPC_DEADLINE_EXCEEDED, &err);
	return 0;
}

void allocate_closed(struct grpc_call *call)
{
	struct check *c = grpc_call_data(call);

	if (!c)
		return;
	c->call = NULL;
	check_unref(c);
}

/* --- Asking berth-card ----------------------------------------------------------------------- */

static void read_done(const struct card_reply *reply, void *userdata)
{
	struct check *c = userdata;

	if (reply->text[0])
		memcpy(c->card_text, reply->text, sizeof c->card_text);
	for (unsigned i = 0; i < c->n_devices; i++)
		for (unsigned v = 0; v < reply->n_vfs; v++) {
			if (c->devices[i].device.kind != DEVICE_VF ||
			    !pci_addr_equal(c->devices[i].device.address, reply->vfs[v].address))
				continue;
			c->devices[i].read = true;
			c->devices[i].read_error = reply->result ? reply->result
								 : reply->vfs[v].error;
			c->devices[i].type_id = reply->vfs[v].type_id;
		}
	if (--c->pending == 0)
		conclude(c);
	check_unref(c);
}

/* One request for all VFs of a card. */
static void ask_card(struct check *c, struct pci_addr card)
{
	struct card_client *client = scan_card_client(c->plugin->scan, card);
	struct card_request request = { .op = CARD_OP_READ };
	int r = -ENODEV;

	for (unsigned i = 0; i < c->n_devices && request.n_vfs < CARD_VFS_MAX; i++)
		if (c->devices[i].device.kind == DEVICE_VF &&
		    pci_addr_equal(c->devices[i].device.card, card))
			request.vfs[request.n_vfs++] = c->devices[i].device.address;
	if (client)
		r = card_client_submit(client, &request, read_done, c);
	if (r == 0) {
		c->pending++;
		return;
	}
	if (client)
		str_copy_cut(c->card_text, sizeof c->card_text, card_client_reason(client));
	for (unsigned i = 0; i < c->n_devices; i++)
		if (c->devices[i].device.kind == DEVICE_VF &&
		    pci_addr_equal(c->devices[i].device.card, card)) {
			c->devices[i].read = true;
			c->devices[i].read_error = r;
		}
}

static void ask_cards(struct check *c)
{
	for (unsigned i = 0; i < c->n_devices; i++) {
		bool asked = c->devices[i].device.kind != DEVICE_VF;

		for (unsigned k = 0; k < i && !asked; k++)
			asked = pci_addr_equal(c->devices[k].device.card,
					       c->devices[i].device.card);
		if (!asked)
			ask_card(c, c->devices[i].device.card);
	}
}

/* --- The beginning --------------------------------------------------------------------------- */

static int add_device(struct check *c, const struct resource *r, const char *id, unsigned first,
		      struct error *err)
{
	const struct device *d = resource_find(r, id);

	if (!d)
		return error_set(err, ENOENT, "%.60s is no device of %s", id, c->resource);
	for (unsigned i = first; i < c->n_devices; i++)
		if (strcmp(c->devices[i].device.id, id) == 0)
			return error_set(err, EINVAL, "%s is asked for twice", id);
	if (d->quarantined && !c->pre_start)
		return error_set(err, ESTALE, "%s is quarantined by berthd", id);
	c->devices[c->n_devices++].device = *d;
	return 0;
}

static int take_ids(struct check *c, char *const *ids, size_t n, struct error *err)
{
	const struct resource *r = c->plugin->current
					   ? discovery_find(c->plugin->current, c->resource)
					   : NULL;
	unsigned first = c->n_devices;
	struct check_device *all;
	int result = 0;

	if (!r)
		return error_set(err, ENOENT, "%s is not offered any more", c->resource);
	if (n == 0)
		return error_set(err, EINVAL, "no device was asked for");
	if (n > DEVICES_MAX - c->n_devices)
		return error_set(err, EINVAL, "more than %d devices were asked for", DEVICES_MAX);
	str_copy_cut(c->source, sizeof c->source, r->source);
	all = reallocarray(c->devices, c->n_devices + n, sizeof *all);
	if (!all)
		return error_set(err, ENOMEM, "out of memory");
	c->devices = all;
	memset(all + c->n_devices, 0, n * sizeof *all);
	for (size_t i = 0; result == 0 && i < n; i++)
		result = add_device(c, r, ids[i], first, err);
	c->container_sizes[c->n_containers++] = (unsigned)n;
	return result;
}

static struct check *check_new(struct plugin *p, const char *resource, struct grpc_call *call,
			       size_t n_containers)
{
	struct check *c = calloc(1, sizeof *c);
	uint64_t now = clock_now_usec();

	if (!c)
		return NULL;
	c->container_sizes = calloc(n_containers + 1, sizeof *c->container_sizes);
	if (!c->container_sizes ||
	    sd_event_add_time(p->event, &c->timer, CLOCK_MONOTONIC, now + ALLOCATE_LIMIT_USEC, 0,
			      limit_passed, c) < 0) {
		free(c->container_sizes);
		free(c);
		return NULL;
	}
	c->plugin = p;
	c->call = call;
	c->started_usec = now;
	str_copy_cut(c->resource, sizeof c->resource, resource);
	grpc_call_set_data(call, c);
	return c;
}

static void begin(struct check *c, int result, const struct error *err)
{
	if (result < 0) {
		fail(c,
		     result == -ENOENT	 ? GRPC_NOT_FOUND
		     : result == -EINVAL ? GRPC_INVALID_ARGUMENT
		     : result == -ENOMEM ? GRPC_RESOURCE_EXHAUSTED
					 : GRPC_FAILED_PRECONDITION,
		     err);
		return;
	}
	ask_cards(c);
	if (c->pending == 0)
		conclude(c);
}

void allocate_start(struct plugin *p, const char *resource, struct grpc_call *call, const void *msg,
		    size_t size)
{
	V1beta1__AllocateRequest *in = v1beta1__allocate_request__unpack(NULL, size, msg);
	struct check *c = in ? check_new(p, resource, call, in->n_container_requests) : NULL;
	struct error err = ERROR_INIT;
	int r = 0;

	if (c) {
		for (size_t i = 0; r == 0 && i < in->n_container_requests; i++)
			r = take_ids(c, in->container_requests[i]->devices_ids,
				     in->container_requests[i]->n_devices_ids, &err);
		begin(c, r, &err);
	} else {
		grpc_call_finish(call, in ? GRPC_RESOURCE_EXHAUSTED : GRPC_INVALID_ARGUMENT,
				 in ? "out of memory" : "the request cannot be understood");
	}
	v1beta1__allocate_request__free_unpacked(in, NULL);
}

void allocate_pre_start(struct plugin *p, const char *resource, struct grpc_call *call,
			const void *msg, size_t size)
{
	V1beta1__PreStartContainerRequest *in = v1beta1__pre_start_container_request__unpack(
		NULL, size, msg);
	struct check *c = in ? check_new(p, resource, call, 1) : NULL;
	struct error err = ERROR_INIT;

	if (c) {
		c->pre_start = true;
		begin(c, take_ids(c, in->devices_ids, in->n_devices_ids, &err), &err);
	} else {
		grpc_call_finish(call, in ? GRPC_RESOURCE_EXHAUSTED : GRPC_INVALID_ARGUMENT,
				 in ? "out of memory" : "the request cannot be understood");
	}
	v1beta1__pre_start_container_request__free_unpacked(in, NULL);
}
