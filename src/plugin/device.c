/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/device.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

const char *device_kind_name(enum device_kind kind)
{
	switch (kind) {
	case DEVICE_VF:
		return "vgpu";
	case DEVICE_GPU:
		return "gpu";
	case DEVICE_MDEV:
		return "mdev";
	}
	return "?";
}

const char *device_problem(const struct device *d)
{
	if (d->presence[0])
		return d->presence;
	if (d->problem[0])
		return d->problem;
	return d->quarantined ? "quarantined by berthd" : NULL;
}

struct discovery *discovery_new(void)
{
	return calloc(1, sizeof(struct discovery));
}

struct discovery *discovery_free(struct discovery *d)
{
	if (!d)
		return NULL;
	for (unsigned i = 0; i < d->n_resources; i++)
		free(d->resources[i].devices);
	free(d->resources);
	free(d->left_out);
	free(d->egms);
	free(d->functions);
	free(d->names);
	free(d);
	return NULL;
}

/* Room for one more of `size` bytes; arrays grow by doubling from 8. */
static void *grow(void *array, unsigned n, size_t size)
{
	if (n > 0 && (n < 8 || (n & (n - 1)) != 0))
		return array;
	return reallocarray(array, n < 8 ? 8 : 2 * (size_t)n, size);
}

static struct resource *add_resource(struct discovery *d, const char *name, const char *source,
				     const struct device *device)
{
	struct resource *all = grow(d->resources, d->n_resources, sizeof *all);
	struct resource *r;

	if (!all)
		return NULL;
	d->resources = all;
	r = &all[d->n_resources++];
	*r = (struct resource){ .kind = device->kind, .device_id = device->device_id };
	str_copy_cut(r->name, sizeof r->name, name);
	str_copy_cut(r->source, sizeof r->source, source);
	return r;
}

int discovery_add(struct discovery *d, const char *resource, const char *source,
		  const struct device *device, struct error *err)
{
	struct resource *r = NULL;
	struct device *devices;

	for (unsigned i = 0; i < d->n_resources && !r; i++)
		if (strcmp(d->resources[i].name, resource) == 0)
			r = &d->resources[i];
	if (r && (r->kind != device->kind || strcmp(r->source, source) != 0))
		return error_set(err, EEXIST, "%s already stands for %s \"%.60s\"", resource,
				 device_kind_name(r->kind), r->source);
	if (!r)
		r = add_resource(d, resource, source, device);
	if (!r)
		return error_set(err, ENOMEM, "out of memory");
	devices = grow(r->devices, r->n_devices, sizeof *devices);
	if (!devices)
		return error_set(err, ENOMEM, "out of memory");
	r->devices = devices;
	devices[r->n_devices++] = *device;
	return 0;
}

int discovery_leave_out(struct discovery *d, const char *id, const char *fmt, ...)
{
	struct left_out *all = grow(d->left_out, d->n_left_out, sizeof *all);
	struct left_out *l;
	va_list ap;

	if (!all)
		return -ENOMEM;
	d->left_out = all;
	l = &all[d->n_left_out++];
	str_copy_cut(l->id, sizeof l->id, id);
	va_start(ap, fmt);
	vsnprintf(l->reason, sizeof l->reason, fmt, ap);
	va_end(ap);
	return 0;
}

int discovery_add_function(struct discovery *d, const struct device *function)
{
	struct device *all = grow(d->functions, d->n_functions, sizeof *all);

	if (!all)
		return -ENOMEM;
	d->functions = all;
	all[d->n_functions++] = *function;
	return 0;
}

int discovery_add_name(struct discovery *d, const struct device_name *name)
{
	struct device_name *all = grow(d->names, d->n_names, sizeof *all);

	if (!all)
		return -ENOMEM;
	d->names = all;
	all[d->n_names++] = *name;
	return 0;
}

static int compare_devices(const void *a, const void *b)
{
	return strcmp(((const struct device *)a)->id, ((const struct device *)b)->id);
}

static int compare_resources(const void *a, const void *b)
{
	return strcmp(((const struct resource *)a)->name, ((const struct resource *)b)->name);
}

static int compare_left_out(const void *a, const void *b)
{
	return strcmp(((const struct left_out *)a)->id, ((const struct left_out *)b)->id);
}

void discovery_sort(struct discovery *d)
{
	for (unsigned i = 0; i < d->n_resources; i++)
		qsort(d->resources[i].devices, d->resources[i].n_devices, sizeof(struct device),
		      compare_devices);
	if (d->n_resources > 0)
		qsort(d->resources, d->n_resources, sizeof *d->resources, compare_resources);
	if (d->n_left_out > 0)
		qsort(d->left_out, d->n_left_out, sizeof *d->left_out, compare_left_out);
}

struct resource *discovery_find(const struct discovery *d, const char *name)
{
	for (unsigned i = 0; i < d->n_resources; i++)
		if (strcmp(d->resources[i].name, name) == 0)
			return &d->resources[i];
	return NULL;
}

struct device *resource_find(const struct resource *r, const char *id)
{
	for (unsigned i = 0; i < r->n_devices; i++)
		if (strcmp(r->devices[i].id, id) == 0)
			return &r->devices[i];
	return NULL;
}

const char *discovery_reason(const struct discovery *d, const char *id)
{
	for (unsigned i = 0; i < d->n_left_out; i++)
		if (strcmp(d->left_out[i].id, id) == 0)
			return d->left_out[i].reason;
	return NULL;
}
