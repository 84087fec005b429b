/* SPDX-License-Identifier: Apache-2.0 */
#include "base/worker.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/array.h"
#include "base/str.h"

struct worker_job {
	worker_fn run;
	worker_fn done;
	worker_fn drop;
	void *job;
};

struct worker {
	pthread_t thread;
	bool started;
	int wake_fd; /* readable when a job has finished */
	sd_event_source *source;

	pthread_mutex_t lock; /* everything below */
	pthread_cond_t changed;
	bool stop;
	/* Oldest first. As one thread runs them in order, those that have run are always the first
	 * n_finished, and the one that runs is at n_finished. */
	struct worker_job *jobs;
	size_t n_jobs;
	size_t n_finished;
	size_t cap;
};

static void *worker_thread(void *arg)
{
	struct worker *w = arg;
	const uint64_t one = 1;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		struct worker_job j;

		while (!w->stop && w->n_finished == w->n_jobs)
			pthread_cond_wait(&w->changed, &w->lock);
		if (w->stop)
			break;
		j = w->jobs[w->n_finished];
		pthread_mutex_unlock(&w->lock);
		j.run(j.job);
		pthread_mutex_lock(&w->lock);
		w->n_finished++;
		/* Fails only when the counter is near 2^64. */
		if (write(w->wake_fd, &one, sizeof one) < 0)
			continue;
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

static bool worker_take_finished(struct worker *w, struct worker_job *ret)
{
	bool found;

	pthread_mutex_lock(&w->lock);
	found = w->n_finished > 0;
	if (found) {
		*ret = w->jobs[0];
		w->n_jobs--;
		w->n_finished--;
		memmove(w->jobs, w->jobs + 1, w->n_jobs * sizeof *w->jobs);
	}
	pthread_mutex_unlock(&w->lock);
	return found;
}

static int worker_on_wake(sd_event_source *source _unused_, int fd, uint32_t revents _unused_,
			  void *userdata)
{
	struct worker *w = userdata;
	struct worker_job j;
	uint64_t n;

	/* The counter says how many have finished since the last round. What finishes while these
	 * are handed back raises it again, so that a busy worker does not keep the loop here for
	 * ever. */
	if (read(fd, &n, sizeof n) < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	while (n-- > 0 && worker_take_finished(w, &j))
		j.done(j.job);
	return 0;
}

/* Signals are for the loop's signalfd, so the thread blocks all of them. */
static int worker_start(struct worker *w, const char *name)
{
	char short_name[16];
	sigset_t all, saved;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &saved);
	r = pthread_create(&w->thread, NULL, worker_thread, w);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	if (r != 0)
		return -r;
	w->started = true;
	str_copy_cut(short_name, sizeof short_name, name);
	pthread_setname_np(w->thread, short_name);
	return 0;
}

int worker_new(sd_event *event, const char *name, struct worker **ret)
{
	_cleanup_(worker_freep) struct worker *w = NULL;
	int r;

	w = calloc(1, sizeof *w);
	if (!w)
		return -ENOMEM;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);
	w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->wake_fd < 0)
		return -errno;
	r = sd_event_add_io(event, &w->source, w->wake_fd, EPOLLIN, worker_on_wake, w);
	if (r < 0)
		return r;
	(void)sd_event_source_set_description(w->source, name);
	r = worker_start(w, name);
	if (r < 0)
		return r;
	*ret = TAKE(w);
	return 0;
}

struct worker *worker_free(struct worker *w)
{
	if (!w)
		return NULL;
	if (w->started) {
		pthread_mutex_lock(&w->lock);
		w->stop = true;
		pthread_cond_signal(&w->changed);
		pthread_mutex_unlock(&w->lock);
		pthread_join(w->thread, NULL);
	}
	sd_event_source_disable_unref(w->source);
	for (size_t i = 0; i < w->n_jobs; i++)
		if (w->jobs[i].drop)
			w->jobs[i].drop(w->jobs[i].job);
	free(w->jobs);
	if (w->wake_fd >= 0)
		close(w->wake_fd);
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
	free(w);
	return NULL;
}

int worker_submit(struct worker *w, worker_fn run, worker_fn done, worker_fn drop, void *job)
{
	int r;

	pthread_mutex_lock(&w->lock);
	r = array_reserve(w->jobs, w->n_jobs, w->cap);
	if (r == 0) {
		w->jobs[w->n_jobs++] = (struct worker_job){
			.run = run, .done = done, .drop = drop, .job = job
		};
		pthread_cond_signal(&w->changed);
	}
	pthread_mutex_unlock(&w->lock);
	return r;
}
