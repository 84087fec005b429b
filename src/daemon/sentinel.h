/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches the console logs of bound claims for what the guest agent reports, and takes VFs out of
 * use.
 *
 * A marker counts for the assignment (claim name, VF, assigned_at) under which its log is followed.
 * It is held against what the host can see, and ignored (counted by reason, one log line) when the
 * claim is no longer that assignment, when the agent's own answer over the claim's channel differs,
 * or when NVML shows the opposite at that placement for a minute. A report that could not be stored
 * comes again. Nothing here touches a guest or its claim.
 */
#pragma once

#include "daemon/node.h"

struct sentinel;

int sentinel_start(struct node *n, struct error *err) _must_check_;
struct sentinel *sentinel_free(struct sentinel *s);

/* A claim was bound, taken over from the database, or went: follow or leave its log. */
void sentinel_watch(struct node *n, const struct claim *claim);
void sentinel_unwatch(struct node *n, const char *name);

/* Why a claim's console log cannot be followed at present; "" when it can, or none was named. */
const char *sentinel_trouble(const struct node *n, const char *name);

/* A placement answer came in: markers that waited for one are judged on it. */
void sentinel_snapshot_arrived(struct node *n);

/* Gives a threshold that was lowered its effect on failures that are stored. */
void sentinel_apply_threshold(struct node *n);
/* The configuration has changed: folders, interval, threshold. */
void sentinel_config_changed(struct node *n);
/* The health records changed, by us or by hand: VFs are marked anew. */
void sentinel_health_changed(struct node *n);
