/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which GPU boards the simulator knows, their vGPU types, and where on a card a type may be placed.
 *
 * Types carry the driver's global numbers; placement ids are generated from framebuffer, size and
 * maximum count by the driver's rules (one for boards before Blackwell, one from Blackwell on),
 * never written down. Everything here is constant once a model was built: no state of a card.
 */
#pragma once

#include "base/macro.h"

#define SIM_TYPES_MAX	   128
#define SIM_PLACEMENTS_MAX 64
#define SIM_TYPE_NAME_MAX  64
#define SIM_PLACEMENT_NONE 0xffffU
#define SIM_GI_NONE	   0xffffffffU

enum sim_arch {
	SIM_ARCH_AMPERE,
	SIM_ARCH_ADA,
	SIM_ARCH_HOPPER,
	SIM_ARCH_BLACKWELL,
};

/* How a card divides itself. */
enum sim_mode {
	SIM_MODE_EQUAL, /* equal-size: the first vGPU fixes the size; the driver's default */
	SIM_MODE_MIXED, /* mixed-size ("heterogeneous") */
	SIM_MODE_MIG,	/* MIG on: only MIG-backed types */
};

/* Start units (1 unit = 1 GiB) in the driver's order: first fit takes the first free one. */
struct sim_placements {
	uint32_t count;
	uint32_t id[SIM_PLACEMENTS_MAX];
};

struct sim_type {
	uint32_t id;		      /* the number written to current_vgpu_type */
	char name[SIM_TYPE_NAME_MAX]; /* "NVIDIA L40S-4Q" */
	char class_name[16];	      /* NVML's class: "Quadro" (Q), "NVS" (B, A), "Compute" (C) */
	char license[64];	      /* NVML's license text */
	char series;		      /* 'Q' 'A' 'B' 'C' */
	uint32_t fb_mib;	      /* profile size, 4096 for 4Q */
	uint32_t size;		      /* placement size in units; 0: has no placements (MIG) */
	uint32_t max_instances; /* per card; equal-size limit. MIG: per GPU instance x instances */
	uint32_t max_per_vm;
	uint32_t heads; /* display heads, and the largest resolution of each */
	uint32_t max_x, max_y;
	bool mig;
	bool optional;		     /* compute types, listed only with --compute-types */
	uint32_t gi_profile;	     /* NVML GPU instance profile id; SIM_GI_NONE unless mig */
	uint32_t max_per_gi;	     /* 0 unless mig */
	struct sim_placements mixed; /* supported ids in mixed-size mode */
	struct sim_placements equal; /* supported ids in equal-size mode; none before Ada */
};

/* A kind of GPU instance a MIG-capable board can be cut into. */
struct sim_gi_profile {
	uint32_t id;	  /* the number nvidia-smi mig -lgip prints */
	const char *name; /* "1g.10gb" */
	uint32_t gib;
	uint32_t compute, memory; /* slices of each kind it takes */
	uint32_t max;
};

struct sim_model {
	const char *key;     /* "l40s" */
	const char *product; /* "NVIDIA L40S" */
	enum sim_arch arch;
	uint32_t region;     /* units: nominal framebuffer in GiB */
	uint32_t memory_mib; /* what NVML reports as total memory */
	uint16_t device, subsystem_device;
	uint32_t class_code; /* 0x030200 */
	uint32_t vfs;	     /* sriov_totalvfs unless told otherwise */
	uint32_t vf_offset;  /* routing id of VF 0 less the PF's */
	bool mig_capable;
	bool mig_timeslicing; /* several vGPUs on one GPU instance */
	uint32_t compute_slices, memory_slices;
	uint32_t gi_profile_count;
	const struct sim_gi_profile *gi_profiles;
	uint32_t type_count;
	struct sim_type types[SIM_TYPES_MAX]; /* in the order in which the driver lists them */
};

/* Model "l40s", "l4", "a16", "a40", "h100-80", "rtx-pro-6000"; built on the first call, then kept.
 * compute_types: list the optional C-series types too. NULL if unknown. */
const struct sim_model *sim_model_find(const char *key, bool compute_types);
/* i-th known key, NULL past the last. */
const char *sim_model_key(unsigned i);

/* By number; by full name, or by name without "NVIDIA ". NULL if the model has no such type. */
const struct sim_type *sim_model_type(const struct sim_model *model, uint32_t id);
const struct sim_type *sim_model_type_by_name(const struct sim_model *model, const char *name);

/* The generators, exposed for tests. */
void sim_geometry_mixed(uint32_t region, uint32_t size, uint32_t max_instances,
			const uint32_t *deny, size_t n_deny, struct sim_placements *ret);
void sim_geometry_blackwell(uint32_t region, uint32_t max_instances, struct sim_placements *ret);
void sim_geometry_equal(uint32_t region, uint32_t size, uint32_t max_instances,
			struct sim_placements *ret);

const char *sim_mode_name(enum sim_mode mode);
/* 0, -EINVAL. */
int sim_mode_parse(const char *name, enum sim_mode *ret) _must_check_;
