/* SPDX-License-Identifier: Apache-2.0 */
/* Order, hand-back in the loop, and what happens to jobs when a worker is freed. */
#include "base/worker.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"

struct job {
	int number;
	pthread_t ran_in;
	bool signals_blocked;
	atomic_int *gate; /* waited for until not 0 */
	struct job_log *log;
	struct worker *submit_to; /* `done` submits `next` there */
	struct job *next;
};

struct job_log {
	atomic_int started;
	int ran[64]; /* of the thread; read after hand-back or join */
	int n_ran;
	int done[64];
	int n_done;
	int n_dropped;
};

static void job_run(void *p)
{
	struct job *j = p;
	sigset_t set;

	atomic_fetch_add(&j->log->started, 1);
	while (j->gate && !atomic_load(j->gate))
		usleep(200);
	j->ran_in = pthread_self();
	pthread_sigmask(SIG_SETMASK, NULL, &set);
	j->signals_blocked = sigismember(&set, SIGTERM) == 1;
	j->log->ran[j->log->n_ran++] = j->number;
}

static void job_drop(void *p)
{
	struct job *j = p;

	j->log->n_dropped++;
}

static void job_done(void *p)
{
	struct job *j = p;

	assert_true(j->signals_blocked);
	assert_false(pthread_equal(j->ran_in, pthread_self()));
	j->log->done[j->log->n_done++] = j->number;
	if (j->next)
		assert_int_equal(worker_submit(j->submit_to, job_run, job_done, job_drop, j->next),
				 0);
}

static void run_until_done(sd_event *e, const struct job_log *log, int n)
{
	uint64_t deadline = clock_now_usec() + 10 * USEC_PER_SEC;

	while (log->n_done < n) {
		assert_true(clock_now_usec() < deadline);
		assert_true(sd_event_run(e, 100 * USEC_PER_MSEC) >= 0);
	}
}

static void test_order(void **state _unused_)
{
	struct job_log log = { 0 };
	struct job jobs[50] = { 0 };
	struct worker *w;
	sd_event *e;

	assert_int_equal(sd_event_new(&e), 0);
	assert_int_equal(worker_new(e, "a-name-longer-than-fits", &w), 0);
	for (int i = 0; i < 50; i++) {
		jobs[i] = (struct job){ .number = i, .log = &log };
		assert_int_equal(worker_submit(w, job_run, job_done, job_drop, &jobs[i]), 0);
	}
	assert_int_equal(log.n_done, 0); /* only the loop hands back */
	run_until_done(e, &log, 50);
	for (int i = 0; i < 50; i++) {
		assert_int_equal(log.ran[i], i);
		assert_int_equal(log.done[i], i);
	}
	assert_null(worker_free(w));
	assert_int_equal(log.n_dropped, 0);
	sd_event_unref(e);
}

static void test_submit_from_done(void **state _unused_)
{
	struct job_log log = { 0 };
	struct worker *w;
	struct job second, first;
	sd_event *e;

	assert_int_equal(sd_event_new(&e), 0);
	assert_int_equal(worker_new(e, "test", &w), 0);
	second = (struct job){ .number = 2, .log = &log };
	first = (struct job){ .number = 1, .log = &log, .submit_to = w, .next = &second };
	assert_int_equal(worker_submit(w, job_run, job_done, job_drop, &first), 0);
	run_until_done(e, &log, 2);
	assert_int_equal(log.done[1], 2);
	worker_free(w);
	sd_event_unref(e);
}

static void *open_gate_later(void *gate)
{
	usleep(20000); /* long enough for worker_free() to be waiting; the result is the same if not
			*/
	atomic_store((atomic_int *)gate, 1);
	return NULL;
}

/* The running job is finished, the ones behind it never run, and all of them are dropped. */
static void test_free_while_running(void **state _unused_)
{
	uint64_t deadline = clock_now_usec() + 10 * USEC_PER_SEC;
	struct job_log log = { 0 };
	struct job jobs[3];
	atomic_int gate = 0;
	struct worker *w;
	pthread_t opener;
	sd_event *e;

	assert_int_equal(sd_event_new(&e), 0);
	assert_int_equal(worker_new(e, "test", &w), 0);
	for (int i = 0; i < 3; i++) {
		jobs[i] = (struct job){ .number = i, .log = &log, .gate = &gate };
		assert_int_equal(
			worker_submit(w, job_run, job_done, i == 2 ? NULL : job_drop, &jobs[i]), 0);
	}
	while (atomic_load(&log.started) == 0) {
		assert_true(clock_now_usec() < deadline);
		usleep(200);
	}
	assert_int_equal(pthread_create(&opener, NULL, open_gate_later, &gate), 0);
	worker_free(w);
	assert_int_equal(log.n_ran, 1);
	assert_int_equal(log.n_done, 0);
	assert_int_equal(log.n_dropped, 2); /* the third has no drop function */
	pthread_join(opener, NULL);
	sd_event_unref(e);
}

static void test_free_idle(void **state _unused_)
{
	struct worker *w;
	sd_event *e;

	assert_null(worker_free(NULL));
	assert_int_equal(sd_event_new(&e), 0);
	assert_int_equal(worker_new(e, "test", &w), 0);
	worker_free(w);
	sd_event_unref(e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_submit_from_done),
		cmocka_unit_test(test_free_while_running),
		cmocka_unit_test(test_free_idle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
