/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "sim/fakenvml/lib.h"

/* NVIDIA's wording where it is known (0-20, 23, 25, 26, 999), our own elsewhere. */
const char *nvmlErrorString(nvmlReturn_t result)
{
	static const char *const text[] = {
		"Success",
		"Uninitialized",
		"Invalid Argument",
		"Not Supported",
		"Insufficient Permissions",
		"Already Initialized",
		"Not Found",
		"Insufficient Size",
		"Insufficient External Power",
		"Driver Not Loaded",
		"Timeout",
		"Interrupt Request Issue",
		"NVML Shared Library Not Found",
		"Function Not Found",
		"Corrupted infoROM",
		"GPU is lost",
		"GPU requires reset",
		"GPU access blocked by the operating system",
		"Driver/library version mismatch",
		"In use by another client",
		"Insufficient Memory",
		"No data",
		"vGPU and ECC exclude each other",
		"Insufficient Resources",
		"Frequency not supported",
		"Argument version mismatch",
		"Requested functionality has been deprecated",
		"System is not ready",
		"GPU was not found",
		"Invalid state",
		"Reset type not supported",
	};

	if (result < 0 || (size_t)result >= ARRAY_SIZE(text))
		return "Unknown Error";
	return text[result];
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	struct wire_request req = { .op = WIRE_DRIVER_VERSION };
	struct wire_reply rep;
	int r;

	if (!version)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_call(&req, &rep);
	return r ? r : lib_put_text(&rep, version, length);
}

/* The text goes into the struct; how `length` limits it, the header leaves open. */
nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t *info, unsigned int length)
{
	struct wire_request req = { .op = WIRE_DRIVER_BRANCH };
	struct wire_reply rep;
	int r;

	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_ready();
	if (r)
		return r;
	if (info->version != NVML_STRUCT_VERSION(nvmlSystemDriverBranchInfo_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	r = lib_call(&req, &rep);
	if (r)
		return r;
	return lib_put_text(&rep, info->branch, MIN(length, (unsigned int)sizeof(info->branch)));
}

nvmlReturn_t nvmlGetVgpuDriverCapabilities(int capability, unsigned int *result)
{
	struct wire_request req = { .op = WIRE_DRIVER_CAP, .arg = (uint32_t)capability };

	if (!result)
		return NVML_ERROR_INVALID_ARGUMENT;
	return lib_get_number(&req, result);
}

static int get_slice_call(const void *argument)
{
	int r;

	if (!argument)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_ready();
	return r ? r : NVML_ERROR_NOT_SUPPORTED;
}

/* The handles are good for counting only. */
nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profile,
				       nvmlGpuInstance_t *gis, unsigned int *count)
{
	struct wire_request req = { .op = WIRE_CARD_GIS, .arg = profile };
	struct wire_reply rep;
	int r;

	if (!gis || !count)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_call_card(device, &req, &rep);
	if (r)
		return r;
	for (uint32_t i = 0; i < rep.n_ids; i++)
		gis[i] = (nvmlGpuInstance_t)(uintptr_t)(rep.ids[i] + 1);
	*count = rep.n_ids;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id,
					  nvmlGpuInstance_t *gi)
{
	struct wire_request req = { .op = WIRE_CARD_MIG_MODE };
	struct wire_reply rep;
	int r;

	(void)id;
	if (!gi)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_call_card(device, &req, &rep);
	return r ? r : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlGpuInstanceGetCreatableVgpus(nvmlGpuInstance_t gi, void *info)
{
	(void)gi;
	return get_slice_call(info);
}

nvmlReturn_t nvmlGpuInstanceGetActiveVgpus(nvmlGpuInstance_t gi, void *info)
{
	(void)gi;
	return get_slice_call(info);
}

nvmlReturn_t nvmlGpuInstanceGetVgpuTypeCreatablePlacements(nvmlGpuInstance_t gi, void *info)
{
	(void)gi;
	return get_slice_call(info);
}

nvmlReturn_t nvmlGpuInstanceGetVgpuHeterogeneousMode(nvmlGpuInstance_t gi,
						     nvmlVgpuHeterogeneousMode_t *mode)
{
	(void)gi;
	return get_slice_call(mode);
}

nvmlReturn_t nvmlGpuInstanceSetVgpuHeterogeneousMode(nvmlGpuInstance_t gi,
						     const nvmlVgpuHeterogeneousMode_t *mode)
{
	(void)gi;
	return get_slice_call(mode);
}
