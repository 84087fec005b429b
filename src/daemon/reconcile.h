/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bringing records and hardware together: at start, every reconcile_interval, and soon after a
 * failure.
 *
 * A pass rescans, retries undo records and releases, resets VFs that are configured but nobody's,
 * releases claims whose holder is gone, and refreshes the placements. Unknown is never empty: what
 * cannot be read is left alone. (Claims of an earlier boot go before, in daemon/start.c.)
 */
#pragma once

#include "daemon/node.h"

struct reconcile;

int reconcile_start(struct node *n, struct error *err) _must_check_;
struct reconcile *reconcile_free(struct reconcile *r);

/* The configuration has changed. `before`: what it was. */
void reconcile_config_changed(struct node *n, const struct config *before);

/* One pass now. */
void reconcile_pass(struct node *n);

/* A pass within a second or so; sooner failures make later passes rarer, up to 30 s. */
void reconcile_soon(struct node *n);

/* berth_reconcile_failures_total{stage}; `stage` is a literal. */
void reconcile_count_failure(struct node *n, const char *stage);

#define RECONCILE_STAGES_MAX 16

struct reconcile_failure {
	const char *stage;
	uint64_t count;	    /* since the last time that a pass or two went without */
	uint64_t last_usec; /* monotonic */
};

/* How many of `ret` are set: one for each stage that ever failed. */
unsigned reconcile_failures(const struct node *n,
			    struct reconcile_failure ret[static RECONCILE_STAGES_MAX]);
