/* SPDX-License-Identifier: Apache-2.0 */
/* What is stored comes back; batches; what is refused; databases that must not be believed. */
#include "claim-store-fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/file.h"

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

static void fill(char *dst, size_t size, const char *unit)
{
	size_t n = strlen(unit);

	dst[0] = '\0';
	while (strlen(dst) + n < size)
		strcat(dst, unit);
	while (strlen(dst) + 1 < size)
		strcat(dst, "x");
}

/* Every field at its limit. */
static struct claim big_claim(void)
{
	struct claim c = {
		.state = CLAIM_STATE_RELEASING,
		.type_id = UINT32_MAX,
		.vf = { .domain = UINT32_MAX, .bus = 0xff, .device = 31, .function = 7 },
		.card = { .domain = UINT32_MAX, .bus = 0xff },
		.placement_id = 511,
		.placement_size = 512,
		.uid = UINT32_MAX,
		.pid = 4194304,
		.pid_start = INT64_MAX,
	};

	fill(c.name, sizeof c.name, "n");
	fill(c.profile, sizeof c.profile, "L40S-4Q ");
	fill(c.assigned_at, sizeof c.assigned_at, "2026");
	fill(c.boot_id, sizeof c.boot_id, "b007");
	fill(c.owner, sizeof c.owner, "Zoë \"日本\"\n🖧 ");
	fill(c.console_log, sizeof c.console_log, "/var/log/berth/ü");
	fill(c.channel, sizeof c.channel, "unix:/run/");
	fill(c.peer, sizeof c.peer, "spiffe://");
	return c;
}

static void assert_claim_equal(const struct claim *a, const struct claim *b)
{
	assert_string_equal(a->name, b->name);
	assert_int_equal(a->state, b->state);
	assert_string_equal(a->profile, b->profile);
	assert_int_equal(a->type_id, b->type_id);
	assert_true(pci_addr_equal(a->vf, b->vf));
	assert_true(pci_addr_equal(a->card, b->card));
	assert_int_equal(a->placement_id, b->placement_id);
	assert_int_equal(a->placement_size, b->placement_size);
	assert_string_equal(a->assigned_at, b->assigned_at);
	assert_string_equal(a->boot_id, b->boot_id);
	assert_int_equal(a->uid, b->uid);
	assert_int_equal(a->pid, b->pid);
	assert_true(a->pid_start == b->pid_start);
	assert_string_equal(a->owner, b->owner);
	assert_string_equal(a->console_log, b->console_log);
	assert_string_equal(a->channel, b->channel);
	assert_string_equal(a->peer, b->peer);
}

/* ---- storing ---- */

static void test_every_claim_field(void **state)
{
	struct store_op ops[2] = { { .kind = STORE_OP_PUT_CLAIM, .claim = big_claim() },
				   fixture_put(3) };
	struct fixture *f = *state;

	fixture_open(f);
	assert_true(f->content.fresh);
	assert_string_equal(f->content.note, "");
	assert_int_equal(f->content.n_claims, 0);
	assert_int_equal(fixture_commit(f, ops, 2), 0);
	fixture_open(f);
	assert_false(f->content.fresh);
	assert_int_equal(f->content.n_claims, 2);
	assert_claim_equal(&f->claims[0], &ops[0].claim);
	assert_claim_equal(&f->claims[1], &ops[1].claim);
}

static void test_every_state_and_replacing(void **state)
{
	struct store_op op = fixture_put(1);
	struct fixture *f = *state;

	for (int i = CLAIM_STATE_INTENT; i <= CLAIM_STATE_EXTERNAL; i++) {
		fixture_open(f);
		op.claim.state = (enum claim_state)i;
		op.claim.vf.function = (uint8_t)i; /* a name may move to another VF */
		assert_int_equal(fixture_commit(f, &op, 1), 0);
		fixture_open(f);
		assert_int_equal(f->content.n_claims, 1);
		assert_claim_equal(&f->claims[0], &op.claim);
	}
	op = fixture_drop(1);
	assert_int_equal(fixture_commit(f, &op, 1), 0);
	assert_int_equal(fixture_commit(f, &op, 1), 0); /* nothing there: no failure */
	fixture_open(f);
	assert_int_equal(f->content.n_claims, 0);
	assert_false(f->content.fresh);
}

static void test_undo_card_adoptable(void **state)
{
	struct pci_addr card = { .domain = 0x10000, .bus = 0x81 };
	struct undo_record undo = { .vf = fixture_put(1).claim.vf, .card = card, .type_id = 7 };
	struct store_op ops[] = {
		{ .kind = STORE_OP_CORDON, .card = card, .cordoned = true },
		{ .kind = STORE_OP_CATALOGUE, .card = card, .text = "{\"1148\": \"é\"}" },
		{ .kind = STORE_OP_ADOPTABLE, .undo = undo },
		{ .kind = STORE_OP_ADOPTABLE, .undo = undo },
	};
	struct store_op put_undo = { .kind = STORE_OP_PUT_UNDO, .undo = undo };
	struct store_op drops[] = {
		{ .kind = STORE_OP_DROP_UNDO, .undo = undo },
		{ .kind = STORE_OP_DROP_ADOPTABLE, .undo = undo },
		{ .kind = STORE_OP_CATALOGUE, .card = card, .text = NULL },
		{ .kind = STORE_OP_CORDON, .card = card, .cordoned = false },
	};
	struct store_op put = fixture_put(1);
	struct fixture *f = *state;

	fixture_open(f);
	assert_int_equal(fixture_commit(f, ops, ARRAY_SIZE(ops)), 0);
	assert_int_equal(fixture_commit(f, &put, 1), 0);
	put_undo.claim = put.claim;
	assert_int_equal(fixture_commit(f, &put_undo, 1), 0);
	put_undo.claim.name[0] = '\0';
	put_undo.undo.type_id = 0;
	assert_int_equal(fixture_commit(f, &put_undo, 1), 0); /* replaces */
	fixture_open(f);
	assert_int_equal(f->content.n_claims, 0); /* went with the first PUT_UNDO */
	assert_int_equal(f->content.n_undos, 1);
	assert_true(pci_addr_equal(f->undo.vf, undo.vf) && pci_addr_equal(f->undo.card, card));
	assert_int_equal(f->undo.type_id, 0);
	assert_int_equal(f->content.n_cards, 1);
	assert_true(pci_addr_equal(f->card.card, card) && f->card.cordoned);
	assert_string_equal(f->catalogue, "{\"1148\": \"é\"}");
	assert_int_equal(f->content.n_adoptable, 1);
	assert_true(pci_addr_equal(f->adoptable, undo.vf));
	assert_int_equal(fixture_commit(f, drops, ARRAY_SIZE(drops)), 0);
	fixture_open(f);
	assert_int_equal(f->content.n_undos, 0);
	assert_int_equal(f->content.n_adoptable, 0);
	assert_int_equal(f->content.n_cards, 1);
	assert_false(f->card.cordoned);
	assert_string_equal(f->catalogue, "(none)");
}

/* The first commit makes the schema, so a start that ends before it is a first start again. */
static void test_fresh_until_first_commit(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 3; i++) {
		fixture_open(f);
		assert_true(f->content.fresh);
		assert_string_equal(f->content.note, "");
	}
	assert_int_equal(fixture_commit(f, NULL, 0), 0);
	fixture_open(f);
	assert_false(f->content.fresh);
}

/* ---- batches ---- */

static void test_one_commit_for_all_that_wait(void **state)
{
	struct fixture *f = *state;

	fixture_open(f);
	for (unsigned i = 0; i < 50; i++) {
		struct store_op op = fixture_put(i);

		assert_int_equal(claim_store_submit(f->store, &op, 1, fixture_on_done, f), 0);
	}
	fixture_wait_done(f, 50);
	assert_int_equal(claim_store_commits(f->store), 1);
	fixture_open(f);
	assert_int_equal(f->content.n_claims, 50);
	for (unsigned i = 0; i < 50; i++)
		assert_string_equal(f->claims[i].name, fixture_put(i).claim.name);
}

static void test_order_within_a_batch(void **state)
{
	struct store_op put_a = fixture_put(1), put_b = fixture_put(2), drop_a = fixture_drop(1);
	struct fixture *f = *state;

	put_b.claim.vf = put_a.claim.vf;
	fixture_open(f);
	assert_int_equal(claim_store_submit(f->store, &put_a, 1, NULL, NULL), 0);
	assert_int_equal(claim_store_submit(f->store, &drop_a, 1, NULL, NULL), 0);
	assert_int_equal(fixture_commit(f, &put_b, 1), 0);
	fixture_open(f);
	assert_int_equal(f->content.n_claims, 1);
	assert_string_equal(f->claims[0].name, "claim-2");
}

/* A VF has one record; whoever breaks that fails alone and leaves nothing. */
static void test_vf_is_unique(void **state)
{
	struct store_op first = fixture_put(1), other = fixture_put(9);
	struct store_op twice[2] = { fixture_put(2), fixture_put(3) };
	struct store_op undo = { .kind = STORE_OP_PUT_UNDO };
	struct fixture *f = *state;

	twice[1].claim.vf = first.claim.vf;
	undo.undo = (struct undo_record){ .vf = first.claim.vf, .card = first.claim.card };
	fixture_open(f);
	assert_int_equal(claim_store_submit(f->store, &first, 1, fixture_on_done, f), 0);
	assert_int_equal(claim_store_submit(f->store, twice, 2, fixture_on_done, f), 0);
	assert_int_equal(claim_store_submit(f->store, &undo, 1, fixture_on_done, f), 0);
	assert_int_equal(claim_store_submit(f->store, &other, 1, fixture_on_done, f), 0);
	fixture_wait_done(f, 4);
	assert_int_equal(claim_store_commits(f->store), 1);
	assert_int_equal(f->results[0], 0);
	assert_int_equal(f->results[1], -EEXIST);
	assert_int_equal(f->results[2], -EEXIST);
	assert_int_equal(f->results[3], 0);
	undo.claim = first.claim; /* in the claim's place it is right, and then the VF is taken */
	assert_int_equal(fixture_commit(f, &undo, 1), 0);
	assert_int_equal(fixture_commit(f, &first, 1), -EEXIST);
	other.claim.vf = first.claim.vf;
	assert_int_equal(fixture_commit(f, &other, 1), -EEXIST);
	assert_non_null(strstr(f->message, "undo record"));
	fixture_open(f);
	assert_int_equal(f->content.n_claims, 1);
	assert_string_equal(f->claims[0].name, "claim-9");
	assert_int_equal(f->content.n_undos, 1);
}

/* Nothing is stored that the next load would refuse. */
static void test_refused_records(void **state)
{
	struct store_op bad[] = {
		fixture_put(0),
		fixture_put(0),
		fixture_put(0),
		fixture_put(0),
		fixture_put(0),
		fixture_put(0),
		fixture_put(0),
		fixture_put(0),
		fixture_put(0),
		fixture_put(0),
		fixture_put(0),
		{ .kind = (enum store_op_kind)99 },
		{ .kind = STORE_OP_CATALOGUE, .text = "\xff" },
		{ .kind = STORE_OP_CORDON, .card = { .function = 8 } },
		{ .kind = STORE_OP_PUT_UNDO, .undo = { .card = { .device = 32 } } },
	};
	struct fixture *f = *state;

	str_copy_cut(bad[0].claim.name, sizeof bad[0].claim.name, "no blanks");
	bad[1].claim.name[0] = '\0';
	bad[2].claim.state = (enum claim_state)4;
	bad[3].claim.type_id = 0;
	bad[4].claim.vf.device = 32;
	bad[5].claim.card.function = 8;
	bad[6].claim.placement_id = -2;
	bad[7].claim.placement_size = 65535;
	bad[8].claim.pid_start = (uint64_t)INT64_MAX + 1;
	str_copy_cut(bad[9].claim.owner, sizeof bad[9].claim.owner, "\xc3(");
	memset(bad[10].claim.owner, 'x', sizeof bad[10].claim.owner);
	fixture_open(f);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(fixture_commit(f, &bad[i], 1), -EINVAL);
		assert_string_not_equal(f->message, "");
	}
	assert_int_equal(claim_store_commits(f->store), 0);
	fixture_open(f);
	assert_true(f->content.fresh); /* a refused first submit makes no schema either */
}

/* What was accepted is stored even if the store is freed at once: before a commit was started,
 * while it waits for the thread, and while it runs. Often, as the second is a race. */
static void test_free_finishes(void **state)
{
	struct fixture *f = *state;
	unsigned n = 0;

	for (int round = 0; round < 40; round++) {
		struct store_op op = fixture_put(n++);

		fixture_open(f);
		assert_int_equal(f->content.n_claims, n - 1);
		assert_int_equal(claim_store_submit(f->store, &op, 1, fixture_on_done, f), 0);
		if (round % 4)
			fixture_run_once(f,
					 clock_now_usec() + DEADLINE_USEC); /* starts the commit */
		if (round % 2) {
			op = fixture_put(n++);
			assert_int_equal(claim_store_submit(f->store, &op, 1, fixture_on_done, f),
					 0);
		}
		fixture_close(f);
	}
}

static off_t size_of(const struct fixture *f, const char *name)
{
	struct stat st;

	assert_int_equal(stat(fixture_path(f, name), &st), 0);
	return st.st_size;
}

/* At the latest when it is long; else in a quiet moment. */
static void test_log_is_written_back(void **state)
{
	uint64_t deadline = clock_now_usec() + DEADLINE_USEC;
	const size_t len = 3 << 20;
	_free_ char *text = calloc(1, len + 1);
	struct store_op op = { .kind = STORE_OP_CATALOGUE, .card = { .bus = 1 }, .text = text };
	struct fixture *f = *state;

	assert_non_null(text);
	fixture_open(f);
	for (int i = 0; i < 12; i++) {
		memset(text, 'a' + i, len);
		assert_int_equal(fixture_commit(f, &op, 1), 0);
	}
	assert_true(size_of(f, "claims.db-wal") < 24 << 20); /* of 36 MiB written */
	fixture_close(f);
	fixture_remove_files(f);
	text[400000] = '\0';
	fixture_open(f);
	assert_int_equal(fixture_commit(f, NULL, 0), 0);
	assert_int_equal(fixture_commit(f, &op, 1), 0);
	assert_true(size_of(f, "claims.db") < 400000);
	while (size_of(f, "claims.db") < 400000)
		fixture_run_once(f, deadline);
}

/* ---- the second version of the tables ---- */

/* As it stands in the file; nobody may have it open. */
static unsigned stored_version(const struct fixture *f)
{
	_free_ char *bytes = NULL;
	size_t len;

	assert_int_equal(
		file_read_at(AT_FDCWD, fixture_path(f, "claims.db"), 1 << 20, &bytes, &len), 0);
	assert_true(len > 64);
	return (unsigned char)bytes[63];
}

static struct store_op put_of_peer(unsigned n, const char *peer)
{
	struct store_op op = fixture_put(n);

	op.claim.uid = CLAIM_UID_NONE;
	str_copy_cut(op.claim.peer, sizeof op.claim.peer, peer);
	return op;
}

/* Until a record needs it, an older berthd can read the database. */
static void test_version_goes_up_when_needed(void **state)
{
	struct store_op first = fixture_put(1), peer = put_of_peer(2, "ops"),
			third = fixture_put(3);
	struct fixture *f = *state;

	fixture_open(f);
	assert_int_equal(fixture_commit(f, &first, 1), 0);
	fixture_close(f);
	assert_int_equal(stored_version(f), 1);
	fixture_open(f);
	assert_int_equal(f->state, STORE_STATE_READY);
	assert_string_equal(f->claims[0].peer, "");
	assert_int_equal(fixture_commit(f, &peer, 1), 0);
	assert_int_equal(fixture_commit(f, &third, 1), 0);
	fixture_close(f);
	assert_int_equal(stored_version(f), 2);
	fixture_open(f);
	assert_int_equal(f->content.n_claims, 3);
	assert_claim_equal(&f->claims[0], &first.claim);
	assert_claim_equal(&f->claims[1], &peer.claim);
	assert_claim_equal(&f->claims[2], &third.claim);
	/* A user's claim in the place of a client's. */
	first.claim.vf = peer.claim.vf;
	memcpy(first.claim.name, peer.claim.name, sizeof first.claim.name);
	assert_int_equal(fixture_commit(f, &first, 1), 0);
	fixture_open(f);
	assert_string_equal(f->claims[1].peer, "");
}

/* What goes up with a record that is refused goes back with it. */
static void test_version_goes_back(void **state)
{
	struct store_op first = fixture_put(1), peer = put_of_peer(2, "ops"),
			third = fixture_put(3);
	struct fixture *f = *state;

	peer.claim.vf = first.claim.vf;
	fixture_open(f);
	assert_int_equal(fixture_commit(f, &first, 1), 0);
	assert_int_equal(fixture_commit(f, &peer, 1), -EEXIST);
	assert_int_equal(fixture_commit(f, &third, 1), 0);
	fixture_close(f);
	assert_int_equal(stored_version(f), 1);
	fixture_open(f);
	assert_int_equal(f->content.n_claims, 2);
	peer = put_of_peer(2, "ops");
	assert_int_equal(fixture_commit(f, &peer, 1), 0);
	fixture_open(f);
	assert_int_equal(f->content.n_claims, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_every_claim_field, setup, teardown),
		cmocka_unit_test_setup_teardown(test_every_state_and_replacing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_undo_card_adoptable, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fresh_until_first_commit, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_commit_for_all_that_wait, setup, teardown),
		cmocka_unit_test_setup_teardown(test_order_within_a_batch, setup, teardown),
		cmocka_unit_test_setup_teardown(test_vf_is_unique, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused_records, setup, teardown),
		cmocka_unit_test_setup_teardown(test_free_finishes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_log_is_written_back, setup, teardown),
		cmocka_unit_test_setup_teardown(test_version_goes_up_when_needed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_version_goes_back, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
