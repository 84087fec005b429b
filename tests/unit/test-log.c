/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/str.h"

#include <cmocka.h>

static char output[8192];
static int saved_stderr, pipe_end;

/* From here to end_capture() standard error is a pipe; checks belong behind it. */
static void begin_capture(void)
{
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	saved_stderr = dup(STDERR_FILENO);
	dup2(fds[1], STDERR_FILENO);
	close(fds[1]);
	pipe_end = fds[0];
}

static void end_capture(void)
{
	ssize_t n;

	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	n = read(pipe_end, output, sizeof output - 1);
	close(pipe_end);
	output[n < 0 ? 0 : n] = '\0';
}

static int clean_environment(void **state)
{
	(void)state;
	unsetenv("JOURNAL_STREAM");
	unsetenv("BERTH_LOG_LEVEL");
	return 0;
}

/* What follows the time stamp of the first line. */
static const char *behind_stamp(void)
{
	static const char form[] = "2026-11-29T16:38:00.123Z ";

	assert_true(strlen(output) > strlen(form));
	assert_int_equal(output[10], 'T');
	assert_int_equal(output[19], '.');
	assert_int_equal(output[23], 'Z');
	return output + strlen(form);
}

static void a_line_has_time_program_and_level(void **state)
{
	(void)state;
	begin_capture();
	log_init("berthd", LOG_LEVEL_INFO);
	log_warning("card: stuck gpu=%s", "0000:41:00.0");
	end_capture();
	assert_string_equal(behind_stamp(), "berthd warning: card: stuck gpu=0000:41:00.0\n");

	begin_capture();
	log_init(NULL, LOG_LEVEL_INFO);
	log_error("x");
	end_capture();
	assert_string_equal(behind_stamp(), "error: x\n");
}

static void a_line_to_the_journal_has_a_priority(void **state)
{
	char where[80];
	struct stat st;

	(void)state;
	begin_capture();
	fstat(STDERR_FILENO, &st);
	snprintf(where, sizeof where, "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	setenv("JOURNAL_STREAM", where, 1);
	log_init("berthd", LOG_LEVEL_DEBUG);
	log_error("a");
	log_warning("b");
	log_notice("c");
	log_info("d");
	log_debug("e");
	end_capture();
	assert_string_equal(output, "<3>a\n<4>b\n<5>c\n<6>d\n<7>e\n");

	/* Inherited from a service while standard error went elsewhere. */
	begin_capture();
	setenv("JOURNAL_STREAM", "1:2", 1);
	log_init("berthd", LOG_LEVEL_DEBUG);
	log_info("d");
	end_capture();
	assert_string_equal(behind_stamp(), "berthd info: d\n");
}

static void levels_are_kept_and_overridden(void **state)
{
	static const struct {
		const char *wanted;
		bool notice, info, debug;
	} cases[] = {
		{ NULL, true, true, false },	  { "", true, true, false },
		{ "loud", true, true, false },	  { "debug", true, true, true },
		{ "notice", true, false, false }, { "error", false, false, false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		if (cases[i].wanted)
			setenv("BERTH_LOG_LEVEL", cases[i].wanted, 1);
		log_init(NULL, LOG_LEVEL_INFO);
		assert_true(log_enabled(LOG_LEVEL_ERROR));
		assert_int_equal(log_enabled(LOG_LEVEL_NOTICE), cases[i].notice);
		assert_int_equal(log_enabled(LOG_LEVEL_INFO), cases[i].info);
		assert_int_equal(log_enabled(LOG_LEVEL_DEBUG), cases[i].debug);
		begin_capture();
		log_debug("shown?");
		end_capture();
		assert_int_equal(output[0] != '\0', cases[i].debug);
	}
}

static void outside_text_cannot_forge_a_line(void **state)
{
	(void)state;
	begin_capture();
	log_init(NULL, LOG_LEVEL_INFO);
	log_info("claim: \"%s\"", "a\n<3>forged\r\x1b[0m caf\xe9");
	end_capture();
	assert_string_equal(behind_stamp(), "info: claim: \"a?<3>forged??[0m caf?\"\n");
}

static void long_lines_are_cut_and_still_end(void **state)
{
	char text[3000];

	(void)state;
	memset(text, 'x', sizeof text);
	text[sizeof text - 1] = '\0';
	begin_capture();
	log_init(NULL, LOG_LEVEL_INFO);
	log_info("%s", text);
	log_info("next");
	end_capture();
	assert_non_null(strstr(output, "x\n"));
	assert_true(strchr(output, '\n') - output <= 1024);
	assert_true(str_ends_with(output, "info: next\n"));
}

static void errno_survives(void **state)
{
	int after;

	(void)state;
	begin_capture();
	log_init(NULL, LOG_LEVEL_INFO);
	errno = ERANGE;
	log_info("x");
	after = errno;
	end_capture();
	assert_int_equal(after, ERANGE);
}

#define TEST(f) cmocka_unit_test_setup(f, clean_environment)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_line_has_time_program_and_level), TEST(a_line_to_the_journal_has_a_priority),
		TEST(levels_are_kept_and_overridden),	 TEST(outside_text_cannot_forge_a_line),
		TEST(long_lines_are_cut_and_still_end),	 TEST(errno_survives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
