/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One console log without a thread: what is read when files are cut, rotated and replaced at given
 * moments, how lines are taken apart, where logs may lie, and how old ones are moved away.
 */
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
#include "host/console-log.h"

#define LINE_MAX_BYTES 64
#define LINGER_USEC    1000
#define LONG_AGO       UINT64_C(1)

struct fixture {
	char base[64];
	char dir[80];
	char path[128], first[128]; /* the log, and its ".1" */
	const char *dirs[1];
	struct console_log log;
	struct console_reader *reader;
	struct console_turn_result result;
	uint64_t now_usec;
	char lines[4096]; /* those found, each with a '|' behind it */
	unsigned n_passes;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);

	*state = f;
	if (!f)
		return -1;
	str_copy_cut(f->base, sizeof f->base, "/tmp/test-console-log-XXXXXX");
	if (!mkdtemp(f->base))
		return -1;
	snprintf(f->dir, sizeof f->dir, "%s/console", f->base);
	snprintf(f->path, sizeof f->path, "%s/vm.log", f->dir);
	snprintf(f->first, sizeof f->first, "%s/vm.log.1", f->dir);
	f->dirs[0] = f->dir;
	f->now_usec = LONG_AGO;
	f->reader = calloc(1, sizeof *f->reader);
	if (!f->reader)
		return -1;
	f->reader->line_max = LINE_MAX_BYTES;
	f->reader->needle = "@";
	f->reader->needle_len = 1;
	if (mkdir(f->dir, 0755) < 0)
		return -1;
	return console_log_init(&f->log, f->dirs, 1, f->path);
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	char command[128];

	console_log_done(&f->log);
	buf_done(&f->reader->lines);
	free(f->reader);
	snprintf(command, sizeof command, "rm -rf %s", f->base);
	free(f);
	return system(command);
}

static void write_n(const char *path, int flags, const char *text, size_t n)
{
	_close_ int fd = open(path, O_WRONLY | O_CREAT | flags, 0644);

	assert_true(fd >= 0);
	while (n > 0) {
		ssize_t r = write(fd, text, n);

		assert_true(r > 0);
		text += r;
		n -= (size_t)r;
	}
}

static void append(const char *path, const char *text)
{
	write_n(path, O_APPEND, text, strlen(text));
}

/* Filler without the needle, in lines of 50 bytes; n is a multiple. Differs by seed. */
static void append_filler(const char *path, size_t n, int seed)
{
	char line[64];

	for (size_t at = 0; at < n; at += 50) {
		snprintf(line, sizeof line, "%048zu%d\n", at, seed % 10);
		append(path, line);
	}
}

static void take_lines(struct fixture *f)
{
	size_t at = 0;

	while (at < f->reader->lines.len) {
		uint32_t len;

		memcpy(&len, f->reader->lines.data + at, sizeof len);
		at += sizeof len;
		snprintf(f->lines + strlen(f->lines), sizeof f->lines - strlen(f->lines), "%.*s|",
			 (int)len, f->reader->lines.data + at);
		at += len;
	}
	buf_clear(&f->reader->lines);
}

/* One look, by name or not, until there is nothing more of it. */
static void look(struct fixture *f, bool at_name)
{
	enum console_turn turn;

	f->log.look_at_path = f->log.look_at_path || at_name;
	do {
		turn = console_log_turn(&f->log, f->reader, 2, 1000, f->now_usec, LINGER_USEC,
					&f->result);
		take_lines(f);
		f->n_passes += f->result.pass_ended;
	} while (turn == CONSOLE_TURN_MORE);
}

static void assert_lines(struct fixture *f, const char *expected)
{
	look(f, true);
	look(f, true);
	assert_string_equal(f->lines, expected);
	f->lines[0] = '\0';
}

/* --- Lines ------------------------------------------------------------------------ */

static void test_lines(void **state)
{
	struct fixture *f = *state;

	assert_lines(f, ""); /* not there yet: no error */
	assert_false(f->result.trouble_changed);
	append(f->path, "@1\nnothing\n\n@2\r\nx@");
	assert_lines(f, "@1|@2\r|");
	assert_int_equal(f->n_passes, 1);
	append(f->path, "3");
	assert_lines(f, "");
	append(f->path, "\n");
	assert_lines(f, "x@3|");
	assert_int_equal(f->n_passes, 2);
	append(f->path, "nothing here\n");
	assert_lines(f, "");
	assert_int_equal(f->n_passes, 2); /* a pass without lines is none */
}

static void append_char(const char *path, char c, size_t n)
{
	_free_ char *text = malloc(n);

	assert_non_null(text);
	memset(text, c, n);
	write_n(path, O_APPEND, text, n);
}

/* F67: thrown away to its end, and what follows is found once. */
static void test_long_lines(void **state)
{
	struct fixture *f = *state;
	char exact[LINE_MAX_BYTES + 2];

	append_char(f->path, 'x', 1 << 20);
	append(f->path, "\n@after\n");
	assert_lines(f, "@after|");
	append_char(f->path, '@', 1 << 20); /* full of the needle */
	assert_lines(f, "");
	append(f->path, "@");
	assert_lines(f, "");
	append(f->path, "\n@2\n");
	assert_lines(f, "@2|");
	memset(exact, '@', sizeof exact);
	exact[LINE_MAX_BYTES] = '\n';
	write_n(f->path, O_APPEND, exact, LINE_MAX_BYTES + 1);
	exact[LINE_MAX_BYTES] = '\0';
	look(f, false);
	assert_int_equal(strlen(f->lines), LINE_MAX_BYTES + 1);
	f->lines[0] = '\0';
	memset(exact, '@', sizeof exact);
	exact[LINE_MAX_BYTES + 1] = '\n';
	write_n(f->path, O_APPEND, exact, LINE_MAX_BYTES + 2);
	assert_lines(f, "");
	append(f->path, "@3\n");
	assert_lines(f, "@3|");
}

/* F67 */
static void test_nuls(void **state)
{
	struct fixture *f = *state;
	static const char text[] = "@0\na\0b\0\n@1\n\0\0\0\n@2\n";
	static const char inside[] = "@a\0b\n";

	write_n(f->path, O_APPEND, text, sizeof text - 1);
	assert_lines(f, "@0|@1|@2|");
	write_n(f->path, O_APPEND, inside, sizeof inside - 1);
	look(f, false);
	assert_string_equal(f->lines, "@a|"); /* as %s shows it */
}

/* The same lines as by looking at each byte, wherever blocks and writes end. */
static void test_any_cut(void **state)
{
	struct fixture *f = *state;
	static const char alphabet[] = "@\n\nab\0xyzxyzxyzxyzxyzxyzxyz";
	unsigned seed = 4711;

	for (int round = 0; round < 30; round++) {
		size_t n = 5000 + (size_t)round * 1000, expected_at = 0, got = 0, start = 0;
		_free_ char *text = malloc(n);
		_buf_ struct buf expected = BUF_INIT;
		struct console_stream s;
		struct stat st = { 0 };

		assert_non_null(text);
		for (size_t i = 0; i < n; i++)
			text[i] = alphabet[(unsigned)rand_r(&seed) %
					   (round % 2 ? sizeof alphabet : 12)];
		text[0] = 'x';
		for (size_t i = 0; i < n; i++) {
			uint32_t len = (uint32_t)(i - start);

			if (text[i] != '\n')
				continue;
			if (len <= LINE_MAX_BYTES && memchr(text + start, '@', len)) {
				buf_add(&expected, &len, sizeof len);
				buf_add(&expected, text + start, len);
			}
			start = i + 1;
		}
		(void)unlink(f->path);
		write_n(f->path, 0, text, n);
		assert_int_equal(
			console_stream_start(&s, open(f->path, O_RDONLY), &st, LINE_MAX_BYTES), 0);
		while (got < n) {
			size_t upto = got + 1 + (size_t)rand_r(&seed) % 9000;
			ssize_t r = console_stream_read(&s, MIN(upto, n), f->reader);

			assert_true(r > 0);
			got += (size_t)r;
			assert_int_equal(s.offset, got);
			assert_int_equal(console_stream_matches(&s, s.fd), 1);
		}
		assert_int_equal(console_stream_read(&s, UINT64_MAX, f->reader), 0);
		assert_int_equal(f->reader->lines.len, expected.len);
		if (expected.len)
			assert_memory_equal(f->reader->lines.data + expected_at, expected.data,
					    expected.len);
		buf_clear(&f->reader->lines);
		console_stream_done(&s);
	}
}

/* Turns end at their limits, and a pass only where the file ended when it began. */
static void test_turns(void **state)
{
	struct fixture *f = *state;
	enum console_turn turn;
	unsigned n = 0;

	append(f->path, "@begin\n");
	append_filler(f->path, 40950, 1); /* five blocks, nearly */
	do {
		turn = console_log_turn(&f->log, f->reader, 2, 1000, f->now_usec, LINGER_USEC,
					&f->result);
		if (n == 0) {
			assert_int_equal(turn, CONSOLE_TURN_MORE);
			append(f->path, "@later\n");
		}
		n++;
		assert_int_equal(f->result.pass_ended, turn == CONSOLE_TURN_DONE);
		take_lines(f);
	} while (turn == CONSOLE_TURN_MORE);
	assert_int_equal(turn, CONSOLE_TURN_DONE);
	assert_int_equal(n, 3);
	assert_string_equal(f->lines, "@begin|");
	f->lines[0] = '\0';
	assert_lines(f, "@later|");
	/* No further while lines wait. */
	for (int i = 0; i < 4000; i++)
		append(f->path, "@@@@\n");
	f->lines[0] = '\0';
	turn = console_log_turn(&f->log, f->reader, 100, 1, f->now_usec, LINGER_USEC, &f->result);
	assert_int_equal(turn, CONSOLE_TURN_MORE);
	assert_true(f->reader->lines.len <= (size_t)2 * CONSOLE_BLOCK);
	turn = console_log_turn(&f->log, f->reader, 100, 1, f->now_usec, LINGER_USEC, &f->result);
	assert_int_equal(turn, CONSOLE_TURN_MORE); /* nothing read: they wait still */
	buf_clear(&f->reader->lines);
}

/* --- Files that are cut ----------------------------------------------------------- */

/* F65 */
static void test_truncated(void **state)
{
	struct fixture *f = *state;

	append_filler(f->path, 10000, 1);
	append(f->path, "@begun but not en");
	assert_lines(f, "");
	assert_int_equal(truncate(f->path, 0), 0);
	append_filler(f->path, 150, 2);
	append(f->path, "@new\n");
	assert_lines(f, "@new|");
	assert_lines(f, "");
	/* Empty for a while. */
	assert_int_equal(truncate(f->path, 0), 0);
	assert_lines(f, "");
	append(f->path, "@newer\n");
	assert_lines(f, "@newer|");
}

/* F65: past the offset within one look: seen by the head, by what stood before the offset, or not
 * at all. */
static void test_truncated_and_regrown(void **state)
{
	struct fixture *f = *state;

	append_filler(f->path, 10000, 1);
	assert_lines(f, "");
	assert_int_equal(truncate(f->path, 0), 0);
	append(f->path, "@new\n");
	append_filler(f->path, 12000, 1);
	assert_lines(f, "@new|");
	/* The same head. */
	assert_int_equal(truncate(f->path, 0), 0);
	append(f->path, "@new\n");
	append_filler(f->path, 5000, 1);
	append(f->path, "@other\n");
	append_filler(f->path, 9000, 1);
	assert_lines(f, "@new|@other|");
	/* The same before the offset. */
	assert_int_equal(truncate(f->path, 0), 0);
	append(f->path, "@NEW\n");
	append_filler(f->path, 5000, 1);
	append(f->path, "@other\n");
	append_filler(f->path, 9000, 1);
	append(f->path, "@more\n");
	assert_lines(f, "@NEW|@other|@more|");
	assert_int_equal(truncate(f->path, 0), 0);
	append(f->path, "@new\n");
	append_filler(f->path, 5000, 1);
	append(f->path, "@other\n");
	append_filler(f->path, 9000, 1);
	assert_lines(f, "@new|@other|");
	/* The limit: the same first KiB, and the same 64 bytes before the offset. It is read on
	 * from there. */
	assert_int_equal(truncate(f->path, 0), 0);
	append(f->path, "@new\n");
	append_filler(f->path, 5000, 1);
	append(f->path, "@OTHER\n");
	append_filler(f->path, 9000, 1);
	append(f->path, "@last\n");
	assert_lines(f, "@last|");
}

/* A writer that was not told goes on at its old offset: a hole, then its line. */
static void test_truncated_under_a_writer(void **state)
{
	struct fixture *f = *state;
	int fd = open(f->path, O_WRONLY | O_CREAT, 0644);
	char filler[10000];

	memset(filler, 'x', sizeof filler);
	filler[sizeof filler - 1] = '\n';
	assert_int_equal(write(fd, filler, sizeof filler), sizeof filler);
	assert_lines(f, "");
	assert_int_equal(truncate(f->path, 0), 0);
	assert_int_equal(write(fd, "@behind a hole\n", 15), 15);
	assert_lines(f, "@behind a hole|");
	assert_int_equal(write(fd, "@more\n", 6), 6);
	assert_lines(f, "@more|");
	close(fd);
}

static void copy_file(const char *from, const char *to)
{
	_free_ char *text = NULL;
	size_t n;

	assert_int_equal(file_read_at(AT_FDCWD, from, 1 << 20, &text, &n), 0);
	write_n(to, O_TRUNC, text, n);
}

static void test_copytruncate(void **state)
{
	struct fixture *f = *state;

	append_filler(f->path, 3000, 1);
	append(f->path, "@1\n@torn ");
	assert_lines(f, "@1|");
	append(f->path, "apart\n@2\n@lost");
	copy_file(f->path, f->first);
	assert_int_equal(truncate(f->path, 0), 0);
	append(f->path, "@3\n");
	assert_lines(f, "@torn apart|@2|@3|");
	assert_int_equal(f->n_passes, 2); /* the rest and the new file in one */
	/* Again: the copy of then is not the rest of now. */
	assert_int_equal(truncate(f->path, 0), 0);
	append(f->path, "@4\n");
	assert_lines(f, "@4|");
}

/* A ".1" of an earlier assignment is never read. */
static void test_foreign_copy(void **state)
{
	struct fixture *f = *state;

	append_filler(f->first, 3000, 1);
	append(f->first, "@old old old\n");
	append_filler(f->path, 3000, 2);
	assert_lines(f, "");
	assert_int_equal(truncate(f->path, 0), 0);
	assert_lines(f, "");
	assert_int_equal(unlink(f->path), 0);
	append(f->path, "@1\n");
	assert_lines(f, "@1|");
}

/* Not even when both guests booted with the same words, and the second was started anew. */
static void test_foreign_twin(void **state)
{
	struct fixture *f = *state;

	append_filler(f->first, 3000, 1);
	append(f->first, "@of the assignment before\n");
	append_filler(f->path, 3000, 1);
	assert_lines(f, "");
	assert_int_equal(truncate(f->path, 0), 0);
	assert_lines(f, "");
	append(f->path, "@1\n");
	assert_lines(f, "@1|");
	/* Nor a file that was followed before it got that name: it has been read. */
	append_filler(f->path, 3000, 3);
	append(f->path, "@2\n");
	assert_lines(f, "@2|");
	assert_int_equal(rename(f->path, f->first), 0);
	append(f->path, "@1\n");
	append_filler(f->path, 3000, 3);
	assert_lines(f, "@1|");
	f->now_usec += LINGER_USEC;
	assert_lines(f, "");
	assert_int_equal(truncate(f->path, 0), 0);
	append(f->path, "@3\n");
	assert_lines(f, "@3|");
}

/* --- Files that change places ----------------------------------------------------- */

/* F69 */
static void test_renamed(void **state)
{
	struct fixture *f = *state;

	append_filler(f->path, 1000, 1);
	append(f->path, "@1\n");
	assert_lines(f, "@1|");
	append(f->path, "@2\n");
	assert_int_equal(rename(f->path, f->first), 0);
	assert_lines(f, "@2|"); /* nothing bears the name */
	append(f->first, "@3\n");
	append_filler(f->path, 5000, 2); /* larger than the old offset */
	append(f->path, "@4\n");
	append(f->first, "@begun");
	assert_lines(f, "@3|@4|");
	/* Whoever has it open still writes to the old one. */
	append(f->first, " and ended\n");
	assert_lines(f, "@begun and ended|");
	append(f->path, "@5\n");
	append(f->first, "@6\n");
	assert_lines(f, "@6|@5|");
	/* After a while without a word it is let go. */
	f->now_usec += LINGER_USEC;
	assert_lines(f, "");
	assert_int_equal(f->log.old.fd, -1);
	append(f->first, "@7\n");
	append(f->path, "@8\n");
	assert_lines(f, "@8|");
}

/* F69: between two looks, so that name and offset would belong to different files. */
static void test_replaced(void **state)
{
	struct fixture *f = *state;
	char other[160];

	snprintf(other, sizeof other, "%s.new", f->path);
	for (int i = 0; i < 5; i++) {
		append_filler(other, 2000 + 500 * (size_t)i, i);
		append(other, "@new\n");
		assert_int_equal(rename(other, f->path), 0);
		/* Known from what is open: growing is seen without the name, */
		look(f, i == 0);
		append(f->path, "@more\n");
		look(f, false);
		/* and another file by the name. */
		assert_lines(f, "@new|@more|");
	}
}

/* Rotated again and again, with a writer that stays on the oldest. */
static void test_rotations_in_a_row(void **state)
{
	struct fixture *f = *state;
	_close_ int fd = open(f->path, O_WRONLY | O_CREAT, 0644);
	char expected[512] = "";

	assert_int_equal(write(fd, "@0\n", 3), 3);
	assert_lines(f, "@0|");
	for (int i = 1; i < 9; i++) {
		char line[32];

		assert_int_equal(rename(f->path, f->first), 0);
		snprintf(line, sizeof line, "@%d\n", i);
		append(f->path, line);
		assert_int_equal(write(fd, "busy\n", 5), 5);
		look(f, true);
		assert_int_equal(write(fd, "busy\n", 5), 5);
		look(f, true);
		snprintf(expected + strlen(expected), sizeof expected - strlen(expected), "@%d|",
			 i);
	}
	assert_lines(f, expected);
}

static void test_vanished(void **state)
{
	struct fixture *f = *state;
	char away[128];

	append(f->path, "@1\n");
	assert_lines(f, "@1|");
	assert_int_equal(unlink(f->path), 0);
	assert_lines(f, "");
	assert_false(f->result.trouble_changed);
	snprintf(away, sizeof away, "%s/away", f->base);
	assert_int_equal(rename(f->dir, away), 0);
	assert_lines(f, "");
	assert_false(f->result.trouble_changed);
	assert_int_equal(mkdir(f->dir, 0755), 0);
	append(f->path, "@2\n");
	assert_lines(f, "@2|");
}

static void assert_trouble(struct fixture *f, int code)
{
	look(f, true);
	assert_true(f->result.trouble_changed);
	assert_int_equal(f->result.trouble.code, code);
	if (code)
		assert_non_null(strstr(f->result.trouble.msg, f->path));
	look(f, true);
	assert_false(f->result.trouble_changed); /* said once */
}

static void test_no_plain_file(void **state)
{
	struct fixture *f = *state;
	char target[128];

	snprintf(target, sizeof target, "%s/target", f->dir);
	append(target, "@secret\n");
	assert_int_equal(symlink("target", f->path), 0);
	assert_trouble(f, ELOOP);
	assert_int_equal(unlink(f->path), 0);
	assert_trouble(f, 0);
	assert_int_equal(mkfifo(f->path, 0644), 0);
	assert_trouble(f, ENOTSUP);
	assert_int_equal(unlink(f->path), 0);
	assert_int_equal(mkdir(f->path, 0755), 0);
	assert_trouble(f, EISDIR);
	assert_int_equal(rmdir(f->path), 0);
	append(f->path, "@1\n");
	assert_trouble(f, 0);
	assert_string_equal(f->lines, "@1|");
	/* While something else has the name, the open file is read on. */
	assert_int_equal(unlink(f->path), 0);
	assert_int_equal(symlink("target", f->path), 0);
	assert_trouble(f, ELOOP);
	assert_string_equal(f->lines, "@1|");
}

#define test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_lines),
		test(test_long_lines),
		test(test_nuls),
		test(test_any_cut),
		test(test_turns),
		test(test_truncated),
		test(test_truncated_and_regrown),
		test(test_truncated_under_a_writer),
		test(test_copytruncate),
		test(test_foreign_copy),
		test(test_foreign_twin),
		test(test_renamed),
		test(test_replaced),
		test(test_rotations_in_a_row),
		test(test_vanished),
		test(test_no_plain_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
