/* SPDX-License-Identifier: Apache-2.0 */
#include "base/array.h"
#include "host/console-tail-internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/inotify.h>

#include "base/clock.h"

/* A log that grows is looked at this often: a marker waits no longer, and a guest that writes all
 * the time wakes nobody more often than that. */
#define BUSY_USEC   (100 * USEC_PER_MSEC)
#define TURN_BLOCKS 32 /* 256 KiB, then the next log has its turn */
/* Of one log, not yet taken by the loop. Above it the log is read no further until they are. */
#define WAITING_BYTES_MAX 4096

struct console_entry *console_entry_free(struct console_entry *e)
{
	if (!e)
		return NULL;
	console_log_done(&e->log);
	free(e);
	return NULL;
}

/* --- Handing over ----------------------------------------------------------------- */

/* Takes the lines. */
static int push(struct console_tail *t, struct console_entry *e, struct console_batch *b)
{
	int r;

	pthread_mutex_lock(&t->lock);
	r = array_reserve(t->batches, t->n_batches, t->cap_batches);
	if (r == 0) {
		t->batches[t->n_batches++] = *b;
		e->waiting_bytes += b->len;
	}
	pthread_mutex_unlock(&t->lock);
	if (r < 0)
		free(b->lines);
	else
		console_tail_wake(t->loop_fd);
	return r;
}

/* What was found is not lost with the memory: the log is read again from its beginning. */
static void hand_over(struct console_tail *t, struct console_entry *e,
		      const struct console_turn_result *result)
{
	struct console_batch b = {
		.id = e->id,
		.pass_ended = result->pass_ended,
		.has_trouble = result->trouble_changed,
		.trouble = result->trouble,
	};
	int r = 0;

	if (t->reader.lines.len > 0 || t->reader.lines.failed)
		r = buf_take(&t->reader.lines, &b.lines, &b.len);
	if (r == 0 && (b.len > 0 || b.pass_ended || b.has_trouble))
		r = push(t, e, &b);
	if (r == 0)
		return;
	buf_done(&t->reader.lines);
	console_stream_restart(&e->log.current);
}

/* --- One log ---------------------------------------------------------------------- */

/* Logs of one folder share its watch, as do two claims that name one file. */
static void unwatch(const struct console_tail *t, const struct console_entry *e, int wd)
{
	if (wd < 0)
		return;
	for (size_t i = 0; i < t->n_entries; i++)
		if (t->entries[i] != e &&
		    (t->entries[i]->watch.file == wd || t->entries[i]->watch.folder == wd))
			return;
	/* It may be gone by itself. */
	(void)inotify_rm_watch(t->inotify_fd, wd);
}

static bool watch_folder(const struct console_tail *t, struct console_entry *e)
{
	int before = e->watch.folder;
	bool set = console_watch_folder(t->inotify_fd, &e->watch, &e->log);

	if (before != e->watch.folder)
		unwatch(t, e, before);
	return set;
}

/* A paused log is due again when the loop has taken its lines. */
static bool may_read(struct console_tail *t, struct console_entry *e)
{
	bool may;

	pthread_mutex_lock(&t->lock);
	may = !e->removed && e->waiting_bytes < WAITING_BYTES_MAX;
	e->paused = !may;
	pthread_mutex_unlock(&t->lock);
	return may;
}

/* True when there is more to do at once. */
static bool take_turn(struct console_tail *t, struct console_entry *e, uint64_t now_usec)
{
	struct console_turn_result result;
	bool at_once = false;
	bool at_name = e->log.look_at_path;
	enum console_turn turn;

	if (!may_read(t, e))
		return false;
	turn = console_log_turn(&e->log, &t->reader, TURN_BLOCKS, WAITING_BYTES_MAX, now_usec,
				t->scan_usec, &result);
	if (result.opened) {
		unwatch(t, e, e->watch.file);
		e->watch.file = -1;
	}
	switch (turn) {
	case CONSOLE_TURN_MORE:
		at_once = true;
		break;
	case CONSOLE_TURN_DONE:
		e->busy = true;
		break;
	case CONSOLE_TURN_QUIET:
		/* What was written between the look and the watch is seen by one more look. */
		e->busy = false;
		at_once = console_watch_file(t->inotify_fd, &e->watch, &e->log);
		break;
	}
	if (at_name && watch_folder(t, e)) {
		e->log.look_at_path = true;
		at_once = true;
	}
	hand_over(t, e, &result);
	return at_once;
}

/* --- When ------------------------------------------------------------------------- */

static void apply_event(struct console_tail *t, const struct inotify_event *event)
{
	for (size_t i = 0; i < t->n_entries; i++) {
		struct console_entry *e = t->entries[i];

		if (event->mask & IN_Q_OVERFLOW || event->wd == e->watch.folder) {
			e->due = true;
			e->log.look_at_path = true;
		}
		if (event->mask & IN_Q_OVERFLOW || event->wd == e->watch.file) {
			e->due = true;
			e->watch.file = -1;
		}
		if (event->mask & IN_IGNORED && event->wd == e->watch.folder)
			e->watch.folder = -1;
	}
}

static void read_events(struct console_tail *t)
{
	char buf[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t n;

	if (t->inotify_fd < 0)
		return;
	while ((n = read(t->inotify_fd, buf, sizeof buf)) > 0) {
		for (ssize_t at = 0; at < n;) {
			const struct inotify_event *event = (const void *)(buf + at);

			apply_event(t, event);
			at += (ssize_t)(sizeof *event + event->len);
		}
	}
}

static void take_added(struct console_tail *t)
{
	size_t cap = t->n_entries + t->n_added;

	if (cap > t->cap_entries) {
		struct console_entry **more = realloc(t->entries, cap * sizeof *more);

		if (!more)
			return; /* they wait for the next time */
		t->entries = more;
		t->cap_entries = cap;
	}
	for (size_t i = 0; i < t->n_added; i++)
		t->entries[t->n_entries++] = t->added[i];
	t->n_added = 0;
}

/* New logs, those that were given up, and those that were paused. False: the end. */
static bool take_orders(struct console_tail *t)
{
	bool stop;

	console_tail_drain(t->thread_fd);
	pthread_mutex_lock(&t->lock);
	stop = t->stop;
	take_added(t);
	for (size_t i = 0; i < t->n_entries;) {
		struct console_entry *e = t->entries[i];

		if (e->removed) {
			t->entries[i] = t->entries[--t->n_entries];
			unwatch(t, e, e->watch.file);
			unwatch(t, e, e->watch.folder);
			console_entry_free(e);
			continue;
		}
		if (e->paused && e->waiting_bytes < WAITING_BYTES_MAX) {
			e->paused = false;
			e->due = true;
		}
		i++;
	}
	pthread_mutex_unlock(&t->lock);
	return !stop;
}

static void mark_due(struct console_tail *t, uint64_t now_usec)
{
	bool scan = now_usec >= t->next_scan_usec, busy = now_usec >= t->next_busy_usec;

	for (size_t i = 0; i < t->n_entries; i++) {
		struct console_entry *e = t->entries[i];

		e->due = e->due || scan || (busy && e->busy);
		e->log.look_at_path = e->log.look_at_path || scan;
	}
	if (scan)
		t->next_scan_usec = now_usec + t->scan_usec;
	/* The interval may have been made shorter. */
	t->next_scan_usec = MIN(t->next_scan_usec, now_usec + t->scan_usec);
	if (busy)
		t->next_busy_usec = now_usec + BUSY_USEC;
}

/* Milliseconds until something is due, for poll. */
static int time_left(const struct console_tail *t, uint64_t now_usec)
{
	uint64_t next = t->next_scan_usec;

	if (t->n_entries == 0)
		return -1;
	for (size_t i = 0; i < t->n_entries; i++) {
		if (t->entries[i]->due)
			return 0;
		if (t->entries[i]->busy)
			next = MIN(next, t->next_busy_usec);
	}
	if (next <= now_usec)
		return 0;
	return (int)MIN((next - now_usec + 999) / 1000, UINT64_C(3600000));
}

void *console_tail_thread(void *arg)
{
	struct console_tail *t = arg;
	struct pollfd fds[2] = {
		{ .fd = t->thread_fd, .events = POLLIN },
		{ .fd = t->inotify_fd, .events = POLLIN }, /* negative: poll passes over it */
	};

	while (take_orders(t)) {
		uint64_t now_usec = clock_now_usec();

		mark_due(t, now_usec);
		read_events(t);
		for (size_t i = 0; i < t->n_entries; i++)
			if (t->entries[i]->due)
				t->entries[i]->due = take_turn(t, t->entries[i], now_usec);
		/* Interrupted or not, everything is looked at again. */
		(void)poll(fds, ARRAY_SIZE(fds), time_left(t, clock_now_usec()));
	}
	return NULL;
}
