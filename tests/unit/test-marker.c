/* SPDX-License-Identifier: Apache-2.0 */
/* What is a marker line, and all that resembles one. */
#include "model/marker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/cleanup.h"

static const char *const prefixes[] = { "BERTH", "HYPEMAN" };

#define HEAD   "2026/11/29 16:38:00 [guest-agent] "
#define TS     "ts=2026-11-29T16:38:00Z"
#define NVRM   "nvrm=\"NVRM: GPU 0000:00:05.0: RmInitAdapter failed! (0x22:0x65:884)\""
#define FAILED HEAD "BERTH-GPU-INIT-FAILED " TS " " NVRM
#define OK     HEAD "BERTH-GPU-INIT-OK " TS

/* On the heap without a byte behind it, so that reading too far is noticed. */
static enum marker_kind parse_n(const char *line, size_t n)
{
	_free_ char *copy = malloc(n ? n : 1);

	assert_non_null(copy);
	memcpy(copy, line, n);
	return marker_parse(copy, n, prefixes, ARRAY_SIZE(prefixes));
}

static enum marker_kind parse(const char *line)
{
	return parse_n(line, strlen(line));
}

static void assert_kind(const char *line, enum marker_kind kind)
{
	if (parse(line) != kind)
		fail_msg("wrong kind: %s", line);
}

static void test_accepted(void **state _unused_)
{
	assert_kind(FAILED, MARKER_FAILED);
	assert_kind(FAILED "\r", MARKER_FAILED);
	assert_kind(OK, MARKER_OK);
	assert_kind(OK "\r", MARKER_OK);
	assert_kind(HEAD "HYPEMAN-GPU-INIT-FAILED " TS " " NVRM, MARKER_FAILED);
	assert_kind(HEAD "HYPEMAN-GPU-INIT-OK " TS, MARKER_OK);
	assert_kind(HEAD "BERTH-GPU-INIT-OK ts=2026-11-29T16:38:00.123456789Z", MARKER_OK);
	assert_kind(HEAD "BERTH-GPU-INIT-OK ts=2028-02-29T23:59:59.1+05:30", MARKER_OK);
	/* Whatever the tuple, also none. */
	assert_kind(HEAD "BERTH-GPU-INIT-FAILED " TS " nvrm=\"NVRM: RmInitAdapter failed!\"",
		    MARKER_FAILED);
	assert_kind(HEAD "BERTH-GPU-INIT-FAILED " TS
			 " nvrm=\"NVRM: GPU 0000:00:05.0: RmInitAdapter failed! (0x62:0x40:2168)\"",
		    MARKER_FAILED);
}

static void test_refused(void **state _unused_)
{
	static const char *const lines[] = {
		"",
		"\r",
		"BERTH-GPU-INIT-FAILED",
		"BERTH-GPU-INIT-OK " TS,
		HEAD "BERTH-GPU-INIT-OK",
		HEAD "BERTH-GPU-INIT-OK ts=",
		HEAD "BERTH-GPU-INIT-OK ts=now",
		HEAD "BERTH-GPU-INIT-OK ts=2026-11-29 16:38:00Z",
		HEAD "BERTH-GPU-INIT-OK ts=2026-11-29T16:38:00",
		HEAD "BERTH-GPU-INIT-OK ts=2026-11-29T16:38:00.Z",
		HEAD "BERTH-GPU-INIT-OK ts=2026-13-29T16:38:00Z",
		HEAD "BERTH-GPU-INIT-OK ts=2027-02-29T16:38:00Z",
		HEAD "BERTH-GPU-INIT-OK ts=2026-11-29T24:00:00Z",
		HEAD "BERTH-GPU-INIT-OK ts=2026-11-29T16:38:00+0100",
		OK " ",
		OK "\r\r",
		OK " nvrm=\"x\"",
		" " OK,
		"\r" OK,
		HEAD OK,
		/* An echo of the command that would print it. */
		"$ echo '" FAILED "'",
		"# echo " OK " > /dev/console",
		"[    8.123456] " FAILED,
		HEAD "executing: echo BERTH-GPU-INIT-OK " TS,
		/* The raw kernel line. */
		"[    8.123456] NVRM: GPU 0000:00:05.0: RmInitAdapter failed! (0x22:0x65:884)",
		"NVRM: GPU 0000:00:05.0: RmInitAdapter failed! (0x22:0x65:884)",
		/* Other programs, prefixes, spellings. */
		HEAD "OTHER-GPU-INIT-OK " TS,
		HEAD "berth-GPU-INIT-OK " TS,
		HEAD "BERTHGPU-INIT-OK " TS,
		HEAD "BERTH-GPU-INIT-FINE " TS,
		"2026/11/29 16:38:00 [init] BERTH-GPU-INIT-OK " TS,
		"2026/11/29 16:38 [guest-agent] BERTH-GPU-INIT-OK " TS,
		"2026-11-29 16:38:00 [guest-agent] BERTH-GPU-INIT-OK " TS,
		"2026/11/29  16:38:00 [guest-agent] BERTH-GPU-INIT-OK " TS,
		/* Torn. */
		HEAD "BERTH-GPU-INIT-FAILED " TS,
		HEAD "BERTH-GPU-INIT-FAILED " TS " ",
		HEAD "BERTH-GPU-INIT-FAILED " TS " nvrm=",
		HEAD "BERTH-GPU-INIT-FAILED " TS " nvrm=\"",
		HEAD "BERTH-GPU-INIT-FAILED " TS " nvrm=\"NVRM: \"",
		HEAD "BERTH-GPU-INIT-FAILED " TS
		     " nvrm=\"NVRM: GPU 0000:00:05.0: RmInitAdapter failed! (0x22",
		HEAD "BERTH-GPU-INIT-FAILED " TS
		     " nvrm=\"NVRM: GPU 0000:00:05.0: RmInitAdapter fai\"",
		HEAD "BERTH-GPU-INIT-FAILED " TS
		     " nvrm=\"GPU 0000:00:05.0: RmInitAdapter failed!\"",
		HEAD "BERTH-GPU-INIT-FAILED " TS "  " NVRM,
		HEAD "BERTH-GPU-INIT-FAILED  " TS " " NVRM,
		HEAD "BERTH-GPU-INIT-FAILED " NVRM " " TS,
		FAILED " ",
		FAILED "\"",
		FAILED " " NVRM,
		HEAD "BERTH-GPU-INIT-FAILED " TS " nvrm=\"NVRM: a\" RmInitAdapter failed!\"",
		HEAD "BERTH-GPU-INIT-FAILED " TS " nvrm=\"NVRM: RmInitAdapter failed!\x1b[2J\"",
		HEAD "BERTH-GPU-INIT-FAILED " TS " nvrm=\"NVRM: RmInitAdapter failed!\x7f\"",
		HEAD "BERTH-GPU-INIT-FAILED " TS
		     " nvrm=\"NVRM: RmInitAdapter: Cannot initialize GSP firmware RM\"",
		HEAD "BERTH-GPU-INIT-FAILED " TS
		     " nvrm=\"NVRM: rm_init_adapter failed, device minor number 0\"",
	};

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		assert_kind(lines[i], MARKER_NONE);
}

/* Every proper prefix, and every line with one byte missing or doubled inside the fixed text. */
static void test_torn_anywhere(void **state _unused_)
{
	static const char line[] = FAILED;
	const size_t n = sizeof line - 1, fixed = sizeof HEAD "BERTH-GPU-INIT-FAILED" - 1;

	for (size_t i = 0; i < n; i++)
		assert_int_equal(parse_n(line, i), MARKER_NONE);
	for (size_t i = 1; i <= n; i++)
		assert_int_equal(parse_n(line + i, n - i), MARKER_NONE);
	for (size_t i = 0; i < fixed; i++) {
		char torn[sizeof line];

		memcpy(torn, line, i);
		memcpy(torn + i, line + i + 1, n - i - 1);
		if (parse_n(torn, n - 1) != MARKER_NONE)
			fail_msg("accepted without byte %zu", i);
	}
}

static void test_nul_and_length(void **state _unused_)
{
	static const char nul[] = HEAD "BERTH-GPU-INIT-FAILED " TS
				       " nvrm=\"NVRM: \0RmInitAdapter failed!\"";
	char line[MARKER_LINE_MAX + 2];
	size_t start = sizeof HEAD "BERTH-GPU-INIT-FAILED " TS " nvrm=\"NVRM: " - 1;
	static const char end[] = "RmInitAdapter failed!\"";

	assert_int_equal(parse_n(nul, sizeof nul - 1), MARKER_NONE);
	assert_int_equal(parse_n(OK "\0", sizeof OK), MARKER_NONE);
	memset(line, 'x', sizeof line);
	memcpy(line, nul, start);
	memcpy(line + MARKER_LINE_MAX - (sizeof end - 1), end, sizeof end - 1);
	assert_int_equal(parse_n(line, MARKER_LINE_MAX), MARKER_FAILED);
	memset(line + start, 'x', sizeof line - start);
	memcpy(line + MARKER_LINE_MAX + 1 - (sizeof end - 1), end, sizeof end - 1);
	assert_int_equal(parse_n(line, MARKER_LINE_MAX + 1), MARKER_NONE);
}

static void test_prefixes(void **state _unused_)
{
	static const char *const nested[] = { "A", "A-GPU-INIT-OK ts=2026", "B" };

	assert_int_equal(marker_parse(OK, sizeof OK - 1, NULL, 0), MARKER_NONE);
	assert_int_equal(marker_parse(OK, sizeof OK - 1, prefixes + 1, 1), MARKER_NONE);
	assert_int_equal(
		marker_parse(HEAD "B-GPU-INIT-OK " TS, strlen(HEAD "B-GPU-INIT-OK " TS), nested, 3),
		MARKER_OK);
}

static void test_nvrm_text(void **state _unused_)
{
	char text[128], small[9];

	marker_nvrm_text(FAILED, strlen(FAILED), text, sizeof text);
	assert_string_equal(text, "NVRM: GPU 0000:00:05.0: RmInitAdapter failed! (0x22:0x65:884)");
	marker_nvrm_text(FAILED "\r", strlen(FAILED "\r"), text, sizeof text);
	assert_string_equal(text, "NVRM: GPU 0000:00:05.0: RmInitAdapter failed! (0x22:0x65:884)");
	marker_nvrm_text(FAILED, strlen(FAILED), small, sizeof small);
	assert_string_equal(small, "NVRM: GP");
	marker_nvrm_text(FAILED, strlen(FAILED), small, 1);
	assert_string_equal(small, "");
	marker_nvrm_text(OK, strlen(OK), text, sizeof text);
	assert_string_equal(text, "");
	marker_nvrm_text(" nvrm=\"", 7, text, sizeof text);
	assert_string_equal(text, "");
	marker_nvrm_text(" nvrm=\"a\x1b\xff\"", 11, text, sizeof text);
	assert_string_equal(text, "a??");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_accepted),      cmocka_unit_test(test_refused),
		cmocka_unit_test(test_torn_anywhere), cmocka_unit_test(test_nul_and_length),
		cmocka_unit_test(test_prefixes),      cmocka_unit_test(test_nvrm_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
