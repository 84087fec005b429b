/* SPDX-License-Identifier: Apache-2.0 */
#include "store/claim-store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/worker.h"
#include "model/outcome.h"
#include "store/claim-db.h"
#include "store/claim-load.h"

#define RETRY_USEC (5 * USEC_PER_SEC)
/* The log is written back when nothing was submitted for a while, so that claims do not wait for
 * it; at the latest when it has LOG_PAGES_MAX pages (16 MiB), which bounds the file and a start. */
#define IDLE_USEC      (1 * USEC_PER_SEC)
#define LOG_PAGES_IDLE 64
#define LOG_PAGES_MAX  4096

struct submit {
	struct store_op *ops; /* one block, the texts behind */
	unsigned n_ops;
	store_done_fn done;
	void *userdata;
};

struct submit_list {
	struct submit *items;
	unsigned n;
	unsigned cap;
};

enum job_kind {
	JOB_LOAD,
	JOB_COMMIT,
	JOB_CHECKPOINT,
};

/* There is one job at a time, and while it is under way the thread owns this and the database. */
struct store_job {
	enum job_kind kind;
	bool ran;
	int result;
	struct error err;
	bool broken;
	unsigned log_pages;
	struct submit_list submits;
	struct claim_db_group *groups; /* one for each submit */
	struct store_content content;
};

struct claim_store {
	struct claim_store_config config;
	char *dir;
	struct worker *worker;
	struct claim_db *db; /* the job's while busy */
	struct store_job job;
	bool busy;

	enum store_state state;
	struct error reason; /* why UNREADABLE, as last reported */
	struct submit_list waiting;
	uint64_t commits;
	unsigned log_pages;
	sd_event_source *start; /* takes what was submitted in one round of the loop together */
	sd_event_source *timer; /* UNREADABLE: load again; READY: checkpoint */
};

static void store_start_next(struct claim_store *s);

/* ---- lists ---- */

static void submit_list_clear(struct submit_list *l)
{
	for (unsigned i = 0; i < l->n; i++)
		free(l->items[i].ops);
	l->n = 0;
}

static void submit_list_done(struct submit_list *l)
{
	submit_list_clear(l);
	free(l->items);
	*l = (struct submit_list){ 0 };
}

/* Operations and their texts in one block. */
static struct store_op *ops_copy(const struct store_op *ops, unsigned n)
{
	size_t size = n * sizeof *ops;
	struct store_op *copy;
	char *text;

	for (unsigned i = 0; i < n; i++)
		if (ops[i].text)
			size += strlen(ops[i].text) + 1;
	copy = malloc(size ? size : 1);
	if (!copy)
		return NULL;
	text = (char *)(copy + n);
	for (unsigned i = 0; i < n; i++) {
		size_t len;

		copy[i] = ops[i];
		if (!ops[i].text)
			continue;
		len = strlen(ops[i].text) + 1;
		copy[i].text = memcpy(text, ops[i].text, len);
		text += len;
	}
	return copy;
}

/* ---- jobs: in the thread ---- */

static void job_commit(struct claim_store *s)
{
	struct store_job *job = &s->job;

	for (unsigned i = 0; i < job->submits.n; i++)
		job->groups[i] = (struct claim_db_group){ .ops = job->submits.items[i].ops,
							  .n_ops = job->submits.items[i].n_ops };
	job->result = claim_db_commit(s->db, job->groups, job->submits.n, &job->err);
	job->broken = claim_db_is_broken(s->db);
	job->log_pages = claim_db_log_pages(s->db);
}

static void job_run(void *p)
{
	struct claim_store *s = p;
	struct store_job *job = &s->job;

	job->ran = true;
	job->err = ERROR_INIT;
	switch (job->kind) {
	case JOB_LOAD:
		s->db = claim_db_close(s->db);
		job->result = claim_db_open(s->dir, &s->db, &job->content, &job->err);
		job->log_pages = 0; /* what a crash left there is counted at the next commit */
		break;
	case JOB_COMMIT:
		job_commit(s);
		break;
	case JOB_CHECKPOINT:
		claim_db_checkpoint(s->db);
		job->log_pages = claim_db_log_pages(s->db);
		break;
	}
}

/* ---- jobs: in the loop ---- */

static void store_arm_timer(struct claim_store *s, uint64_t usec)
{
	/* Both fail only for a source that is not there. */
	(void)sd_event_source_set_time_relative(s->timer, usec);
	(void)sd_event_source_set_enabled(s->timer, SD_EVENT_ONESHOT);
}

static void submits_fail(struct submit_list *l, const struct error *err)
{
	for (unsigned i = 0; i < l->n; i++)
		if (l->items[i].done)
			l->items[i].done(-E_STORE_UNAVAILABLE, err, l->items[i].userdata);
	submit_list_clear(l);
}

/* `waiting` gets nothing new meanwhile, as the state refuses it. */
static void store_become_unreadable(struct claim_store *s, const struct error *err)
{
	bool news = s->state != STORE_STATE_UNREADABLE || strcmp(s->reason.msg, err->msg) != 0;

	s->state = STORE_STATE_UNREADABLE;
	s->reason = *err;
	submits_fail(&s->waiting, &s->reason);
	store_arm_timer(s, s->config.retry_usec);
	if (news && s->config.loaded)
		s->config.loaded(s, s->state, NULL, &s->reason, s->config.userdata);
}

static void store_loaded(struct claim_store *s)
{
	struct store_content content = s->job.content;

	s->job.content = (struct store_content){ 0 };
	if (s->job.result < 0) {
		store_become_unreadable(s, &s->job.err);
		return;
	}
	s->state = STORE_STATE_READY;
	s->reason = ERROR_INIT;
	if (s->config.loaded)
		s->config.loaded(s, s->state, &content, NULL, s->config.userdata);
	claim_content_done(&content);
}

static void store_committed(struct claim_store *s)
{
	struct store_job *job = &s->job;

	if (job->result > 0)
		s->commits++;
	if (job->result < 0 && job->broken)
		s->state = STORE_STATE_UNREADABLE; /* before the functions below submit again */
	for (unsigned i = 0; i < job->submits.n; i++) {
		const struct submit *submit = &job->submits.items[i];
		const struct claim_db_group *g = &job->groups[i];
		int result = job->result < 0 ? -E_STORE_UNAVAILABLE : g->result;

		if (submit->done)
			submit->done(result, job->result < 0 ? &job->err : &g->err,
				     submit->userdata);
	}
	submit_list_clear(&job->submits);
	free(job->groups);
	job->groups = NULL;
	if (s->state == STORE_STATE_UNREADABLE)
		store_become_unreadable(s, &job->err);
}

static void job_done(void *p)
{
	struct claim_store *s = p;

	s->log_pages = s->job.log_pages;
	switch (s->job.kind) {
	case JOB_LOAD:
		store_loaded(s);
		break;
	case JOB_COMMIT:
		store_committed(s);
		break;
	case JOB_CHECKPOINT:
		break;
	}
	s->busy = false;
	store_start_next(s);
}

static int store_start_job(struct claim_store *s, enum job_kind kind)
{
	int r;

	s->job.kind = kind;
	s->job.ran = false;
	s->busy = true;
	r = worker_submit(s->worker, job_run, job_done, NULL, s);
	if (r < 0)
		s->busy = false;
	return r;
}

static int store_start_commit(struct claim_store *s)
{
	struct submit_list empty = s->job.submits;
	int r;

	s->job.groups = calloc(s->waiting.n, sizeof *s->job.groups);
	if (!s->job.groups)
		return -ENOMEM;
	s->job.submits = s->waiting;
	s->waiting = empty;
	r = store_start_job(s, JOB_COMMIT);
	if (r < 0) {
		s->waiting = s->job.submits;
		s->job.submits = empty;
		free(s->job.groups);
		s->job.groups = NULL;
	}
	return r;
}

static void store_start_next(struct claim_store *s)
{
	int r = 0;

	if (s->busy || s->state != STORE_STATE_READY)
		return;
	if (s->log_pages >= LOG_PAGES_MAX)
		r = store_start_job(s, JOB_CHECKPOINT);
	else if (s->waiting.n > 0)
		r = store_start_commit(s);
	/* Memory is out: what waits goes on waiting, and is tried again. */
	if (r < 0 || (!s->busy && s->log_pages >= LOG_PAGES_IDLE))
		store_arm_timer(s, IDLE_USEC);
}

static int store_on_start(sd_event_source *source _unused_, void *userdata)
{
	store_start_next(userdata);
	return 0;
}

static int store_on_timer(sd_event_source *source _unused_, uint64_t usec _unused_, void *userdata)
{
	struct claim_store *s = userdata;

	if (s->busy)
		return 0;
	if (s->state == STORE_STATE_UNREADABLE) {
		if (store_start_job(s, JOB_LOAD) < 0)
			store_arm_timer(s, s->config.retry_usec);
	} else if (s->waiting.n > 0) {
		store_start_next(s);
	} else if (s->state == STORE_STATE_READY && store_start_job(s, JOB_CHECKPOINT) < 0) {
		store_arm_timer(s, IDLE_USEC);
	}
	return 0;
}

/* ---- the outside ---- */

static void claim_store_freep(struct claim_store **s)
{
	claim_store_free(*s);
}

int claim_store_new(const struct claim_store_config *config, struct claim_store **ret,
		    struct error *err)
{
	_cleanup_(claim_store_freep) struct claim_store *s = NULL;
	int r;

	s = calloc(1, sizeof *s);
	if (!s)
		return error_set(err, ENOMEM, "out of memory");
	s->config = *config;
	if (s->config.retry_usec == 0)
		s->config.retry_usec = RETRY_USEC;
	s->dir = strdup(config->data_dir);
	if (!s->dir)
		return error_set(err, ENOMEM, "out of memory");
	s->config.data_dir = s->dir;
	if ((r = sd_event_add_defer(config->event, &s->start, store_on_start, s)) < 0 ||
	    (r = sd_event_source_set_enabled(s->start, SD_EVENT_OFF)) < 0 ||
	    (r = sd_event_add_time(config->event, &s->timer, CLOCK_MONOTONIC, 0, 0, store_on_timer,
				   s)) < 0 ||
	    (r = sd_event_source_set_enabled(s->timer, SD_EVENT_OFF)) < 0 ||
	    (r = worker_new(config->event, "berth-store", &s->worker)) < 0 ||
	    (r = store_start_job(s, JOB_LOAD)) < 0)
		return error_set_errno(err, r, "claim store: thread cannot be started");
	*ret = TAKE(s);
	return 0;
}

/* What was accepted is stored even if its turn did not come; there is no thread any more. */
static void store_finish_submits(struct claim_store *s)
{
	if (s->state != STORE_STATE_READY)
		return;
	if (s->busy && !s->job.ran && s->job.kind == JOB_COMMIT)
		job_commit(s);
	if (s->waiting.n == 0)
		return;
	submit_list_done(&s->job.submits);
	free(s->job.groups);
	s->job.groups = calloc(s->waiting.n, sizeof *s->job.groups);
	if (!s->job.groups)
		return;
	s->job.submits = s->waiting;
	s->waiting = (struct submit_list){ 0 };
	job_commit(s);
}

struct claim_store *claim_store_free(struct claim_store *s)
{
	if (!s)
		return NULL;
	worker_free(s->worker);
	sd_event_source_disable_unref(s->start);
	sd_event_source_disable_unref(s->timer);
	store_finish_submits(s);
	claim_db_close(s->db);
	submit_list_done(&s->waiting);
	submit_list_done(&s->job.submits);
	free(s->job.groups);
	claim_content_done(&s->job.content);
	free(s->dir);
	free(s);
	return NULL;
}

enum store_state claim_store_get_state(const struct claim_store *s)
{
	return s->state;
}

int claim_store_submit(struct claim_store *s, const struct store_op *ops, unsigned n,
		       store_done_fn done, void *userdata)
{
	struct submit submit = { .n_ops = n, .done = done, .userdata = userdata };

	if (s->state != STORE_STATE_READY)
		return -E_STORE_UNAVAILABLE;
	if (array_reserve(s->waiting.items, s->waiting.n, s->waiting.cap) < 0)
		return -ENOMEM;
	submit.ops = ops_copy(ops, n);
	if (!submit.ops)
		return -ENOMEM;
	s->waiting.items[s->waiting.n++] = submit;
	/* When a job is under way its end takes what waits. */
	if (!s->busy)
		(void)sd_event_source_set_enabled(s->start, SD_EVENT_ONESHOT);
	return 0;
}

uint64_t claim_store_commits(const struct claim_store *s)
{
	return s->commits;
}
