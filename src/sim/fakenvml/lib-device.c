/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sim/fakenvml/lib.h"

static int get_count(unsigned int *count)
{
	struct wire_request req = { .op = WIRE_COUNT };

	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	return lib_get_number(&req, count);
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
	return get_count(count);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
	return get_count(count);
}

static int get_handle(struct wire_request *req, nvmlDevice_t *device)
{
	struct wire_reply rep;
	int r;

	r = lib_call(req, &rep);
	if (r)
		return r;
	if (rep.num[0] >= WIRE_MAX_CARDS)
		return NVML_ERROR_UNKNOWN;
	*device = &lib_cards[rep.num[0]];
	return NVML_SUCCESS;
}

static int get_by_index(unsigned int index, nvmlDevice_t *device)
{
	struct wire_request req = { .op = WIRE_CARD_BY_INDEX, .arg = index };

	if (!device)
		return NVML_ERROR_INVALID_ARGUMENT;
	return get_handle(&req, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return get_by_index(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	return get_by_index(index, device);
}

/* One number in hex and the separator behind it; the text behind both, or NULL. */
static const char *scan_hex(const char *s, const char *separators, uint32_t *ret,
			    char *ret_separator)
{
	uint64_t v = 0;
	int digits = 0;

	for (;; s++, digits++) {
		unsigned d;

		if (*s >= '0' && *s <= '9')
			d = (unsigned)(*s - '0');
		else if (*s >= 'a' && *s <= 'f')
			d = (unsigned)(*s - 'a') + 10;
		else if (*s >= 'A' && *s <= 'F')
			d = (unsigned)(*s - 'A') + 10;
		else
			break;
		v = v << 4 | d;
		if (v > UINT32_MAX)
			return NULL;
	}
	if (!digits || (*s && !strchr(separators, *s)))
		return NULL;
	*ret = (uint32_t)v;
	*ret_separator = *s;
	return *s ? s + 1 : s;
}

/* domain:bus:device.function, domain:bus:device or bus:device.function, in hex of any width. */
static bool parse_bus_id(const char *s, uint64_t *ret)
{
	uint32_t n[4] = { 0 };
	char sep[4] = { 0 };
	int i = 0;

	for (; i < 4; i++) {
		s = scan_hex(s, i < 3 ? ":." : "", &n[i], &sep[i]);
		if (!s)
			return false;
		if (!sep[i]) {
			i++;
			break;
		}
	}
	if (i == 3 && sep[0] == ':' && sep[1] == '.') {
		n[3] = n[2];
		n[2] = n[1];
		n[1] = n[0];
		n[0] = 0;
	} else if (!((i == 3 && sep[0] == ':' && sep[1] == ':') ||
		     (i == 4 && sep[0] == ':' && sep[1] == ':' && sep[2] == '.'))) {
		return false;
	}
	if (n[1] > 0xff || n[2] > 0x1f || n[3] > 7)
		return false;
	*ret = (uint64_t)n[0] << 16 | n[1] << 8 | n[2] << 3 | n[3];
	return true;
}

static int get_by_bus_id(const char *bus_id, nvmlDevice_t *device)
{
	struct wire_request req = { .op = WIRE_CARD_BY_BUS };
	int r;

	if (!bus_id || !device)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_ready();
	if (r)
		return r;
	if (!parse_bus_id(bus_id, &req.wide))
		return NVML_ERROR_INVALID_ARGUMENT;
	return get_handle(&req, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
	return get_by_bus_id(bus_id, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
	return get_by_bus_id(bus_id, device);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	struct wire_request req = { .op = WIRE_CARD_INDEX };

	if (!index)
		return NVML_ERROR_INVALID_ARGUMENT;
	return lib_get_card_number(device, &req, index);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
	struct wire_request req = { .op = WIRE_CARD_MINOR };

	if (!minor)
		return NVML_ERROR_INVALID_ARGUMENT;
	return lib_get_card_number(device, &req, minor);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	struct wire_request req = { .op = WIRE_CARD_NAME };
	struct wire_reply rep;
	int r;

	if (!name)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_call_card(device, &req, &rep);
	return r ? r : lib_put_text(&rep, name, length);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	struct wire_request req = { .op = WIRE_CARD_UUID };
	struct wire_reply rep;
	int r;

	if (!uuid)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_call_card(device, &req, &rep);
	return r ? r : lib_put_text(&rep, uuid, length);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	struct wire_request req = { .op = WIRE_CARD_PCI };
	struct wire_reply rep;
	int r;

	if (!pci)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_call_card(device, &req, &rep);
	if (r)
		return r;
	memset(pci, 0, sizeof(*pci));
	pci->domain = (unsigned int)rep.num[0];
	pci->bus = (unsigned int)(rep.num[1] >> 8 & 0xff);
	pci->device = (unsigned int)(rep.num[1] & 0xff);
	pci->pciDeviceId = (unsigned int)rep.num[2];
	pci->pciSubSystemId = (unsigned int)rep.num[3];
	/* A domain beyond 16 bits has no place in the old text. */
	snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "%04X:%02X:%02X.0",
		 pci->domain & 0xffff, pci->bus & 0xff, pci->device & 0xff);
	snprintf(pci->busId, sizeof(pci->busId), "%08X:%02X:%02X.0", pci->domain, pci->bus,
		 pci->device);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	struct wire_request req = { .op = WIRE_CARD_MEMORY };
	struct wire_reply rep;
	int r;

	if (!memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_call_card(device, &req, &rep);
	if (r)
		return r;
	memory->total = rep.num[0];
	memory->free = rep.num[2];
	memory->used = rep.num[3] + rep.num[1]; /* v1 knows no reserved memory: it counts as used */
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	struct wire_request req = { .op = WIRE_CARD_MEMORY };
	struct wire_reply rep;
	int r;

	if (!memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_ready();
	if (r)
		return r;
	if (memory->version != NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	r = lib_call_card(device, &req, &rep);
	if (r)
		return r;
	memory->total = rep.num[0];
	memory->reserved = rep.num[1];
	memory->free = rep.num[2];
	memory->used = rep.num[3];
	return NVML_SUCCESS;
}

static int get_card_enum(nvmlDevice_t device, enum wire_op op, int *ret)
{
	struct wire_request req = { .op = (uint16_t)op };
	unsigned int v;
	int r;

	if (!ret)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_get_card_number(device, &req, &v);
	if (!r)
		*ret = (int)v;
	return r;
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, int *mode)
{
	return get_card_enum(device, WIRE_CARD_VIRT_MODE, mode);
}

nvmlReturn_t nvmlDeviceGetHostVgpuMode(nvmlDevice_t device, int *mode)
{
	return get_card_enum(device, WIRE_CARD_HOST_MODE, mode);
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
	struct wire_request req = { .op = WIRE_CARD_MIG_MODE };
	struct wire_reply rep;
	int r;

	if (!current || !pending)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_call_card(device, &req, &rep);
	if (r)
		return r;
	*current = (unsigned int)rep.num[0];
	*pending = (unsigned int)rep.num[1];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetVgpuCapabilities(nvmlDevice_t device, int capability,
					   unsigned int *result)
{
	struct wire_request req = { .op = WIRE_CARD_GET_CAP, .arg = (uint32_t)capability };

	if (!result)
		return NVML_ERROR_INVALID_ARGUMENT;
	return lib_get_card_number(device, &req, result);
}

nvmlReturn_t nvmlDeviceSetVgpuCapabilities(nvmlDevice_t device, int capability, int enable)
{
	struct wire_request req = { .op = WIRE_CARD_SET_CAP,
				    .arg = (uint32_t)capability,
				    .arg2 = (uint32_t)enable,
				    .wide = geteuid() == 0 };
	struct wire_reply rep;

	return lib_call_card(device, &req, &rep);
}

nvmlReturn_t nvmlDeviceGetVgpuHeterogeneousMode(nvmlDevice_t device,
						nvmlVgpuHeterogeneousMode_t *mode)
{
	struct wire_request req = { .op = WIRE_CARD_GET_MODE };
	int r;

	if (!mode)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_ready();
	if (r)
		return r;
	if (mode->version != NVML_STRUCT_VERSION(nvmlVgpuHeterogeneousMode_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	return lib_get_card_number(device, &req, &mode->mode);
}

nvmlReturn_t nvmlDeviceSetVgpuHeterogeneousMode(nvmlDevice_t device,
						const nvmlVgpuHeterogeneousMode_t *mode)
{
	struct wire_request req = { .op = WIRE_CARD_SET_MODE, .wide = geteuid() == 0 };
	struct wire_reply rep;
	int r;

	if (!mode)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_ready();
	if (r)
		return r;
	if (mode->version != NVML_STRUCT_VERSION(nvmlVgpuHeterogeneousMode_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	req.arg = mode->mode;
	return lib_call_card(device, &req, &rep);
}
