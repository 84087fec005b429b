/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of NVML's binary interface that berth calls: return codes, sizes, versioned structures.
 *
 * Declared here instead of by NVIDIA's header because berth opens the library at run time and must
 * build without it. Layouts and versions are those of nvml.h 13.3.29; a version is the structure's
 * size with its number in the top byte, so the assertions below check both. All symbols are called
 * by their suffixed names: the bare ones keep an older layout.
 */
#pragma once

#include <assert.h>

#include "base/macro.h"

/* nvmlReturn_t; those that berth tells apart. */
enum nvml_code {
	NVML_CODE_SUCCESS = 0,
	NVML_CODE_UNINITIALIZED = 1,
	NVML_CODE_INVALID_ARGUMENT = 2,
	NVML_CODE_NOT_SUPPORTED = 3,
	NVML_CODE_NOT_FOUND = 6,
	NVML_CODE_INSUFFICIENT_SIZE = 7,
	NVML_CODE_DRIVER_NOT_LOADED = 9,
	NVML_CODE_FUNCTION_NOT_FOUND = 13,
	NVML_CODE_GPU_IS_LOST = 15,
	NVML_CODE_LIB_RM_VERSION_MISMATCH = 18,
	NVML_CODE_ARGUMENT_VERSION_MISMATCH = 25,
	NVML_CODE_INVALID_STATE = 29,
	NVML_CODE_UNKNOWN = 999,
};

#define NVML_ABI_DRIVER_VERSION_MAX 80
#define NVML_ABI_DEVICE_NAME_MAX    96
#define NVML_ABI_TYPE_NAME_MAX	    64

struct nvml_device; /* opaque: nvmlDevice_t is a pointer to it */

/* nvmlVgpuHeterogeneousMode_v1_t. mode: 1 is mixed-size. */
struct nvml_abi_mode {
	uint32_t version;
	uint32_t mode;
};
#define NVML_ABI_MODE_VERSION 0x01000008U
#define NVML_ABI_MODE_ENABLED 1U

/* nvmlVgpuPlacementId_v1_t */
struct nvml_abi_placement_id {
	uint32_t version;
	uint32_t placement_id;
};
#define NVML_ABI_PLACEMENT_ID_VERSION 0x01000008U

/* nvmlVgpuPlacementList_v1_t: count is output only, nobody says how long the buffer is. */
struct nvml_abi_placements_v1 {
	uint32_t version;
	uint32_t placement_size;
	uint32_t count;
	uint32_t *ids;
};
#define NVML_ABI_PLACEMENTS_V1_VERSION 0x01000018U

/* nvmlVgpuPlacementList_v2_t: count in is the buffer's length. Here mode 0 is mixed-size, the
 * opposite of nvml_abi_mode. */
struct nvml_abi_placements_v2 {
	uint32_t version;
	uint32_t placement_size;
	uint32_t count;
	uint32_t *ids;
	uint32_t mode;
};
#define NVML_ABI_PLACEMENTS_V2_VERSION 0x02000020U
#define NVML_ABI_PLACEMENTS_MIXED      0U

/* nvmlVgpuTypeMaxInstance_v1_t: vGPUs of a type in one GPU instance. */
struct nvml_abi_max_per_gi {
	uint32_t version;
	uint32_t type;
	uint32_t max;
};
#define NVML_ABI_MAX_PER_GI_VERSION 0x0100000cU

struct nvml_gpu_instance; /* opaque: nvmlGpuInstance_t is a pointer to it */

#if UINTPTR_MAX == UINT64_MAX
static_assert(sizeof(struct nvml_abi_max_per_gi) == (NVML_ABI_MAX_PER_GI_VERSION & 0xffffff),
	      "size");
static_assert(sizeof(struct nvml_abi_mode) == (NVML_ABI_MODE_VERSION & 0xffffff), "size");
static_assert(sizeof(struct nvml_abi_placement_id) == (NVML_ABI_PLACEMENT_ID_VERSION & 0xffffff),
	      "size");
static_assert(sizeof(struct nvml_abi_placements_v1) == (NVML_ABI_PLACEMENTS_V1_VERSION & 0xffffff),
	      "size");
static_assert(sizeof(struct nvml_abi_placements_v2) == (NVML_ABI_PLACEMENTS_V2_VERSION & 0xffffff),
	      "size");
static_assert(offsetof(struct nvml_abi_placements_v1, placement_size) == 4, "offset");
static_assert(offsetof(struct nvml_abi_placements_v1, count) == 8, "offset");
static_assert(offsetof(struct nvml_abi_placements_v1, ids) == 16, "offset");
static_assert(offsetof(struct nvml_abi_placements_v2, placement_size) == 4, "offset");
static_assert(offsetof(struct nvml_abi_placements_v2, count) == 8, "offset");
static_assert(offsetof(struct nvml_abi_placements_v2, ids) == 16, "offset");
static_assert(offsetof(struct nvml_abi_placements_v2, mode) == 24, "offset");
#else
#error "NVML exists for 64-bit hosts only"
#endif
