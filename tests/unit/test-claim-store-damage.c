/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Databases that must not be believed: cut, overwritten, foreign, newer, older than their counter,
 * with bad rows, in use, removed while open. Each is reported, left as it is, and loaded once it is
 * mended.
 */
#include "claim-store-fixture.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/file.h"

#define N_CLAIMS 20

/* A good database as bytes, and the counter that belongs to it. */
struct image {
	char *bytes;
	size_t len;
};

struct damage {
	struct fixture f;
	struct image good;
};

static void put_file(const char *path, const void *bytes, size_t len)
{
	_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), len);
}

static void take_file(const struct fixture *f, const char *name, char **ret, size_t *ret_len)
{
	assert_int_equal(file_read_at(AT_FDCWD, fixture_path(f, name), 64 << 20, ret, ret_len), 0);
}

static void put_gen(const struct fixture *f, const char *text)
{
	put_file(fixture_path(f, "claims.gen"), text, strlen(text));
}

/* Runs SQL on the closed database, as somebody with the sqlite3 shell would. */
static void run_sql(const struct fixture *f, const char *sql)
{
	sqlite3 *db;

	assert_int_equal(sqlite3_open(fixture_path(f, "claims.db"), &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static int setup(void **state)
{
	struct damage *d = calloc(1, sizeof *d);
	struct store_op ops[N_CLAIMS];
	struct store_op undo = { .kind = STORE_OP_PUT_UNDO, .undo = { .vf = { .bus = 0xc1 } } };
	struct store_op cordon = { .kind = STORE_OP_CORDON,
				   .card = { .bus = 0x81 },
				   .cordoned = true };

	fixture_init(&d->f);
	fixture_open(&d->f);
	for (unsigned i = 0; i < N_CLAIMS; i++)
		ops[i] = fixture_put(i);
	assert_int_equal(fixture_commit(&d->f, ops, N_CLAIMS), 0);
	assert_int_equal(fixture_commit(&d->f, &undo, 1), 0);
	assert_int_equal(fixture_commit(&d->f, &cordon, 1), 0);
	fixture_close(&d->f);
	take_file(&d->f, "claims.db", &d->good.bytes, &d->good.len);
	*state = d;
	return 0;
}

static int teardown(void **state)
{
	struct damage *d = *state;

	fixture_done(&d->f);
	free(d->good.bytes);
	free(d);
	return 0;
}

/* The store says why, refuses work, and has changed nothing. */
static void assert_refused(struct damage *d, const void *bytes, size_t len, const char *reason)
{
	_free_ char *after = NULL;
	struct store_op op = fixture_put(0);
	size_t after_len;

	fixture_open(&d->f);
	assert_int_equal(d->f.state, STORE_STATE_UNREADABLE);
	if (!strstr(d->f.reason, reason))
		fail_msg("\"%s\" does not say \"%s\"", d->f.reason, reason);
	assert_int_equal(claim_store_submit(d->f.store, &op, 1, NULL, NULL), -E_STORE_UNAVAILABLE);
	fixture_close(&d->f);
	if (!bytes)
		return;
	take_file(&d->f, "claims.db", &after, &after_len);
	assert_int_equal(after_len, len);
	assert_memory_equal(after, bytes, len);
}

static void assert_good(struct damage *d)
{
	if (d->f.state != STORE_STATE_READY)
		fail_msg("not ready: %s", d->f.reason);
	assert_int_equal(d->f.content.n_claims, N_CLAIMS);
	assert_int_equal(d->f.content.n_undos, 1);
	assert_int_equal(d->f.content.n_cards, 1);
}

static void restore(struct damage *d)
{
	fixture_close(&d->f);
	fixture_remove_files(&d->f);
	put_file(fixture_path(&d->f, "claims.db"), d->good.bytes, d->good.len);
	put_gen(&d->f, "3\n");
}

static void test_good_image(void **state)
{
	struct damage *d = *state;

	restore(d);
	fixture_open(&d->f);
	assert_good(d);
	assert_false(d->f.content.fresh);
}

static void test_cut(void **state)
{
	struct damage *d = *state;
	const size_t page = 4096;
	const size_t lengths[] = { 1,
				   15,
				   16,
				   50,
				   99,
				   100,
				   512,
				   page - 1,
				   page,
				   page + 1,
				   2 * page,
				   3 * page + 7,
				   d->good.len - page };

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		restore(d);
		put_file(fixture_path(&d->f, "claims.db"), d->good.bytes, lengths[i]);
		assert_refused(d, d->good.bytes, lengths[i], "claims.db");
	}
	/* Only zeros are missing, which is what SQLite reads there: nothing is lost. */
	assert_int_equal(d->good.bytes[d->good.len - 1], 0);
	restore(d);
	put_file(fixture_path(&d->f, "claims.db"), d->good.bytes, d->good.len - 1);
	fixture_open(&d->f);
	assert_good(d);
}

static void test_overwritten(void **state)
{
	struct damage *d = *state;
	_free_ char *bytes = malloc(d->good.len);

	assert_non_null(bytes);
	for (size_t page = 0; page < d->good.len; page += 4096) {
		memcpy(bytes, d->good.bytes, d->good.len);
		memset(bytes + page, 0, 4096);
		restore(d);
		put_file(fixture_path(&d->f, "claims.db"), bytes, d->good.len);
		assert_refused(d, bytes, d->good.len, "claims.db");
	}
	memset(bytes, 0, d->good.len);
	put_file(fixture_path(&d->f, "claims.db"), bytes, d->good.len);
	assert_refused(d, bytes, d->good.len, "not a database");
	put_file(fixture_path(&d->f, "claims.db"), "hello\n", 6);
	assert_refused(d, "hello\n", 6, "not a database");
}

/* Some bytes mean nothing, and text carries no checksum. But no flip may lose a claim silently. */
static void test_flipped_bytes(void **state)
{
	struct damage *d = *state;
	_free_ char *bytes = malloc(d->good.len);
	unsigned n_refused = 0;

	assert_non_null(bytes);
	srandom(1);
	for (unsigned i = 0; i < 400; i++) {
		size_t at = i < 100 ? i : (size_t)random() % d->good.len;

		memcpy(bytes, d->good.bytes, d->good.len);
		bytes[at] = (char)(bytes[at] ^ (1 << (random() % 8)));
		restore(d);
		put_file(fixture_path(&d->f, "claims.db"), bytes, d->good.len);
		fixture_open(&d->f);
		if (d->f.state == STORE_STATE_READY)
			assert_good(d);
		else
			n_refused++;
		assert_false(d->f.content.fresh);
	}
	print_message("# %u of 400 flips refused\n", n_refused);
	assert_true(n_refused > 40);
}

/* A name stands in its row and in the index; either of them changed is damage. */
static void test_flipped_name(void **state)
{
	struct damage *d = *state;
	_free_ char *bytes = malloc(d->good.len);
	size_t at = 0;
	unsigned n = 0;

	assert_non_null(bytes);
	for (;;) {
		const char *found = memmem(d->good.bytes + at, d->good.len - at, "claim-12", 8);

		if (!found)
			break;
		at = (size_t)(found - d->good.bytes) + 8;
		memcpy(bytes, d->good.bytes, d->good.len);
		bytes[at - 1] = '3'; /* there is a claim-13, and a claim-12 is missing */
		restore(d);
		put_file(fixture_path(&d->f, "claims.db"), bytes, d->good.len);
		assert_refused(d, bytes, d->good.len, "damaged");
		bytes[at - 1] = 'z';
		put_file(fixture_path(&d->f, "claims.db"), bytes, d->good.len);
		assert_refused(d, bytes, d->good.len, "damaged");
		n++;
	}
	assert_true(n >= 2);
}

static void test_not_a_file(void **state)
{
	struct damage *d = *state;

	restore(d);
	assert_int_equal(unlink(fixture_path(&d->f, "claims.db")), 0);
	assert_int_equal(mkdir(fixture_path(&d->f, "claims.db"), 0700), 0);
	assert_refused(d, NULL, 0, "directory");
	assert_int_equal(rmdir(fixture_path(&d->f, "claims.db")), 0);
	assert_int_equal(mkfifo(fixture_path(&d->f, "claims.db"), 0600), 0);
	assert_refused(d, NULL, 0, "not a file");
	assert_int_equal(unlink(fixture_path(&d->f, "claims.db")), 0);
	assert_int_equal(symlink("claims.db", fixture_path(&d->f, "claims.db")), 0);
	assert_refused(d, NULL, 0, "symbolic links");
}

/* ---- whose database, which version, how old ---- */

static void test_foreign_and_newer(void **state)
{
	const struct {
		const char *sql;
		const char *reason;
	} cases[] = {
		{ "PRAGMA application_id = 1", "another application" },
		{ "PRAGMA application_id = 0", "another application" },
		{ "PRAGMA application_id = -1", "another application" },
		{ "PRAGMA user_version = 3", "made by a newer one" },
		{ "PRAGMA user_version = 2", "no such column: peer" }, /* it is not what it says */
		{ "PRAGMA user_version = 0", "version 0" },
		{ "PRAGMA user_version = -1", "made by a newer one" },
		{ "PRAGMA application_id = 0; PRAGMA user_version = 0", "another application" },
	};
	struct damage *d = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_free_ char *bytes = NULL;
		size_t len;

		restore(d);
		run_sql(&d->f, cases[i].sql);
		take_file(&d->f, "claims.db", &bytes, &len);
		assert_refused(d, bytes, len, cases[i].reason);
	}
}

static void test_bad_rows(void **state)
{
	const struct {
		const char *sql;
		const char *reason;
	} cases[] = {
		{ "UPDATE claims SET name = 'a b' WHERE rowid = 3",
		  "row \"a b\": name is not a valid name" },
		{ "UPDATE claims SET vf = 'zzzz:zz:zz.z' WHERE rowid = 3",
		  "\"claim-2\": vf is no PCI address" },
		{ "UPDATE claims SET vf = '0000:C1:00.4' WHERE rowid = 3", "vf is not spelled" },
		{ "UPDATE claims SET card = '00000000:41:00.0' WHERE rowid = 3",
		  "card is not spelled" },
		{ "UPDATE claims SET owner = printf('%.*c', 257, 'x') WHERE rowid = 3",
		  "owner is too long" },
		{ "UPDATE claims SET boot_id = CAST(x'410042' AS TEXT) WHERE rowid = 3",
		  "boot_id contains a NUL" },
		{ "UPDATE claims SET channel = CAST(x'ff' AS TEXT) WHERE rowid = 3",
		  "channel is not UTF-8" },
		{ "UPDATE claims SET state = 'lost' WHERE rowid = 3", "CHECK constraint" },
		{ "UPDATE claims SET type_id = 0 WHERE rowid = 3", "CHECK constraint" },
		{ "UPDATE claims SET uid = -1 WHERE rowid = 3", "CHECK constraint" },
		{ "UPDATE undos SET card = 'zzzz:zz:zz.z'",
		  "table undos, row \"0000:c1:00.0\": card" },
		{ "UPDATE cards SET catalogue = CAST(x'ff' AS TEXT)", "catalogue is not UTF-8" },
		{ "INSERT INTO adoptable VALUES ('zzzz:zz:zz.z')", "table adoptable" },
		{ "DROP TRIGGER undos_insert_vf; INSERT INTO undos SELECT vf, card, 0 FROM claims "
		  "LIMIT 1",
		  "more than one record" },
		{ "DROP TABLE undos", "undos" },
		{ "DROP TABLE claims", "claims" },
		{ "DELETE FROM meta", "counter is missing" },
		{ "ALTER TABLE claims DROP COLUMN owner", "owner" },
	};
	struct damage *d = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char sql[256];

		restore(d);
		snprintf(sql, sizeof sql, "PRAGMA ignore_check_constraints = ON; %s", cases[i].sql);
		run_sql(&d->f, sql);
		assert_refused(d, NULL, 0, cases[i].reason);
	}
}

static void test_counter(void **state)
{
	struct damage *d = *state;
	const char *accepted[] = { "3\n", "3", "0\n", "00000000000000000003\n", "", NULL };
	const char *refused[] = { "x\n",
				  "-1\n",
				  "3 \n",
				  "3\n\n",
				  "18446744073709551616\n",
				  "000000000000000000000000003\n" };

	for (size_t i = 0; i < ARRAY_SIZE(accepted); i++) {
		restore(d);
		if (accepted[i])
			put_gen(&d->f, accepted[i]);
		else
			assert_int_equal(unlink(fixture_path(&d->f, "claims.gen")), 0);
		fixture_open(&d->f);
		assert_good(d);
	}
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		restore(d);
		put_gen(&d->f, refused[i]);
		assert_refused(d, d->good.bytes, d->good.len, "claims.gen does not hold a number");
	}
	put_file(fixture_path(&d->f, "claims.gen"), "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
		 21);
	fixture_open(&d->f); /* what a power cut may leave */
	assert_good(d);
	restore(d);
	put_gen(&d->f, "4\n");
	assert_refused(d, d->good.bytes, d->good.len, "remove claims.gen to accept it");
	assert_int_equal(unlink(fixture_path(&d->f, "claims.gen")), 0);
	assert_int_equal(mkdir(fixture_path(&d->f, "claims.gen"), 0700), 0);
	assert_refused(d, d->good.bytes, d->good.len, "claims.gen");
}

/* An old copy of the file is noticed by the counter that went on without it. */
static void test_restored_backup(void **state)
{
	struct store_op op = fixture_drop(0);
	struct damage *d = *state;

	restore(d);
	fixture_open(&d->f);
	assert_int_equal(fixture_commit(&d->f, &op, 1), 0);
	fixture_close(&d->f);
	put_file(fixture_path(&d->f, "claims.db"), d->good.bytes, d->good.len);
	assert_refused(d, d->good.bytes, d->good.len, "at commit 3, older than its counter 4");
	assert_int_equal(unlink(fixture_path(&d->f, "claims.gen")), 0);
	fixture_open(&d->f);
	assert_good(d);
}

/* After a crash the log is still there, and SQLite would replay it onto the old copy: a mixture,
 * with the new counter. */
static void test_restored_beside_log(void **state)
{
	struct store_op drop = fixture_drop(0), put = fixture_put(30);
	struct damage *d = *state;
	_free_ char *latest = NULL, *log = NULL;
	size_t latest_len, log_len;

	restore(d);
	fixture_open(&d->f);
	assert_int_equal(fixture_commit(&d->f, &drop, 1), 0);
	fixture_close(&d->f); /* writes the log back */
	fixture_open(&d->f);
	assert_int_equal(fixture_commit(&d->f, &put, 1), 0);
	take_file(&d->f, "claims.db", &latest, &latest_len);
	take_file(&d->f, "claims.db-wal", &log, &log_len);
	fixture_close(&d->f);
	put_file(fixture_path(&d->f, "claims.db"), d->good.bytes, d->good.len);
	put_file(fixture_path(&d->f, "claims.db-wal"), log, log_len);
	assert_refused(d, d->good.bytes, d->good.len, "do not belong together");
	put_file(fixture_path(&d->f, "claims.db"), latest, latest_len);
	fixture_open(&d->f); /* as the crash left it */
	assert_int_equal(d->f.state, STORE_STATE_READY);
	assert_int_equal(d->f.content.n_claims, N_CLAIMS);
	assert_string_equal(d->f.claims[N_CLAIMS - 1].name, "claim-30");
	fixture_close(&d->f);
	put_file(fixture_path(&d->f, "claims.db"), d->good.bytes, d->good.len);
	assert_int_equal(unlink(fixture_path(&d->f, "claims.gen")), 0);
	fixture_open(&d->f); /* accepted by hand */
	assert_good(d);
}

/* Without a database all that is configured is adopted, and that an old counter is there is said.
 * The numbers go on from it, so that no crash makes the new database look old. */
static void test_missing_with_counter(void **state)
{
	struct damage *d = *state;

	for (int empty = 0; empty < 2; empty++) {
		_free_ char *gen = NULL;

		restore(d);
		if (empty)
			put_file(fixture_path(&d->f, "claims.db"), "", 0);
		else
			assert_int_equal(unlink(fixture_path(&d->f, "claims.db")), 0);
		fixture_open(&d->f);
		assert_int_equal(d->f.state, STORE_STATE_READY);
		assert_true(d->f.content.fresh);
		assert_non_null(strstr(d->f.content.note, empty ? "is empty" : "is missing"));
		assert_int_equal(fixture_commit(&d->f, NULL, 0), 0);
		fixture_close(&d->f);
		assert_int_equal(
			file_read_at(AT_FDCWD, fixture_path(&d->f, "claims.gen"), 64, &gen, NULL),
			0);
		assert_string_equal(gen, "00000000000000000004\n");
		fixture_open(&d->f);
		assert_false(d->f.content.fresh);
	}
	restore(d);
	put_file(fixture_path(&d->f, "claims.db"), "", 0);
	put_file(fixture_path(&d->f, "claims.db-wal"), "x", 1);
	assert_refused(d, "", 0, "it was cut");
}

/* ---- while it runs ---- */

static void test_mended_while_running(void **state)
{
	struct damage *d = *state;
	uint64_t deadline = clock_now_usec() + DEADLINE_USEC;
	uint64_t some_retries = clock_now_usec() + 100 * USEC_PER_MSEC;

	restore(d);
	put_file(fixture_path(&d->f, "claims.db"), d->good.bytes, 5000);
	fixture_open(&d->f);
	assert_int_equal(d->f.state, STORE_STATE_UNREADABLE);
	while (clock_now_usec() < some_retries)
		fixture_run_once(&d->f, deadline);
	assert_int_equal(d->f.n_loaded, 1); /* the same reason is reported once */
	put_gen(&d->f, "x\n");		    /* another reason is another report */
	fixture_wait_loaded(&d->f, 2);
	assert_non_null(strstr(d->f.reason, "claims.gen"));
	put_file(fixture_path(&d->f, "claims.db.new"), d->good.bytes, d->good.len);
	{
		char from[128];

		str_copy_cut(from, sizeof from, fixture_path(&d->f, "claims.db.new"));
		assert_int_equal(rename(from, fixture_path(&d->f, "claims.db")), 0);
	}
	put_gen(&d->f, "3\n");
	while (d->f.state != STORE_STATE_READY)
		fixture_run_once(&d->f, deadline);
	assert_good(d);
	assert_int_equal(fixture_commit(&d->f, NULL, 0), 0);
}

static void test_in_use(void **state)
{
	struct damage *d = *state;
	sqlite3 *other;

	restore(d);
	assert_int_equal(sqlite3_open(fixture_path(&d->f, "claims.db"), &other), SQLITE_OK);
	assert_int_equal(sqlite3_exec(other, "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE",
				      NULL, NULL, NULL),
			 SQLITE_OK);
	fixture_open(&d->f);
	assert_int_equal(d->f.state, STORE_STATE_UNREADABLE);
	assert_non_null(strstr(d->f.reason, "another process"));
	assert_int_equal(sqlite3_close(other), SQLITE_OK);
	fixture_wait_loaded(&d->f, 2);
	assert_good(d);
	/* And while it is open nobody else gets in. */
	assert_int_equal(sqlite3_open(fixture_path(&d->f, "claims.db"), &other), SQLITE_OK);
	assert_int_equal(sqlite3_exec(other, "DELETE FROM claims", NULL, NULL, NULL), SQLITE_BUSY);
	assert_int_equal(sqlite3_close(other), SQLITE_OK);
}

/* Writing on into an unlinked file would acknowledge what the next start cannot find. */
static void test_removed_while_open(void **state)
{
	struct damage *d = *state;

	for (int log = 0; log < 2; log++) {
		restore(d);
		fixture_open(&d->f);
		assert_int_equal(fixture_commit(&d->f, NULL, 0), 0);
		assert_int_equal(unlink(fixture_path(&d->f, log ? "claims.db-wal" : "claims.db")),
				 0);
		assert_int_equal(fixture_commit(&d->f, NULL, 0), -E_STORE_UNAVAILABLE);
		assert_int_equal(d->f.n_loaded, 2);
		assert_int_equal(d->f.state, STORE_STATE_UNREADABLE);
		assert_non_null(strstr(d->f.reason, "was removed or replaced"));
		fixture_wait_loaded(&d->f, 3);
		if (log) { /* its last commit was in the log */
			assert_int_equal(d->f.state, STORE_STATE_UNREADABLE);
			assert_non_null(strstr(d->f.reason, "older than its counter"));
		} else {
			assert_int_equal(d->f.state, STORE_STATE_READY);
			assert_true(d->f.content.fresh);
			assert_non_null(strstr(d->f.content.note, "is missing"));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_good_image, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cut, setup, teardown),
		cmocka_unit_test_setup_teardown(test_overwritten, setup, teardown),
		cmocka_unit_test_setup_teardown(test_flipped_bytes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_flipped_name, setup, teardown),
		cmocka_unit_test_setup_teardown(test_not_a_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_foreign_and_newer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_rows, setup, teardown),
		cmocka_unit_test_setup_teardown(test_counter, setup, teardown),
		cmocka_unit_test_setup_teardown(test_restored_backup, setup, teardown),
		cmocka_unit_test_setup_teardown(test_restored_beside_log, setup, teardown),
		cmocka_unit_test_setup_teardown(test_missing_with_counter, setup, teardown),
		cmocka_unit_test_setup_teardown(test_mended_while_running, setup, teardown),
		cmocka_unit_test_setup_teardown(test_in_use, setup, teardown),
		cmocka_unit_test_setup_teardown(test_removed_while_open, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
