/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that berthd knows, in memory, owned by its loop: cards, VFs, claims, and what runs on them.
 *
 * There are no locks: every function of daemon/ runs in the loop, in one step. A VF is in the hands
 * of at most one owner (enum vf_hold); only VF_HOLD_NONE may be offered. Card and claim objects
 * stay where they are until node_free(); VFs are rebuilt by each inventory scan and are looked up
 * by address after anything slow.
 */
#pragma once

#include <systemd/sd-event.h>

#include "base/metrics.h"
#include "base/worker.h"
#include "config/config.h"
#include "host/card-client.h"
#include "host/inventory.h"
#include "http/events.h"
#include "model/claim.h"
#include "model/placement.h"
#include "model/policy.h"
#include "nvml/client.h"
#include "store/claim-store.h"
#include "store/health-store.h"

#define NODE_TEXT_MAX 200

struct allocation;
struct release;
struct recovery;
struct sentinel;
struct service;

/* Who has a VF in hand. */
enum vf_hold {
	VF_HOLD_NONE,
	VF_HOLD_ALLOCATION, /* planned or being configured for a claim that is not bound yet */
	VF_HOLD_CLAIM,	    /* a claim record names it (bound, releasing, external) */
	VF_HOLD_UNDO,	    /* writing 0 failed once, or a record of it is still on disk */
	VF_HOLD_RESET,	    /* an unclaimed configured VF that is being reset */
};

struct vf {
	struct pci_addr address;
	unsigned number;
	bool usable; /* bound to the driver, with the attribute, and that read the last time */
	bool listed; /* the inventory says vendor VFIO; `usable` also needs a good read */
	bool known;  /* type_id was read at least once since it appeared */
	bool excluded;
	bool quarantined;
	char reason[INVENTORY_REASON_MAX]; /* why it is not usable */
	char driver[32];
	int vfio_group;
	bool group_shared; /* another VF is in its IOMMU group */
	char vfio_device[24];
	bool vfio_node; /* /dev/vfio/devices/<vfio_device> is there */

	uint32_t type_id;	    /* as read or written last; 0: free */
	uint32_t planned_type;	    /* with VF_HOLD_ALLOCATION: what will be written */
	uint16_t placement_id;	    /* of the configured type; PLACEMENT_NONE: unknown */
	struct placement_span span; /* where its vGPU is or is planned; size 0: unknown or none */
	bool span_counted; /* the NVML answer in use was asked for after this span had been taken */
	uint64_t changed_seq; /* node->seq when berth last wrote to it or finished writing */
	unsigned busy;	      /* operations of ours under way on it */

	enum vf_hold hold;
	struct claim_entry *claim; /* with VF_HOLD_CLAIM */

	bool adoptable; /* first start: could not be read then, adopted when found configured */
	uint64_t unclaimed_since_usec; /* configured, unclaimed, same type, not open since; 0: is
					  not so */
	int reset_error;     /* of the last reset as nobody's that failed since its type changed */
	bool unclaimed_open; /* left alone because a process has it open */

	bool list_known;		       /* its creatable_vgpu_types was read */
	uint64_t list[PROFILE_TYPES_MAX / 64]; /* over card->types */
};

struct card {
	struct pci_addr address;
	bool present;
	bool has_vfs; /* vendor VFIO VFs were seen: it has a helper */
	bool cordoned;
	bool excluded;
	uint32_t device_id;
	int numa_node;
	unsigned total_vfs;
	char driver[32];
	char name[96];
	char reason[INVENTORY_REASON_MAX];

	unsigned n_vfs;
	struct vf vfs[INVENTORY_VFS_MAX];

	struct card_client *client;
	struct recovery *recovery; /* under way, or how the last one ended; owned */
	bool stuck;
	bool read_once;	   /* the first read of all types has ended, well or badly */
	bool reading;	   /* a CARD_OP_READ is out */
	uint64_t read_seq; /* node->seq when it was sent */

	/* Catalogue: this card's own types. */
	struct profile_list types;
	uint32_t max_instances[PROFILE_TYPES_MAX]; /* equal-size maximum, NVML; 0: unknown */
	uint32_t gi_profile[PROFILE_TYPES_MAX];	   /* in MIG mode, as in struct nvml_type */
	uint32_t gi_room[PROFILE_TYPES_MAX];	   /* vGPUs in all its GPU instances; NVML_GI_NONE:
						      unknown */
	bool catalogue_complete;
	bool catalogue_stored;

	/* What NVML said last. The answer stays while a fallback is on, unused. */
	enum nvml_reason fallback; /* NONE: placements come from `nvml` */
	char fallback_text[NODE_TEXT_MAX];
	int fallback_code;     /* NVML's number behind it; 0: none */
	bool fallback_of_host; /* the host's, which has its own line in the log and its own event */
	struct nvml_card *nvml; /* owned */
	enum nvml_mode mode;
	bool seen_mixed; /* it was in mixed-size mode since this berthd started */
	uint16_t region; /* units of 1 GiB; 0: unknown */

	uint64_t write_seq;	  /* raised when a write starts and when it ends */
	uint64_t asked_write_seq; /* write_seq when the query under way was sent */
	bool overlapped;  /* the answer in use came while something was written: it may show a vGPU
			     on its way */
	unsigned writes;  /* under way */
	unsigned changes; /* raised when a VF is seen to be configured otherwise than known */
	unsigned asked_changes; /* when the query under way was sent */
	uint64_t suspected_seq; /* when NVML and the VFs were first seen to disagree; 0: they do not
				 */
	uint64_t suspected_usec;
	unsigned suspected_changes;
	char suspected_text[NODE_TEXT_MAX];
	bool drift;

	uint32_t bad_lines; /* of its lists, when they were read last */
	bool listing;	    /* a CARD_OP_LIST is out */
	bool list_again;
	bool lists_tried;  /* they were asked for, well or badly, since the fallback began */
	uint64_t list_seq; /* node->seq when the lists in use were asked for; 0: never */
	uint64_t listing_seq;
	uint64_t listing_since_usec;

	struct allocation *configuring; /* the one claim being written on this card */
	char scan_said[CARD_TEXT_MAX]; /* why reconcile cannot tell which VFs are open; "" it can */
};

struct claim_entry {
	struct claim claim;
	enum claim_problem problem;
	struct release *release; /* under way */
	unsigned idle_passes;	 /* reconcile passes with the holder gone and the VF not open */
	bool held_open;		 /* the last pass found the holder gone and the VF open */
};

/* A record that must leave the disk, and a VF that must read 0, before the VF is offered. */
struct undo {
	struct undo_record record;
	bool stored;			 /* as an undo record */
	char claim_name[CLAIM_NAME_MAX]; /* intent still on disk that has to go with it; "" none */
	bool busy;
	bool clean;		  /* VF reads 0: only the record is left */
	char said[CARD_TEXT_MAX]; /* why the VF could not be reset at the last try */
};

enum node_stage { NODE_STARTING, NODE_READY, NODE_STOPPING };

/* What a question to a card's helper is about, until its answer. The node owns those that are out,
 * since no answer comes any more when the daemon ends. */
struct node_job {
	struct node *node;
	struct card *card;
	struct pci_addr vf;
};

struct node {
	sd_event *event;
	struct config *config;
	struct metrics *metrics;
	struct http_events *events;
	struct worker *scanner; /* inventory scans and fit questions */
	struct worker *files;	/* health records and console logs that are archived */
	struct claim_store *store;
	struct nvml_client *nvml;
	struct health_store *health;
	struct sentinel *sentinel;
	struct service *service;

	enum node_stage stage;
	uint64_t seq; /* orders what was asked and what was written; only ever raised */
	char boot_id[CLAIM_BOOT_ID_MAX];

	bool inventory_known;
	enum inventory_framework framework;
	struct inventory *inventory; /* the last scan, owned */
	uint64_t fingerprint;
	bool scanning, scan_again;
	uint64_t scan_seq,
		scanned_seq; /* when the scan under way, and the last that was taken over, began */
	bool scan_settles;   /* the scan under way decides whether it is over */
	bool scan_unsettled; /* a scan showed a change: it may have seen half of it */

	unsigned n_cards;
	struct card *cards[INVENTORY_CARDS_MAX]; /* by address; owned */

	unsigned n_claims, claims_cap;
	struct claim_entry **claims; /* by name; owned */
	unsigned n_undos, undos_cap;
	struct undo **undos; /* owned */
	unsigned n_jobs, jobs_cap;
	struct node_job **jobs; /* owned */
	unsigned n_allocations, allocations_cap;
	struct allocation **allocations; /* by arrival; owned */
	struct policy_demand demand;	 /* what the last claims were */
	bool one_query_per_claim;	 /* for measuring what sharing queries is worth */

	unsigned n_records;
	struct card_record *records; /* of cards, as loaded from the store; owned */
	bool store_taken;	     /* what the database says is in memory */
	bool store_fresh;	     /* first start: what is configured is adopted */
	bool adopting;		     /* that, or what becomes of old records, is being committed */
	struct adoption *adoption;   /* what is being committed, if it is that; owned */
	unsigned n_stale;
	char (*stale)[CLAIM_NAME_MAX]; /* claims of an earlier boot, still on disk; owned */
	unsigned n_adoptable;
	struct pci_addr *adoptable; /* VFs to adopt when they can be read; owned */
	char store_reason[NODE_TEXT_MAX];

	/* Sweep of placements (daemon/snapshot.c). */
	bool sweep_busy, sweep_wanted, snapshot_loaded;
	uint64_t sweep_seq;	   /* of the sweep under way */
	uint64_t sweep_begun_usec; /* when it began to be of use to those who wait for it */
	unsigned sweep_restarts;
	uint64_t query_usec;	    /* how long the last good query took */
	uint64_t claims_since_usec; /* since when claims wait for the sweep after this one; 0: none
				       do */
	bool nvml_hung; /* nothing waits for NVML until it has answered a query that nobody waits
			   for */
	uint64_t probe_delay_usec;
	uint64_t answered_seq;	/* of the last one that ended */
	uint64_t snapshot_usec; /* when the placements in use were asked for */
	enum nvml_reason host_fallback;
	char host_fallback_text[NODE_TEXT_MAX];
	int host_fallback_code;
	char driver_version[80];
	unsigned driver_branch; /* 580; 0: unknown */

	uint64_t revision; /* raised by node_changed() */
	void (*changed)(struct node *n, void *userdata);
	void *changed_userdata;
	/* The start has ended, or a database that cannot be read ended it: requests are answered.
	 * May come again. */
	void (*ready)(struct node *n);

	struct node_metrics *m;
	sd_event_source *poll_timer, *reconcile_timer, *plan_timer, *defer, *probe_timer,
		*patience_timer;
	struct reconcile *reconcile;
};

struct node *node_free(struct node *n);

struct card *node_find_card(const struct node *n, struct pci_addr address);
/* Also finds the card; NULL when no present card has that VF. */
struct vf *node_find_vf(const struct node *n, struct pci_addr address, struct card **ret_card);
struct claim_entry *node_find_claim(const struct node *n, const char *name);
struct claim_entry *node_find_claim_by_vf(const struct node *n, struct pci_addr vf);

/* Sorted insertion; the node owns the entry. -ENOMEM. */
int node_add_claim(struct node *n, const struct claim *claim,
		   struct claim_entry **ret) _must_check_;
void node_remove_claim(struct node *n, struct claim_entry *entry);

int node_add_undo(struct node *n, const struct undo_record *record, struct undo **ret) _must_check_;
void node_remove_undo(struct node *n, struct undo *undo);
struct undo *node_find_undo(const struct node *n, struct pci_addr vf);

/* NULL: out of memory. The answer's function frees it. */
struct node_job *node_job_new(struct node *n, struct card *c, struct pci_addr vf);
void node_job_free(struct node_job *job);

/* Sets hold and claim of every VF from claims, undos and allocations; after each inventory scan. */
void node_relink(struct node *n);

/* Something that GET shows has changed. */
void node_changed(struct node *n);

uint64_t node_next_seq(struct node *n);

/* The store can be read and every rule about what is claimed is known. */
bool node_is_ready(const struct node *n);
/* "" when ready; else one sentence. */
const char *node_not_ready_reason(const struct node *n);

/* Placements are taken only when a VM boots, and nothing but vgpu_params asks for one (nvml.md 4c).
 */
bool node_is_before_570(const struct node *n);

bool vf_is_free(const struct card *c, const struct vf *v);
/* vf_is_free() and the card may be used: neither cordoned nor stuck, store ready. */
bool node_vf_is_allocatable(const struct node *n, const struct card *c, const struct vf *v);
/* Another VF of its IOMMU group is used, or is the one that is offered: a group goes to one VM. */
bool node_vf_is_blocked(const struct node *n, const struct vf *v);
bool card_is_usable(const struct card *c); /* present and not excluded */

/* Reads current_vgpu_type of all VFs now (coalesced). */
void node_read_card(struct node *n, struct card *c);
void node_request_scan(struct node *n);
