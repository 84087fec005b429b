/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Killed at any instant, or out of space: the database loads, holds all that was acknowledged, and
 * what it holds is the work up to some submit and nothing of a later one.
 *
 * The program runs itself as the victim: `test-claim-store-crash victim DIR BASE WINDOW [PEER]`.
 */
#include "claim-store-fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/file.h"

#define SLOTS  40U
#define ROUNDS 120

/* ---- the victim: submits number after number and writes each acknowledged one to stdout ---- */

struct victim {
	struct claim_store *store;
	uint32_t next; /* to be submitted */
	uint32_t acknowledged;
	uint32_t window;  /* submits under way */
	const char *peer; /* of its claims; NULL: none */
};

static void victim_submit(struct victim *v);

static void victim_on_done(int result, const struct error *err _unused_, void *userdata)
{
	struct victim *v = userdata;

	if (result < 0 || write(STDOUT_FILENO, &v->acknowledged, sizeof v->acknowledged) < 0)
		_exit(3);
	v->acknowledged++;
	victim_submit(v);
}

/* Number i goes, as i + 1, into two claims of its slot: a submit that were torn would show. */
static void victim_submit(struct victim *v)
{
	struct store_op ops[2] = { fixture_put(v->next % SLOTS),
				   fixture_put(v->next % SLOTS + SLOTS) };

	ops[0].claim.type_id = ops[1].claim.type_id = ++v->next;
	if (v->peer)
		str_copy_cut(ops[0].claim.peer, sizeof ops[0].claim.peer, v->peer);
	if (claim_store_submit(v->store, ops, 2, victim_on_done, v) < 0)
		_exit(4);
}

static void victim_on_loaded(struct claim_store *s, enum store_state state,
			     const struct store_content *c _unused_, const struct error *err,
			     void *userdata)
{
	struct victim *v = userdata;

	if (state != STORE_STATE_READY) {
		fprintf(stderr, "victim: %s\n", err->msg);
		_exit(5);
	}
	v->store = s;
	for (uint32_t i = 0; i < v->window; i++)
		victim_submit(v);
}

static int victim_main(char **argv)
{
	struct victim v = { 0 };
	struct claim_store_config config = { .data_dir = argv[2],
					     .loaded = victim_on_loaded,
					     .userdata = &v };

	if (str_to_u32(argv[3], &v.next) < 0 || str_to_u32(argv[4], &v.window) < 0)
		return 2;
	v.acknowledged = v.next;
	v.peer = argv[5];
	if (sd_event_new(&config.event) < 0 || claim_store_new(&config, &v.store, NULL) < 0)
		return 2;
	return sd_event_loop(config.event);
}

/* ---- the test's side ---- */

static pid_t victim_start_with(const struct fixture *f, uint32_t base, const char *window,
			       const char *peer, const char *fault, int *ret_fd)
{
	char number[16];
	char *argv[] = { (char *)"victim",
			 (char *)"victim",
			 (char *)f->dir,
			 number,
			 (char *)window,
			 (char *)peer,
			 NULL };
	posix_spawn_file_actions_t actions;
	int fds[2];
	pid_t pid;

	snprintf(number, sizeof number, "%u", base);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
	assert_int_equal(posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO), 0);
	if (fault)
		setenv("BERTH_FAULT", fault, 1);
	assert_int_equal(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
	unsetenv("BERTH_FAULT");
	posix_spawn_file_actions_destroy(&actions);
	close(fds[1]);
	*ret_fd = fds[0];
	return pid;
}

static pid_t victim_start(const struct fixture *f, uint32_t base, const char *window,
			  const char *fault, int *ret_fd)
{
	return victim_start_with(f, base, window, NULL, fault, ret_fd);
}

/* Waits for its end by SIGKILL; the number of submits it had acknowledged, `base` included. */
static uint32_t victim_finish(pid_t pid, int fd, uint32_t base)
{
	uint32_t acknowledged = base, number;
	int status;

	while (read(fd, &number, sizeof number) == sizeof number) {
		assert_int_equal(number, acknowledged);
		acknowledged++;
	}
	close(fd);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	return acknowledged;
}

/* The database is the work of exactly the first n submits; returns n. */
static uint32_t assert_prefix(struct fixture *f)
{
	uint32_t n = 0;

	fixture_open(f);
	if (f->state != STORE_STATE_READY)
		fail_msg("not ready: %s", f->reason);
	assert_string_equal(f->content.note, "");
	for (unsigned i = 0; i < f->content.n_claims; i++)
		n = MAX(n, f->claims[i].type_id);
	assert_int_equal(f->content.fresh, n == 0);
	assert_int_equal(f->content.n_claims, 2 * MIN(n, SLOTS));
	for (unsigned i = 0; i < f->content.n_claims; i++) {
		uint32_t slot;

		assert_int_equal(str_to_u32(f->claims[i].name + strlen("claim-"), &slot), 0);
		slot %= SLOTS;
		assert_int_equal(f->claims[i].type_id, n - (n - 1 - slot) % SLOTS);
	}
	fixture_close(f);
	return n;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);

	fixture_init(f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	fixture_done(*state);
	free(*state);
	return 0;
}

/* Every other round the instant is counted from the first acknowledgement, so that both a start and
 * steady work are hit. The pause below is the random instant, nothing is waited for by it. */
static void test_killed_at_any_instant(void **state)
{
	struct fixture *f = *state;
	uint32_t n = 0, most = 0;

	srandom((unsigned)getpid());
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint32_t acknowledged, stored;
		int fd;
		pid_t pid = victim_start(f, n, round % 3 ? "8" : "1", NULL, &fd);
		struct pollfd p = { .fd = fd, .events = POLLIN };

		if (round % 2)
			assert_int_equal(poll(&p, 1, (int)(DEADLINE_USEC / USEC_PER_MSEC)), 1);
		usleep((useconds_t)(random() % 15000));
		assert_int_equal(kill(pid, SIGKILL), 0);
		acknowledged = victim_finish(pid, fd, n);
		stored = assert_prefix(f);
		assert_true(stored >= acknowledged);
		most = MAX(most, acknowledged - n);
		n = stored;
	}
	print_message("# %u submits in %u lives, at most %u in one\n", n, ROUNDS, most);
	assert_true(most > 1);
}

static void test_fault_points(void **state)
{
	const struct {
		const char *fault;
		uint32_t acknowledged;
		uint32_t stored;
		const char *gen;
	} cases[] = {
		{ "store.before-commit:1", 0, 0, NULL }, /* a first start again */
		{ "store.after-commit:1", 0, 1, NULL },
		{ "store.before-commit:3", 2, 2, "00000000000000000002\n" },
		{ "store.after-commit:3", 2, 3, "00000000000000000002\n" }, /* lags, never leads */
		{ "store.after-gen:3", 2, 3, "00000000000000000003\n" },
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_free_ char *gen = NULL;
		int fd;
		pid_t pid;

		fixture_remove_files(f);
		pid = victim_start(f, 0, "1", cases[i].fault, &fd);
		assert_int_equal(victim_finish(pid, fd, 0), cases[i].acknowledged);
		if (cases[i].gen) {
			assert_int_equal(file_read_at(AT_FDCWD, fixture_path(f, "claims.gen"), 64,
						      &gen, NULL),
					 0);
			assert_string_equal(gen, cases[i].gen);
		} else {
			assert_int_equal(access(fixture_path(f, "claims.gen"), F_OK), -1);
		}
		assert_int_equal(assert_prefix(f), cases[i].stored);
	}
}

/* The tables change with the first claim of a peer, in its commit and not around it. */
static void test_killed_while_tables_change(void **state)
{
	const struct {
		const char *fault;
		uint32_t stored;
	} cases[] = {
		{ "store.before-commit:1", 3 },
		{ "store.after-commit:1", 4 },
		{ "store.after-gen:1", 4 },
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct store_op op = fixture_put(79);
		int fd;
		pid_t pid;

		fixture_remove_files(f);
		pid = victim_start(f, 0, "1", "store.after-commit:3", &fd);
		assert_int_equal(victim_finish(pid, fd, 0), 2);
		assert_int_equal(assert_prefix(f), 3);
		pid = victim_start_with(f, 3, "1", "ops", cases[i].fault, &fd);
		assert_int_equal(victim_finish(pid, fd, 3), 3);
		assert_int_equal(assert_prefix(f), cases[i].stored);
		/* Two claims a submit; the fourth one's first is the peer's. */
		for (unsigned k = 0; k < f->content.n_claims; k++)
			assert_int_equal(f->claims[k].peer[0] != '\0',
					 f->claims[k].type_id == 4 &&
						 strcmp(f->claims[k].name, "claim-3") == 0);
		fixture_open(f);
		str_copy_cut(op.claim.peer, sizeof op.claim.peer, "ops");
		assert_int_equal(fixture_commit(f, &op, 1), 0);
		fixture_close(f);
	}
}

/* Without its log, or without the end of it, the database is a valid one of some time ago. */
static void test_log_lost_after_kill(void **state)
{
	struct fixture *f = *state;
	struct stat st;

	for (int part = 0; part < 2; part++) {
		int fd;
		pid_t pid;

		fixture_remove_files(f);
		pid = victim_start(f, 0, "1", "store.after-gen:30", &fd);
		assert_int_equal(victim_finish(pid, fd, 0), 29);
		assert_int_equal(stat(fixture_path(f, "claims.db-wal"), &st), 0);
		assert_int_equal(
			truncate(fixture_path(f, "claims.db-wal"), part ? st.st_size / 2 : 0), 0);
		fixture_open(f);
		assert_int_equal(f->state, STORE_STATE_UNREADABLE);
		assert_non_null(strstr(f->reason, "older than its counter 30"));
		fixture_close(f);
	}
}

/* ---- out of space ---- */

struct space {
	void (*fill)(struct fixture *f);
	void (*release)(struct fixture *f);
};

static void limit_fill(struct fixture *f _unused_)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur =
		4096; /* a log that is longer already can still be written over, but not here */
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void limit_release(struct fixture *f _unused_)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void ballast_fill(struct fixture *f)
{
	_close_ int fd = open(fixture_path(f, "ballast"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	char block[4096] = { 0 };

	assert_true(fd >= 0);
	while (write(fd, block, sizeof block) > 0)
		continue;
	assert_int_equal(errno, ENOSPC);
}

static void ballast_release(struct fixture *f)
{
	assert_int_equal(unlink(fixture_path(f, "ballast")), 0);
}

/* Everything of a batch fails, the store stays in service, and goes on when there is space again.
 */
static void run_out_of_space(struct fixture *f, const struct space *space)
{
	struct store_op first = fixture_put(1), second = fixture_put(2), third = fixture_put(3);
	_free_ char *text = calloc(1, 300001);
	struct store_op big = { .kind = STORE_OP_CATALOGUE,
				.card = first.claim.card,
				.text = text };

	assert_non_null(text);
	memset(text, 'x', 300000);
	fixture_open(f);
	assert_int_equal(fixture_commit(f, &first, 1), 0);
	space->fill(f);
	for (int i = 0; i < 3; i++) {
		int before = f->n_done;

		assert_int_equal(claim_store_submit(f->store, &second, 1, fixture_on_done, f), 0);
		assert_int_equal(claim_store_submit(f->store, &big, 1, fixture_on_done, f), 0);
		fixture_wait_done(f, before + 2);
		assert_int_equal(f->results[before], -E_STORE_UNAVAILABLE);
		assert_int_equal(f->results[before + 1], -E_STORE_UNAVAILABLE);
		assert_string_not_equal(f->message, "");
		assert_int_equal(claim_store_get_state(f->store), STORE_STATE_READY);
	}
	print_message("# %s\n", f->message);
	space->release(f);
	assert_int_equal(fixture_commit(f, &third, 1), 0);
	assert_int_equal(f->n_loaded, 1);
	fixture_close(f);
	space->fill(f);
	fixture_open(f); /* what is stored can be read on a full disk */
	assert_int_equal(f->state, STORE_STATE_READY);
	assert_int_equal(f->content.n_claims, 2);
	assert_string_equal(f->claims[0].name, "claim-1");
	assert_string_equal(f->claims[1].name, "claim-3");
	assert_int_equal(f->content.n_cards, 0);
	space->release(f);
	assert_int_equal(fixture_commit(f, &big, 1), 0);
	fixture_close(f);
}

static void test_file_size_limit(void **state)
{
	const struct space space = { limit_fill, limit_release };

	signal(SIGXFSZ, SIG_IGN);
	run_out_of_space(*state, &space);
}

/* In a mount namespace of its own: the last test, as the process stays in it. */
static void test_full_disk(void **state)
{
	const struct space space = { ballast_fill, ballast_release };
	struct fixture *f = *state;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", f->dir, "tmpfs", 0, "size=1m") < 0) {
		print_message("# skipped: no file system of limited size can be mounted here: %s\n",
			      strerror(errno));
		skip();
	}
	run_out_of_space(f, &space);
	assert_int_equal(umount(f->dir), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_killed_at_any_instant, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fault_points, setup, teardown),
		cmocka_unit_test_setup_teardown(test_killed_while_tables_change, setup, teardown),
		cmocka_unit_test_setup_teardown(test_log_lost_after_kill, setup, teardown),
		cmocka_unit_test_setup_teardown(test_file_size_limit, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
	};

	if (argc >= 5 && strcmp(argv[1], "victim") == 0)
		return victim_main(argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
