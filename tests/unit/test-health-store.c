/* SPDX-License-Identifier: Apache-2.0 */
/* vf-health.json in use: changes in a row, edits by hand, left-overs of a killed writer. */
#include "health-store-fixture.h"

/* --- Storing ---------------------------------------------------------------------- */

static void test_first_start(void **state)
{
	struct fixture *f = *state;
	struct stat st;

	open_store(f);
	assert_int_equal(f->state, STORE_STATE_READY);
	assert_string_equal(f->note, "");
	assert_false(exists(f->path));
	assert_int_equal(change(f, vf4, false), 0);
	assert_quarantined(f, true, false);
	assert_int_equal(f->n_changed, 1); /* not told of our own writes */
	assert_int_equal(lstat(f->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
	assert_false(exists(f->tmp));
	assert_int_equal(change(f, vf5, false), 0);
	open_store(f);
	assert_quarantined(f, true, true);
	assert_int_equal(change(f, vf4, true), 0);
	assert_int_equal(change(f, vf5, true), 0);
	open_store(f);
	assert_quarantined(f, false, false);
	assert_text(f->path, "{\n  \"version\": 1,\n  \"records\": []\n}", 35);
}

static void test_nothing_to_write(void **state)
{
	struct fixture *f = *state;
	struct stat before, after;

	open_store(f);
	assert_int_equal(change(f, vf4, false), 0);
	assert_int_equal(stat(f->path, &before), 0);
	assert_int_equal(change(f, vf4, false), 0);
	assert_int_equal(change(f, vf5, true), 0);
	f->give_up = -EPERM;
	assert_int_equal(change(f, vf5, false), -EPERM);
	f->give_up = 0;
	run_looks(f, 5);
	assert_int_equal(stat(f->path, &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_memory_equal(&before.st_mtim, &after.st_mtim, sizeof before.st_mtim);
	assert_quarantined(f, true, false);
	assert_int_equal(f->n_changed, 1);
}

struct numbered {
	struct fixture *f;
	int number;
	int *next;
};

static int change_numbered(struct health *h, void *userdata)
{
	struct numbered *n = userdata;
	enum health_change c;
	struct pci_addr vf = { .bus = 0x41,
			       .device = (uint8_t)(n->number / 8),
			       .function = (uint8_t)(n->number % 8) };

	/* Each sees what those before it did, and nothing of those behind. */
	assert_int_equal(h->n, n->number);
	return health_report_failure(h, vf, "vm", NOW, NOW, 2, &c);
}

static void done_numbered(int result, const struct error *err _unused_, void *userdata)
{
	struct numbered *n = userdata;

	assert_int_equal(result, 0);
	assert_int_equal((*n->next)++, n->number);
	assert_int_equal(health_store_get(n->f->store)->n, n->number + 1);
}

/* Submitted in one go, and before the file has been loaded. */
static void test_one_after_another(void **state)
{
	struct fixture *f = *state;
	struct health_store_config config = {
		.data_dir = f->dir, .retry_usec = RETRY_USEC, .changed = on_changed, .userdata = f
	};
	uint64_t deadline = clock_now_usec() + DEADLINE_USEC;
	struct numbered numbers[40];
	int next = 0;

	assert_int_equal(sd_event_new(&f->event), 0);
	assert_int_equal(worker_new(f->event, "test", &f->worker), 0);
	config.event = f->event;
	config.worker = f->worker;
	assert_int_equal(health_store_new(&config, &f->store, NULL), 0);
	for (int i = 0; i < 40; i++) {
		numbers[i] = (struct numbered){ .f = f, .number = i, .next = &next };
		assert_int_equal(
			health_store_change(f->store, change_numbered, done_numbered, &numbers[i]),
			0);
	}
	while (next < 40)
		run_once(f, deadline);
	assert_int_equal(f->n_changed, 1);
	open_store(f);
	assert_int_equal(health_store_get(f->store)->n, 40);
}

static void never_done(int result _unused_, const struct error *err _unused_,
		       void *userdata _unused_)
{
	fail_msg("reported after the store was freed");
}

/* Freed with a write under way and others waiting, before the worker and after it. */
static void test_free_while_writing(void **state)
{
	struct fixture *f = *state;

	for (int round = 0; round < 6; round++) {
		open_store(f);
		f->vf = round % 2 ? vf4 : vf5;
		f->clear = health_is_quarantined(health_store_get(f->store), f->vf);
		for (int i = 0; i < 5; i++)
			assert_int_equal(health_store_change(f->store, do_change, never_done, f),
					 0);
		/* One turn of the loop hands the first to the worker. */
		assert_true(sd_event_run(f->event, 0) >= 0);
		if (round < 3) {
			f->store = health_store_free(f->store);
			f->worker = worker_free(f->worker);
		} else {
			f->worker = worker_free(f->worker);
			f->store = health_store_free(f->store);
		}
	}
	open_store(f);
	assert_int_equal(f->state, STORE_STATE_READY);
}

/* --- Edits by hand ---------------------------------------------------------------- */

static void test_edits(void **state)
{
	struct fixture *f = *state;

	make_folder(f);
	write_text(f->path, FILE_OF(OUT4));
	open_store(f);
	assert_quarantined(f, true, false);
	replace_text(f->path, FILE_OF(OUT5)); /* of the same size */
	wait_changed(f, 1);
	assert_quarantined(f, false, true);
	replace_text(f->path, FILE_OF());
	wait_changed(f, 2);
	assert_quarantined(f, false, false);
	/* Touched, or written anew in other words: nothing to tell. */
	replace_text(f->path, " " FILE_OF() "\n");
	assert_int_equal(utimensat(AT_FDCWD, f->path, NULL, 0), 0);
	run_looks(f, 8);
	assert_int_equal(f->n_changed, 3);
	/* Refused and explained, then taken over. */
	replace_text(f->path, FILE_OF(OUT4 "," OUT4));
	wait_changed(f, 3);
	assert_int_equal(f->state, STORE_STATE_UNREADABLE);
	assert_non_null(strstr(f->note, "record 1: a second record of this VF"));
	replace_text(f->path, FILE_OF(OUT4 ","));
	wait_changed(f, 4); /* another reason */
	replace_text(f->path, FILE_OF(OUT4));
	wait_changed(f, 5);
	assert_int_equal(f->state, STORE_STATE_READY);
	assert_quarantined(f, true, false);
}

/* In place, of the same size, and in the same tick of the clock: seen as well. */
static void test_edits_in_a_row(void **state)
{
	struct fixture *f = *state;
	uint64_t deadline = clock_now_usec() + DEADLINE_USEC;

	make_folder(f);
	write_text(f->path, FILE_OF(OUT4));
	open_store(f);
	for (int i = 0; i < 50; i++) {
		write_text(f->path, i % 2 ? FILE_OF(OUT4) : FILE_OF(OUT5));
		while (!health_is_quarantined(health_store_get(f->store), i % 2 ? vf4 : vf5))
			run_once(f, deadline);
	}
}

/* As on a kernel whose clock ticks between two looks: same file, size and time, other content. */
static void test_edit_within_a_tick(void **state)
{
	struct fixture *f = *state;

	make_folder(f);
	/* A machine that stands still for a moment may miss the tick in a round, not in all. */
	for (int round = 0; round < 20; round++) {
		struct timespec times[2];

		write_text(f->path, FILE_OF(OUT4));
		clock_gettime(CLOCK_REALTIME, &times[0]);
		times[1] = times[0];
		assert_int_equal(utimensat(AT_FDCWD, f->path, times, 0), 0);
		open_store(f);
		assert_quarantined(f, true, false);
		write_text(f->path, FILE_OF(OUT5));
		assert_int_equal(utimensat(AT_FDCWD, f->path, times, 0), 0);
		run_looks(f, 30);
		if (health_is_quarantined(health_store_get(f->store), vf5))
			return;
	}
	fail_msg("the edit was not noticed");
}

/* An edit that nobody has noticed yet goes before our change. */
static void test_edit_before_a_write(void **state)
{
	struct fixture *f = *state;
	struct health_store_config config = { .data_dir = f->dir,
					      .retry_usec = 3600 * USEC_PER_SEC,
					      .changed = on_changed,
					      .userdata = f };

	make_folder(f);
	write_text(f->path, FILE_OF());
	assert_int_equal(sd_event_new(&f->event), 0);
	assert_int_equal(worker_new(f->event, "test", &f->worker), 0);
	config.event = f->event;
	config.worker = f->worker;
	assert_int_equal(health_store_new(&config, &f->store, NULL), 0);
	wait_state(f, STORE_STATE_READY);
	write_text(f->path, FILE_OF(OUT5));
	assert_int_equal(change(f, vf4, false), -EAGAIN);
	assert_int_equal(f->n_changed, 2);
	assert_quarantined(f, false, true);
	assert_int_equal(change(f, vf4, false), 0);
	assert_quarantined(f, true, true);
	/* The same with one that is no good: it stays. */
	write_text(f->path, "{");
	assert_int_equal(change(f, vf4, true), -E_HEALTH_STORE_UNAVAILABLE);
	assert_int_equal(f->state, STORE_STATE_UNREADABLE);
	assert_text(f->path, "{", 1);
}

/* Gone is unreadable at the first look, and empty when it stays away: then a person has removed it.
 */
static void test_removed(void **state)
{
	struct fixture *f = *state;
	char folder[128], away[128];

	make_folder(f);
	write_text(f->path, FILE_OF(OUT4));
	open_store(f);
	assert_int_equal(unlink(f->path), 0);
	wait_changed(f, 1);
	assert_int_equal(f->state, STORE_STATE_UNREADABLE);
	wait_changed(f, 2);
	assert_int_equal(f->state, STORE_STATE_READY);
	assert_non_null(strstr(f->note, "removed"));
	assert_quarantined(f, false, false);
	assert_int_equal(change(f, vf5, false), 0);
	/* The same of a file that could not be used from the start. */
	write_text(f->path, "{");
	open_store(f);
	assert_int_equal(unlink(f->path), 0);
	wait_changed(f, 1);
	assert_int_equal(f->state, STORE_STATE_UNREADABLE);
	wait_state(f, STORE_STATE_READY);
	assert_non_null(strstr(f->note, "removed"));
	assert_int_equal(change(f, vf5, false), 0);
	/* The folder is another matter: a disk that is not mounted is not empty. */
	snprintf(folder, sizeof folder, "%s/gpu", f->dir);
	snprintf(away, sizeof away, "%s/away", f->dir);
	assert_int_equal(rename(folder, away), 0);
	wait_state(f, STORE_STATE_UNREADABLE);
	run_looks(f, 5);
	assert_int_equal(change(f, vf4, false), -E_HEALTH_STORE_UNAVAILABLE);
	assert_false(exists(folder));
	assert_int_equal(rename(away, folder), 0);
	wait_state(f, STORE_STATE_READY);
	assert_quarantined(f, false, true);
}

/* --- Left-overs ------------------------------------------------------------------- */

static void test_leftovers(void **state)
{
	struct fixture *f = *state;

	/* Beside a file in use: older than it, or never complete. */
	make_folder(f);
	write_text(f->path, FILE_OF(OUT4));
	write_text(f->tmp, FILE_OF(OUT5));
	open_store(f);
	assert_string_equal(f->note, "");
	assert_quarantined(f, true, false);
	assert_false(exists(f->tmp));
	close_store(f);
	/* Alone and whole: taken over. */
	assert_int_equal(rename(f->path, f->tmp), 0);
	open_store(f);
	assert_int_equal(f->state, STORE_STATE_READY);
	assert_non_null(strstr(f->note, "taken over"));
	assert_quarantined(f, true, false);
	assert_text(f->path, FILE_OF(OUT4), sizeof FILE_OF(OUT4) - 1);
	assert_false(exists(f->tmp));
	assert_int_equal(change(f, vf5, false), 0);
	close_store(f);
	/* Alone and cut: nothing was stored. */
	assert_int_equal(unlink(f->path), 0);
	write_text(f->tmp, "{\"version\":1,");
	open_store(f);
	assert_int_equal(f->state, STORE_STATE_READY);
	assert_non_null(strstr(f->note, "starting without records"));
	assert_quarantined(f, false, false);
	assert_false(exists(f->tmp));
	close_store(f);
	/* Beside a file that cannot be used it may be what a person needs. */
	write_text(f->path, "{");
	write_text(f->tmp, FILE_OF(OUT5));
	open_store(f);
	assert_int_equal(f->state, STORE_STATE_UNREADABLE);
	assert_text(f->tmp, FILE_OF(OUT5), sizeof FILE_OF(OUT5) - 1);
	assert_int_equal(rename(f->tmp, f->path), 0);
	wait_state(f, STORE_STATE_READY);
	assert_quarantined(f, false, true);
}

/* --- The worker's other jobs ------------------------------------------------------ */

static void slow_run(void *job _unused_)
{
	usleep(50000); /* a disk that takes its time; nothing waits for exactly this */
}

static void slow_done(void *job)
{
	*(bool *)job = true;
}

/* The loop goes on, and the change comes when the worker is free. */
static void test_busy_worker(void **state)
{
	struct fixture *f = *state;
	bool slow_is_done = false;

	open_store(f);
	assert_int_equal(worker_submit(f->worker, slow_run, slow_done, NULL, &slow_is_done), 0);
	assert_int_equal(change(f, vf4, false), 0);
	assert_true(slow_is_done);
	assert_quarantined(f, true, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_first_start),
		test(test_nothing_to_write),
		test(test_one_after_another),
		test(test_free_while_writing),
		test(test_edits),
		test(test_edits_in_a_row),
		test(test_edit_within_a_tick),
		test(test_edit_before_a_write),
		test(test_removed),
		test(test_leftovers),
		test(test_busy_worker),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
