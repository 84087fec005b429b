/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A health store in a temporary folder with a loop and a worker around it, and what it reported.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "model/outcome.h"
#include "store/health-store.h"

#define DEADLINE_USEC	 (30 * USEC_PER_SEC)
#define RETRY_USEC	 (5 * USEC_PER_MSEC)
#define NOW		 "2026-11-29T16:38:00Z"
#define FILE_OF(records) "{\"version\":1,\"records\":[" records "]}"
#define OUT4		 "{\"vf_address\":\"0000:41:00.4\",\"quarantined_at\":\"" NOW "\"}"
#define OUT5		 "{\"vf_address\":\"0000:41:00.5\",\"quarantined_at\":\"" NOW "\"}"
#define NOBODY		 65534

static const struct pci_addr vf4 = { .bus = 0x41, .function = 4 };
static const struct pci_addr vf5 = { .bus = 0x41, .function = 5 };

struct fixture {
	char dir[64];
	char path[128];
	char tmp[128];
	sd_event *event;
	struct worker *worker;
	struct health_store *store;
	int n_changed;
	enum store_state state;
	char note[256]; /* of the last call of `changed` */
	int n_done;
	int result;
	char message[256];
	/* What the next change does. */
	struct pci_addr vf;
	bool clear;
	int give_up;
};

static inline void on_changed(struct health_store *s, enum store_state state,
			      const struct error *err, void *userdata)
{
	struct fixture *f = userdata;

	f->n_changed++;
	f->state = state;
	str_copy_cut(f->note, sizeof f->note, err ? err->msg : "");
	assert_int_equal(health_store_get_state(s), state);
	assert_true(state != STORE_STATE_LOADING);
	/* A reason with every UNREADABLE, and nothing to place by. */
	if (state == STORE_STATE_UNREADABLE) {
		assert_non_null(err);
		assert_string_equal(health_store_reason(s), err->msg);
		assert_int_equal(health_store_get(s)->n, 0);
	} else {
		assert_string_equal(health_store_reason(s), "");
		assert_true(!err || err->code == 0);
	}
}

static inline int do_change(struct health *h, void *userdata)
{
	struct fixture *f = userdata;
	enum health_change change;

	if (f->give_up)
		return f->give_up;
	if (f->clear) {
		health_clear(h, f->vf);
		return 0;
	}
	return health_quarantine(h, f->vf, NOW, &change);
}

static inline void on_done(int result, const struct error *err, void *userdata)
{
	struct fixture *f = userdata;

	f->n_done++;
	f->result = result;
	str_copy_cut(f->message, sizeof f->message, err ? err->msg : "");
	assert_int_equal(result < 0, err != NULL);
}

static inline void run_once(struct fixture *f, uint64_t deadline)
{
	if (clock_now_usec() >= deadline)
		fail_msg("nothing happened");
	assert_true(sd_event_run(f->event, 100 * USEC_PER_MSEC) >= 0);
}

static inline void wait_state(struct fixture *f, enum store_state state)
{
	uint64_t deadline = clock_now_usec() + DEADLINE_USEC;

	while (health_store_get_state(f->store) != state)
		run_once(f, deadline);
}

static inline void wait_changed(struct fixture *f, int more_than)
{
	uint64_t deadline = clock_now_usec() + DEADLINE_USEC;

	while (f->n_changed <= more_than)
		run_once(f, deadline);
}

/* So long that an edit would have been noticed several times. */
static inline void run_looks(struct fixture *f, unsigned n)
{
	uint64_t until = clock_now_usec() + n * RETRY_USEC;

	while (clock_now_usec() < until)
		assert_true(sd_event_run(f->event, RETRY_USEC) >= 0);
}

static inline int change(struct fixture *f, struct pci_addr vf, bool clear)
{
	uint64_t deadline = clock_now_usec() + DEADLINE_USEC;
	int before = f->n_done;

	f->vf = vf;
	f->clear = clear;
	assert_int_equal(health_store_change(f->store, do_change, on_done, f), 0);
	assert_int_equal(f->n_done, before); /* never from within */
	while (f->n_done == before)
		run_once(f, deadline);
	return f->result;
}

static inline void close_store(struct fixture *f)
{
	f->store = health_store_free(f->store);
	f->worker = worker_free(f->worker);
	f->event = sd_event_unref(f->event);
}

static inline void open_store(struct fixture *f)
{
	struct health_store_config config = {
		.data_dir = f->dir, .retry_usec = RETRY_USEC, .changed = on_changed, .userdata = f
	};
	struct error err = ERROR_INIT;

	close_store(f);
	f->n_changed = 0;
	f->n_done = 0;
	assert_int_equal(sd_event_new(&f->event), 0);
	assert_int_equal(worker_new(f->event, "test", &f->worker), 0);
	config.event = f->event;
	config.worker = f->worker;
	assert_int_equal(health_store_new(&config, &f->store, &err), 0);
	assert_int_equal(health_store_get_state(f->store), STORE_STATE_LOADING);
	assert_int_equal(health_store_get(f->store)->n, 0);
	wait_changed(f, 0);
	assert_int_equal(f->n_changed, 1);
}

static inline void write_n(const char *path, const char *text, size_t n)
{
	_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, n), (ssize_t)n);
}

static inline void write_text(const char *path, const char *text)
{
	write_n(path, text, strlen(text));
}

/* As editors do it; a file written in place may be read when half of it is there. */
static inline void replace_text(const char *path, const char *text)
{
	char other[160];

	snprintf(other, sizeof other, "%s.swp", path);
	write_text(other, text);
	assert_int_equal(rename(other, path), 0);
}

static inline void assert_text(const char *path, const char *text, size_t n)
{
	_free_ char *found = NULL;
	size_t len;

	assert_int_equal(file_read_at(AT_FDCWD, path, 1 << 20, &found, &len), 0);
	assert_int_equal(len, n);
	assert_memory_equal(found, text, n);
}

static inline bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static inline void assert_quarantined(struct fixture *f, bool four, bool five)
{
	const struct health *h = health_store_get(f->store);

	assert_int_equal(health_is_quarantined(h, vf4), four);
	assert_int_equal(health_is_quarantined(h, vf5), five);
}

static inline int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);

	*state = f;
	if (!f)
		return -1;
	str_copy_cut(f->dir, sizeof f->dir, "/tmp/test-health-store-XXXXXX");
	if (!mkdtemp(f->dir))
		return -1;
	snprintf(f->path, sizeof f->path, "%s/gpu/vf-health.json", f->dir);
	snprintf(f->tmp, sizeof f->tmp, "%s/gpu/vf-health.json.tmp", f->dir);
	return 0;
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;
	char command[128];

	close_store(f);
	snprintf(command, sizeof command, "rm -rf %s", f->dir);
	free(f);
	return system(command);
}

static inline void make_folder(struct fixture *f)
{
	char folder[128];

	snprintf(folder, sizeof folder, "%s/gpu", f->dir);
	assert_int_equal(file_make_dirs(folder, 0755), 0);
}

#define test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
