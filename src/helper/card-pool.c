/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/card-pool.h"

#include <errno.h>

#define STACK_BYTES (512 << 10)

void card_pool_init(struct card_pool *p, unsigned max_threads, card_pool_fn run, void *userdata)
{
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	p->max_threads = max_threads;
	p->n_threads = p->n_idle = p->first = p->n_queued = 0;
	p->run = run;
	p->userdata = userdata;
}

static void *worker(void *userdata)
{
	struct card_pool *p = userdata;
	struct card_request request;

	pthread_mutex_lock(&p->lock);
	for (;;) {
		p->n_idle++;
		while (p->n_queued == 0)
			pthread_cond_wait(&p->work, &p->lock);
		p->n_idle--;
		request = p->queue[p->first];
		p->first = (p->first + 1) % CARD_OUTSTANDING_MAX;
		p->n_queued--;
		pthread_mutex_unlock(&p->lock);
		p->run(&request, p->userdata);
		pthread_mutex_lock(&p->lock);
	}
	return NULL;
}

static int start_thread(struct card_pool *p)
{
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	r = pthread_attr_init(&attr);
	if (r != 0)
		return -r;
	r = pthread_attr_setstacksize(&attr, STACK_BYTES);
	if (r == 0)
		r = pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (r == 0)
		r = pthread_create(&thread, &attr, worker, p);
	pthread_attr_destroy(&attr);
	if (r == 0)
		p->n_threads++;
	return -r;
}

int card_pool_submit(struct card_pool *p, const struct card_request *request)
{
	int r = 0;

	pthread_mutex_lock(&p->lock);
	/* A thread that was woken but has not run yet still counts as idle. */
	if (p->n_queued == CARD_OUTSTANDING_MAX)
		r = -EAGAIN;
	else if (p->n_queued >= p->n_idle && p->n_threads < p->max_threads)
		r = start_thread(p);
	if (r < 0 && (p->n_threads == 0 || p->n_queued == CARD_OUTSTANDING_MAX)) {
		pthread_mutex_unlock(&p->lock);
		return -EAGAIN;
	}
	p->queue[(p->first + p->n_queued) % CARD_OUTSTANDING_MAX] = *request;
	p->n_queued++;
	pthread_cond_signal(&p->work);
	pthread_mutex_unlock(&p->lock);
	return 0;
}
