/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's kernel log: which records are failures of the driver's init, and what reads may give.
 */
#include "agent/kmsg.h"

#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define FAILED "NVRM: GPU 0000:00:05.0: RmInitAdapter failed! (0x22:0x65:884)"

/* What read() gives next: a record, or an errno; at the end EAGAIN. */
struct step {
	const char *record;
	int error;
	unsigned times; /* 0: once */
};

static const struct step *script;
static size_t script_len, script_at;
static unsigned script_repeated;
static bool script_on;

ssize_t __real_read(int fd, void *buf, size_t size);
ssize_t __wrap_read(int fd, void *buf, size_t size);

ssize_t __wrap_read(int fd, void *buf, size_t size)
{
	const struct step *s;
	size_t n;

	if (!script_on)
		return __real_read(fd, buf, size);
	if (script_at == script_len) {
		errno = EAGAIN;
		return -1;
	}
	s = &script[script_at];
	if (++script_repeated >= MAX(s->times, 1U)) {
		script_at++;
		script_repeated = 0;
	}
	if (!s->record) {
		errno = s->error;
		return s->error ? -1 : 0;
	}
	n = strlen(s->record);
	assert_true(n <= size);
	memcpy(buf, s->record, n);
	return (ssize_t)n;
}

static unsigned failures;
static char last[KMSG_TEXT_MAX];

static void count(const char *text, void *userdata _unused_)
{
	failures++;
	snprintf(last, sizeof last, "%s", text);
}

/* Reads until there is no more for now; the last result. */
static int play(const struct step *steps, size_t n)
{
	struct kmsg k = { .fd = 0 };
	int r;

	script = steps;
	script_len = n;
	script_at = script_repeated = failures = 0;
	last[0] = '\0';
	script_on = true;
	do
		r = kmsg_read(&k, count, NULL);
	while (r >= 0 && script_at < script_len);
	script_on = false;
	return r;
}

#define PLAY(...)                                                                                  \
	play((const struct step[]){ __VA_ARGS__ },                                                 \
	     ARRAY_SIZE(((const struct step[]){ __VA_ARGS__ })))

/* F75 */
static void test_facility(void **state _unused_)
{
	for (int priority = 0; priority < 200; priority++) {
		char record[256];

		snprintf(record, sizeof record, "%d,1234,5678,-;" FAILED "\n", priority);
		assert_int_equal(PLAY({ record, 0, 0 }), 0);
		assert_int_equal(failures, priority < 8);
	}
}

/* F73 F77 */
static void test_records(void **state _unused_)
{
	static const struct {
		const char *record;
		unsigned failures;
	} cases[] = {
		{ "3,1,2,-;" FAILED "\n SUBSYSTEM=pci\n DEVICE=+pci:0000:00:05.0\n", 1 },
		{ "3,1,2,-;pci 0000:00:05.0: hello\n X=NVRM: RmInitAdapter failed!\n", 0 },
		{ "3,1,2,-;hello\n 3,1,2,-;" FAILED "\n", 0 },
		{ "3,1,2,-,caller=T1;" FAILED "\n", 1 },
		{ "3,1,2,c;" FAILED "\n", 1 },
		{ "3,1,2,-;NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x40:2168)\n", 1 },
		{ "3,1,2,-;NVRM: GPU0 RmInitAdapter: Cannot initialize GSP firmware RM\n", 0 },
		{ "3,1,2,-;NVRM: GPU 0000:01:00.0: rm_init_adapter failed, device minor number 0\n",
		  0 },
		{ "3,1,2,-;NVRM: GPU 0000:01:00.0: RmInitAdapterBUG: unable to handle page fault\n",
		  0 },
		{ "3,1,2,-;nvrm: RmInitAdapter failed!\n", 0 },
		{ "3,1,2,-; NVRM: RmInitAdapter failed!\n", 0 },
		{ "3,1,2,-;[ 1.2] NVRM: RmInitAdapter failed!\n", 0 },
		{ "-3,1,2,-;" FAILED "\n", 0 },
		{ "3;" FAILED "\n", 0 },
		{ ",1,2,-;" FAILED "\n", 0 },
		{ "4294967296,1,2,-;" FAILED "\n", 0 },
		{ FAILED "\n", 0 },
		{ "\n", 0 },
		{ ";", 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(PLAY({ cases[i].record, 0, 0 }), 0);
		if (failures != cases[i].failures)
			fail_msg("%u failures in: %s", failures, cases[i].record);
	}
}

static void test_text_is_safe_to_print(void **state _unused_)
{
	PLAY({ "3,1,2,-;NVRM: \"\x1b[2J\t\x7f\r RmInitAdapter failed! \xc3\xa9\n", 0, 0 });
	assert_int_equal(failures, 1);
	assert_string_equal(last, "NVRM: '?[2J??? RmInitAdapter failed! ??");
}

/* F71 */
static void test_flood_and_overrun(void **state _unused_)
{
	assert_int_equal(PLAY({ "6,1,2,-;usb 1-1: new device\n", 0, 100000 }, { NULL, EPIPE, 3 },
			      { "3,9,9,-;" FAILED "\n", 0, 0 }),
			 1);
	assert_int_equal(failures, 1);
}

/* F71 */
static void test_errors(void **state _unused_)
{
	assert_int_equal(
		PLAY({ NULL, EINTR, 0 }, { NULL, EINVAL, 0 }, { "3,1,2,-;" FAILED "\n", 0, 0 }), 0);
	assert_int_equal(failures, 1);
	assert_int_equal(PLAY({ "3,1,2,-;" FAILED "\n", 0, 0 }, { NULL, EIO, 0 }), -EIO);
	assert_int_equal(failures, 1);
	assert_int_equal(PLAY({ NULL, 0, 0 }), -EPIPE); /* a pipe whose writer went */
}

static void test_reopened_at_the_end(void **state _unused_)
{
	char path[] = "/tmp/berth-kmsg.XXXXXX";
	int fd = mkstemp(path);
	struct kmsg k = { .fd = -1, .path = path };

	assert_true(fd >= 0);
	assert_true(dprintf(fd, "3,1,2,-;" FAILED "\n") > 0);
	failures = 0;
	assert_int_equal(kmsg_open(&k), 0);
	(void)!kmsg_read(&k, count, NULL);
	assert_int_equal(failures, 1);
	kmsg_close(&k);
	assert_int_equal(kmsg_open(&k), 0);
	(void)!kmsg_read(&k, count, NULL);
	assert_int_equal(failures, 1);
	kmsg_close(&k);
	kmsg_close(&k);
	unlink(path);
	close(fd);
	assert_int_equal(kmsg_open(&k), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_facility),
		cmocka_unit_test(test_records),
		cmocka_unit_test(test_text_is_safe_to_print),
		cmocka_unit_test(test_flood_and_overrun),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_reopened_at_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
