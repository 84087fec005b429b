/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml/load.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct symbol {
	const char *name;
	size_t offset;
	bool required;
};

#define REQUIRED(member, symbol)                                                                   \
	{                                                                                          \
		symbol, offsetof(struct nvml_api, member), true                                    \
	}
#define OPTIONAL(member, symbol)                                                                   \
	{                                                                                          \
		symbol, offsetof(struct nvml_api, member), false                                   \
	}

static const struct symbol symbols[] = {
	REQUIRED(init, "nvmlInit_v2"),
	REQUIRED(shutdown, "nvmlShutdown"),
	REQUIRED(error_string, "nvmlErrorString"),
	REQUIRED(device_by_pci, "nvmlDeviceGetHandleByPciBusId_v2"),
	REQUIRED(supported_types, "nvmlDeviceGetSupportedVgpus"),
	REQUIRED(type_name, "nvmlVgpuTypeGetName"),
	REQUIRED(type_framebuffer, "nvmlVgpuTypeGetFramebufferSize"),
	REQUIRED(type_max_instances, "nvmlVgpuTypeGetMaxInstances"),
	/* Since driver 550. Without them NVML knows no placements, which is all it is asked for. */
	REQUIRED(device_mode, "nvmlDeviceGetVgpuHeterogeneousMode"),
	REQUIRED(supported_placements, "nvmlDeviceGetVgpuTypeSupportedPlacements"),
	REQUIRED(creatable_placements, "nvmlDeviceGetVgpuTypeCreatablePlacements"),
	OPTIONAL(device_set_mode, "nvmlDeviceSetVgpuHeterogeneousMode"),
	OPTIONAL(driver_version, "nvmlSystemGetDriverVersion"),
	OPTIONAL(device_name, "nvmlDeviceGetName"),
	OPTIONAL(device_mig_mode, "nvmlDeviceGetMigMode"),
	OPTIONAL(type_gi_profile, "nvmlVgpuTypeGetGpuInstanceProfileId"),
	OPTIONAL(type_per_gi, "nvmlVgpuTypeGetMaxInstancesPerGpuInstance"),
	OPTIONAL(gpu_instances, "nvmlDeviceGetGpuInstances"),
	OPTIONAL(active_instances, "nvmlDeviceGetActiveVgpus"),
	OPTIONAL(instance_type, "nvmlVgpuInstanceGetType"),
	OPTIONAL(instance_placement, "nvmlVgpuInstanceGetPlacementId"),
	OPTIONAL(instance_driver_version, "nvmlVgpuInstanceGetVmDriverVersion"),
};

/* Where the driver's installers put it when the linker's cache does not know it. */
static const char *const folders[] = {
	"/usr/lib64",
	"/usr/lib/x86_64-linux-gnu",
	"/usr/lib/aarch64-linux-gnu",
	"/usr/lib",
};

static void *open_library(const char *library, struct error *err)
{
	char path[PATH_MAX];
	void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	const char *why;

	if (handle)
		return handle;
	why = dlerror();
	error_set(err, ENOENT, "%s", why ? why : library);
	if (strchr(library, '/'))
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		int n = snprintf(path, sizeof path, "%s/%s", folders[i], library);

		if (n < 0 || (size_t)n >= sizeof path || access(path, F_OK) < 0)
			continue;
		handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		if (handle)
			return handle;
		/* A file that is there and does not load says more than one that is not found. */
		why = dlerror();
		error_set(err, ENOENT, "%s", why ? why : path);
	}
	return NULL;
}

int nvml_api_load(const char *library, struct nvml_api *ret, struct error *err)
{
	struct nvml_api api = { 0 };
	void *handle = open_library(library, err);

	if (!handle)
		return -ENOENT;
	for (size_t i = 0; i < ARRAY_SIZE(symbols); i++) {
		void *address = dlsym(handle, symbols[i].name);

		if (!address && symbols[i].required)
			return error_set(err, ENOSYS, "%s does not export %s", library,
					 symbols[i].name);
		memcpy((char *)&api + symbols[i].offset, &address, sizeof address);
	}
	*ret = api;
	return 0;
}
