/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVML library as a table of functions.
 *
 * Loaded by name at run time and never unloaded; a test fills a table of its own. Every function
 * returns an enum nvml_code unless it says otherwise. Only berth-nvml links this.
 */
#pragma once

#include "base/error.h"
#include "nvml/abi.h"

struct nvml_api {
	/* Always there. */
	int (*init)(void);
	int (*shutdown)(void);
	const char *(*error_string)(int code);
	int (*device_by_pci)(const char *bus_id, struct nvml_device **ret);
	int (*supported_types)(struct nvml_device *d, unsigned *count, uint32_t *ids);
	/* The length is passed by pointer here and by value in the other string calls. */
	int (*type_name)(uint32_t type, char *name, unsigned *size);
	int (*type_framebuffer)(uint32_t type, unsigned long long *ret_bytes);
	int (*type_max_instances)(struct nvml_device *d, uint32_t type, unsigned *ret);
	int (*device_mode)(struct nvml_device *d, struct nvml_abi_mode *mode);
	int (*device_set_mode)(struct nvml_device *d, const struct nvml_abi_mode *mode);
	/* list is a struct nvml_abi_placements_v2, or _v1 for drivers 550 to 560. */
	int (*supported_placements)(struct nvml_device *d, uint32_t type, void *list);
	int (*creatable_placements)(struct nvml_device *d, uint32_t type, void *list);

	/* NULL where the library does not export it. */
	int (*driver_version)(char *version, unsigned length);
	int (*device_name)(struct nvml_device *d, char *name, unsigned length);
	int (*device_mig_mode)(struct nvml_device *d, unsigned *ret_current, unsigned *ret_pending);
	int (*type_gi_profile)(uint32_t type, unsigned *ret);
	int (*type_per_gi)(struct nvml_abi_max_per_gi *max);
	/* The count is output only; the buffer has to hold what the profile can have. */
	int (*gpu_instances)(struct nvml_device *d, unsigned profile,
			     struct nvml_gpu_instance **instances, unsigned *ret_count);
	int (*active_instances)(struct nvml_device *d, unsigned *count, uint32_t *ids);
	int (*instance_type)(uint32_t instance, uint32_t *ret_type);
	int (*instance_placement)(uint32_t instance, struct nvml_abi_placement_id *id);
	int (*instance_driver_version)(uint32_t instance, char *version, unsigned length);
};

/* Opens `library`: a path, or a bare soname that is looked for as the dynamic linker does and then
 * in the usual folders. -ENOENT when it cannot be opened, and the sentence names the file;
 * -ENOSYS when it lacks a function that berth cannot do without, and the sentence names that. */
int nvml_api_load(const char *library, struct nvml_api *ret, struct error *err) _must_check_;
