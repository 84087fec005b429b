/* SPDX-License-Identifier: Apache-2.0 */
/* Where console logs may lie, how they are opened without following links, and how old ones are
 * moved away. */
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
#include "base/file.h"
#include "base/str.h"
#include "host/console-path.h"
#include "host/console-tail.h"

struct fixture {
	char base[64];
	char dir[80];
	char path[128], first[128]; /* a log, and its ".1" */
	const char *dirs[1];
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);

	*state = f;
	if (!f)
		return -1;
	str_copy_cut(f->base, sizeof f->base, "/tmp/test-console-path-XXXXXX");
	if (!mkdtemp(f->base))
		return -1;
	snprintf(f->dir, sizeof f->dir, "%s/console", f->base);
	snprintf(f->path, sizeof f->path, "%s/vm.log", f->dir);
	snprintf(f->first, sizeof f->first, "%s/vm.log.1", f->dir);
	f->dirs[0] = f->dir;
	return mkdir(f->dir, 0755);
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	char command[128];

	snprintf(command, sizeof command, "rm -rf %s", f->base);
	free(f);
	return system(command);
}

static void append(const char *path, const char *text)
{
	_close_ int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

/* --- Paths
 * -------------------------------------------------------------------------------------------------
 */

static void test_path_check(void **state _unused_)
{
	static const char *const dirs[] = { "/var/log/berth/", "/var/log//libvirt/qemu",
					    "relative" };
	static const char *const good[] = {
		"/var/log/berth/a",	    "/var/log/berth/a/b.log", "/var/log//berth///a",
		"/var/log/libvirt/qemu/vm", "/var/log/berth/..a/b..", "/var/log/berth/.hidden",
	};
	static const char *const bad[] = {
		"",
		"a",
		"relative/a",
		"/",
		"/var/log/berth",
		"/var/log/berth/",
		"/var/log/berth//",
		"/var/log/berth/..",
		"/var/log/berth/../x",
		"/var/log/berth/a/../b",
		"/var/log/berth/./a",
		"/var/log/berth/.",
		"/var/log/berth/a/",
		"/var/log/berthx/a",
		"/var/log/bert/a",
		"/var/log/x",
		"/var/./log/berth/a",
		"/var/log/berth2/../berth/a",
		"var/log/berth/a",
		"/VAR/log/berth/a",
	};
	char longest[2048] = "/var/log/berth/";
	struct error err = ERROR_INIT;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		if (console_path_check(dirs, 3, good[i], &err) != 0)
			fail_msg("refused: %s", good[i]);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (console_path_check(dirs, 3, bad[i], &err) != -EACCES)
			fail_msg("accepted: %s", bad[i]);
	assert_non_null(strstr(err.msg, "console_dirs"));
	assert_int_equal(console_path_check(NULL, 0, good[0], NULL), -EACCES);
	memset(longest + 15, 'x', 256);
	assert_int_equal(console_path_check(dirs, 3, longest, NULL), -EACCES);
	longest[15 + 255] = '\0';
	assert_int_equal(console_path_check(dirs, 3, longest, NULL), 0);
	for (size_t i = 15; i < sizeof longest - 1; i++)
		longest[i] = i % 2 ? 'x' : '/';
	assert_int_equal(console_path_check(dirs, 3, longest, NULL), -EACCES);
}

/* With openat2 and without it. */
static void test_beneath(void **state)
{
	struct fixture *f = *state;
	int (*const open_it[])(int, const char *, int) = { console_open_beneath,
							   console_open_by_component };
	_close_ int dir_fd = open(f->base, O_RDONLY | O_DIRECTORY);
	char path[128];

	snprintf(path, sizeof path, "%s/link", f->base);
	assert_int_equal(symlink("console", path), 0);
	snprintf(path, sizeof path, "%s/console/sub", f->base);
	assert_int_equal(mkdir(path, 0755), 0);
	append(f->path, "x");
	snprintf(path, sizeof path, "%s/console/alias", f->base);
	assert_int_equal(symlink("vm.log", path), 0);
	for (int i = 0; i < 2; i++) {
		int fd = open_it[i](dir_fd, "console/vm.log", O_RDONLY);

		assert_true(fd >= 0);
		assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
		close(fd);
		fd = open_it[i](dir_fd, "console//sub", O_RDONLY | O_DIRECTORY);
		assert_true(fd >= 0);
		close(fd);
		assert_int_equal(open_it[i](dir_fd, "console/alias", O_RDONLY), -ELOOP);
		fd = open_it[i](dir_fd, "link/vm.log", O_RDONLY);
		assert_true(fd == -ELOOP || fd == -ENOTDIR);
		assert_int_equal(open_it[i](dir_fd, "console/none", O_RDONLY), -ENOENT);
		assert_int_equal(open_it[i](dir_fd, "none/vm.log", O_RDONLY), -ENOENT);
		assert_int_equal(open_it[i](dir_fd, "console/vm.log/x", O_RDONLY), -ENOTDIR);
		assert_int_equal(open_it[i](dir_fd, "../etc/passwd", O_RDONLY), -EXDEV);
		assert_true(open_it[i](dir_fd, "console/sub/../../../etc/passwd", O_RDONLY) < 0);
	}
}

/* Of nested folders the innermost counts, so a link on the way to it is the operator's. */
static void test_nested_folders(void **state)
{
	struct fixture *f = *state;
	char inner[128], path[160], real[128];
	const char *const dirs[] = { f->dir, inner };
	struct stat st;
	int fd;

	snprintf(real, sizeof real, "%s/real", f->base);
	snprintf(inner, sizeof inner, "%s/inner", f->dir);
	snprintf(path, sizeof path, "%s/vm.log", inner);
	assert_int_equal(mkdir(real, 0755), 0);
	assert_int_equal(symlink(real, inner), 0);
	append(path, "x");
	assert_true(console_open(dirs, 1, path, &st, &fd) < 0);
	assert_int_equal(console_open(dirs, 2, path, &st, &fd), 0);
	close(fd);
}

/* --- Archives
 * ------------------------------------------------------------------------------------------------
 */

static int archive(struct fixture *f)
{
	struct error err = ERROR_INIT;
	int r = console_archive(f->dirs, 1, f->path, &err);

	assert_int_equal(r < 0, err.msg[0] != '\0');
	return r;
}

static void assert_archive(struct fixture *f, int number, const char *expected)
{
	char path[160], text[64] = "";
	size_t n;

	snprintf(path, sizeof path, number ? "%s.%d" : "%s", f->path, number);
	if (!expected)
		assert_int_equal(access(path, F_OK), -1);
	else
		assert_int_equal(file_read_into(AT_FDCWD, path, text, sizeof text, &n), 0);
	assert_string_equal(text, expected ?: "");
}

static void test_archive(void **state)
{
	struct fixture *f = *state;
	char text[16];

	assert_int_equal(archive(f), 0); /* none there */
	for (int i = 1; i <= 12; i++) {
		snprintf(text, sizeof text, "boot %d", i);
		append(f->path, text);
		assert_int_equal(archive(f), 0);
		assert_archive(f, 0, NULL);
		for (int k = 1; k <= 10; k++) {
			snprintf(text, sizeof text, "boot %d", i + 1 - k);
			assert_archive(f, k, k <= 9 && k <= i ? text : NULL);
		}
	}
	/* A gap is filled before the oldest goes. */
	snprintf(text, sizeof text, "%s", "");
	assert_int_equal(unlink(f->first), 0);
	append(f->path, "now");
	assert_int_equal(archive(f), 0);
	assert_archive(f, 1, "now");
	assert_archive(f, 2, "boot 11");
	assert_archive(f, 9, "boot 4");
	append(f->path, ""); /* an empty one too: its writer may not be done */
	assert_int_equal(archive(f), 0);
	assert_archive(f, 1, "");
	assert_archive(f, 9, "boot 5");
}

static void test_archive_refused(void **state)
{
	struct fixture *f = *state;
	const char *const none[] = { "/nonexistent/folder" };
	char target[128], outside[128], sub[160];

	snprintf(target, sizeof target, "%s/target", f->base);
	append(target, "keep");
	assert_int_equal(symlink("../target", f->path), 0);
	assert_int_equal(archive(f), -ELOOP);
	assert_int_equal(access(f->first, F_OK), -1);
	assert_int_equal(unlink(f->path), 0);
	assert_int_equal(mkdir(f->path, 0755), 0);
	assert_int_equal(archive(f), -ENOTSUP);
	assert_int_equal(rmdir(f->path), 0);
	snprintf(outside, sizeof outside, "%s/console/../target", f->base);
	assert_int_equal(console_archive(f->dirs, 1, outside, NULL), -EACCES);
	assert_int_equal(console_archive(f->dirs, 1, target, NULL), -EACCES);
	assert_int_equal(console_archive(none, 1, "/nonexistent/folder/vm.log", NULL), 0);
	snprintf(sub, sizeof sub, "%s/sub", f->dir);
	assert_int_equal(symlink("..", sub), 0);
	snprintf(sub, sizeof sub, "%s/sub/target", f->dir);
	assert_true(console_archive(f->dirs, 1, sub, NULL) < 0);
	assert_int_equal(access(target, F_OK), 0);
	/* ".1" is a folder with something in it, and so are all behind it: cannot be shifted over
	 * the last. */
	append(f->path, "log");
	for (int i = 1; i <= 9; i++) {
		snprintf(sub, sizeof sub, "%s.%d", f->path, i);
		assert_int_equal(mkdir(sub, 0755), 0);
		snprintf(sub, sizeof sub, "%s.%d/x", f->path, i);
		append(sub, "x");
	}
	assert_true(archive(f) < 0);
	assert_archive(f, 0, "log");
}

#define test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_path_check), test(test_beneath),
		test(test_nested_folders),	   test(test_archive),
		test(test_archive_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
