/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a claim is: its fields, states, names and the rules about them. Storing is src/store,
 * carrying out is src/daemon.
 */
#pragma once

#include "base/error.h"
#include "model/pci.h"
#include "model/profile.h"

#define CLAIM_NAME_MAX	  129 /* 128 characters and NUL */
#define CLAIM_OWNER_MAX	  257
#define CLAIM_PATH_MAX	  1025
#define CLAIM_CHANNEL_MAX 257
#define CLAIM_BOOT_ID_MAX 64
#define CLAIM_TIME_MAX	  40
#define CLAIM_PEER_MAX	  256
#define CLAIM_UID_NONE	  UINT32_MAX /* no user has it */

enum claim_state {
	CLAIM_STATE_INTENT, /* decided, not yet bound; never shown */
	CLAIM_STATE_BOUND,
	CLAIM_STATE_RELEASING,
	CLAIM_STATE_EXTERNAL, /* adopted: found configured when there was no claims database yet */
};

enum claim_problem {
	CLAIM_PROBLEM_NONE,
	CLAIM_PROBLEM_VF_MISSING,
	CLAIM_PROBLEM_TYPE_LOST,
	CLAIM_PROBLEM_TYPE_CHANGED,
	CLAIM_PROBLEM_CARD_STUCK,
};

struct claim {
	char name[CLAIM_NAME_MAX];
	enum claim_state state;
	char profile[PROFILE_NAME_MAX]; /* full name as the driver prints it */
	uint32_t type_id;
	struct pci_addr vf;
	struct pci_addr card;
	int placement_id;		  /* -1 while unknown */
	int placement_size;		  /* units; 0 while unknown */
	char assigned_at[CLAIM_TIME_MAX]; /* RFC 3339, UTC, nanoseconds; empty for an intent */
	char boot_id[CLAIM_BOOT_ID_MAX];  /* of the boot it was made in; empty: unknown, counts as
					     valid */
	uint32_t uid;			  /* who made it; CLAIM_UID_NONE: not a user of this host */
	char peer[CLAIM_PEER_MAX];   /* name in the certificate of who made it; empty: a user */
	uint32_t pid;		     /* holder given by the client; 0: none */
	uint64_t pid_start;	     /* start time of that process in clock ticks (field 22 of
					/proc/PID/stat) */
	char owner[CLAIM_OWNER_MAX]; /* free text; empty: none */
	char console_log[CLAIM_PATH_MAX];
	char channel[CLAIM_CHANNEL_MAX];
};

const char *claim_state_name(enum claim_state s); /* "bound", "releasing", "external", "intent" */
const char *claim_problem_name(enum claim_problem p); /* "vf_missing" ...; NULL for NONE */
int claim_state_from_name(const char *name, enum claim_state *ret) _must_check_; /* -EINVAL */

/* [A-Za-z0-9][A-Za-z0-9._-]{0,127} */
bool claim_name_is_valid(const char *name);

/* "external-0000-41-00.4": the address with '-' for ':'. */
void claim_name_external(struct pci_addr vf, char ret[static CLAIM_NAME_MAX]);
bool claim_name_is_external(const char *name);

/* Who asks for something: a user of this host, or a client by the name in its certificate. */
struct claimant {
	uint32_t uid;		   /* CLAIM_UID_NONE for a client with a certificate */
	char peer[CLAIM_PEER_MAX]; /* empty for a user */
	bool is_admin;		   /* may do with everybody's claims as with its own */
};

/* Was what `uid` and `peer` made made by this one, or may it do as if? */
bool claimant_owns(const struct claimant *who, uint32_t uid, const char *peer);
/* "user 1000" or "certificate NAME"; cut to size. */
const char *claimant_describe(uint32_t uid, const char *peer, char *ret, size_t size);

/* What is wrong with a claim's VF, from what was read last. type 0: nothing configured, which is no
 * problem of an intent or of a release under way. A missing VF goes before a stuck card, and that
 * before the type, which is old news then. */
enum claim_problem claim_problem_judge(const struct claim *c, bool vf_present,
				       uint32_t current_type, bool card_stuck);
