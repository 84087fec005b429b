/* SPDX-License-Identifier: Apache-2.0 */
/* Console logs followed by the thread: word from the kernel, scans, many logs, a slow loop, coming
 * and going. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "host/console-tail.h"

#define DEADLINE_USEC (30 * USEC_PER_SEC)
#define NEVER	      (3600 * USEC_PER_SEC) /* no scan: what comes, comes by word from the kernel */
#define SCAN_USEC     (20 * USEC_PER_MSEC)
#define LOGS_MAX      64

struct fixture {
	char base[64];
	char dir[80];
	sd_event *event;
	struct console_tail *tail;
	unsigned n_lines, n_passes, n_since_pass, n_trouble;
	char last[256];	 /* line, with its key */
	char lines[512]; /* all, while they fit */
	unsigned of_log[LOGS_MAX];
	unsigned numbered; /* lines "@ N" must come in order */
	int trouble;
	const char *remove_at; /* the log is removed from within this function */
};

static void on_line(const char *key, const char *line, size_t len, void *userdata)
{
	struct fixture *f = userdata;

	f->n_lines++;
	f->n_since_pass++;
	snprintf(f->last, sizeof f->last, "%s:%.*s", key, (int)len, line);
	if (strlen(f->lines) + len < sizeof f->lines - 2)
		snprintf(f->lines + strlen(f->lines), sizeof f->lines - strlen(f->lines), "%.*s|",
			 (int)len, line);
	if (str_starts_with(f->last, "numbered:@ "))
		assert_int_equal(strtoul(f->last + 11, NULL, 10), f->numbered++);
	if (str_starts_with(key, "vm-"))
		f->of_log[strtoul(key + 3, NULL, 10) % LOGS_MAX]++;
	if (f->remove_at && strcmp(f->remove_at, "line") == 0)
		console_tail_remove(f->tail, key);
}

static void on_pass(const char *key, void *userdata)
{
	struct fixture *f = userdata;

	f->n_passes++;
	assert_true(f->n_since_pass > 0);
	f->n_since_pass = 0;
	if (f->remove_at && strcmp(f->remove_at, "pass") == 0)
		console_tail_remove(f->tail, key);
}

static void on_trouble(const char *key, const struct error *err, void *userdata)
{
	struct fixture *f = userdata;

	assert_non_null(key);
	f->n_trouble++;
	f->trouble = err->code;
	assert_int_equal(err->code != 0, err->msg[0] != '\0');
	if (f->remove_at && strcmp(f->remove_at, "trouble") == 0)
		console_tail_remove(f->tail, key);
}

static void start(struct fixture *f, uint64_t scan_usec)
{
	const char *dirs[] = { f->dir };
	struct console_tail_config config = {
		.event = f->event,
		.dirs = dirs,
		.n_dirs = 1,
		.scan_usec = scan_usec,
		.line_max = 128,
		.needle = "@",
		.line = on_line,
		.pass = on_pass,
		.trouble = on_trouble,
		.userdata = f,
	};

	f->tail = console_tail_free(f->tail);
	assert_int_equal(console_tail_new(&config, &f->tail, NULL), 0);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);

	*state = f;
	if (!f)
		return -1;
	str_copy_cut(f->base, sizeof f->base, "/tmp/test-console-tail-XXXXXX");
	if (!mkdtemp(f->base))
		return -1;
	snprintf(f->dir, sizeof f->dir, "%s/console", f->base);
	if (mkdir(f->dir, 0755) < 0 || sd_event_new(&f->event) < 0)
		return -1;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	char command[128];

	console_tail_free(f->tail);
	sd_event_unref(f->event);
	snprintf(command, sizeof command, "rm -rf %s", f->base);
	free(f);
	return system(command);
}

static const char *path_of(const struct fixture *f, const char *name)
{
	static char path[160];

	snprintf(path, sizeof path, "%s/%s", f->dir, name);
	return path;
}

static void append(const struct fixture *f, const char *name, const char *text)
{
	_close_ int fd = open(path_of(f, name), O_WRONLY | O_CREAT | O_APPEND, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void move(const struct fixture *f, const char *from, const char *to)
{
	_close_ int dir = open(f->dir, O_RDONLY | O_DIRECTORY);

	assert_int_equal(renameat(dir, from, dir, to), 0);
}

static void add(struct fixture *f, const char *key, const char *name)
{
	struct error err = ERROR_INIT;

	if (console_tail_add(f->tail, key, path_of(f, name), &err) < 0)
		fail_msg("%s", err.msg);
}

static void run_once(struct fixture *f, uint64_t deadline)
{
	if (clock_now_usec() >= deadline)
		fail_msg("nothing happened after %u lines, %u passes", f->n_lines, f->n_passes);
	assert_true(sd_event_run(f->event, 100 * USEC_PER_MSEC) >= 0);
}

static void wait_passes(struct fixture *f, unsigned n)
{
	uint64_t deadline = clock_now_usec() + DEADLINE_USEC;

	while (f->n_passes < n)
		run_once(f, deadline);
}

static void wait_last(struct fixture *f, const char *last)
{
	uint64_t deadline = clock_now_usec() + DEADLINE_USEC;

	while (strcmp(f->last, last) != 0)
		run_once(f, deadline);
}

static void run_for(struct fixture *f, uint64_t usec)
{
	uint64_t until = clock_now_usec() + usec;

	while (clock_now_usec() < until)
		assert_true(sd_event_run(f->event, 5 * USEC_PER_MSEC) >= 0);
}

/* --- Word from the kernel --------------------------------------------------------- */

static void test_events(void **state)
{
	struct fixture *f = *state;

	start(f, NEVER);
	append(f, "a", "@1\n");
	add(f, "one", "a");
	wait_last(f, "one:@1");
	append(f, "a", "@2\n");
	wait_last(f, "one:@2");
	for (int i = 0; i < 20; i++) {
		char text[32], last[32];

		snprintf(text, sizeof text, "x\n@ev %d\n", i);
		snprintf(last, sizeof last, "one:@ev %d", i);
		append(f, "a", text);
		wait_last(f, last);
	}
	/* Truncated, renamed, replaced. */
	assert_int_equal(truncate(path_of(f, "a"), 0), 0);
	append(f, "a", "@3\n");
	wait_last(f, "one:@3");
	move(f, "a", "a.1");
	append(f, "a.1", "@4\n");
	append(f, "a", "@5\n");
	wait_last(f, "one:@5");
	append(f, "b", "@6\n");
	move(f, "b", "a");
	wait_last(f, "one:@6");
	assert_non_null(strstr(f->lines, "@4|@5|@6|"));
	assert_int_equal(f->n_trouble, 0);
}

static void test_created_later(void **state)
{
	struct fixture *f = *state;

	start(f, NEVER);
	add(f, "late", "late");
	add(f, "early", "early");
	append(f, "early", "@0\n");
	wait_last(f, "early:@0");
	append(f, "late", "@1\n");
	wait_last(f, "late:@1");
	append(f, "late", "@2\n");
	wait_last(f, "late:@2");
}

/* Two claims that name one file: both are told, also after one has gone. */
static void test_shared_file(void **state)
{
	struct fixture *f = *state;

	start(f, NEVER);
	add(f, "vm-1", "a");
	add(f, "vm-2", "a");
	append(f, "a", "@1\n");
	wait_passes(f, 2);
	append(f, "a", "@2\n");
	wait_passes(f, 4);
	console_tail_remove(f->tail, "vm-1");
	append(f, "a", "@3\n");
	wait_passes(f, 5);
	assert_int_equal(f->of_log[1], 2);
	assert_int_equal(f->of_log[2], 3);
}

/* --- Scans
 * ------------------------------------------------------------------------------------------------
 */

/* The folder comes later, and is another one later still. */
static void test_scans(void **state)
{
	struct fixture *f = *state;

	start(f, SCAN_USEC);
	add(f, "deep", "sub/log");
	run_for(f, 3 * SCAN_USEC);
	assert_int_equal(mkdir(path_of(f, "sub"), 0755), 0);
	append(f, "sub/log", "@1\n");
	wait_last(f, "deep:@1");
	move(f, "sub", "away");
	run_for(f, 3 * SCAN_USEC);
	assert_int_equal(f->n_trouble, 0);
	assert_int_equal(mkdir(path_of(f, "sub"), 0755), 0);
	append(f, "sub/log", "@2\n");
	wait_last(f, "deep:@2");
}

/* No inotify instance left for us: looked at in each scan. */
static void test_without_inotify(void **state)
{
	struct fixture *f = *state;
	int fds[900], n = 0;

	while (n < (int)ARRAY_SIZE(fds) && (fds[n] = inotify_init1(IN_CLOEXEC)) >= 0)
		n++;
	if (n < (int)ARRAY_SIZE(fds)) {
		start(f, SCAN_USEC);
		add(f, "one", "a");
		append(f, "a", "@1\n");
		wait_last(f, "one:@1");
		append(f, "a", "@2\n");
		wait_last(f, "one:@2");
	}
	while (n > 0)
		close(fds[--n]);
}

static void test_trouble(void **state)
{
	struct fixture *f = *state;
	uint64_t deadline = clock_now_usec() + DEADLINE_USEC;

	start(f, SCAN_USEC);
	append(f, "secret", "@secret\n");
	assert_int_equal(symlink("secret", path_of(f, "a")), 0);
	add(f, "one", "a");
	while (f->n_trouble == 0)
		run_once(f, deadline);
	assert_int_equal(f->trouble, ELOOP);
	run_for(f, 4 * SCAN_USEC);
	assert_int_equal(f->n_trouble, 1);
	assert_int_equal(unlink(path_of(f, "a")), 0);
	append(f, "a", "@1\n");
	wait_last(f, "one:@1");
	while (f->n_trouble == 1)
		run_once(f, deadline);
	assert_int_equal(f->trouble, 0);
	assert_int_equal(f->n_lines, 1);
}

/* --- Coming and going ------------------------------------------------------------- */

static void test_add_and_remove(void **state)
{
	struct fixture *f = *state;
	struct error err = ERROR_INIT;

	start(f, NEVER);
	assert_int_equal(console_tail_add(f->tail, "one", "/etc/passwd", &err), -EACCES);
	assert_int_equal(console_tail_add(f->tail, "one", path_of(f, "../x"), &err), -EACCES);
	append(f, "a", "@1\n");
	add(f, "one", "a");
	assert_int_equal(console_tail_add(f->tail, "one", path_of(f, "b"), &err), -EEXIST);
	wait_last(f, "one:@1");
	console_tail_remove(f->tail, "other");
	console_tail_remove(f->tail, "one");
	append(f, "a", "@2\n");
	/* The same name again, another assignment: from the beginning, and nothing of before. */
	add(f, "one", "a");
	wait_last(f, "one:@2");
	assert_string_equal(f->lines, "@1|@1|@2|");
	/* What is on its way when a log is given up does not arrive. */
	for (int i = 0; i < 200; i++) {
		unsigned before = f->n_lines;

		append(f, "a", "@again\n");
		console_tail_remove(f->tail, "one");
		run_for(f, i % 50 ? 0 : 5 * USEC_PER_MSEC);
		assert_int_equal(f->n_lines, before);
		add(f, "one", "a");
	}
	f->last[0] = '\0';
	append(f, "a", "@end\n");
	wait_last(f, "one:@end");
}

static void test_remove_from_within(void **state)
{
	struct fixture *f = *state;
	static const char *const where[] = { "line", "pass", "trouble" };

	start(f, SCAN_USEC);
	append(f, "a", "@1\n@2\n@3\n");
	assert_int_equal(symlink("a", path_of(f, "link")), 0);
	for (size_t i = 0; i < ARRAY_SIZE(where); i++) {
		uint64_t deadline = clock_now_usec() + DEADLINE_USEC;

		f->n_lines = f->n_passes = f->n_trouble = f->n_since_pass = 0;
		f->remove_at = where[i];
		add(f, "one", i == 2 ? "link" : "a");
		while (f->n_lines + f->n_trouble == 0)
			run_once(f, deadline);
		run_for(f, 3 * SCAN_USEC);
		assert_int_equal(f->n_lines, i == 0 ? 1 : i == 1 ? 3 : 0);
		assert_int_equal(f->n_passes, i == 1);
		assert_int_equal(f->n_trouble, i == 2);
		/* It is gone, so its name is free. */
		f->remove_at = NULL;
		add(f, "one", "b");
		console_tail_remove(f->tail, "one");
	}
}

static void test_free_at_any_time(void **state)
{
	struct fixture *f = *state;

	assert_null(console_tail_free(NULL));
	for (int i = 0; i < 4000; i++)
		append(f, "a", "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\n");
	for (int i = 0; i < 20; i++) {
		start(f, SCAN_USEC);
		add(f, "one", "a");
		add(f, "two", "none");
		if (i % 2)
			assert_true(sd_event_run(f->event, (uint64_t)i * USEC_PER_MSEC) >= 0);
		f->tail = console_tail_free(f->tail);
	}
}

/* --- Much
 * -------------------------------------------------------------------------------------------------
 */

static size_t resident_bytes(void)
{
	char text[128], *end;
	size_t n;

	assert_int_equal(file_read_into(AT_FDCWD, "/proc/self/statm", text, sizeof text, &n), 0);
	(void)strtoul(text, &end, 10); /* size; then what is resident */
	return strtoul(end, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

static bool is_instrumented(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return true;
#else
	return false;
#endif
}

/* The loop does not run: the log is read no further, and nothing is lost when it does. */
static void test_slow_loop(void **state)
{
	struct fixture *f = *state;
	_close_ int fd = open(path_of(f, "a"), O_WRONLY | O_CREAT | O_APPEND, 0644);
	uint64_t deadline = clock_now_usec() + DEADLINE_USEC;
	_buf_ struct buf text = BUF_INIT;
	unsigned n = 60000;

	for (unsigned i = 0; i < n; i++)
		buf_printf(&text, "@ %u and so on\nbetween\n", i);
	assert_int_equal(buf_finish(&text), 0);
	start(f, NEVER); /* so that only the loop's word lets it go on */
	add(f, "numbered", "a");
	add(f, "vm-1", "b");
	assert_int_equal(write(fd, text.data, text.len), (ssize_t)text.len);
	append(f, "b", "@\n");
	/* One log full of lines holds up no other. */
	while (f->of_log[1] == 0)
		run_once(f, deadline);
	assert_true(f->numbered < n);
	while (f->numbered < n)
		run_once(f, deadline);
	assert_int_equal(f->n_lines, n + 1);
}

/* 64 logs, many bytes at once and a marker at the end of each: found, in little memory. */
static void test_many_logs(void **state)
{
	struct fixture *f = *state;
	uint64_t deadline = clock_now_usec() + DEADLINE_USEC;
	_free_ char *filler = malloc(1 << 19);
	size_t before, after;

	assert_non_null(filler);
	memset(filler, 'x', 1 << 19);
	for (size_t i = 79; i < 1 << 19; i += 80)
		filler[i] = '\n';
	filler[(1 << 19) - 1] = '\n';
	before = resident_bytes();
	start(f, SCAN_USEC);
	for (unsigned i = 0; i < LOGS_MAX; i++) {
		char name[16];
		_close_ int fd = -1;

		snprintf(name, sizeof name, "vm-%u", i);
		fd = open(path_of(f, name), O_WRONLY | O_CREAT | O_APPEND, 0644);
		assert_true(fd >= 0);
		add(f, name, name);
		assert_int_equal(write(fd, filler, 1 << 19), 1 << 19);
		assert_int_equal(write(fd, "@\n@\n", 4), 4);
	}
	while (f->n_lines < 2 * LOGS_MAX)
		run_once(f, deadline);
	after = resident_bytes();
	for (unsigned i = 0; i < LOGS_MAX; i++)
		assert_int_equal(f->of_log[i], 2);
	if (!is_instrumented() && after > before + (2U << 20))
		fail_msg("%zu KiB more resident", (after - before) / 1024);
}

/* New folders are for logs that come; those that are followed stay. And an interval that got
 * shorter holds at once: the scan of the long one would come in an hour. */
static void test_configure(void **state)
{
	struct fixture *f = *state;
	const char *other[] = { f->base };
	char path[128];

	start(f, NEVER);
	add(f, "kept", "sub/kept"); /* without its folder only scans find it */
	snprintf(path, sizeof path, "%s/new", f->base);
	assert_int_equal(console_tail_add(f->tail, "new", path, NULL), -EACCES);
	assert_int_equal(console_tail_configure(f->tail, other, 1, SCAN_USEC), 0);
	assert_int_equal(console_tail_configure(f->tail, other, 1, SCAN_USEC), 0);
	assert_int_equal(console_tail_add(f->tail, "new", path, NULL), 0);
	assert_int_equal(console_tail_configure(f->tail, NULL, 0, SCAN_USEC), 0);
	assert_int_equal(console_tail_add(f->tail, "none", path, NULL), -EACCES);
	assert_int_equal(mkdir(path_of(f, "sub"), 0755), 0);
	append(f, "sub/kept", "@1\n");
	wait_last(f, "kept:@1");
	append(f, "../new", "@2\n");
	wait_last(f, "new:@2");
}

#define test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_events),	     test(test_created_later),
		test(test_shared_file),	     test(test_scans),
		test(test_without_inotify),  test(test_trouble),
		test(test_add_and_remove),   test(test_remove_from_within),
		test(test_free_at_any_time), test(test_slow_loop),
		test(test_many_logs),	     test(test_configure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
