/* SPDX-License-Identifier: Apache-2.0 */
#include "host/console-tail.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>

#include "base/cleanup.h"
#include "host/console-tail-internal.h"

#define STACK_BYTES ((size_t)256 * 1024)

/* --- Handing out ------------------------------------------------------------------ */

static struct follower *find_by_id(const struct console_tail *t, uint64_t id)
{
	for (size_t i = 0; i < t->n_followers; i++)
		if (t->followers[i].id == id)
			return &t->followers[i];
	return NULL;
}

/* A function that is called may remove this log or others, so it is looked up each time. */
static void deliver(struct console_tail *t, const struct console_batch *b)
{
	const struct follower *f;
	bool was_paused = false;

	for (size_t at = 0; at < b->len && (f = find_by_id(t, b->id));) {
		uint32_t len;

		memcpy(&len, b->lines + at, sizeof len);
		at += sizeof len;
		t->line(f->key, b->lines + at, len, t->userdata);
		at += len;
	}
	f = find_by_id(t, b->id);
	if (f && b->pass_ended)
		t->pass(f->key, t->userdata);
	f = find_by_id(t, b->id);
	if (f && b->has_trouble && t->trouble)
		t->trouble(f->key, &b->trouble, t->userdata);
	f = find_by_id(t, b->id);
	if (!f)
		return;
	pthread_mutex_lock(&t->lock);
	f->entry->waiting_bytes -= b->len;
	was_paused = f->entry->paused;
	pthread_mutex_unlock(&t->lock);
	if (was_paused)
		console_tail_wake(t->thread_fd);
}

static int on_batches(sd_event_source *source _unused_, int fd, uint32_t revents _unused_,
		      void *userdata)
{
	struct console_tail *t = userdata;
	struct console_batch *batches;
	size_t n;

	console_tail_drain(fd);
	pthread_mutex_lock(&t->lock);
	batches = t->batches;
	n = t->n_batches;
	t->batches = NULL;
	t->n_batches = t->cap_batches = 0;
	pthread_mutex_unlock(&t->lock);
	for (size_t i = 0; i < n; i++) {
		deliver(t, &batches[i]);
		free(batches[i].lines);
	}
	free(batches);
	return 0;
}

static int add_entry(struct console_tail *t, struct console_entry *e)
{
	struct console_entry **more;
	int r = -ENOMEM;

	pthread_mutex_lock(&t->lock);
	more = reallocarray(t->added, t->n_added + 1, sizeof *more);
	if (more) {
		t->added = more;
		t->added[t->n_added++] = e;
		r = 0;
	}
	pthread_mutex_unlock(&t->lock);
	console_tail_wake(t->thread_fd);
	return r;
}

static const struct console_dirs *dirs_in_force(const struct console_tail *t)
{
	return &t->dirs[t->n_dirs - 1];
}

static int add(struct console_tail *t, const char *key, const char *path)
{
	struct follower *more = reallocarray(t->followers, t->n_followers + 1, sizeof *more);
	const struct console_dirs *dirs = dirs_in_force(t);
	_free_ char *name = strdup(key);
	struct console_entry *e;
	int r;

	if (more)
		t->followers = more;
	e = more && name ? calloc(1, sizeof *e) : NULL;
	if (!e)
		return -ENOMEM;
	e->id = ++t->last_id;
	e->due = true;
	e->watch = CONSOLE_WATCH_INIT;
	r = console_log_init(&e->log, (const char *const *)dirs->at, dirs->n, path);
	if (r == 0)
		r = add_entry(t, e);
	if (r < 0) {
		console_entry_free(e);
		return r;
	}
	t->followers[t->n_followers++] = (struct follower){ .id = e->id,
							    .key = TAKE(name),
							    .entry = e };
	return 0;
}

int console_tail_add(struct console_tail *t, const char *key, const char *path, struct error *err)
{
	const struct console_dirs *dirs = dirs_in_force(t);
	int r = console_path_check((const char *const *)dirs->at, dirs->n, path, err);

	if (r < 0)
		return r;
	for (size_t i = 0; i < t->n_followers; i++)
		if (strcmp(t->followers[i].key, key) == 0)
			return error_set(err, EEXIST, "console log of '%s' is followed already",
					 key);
	r = add(t, key, path);
	return r < 0 ? error_set_errno(err, r, "console log '%s'", path) : 0;
}

void console_tail_remove(struct console_tail *t, const char *key)
{
	for (size_t i = 0; i < t->n_followers; i++) {
		struct follower *f = &t->followers[i];

		if (strcmp(f->key, key) != 0)
			continue;
		pthread_mutex_lock(&t->lock);
		f->entry->removed = true;
		pthread_mutex_unlock(&t->lock);
		console_tail_wake(t->thread_fd);
		free(f->key);
		*f = t->followers[--t->n_followers];
		return;
	}
}

/* --- Beginning and end ------------------------------------------------------------ */

static void dirs_done(struct console_dirs *dirs)
{
	for (size_t i = 0; i < dirs->n; i++)
		free(dirs->at[i]);
	free(dirs->at);
	*dirs = (struct console_dirs){ 0 };
}

/* Puts a list into force. The lists themselves never move, only the array that names them. */
static int use_dirs(struct console_tail *t, const char *const dirs[], size_t n)
{
	struct console_dirs *more = reallocarray(t->dirs, t->n_dirs + 1, sizeof *more);
	struct console_dirs fresh = { .at = calloc(MAX(n, (size_t)1), sizeof *fresh.at) };

	if (more)
		t->dirs = more;
	for (; fresh.at && fresh.n < n; fresh.n++) {
		fresh.at[fresh.n] = strdup(dirs[fresh.n]);
		if (!fresh.at[fresh.n])
			break;
	}
	if (!more || !fresh.at || fresh.n < n) {
		dirs_done(&fresh);
		return -ENOMEM;
	}
	t->dirs[t->n_dirs++] = fresh;
	return 0;
}

int console_tail_configure(struct console_tail *t, const char *const dirs[], size_t n_dirs,
			   uint64_t scan_usec)
{
	const struct console_dirs *now = dirs_in_force(t);
	bool same = now->n == n_dirs;

	for (size_t i = 0; same && i < n_dirs; i++)
		same = strcmp(now->at[i], dirs[i]) == 0;
	if (!same && use_dirs(t, dirs, n_dirs) < 0)
		return -ENOMEM;
	t->scan_usec = scan_usec;
	console_tail_wake(t->thread_fd);
	return 0;
}

static int copy_config(struct console_tail *t, const struct console_tail_config *config)
{
	t->scan_usec = config->scan_usec;
	t->line = config->line;
	t->pass = config->pass;
	t->trouble = config->trouble;
	t->userdata = config->userdata;
	t->needle = strdup(config->needle);
	if (!t->needle || use_dirs(t, config->dirs, config->n_dirs) < 0)
		return -ENOMEM;
	t->reader.line_max = config->line_max;
	t->reader.needle = t->needle;
	t->reader.needle_len = strlen(t->needle);
	return 0;
}

/* Signals are for the loop's signalfd, so the thread blocks all of them. */
static int start_thread(struct console_tail *t)
{
	pthread_attr_t attr;
	sigset_t all, saved;
	int r;

	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_sigmask(SIG_BLOCK, &all, &saved);
	r = pthread_create(&t->thread, &attr, console_tail_thread, t);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	pthread_attr_destroy(&attr);
	if (r != 0)
		return -r;
	t->started = true;
	pthread_setname_np(t->thread, "console-tail");
	return 0;
}

static int start(struct console_tail *t, const struct console_tail_config *config)
{
	int r = copy_config(t, config);

	if (r < 0)
		return r;
	t->loop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	t->thread_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (t->loop_fd < 0 || t->thread_fd < 0)
		return -errno;
	/* Without it (no instance left for this user) logs are looked at in each scan. */
	t->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	r = sd_event_add_io(config->event, &t->source, t->loop_fd, EPOLLIN, on_batches, t);
	if (r < 0)
		return r;
	(void)sd_event_source_set_description(t->source, "console-tail");
	return start_thread(t);
}

int console_tail_new(const struct console_tail_config *config, struct console_tail **ret,
		     struct error *err)
{
	struct console_tail *t = calloc(1, sizeof *t);
	int r;

	if (!t)
		return error_set(err, ENOMEM, "console logs: out of memory");
	t->loop_fd = t->thread_fd = t->inotify_fd = -1;
	pthread_mutex_init(&t->lock, NULL);
	r = start(t, config);
	if (r < 0) {
		console_tail_free(t);
		return error_set_errno(err, r, "console logs cannot be followed");
	}
	*ret = t;
	return 0;
}

static void stop_thread(struct console_tail *t)
{
	pthread_mutex_lock(&t->lock);
	t->stop = true;
	pthread_mutex_unlock(&t->lock);
	console_tail_wake(t->thread_fd);
	pthread_join(t->thread, NULL);
}

static void close_fds(const struct console_tail *t)
{
	const int fds[] = { t->loop_fd, t->thread_fd, t->inotify_fd };

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

struct console_tail *console_tail_free(struct console_tail *t)
{
	if (!t)
		return NULL;
	if (t->started)
		stop_thread(t);
	sd_event_source_disable_unref(t->source);
	close_fds(t);
	for (size_t i = 0; i < t->n_entries; i++)
		console_entry_free(t->entries[i]);
	for (size_t i = 0; i < t->n_added; i++)
		console_entry_free(t->added[i]);
	for (size_t i = 0; i < t->n_batches; i++)
		free(t->batches[i].lines);
	for (size_t i = 0; i < t->n_followers; i++)
		free(t->followers[i].key);
	for (size_t i = 0; i < t->n_dirs; i++)
		dirs_done(&t->dirs[i]);
	free(t->entries);
	free(t->added);
	free(t->batches);
	free(t->followers);
	free(t->dirs);
	free(t->needle);
	buf_done(&t->reader.lines);
	pthread_mutex_destroy(&t->lock);
	free(t);
	return NULL;
}
