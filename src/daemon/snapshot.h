/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The placements in use: asked of NVML (and, for cards in a fallback, of the VFs' own lists), kept
 * in memory, and told apart from what was written meanwhile.
 *
 * One query at a time. Requests for a refresh coalesce and give way to claims; a claim that waits
 * goes with the next query, and all that wait share it. An older answer never replaces a newer one.
 * Fallbacks are counted once a query and reason, and logged when they start, change and end.
 */
#pragma once

#include "daemon/node.h"

int snapshot_start(struct node *n, struct error *err) _must_check_;

/* Asks for a refresh, or tells that a claim waits for an answer newer than now. Cheap, coalesces.
 */
void snapshot_request(struct node *n);

/* The driver was given back or taken in use by hand: what was known of a hang does not count. */
void snapshot_driver_changed(struct node *n);

/* Milliseconds since the placements in use were asked for, -1 before the first. */
int64_t snapshot_age_ms(const struct node *n);

/* The first lists of a card in a fallback are still out: there is nothing to answer with. */
bool snapshot_waits_for_lists(const struct node *n);

/* The lists of this card in use were asked for after `seq`, or are not needed. */
bool snapshot_lists_are_newer(const struct card *c, uint64_t seq);
