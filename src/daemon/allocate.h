/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims on their way to being bound: waiting for an answer, planned, stored as intent, written,
 * bound.
 *
 * A claim is decided on placements that were asked for after it arrived. All that wait are planned
 * one after another on the same answer; on a card they are written one after another, in that
 * order. Whatever fails is undone: the VF is written 0 and the intent leaves the disk before the VF
 * is offered again; where writing 0 fails, an undo record of the VF stays and the name is free.
 *
 * A claim in progress is an allocation; once bound it is a claim_entry of the node and the
 * allocation is gone. Files: allocate.c (queue and waiters), allocate-plan.c (choosing),
 * allocate-write.c (the steps on disk and card).
 */
#pragma once

#include "daemon/node.h"
#include "model/policy.h"

struct allocation_request {
	char name[CLAIM_NAME_MAX];
	char profile[PROFILE_NAME_MAX]; /* as asked for, with or without "NVIDIA " */
	char owner[CLAIM_OWNER_MAX];
	char console_log[CLAIM_PATH_MAX];
	char channel[CLAIM_CHANNEL_MAX];
	bool has_gpu;
	struct pci_addr gpu;
	bool has_numa_node;
	int numa_node;
	uint32_t pid; /* 0: none */
	uint64_t pid_start;
	enum policy policy;
	uint64_t wait_usec; /* how long to wait for capacity */
	struct claimant who;
};

#define ALLOCATION_REASON_MAX 120

/* Why a card could not take the claim. */
struct allocation_refusal {
	struct pci_addr card;
	char reason[ALLOCATION_REASON_MAX];
};

struct allocation_result {
	int code; /* 0: entry is the claim; else a negative code */
	const char *detail;
	bool created; /* by this request; false where it was there or another request made it */
	const struct claim_entry *entry;
	unsigned n_refusals;
	const struct allocation_refusal *refusals;
};

/* Runs once, from allocate_submit() or later from the loop; the result is borrowed. */
typedef void (*allocate_done_fn)(const struct allocation_result *result, void *userdata);

struct allocation_waiter;

/* *ret_waiter is NULL when `done` ran already, else valid until `done` runs or it is cancelled. */
void allocate_submit(struct node *n, const struct allocation_request *request,
		     allocate_done_fn done, void *userdata, struct allocation_waiter **ret_waiter);

/* The client hung up: `done` will not run. Without waiters left the allocation is undone. */
void allocate_cancel(struct node *n, struct allocation_waiter *waiter);

/* An answer or lists came in, or something was freed: plan what waits. */
void allocate_plan(struct node *n);
void allocate_capacity_changed(struct node *n);

/* True while a claim of that name is on its way. */
/* A claim that arrived at `from` or later, before `to` (node->seq), waits for placements. */
bool allocate_waits(const struct node *n, uint64_t from, uint64_t to);

bool allocate_is_pending(const struct node *n, const char *name);

/* Runs `fn` once the allocation of that name has ended, either way; -ENOENT when there is none. */
int allocate_when_ended(struct node *n, const char *name, void (*fn)(void *userdata),
			void *userdata) _must_check_;

void allocate_relink(struct node *n);
void allocate_free_all(struct node *n);
