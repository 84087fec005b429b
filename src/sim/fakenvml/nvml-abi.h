/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of NVML's binary interface that the fake library has: types, numbers and functions.
 *
 * Written from the published header of NVML 13.3 (names, sizes and offsets are checked below on
 * x86-64). Made for the fake alone: berthd's own client declares what it uses by itself, so that a
 * mistake here and one there cannot hide each other.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define NVML_API __attribute__((visibility("default")))

typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlEventSet_st *nvmlEventSet_t;
typedef struct nvmlGpuInstance_st *nvmlGpuInstance_t;
typedef unsigned int nvmlVgpuTypeId_t;
typedef unsigned int nvmlVgpuInstance_t;

enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NO_PERMISSION = 4,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_TIMEOUT = 10,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_IN_USE = 19,
	NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
	NVML_ERROR_INVALID_STATE = 29,
	NVML_ERROR_UNKNOWN = 999,
};

enum {
	NVML_INIT_FLAG_NO_GPUS = 1,
	NVML_INIT_FLAG_NO_ATTACH = 2,
	NVML_INIT_FLAG_FORCE_INIT = 4,
};

/* sizeof the struct in the low 24 bits, its revision above: what a caller puts into `version`. */
#define NVML_STRUCT_VERSION(type, n) ((unsigned int)(sizeof(type) | ((unsigned int)(n) << 24)))

typedef struct {
	char busIdLegacy[16];
	unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
	char busId[32];
} nvmlPciInfo_t;

typedef struct {
	unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
	unsigned int version;
	unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
	unsigned int version;
	char branch[80];
} nvmlSystemDriverBranchInfo_t;

typedef struct {
	unsigned int version, mode;
} nvmlVgpuHeterogeneousMode_t;

typedef struct {
	unsigned int version, placementId;
} nvmlVgpuPlacementId_t;

/* No capacity goes in: the caller's array has to have room for every placement of the type. */
typedef struct {
	unsigned int version, placementSize, count;
	unsigned int *placementIds;
} nvmlVgpuPlacementList_v1_t;

typedef struct {
	unsigned int version, placementSize, count;
	unsigned int *placementIds;
	unsigned int
		mode; /* 0 heterogeneous, 1 homogeneous: the other way round than the GPU's mode */
} nvmlVgpuPlacementList_v2_t;

typedef struct {
	unsigned int version;
	unsigned long long bar1SizeMB;
} nvmlVgpuTypeBar1Info_t;

typedef struct {
	unsigned int version;
	unsigned long long size;
} nvmlVgpuRuntimeState_t;

typedef struct {
	unsigned int version, vgpuTypeId, maxInstancePerGI;
} nvmlVgpuTypeMaxInstance_t;

typedef struct {
	unsigned int year;
	unsigned short month, day, hour, min, sec;
	unsigned char status;
} nvmlVgpuLicenseExpiry_t;

typedef struct {
	unsigned char isLicensed;
	nvmlVgpuLicenseExpiry_t licenseExpiry;
	unsigned int currentState;
} nvmlVgpuLicenseInfo_t;

typedef struct {
	nvmlDevice_t device;
	unsigned long long eventType, eventData;
	unsigned int gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

_Static_assert(sizeof(nvmlPciInfo_t) == 68 && offsetof(nvmlPciInfo_t, busId) == 36, "ABI");
_Static_assert(offsetof(nvmlPciInfo_t, pciDeviceId) == 28, "ABI");
_Static_assert(sizeof(nvmlMemory_t) == 24, "ABI");
_Static_assert(NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2) == 0x02000028, "ABI");
_Static_assert(NVML_STRUCT_VERSION(nvmlVgpuHeterogeneousMode_t, 1) == 0x01000008, "ABI");
_Static_assert(NVML_STRUCT_VERSION(nvmlVgpuPlacementId_t, 1) == 0x01000008, "ABI");
_Static_assert(NVML_STRUCT_VERSION(nvmlVgpuPlacementList_v1_t, 1) == 0x01000018, "ABI");
_Static_assert(NVML_STRUCT_VERSION(nvmlVgpuPlacementList_v2_t, 2) == 0x02000020, "ABI");
_Static_assert(offsetof(nvmlVgpuPlacementList_v2_t, placementIds) == 16, "ABI");
_Static_assert(offsetof(nvmlVgpuPlacementList_v2_t, mode) == 24, "ABI");
_Static_assert(NVML_STRUCT_VERSION(nvmlVgpuTypeBar1Info_t, 1) == 0x01000010, "ABI");
_Static_assert(NVML_STRUCT_VERSION(nvmlVgpuRuntimeState_t, 1) == 0x01000010, "ABI");
_Static_assert(NVML_STRUCT_VERSION(nvmlVgpuTypeMaxInstance_t, 1) == 0x0100000c, "ABI");
_Static_assert(NVML_STRUCT_VERSION(nvmlSystemDriverBranchInfo_t, 1) == 0x01000054, "ABI");
_Static_assert(sizeof(nvmlVgpuLicenseExpiry_t) == 16, "ABI");
_Static_assert(offsetof(nvmlVgpuLicenseExpiry_t, status) == 14, "ABI");
_Static_assert(sizeof(nvmlVgpuLicenseInfo_t) == 24, "ABI");
_Static_assert(offsetof(nvmlVgpuLicenseInfo_t, licenseExpiry) == 4, "ABI");
_Static_assert(offsetof(nvmlVgpuLicenseInfo_t, currentState) == 20, "ABI");
_Static_assert(sizeof(nvmlEventData_t) == 32 && offsetof(nvmlEventData_t, gpuInstanceId) == 24,
	       "ABI");

/* Start, end, errors, the driver as a whole. */
NVML_API nvmlReturn_t nvmlInit(void);
NVML_API nvmlReturn_t nvmlInit_v2(void);
NVML_API nvmlReturn_t nvmlInitWithFlags(unsigned int flags);
NVML_API nvmlReturn_t nvmlShutdown(void);
NVML_API const char *nvmlErrorString(nvmlReturn_t result);
NVML_API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length);
NVML_API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length);
NVML_API nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t *info,
						unsigned int length);
NVML_API nvmlReturn_t nvmlGetVgpuDriverCapabilities(int capability, unsigned int *result);

/* Devices. The names without a suffix have the same signature and are kept for old callers. */
NVML_API nvmlReturn_t nvmlDeviceGetCount(unsigned int *count);
NVML_API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count);
NVML_API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device);
NVML_API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device);
NVML_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device);
NVML_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device);
NVML_API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index);
NVML_API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor);
NVML_API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length);
NVML_API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length);
NVML_API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci);
NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory);
NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory);
NVML_API nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, int *mode);
NVML_API nvmlReturn_t nvmlDeviceGetHostVgpuMode(nvmlDevice_t device, int *mode);
NVML_API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current,
					   unsigned int *pending);
NVML_API nvmlReturn_t nvmlDeviceGetVgpuCapabilities(nvmlDevice_t device, int capability,
						    unsigned int *result);
NVML_API nvmlReturn_t nvmlDeviceSetVgpuCapabilities(nvmlDevice_t device, int capability,
						    int enable);

/* Types. */
NVML_API nvmlReturn_t nvmlDeviceGetSupportedVgpus(nvmlDevice_t device, unsigned int *count,
						  nvmlVgpuTypeId_t *ids);
NVML_API nvmlReturn_t nvmlDeviceGetCreatableVgpus(nvmlDevice_t device, unsigned int *count,
						  nvmlVgpuTypeId_t *ids);
NVML_API nvmlReturn_t nvmlVgpuTypeGetName(nvmlVgpuTypeId_t type, char *name, unsigned int *size);
NVML_API nvmlReturn_t nvmlVgpuTypeGetClass(nvmlVgpuTypeId_t type, char *text, unsigned int *size);
NVML_API nvmlReturn_t nvmlVgpuTypeGetLicense(nvmlVgpuTypeId_t type, char *text, unsigned int size);
NVML_API nvmlReturn_t nvmlVgpuTypeGetFramebufferSize(nvmlVgpuTypeId_t type,
						     unsigned long long *bytes);
NVML_API nvmlReturn_t nvmlVgpuTypeGetMaxInstances(nvmlDevice_t device, nvmlVgpuTypeId_t type,
						  unsigned int *max);
NVML_API nvmlReturn_t nvmlVgpuTypeGetMaxInstancesPerVm(nvmlVgpuTypeId_t type, unsigned int *max);
NVML_API nvmlReturn_t nvmlVgpuTypeGetMaxInstancesPerGpuInstance(nvmlVgpuTypeMaxInstance_t *max);
NVML_API nvmlReturn_t nvmlVgpuTypeGetCapabilities(nvmlVgpuTypeId_t type, int capability,
						  unsigned int *result);
NVML_API nvmlReturn_t nvmlVgpuTypeGetDeviceID(nvmlVgpuTypeId_t type, unsigned long long *device_id,
					      unsigned long long *subsystem_id);
NVML_API nvmlReturn_t nvmlVgpuTypeGetFrameRateLimit(nvmlVgpuTypeId_t type, unsigned int *limit);
NVML_API nvmlReturn_t nvmlVgpuTypeGetNumDisplayHeads(nvmlVgpuTypeId_t type, unsigned int *heads);
NVML_API nvmlReturn_t nvmlVgpuTypeGetResolution(nvmlVgpuTypeId_t type, unsigned int head,
						unsigned int *x, unsigned int *y);
NVML_API nvmlReturn_t nvmlVgpuTypeGetGpuInstanceProfileId(nvmlVgpuTypeId_t type, unsigned int *id);
NVML_API nvmlReturn_t nvmlVgpuTypeGetBAR1Info(nvmlVgpuTypeId_t type, nvmlVgpuTypeBar1Info_t *info);
NVML_API nvmlReturn_t nvmlVgpuTypeGetGspHeapSize(nvmlVgpuTypeId_t type, unsigned long long *bytes);
NVML_API nvmlReturn_t nvmlVgpuTypeGetFbReservation(nvmlVgpuTypeId_t type,
						   unsigned long long *bytes);

/* Placements. The list is a v1 or a v2, as its version says. */
NVML_API nvmlReturn_t nvmlDeviceGetVgpuHeterogeneousMode(nvmlDevice_t device,
							 nvmlVgpuHeterogeneousMode_t *mode);
NVML_API nvmlReturn_t nvmlDeviceSetVgpuHeterogeneousMode(nvmlDevice_t device,
							 const nvmlVgpuHeterogeneousMode_t *mode);
NVML_API nvmlReturn_t nvmlDeviceGetVgpuTypeSupportedPlacements(nvmlDevice_t device,
							       nvmlVgpuTypeId_t type, void *list);
NVML_API nvmlReturn_t nvmlDeviceGetVgpuTypeCreatablePlacements(nvmlDevice_t device,
							       nvmlVgpuTypeId_t type, void *list);

/* MIG slices: no simulated card has one, so these are there and not supported. */
/* count is output only: the buffer holds as many as the profile can have. */
NVML_API nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profile,
						nvmlGpuInstance_t *gis, unsigned int *count);
NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id,
						   nvmlGpuInstance_t *gi);
NVML_API nvmlReturn_t nvmlGpuInstanceGetCreatableVgpus(nvmlGpuInstance_t gi, void *info);
NVML_API nvmlReturn_t nvmlGpuInstanceGetActiveVgpus(nvmlGpuInstance_t gi, void *info);
NVML_API nvmlReturn_t nvmlGpuInstanceGetVgpuTypeCreatablePlacements(nvmlGpuInstance_t gi,
								    void *info);
NVML_API nvmlReturn_t nvmlGpuInstanceGetVgpuHeterogeneousMode(nvmlGpuInstance_t gi,
							      nvmlVgpuHeterogeneousMode_t *mode);
NVML_API nvmlReturn_t nvmlGpuInstanceSetVgpuHeterogeneousMode(
	nvmlGpuInstance_t gi, const nvmlVgpuHeterogeneousMode_t *mode);

/* Active vGPUs. */
NVML_API nvmlReturn_t nvmlDeviceGetActiveVgpus(nvmlDevice_t device, unsigned int *count,
					       nvmlVgpuInstance_t *ids);
NVML_API nvmlReturn_t nvmlVgpuInstanceGetType(nvmlVgpuInstance_t inst, nvmlVgpuTypeId_t *type);
NVML_API nvmlReturn_t nvmlVgpuInstanceGetVmID(nvmlVgpuInstance_t inst, char *id, unsigned int size,
					      int *id_type);
NVML_API nvmlReturn_t nvmlVgpuInstanceGetUUID(nvmlVgpuInstance_t inst, char *uuid,
					      unsigned int size);
NVML_API nvmlReturn_t nvmlVgpuInstanceGetMdevUUID(nvmlVgpuInstance_t inst, char *uuid,
						  unsigned int size);
NVML_API nvmlReturn_t nvmlVgpuInstanceGetFbUsage(nvmlVgpuInstance_t inst,
						 unsigned long long *bytes);
NVML_API nvmlReturn_t nvmlVgpuInstanceGetGpuPciId(nvmlVgpuInstance_t inst, char *pci,
						  unsigned int *length);
NVML_API nvmlReturn_t nvmlVgpuInstanceGetVmDriverVersion(nvmlVgpuInstance_t inst, char *version,
							 unsigned int length);
NVML_API nvmlReturn_t nvmlVgpuInstanceGetLicenseInfo_v2(nvmlVgpuInstance_t inst,
							nvmlVgpuLicenseInfo_t *info);
NVML_API nvmlReturn_t nvmlVgpuInstanceGetLicenseStatus(nvmlVgpuInstance_t inst,
						       unsigned int *licensed);
NVML_API nvmlReturn_t nvmlVgpuInstanceGetPlacementId(nvmlVgpuInstance_t inst,
						     nvmlVgpuPlacementId_t *placement);
NVML_API nvmlReturn_t nvmlVgpuInstanceGetRuntimeStateSize(nvmlVgpuInstance_t inst,
							  nvmlVgpuRuntimeState_t *state);
NVML_API nvmlReturn_t nvmlVgpuInstanceGetFrameRateLimit(nvmlVgpuInstance_t inst,
							unsigned int *limit);
NVML_API nvmlReturn_t nvmlVgpuInstanceGetEccMode(nvmlVgpuInstance_t inst, unsigned int *mode);
NVML_API nvmlReturn_t nvmlVgpuInstanceGetGpuInstanceId(nvmlVgpuInstance_t inst, unsigned int *id);

/* Events. */
NVML_API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set);
NVML_API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
					       nvmlEventSet_t set);
NVML_API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device,
						       unsigned long long *types);
NVML_API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data,
					  unsigned int timeout_msec);
NVML_API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set);
