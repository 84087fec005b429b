/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking a claim's VF back: scan for open handles, commit `releasing`, write 0, commit the drop.
 *
 * An open VF changes nothing (in use). Where the driver is still tearing down, or it takes longer
 * than a second, the caller is told "releasing" and berth goes on by itself, with back-off. Found
 * open in the middle: back to what it was. A VF that no longer exists, or has another type than
 * ours by now, is not written to; the claim just goes.
 */
#pragma once

#include "daemon/node.h"

enum release_end {
	RELEASE_END_DONE,    /* released; claim: as it was */
	RELEASE_END_PENDING, /* goes on by itself; claim: state releasing */
	RELEASE_END_NOTHING, /* no claim of that name */
	RELEASE_END_FAILED,  /* code and detail say why; the claim is as it was */
};

struct release_result {
	enum release_end end;
	int code;
	const char *detail;
	const struct claim *claim; /* NULL with NOTHING and FAILED */
};

/* Runs once, from release_submit() or later from the loop; the result is borrowed. */
typedef void (*release_done_fn)(const struct release_result *result, void *userdata);

/* who: asks; an admin and whoever made the claim may, and everybody with `claims: shared`. */
void release_submit(struct node *n, const char *name, const struct claimant *who,
		    release_done_fn done, void *userdata);

/* Says whose a claim is and who else may do with it ("release") what was refused. */
const char *release_owner_sentence(uint32_t uid, const char *peer, const char *verb,
				   char ret[static NODE_TEXT_MAX]);

/* Without a client: found `releasing` at start (skips the first scan), or the holder is gone. */
void release_start(struct node *n, struct claim_entry *entry, release_done_fn done, void *userdata);

/* For a claim that is to be replaced: `done` is told of failure also where the VF is open and its
 * type not ours. There must be no release under way. */
void release_lost(struct node *n, struct claim_entry *entry, release_done_fn done, void *userdata);

/* Without telling anybody; at the end of the daemon. */
struct release *release_free(struct release *r);

/* A card can be written again: retry now what waits. */
void release_retry_all(struct node *n);
