/* SPDX-License-Identifier: Apache-2.0 */
/* What of berth doctor no system test can set up: the clock; texts; children that hang. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "cli/doctor/doctor.h"
#include "cli/doctor/probe.h"
#include "cli/doctor/texts.h"
#include "cli/terminal.h"

static bool found(const struct doctor_report *r, const char *id)
{
	for (size_t i = 0; i < r->n; i++)
		if (strcmp(doctor_kind(r->findings[i].id)->id, id) == 0)
			return true;
	return false;
}

static void clock_is_judged(void **state)
{
	static const struct {
		time_t now;
		bool synchronised;
		const char *finding;
	} cases[] = {
		{ 1000, true, NULL },	      { 1000, false, "clock-unsynchronised" },
		{ 999, true, "clock-wrong" }, { 999, false, "clock-wrong" },
		{ 0, true, "clock-wrong" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct doctor_report r = { 0 };

		doctor_judge_clock(&r, cases[i].now, 1000, cases[i].synchronised);
		assert_int_equal(r.n, cases[i].finding ? 1 : 0);
		if (cases[i].finding)
			assert_true(found(&r, cases[i].finding));
		doctor_report_done(&r);
	}
}

static void branch_is_read(void **state)
{
	static const struct {
		const char *version;
		unsigned branch;
	} cases[] = { { "580.178.05", 580 }, { "550", 550 },  { "", 0 },
		      { ".1", 0 },	     { "580x.1", 0 }, { "-5.1", 0 },
		      { "99999999999.1", 0 } };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(doctor_branch(cases[i].version), cases[i].branch);
}

static void proc_version_is_read(void **state)
{
	static const struct {
		const char *text, *version;
	} cases[] = {
		{ "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.178.05  Tue Jan 1 2026\n"
		  "GCC version:  gcc version 12.2.0 (Debian)\n",
		  "580.178.05" },
		{ "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release\n",
		  "570.86.10" },
		{ "", "" },
		{ "\n12.2.0\n", "" },
		{ "NVRM version:", "" },
		{ "a 5 64 x86_64\n", "" },
		{ "a 1.2", "" },
		{ "a 1.23", "1.23" },
	};
	char version[DOCTOR_VERSION_MAX], small[6];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		memset(version, 'x', sizeof version);
		doctor_parse_proc_version(cases[i].text, version, sizeof version);
		assert_string_equal(version, cases[i].version);
	}
	doctor_parse_proc_version(cases[0].text, small, sizeof small);
	assert_string_equal(small, "");
}

static void options_are_found(void **state)
{
	static const char line[] = "plugin\0--sysfs-root\0/a\0--dev-root=/b\0--last";

	(void)state;
	assert_string_equal(doctor_find_option(line, sizeof line - 1, "--sysfs-root"), "/a");
	assert_string_equal(doctor_find_option(line, sizeof line - 1, "--dev-root"), "/b");
	assert_null(doctor_find_option(line, sizeof line - 1, "--dev"));
	assert_null(doctor_find_option(line, sizeof line - 1, "--last"));
	assert_null(doctor_find_option("", 0, "--last"));
}

static void status_is_read(void **state)
{
	bool trace = false, own = true;

	(void)state;
	assert_int_equal(
		doctor_parse_status("Name:\tberthd\nNSpid:\t7\nCapEff:\t0000000000080000\n", &trace,
				    &own),
		0);
	assert_true(trace && !own);
	assert_int_equal(doctor_parse_status("Name:\tberthd\nNSpid:\t7\t1\nCapEff:\t1ffffff7ffff\n",
					     &trace, &own),
			 0);
	assert_true(!trace && own);
	assert_int_equal(doctor_parse_status("Name:\tberth\nNSpid:\t7\nCapEff:\t0\n", &trace, &own),
			 -EBADMSG);
	assert_int_equal(doctor_parse_status("Name:\tberthd\nNSpid:\t7\n", &trace, &own), -EBADMSG);
}

static void a_check_is_ok_only_when_made(void **state)
{
	struct doctor_report r = { 0 };
	json_t *json = doctor_report_json(&r), *check;
	size_t i;

	(void)state;
	json_array_foreach(json_object_get(json, "checks"), i, check)
		assert_string_equal(json_string_value(json_object_get(check, "state")), "skipped");
	assert_int_equal(i, DOCTOR_CHECK_COUNT);
	json_decref(json);

	doctor_report_made(&r, DOCTOR_CHECK_TLS);
	doctor_report_made(&r, DOCTOR_CHECK_CLOCK);
	doctor_report_not_made(&r, DOCTOR_CHECK_CLOCK, "half of %s", "it");
	doctor_report_not_made(&r, DOCTOR_CHECK_CLOCK, "another reason");
	json = doctor_report_json(&r);
	check = json_array_get(json_object_get(json, "checks"), DOCTOR_CHECK_TLS);
	assert_string_equal(json_string_value(json_object_get(check, "state")), "ok");
	check = json_array_get(json_object_get(json, "checks"), DOCTOR_CHECK_CLOCK);
	assert_string_equal(json_string_value(json_object_get(check, "state")), "skipped");
	assert_string_equal(json_string_value(json_object_get(check, "reason")), "half of it");
	json_decref(json);
	doctor_report_done(&r);
}

static void exit_status_is_the_worst(void **state)
{
	struct doctor_report r = { 0 };

	(void)state;
	assert_int_equal(doctor_report_exit_status(&r), 0);
	doctor_report_add(&r, DOCTOR_NOT_ROOT, "a", "b");
	assert_int_equal(doctor_report_exit_status(&r), 0);
	doctor_report_add(&r, DOCTOR_CLOCK_WRONG, "a", "b");
	assert_int_equal(doctor_report_exit_status(&r), DOCTOR_EXIT_WARNING);
	doctor_report_add(&r, DOCTOR_CARD_STUCK, "a", "b");
	doctor_report_add(&r, DOCTOR_NOT_ROOT, "a", "b");
	assert_int_equal(doctor_report_exit_status(&r), DOCTOR_EXIT_ERROR);
	assert_true(doctor_report_has(&r, DOCTOR_CARD_STUCK, "a"));
	assert_false(doctor_report_has(&r, DOCTOR_CARD_STUCK, "c"));
	doctor_report_done(&r);
}

static void every_kind_is_complete(void **state)
{
	(void)state;
	for (int i = 0; i < DOCTOR_ID_COUNT; i++) {
		const struct doctor_kind *k = doctor_kind((enum doctor_id)i);

		assert_non_null(k->id);
		assert_true(*k->title && *k->why && *k->how);
		for (int j = 0; j < i; j++)
			assert_string_not_equal(k->id, doctor_kind((enum doctor_id)j)->id);
	}
	for (int c = 0; c < DOCTOR_CHECK_COUNT; c++)
		assert_non_null(doctor_check_id((enum doctor_check)c));
}

/* Any text, however long and odd, in any width. */
static void odd_texts_are_printed(void **state)
{
	char text[5000];

	(void)state;
	memset(text, 'x', sizeof text);
	text[sizeof text - 1] = '\0';
	for (unsigned columns = 40; columns < 200; columns += 37) {
		struct terminal t = { .columns = columns, .colour = columns & 1 };
		struct doctor_report r = { 0 };
		_buf_ struct buf out = BUF_INIT;

		doctor_report_add(&r, DOCTOR_CARD_STUCK, text, "%s %s", text, text);
		doctor_report_add(&r, DOCTOR_CARD_STUCK, "", "  \x1b[2J\xff\n  ");
		doctor_report_not_made(&r, DOCTOR_CHECK_TLS, "%s", text);
		doctor_report_text(&r, &t, &out);
		assert_int_equal(buf_finish(&out), 0);
		assert_null(strstr(out.data, "\x1b[2J"));
		doctor_report_done(&r);
	}
}

static void hang(const void *context, void *memory)
{
	(void)context;
	*(volatile int *)memory = 1;
	for (;;)
		pause();
}

static void die(const void *context, void *memory)
{
	(void)context;
	(void)memory;
	abort();
}

static void add(const void *context, void *memory)
{
	*(int *)memory = *(const int *)context + 1;
	/* Nothing of the parent's is open here. */
	for (int fd = 3; fd < 64; fd++)
		if (dup(fd) >= 0)
			abort();
}

static void children_have_a_deadline(void **state)
{
	int *memory = doctor_probe_memory(sizeof *memory), three = 3;
	struct doctor_probe p;

	(void)state;
	assert_non_null(memory);
	assert_int_equal(doctor_probe_run(add, &three, memory, USEC_PER_SEC * 10), 0);
	assert_int_equal(*memory, 4);
	assert_int_equal(doctor_probe_run(hang, NULL, memory, 1000), -ETIMEDOUT);
	assert_int_equal(doctor_probe_run(die, NULL, memory, USEC_PER_SEC * 10), -ECHILD);
	p = doctor_probe_start(hang, NULL, memory);
	assert_int_equal(doctor_probe_wait(&p, 0), -ETIMEDOUT);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clock_is_judged),
		cmocka_unit_test(branch_is_read),
		cmocka_unit_test(proc_version_is_read),
		cmocka_unit_test(options_are_found),
		cmocka_unit_test(status_is_read),
		cmocka_unit_test(a_check_is_ok_only_when_made),
		cmocka_unit_test(exit_status_is_the_worst),
		cmocka_unit_test(every_kind_is_complete),
		cmocka_unit_test(odd_texts_are_printed),
		cmocka_unit_test(children_have_a_deadline),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
