/* SPDX-License-Identifier: Apache-2.0 */
#include "store/health-store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/str.h"
#include "model/outcome.h"
#include "store/health-disk.h"

#define RETRY_USEC USEC_PER_SEC

struct change {
	health_change_fn change;
	health_done_fn done;
	void *userdata;
};

enum job_kind {
	JOB_LOOK,  /* is the file as we know it? */
	JOB_PROBE, /* the same, then what is in memory is written again */
	JOB_WRITE, /* the same, then `next` is written */
};

/* One at a time. While it is out, `disk` and this belong to the worker's thread, and the loop
 * leaves `records` and `readable` as they are, so that the thread may read them. */
struct job {
	bool out;
	enum job_kind kind;
	struct change change;
	struct health next;
	struct health found; /* look 1 */
	int look;
	int result; /* of writing, after look 0 */
	struct error note;
	struct error err;
};

struct health_store {
	struct worker *worker;
	sd_event_source *timer; /* the next look */
	sd_event_source *defer; /* changes wait and no job is out */
	uint64_t retry_usec;
	void (*changed)(struct health_store *s, enum store_state state, const struct error *err,
			void *userdata);
	void *userdata;

	bool freed; /* goes when its job comes back */
	bool look_due;
	bool readable;	/* `records` are what was read or written last */
	bool unwritten; /* the last write failed */
	enum store_state state;
	struct error reason;
	struct health records;
	struct health none;

	struct change *queue; /* oldest first */
	size_t n_queue, cap;

	struct health_disk disk;
	struct job job;
};

static void destroy(struct health_store *s)
{
	health_disk_done(&s->disk);
	health_done(&s->records);
	health_done(&s->job.next);
	health_done(&s->job.found);
	free(s->queue);
	free(s);
}

/* --- In the worker's thread ------------------------------------------------------- */

static void run_job(void *userdata)
{
	struct health_store *s = userdata;
	struct job *j = &s->job;

	j->look = health_disk_look(&s->disk, !s->readable, &j->found, &j->note, &j->err);
	if (j->look == 1 && s->readable && !j->note.msg[0] &&
	    health_equal(&j->found, &s->records)) {
		/* Touched, or looked at twice to be sure. */
		health_done(&j->found);
		j->look = 0;
	}
	if (j->look == 0 && j->kind != JOB_LOOK)
		j->result = health_disk_write(
			&s->disk, j->kind == JOB_WRITE ? &j->next : &s->records, &j->err);
}

/* --- What a job brings ------------------------------------------------------------ */

static void take_outcome(struct health_store *s)
{
	struct job *j = &s->job;

	if (j->look < 0)
		s->readable = false;
	if (j->look == 1) {
		health_done(&s->records);
		s->records = j->found;
		j->found = (struct health){ 0 };
		s->readable = true;
	}
	if (j->look == 0 && j->kind != JOB_LOOK)
		s->unwritten = j->result < 0;
	if (j->look == 0 && j->kind == JOB_WRITE && j->result == 0) {
		health_done(&s->records);
		s->records = j->next;
		j->next = (struct health){ 0 };
	}
}

static void tell(struct health_store *s)
{
	const struct job *j = &s->job;
	enum store_state state = s->readable && !s->unwritten ? STORE_STATE_READY
							      : STORE_STATE_UNREADABLE;
	bool changed = state != s->state;

	if (state == STORE_STATE_READY) {
		s->state = state;
		s->reason = ERROR_INIT;
		if (changed || j->look == 1)
			s->changed(s, state, j->note.msg[0] ? &j->note : NULL, s->userdata);
		return;
	}
	/* After a look that worked the reason is the write that did not, as before. */
	if (j->look < 0 || j->result < 0) {
		changed = changed || strcmp(s->reason.msg, j->err.msg) != 0;
		s->reason = j->err;
	}
	s->state = state;
	if (changed)
		s->changed(s, state, &s->reason, s->userdata);
}

static void refuse(const struct health_store *s, const struct change *c)
{
	struct error err;
	int r = error_set(&err, E_HEALTH_STORE_UNAVAILABLE, "%s", s->reason.msg);

	c->done(r, &err, c->userdata);
}

static void finish_write(struct health_store *s, const struct change *c)
{
	const struct job *j = &s->job;
	struct error err = ERROR_INIT;

	if (j->look < 0) {
		refuse(s, c);
	} else if (j->look == 1) {
		(void)error_set(&err, EAGAIN, "%s: edited by hand meanwhile, and loaded",
				s->disk.path);
		c->done(-EAGAIN, &err, c->userdata);
	} else {
		err = j->err;
		c->done(j->result, j->result < 0 ? &err : NULL, c->userdata);
	}
}

/* --- Jobs ------------------------------------------------------------------------- */

static void go_on(struct health_store *s);

static void arm(struct health_store *s)
{
	/* Fails only for a source or a clock that is none. */
	(void)sd_event_source_set_time(s->timer, clock_now_usec() + s->retry_usec);
	(void)sd_event_source_set_enabled(s->timer, SD_EVENT_ONESHOT);
}

static void job_done(void *userdata)
{
	struct health_store *s = userdata;
	struct job *j = &s->job;

	j->out = false;
	if (s->freed) {
		destroy(s);
		return;
	}
	take_outcome(s);
	tell(s);
	if (j->kind == JOB_WRITE)
		finish_write(s, &j->change);
	else
		arm(s);
	health_done(&j->next);
	health_done(&j->found);
	go_on(s);
}

static void job_drop(void *userdata)
{
	struct health_store *s = userdata;

	s->job.out = false;
	if (s->freed)
		destroy(s);
}

static int submit(struct health_store *s, enum job_kind kind)
{
	int r;

	s->job.kind = kind;
	s->job.result = 0;
	s->job.err = ERROR_INIT;
	r = worker_submit(s->worker, run_job, job_done, job_drop, s);
	s->job.out = r == 0;
	return r;
}

/* True when a job is under way for it; else it has been reported back. */
static bool begin_change(struct health_store *s, const struct change *c)
{
	struct health next = { 0 };
	struct error err = ERROR_INIT;
	int r;

	if (s->state != STORE_STATE_READY) {
		refuse(s, c);
		return false;
	}
	r = health_copy(&s->records, &next);
	if (r == 0)
		r = c->change(&next, c->userdata);
	if (r >= 0 && !health_equal(&next, &s->records)) {
		s->job.change = *c;
		s->job.next = next;
		r = submit(s, JOB_WRITE);
		if (r == 0)
			return true;
		s->job.next = (struct health){ 0 };
	}
	health_done(&next);
	if (r < 0)
		(void)error_set_errno(&err, r, "changing the health records");
	c->done(MIN(r, 0), r < 0 ? &err : NULL, c->userdata);
	return false;
}

static void go_on(struct health_store *s)
{
	/* What a `done` adds waits for the loop's next turn: it may add itself again and again. */
	size_t n = s->n_queue;

	if (s->job.out)
		return;
	if (s->look_due) {
		s->look_due = false;
		if (submit(s, s->unwritten ? JOB_PROBE : JOB_LOOK) == 0)
			return;
		arm(s);
	}
	while (n-- > 0 && s->state != STORE_STATE_LOADING) {
		struct change c = s->queue[0];

		s->n_queue--;
		memmove(s->queue, s->queue + 1, s->n_queue * sizeof *s->queue);
		if (begin_change(s, &c))
			return;
	}
}

static int on_defer(sd_event_source *source _unused_, void *userdata)
{
	go_on(userdata);
	return 0;
}

static int on_timer(sd_event_source *source _unused_, uint64_t usec _unused_, void *userdata)
{
	struct health_store *s = userdata;

	if (!s->job.out && s->readable && !s->unwritten && health_disk_is_unchanged(&s->disk)) {
		arm(s);
		return 0;
	}
	s->look_due = true;
	go_on(s);
	return 0;
}

/* --- Outside ---------------------------------------------------------------------- */

int health_store_change(struct health_store *s, health_change_fn change, health_done_fn done,
			void *userdata)
{
	if (array_reserve(s->queue, s->n_queue, s->cap) < 0)
		return -ENOMEM;
	s->queue[s->n_queue++] = (struct change){ .change = change,
						  .done = done,
						  .userdata = userdata };
	(void)sd_event_source_set_enabled(s->defer, SD_EVENT_ONESHOT);
	return 0;
}

enum store_state health_store_get_state(const struct health_store *s)
{
	return s->state;
}

const char *health_store_reason(const struct health_store *s)
{
	return s->reason.msg;
}

const struct health *health_store_get(const struct health_store *s)
{
	return s->state == STORE_STATE_READY ? &s->records : &s->none;
}

static int add_sources(struct health_store *s, sd_event *event)
{
	int r = sd_event_add_time(event, &s->timer, CLOCK_MONOTONIC, 0,
				  MAX(s->retry_usec / 20, UINT64_C(1)), on_timer, s);

	if (r >= 0)
		r = sd_event_source_set_enabled(s->timer, SD_EVENT_OFF);
	if (r >= 0)
		r = sd_event_add_defer(event, &s->defer, on_defer, s);
	if (r >= 0)
		r = sd_event_source_set_enabled(s->defer, SD_EVENT_OFF);
	return r;
}

int health_store_new(const struct health_store_config *config, struct health_store **ret,
		     struct error *err)
{
	struct health_store *s = calloc(1, sizeof *s);
	int r;

	if (!s)
		return error_set(err, ENOMEM, "health records: out of memory");
	s->worker = config->worker;
	s->retry_usec = config->retry_usec ?: RETRY_USEC;
	s->changed = config->changed;
	s->userdata = config->userdata;
	s->state = STORE_STATE_LOADING;
	r = health_disk_init(&s->disk, config->data_dir);
	if (r >= 0)
		r = add_sources(s, config->event);
	if (r >= 0)
		r = submit(s, JOB_LOOK);
	if (r < 0) {
		health_store_free(s);
		return error_set_errno(err, r, "health records");
	}
	*ret = s;
	return 0;
}

struct health_store *health_store_free(struct health_store *s)
{
	if (!s)
		return NULL;
	s->timer = sd_event_source_disable_unref(s->timer);
	s->defer = sd_event_source_disable_unref(s->defer);
	s->freed = true;
	if (!s->job.out)
		destroy(s);
	return NULL;
}
