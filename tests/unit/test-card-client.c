/* SPDX-License-Identifier: Apache-2.0 */
/* The client with the real berth-card, found through BERTH_HELPER_DIR, on plain folders. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "host/card-client.h"
#include "model/outcome.h"
#include "model/placement.h"
#include "plain-tree.h"

#include <cmocka.h>

#define VFS 4

static const struct pci_addr card = { 0, 0x41, 0, 0 };

struct fixture {
	struct plain_tree tree;
	sd_event *event;
	struct card_client *client;
	struct pci_addr vfs[VFS];
	unsigned n_states;
	enum card_client_state states[32];
	bool free_on_state;
	bool free_on_done;
	unsigned n_done;
	unsigned n_submitted_in_done;
	struct card_reply last;
};

static void state_changed(struct card_client *c, enum card_client_state state, void *userdata)
{
	struct fixture *f = userdata;

	assert_ptr_equal(c, f->client);
	assert_int_equal(card_client_get_state(c), state);
	if (state == CARD_CLIENT_STUCK)
		assert_true(card_client_reason(c)[0] != '\0');
	if (f->n_states < ARRAY_SIZE(f->states))
		f->states[f->n_states++] = state;
	if (f->free_on_state)
		f->client = card_client_free(c);
}

static void done(const struct card_reply *reply, void *userdata)
{
	struct fixture *f = userdata;

	f->last = *reply;
	f->n_done++;
	if (f->free_on_done)
		f->client = card_client_free(f->client);
}

static void start_client(struct fixture *f, uint64_t timeout_usec)
{
	struct card_client_config config = {
		.event = f->event,
		.card = card,
		.sysfs_root = f->tree.sys,
		.dev_root = f->tree.dev,
		.proc_root = "/proc",
		.lock_dir = plain_tree_path(&f->tree, "run"),
		.timeout_usec = timeout_usec,
		.state_changed = state_changed,
		.userdata = f,
	};

	assert_int_equal(card_client_new(&config, &f->client, NULL), 0);
	assert_int_equal(card_client_get_state(f->client), CARD_CLIENT_STARTING);
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);

	assert_non_null(f);
	plain_tree_init(&f->tree);
	plain_tree_card(&f->tree, card, VFS, 0);
	for (unsigned i = 0; i < VFS; i++)
		f->vfs[i] = plain_tree_vf(&f->tree, card, i, 4);
	assert_true(sd_event_new(&f->event) >= 0);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	card_client_free(f->client);
	sd_event_unref(f->event);
	plain_tree_done(&f->tree);
	free(f);
	return 0;
}

/* Runs the loop until the condition holds; a test that waits longer than 10 s fails. */
#define RUN_UNTIL(f, condition)                                                                    \
	do {                                                                                       \
		uint64_t _give_up = clock_now_usec() + 10 * USEC_PER_SEC;                          \
		while (!(condition)) {                                                             \
			if (clock_now_usec() > _give_up)                                           \
				fail_msg("waited in vain for %s", #condition);                     \
			assert_true(sd_event_run((f)->event, 20 * USEC_PER_MSEC) >= 0);            \
		}                                                                                  \
	} while (0)

static void submit(struct fixture *f, const struct card_request *request)
{
	assert_int_equal(card_client_submit(f->client, request, done, f), 0);
}

static void ask(struct fixture *f, const struct card_request *request)
{
	unsigned before = f->n_done;

	submit(f, request);
	RUN_UNTIL(f, f->n_done > before);
}

/* A helper that hangs, as far as its client can see. */
static pid_t stop_helper(const struct fixture *f)
{
	pid_t pid = card_client_pid(f->client);

	assert_true(pid > 0);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	return pid;
}

static struct card_request request_for(const struct fixture *f, enum card_op op, unsigned n)
{
	struct card_request r = { .op = op, .n_vfs = n, .placement_id = PLACEMENT_NONE };

	memcpy(r.vfs, f->vfs, n * sizeof r.vfs[0]);
	return r;
}

static struct card_request configure(const struct fixture *f, unsigned vf, uint32_t type)
{
	struct card_request r = request_for(f, CARD_OP_CONFIGURE, 1);

	r.vfs[0] = f->vfs[vf];
	r.type_id = type;
	return r;
}

static void reads_lists_configures_and_releases(void **state)
{
	struct fixture *f = *state;
	struct card_request r;

	start_client(f, 5 * USEC_PER_SEC);
	/* Before the helper is there: waits. */
	r = request_for(f, CARD_OP_READ, VFS);
	ask(f, &r);
	assert_int_equal(card_client_get_state(f->client), CARD_CLIENT_READY);
	assert_string_equal(card_client_reason(f->client), "");
	assert_true(card_client_pid(f->client) > 0);
	assert_int_equal(f->last.result, 0);
	assert_int_equal(f->last.n_vfs, VFS);
	assert_int_equal(f->last.vfs[3].error, 0);
	assert_int_equal(f->last.vfs[3].type_id, 0);
	assert_true(f->last.vfs[3].has_placement_file);

	r = request_for(f, CARD_OP_LIST, VFS);
	ask(f, &r);
	assert_int_equal(f->last.types.n, 2);
	assert_string_equal(f->last.types.items[1].name, "NVIDIA L40S-1Q");
	assert_int_equal(f->last.lists[2][0], 3);
	assert_int_equal(f->last.list_errors[2], 0);

	r = configure(f, 1, 1147);
	r.placement_id = 12;
	ask(f, &r);
	assert_int_equal(f->last.result, 0);
	assert_int_equal(f->last.step, CARD_STEP_DONE);
	assert_true(f->last.steered);
	assert_int_equal(f->last.vfs[0].type_id, 1147);
	assert_int_equal(f->last.vfs[0].placement_id, 12);
	ask(f, &r);
	assert_int_equal(f->last.result, -EEXIST);
	assert_int_equal(f->last.step, CARD_STEP_BEFORE);

	r.op = CARD_OP_RELEASE;
	ask(f, &r);
	assert_int_equal(f->last.result, 0);
	assert_int_equal(f->last.vfs[0].open, CARD_OPEN_NO);
	assert_int_equal(f->last.vfs[0].type_id, 0);
	assert_string_equal(
		plain_tree_read(&f->tree, plain_tree_device(f->vfs[1], "nvidia/current_vgpu_type")),
		"0");
}

static void finds_who_holds_a_vf(void **state)
{
	struct fixture *f = *state;
	struct card_request r;
	char want[64];
	int fd, to_child[2];
	pid_t pid;

	fd = open(plain_tree_path(&f->tree, "dev/vfio/42"), O_RDONLY | O_CLOEXEC); /* VF 1 */
	assert_true(fd >= 0);
	assert_int_equal(pipe2(to_child, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		close(to_child[1]);
		(void)!read(to_child[0], want, 1);
		_exit(0);
	}
	close(fd);
	start_client(f, 5 * USEC_PER_SEC);
	r = request_for(f, CARD_OP_SCAN, VFS);
	ask(f, &r);
	assert_int_equal(f->last.vfs[0].open, CARD_OPEN_NO);
	assert_int_equal(f->last.vfs[1].open, CARD_OPEN_YES);
	assert_int_equal(f->last.vfs[2].open, CARD_OPEN_NO);

	r = configure(f, 1, 1147);
	ask(f, &r);
	r.op = CARD_OP_RELEASE;
	ask(f, &r);
	assert_int_equal(f->last.result, -EBUSY);
	assert_int_equal(f->last.step, CARD_STEP_SCAN);
	snprintf(want, sizeof want, "pid %d (test-card-clien)", (int)pid);
	assert_string_equal(f->last.holder, want);
	assert_int_equal(f->last.vfs[0].type_id, 1147);

	close(to_child[1]);
	waitpid(pid, NULL, 0);
	close(to_child[0]);
	ask(f, &r);
	assert_int_equal(f->last.result, 0);
}

static void many_operations_all_end(void **state)
{
	struct fixture *f = *state;
	struct card_request r = request_for(f, CARD_OP_READ, VFS);
	struct card_request s = request_for(f, CARD_OP_SCAN, 1);
	struct card_request c = configure(f, 0, 1147);
	unsigned n = 0;

	start_client(f, 8 * USEC_PER_SEC);
	while (n + 3 <= CARD_OUTSTANDING_MAX) {
		submit(f, &r);
		submit(f, &s);
		submit(f, &c);
		n += 3;
	}
	while (n < CARD_OUTSTANDING_MAX) {
		submit(f, &r);
		n++;
	}
	assert_int_equal(card_client_submit(f->client, &r, done, f), -EAGAIN);
	RUN_UNTIL(f, f->n_done == n);
}

static void refuses_what_is_no_request(void **state)
{
	struct fixture *f = *state;
	struct card_request r = configure(f, 0, 0);

	start_client(f, 5 * USEC_PER_SEC);
	assert_int_equal(card_client_submit(f->client, &r, done, f), -EBADMSG);
	r = request_for(f, CARD_OP_RELEASE, 2);
	assert_int_equal(card_client_submit(f->client, &r, done, f), -EBADMSG);
	assert_int_equal(f->n_done, 0);
}

static void a_hanging_helper_is_replaced(void **state)
{
	struct fixture *f = *state;
	struct card_request r = request_for(f, CARD_OP_READ, VFS);
	pid_t first;

	start_client(f, USEC_PER_SEC);
	ask(f, &r);
	first = stop_helper(f);
	submit(f, &r);
	submit(f, &r);
	RUN_UNTIL(f, f->n_done == 3);
	assert_int_equal(f->last.result, -E_DRIVER_STUCK);
	assert_int_equal(card_client_submit(f->client, &r, done, f), -E_DRIVER_STUCK);
	assert_int_equal(card_client_get_state(f->client), CARD_CLIENT_STUCK);
	RUN_UNTIL(f, f->n_done == 3 && card_client_get_state(f->client) == CARD_CLIENT_READY);
	assert_int_not_equal(card_client_pid(f->client), first);
	assert_int_equal(f->n_states, 3); /* ready, stuck, ready */
	ask(f, &r);
	assert_int_equal(f->last.result, 0);
}

static void waits_for_a_lock_that_another_helper_holds(void **state)
{
	struct fixture *f = *state;
	struct card_request r = request_for(f, CARD_OP_READ, VFS);
	uint64_t began;
	int fd;

	plain_tree_write(&f->tree, "run/card-0000:41:00.0.lock", "4711\n");
	fd = open(plain_tree_path(&f->tree, "run/card-0000:41:00.0.lock"), O_RDONLY | O_CLOEXEC);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	start_client(f, 5 * USEC_PER_SEC);
	submit(f, &r);
	RUN_UNTIL(f, card_client_get_state(f->client) == CARD_CLIENT_STUCK);
	assert_non_null(strstr(card_client_reason(f->client), "4711"));
	assert_int_equal(f->n_done, 1);
	assert_int_equal(f->last.result, -E_DRIVER_STUCK);
	assert_int_equal(f->last.step, CARD_STEP_BEFORE);
	/* Still, after another try. */
	began = clock_now_usec();
	RUN_UNTIL(f, clock_now_usec() - began > 1200 * USEC_PER_MSEC);
	assert_int_equal(card_client_get_state(f->client), CARD_CLIENT_STUCK);
	close(fd);
	RUN_UNTIL(f, card_client_get_state(f->client) == CARD_CLIENT_READY);
	ask(f, &r);
	assert_int_equal(f->last.result, 0);
}

static void a_short_holder_of_the_lock_makes_nobody_stuck(void **state)
{
	struct fixture *f = *state;
	uint64_t began;
	int fd;

	plain_tree_write(&f->tree, "run/card-0000:41:00.0.lock", "");
	fd = open(plain_tree_path(&f->tree, "run/card-0000:41:00.0.lock"), O_RDONLY | O_CLOEXEC);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	start_client(f, 5 * USEC_PER_SEC);
	began = clock_now_usec();
	RUN_UNTIL(f, clock_now_usec() - began > 150 * USEC_PER_MSEC);
	close(fd);
	RUN_UNTIL(f, card_client_get_state(f->client) == CARD_CLIENT_READY);
	assert_int_equal(f->n_states, 1);
}

static void a_crashed_helper_is_started_again(void **state)
{
	struct fixture *f = *state;
	struct card_request r = request_for(f, CARD_OP_READ, VFS);
	pid_t pid;

	start_client(f, 5 * USEC_PER_SEC);
	ask(f, &r);
	pid = stop_helper(f);
	submit(f, &r);
	kill(pid, SIGKILL);
	RUN_UNTIL(f, f->n_done == 2);
	assert_int_equal(f->last.result, -ECONNRESET);
	assert_int_equal(card_client_get_state(f->client), CARD_CLIENT_STARTING);
	ask(f, &r);
	assert_int_equal(f->last.result, 0);
}

/* A program that ends at once in berth-card's place. */
static void a_helper_that_does_not_live_is_not_started_without_end(void **state)
{
	struct fixture *f = *state;
	struct card_request r = request_for(f, CARD_OP_READ, VFS);
	char *old = strdup(getenv("BERTH_HELPER_DIR"));
	struct stat st;
	uint64_t began;

	plain_tree_write(
		&f->tree, "bin/berth-card",
		"#!/bin/sh\nwhile [ $# -gt 0 ]; do [ \"$1\" = --lock ] && echo x >> \"$2.starts\"; "
		"shift; done\nexit 3\n");
	chmod(plain_tree_path(&f->tree, "bin/berth-card"), 0755);
	setenv("BERTH_HELPER_DIR", plain_tree_path(&f->tree, "bin"), 1);
	start_client(f, 8 * USEC_PER_SEC);
	submit(f, &r);
	began = clock_now_usec();
	RUN_UNTIL(f, card_client_get_state(f->client) == CARD_CLIENT_STUCK);
	assert_int_equal(f->n_done, 1);
	assert_int_equal(f->last.result, -E_DRIVER_STUCK);
	assert_non_null(strstr(card_client_reason(f->client), "status 3"));
	RUN_UNTIL(f, clock_now_usec() - began > USEC_PER_SEC);
	assert_int_equal(stat(plain_tree_path(&f->tree, "run/card-0000:41:00.0.lock.starts"), &st),
			 0);
	assert_in_range(st.st_size / 2, 3, 6);
	setenv("BERTH_HELPER_DIR", old, 1);
	RUN_UNTIL(f, card_client_get_state(f->client) == CARD_CLIENT_READY);
	free(old);
}

static void may_be_freed_in_a_callback(void **state)
{
	struct fixture *f = *state;
	struct card_request r = request_for(f, CARD_OP_READ, VFS);
	pid_t pid;

	f->free_on_state = true;
	start_client(f, 5 * USEC_PER_SEC);
	submit(f, &r);
	RUN_UNTIL(f, !f->client);
	assert_int_equal(f->n_done, 0);

	/* Each helper that is left behind keeps the lock for a moment. */
	f->free_on_state = false;
	start_client(f, USEC_PER_SEC);
	RUN_UNTIL(f, card_client_get_state(f->client) == CARD_CLIENT_READY);
	f->free_on_done = true;
	submit(f, &r);
	submit(f, &r);
	RUN_UNTIL(f, !f->client);
	assert_int_equal(f->n_done, 1);

	start_client(f, USEC_PER_SEC);
	RUN_UNTIL(f, card_client_get_state(f->client) == CARD_CLIENT_READY);
	pid = stop_helper(f);
	submit(f, &r);
	submit(f, &r);
	RUN_UNTIL(f, !f->client);
	assert_int_equal(f->n_done, 2);
	/* The loop collects what was left behind. */
	RUN_UNTIL(f, kill(pid, 0) < 0 && errno == ESRCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(reads_lists_configures_and_releases, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(finds_who_holds_a_vf, set_up, tear_down),
		cmocka_unit_test_setup_teardown(many_operations_all_end, set_up, tear_down),
		cmocka_unit_test_setup_teardown(refuses_what_is_no_request, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_hanging_helper_is_replaced, set_up, tear_down),
		cmocka_unit_test_setup_teardown(waits_for_a_lock_that_another_helper_holds, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_short_holder_of_the_lock_makes_nobody_stuck,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_crashed_helper_is_started_again, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(
			a_helper_that_does_not_live_is_not_started_without_end, set_up, tear_down),
		cmocka_unit_test_setup_teardown(may_be_freed_in_a_callback, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
