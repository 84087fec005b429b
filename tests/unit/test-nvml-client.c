/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client against helpers that misbehave. This program is its own helper: a link to it named
 * berth-nvml stands in BERTH_HELPER_DIR, and the name of the library says what the helper does.
 * "once:" in front: only the first helper does so, later ones are good.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <limits.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "nvml/client.h"
#include "nvml-fake-helper.h"

#define LIMIT_USEC (20 * USEC_PER_SEC)
#define SHORT_USEC (100 * USEC_PER_MSEC)

static char dir[] = "/tmp/test-nvml-client-XXXXXX";
static sd_event *event;
static struct nvml_client *client;
static struct pci_addr cards[NVML_CARDS_MAX];

struct seen {
	unsigned calls;
	struct nvml_answer answer; /* cards is NULL */
	struct nvml_card first, last;
	bool stuck;
	struct seen *again; /* ask once more from within the call, for this one */
	bool free_client;
};

static int setup(void **state _unused_)
{
	char flag[PATH_MAX];

	snprintf(flag, sizeof flag, "%s/flag", dir);
	unlink(flag);
	for (unsigned i = 0; i < NVML_CARDS_MAX; i++)
		cards[i] = (struct pci_addr){ .domain = 1, .bus = (uint8_t)(2 * i) };
	return sd_event_new(&event);
}

static int teardown(void **state _unused_)
{
	client = nvml_client_free(client);
	event = sd_event_unref(event);
	return 0;
}

static void renew(void)
{
	teardown(NULL);
	assert_true(setup(NULL) >= 0);
}

static void create(const char *library, uint64_t timeout_usec)
{
	struct nvml_client_config config = { event, library, timeout_usec };
	struct error err = ERROR_INIT;

	assert_int_equal(nvml_client_new(&config, &client, &err), 0);
}

static void on_done(const struct nvml_answer *answer, void *userdata)
{
	struct seen *seen = userdata;

	seen->calls++;
	seen->answer = *answer;
	seen->answer.cards = NULL;
	if (answer->n_cards) {
		seen->first = answer->cards[0];
		seen->last = answer->cards[answer->n_cards - 1];
	}
	seen->stuck = nvml_client_is_stuck(client);
	if (seen->again)
		assert_int_equal(nvml_client_query(client, cards, 2, on_done, seen->again), 0);
	if (seen->free_client)
		client = nvml_client_free(client);
}

static void ask(struct seen *seen, unsigned n)
{
	*seen = (struct seen){ .again = seen->again, .free_client = seen->free_client };
	assert_int_equal(nvml_client_query(client, cards, n, on_done, seen), 0);
	assert_int_equal(seen->calls, 0);
}

/* Runs the loop until *what is not 0; the limit is for a hanging test. */
static void run_until(const unsigned *what)
{
	uint64_t end = clock_now_usec() + LIMIT_USEC;

	while (!*what) {
		assert_true(clock_now_usec() < end);
		assert_true(sd_event_run(event, USEC_PER_SEC) >= 0);
	}
}

static void run_until_gone(void)
{
	uint64_t end = clock_now_usec() + LIMIT_USEC;

	while (nvml_client_pid(client)) {
		assert_true(clock_now_usec() < end);
		assert_true(sd_event_run(event, USEC_PER_SEC) >= 0);
	}
}

static void query(struct seen *seen, unsigned n)
{
	ask(seen, n);
	run_until(&seen->calls);
	assert_int_equal(seen->calls, 1);
}

static void query_good(void)
{
	struct seen seen = { 0 };

	query(&seen, 2);
	assert_int_equal(seen.answer.reason, NVML_REASON_NONE);
	assert_int_equal(seen.answer.n_cards, 2);
}

static void test_good(void **state _unused_)
{
	struct seen seen = { 0 };
	uint64_t begun = clock_now_usec();
	pid_t pid;

	create("good", LIMIT_USEC);
	assert_int_equal(nvml_client_pid(client), 0);
	ask(&seen, 3);
	assert_true(nvml_client_is_busy(client));
	assert_int_equal(nvml_client_query(client, cards, 1, on_done, &seen), -EBUSY);
	run_until(&seen.calls);
	assert_false(nvml_client_is_busy(client));
	assert_int_equal(nvml_client_query(client, cards, NVML_CARDS_MAX + 1, on_done, &seen),
			 -EINVAL);
	assert_int_equal(seen.answer.reason, NVML_REASON_NONE);
	assert_int_equal(seen.answer.n_cards, 3);
	assert_int_equal(seen.answer.query_usec, 42);
	assert_string_equal(seen.answer.driver, "580.178.05");
	assert_false(seen.answer.skipped);
	assert_true(seen.answer.asked_usec >= begun);
	assert_true(seen.answer.answered_usec >= seen.answer.asked_usec);
	assert_true(pci_addr_equal(seen.last.address, cards[2]));
	/* Text from outside is made safe. */
	assert_string_equal(seen.last.name, "card?2");
	assert_string_equal(seen.first.types[0].profile.name, "NVIDIA ?-4Q");
	pid = nvml_client_pid(client);
	assert_int_not_equal(pid, 0);
	query_good();
	query(&seen, 0);
	assert_int_equal(seen.answer.reason, NVML_REASON_NONE);
	assert_int_equal(seen.answer.n_cards, 0);
	assert_int_equal(nvml_client_pid(client), pid);
}

static void test_big(void **state _unused_)
{
	struct seen seen = { 0 };

	create("big", LIMIT_USEC);
	query(&seen, NVML_CARDS_MAX);
	assert_int_equal(seen.answer.reason, NVML_REASON_NONE);
	assert_int_equal(seen.answer.n_cards, NVML_CARDS_MAX);
	assert_int_equal(seen.last.types[PROFILE_TYPES_MAX - 1].profile.type_id, 1127);
}

static void test_switched_off(void **state _unused_)
{
	struct seen seen = { 0 };

	create("", LIMIT_USEC);
	query(&seen, 2);
	assert_int_equal(seen.answer.reason, NVML_REASON_LIBRARY);
	assert_true(seen.answer.skipped);
	assert_int_equal(seen.answer.n_cards, 0);
	assert_non_null(strstr(seen.answer.text, "switched off"));
	assert_int_equal(nvml_client_pid(client), 0);
}

static void test_no_helper(void **state _unused_)
{
	struct seen seen = { 0 };

	setenv("BERTH_HELPER_DIR", "/nonexistent", 1);
	create("good", LIMIT_USEC);
	query(&seen, 2);
	setenv("BERTH_HELPER_DIR", dir, 1);
	assert_int_equal(seen.answer.reason, NVML_REASON_ERROR);
	assert_non_null(strstr(seen.answer.text, "berth-nvml"));
	query_good();
}

static void test_hang(void **state _unused_)
{
	struct seen skipped = { 0 };
	struct seen seen = { .again = &skipped };
	uint64_t begun = clock_now_usec();

	create("once:hang", SHORT_USEC);
	query(&seen, 2);
	assert_int_equal(seen.answer.reason, NVML_REASON_TIMEOUT);
	assert_string_equal(seen.answer.text, "NVML did not answer within 0.1 s");
	assert_false(seen.answer.skipped);
	assert_true(seen.answer.answered_usec - begun >= SHORT_USEC);
	assert_true(seen.stuck);
	/* Asked while the killed helper is not reaped yet. */
	run_until(&skipped.calls);
	assert_int_equal(skipped.answer.reason, NVML_REASON_TIMEOUT);
	assert_true(skipped.answer.skipped);
	run_until_gone();
	assert_false(nvml_client_is_stuck(client));
	query_good();
}

/* Holds a process so that it cannot be reaped when it dies, as one that hangs in the driver.
 * Returns the holder's pid; killing that lets go. -1: not permitted here. */
static pid_t hold(pid_t pid)
{
	char byte = 'n';
	int pipe_fds[2];
	pid_t holder;

	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	holder = fork();
	assert_true(holder >= 0);
	if (holder == 0) {
		byte = ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0 ? 'y' : 'n';
		(void)!write(pipe_fds[1], &byte, 1);
		for (;;)
			pause();
	}
	assert_int_equal(read(pipe_fds[0], &byte, 1), 1);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	if (byte == 'y')
		return holder;
	kill(holder, SIGKILL);
	waitpid(holder, NULL, 0);
	return -1;
}

static void test_stuck(void **state _unused_)
{
	struct seen seen = { 0 };
	pid_t pid, holder;

	create("once:hang", SHORT_USEC);
	ask(&seen, 2);
	pid = nvml_client_pid(client);
	holder = hold(pid);
	if (holder < 0) {
		skip();
		return;
	}
	run_until(&seen.calls);
	assert_int_equal(seen.answer.reason, NVML_REASON_TIMEOUT);
	assert_false(seen.answer.skipped);
	for (int i = 0; i < 3; i++) {
		uint64_t begun = clock_now_usec();

		query(&seen, 2);
		assert_int_equal(seen.answer.reason, NVML_REASON_TIMEOUT);
		assert_true(seen.answer.skipped);
		assert_true(clock_now_usec() - begun < SHORT_USEC);
		assert_true(nvml_client_is_stuck(client));
		assert_int_equal(nvml_client_pid(client), pid);
	}
	kill(holder, SIGKILL);
	waitpid(holder, NULL, 0);
	run_until_gone();
	assert_false(nvml_client_is_stuck(client));
	query_good();
}

static void test_ends_in_query(void **state _unused_)
{
	static const struct {
		const char *library, *text;
	} cases[] = {
		{ "once:crash", "signal 9 (Killed)" },
		{ "once:exit", "exit status 3" },
		{ "once:half", "exit status 4" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct seen seen = { 0 };

		create(cases[i].library, LIMIT_USEC);
		query(&seen, 2);
		assert_int_equal(seen.answer.reason, NVML_REASON_ERROR);
		assert_non_null(strstr(seen.answer.text, cases[i].text));
		assert_int_equal(seen.answer.n_cards, 0);
		assert_false(nvml_client_is_stuck(client));
		query_good();
		renew();
	}
}

static void test_closes_and_hangs(void **state _unused_)
{
	struct seen seen = { 0 };

	create("once:close", SHORT_USEC);
	query(&seen, 2);
	assert_int_equal(seen.answer.reason, NVML_REASON_TIMEOUT);
	run_until_gone();
	query_good();
}

static void test_garbage(void **state _unused_)
{
	static const char *const libraries[] = {
		"once:length", "once:kind", "once:address", "once:bool",       "once:type",
		"once:early",  "once:tiny", "once:huge",    "once:end-length", "once:more",
	};

	for (size_t i = 0; i < ARRAY_SIZE(libraries); i++) {
		struct seen seen = { 0 };

		create(libraries[i], LIMIT_USEC);
		query(&seen, 2);
		assert_int_equal(seen.answer.reason, NVML_REASON_ERROR);
		assert_non_null(strstr(seen.answer.text, "makes no sense"));
		assert_int_equal(seen.answer.n_cards, 0);
		/* At once, though the killed one may not have been reaped. */
		query_good();
		renew();
	}
}

static void test_babble(void **state _unused_)
{
	struct seen seen = { 0 };

	create("once:babble", LIMIT_USEC);
	query(&seen, 0);
	run_until_gone();
	assert_int_equal(seen.calls, 1);
	query_good();
}

static void test_stale(void **state _unused_)
{
	create("stale", LIMIT_USEC);
	query_good();
	query_good();
}

static void test_answers_and_ends(void **state _unused_)
{
	create("last", LIMIT_USEC);
	for (int i = 0; i < 5; i++) {
		query_good();
		run_until_gone();
	}
}

/* The helper dies while it is idle and the loop has not heard of it: that costs no query. */
static void test_killed_while_idle(void **state _unused_)
{
	siginfo_t info;
	pid_t pid;

	create("good", LIMIT_USEC);
	query_good();
	pid = nvml_client_pid(client);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	query_good();
	assert_int_not_equal(nvml_client_pid(client), pid);
}

/* A query asked anew: what came before does not count. */
static void test_asked_anew(void **state _unused_)
{
	uint64_t begun = clock_now_usec(), now;
	struct seen seen = { 0 };

	create("gives-up", LIMIT_USEC);
	assert_int_equal(nvml_client_restart(client, true), -EALREADY);
	ask(&seen, 3);
	while (sd_event_run(event, LIMIT_USEC) == 0)
		assert_true(clock_now_usec() < begun + LIMIT_USEC);
	now = clock_now_usec();
	assert_int_equal(nvml_client_restart(client, false), 0);
	run_until(&seen.calls);
	assert_int_equal(seen.calls, 1);
	assert_int_equal(seen.answer.reason, NVML_REASON_NONE);
	assert_int_equal(seen.answer.n_cards, 3);
	assert_true(seen.answer.asked_usec >= now);
	assert_true(pci_addr_equal(seen.first.address, cards[0]));
	assert_int_equal(nvml_client_restart(client, true), -EALREADY);
}

/* How long a query of a helper that hangs takes when it is asked anew just before its deadline. */
static uint64_t time_until_timeout(bool extend)
{
	uint64_t begun = clock_now_usec();
	struct seen seen = { 0 };

	create("hang", SHORT_USEC);
	ask(&seen, 2);
	while (clock_now_usec() < begun + SHORT_USEC * 3 / 4)
		assert_true(sd_event_run(event, SHORT_USEC / 10) >= 0);
	if (seen.calls) { /* the machine stood still for long */
		renew();
		return UINT64_MAX;
	}
	assert_int_equal(nvml_client_restart(client, extend), 0);
	run_until(&seen.calls);
	assert_int_equal(seen.answer.reason, NVML_REASON_TIMEOUT);
	renew();
	return clock_now_usec() - begun;
}

static void test_asked_anew_deadline(void **state _unused_)
{
	assert_true(time_until_timeout(false) >= SHORT_USEC);
	assert_true(time_until_timeout(true) >= SHORT_USEC * 3 / 2);
}

static void test_restart(void **state _unused_)
{
	struct seen seen = { 0 };
	pid_t pid;

	create("once:restart", LIMIT_USEC);
	query_good();
	pid = nvml_client_pid(client);
	query_good();
	assert_int_not_equal(nvml_client_pid(client), pid);
	pid = nvml_client_pid(client);
	query_good();
	assert_int_equal(nvml_client_pid(client), pid);

	renew();
	create("once:library", LIMIT_USEC);
	query(&seen, 2);
	assert_int_equal(seen.answer.reason, NVML_REASON_LIBRARY);
	assert_int_equal(seen.answer.nvml_error, 18);
	assert_string_equal(seen.answer.text, "nvmlInit_v2: mismatch (18)");
	assert_int_equal(seen.answer.n_cards, 0);
	query_good();
}

static void test_release(void **state _unused_)
{
	struct seen seen = { 0 };

	create("good", LIMIT_USEC);
	query_good();
	nvml_client_release(client);
	assert_true(nvml_client_is_released(client));
	run_until_gone();
	query(&seen, 2);
	assert_int_equal(seen.answer.reason, NVML_REASON_LIBRARY);
	assert_true(seen.answer.skipped);
	assert_non_null(strstr(seen.answer.text, "stopped by hand"));
	assert_int_equal(nvml_client_pid(client), 0);
	nvml_client_resume(client);
	query_good();
	/* In the middle of a query, and back before it has gone. */
	ask(&seen, 2);
	nvml_client_release(client);
	nvml_client_resume(client);
	run_until(&seen.calls);
	assert_int_equal(seen.answer.reason, NVML_REASON_LIBRARY);
	query_good();
	assert_int_equal(seen.calls, 1);
}

/* A helper that does not come back from nvmlShutdown. */
static void test_release_of_deaf_helper(void **state _unused_)
{
	struct seen seen = { 0 };
	uint64_t begun;

	create("deaf", SHORT_USEC);
	query_good();
	nvml_client_release(client);
	nvml_client_resume(client);
	query(&seen, 2);
	assert_int_equal(seen.answer.reason, NVML_REASON_TIMEOUT);
	run_until_gone();
	client = nvml_client_free(client);

	create("deaf", LIMIT_USEC);
	query_good();
	begun = clock_now_usec();
	nvml_client_release(client);
	run_until_gone();
	assert_true(clock_now_usec() - begun >= 5 * USEC_PER_SEC);
	assert_true(clock_now_usec() - begun < 10 * USEC_PER_SEC);
}

static void test_end_of_client(void **state _unused_)
{
	struct seen seen = { 0 };
	int status;
	pid_t pid;

	/* From within its own answer. */
	create("good", LIMIT_USEC);
	seen.free_client = true;
	query(&seen, 2);
	assert_null(client);
	/* With a query out; the helper ends by itself. */
	create("good", LIMIT_USEC);
	seen.free_client = false;
	ask(&seen, 2);
	pid = nvml_client_pid(client);
	client = nvml_client_free(client);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_true(sd_event_run(event, 0) >= 0);
	assert_int_equal(seen.calls, 0);
	assert_null(nvml_client_free(NULL));
}

static void test_names(void **state _unused_)
{
	assert_null(nvml_reason_name(NVML_REASON_NONE));
	assert_string_equal(nvml_reason_name(NVML_REASON_EQUAL_SIZE), "equal_size");
	assert_string_equal(nvml_reason_name(NVML_REASON_MIG), "mig");
	assert_string_equal(nvml_reason_name(NVML_REASON_UNSUPPORTED), "unsupported");
	assert_string_equal(nvml_reason_name(NVML_REASON_LIBRARY), "library");
	assert_string_equal(nvml_reason_name(NVML_REASON_TIMEOUT), "timeout");
	assert_string_equal(nvml_reason_name(NVML_REASON_ERROR), "error");
	assert_string_equal(nvml_mode_name(NVML_MODE_UNKNOWN), "unknown");
	assert_string_equal(nvml_mode_name(NVML_MODE_MIXED), "mixed");
	assert_string_equal(nvml_mode_name(NVML_MODE_EQUAL), "equal");
	assert_string_equal(nvml_mode_name(NVML_MODE_MIG), "mig");
}

static int group_setup(void **state _unused_)
{
	char self[PATH_MAX], path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

	if (n < 0 || !mkdtemp(dir))
		return -1;
	self[n] = '\0';
	snprintf(path, sizeof path, "%s/berth-nvml", dir);
	return symlink(self, path) < 0 || setenv("BERTH_HELPER_DIR", dir, 1) < 0 ? -1 : 0;
}

static int group_teardown(void **state _unused_)
{
	char path[PATH_MAX];

	snprintf(path, sizeof path, "%s/berth-nvml", dir);
	unlink(path);
	snprintf(path, sizeof path, "%s/flag", dir);
	unlink(path);
	return rmdir(dir);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_good),
		TEST(test_big),
		TEST(test_switched_off),
		TEST(test_no_helper),
		TEST(test_hang),
		TEST(test_stuck),
		TEST(test_ends_in_query),
		TEST(test_closes_and_hangs),
		TEST(test_garbage),
		TEST(test_babble),
		TEST(test_stale),
		TEST(test_answers_and_ends),
		TEST(test_killed_while_idle),
		TEST(test_asked_anew),
		TEST(test_asked_anew_deadline),
		TEST(test_restart),
		TEST(test_release),
		TEST(test_release_of_deaf_helper),
		TEST(test_end_of_client),
		cmocka_unit_test(test_names),
	};

	if (argc == 3 && !strcmp(argv[0], "berth-nvml"))
		be_helper(argv[2]);
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
