/* SPDX-License-Identifier: Apache-2.0 */
/* Probing the driver, with a clock of our own: attempts, their limit, and the end of the phase. */
#include "agent/probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define SECOND UINT64_C(1000000)
#define START  (1000 * SECOND)

static char folder[] = "/tmp/berth-probe.XXXXXX";
static char program[64], calls[64];

/* A program that notes its arguments, then does this. */
static void set_program(const char *text)
{
	FILE *f = fopen(program, "we");

	assert_non_null(f);
	fprintf(f, "#!/bin/sh\necho \"$@\" >> %s\n%s\n", calls, text);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(chmod(program, 0755), 0);
	unlink(calls);
}

static unsigned count_calls(void)
{
	FILE *f = fopen(calls, "re");
	char line[64];
	unsigned n = 0;

	while (f && fgets(line, sizeof line, f)) {
		assert_string_equal(line, "-L\n");
		n++;
	}
	if (f)
		fclose(f);
	return n;
}

/* Runs the probe until the attempt under way has ended. */
static bool run_to_its_end(struct probe *p, uint64_t now)
{
	bool success = probe_run(p, now);

	for (int i = 0; p->pid && i < 10000; i++) {
		poll(NULL, 0, 1);
		success |= probe_run(p, now);
	}
	assert_int_equal(p->pid, 0);
	return success;
}

static void test_success_is_told_once(void **state _unused_)
{
	struct probe p;

	set_program("echo 'GPU 0: NVIDIA L40S-4Q (UUID: GPU-1)'");
	probe_init(&p, program, START);
	assert_int_equal(probe_timeout_ms(&p, START), 0);
	assert_true(run_to_its_end(&p, START));
	assert_int_equal(probe_timeout_ms(&p, START), -1);
	assert_false(probe_run(&p, START + 100 * SECOND));
	assert_int_equal(count_calls(), 1);
}

static void test_what_is_no_success(void **state _unused_)
{
	static const char *const texts[] = { "exit 9", "echo 'GPU 0: x'; exit 1",
					     "echo 'No devices were found'", "" };

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct probe p;

		set_program(texts[i]);
		probe_init(&p, program, START);
		assert_false(run_to_its_end(&p, START));
		assert_int_equal(probe_timeout_ms(&p, START), 15000 + 1);
		assert_false(probe_run(&p, START + 14 * SECOND));
		assert_int_equal(p.pid, 0);
		set_program("echo 'GPU 0: NVIDIA L40S-4Q'");
		assert_true(run_to_its_end(&p, START + 15 * SECOND));
	}
}

static void test_ten_minutes(void **state _unused_)
{
	struct probe p;
	unsigned attempts = 0;

	set_program("exit 1");
	probe_init(&p, program, START);
	for (uint64_t now = START; now < START + 900 * SECOND; now += 5 * SECOND) {
		assert_false(run_to_its_end(&p, now));
		attempts = count_calls();
	}
	assert_int_equal(attempts, 40);
	assert_int_equal(probe_timeout_ms(&p, START + 900 * SECOND),
			 -1); /* no wake-ups from here on */
}

/* One that hangs is killed at its limit, and none is started beside it until it is gone. */
static void test_stuck(void **state _unused_)
{
	struct probe p;
	pid_t pid;

	set_program("trap '' TERM; exec sleep 1000");
	probe_init(&p, program, START);
	assert_false(probe_run(&p, START));
	pid = p.pid;
	assert_true(pid > 0);
	assert_int_equal(probe_timeout_ms(&p, START), 30000 + 1);
	for (unsigned s = 1; s < 30; s++)
		assert_false(probe_run(&p, START + s * SECOND));
	assert_int_equal(p.pid, pid);
	assert_false(p.killed);
	assert_false(probe_run(&p, START + 30 * SECOND));
	assert_true(p.killed);
	assert_int_equal(probe_timeout_ms(&p, START + 31 * SECOND), -1); /* SIGCHLD wakes */
	set_program("echo 'GPU 0: NVIDIA L40S-4Q'");
	assert_true(run_to_its_end(&p, START + 31 * SECOND));
	assert_int_equal(count_calls(), 1);
}

static void test_without_the_program(void **state _unused_)
{
	struct probe p;

	unlink(program);
	probe_init(&p, program, START);
	assert_int_equal(probe_timeout_ms(&p, START), -1);
	assert_false(probe_run(&p, START));
	assert_int_equal(p.pid, 0);
}

static int set_up(void **state _unused_)
{
	if (!mkdtemp(folder))
		return -1;
	snprintf(program, sizeof program, "%s/nvidia-smi", folder);
	snprintf(calls, sizeof calls, "%s/calls", folder);
	return 0;
}

static int tear_down(void **state _unused_)
{
	unlink(program);
	unlink(calls);
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_success_is_told_once),
		cmocka_unit_test(test_what_is_no_success),
		cmocka_unit_test(test_ten_minutes),
		cmocka_unit_test(test_stuck),
		cmocka_unit_test(test_without_the_program),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
