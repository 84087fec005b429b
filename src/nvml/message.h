/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What berth-nvml is asked and answers, over a SOCK_SEQPACKET pair, in the machine's own layout:
 * both ends come from one build and start with the same NVML_MESSAGE_VERSION.
 *
 * One query is out at a time. The helper answers one NVML_MESSAGE_CARD for each card asked, in
 * order, then one NVML_MESSAGE_END. It keeps no state but the supported placements, which it asks
 * the driver once per card and mode.
 */
#pragma once

#include "model/pci.h"
#include "model/placement.h"
#include "model/profile.h"

#define NVML_MESSAGE_VERSION 2
#define NVML_CARDS_MAX	     64
#define NVML_INSTANCES_MAX   64
#define NVML_TEXT_MAX	     160
#define NVML_GI_NONE	     UINT32_MAX

/* Why NVML could not be used; the label of berth_nvml_fallbacks_total{reason}. */
enum nvml_reason {
	NVML_REASON_NONE,
	NVML_REASON_EQUAL_SIZE,	 /* the card is in equal-size mode */
	NVML_REASON_MIG,	 /* MIG is on */
	NVML_REASON_UNSUPPORTED, /* NVML_ERROR_NOT_SUPPORTED from the placement calls */
	NVML_REASON_LIBRARY,	 /* no library, a symbol missing, library and driver at odds (18) */
	NVML_REASON_TIMEOUT,
	NVML_REASON_ERROR, /* any other NVML error */
};

enum nvml_mode {
	NVML_MODE_UNKNOWN,
	NVML_MODE_MIXED,
	NVML_MODE_EQUAL, /* also of a card that cannot mix sizes (then with REASON_UNSUPPORTED) */
	NVML_MODE_MIG,
};

/* "equal_size" ...; NULL for NONE. */
const char *nvml_reason_name(enum nvml_reason r);
const char *nvml_mode_name(enum nvml_mode m); /* "mixed", "equal", "mig", "unknown" */

struct nvml_type {
	struct profile profile; /* name and framebuffer as NVML says */
	uint32_t max_instances; /* whole card, equal-size mode; 0: unknown */
	uint32_t gi_profile; /* of the GPU instances that back it, in MIG mode; NVML_GI_NONE: none,
				unknown */
	uint32_t gi_vgpus;   /* vGPUs of it that one such instance holds */
	uint32_t gi_count;   /* such instances on the card now; NVML_GI_NONE: unknown */
	struct placement_type placement; /* size 0, no ids: no placements in this mode */
};

struct nvml_instance {
	uint32_t id;
	uint32_t type_id;
	uint16_t placement_id; /* PLACEMENT_NONE while the plugin has not registered it */
	bool guest_driver;     /* a guest driver version was reported */
};

struct nvml_card {
	struct pci_addr address;
	enum nvml_reason reason;  /* NONE: placements below are complete and current */
	int nvml_error;		  /* NVML's number behind the reason, 0: none */
	char text[NVML_TEXT_MAX]; /* one sentence about it */
	enum nvml_mode mode;
	char name[96];
	uint16_t region; /* units; 0: unknown */
	unsigned n_types;
	unsigned n_instances;
	bool instances_known;
	struct nvml_instance instances[NVML_INSTANCES_MAX];
	struct nvml_type types[PROFILE_TYPES_MAX]; /* last: a message carries only the used part */
};

enum nvml_message_kind {
	NVML_MESSAGE_QUERY = 1,
	NVML_MESSAGE_CARD,
	NVML_MESSAGE_END,
};

struct nvml_query {
	uint32_t kind;
	uint32_t version;
	uint64_t sequence;
	uint32_t n_cards;
	uint32_t set_mixed; /* 1: turn mixed-size mode on for each card first */
	struct pci_addr cards[NVML_CARDS_MAX];
};

struct nvml_card_message {
	uint32_t kind;
	uint64_t sequence;
	struct nvml_card card;
};

struct nvml_end_message {
	uint32_t kind;
	uint64_t sequence;
	enum nvml_reason reason; /* of the whole host; NONE: the card messages count */
	int nvml_error;
	bool restart; /* a fresh helper can do better: mismatch 18, no such symbol, a sick card */
	char text[NVML_TEXT_MAX];
	char driver[80];     /* driver version, "580.178.05"; empty: unknown */
	uint64_t query_usec; /* time inside the library */
};

/* Bytes of a card's message up to its last type. */
size_t nvml_card_message_size(const struct nvml_card_message *m);

/* Checks what came from a helper, which may have gone mad: kind, length, counts, ends of strings,
 * spans and masks within their limits. `msg` is aligned as the structures are. Returns the kind
 * (NVML_MESSAGE_CARD or NVML_MESSAGE_END), or -EBADMSG. */
int nvml_message_check(const void *msg, size_t len) _must_check_;
