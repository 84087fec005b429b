/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocation itself, shared by the three allocate*.c files.
 */
#pragma once

#include "daemon/allocate.h"

enum allocation_stage {
	ALLOCATION_REPLACING,	/* an old claim of that name, whose VF is gone or changed, is taken
				   back */
	ALLOCATION_WAITING,	/* for an answer newer than its arrival, or for capacity */
	ALLOCATION_ARCHIVING,	/* an older console log being moved away */
	ALLOCATION_INTENT,	/* intent being committed */
	ALLOCATION_QUEUED,	/* for its turn on the card */
	ALLOCATION_CONFIGURING, /* being written by berth-card */
	ALLOCATION_BINDING,	/* `bound` being committed */
	ALLOCATION_UNDOING,	/* 0 being written after a later step failed */
	ALLOCATION_DROPPING,	/* intent being taken off the disk */
};

#define ALLOCATION_TRIED_MAX 16
#define ALLOCATION_VF_TRIES  3 /* other VFs of a card after EPERM */

struct allocation_waiter {
	struct allocation *allocation;
	allocate_done_fn done; /* NULL: `ended` is set instead */
	void (*ended)(void *userdata);
	void *userdata;
	bool first;
};

struct allocation {
	struct node *node;
	struct allocation_request request;
	enum allocation_stage stage;
	uint64_t arrived_seq;
	uint64_t arrived_usec;
	uint64_t deadline_usec; /* of waiting for capacity; 0: none */

	struct claim claim; /* as it will be; vf and card are valid from INTENT on */
	struct card *card;  /* NULL while WAITING */
	struct placement_span span;

	unsigned n_tried_vfs, n_tried_cards, vf_tries;
	struct pci_addr tried_vfs[ALLOCATION_TRIED_MAX];
	struct pci_addr tried_cards[INVENTORY_CARDS_MAX];
	char refusal[CARD_TEXT_MAX]; /* what the driver said last */

	bool abandoned; /* nobody waits for it any more */
	bool retry;	/* after DROPPING: plan again instead of ending */
	bool make_undo; /* DROPPING leaves an undo record of the VF */
	int code;	/* after DROPPING: how it ends */
	char detail[NODE_TEXT_MAX];

	unsigned n_waiters, waiters_cap;
	struct allocation_waiter **waiters;
	sd_event_source *timer;
};

/* allocate.c */
void allocation_end(struct allocation *a, int code, const char *detail,
		    const struct claim_entry *entry, const struct allocation_refusal *refusals,
		    unsigned n_refusals);

/* allocate-plan.c: -EAGAIN while it has to wait for an answer or lists, 0 when a.card, a.span and
 * a.claim are set and the VF is held, else a negative code with refusals (room for
 * INVENTORY_CARDS_MAX). */
int allocation_choose(struct allocation *a, char detail[static NODE_TEXT_MAX],
		      struct allocation_refusal *refusals, unsigned *ret_n_refusals);
/* Refusals that need no answer: no such profile, no VF, not supported. 0 when it may be planned. */
int allocation_precheck(struct allocation *a, char detail[static NODE_TEXT_MAX],
			struct allocation_refusal *refusals, unsigned *ret_n_refusals);
/* Plans those that wait for their turn on this card anew, after an outcome that was not planned. */
void allocation_replan_card(struct node *n, struct card *c);
/* Lets go of the VF in memory. */
void allocation_unhold(struct allocation *a);

/* allocate-write.c */
/* Archives an older console log, then stores the intent. */
void allocation_begin(struct allocation *a);
void allocation_store_intent(struct allocation *a);
/* Takes the intent off the disk, then ends with code, or plans again when code is 0. */
void allocation_drop(struct allocation *a, int code, const char *detail);
void allocation_write_next(struct node *n, struct card *c);
