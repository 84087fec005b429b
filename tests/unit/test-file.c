/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macro.h"

#include <cmocka.h>

/* In the place of libc's: what was made durable, in order. */
static struct {
	unsigned n;
	ino_t inode[4];
	off_t size_of_f[4]; /* size of "f" at that moment; -1: not there */
	int error;	    /* what to fail with; 0: not */
} synced;

int fsync(int fd)
{
	struct stat st, f;

	if (synced.error) {
		errno = synced.error;
		return -1;
	}
	fstat(fd, &st);
	if (synced.n < 4) {
		synced.inode[synced.n] = st.st_ino;
		synced.size_of_f[synced.n] = stat("f", &f) == 0 ? f.st_size : -1;
	}
	synced.n++;
	return 0;
}

static char folder[] = "/tmp/berth-test-file-XXXXXX";

/* Every test works inside a fresh folder. */
static int enter_folder(void **state)
{
	(void)state;
	memset(&synced, 0, sizeof synced);
	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int leave_folder(void **state)
{
	static const char *const files[] = { "f", "f.tmp", "l", "d/f", "d/e", "d", "b" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (unlink(files[i]) < 0)
			rmdir(files[i]);
	return chdir("/") == 0 && rmdir(folder) == 0 ? 0 : -1;
}

static void put(const char *path, const char *data, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, n), n);
	close(fd);
}

static void reads_whole_up_to_the_limit(void **state)
{
	static const size_t sizes[] = { 0, 1, 4094, 4095, 4096, 4097, 8191, 8192, 100000 };
	static char data[100000];

	(void)state;
	memset(data, 'x', sizeof data);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		char *text = NULL;
		size_t len = 0;

		put("f", data, sizes[i]);
		assert_int_equal(file_read_at(AT_FDCWD, "f", sizes[i], &text, &len), 0);
		assert_int_equal(len, sizes[i]);
		assert_memory_equal(text, data, len);
		assert_int_equal(text[len], '\0');
		free(text);
		text = NULL;
		if (sizes[i] > 0)
			assert_int_equal(file_read_at(AT_FDCWD, "f", sizes[i] - 1, &text, &len),
					 -EFBIG);
		assert_null(text);
	}
}

static void reads_into_a_buffer_with_room_for_nul(void **state)
{
	char buf[5];
	size_t len;

	(void)state;
	put("f", "1234", 4);
	assert_int_equal(file_read_into(AT_FDCWD, "f", buf, sizeof buf, &len), 0);
	assert_int_equal(len, 4);
	assert_string_equal(buf, "1234");
	put("f", "12345", 5);
	assert_int_equal(file_read_into(AT_FDCWD, "f", buf, sizeof buf, &len), -EFBIG);
	put("f", "", 0);
	assert_int_equal(file_read_into(AT_FDCWD, "f", buf, sizeof buf, NULL), 0);
	assert_string_equal(buf, "");
}

static void what_cannot_be_read_is_never_empty(void **state)
{
	char buf[8], *text = NULL;

	(void)state;
	assert_int_equal(mkdir("d", 0700), 0);
	assert_int_equal(file_read_at(AT_FDCWD, "none", 10, &text, NULL), -ENOENT);
	assert_int_equal(file_read_at(AT_FDCWD, "d", 10, &text, NULL), -EISDIR);
	assert_int_equal(file_read_at(-1, "f", 10, &text, NULL), -EBADF);
	assert_int_equal(file_read_into(AT_FDCWD, "none", buf, sizeof buf, NULL), -ENOENT);
	assert_int_equal(file_read_into(AT_FDCWD, "d", buf, sizeof buf, NULL), -EISDIR);
	assert_null(text);
	/* Without a writer a FIFO reads like an empty file. */
	assert_int_equal(mkfifo("l", 0600), 0);
	assert_int_equal(file_read_at(AT_FDCWD, "l", 10, &text, NULL), -EINVAL);
	assert_null(text);
}

static void reads_below_a_folder(void **state)
{
	char buf[8];
	int d;

	(void)state;
	assert_int_equal(mkdir("d", 0700), 0);
	put("d/f", "in", 2);
	d = open("d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(file_read_into(d, "f", buf, sizeof buf, NULL), 0);
	assert_string_equal(buf, "in");
	close(d);
}

static void replaces_whole_and_leaves_nothing_beside(void **state)
{
	char path[200], buf[16];
	struct stat st;

	(void)state;
	put("f", "old and longer", 14);
	put("f.tmp", "left behind by a crash", 22);
	assert_int_equal(file_replace("f", "new", 3, 0640), 0);
	assert_int_equal(file_read_into(AT_FDCWD, "f", buf, sizeof buf, NULL), 0);
	assert_string_equal(buf, "new");
	assert_int_equal(access("f.tmp", F_OK), -1);
	unlink("f");
	snprintf(path, sizeof path, "%s/f", folder);
	umask(0);
	assert_int_equal(file_replace(path, "", 0, 0640), 0);
	assert_int_equal(stat("f", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_int_equal(st.st_size, 0);
}

static void a_failed_replacement_changes_nothing(void **state)
{
	(void)state;
	assert_int_equal(file_replace("none/f", "x", 1, 0600), -ENOENT);
	assert_int_equal(mkdir("d", 0700), 0);
	put("d/f", "in", 2);
	assert_int_equal(file_replace("d", "x", 1, 0600), -EISDIR);
	assert_int_equal(access("d.tmp", F_OK), -1);
	assert_int_equal(access("d/f", F_OK), 0);
	/* A link in the place of the temporary file is not followed. */
	assert_int_equal(symlink("d/f", "f.tmp"), 0);
	assert_int_equal(file_replace("f", "x", 1, 0600), -ELOOP);
}

static void a_replacement_is_durable_before_it_shows(void **state)
{
	static const char *const paths[] = { "f", "./f", NULL };
	char absolute[200];
	struct stat here, f;

	(void)state;
	snprintf(absolute, sizeof absolute, "%s/f", folder);
	assert_int_equal(stat(".", &here), 0);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		memset(&synced, 0, sizeof synced);
		put("f", "old", 3);
		assert_int_equal(file_replace(paths[i] ?: absolute, "newer", 5, 0600), 0);
		assert_int_equal(stat("f", &f), 0);
		assert_int_equal(synced.n, 2);
		assert_int_equal(synced.inode[0], f.st_ino);
		assert_int_equal(synced.size_of_f[0], 3);
		assert_int_equal(synced.inode[1], here.st_ino);
		assert_int_equal(synced.size_of_f[1], 5);
	}
}

static void a_disk_that_fails_or_is_full_leaves_the_old_file(void **state)
{
	struct rlimit full = { .rlim_cur = 1000, .rlim_max = RLIM_INFINITY }, old;
	static char data[5000];
	char buf[16];

	(void)state;
	put("f", "old", 3);
	synced.error = EIO;
	assert_int_equal(file_replace("f", "new", 3, 0600), -EIO);
	synced.error = 0;
	assert_int_equal(access("f.tmp", F_OK), -1);
	getrlimit(RLIMIT_FSIZE, &old);
	full.rlim_max = old.rlim_max;
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &full);
	/* The first write is cut at the limit, the next one fails. */
	assert_int_equal(file_replace("f", data, sizeof data, 0600), -EFBIG);
	setrlimit(RLIMIT_FSIZE, &old);
	assert_int_equal(access("f.tmp", F_OK), -1);
	assert_int_equal(file_read_into(AT_FDCWD, "f", buf, sizeof buf, NULL), 0);
	assert_string_equal(buf, "old");
}

static void makes_folders_that_are_missing(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(file_make_dirs("d/e", 0750), 0);
	assert_int_equal(file_make_dirs("d/e", 0750), 0);
	assert_int_equal(file_make_dirs("d/e/", 0750), 0);
	assert_int_equal(file_make_dirs("/", 0750), 0);
	assert_int_equal(stat("d/e", &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	put("f", "", 0);
	assert_int_equal(file_make_dirs("f", 0750), -ENOTDIR);
	assert_int_equal(file_make_dirs("f/x", 0750), -ENOTDIR);
	assert_int_equal(file_make_dirs("", 0750), -ENOENT);
}

static void names_what_a_link_points_to(void **state)
{
	char name[8];

	(void)state;
	assert_int_equal(symlink("../../../bus/pci/drivers/nvidia", "l"), 0);
	assert_int_equal(file_link_basename(AT_FDCWD, "l", name, sizeof name), 0);
	assert_string_equal(name, "nvidia");
	assert_int_equal(file_link_basename(AT_FDCWD, "l", name, 6), -ENAMETOOLONG);
	unlink("l");
	assert_int_equal(symlink("plain", "l"), 0);
	assert_int_equal(file_link_basename(AT_FDCWD, "l", name, sizeof name), 0);
	assert_string_equal(name, "plain");
	assert_int_equal(file_link_basename(AT_FDCWD, "none", name, sizeof name), -ENOENT);
	put("f", "", 0);
	assert_int_equal(file_link_basename(AT_FDCWD, "f", name, sizeof name), -EINVAL);
}

static void a_replaced_file_is_known_by_its_stat(void **state)
{
	struct stat told, found;

	(void)state;
	assert_int_equal(file_replace_stat("f", "abc", 3, 0600, &told), 0);
	assert_int_equal(stat("f", &found), 0);
	assert_int_equal(told.st_ino, found.st_ino);
	assert_int_equal(told.st_size, 3);
	assert_memory_equal(&told.st_mtim, &found.st_mtim, sizeof told.st_mtim);
	told.st_ino = 0;
	assert_int_equal(file_replace_stat("none/f", "abc", 3, 0600, &told), -ENOENT);
	assert_int_equal(told.st_ino, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, enter_folder, leave_folder)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_replaced_file_is_known_by_its_stat),
		TEST(reads_whole_up_to_the_limit),
		TEST(reads_into_a_buffer_with_room_for_nul),
		TEST(what_cannot_be_read_is_never_empty),
		TEST(reads_below_a_folder),
		TEST(replaces_whole_and_leaves_nothing_beside),
		TEST(a_failed_replacement_changes_nothing),
		TEST(a_replacement_is_durable_before_it_shows),
		TEST(a_disk_that_fails_or_is_full_leaves_the_old_file),
		TEST(makes_folders_that_are_missing),
		TEST(names_what_a_link_points_to),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
