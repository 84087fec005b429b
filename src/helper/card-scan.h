/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shares open-handle scans between berth-card's workers: one pass over /proc serves all that wait
 * when it starts. Whoever comes while one runs waits for the next, since the running one may
 * already have passed the process that matters.
 */
#pragma once

#include <pthread.h>

#include "host/holders.h"

#define CARD_SCAN_WAITERS_MAX 64

struct card_scan_waiter;

struct card_scan {
	struct holders_roots roots;
	int canary_fd;
	pthread_mutex_t lock; /* over what follows */
	pthread_cond_t changed;
	bool running;
	unsigned n_waiting;
	struct card_scan_waiter *waiting[CARD_SCAN_WAITERS_MAX];
};

/* At most CARD_SCAN_WAITERS_MAX threads may call card_scan_run() at a time. */
void card_scan_init(struct card_scan *s, const struct holders_roots *roots, int canary_fd);

/* Fills in `open` of the reply's vfs, `holder` of the first, `scan_partial`, and `text` if it is
 * unknown. */
void card_scan_run(struct card_scan *s, struct card_reply *reply);
