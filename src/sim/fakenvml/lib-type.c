/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/fakenvml/lib.h"

static int get_list(nvmlDevice_t device, enum wire_op op, unsigned int *count, unsigned int *ids)
{
	struct wire_request req = { .op = (uint16_t)op };
	struct wire_reply rep;
	int r;

	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_call_card(device, &req, &rep);
	return r ? r : lib_put_ids(&rep, count, ids);
}

nvmlReturn_t nvmlDeviceGetSupportedVgpus(nvmlDevice_t device, unsigned int *count,
					 nvmlVgpuTypeId_t *ids)
{
	return get_list(device, WIRE_CARD_SUPPORTED, count, ids);
}

nvmlReturn_t nvmlDeviceGetCreatableVgpus(nvmlDevice_t device, unsigned int *count,
					 nvmlVgpuTypeId_t *ids)
{
	return get_list(device, WIRE_CARD_CREATABLE, count, ids);
}

nvmlReturn_t nvmlDeviceGetActiveVgpus(nvmlDevice_t device, unsigned int *count,
				      nvmlVgpuInstance_t *ids)
{
	return get_list(device, WIRE_CARD_ACTIVE, count, ids);
}

static int get_text(nvmlVgpuTypeId_t type, enum wire_op op, char *buf, unsigned int size)
{
	struct wire_request req = { .op = (uint16_t)op, .type = type };
	struct wire_reply rep;
	int r;

	if (!buf)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_call(&req, &rep);
	return r ? r : lib_put_text(&rep, buf, size);
}

nvmlReturn_t nvmlVgpuTypeGetName(nvmlVgpuTypeId_t type, char *name, unsigned int *size)
{
	if (!size)
		return NVML_ERROR_INVALID_ARGUMENT;
	return get_text(type, WIRE_TYPE_NAME, name, *size);
}

nvmlReturn_t nvmlVgpuTypeGetClass(nvmlVgpuTypeId_t type, char *text, unsigned int *size)
{
	if (!size)
		return NVML_ERROR_INVALID_ARGUMENT;
	return get_text(type, WIRE_TYPE_CLASS, text, *size);
}

/* The one text of a type whose size goes in by value. */
nvmlReturn_t nvmlVgpuTypeGetLicense(nvmlVgpuTypeId_t type, char *text, unsigned int size)
{
	return get_text(type, WIRE_TYPE_LICENSE, text, size);
}

static int get_number(nvmlVgpuTypeId_t type, enum wire_type_number which, unsigned int *ret)
{
	struct wire_request req = { .op = WIRE_TYPE_NUMBER, .type = type, .arg = which };

	if (!ret)
		return NVML_ERROR_INVALID_ARGUMENT;
	return lib_get_number(&req, ret);
}

static int get_bytes(nvmlVgpuTypeId_t type, enum wire_type_number which, unsigned long long *ret)
{
	struct wire_request req = { .op = WIRE_TYPE_NUMBER, .type = type, .arg = which };

	if (!ret)
		return NVML_ERROR_INVALID_ARGUMENT;
	return lib_get_number64(&req, ret);
}

nvmlReturn_t nvmlVgpuTypeGetFramebufferSize(nvmlVgpuTypeId_t type, unsigned long long *bytes)
{
	return get_bytes(type, WIRE_TYPE_FRAMEBUFFER, bytes);
}

nvmlReturn_t nvmlVgpuTypeGetGspHeapSize(nvmlVgpuTypeId_t type, unsigned long long *bytes)
{
	return get_bytes(type, WIRE_TYPE_GSP_HEAP, bytes);
}

nvmlReturn_t nvmlVgpuTypeGetFbReservation(nvmlVgpuTypeId_t type, unsigned long long *bytes)
{
	return get_bytes(type, WIRE_TYPE_FB_RESERVED, bytes);
}

nvmlReturn_t nvmlVgpuTypeGetMaxInstancesPerVm(nvmlVgpuTypeId_t type, unsigned int *max)
{
	return get_number(type, WIRE_TYPE_PER_VM, max);
}

nvmlReturn_t nvmlVgpuTypeGetFrameRateLimit(nvmlVgpuTypeId_t type, unsigned int *limit)
{
	return get_number(type, WIRE_TYPE_RATE, limit);
}

nvmlReturn_t nvmlVgpuTypeGetNumDisplayHeads(nvmlVgpuTypeId_t type, unsigned int *heads)
{
	return get_number(type, WIRE_TYPE_HEADS, heads);
}

nvmlReturn_t nvmlVgpuTypeGetGpuInstanceProfileId(nvmlVgpuTypeId_t type, unsigned int *id)
{
	return get_number(type, WIRE_TYPE_GI_PROFILE, id);
}

nvmlReturn_t nvmlVgpuTypeGetMaxInstances(nvmlDevice_t device, nvmlVgpuTypeId_t type,
					 unsigned int *max)
{
	struct wire_request req = { .op = WIRE_CARD_MAX_INSTANCES, .type = type };

	if (!max)
		return NVML_ERROR_INVALID_ARGUMENT;
	return lib_get_card_number(device, &req, max);
}

nvmlReturn_t nvmlVgpuTypeGetMaxInstancesPerGpuInstance(nvmlVgpuTypeMaxInstance_t *max)
{
	int r;

	if (!max)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_ready();
	if (r)
		return r;
	if (max->version != NVML_STRUCT_VERSION(nvmlVgpuTypeMaxInstance_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	return get_number(max->vgpuTypeId, WIRE_TYPE_PER_GI, &max->maxInstancePerGI);
}

nvmlReturn_t nvmlVgpuTypeGetCapabilities(nvmlVgpuTypeId_t type, int capability,
					 unsigned int *result)
{
	struct wire_request req = { .op = WIRE_TYPE_CAP,
				    .type = type,
				    .arg = (uint32_t)capability };

	if (!result)
		return NVML_ERROR_INVALID_ARGUMENT;
	return lib_get_number(&req, result);
}

nvmlReturn_t nvmlVgpuTypeGetDeviceID(nvmlVgpuTypeId_t type, unsigned long long *device_id,
				     unsigned long long *subsystem_id)
{
	struct wire_request req = { .op = WIRE_TYPE_NUMBER,
				    .type = type,
				    .arg = WIRE_TYPE_PCI_IDS };
	struct wire_reply rep;
	int r;

	if (!device_id || !subsystem_id)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_call(&req, &rep);
	if (r)
		return r;
	*device_id = rep.num[0];
	*subsystem_id = rep.num[1];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlVgpuTypeGetResolution(nvmlVgpuTypeId_t type, unsigned int head, unsigned int *x,
				       unsigned int *y)
{
	struct wire_request req = {
		.op = WIRE_TYPE_NUMBER, .type = type, .arg = WIRE_TYPE_RESOLUTION, .arg2 = head
	};
	struct wire_reply rep;
	int r;

	if (!x || !y)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_call(&req, &rep);
	if (r)
		return r;
	*x = (unsigned int)rep.num[0];
	*y = (unsigned int)rep.num[1];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlVgpuTypeGetBAR1Info(nvmlVgpuTypeId_t type, nvmlVgpuTypeBar1Info_t *info)
{
	int r;

	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_ready();
	if (r)
		return r;
	if (info->version != NVML_STRUCT_VERSION(nvmlVgpuTypeBar1Info_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	return get_bytes(type, WIRE_TYPE_BAR1_MB, &info->bar1SizeMB);
}

/* --- placements ------------------------------------------------------------------------------ */

/* The old list has no capacity: its caller has room for all or is overrun, as in the real one. */
static int put_list_v1(const struct wire_reply *rep, nvmlVgpuPlacementList_v1_t *list)
{
	for (uint32_t i = 0; i < rep->n_ids; i++)
		list->placementIds[i] = rep->ids[i];
	list->count = rep->n_ids;
	list->placementSize = (unsigned int)rep->num[0];
	return NVML_SUCCESS;
}

static int put_list_v2(const struct wire_reply *rep, nvmlVgpuPlacementList_v2_t *list)
{
	int r = lib_put_ids(rep, &list->count, list->placementIds);

	if (!r)
		list->placementSize = (unsigned int)rep->num[0];
	return r;
}

static int get_placements(nvmlDevice_t device, nvmlVgpuTypeId_t type, enum wire_op op, void *list)
{
	struct wire_request req = { .op = (uint16_t)op, .type = type };
	nvmlVgpuPlacementList_v1_t *v1 = list;
	nvmlVgpuPlacementList_v2_t *v2 = list;
	struct wire_reply rep;
	int r;

	if (!list)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_ready();
	if (r)
		return r;
	switch (v1->version) {
	case NVML_STRUCT_VERSION(nvmlVgpuPlacementList_v1_t, 1):
		req.arg2 = 1;
		break;
	case NVML_STRUCT_VERSION(nvmlVgpuPlacementList_v2_t, 2):
		req.arg = v2->mode;
		req.arg2 = 2;
		break;
	default:
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	}
	r = lib_call_card(device, &req, &rep);
	if (r)
		return r;
	if (req.arg2 == 2)
		return put_list_v2(&rep, v2);
	return v1->placementIds ? put_list_v1(&rep, v1) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetVgpuTypeSupportedPlacements(nvmlDevice_t device, nvmlVgpuTypeId_t type,
						      void *list)
{
	return get_placements(device, type, WIRE_CARD_PLACEMENTS, list);
}

nvmlReturn_t nvmlDeviceGetVgpuTypeCreatablePlacements(nvmlDevice_t device, nvmlVgpuTypeId_t type,
						      void *list)
{
	return get_placements(device, type, WIRE_CARD_PLACEABLE, list);
}
