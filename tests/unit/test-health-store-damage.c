/* SPDX-License-Identifier: Apache-2.0 */
/* vf-health.json damaged, in the way, unreadable, and on disks that are full or read-only. */
#include <sched.h>
#include <sys/mount.h>

#include "health-store-fixture.h"

#define NOBODY 65534

static bool may_mount; /* in a mount namespace of our own */

/* --- Damage ----------------------------------------------------------------------- */

/* Unreadable, explained, refused, left as it is, and in use again once mended. */
static void assert_fails_closed(struct fixture *f, const char *text, size_t n)
{
	wait_state(f, STORE_STATE_UNREADABLE);
	assert_non_null(strstr(health_store_reason(f->store), "vf-health.json"));
	assert_int_equal(change(f, vf5, false), -E_HEALTH_STORE_UNAVAILABLE);
	assert_non_null(strstr(f->message, "vf-health.json"));
	assert_text(f->path, text, n);
	assert_false(exists(f->tmp));
}

static void test_cut_anywhere(void **state)
{
	struct fixture *f = *state;
	static const char whole[] = FILE_OF(OUT4);

	make_folder(f);
	write_text(f->path, "");
	open_store(f);
	for (size_t n = 0; n < sizeof whole - 1; n++) {
		write_n(f->path, whole, n);
		assert_fails_closed(f, whole, n);
		assert_non_null(strstr(health_store_reason(f->store), ": byte "));
		if (n % 16 > 0)
			continue;
		write_text(f->path, whole);
		wait_state(f, STORE_STATE_READY);
		assert_quarantined(f, true, false);
	}
}

static void test_damaged_at_start(void **state)
{
	struct fixture *f = *state;
	static const char nuls[4096];
	static const struct {
		const char *text;
		size_t n;
	} cases[] = {
		{ "", 0 },
		{ nuls, sizeof nuls },
		{ FILE_OF(OUT4) "\0\0", sizeof FILE_OF(OUT4) + 1 },
		{ FILE_OF(OUT4) "\"}", sizeof FILE_OF(OUT4) + 1 },
		{ FILE_OF(OUT4 "," OUT4), sizeof FILE_OF(OUT4 "," OUT4) - 1 },
		{ "{\"version\":2,\"records\":[]}", 26 },
		{ "\xef\xbb\xbf" FILE_OF(), sizeof FILE_OF() + 2 },
	};

	make_folder(f);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		write_n(f->path, cases[i].text, cases[i].n);
		open_store(f);
		assert_int_equal(f->state, STORE_STATE_UNREADABLE);
		assert_fails_closed(f, cases[i].text, cases[i].n);
		run_looks(f, 4);
		assert_int_equal(f->n_changed, 1); /* told once, not at each look */
		write_text(f->path, FILE_OF(OUT5));
		wait_state(f, STORE_STATE_READY);
		assert_quarantined(f, false, true);
		assert_int_equal(change(f, vf5, true), 0);
	}
}

static void test_no_plain_file(void **state)
{
	struct fixture *f = *state;

	make_folder(f);
	assert_int_equal(mkdir(f->path, 0755), 0);
	open_store(f);
	assert_int_equal(f->state, STORE_STATE_UNREADABLE);
	assert_int_equal(rmdir(f->path), 0);
	assert_int_equal(mkfifo(f->path, 0644), 0);
	run_looks(f, 5);
	assert_int_equal(health_store_get_state(f->store), STORE_STATE_UNREADABLE);
	assert_int_equal(unlink(f->path), 0);
	/* Of a link it would not be the link's target that is replaced, and a broken one would look
	 * empty. */
	assert_int_equal(symlink("/nonexistent", f->path), 0);
	run_looks(f, 5);
	assert_int_equal(health_store_get_state(f->store), STORE_STATE_UNREADABLE);
	assert_int_equal(unlink(f->path), 0);
	write_text(f->path, FILE_OF());
	wait_state(f, STORE_STATE_READY);
}

static void test_folder_is_a_file(void **state)
{
	struct fixture *f = *state;
	char folder[128];

	snprintf(folder, sizeof folder, "%s/gpu", f->dir);
	write_text(folder, "");
	open_store(f);
	assert_int_equal(f->state, STORE_STATE_UNREADABLE);
	assert_int_equal(change(f, vf4, false), -E_HEALTH_STORE_UNAVAILABLE);
	assert_int_equal(unlink(folder), 0);
	wait_state(f, STORE_STATE_READY);
	assert_int_equal(change(f, vf4, false), 0);
}

/* --- Disks
 * ------------------------------------------------------------------------------------------------
 */

/* Nothing changed anywhere, unavailable until a write works again, which is tried without being
 * asked. */
static void assert_latched(struct fixture *f, int code)
{
	uint64_t deadline = clock_now_usec() + DEADLINE_USEC;
	_free_ char *before = NULL, *after = NULL;
	size_t n;

	assert_int_equal(file_read_at(AT_FDCWD, f->path, 1 << 20, &before, &n), 0);
	assert_int_equal(change(f, vf5, false), code);
	assert_int_equal(health_store_get_state(f->store), STORE_STATE_UNREADABLE);
	assert_non_null(strstr(health_store_reason(f->store), "writing it"));
	assert_int_equal(change(f, vf5, false), -E_HEALTH_STORE_UNAVAILABLE);
	run_looks(f, 5);
	assert_int_equal(f->state, STORE_STATE_UNREADABLE);
	assert_int_equal(file_read_at(AT_FDCWD, f->path, 1 << 20, &after, &n), 0);
	assert_string_equal(before, after);
	assert_true(clock_now_usec() < deadline);
}

static void assert_mended(struct fixture *f)
{
	wait_state(f, STORE_STATE_READY);
	assert_quarantined(f, true, false);
	assert_int_equal(change(f, vf5, false), 0);
	assert_quarantined(f, true, true);
}

static void test_temporary_cannot_be_made(void **state)
{
	struct fixture *f = *state;

	open_store(f);
	assert_int_equal(change(f, vf4, false), 0);
	assert_int_equal(mkdir(f->tmp, 0755), 0);
	assert_latched(f, -EISDIR);
	/* Edited meanwhile: loaded, and still unavailable. */
	replace_text(f->path, FILE_OF(OUT4) "\n");
	run_looks(f, 5);
	assert_int_equal(health_store_get_state(f->store), STORE_STATE_UNREADABLE);
	assert_int_equal(rmdir(f->tmp), 0);
	assert_mended(f);
}

static void become(uid_t uid)
{
	if (getuid() == 0)
		assert_int_equal(seteuid(uid), 0);
}

static void test_no_permission(void **state)
{
	struct fixture *f = *state;
	char folder[128];

	open_store(f);
	assert_int_equal(change(f, vf4, false), 0);
	snprintf(folder, sizeof folder, "%s/gpu", f->dir);
	assert_int_equal(chmod(f->dir, 0755), 0);
	assert_int_equal(chmod(folder, 0555), 0);
	become(NOBODY);
	assert_latched(f, -EACCES);
	become(0);
	assert_int_equal(chmod(folder, 0755), 0);
	assert_mended(f);
	/* A file that may not be read is not an empty one. */
	close_store(f);
	assert_int_equal(chmod(f->path, 0), 0);
	become(NOBODY);
	open_store(f);
	become(0);
	assert_int_equal(f->state, STORE_STATE_UNREADABLE);
	assert_int_equal(chmod(f->path, 0644), 0);
	wait_state(f, STORE_STATE_READY);
	assert_quarantined(f, true, true);
}

static void fill(const char *path)
{
	_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	static const char block[4096] = { 1 };

	assert_true(fd >= 0);
	while (write(fd, block, sizeof block) > 0)
		continue;
	assert_int_equal(errno, ENOSPC);
}

static void test_full_disk(void **state)
{
	struct fixture *f = *state;
	char filler[128];

	if (!may_mount)
		skip();
	assert_int_equal(mount("test", f->dir, "tmpfs", 0, "size=64k"), 0);
	open_store(f);
	assert_int_equal(change(f, vf4, false), 0);
	snprintf(filler, sizeof filler, "%s/filler", f->dir);
	fill(filler);
	assert_latched(f, -ENOSPC);
	assert_false(exists(f->tmp));
	assert_int_equal(unlink(filler), 0);
	assert_mended(f);
	close_store(f);
	assert_int_equal(umount(f->dir), 0);
}

static void test_read_only_disk(void **state)
{
	struct fixture *f = *state;

	if (!may_mount)
		skip();
	assert_int_equal(mount("test", f->dir, "tmpfs", 0, "size=64k"), 0);
	open_store(f);
	assert_int_equal(change(f, vf4, false), 0);
	assert_int_equal(mount("test", f->dir, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	assert_latched(f, -EROFS);
	/* What is there can be read from the start. */
	open_store(f);
	assert_int_equal(f->state, STORE_STATE_READY);
	assert_quarantined(f, true, false);
	assert_latched(f, -EROFS);
	assert_int_equal(mount("test", f->dir, NULL, MS_REMOUNT, NULL), 0);
	assert_mended(f);
	close_store(f);
	assert_int_equal(umount(f->dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_cut_anywhere),
		test(test_damaged_at_start),
		test(test_no_plain_file),
		test(test_folder_is_a_file),
		test(test_temporary_cannot_be_made),
		test(test_no_permission),
		test(test_full_disk),
		test(test_read_only_disk),
	};

	may_mount = unshare(CLONE_NEWNS) == 0 &&
		    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
