/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver model: cards, their virtual functions, what is configured and placed on them, and the
 * faults that were asked for.
 *
 * sysfs (simsys), /dev (simdev), the control socket (simctl), guests (simguest) and the NVML server
 * (simnvml) are views on these structures; all run in one thread. Functions that stand for a driver
 * attribute return the kernel's answer as -errno. The rules are those of NVIDIA's R550, R570 and
 * later branches on SR-IOV boards with the vendor-specific VFIO framework.
 */
#pragma once

#include "base/macro.h"
#include "sim/simcatalog.h"

#define SIM_CARDS_MAX	32
#define SIM_VFS_MAX	64
#define SIM_GIS_MAX	8
#define SIM_SYMBOLS_MAX 32
#define SIM_ADDRESS_MAX 20 /* "0000:41:00.0", room for wide domains */
#define SIM_UUID_MAX	37
#define SIM_PARAMS_MAX	1024
#define SIM_REGION_MAX	256

/* NVML return codes used by the model. */
enum sim_nvml_code {
	SIM_NVML_SUCCESS = 0,
	SIM_NVML_INVALID_ARGUMENT = 2,
	SIM_NVML_NOT_SUPPORTED = 3,
	SIM_NVML_NO_PERMISSION = 4,
	SIM_NVML_NOT_FOUND = 6,
	SIM_NVML_IN_USE = 19,
};

/* Numeric fault keys; 0 means "no fault". Names are in simfault.c. */
enum sim_fault {
	SIM_FAULT_NVML_LATENCY_MS, /* one whole-host sweep; see sim_nvml_call_delay_usec() */
	SIM_FAULT_NVML_HANG,	   /* calls are not answered until this is 0 again */
	SIM_FAULT_NVML_ERROR,	   /* host: what Init returns; card: what its calls return */
	SIM_FAULT_NVML_CRASH,	   /* the process that calls dies of SIGABRT */
	SIM_FAULT_NVML_GHOST,	   /* a released placement stays taken */
	SIM_FAULT_READ_LATENCY_MS, /* from here on: attributes under a VF's nvidia/ */
	SIM_FAULT_WRITE_LATENCY_MS,
	SIM_FAULT_READ_ERRNO, /* positive errno */
	SIM_FAULT_WRITE_ERRNO,
	SIM_FAULT_RELEASE_ERRNO,   /* writes of 0 to current_vgpu_type only */
	SIM_FAULT_PLACEMENT_ERRNO, /* writes to placement_id only */
	SIM_FAULT_READ_HANG,
	SIM_FAULT_WRITE_HANG,
	SIM_FAULT_CREATABLE,		/* enum sim_creatable_text */
	SIM_FAULT_PHYSFN_MISSING,	/* the VF has no physfn link */
	SIM_FAULT_CREATABLE_GUARD_OFF,	/* lists do not hide types above their equal-size limit */
	SIM_FAULT_SRIOV_LATENCY_MS,	/* how long a sriov-manage run takes */
	SIM_FAULT_NVML_ACTIVE_ERROR,	/* what the list of active vGPUs alone returns */
	SIM_FAULT_NVML_LIST_V1_REFUSED, /* drivers from R565 on: the old placement list gives 25 */
	SIM_FAULT_NVML_PLACEMENT_ERROR, /* what the creatable placements alone return */
	SIM_FAULT_COUNT,
};

enum sim_creatable_text {
	SIM_CREATABLE_NORMAL,
	SIM_CREATABLE_HEADER, /* header line only */
	SIM_CREATABLE_EMPTY,  /* zero bytes */
};

/* Setting a fault on the host or a card writes it to everything below as well (NVML_ERROR on the
 * host alone does not), so each place only has to look at its own values. */
struct sim_faults {
	int64_t value[SIM_FAULT_COUNT];
};

struct sim_card;

/* A guest that runs on a VF: what NVML calls a vGPU instance. */
struct sim_instance {
	bool active;
	uint32_t id; /* >= 0xC0000000, random, never 0 */
	pid_t pid;
	char uuid[SIM_UUID_MAX];    /* of the vGPU */
	char vm_uuid[SIM_UUID_MAX]; /* of the VM */
	char vm_name[64];
	uint64_t placement_known_usec; /* CLOCK_MONOTONIC: NVML reads 0xFFFF before it */
	uint64_t init_end_usec;	       /* end of the guest driver's init window */
	bool driver_loaded;	       /* guest said so; false for ever on a wedged VF */
};

struct sim_vf {
	struct sim_card *card;
	uint32_t index;
	char address[SIM_ADDRESS_MAX];
	uint32_t group;		     /* IOMMU group */
	uint32_t vfio;		     /* N of vfioN */
	const struct sim_type *type; /* NULL when free */
	uint32_t placement;	     /* SIM_PLACEMENT_NONE if none is held */
	uint32_t wanted_placement;   /* of vgpu_params, R550 */
	uint32_t gi;		     /* GPU instance id, SIM_GI_NONE outside MIG */
	uint64_t configured_seq;     /* order of configuration on the card */
	char params[SIM_PARAMS_MAX + 1];
	uint32_t warm_update;
	uint32_t open_count; /* open handles on its VFIO nodes */
	bool wedged;
	bool rebound; /* bound to vfio-pci by hand: no nvidia/ folder */
	bool dead;    /* was re-bound to nvidia by hand: attributes give EINVAL */
	bool hidden;  /* flapping: not on the bus just now */
	uint32_t
		generation; /* changes each time the function (re)appears: old handles get ENODEV */
	struct sim_instance instance;
	struct sim_faults faults;
};

struct sim_gi {
	uint32_t id;
	const struct sim_gi_profile *profile;
	uint32_t start; /* first memory slice */
};

/* A placement that stays taken although no VF has it. */
struct sim_ghost {
	uint32_t id, size;
};

struct sim;

struct sim_card {
	struct sim *sim;
	uint32_t index;
	const struct sim_model *model;
	char address[SIM_ADDRESS_MAX];
	uint32_t domain, bus, device; /* function 0 */
	char uuid[SIM_UUID_MAX + 4];  /* "GPU-..." */
	int numa_node;
	uint32_t group;
	uint32_t total_vfs;
	uint32_t vf_count; /* 0 while SR-IOV is off */
	enum sim_mode mode;
	bool present;
	bool sriov_busy;	  /* sriov-manage is at work: unbound from the driver */
	uint32_t generation;	  /* changes when open handles on its node stop to count */
	uint32_t node_open_count; /* open handles on /dev/nvidiaN */
	uint64_t next_seq;
	uint32_t gi_count;
	struct sim_gi gis[SIM_GIS_MAX];
	uint32_t ghost_count;
	struct sim_ghost ghosts[SIM_VFS_MAX];
	struct sim_faults faults;
	struct sim_vf vfs[SIM_VFS_MAX];
};

struct sim_counters {
	uint64_t nvml_calls;	 /* calls the fake library passed to the model (Init included) */
	uint64_t nvml_shutdowns; /* those of them that were nvmlShutdown */
	uint64_t attr_reads;	 /* reads of files under a VF's nvidia/ */
	uint64_t attr_writes;
};

struct sim {
	char root[256];	 /* absolute */
	char driver[32]; /* "580.178.05" */
	uint32_t branch; /* 580 */
	char boot_id[SIM_UUID_MAX];
	uint32_t boot;		 /* counts reboots */
	uint32_t ctl_open_count; /* open handles on /dev/nvidiactl */
	uint32_t card_count;
	struct sim_card cards[SIM_CARDS_MAX];
	struct sim_faults faults;
	uint32_t symbol_count;
	char symbols_missing[SIM_SYMBOLS_MAX][64];
	struct sim_counters counters;
};

struct sim_config {
	const char *root;
	const char *model;
	const char *driver;
	const char *addresses; /* comma list, or NULL for the usual slots */
	const char *numa;      /* comma list of nodes, or NULL: first half 0, second half 1 */
	const char *boot_id;   /* or NULL: random */
	uint32_t cards;
	uint32_t vfs; /* 0: the model's number */
	enum sim_mode mode;
	bool sriov;
	bool compute_types;
	int64_t nvml_latency_ms;
};

struct error;

/* Heap: the structure is large. -errno with a sentence. */
int sim_new(const struct sim_config *config, struct sim **ret, struct error *err) _must_check_;
struct sim *sim_free(struct sim *sim);

/* --- looking things up ---------------------------------------------------------------------- */

/* Addresses in any case and width of the domain. A card that was removed is found too (present is
 * false), a VF only while it is on the bus. NULL if there is none. */
struct sim_card *sim_find_card(struct sim *sim, const char *address);
struct sim_vf *sim_find_vf(struct sim *sim, const char *address);
/* The VF with that active instance, NULL if gone. */
struct sim_vf *sim_find_instance(struct sim *sim, uint32_t instance_id);
/* Any card's type of that number: type numbers are global in the driver. NULL if unknown. */
const struct sim_type *sim_find_type(struct sim *sim, uint32_t type_id);

/* VF j is on the bus: present, SR-IOV on, not flapping. */
bool sim_vf_visible(const struct sim_vf *vf);
/* ... and its nvidia/ folder exists. */
bool sim_vf_has_attributes(const struct sim_vf *vf);
/* Driver branch 570 and later: six attributes, placements are taken at configuration. */
static inline bool sim_places_at_configure(const struct sim *sim)
{
	return sim->branch >= 570;
}

/* --- a VF's attributes ----------------------------------------------------------------------- */

/* Write to current_vgpu_type. 0 releases. The kernel's -errno. */
int sim_vf_write_type(struct sim_vf *vf, uint32_t type_id) _must_check_;
int sim_vf_write_placement(struct sim_vf *vf, uint32_t placement) _must_check_;
int sim_vf_write_gi(struct sim_vf *vf, uint32_t gi) _must_check_;
int sim_vf_write_params(struct sim_vf *vf, const char *text, size_t n) _must_check_;

/* Types that creatable_vgpu_types lists: the guard of the sysfs path included. Returns the count.
 */
uint32_t sim_vf_listed_types(const struct sim_vf *vf, const struct sim_type *ret[SIM_TYPES_MAX]);

/* --- what NVML sees -------------------------------------------------------------------------- */

/* Every type of the board, MIG-backed ones included where it can do MIG. */
uint32_t sim_card_supported_types(const struct sim_card *card,
				  const struct sim_type *ret[SIM_TYPES_MAX]);
uint32_t sim_card_creatable_types(const struct sim_card *card,
				  const struct sim_type *ret[SIM_TYPES_MAX]);

/* Geometry of a type for NVML's placement mode: mixed (heterogeneous) or equal (homogeneous).
 * SIM_NVML_NOT_SUPPORTED where the board has none of that kind. */
int sim_card_supported_placements(const struct sim_card *card, const struct sim_type *type,
				  bool mixed, struct sim_placements *ret);
/* What is free now, for the card's present mode. SIM_NVML_NOT_SUPPORTED with MIG on, and in
 * equal-size mode before Ada (and on R550 always in equal-size mode). */
int sim_card_creatable_placements(const struct sim_card *card, const struct sim_type *type,
				  struct sim_placements *ret);

/* Mixed-size mode. get: SIM_NVML_NOT_SUPPORTED with MIG on or SR-IOV off. set: IN_USE while a vGPU
 * is configured (R550: while one runs). */
int sim_card_get_mixed(const struct sim_card *card, bool *ret);
int sim_card_set_mixed(struct sim_card *card, bool mixed);
bool sim_card_is_sriov(const struct sim_card *card);
bool sim_card_has_equal_placements(const struct sim_card *card); /* capability 9 */

/* VFs with an active instance, in order of VF number. Returns the count. */
uint32_t sim_card_instances(struct sim_card *card, struct sim_vf *ret[SIM_VFS_MAX]);
/* SIM_PLACEMENT_NONE while the plugin has not reported it. */
uint32_t sim_instance_placement(const struct sim_vf *vf);
/* "580.178.05", or "Not Available" before the guest driver has loaded. */
const char *sim_instance_driver(const struct sim_vf *vf);

/* Framebuffer in use by configured vGPUs, MiB. */
uint64_t sim_card_used_mib(const struct sim_card *card);

/* How long one call for creatable placements is to take, so that a sweep over all cards and types
 * takes nvml.latency_ms; 0 without latency. Other calls take no time. */
uint64_t sim_nvml_call_delay_usec(const struct sim_card *card);

/* R550: takes the placement that vgpu_params asked for, or the first free one; -EINVAL if none.
 * Later branches took it at configuration: nothing to do. */
int sim_vf_place_for_guest(struct sim_vf *vf) _must_check_;

/* --- guests ---------------------------------------------------------------------------------- */

/* A guest's plugin registers. R550 takes the placement here. -errno: ENODEV no type, EBUSY another
 * guest is there, EINVAL the asked or any placement is not free. */
int sim_vf_start_guest(struct sim_vf *vf, pid_t pid, const char *vm_name,
		       uint64_t init_usec) _must_check_;
/* clean: it shut down. Otherwise it was killed: inside the init window that wedges the VF. */
void sim_vf_stop_guest(struct sim_vf *vf, bool clean);

/* --- events ---------------------------------------------------------------------------------- */

/* Why a sriov-manage run may not start now: NULL, or the line it prints. */
const char *sim_card_sriov_blocked(const struct sim_card *card);
/* Switches SR-IOV; types, mixed mode, GPU instances, ghosts and wedges are gone in both directions.
 */
void sim_card_set_sriov(struct sim_card *card, bool on);
void sim_card_remove(struct sim_card *card);
void sim_card_restore(struct sim_card *card);
/* One VF alone off the bus, or back and free. */
void sim_vf_set_hidden(struct sim_vf *vf, bool hidden);
/* Bind to "vfio-pci" or back to "nvidia". */
int sim_vf_rebind(struct sim_vf *vf, const char *driver) _must_check_;
/* MIG layout: replaces the GPU instances. -EBUSY while one is used, -EINVAL for a layout that does
 * not exist. names: "3g.40gb" ... */
int sim_card_set_gis(struct sim_card *card, const char *const *names, size_t n) _must_check_;
/* Any mode, the way a person would with nvidia-smi. -EBUSY while a vGPU is configured, -ENOTSUP. */
int sim_card_set_mode(struct sim_card *card, enum sim_mode mode) _must_check_;
/* New boot id, SR-IOV off everywhere, everything that does not survive is lost. */
void sim_reboot(struct sim *sim);

/* Random UUID in text. */
void sim_uuid(char ret[static SIM_UUID_MAX]);
