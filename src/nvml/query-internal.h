/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by query.c (session, card, instances) and query-types.c (types and their placements) only.
 */
#pragma once

#include "nvml/query.h"

/* More types or instances than any driver has; what is passed as the length of a list. */
#define NVML_LIST_MAX 256U

/* What is remembered of one card, for one mode. */
struct nvml_type_table {
	struct pci_addr address;
	enum nvml_mode mode;
	bool valid;
	bool odd; /* freshly read and still at odds with the creatable placements: accepted as it is
		   */
	bool fresh; /* read in this query */
	unsigned n_types;
	struct nvml_type types[PROFILE_TYPES_MAX];
};

struct nvml_session {
	struct nvml_api api;
	bool set_mixed; /* before a card is asked */
	bool initialised;
	uint64_t started_usec;
	char driver[NVML_ABI_DRIVER_VERSION_MAX];
	int list_version; /* of placement lists, 2 or 1 */
	/* What the cards of the present query ran into. */
	bool mismatch;
	bool lost_init;
	bool card_failed;
	bool (*interrupted)(void);
	unsigned n_tables;
	struct nvml_type_table *tables[NVML_CARDS_MAX];
};

/* Text is "what: error (code)", or `what` alone for code 0. */
void card_fail(struct nvml_session *s, struct nvml_card *card, enum nvml_reason reason, int code,
	       const char *what);

/* One of the calls that fill a list of at most NVML_LIST_MAX numbers. An NVML code. */
int nvml_read_list(int (*call)(struct nvml_device *d, unsigned *count, uint32_t *ids),
		   struct nvml_device *d, uint32_t ids[static NVML_LIST_MAX], unsigned *ret_n);

/* The card's types, with supported placements in mixed-size mode. False: the card has failed. */
bool nvml_read_types(struct nvml_session *s, struct nvml_device *d, struct nvml_card *card);

/* How many GPU instances there are for each type, in MIG mode. What cannot be read stays unknown.
 */
void nvml_read_gpu_instances(const struct nvml_session *s, struct nvml_device *d,
			     struct nvml_card *card);

enum nvml_progress {
	NVML_PROGRESS_DONE,	/* also where the card has failed */
	NVML_PROGRESS_OUTDATED, /* the table of types is, and was dropped */
	NVML_PROGRESS_GIVEN_UP, /* interrupted */
};

/* The creatable placements of each type: nearly all of a query's time. */
enum nvml_progress nvml_read_creatable(struct nvml_session *s, struct nvml_device *d,
				       struct nvml_card *card);
