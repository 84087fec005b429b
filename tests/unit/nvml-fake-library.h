/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For test-nvml-query: a library whose functions are these and whose cards are plain structures.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "nvml/load.h"

struct fake_type {
	uint32_t id;
	const char *name;
	uint64_t mib;
	unsigned max;
	uint32_t size;
	unsigned n_supported;
	uint32_t supported[64];
	unsigned n_creatable;
	uint32_t creatable[64];
	int supported_code;
	int creatable_code;
	int describe_code;
	bool stale_count; /* succeeds without touching the list */
};

struct fake_instance {
	uint32_t id;
	uint32_t type;
	uint32_t placement;
	const char *driver;
	int code; /* of every call about it */
	int driver_code;
};

struct nvml_device {
	const char *address;
	int handle_code;
	int mode_code;
	unsigned mode;
	bool mig;
	int list_code;
	unsigned list_retries; /* answers 7 that often first */
	unsigned n_types;
	struct fake_type types[130];
	int active_code;
	unsigned n_instances;
	struct fake_instance instances[70];
};

static struct {
	int init_code;
	unsigned inits;
	unsigned shutdowns;
	bool v1_only;
	unsigned n_cards;
	struct nvml_device cards[4];
	unsigned calls_supported;
	unsigned calls_creatable;
	unsigned calls_name;
	unsigned calls_v2;
} fake;

static int fake_init(void)
{
	fake.inits++;
	return fake.init_code;
}

static int fake_shutdown(void)
{
	fake.shutdowns++;
	return 0;
}

static const char *fake_error_string(int code)
{
	return code == 15   ? "GPU is lost"
	       : code == 18 ? "Driver/library version mismatch"
			    : "Some Error";
}

static int fake_device_by_pci(const char *bus_id, struct nvml_device **ret)
{
	for (unsigned i = 0; i < fake.n_cards; i++) {
		if (strcmp(fake.cards[i].address, bus_id) != 0)
			continue;
		*ret = &fake.cards[i];
		return fake.cards[i].handle_code;
	}
	return NVML_CODE_NOT_FOUND;
}

static int fake_supported_types(struct nvml_device *d, unsigned *count, uint32_t *ids)
{
	unsigned capacity = *count;

	if (d->list_code)
		return d->list_code;
	*count = d->n_types;
	if (d->list_retries > 0 || capacity < d->n_types) {
		d->list_retries -= d->list_retries > 0;
		return NVML_CODE_INSUFFICIENT_SIZE;
	}
	for (unsigned i = 0; i < d->n_types; i++)
		ids[i] = d->types[i].id;
	return 0;
}

static struct fake_type *find_type(struct nvml_device *d, uint32_t id)
{
	for (unsigned i = 0; i < d->n_types; i++)
		if (d->types[i].id == id)
			return &d->types[i];
	return NULL;
}

static struct fake_type *find_any_type(uint32_t id)
{
	for (unsigned i = 0; i < fake.n_cards; i++)
		if (find_type(&fake.cards[i], id))
			return find_type(&fake.cards[i], id);
	return NULL;
}

static int fake_type_name(uint32_t type, char *name, unsigned *size)
{
	struct fake_type *t = find_any_type(type);

	fake.calls_name++;
	if (!t || t->describe_code)
		return t ? t->describe_code : NVML_CODE_INVALID_ARGUMENT;
	if (strlen(t->name) >= *size)
		return NVML_CODE_INSUFFICIENT_SIZE;
	strcpy(name, t->name);
	return 0;
}

static int fake_type_framebuffer(uint32_t type, unsigned long long *ret_bytes)
{
	struct fake_type *t = find_any_type(type);

	*ret_bytes = t->mib << 20;
	return 0;
}

static int fake_type_max_instances(struct nvml_device *d, uint32_t type, unsigned *ret)
{
	*ret = find_type(d, type)->max;
	return 0;
}

static int fake_device_mode(struct nvml_device *d, struct nvml_abi_mode *mode)
{
	if (mode->version != NVML_ABI_MODE_VERSION)
		return NVML_CODE_ARGUMENT_VERSION_MISMATCH;
	mode->mode = d->mode;
	return d->mode_code;
}

static int write_list(void *list, uint32_t size, const uint32_t *ids, unsigned n)
{
	struct nvml_abi_placements_v1 *v1 = list;
	struct nvml_abi_placements_v2 *v2 = list;

	if (v1->version == NVML_ABI_PLACEMENTS_V2_VERSION) {
		fake.calls_v2++;
		if (fake.v1_only)
			return NVML_CODE_ARGUMENT_VERSION_MISMATCH;
		assert_int_equal(v2->mode, NVML_ABI_PLACEMENTS_MIXED);
		if (v2->count < n)
			return NVML_CODE_INSUFFICIENT_SIZE;
		memcpy(v2->ids, ids, n * sizeof *ids);
		v2->count = n;
		v2->placement_size = size;
		return 0;
	}
	if (v1->version != NVML_ABI_PLACEMENTS_V1_VERSION || !fake.v1_only)
		return NVML_CODE_ARGUMENT_VERSION_MISMATCH;
	memcpy(v1->ids, ids, n * sizeof *ids);
	v1->count = n;
	v1->placement_size = size;
	return 0;
}

static int fake_supported_placements(struct nvml_device *d, uint32_t type, void *list)
{
	struct fake_type *t = find_type(d, type);

	fake.calls_supported++;
	if (t->supported_code)
		return t->supported_code;
	return write_list(list, t->size, t->supported, t->n_supported);
}

static int fake_creatable_placements(struct nvml_device *d, uint32_t type, void *list)
{
	struct fake_type *t = find_type(d, type);

	fake.calls_creatable++;
	if (t->creatable_code || t->stale_count)
		return t->creatable_code;
	return write_list(list, t->size, t->creatable, t->n_creatable);
}

static int fake_driver_version(char *version, unsigned length)
{
	snprintf(version, length, "580.178.05");
	return 0;
}

static int fake_device_name(struct nvml_device *d _unused_, char *name, unsigned length)
{
	snprintf(name, length, "NVIDIA L40S");
	return 0;
}

static int fake_mig_mode(struct nvml_device *d, unsigned *ret_current, unsigned *ret_pending)
{
	*ret_current = *ret_pending = d->mig;
	return 0;
}

static int fake_active(struct nvml_device *d, unsigned *count, uint32_t *ids)
{
	if (d->active_code)
		return d->active_code;
	*count = d->n_instances;
	for (unsigned i = 0; i < d->n_instances; i++)
		ids[i] = d->instances[i].id;
	return 0;
}

static struct fake_instance *find_instance(uint32_t id)
{
	for (unsigned i = 0; i < fake.n_cards; i++)
		for (unsigned k = 0; k < fake.cards[i].n_instances; k++)
			if (fake.cards[i].instances[k].id == id)
				return &fake.cards[i].instances[k];
	return NULL;
}

static int fake_instance_type(uint32_t instance, uint32_t *ret_type)
{
	*ret_type = find_instance(instance)->type;
	return find_instance(instance)->code;
}

static int fake_instance_placement(uint32_t instance, struct nvml_abi_placement_id *id)
{
	if (id->version != NVML_ABI_PLACEMENT_ID_VERSION)
		return NVML_CODE_ARGUMENT_VERSION_MISMATCH;
	id->placement_id = find_instance(instance)->placement;
	return 0;
}

static int fake_instance_driver(uint32_t instance, char *version, unsigned length)
{
	const struct fake_instance *i = find_instance(instance);

	if (i->driver)
		snprintf(version, length, "%s", i->driver);
	return i->driver_code;
}

static const struct nvml_api fake_api = {
	.init = fake_init,
	.shutdown = fake_shutdown,
	.error_string = fake_error_string,
	.device_by_pci = fake_device_by_pci,
	.supported_types = fake_supported_types,
	.type_name = fake_type_name,
	.type_framebuffer = fake_type_framebuffer,
	.type_max_instances = fake_type_max_instances,
	.device_mode = fake_device_mode,
	.supported_placements = fake_supported_placements,
	.creatable_placements = fake_creatable_placements,
	.driver_version = fake_driver_version,
	.device_name = fake_device_name,
	.device_mig_mode = fake_mig_mode,
	.active_instances = fake_active,
	.instance_type = fake_instance_type,
	.instance_placement = fake_instance_placement,
	.instance_driver_version = fake_instance_driver,
};
