/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker threads of berth-card: requests wait in a queue until one of at most `max_threads` takes
 * them, first come first served. Threads are started when needed and stay.
 *
 * A worker may block in the driver for ever; nothing here waits for one, and none is ever
 * cancelled. There is no way to end a pool: the process ends by _exit().
 */
#pragma once

#include <pthread.h>

#include "host/card-message.h"

typedef void (*card_pool_fn)(const struct card_request *request, void *userdata);

struct card_pool {
	pthread_mutex_t lock; /* over what follows */
	pthread_cond_t work;
	unsigned max_threads;
	unsigned n_threads;
	unsigned n_idle;
	unsigned first; /* of the ring */
	unsigned n_queued;
	struct card_request queue[CARD_OUTSTANDING_MAX];
	card_pool_fn run;
	void *userdata;
};

void card_pool_init(struct card_pool *p, unsigned max_threads, card_pool_fn run, void *userdata);
/* -EAGAIN when the queue is full or no thread could be started. */
int card_pool_submit(struct card_pool *p, const struct card_request *request) _must_check_;
