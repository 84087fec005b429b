/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "sim/fakenvml/lib.h"

static int get_text(nvmlVgpuInstance_t inst, enum wire_op op, char *buf, unsigned int size)
{
	struct wire_request req = { .op = (uint16_t)op, .instance = inst };
	struct wire_reply rep;
	int r;

	if (!buf)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_call(&req, &rep);
	return r ? r : lib_put_text(&rep, buf, size);
}

static int get_number(nvmlVgpuInstance_t inst, enum wire_op op, unsigned int *ret)
{
	struct wire_request req = { .op = (uint16_t)op, .instance = inst };

	if (!ret)
		return NVML_ERROR_INVALID_ARGUMENT;
	return lib_get_number(&req, ret);
}

nvmlReturn_t nvmlVgpuInstanceGetType(nvmlVgpuInstance_t inst, nvmlVgpuTypeId_t *type)
{
	return get_number(inst, WIRE_INSTANCE_TYPE, type);
}

nvmlReturn_t nvmlVgpuInstanceGetVmID(nvmlVgpuInstance_t inst, char *id, unsigned int size,
				     int *id_type)
{
	struct wire_request req = { .op = WIRE_INSTANCE_VM_ID, .instance = inst };
	struct wire_reply rep;
	int r;

	if (!id || !id_type)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_call(&req, &rep);
	if (!r)
		r = lib_put_text(&rep, id, size);
	if (!r)
		*id_type = (int)rep.num[0];
	return r;
}

nvmlReturn_t nvmlVgpuInstanceGetUUID(nvmlVgpuInstance_t inst, char *uuid, unsigned int size)
{
	return get_text(inst, WIRE_INSTANCE_UUID, uuid, size);
}

nvmlReturn_t nvmlVgpuInstanceGetMdevUUID(nvmlVgpuInstance_t inst, char *uuid, unsigned int size)
{
	return get_text(inst, WIRE_INSTANCE_MDEV, uuid, size);
}

nvmlReturn_t nvmlVgpuInstanceGetVmDriverVersion(nvmlVgpuInstance_t inst, char *version,
						unsigned int length)
{
	return get_text(inst, WIRE_INSTANCE_DRIVER, version, length);
}

/* Here the size is behind a pointer. */
nvmlReturn_t nvmlVgpuInstanceGetGpuPciId(nvmlVgpuInstance_t inst, char *pci, unsigned int *length)
{
	if (!length)
		return NVML_ERROR_INVALID_ARGUMENT;
	return get_text(inst, WIRE_INSTANCE_PCI, pci, *length);
}

nvmlReturn_t nvmlVgpuInstanceGetFbUsage(nvmlVgpuInstance_t inst, unsigned long long *bytes)
{
	struct wire_request req = { .op = WIRE_INSTANCE_FB_USED, .instance = inst };

	if (!bytes)
		return NVML_ERROR_INVALID_ARGUMENT;
	return lib_get_number64(&req, bytes);
}

nvmlReturn_t nvmlVgpuInstanceGetLicenseInfo_v2(nvmlVgpuInstance_t inst, nvmlVgpuLicenseInfo_t *info)
{
	struct wire_request req = { .op = WIRE_INSTANCE_LICENSE, .instance = inst };
	struct wire_reply rep;
	int r;

	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_call(&req, &rep);
	if (r)
		return r;
	memset(info, 0, sizeof(*info)); /* expiry: 0 is "not available" */
	info->isLicensed = (unsigned char)rep.num[0];
	info->currentState = (unsigned int)rep.num[1];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlVgpuInstanceGetLicenseStatus(nvmlVgpuInstance_t inst, unsigned int *licensed)
{
	return get_number(inst, WIRE_INSTANCE_LICENSE, licensed);
}

nvmlReturn_t nvmlVgpuInstanceGetPlacementId(nvmlVgpuInstance_t inst,
					    nvmlVgpuPlacementId_t *placement)
{
	int r;

	if (!placement)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_ready();
	if (r)
		return r;
	if (placement->version != NVML_STRUCT_VERSION(nvmlVgpuPlacementId_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	return get_number(inst, WIRE_INSTANCE_PLACEMENT, &placement->placementId);
}

nvmlReturn_t nvmlVgpuInstanceGetRuntimeStateSize(nvmlVgpuInstance_t inst,
						 nvmlVgpuRuntimeState_t *state)
{
	struct wire_request req = { .op = WIRE_INSTANCE_STATE_SIZE, .instance = inst };
	int r;

	if (!state)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_ready();
	if (r)
		return r;
	if (state->version != NVML_STRUCT_VERSION(nvmlVgpuRuntimeState_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	return lib_get_number64(&req, &state->size);
}

nvmlReturn_t nvmlVgpuInstanceGetFrameRateLimit(nvmlVgpuInstance_t inst, unsigned int *limit)
{
	return get_number(inst, WIRE_INSTANCE_RATE, limit);
}

nvmlReturn_t nvmlVgpuInstanceGetEccMode(nvmlVgpuInstance_t inst, unsigned int *mode)
{
	return get_number(inst, WIRE_INSTANCE_ECC, mode);
}

nvmlReturn_t nvmlVgpuInstanceGetGpuInstanceId(nvmlVgpuInstance_t inst, unsigned int *id)
{
	return get_number(inst, WIRE_INSTANCE_GI, id);
}
