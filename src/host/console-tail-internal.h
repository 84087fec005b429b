/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two halves of console-tail share: the loop's (console-tail.c) and the thread's
 * (console-tail-thread.c). For nobody else. Who owns which field stands beside it.
 */
#pragma once

#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

#include "host/console-log.h"
#include "host/console-tail.h"
#include "host/console-watch.h"

/* Lines of one log on their way to the loop. */
struct console_batch {
	uint64_t id;
	char *lines; /* a uint32_t with the length, the bytes; owned */
	size_t len;
	bool pass_ended;
	bool has_trouble;
	struct error trouble;
};

/* Made by the loop; from then on of the thread, which frees it when the loop has said so. */
struct console_entry {
	uint64_t id;
	struct console_log log;
	struct console_watch watch;
	bool due;
	bool busy; /* grew at the last look */
	/* Under the lock: */
	size_t waiting_bytes;
	bool paused;
	bool removed;
};

struct follower {
	uint64_t id;
	char *key;
	struct console_entry *entry;
};

/* A list of folders; logs borrow it, so it lives as long as the tail. */
struct console_dirs {
	char **at;
	size_t n;
};

struct console_tail {
	struct console_dirs *dirs; /* every list so far; the last is in force */
	size_t n_dirs;
	_Atomic uint64_t scan_usec;
	void (*line)(const char *key, const char *line, size_t len, void *userdata);
	void (*pass)(const char *key, void *userdata);
	void (*trouble)(const char *key, const struct error *err, void *userdata);
	void *userdata;

	/* Of the loop. */
	sd_event_source *source;
	struct follower *followers;
	size_t n_followers;
	uint64_t last_id;
	pthread_t thread;
	bool started;

	/* Of the thread. */
	struct console_reader reader;
	char *needle;
	int inotify_fd;
	uint64_t next_scan_usec;
	uint64_t next_busy_usec;
	struct console_entry **entries;
	size_t n_entries, cap_entries;

	int loop_fd;	      /* wakes the loop: there are batches */
	int thread_fd;	      /* wakes the thread: the list changed, or a paused log may go on */
	pthread_mutex_t lock; /* everything below */
	bool stop;
	struct console_entry **added; /* not yet taken by the thread */
	size_t n_added;
	struct console_batch *batches; /* oldest first */
	size_t n_batches, cap_batches;
};

static inline void console_tail_wake(int fd)
{
	const uint64_t one = 1;

	/* Fails only when the counter is near 2^64, and then it wakes anyway. */
	if (write(fd, &one, sizeof one) < 0)
		return;
}

static inline void console_tail_drain(int fd)
{
	uint64_t n;

	/* Non-blocking: nothing to read is fine. */
	if (read(fd, &n, sizeof n) < 0)
		return;
}

struct console_entry *console_entry_free(struct console_entry *e);

/* Runs until `stop`. arg: the console_tail. */
void *console_tail_thread(void *arg);
