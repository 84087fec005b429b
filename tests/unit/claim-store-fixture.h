/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A claim store in a temporary folder with a loop around it, and what its functions reported.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/str.h"
#include "model/outcome.h"
#include "store/claim-store.h"

#define DEADLINE_USEC	   (30 * USEC_PER_SEC)
#define FIXTURE_CLAIMS_MAX 128

struct fixture {
	char dir[64];
	sd_event *event;
	struct claim_store *store;
	int n_loaded;
	enum store_state state; /* as reported last */
	char reason[256];
	struct store_content content; /* as loaded last, without the pointers */
	struct claim claims[FIXTURE_CLAIMS_MAX];
	struct undo_record undo;
	struct card_record card;
	char catalogue[64];
	struct pci_addr adoptable;
	int n_done;
	int results[FIXTURE_CLAIMS_MAX];
	char message[256]; /* of the last function that reported a failure */
};

static inline void fixture_on_loaded(struct claim_store *s _unused_, enum store_state state,
				     const struct store_content *c, const struct error *err,
				     void *userdata)
{
	struct fixture *f = userdata;

	f->n_loaded++;
	f->state = state;
	f->content = (struct store_content){ 0 };
	str_copy_cut(f->reason, sizeof f->reason, err ? err->msg : "");
	assert_int_equal(state == STORE_STATE_READY, c != NULL);
	if (!c)
		return;
	f->content = *c;
	assert_true(c->n_claims <= FIXTURE_CLAIMS_MAX);
	if (c->n_claims)
		memcpy(f->claims, c->claims, c->n_claims * sizeof *c->claims);
	if (c->n_undos)
		f->undo = c->undos[0];
	if (c->n_cards) {
		f->card = c->cards[0];
		str_copy_cut(f->catalogue, sizeof f->catalogue, f->card.catalogue ?: "(none)");
	}
	if (c->n_adoptable)
		f->adoptable = c->adoptable[0];
}

static inline void fixture_on_done(int result, const struct error *err, void *userdata)
{
	struct fixture *f = userdata;

	f->results[f->n_done++ % FIXTURE_CLAIMS_MAX] = result;
	if (result < 0)
		str_copy_cut(f->message, sizeof f->message, err->msg);
}

static inline void fixture_run_once(struct fixture *f, uint64_t deadline)
{
	assert_true(clock_now_usec() < deadline);
	assert_true(sd_event_run(f->event, 100 * USEC_PER_MSEC) >= 0);
}

static inline void fixture_wait_loaded(struct fixture *f, int n)
{
	uint64_t deadline = clock_now_usec() + DEADLINE_USEC;

	while (f->n_loaded < n)
		fixture_run_once(f, deadline);
}

static inline void fixture_wait_done(struct fixture *f, int n)
{
	uint64_t deadline = clock_now_usec() + DEADLINE_USEC;

	while (f->n_done < n)
		fixture_run_once(f, deadline);
}

static inline void fixture_close(struct fixture *f)
{
	f->store = claim_store_free(f->store);
	f->event = sd_event_unref(f->event);
}

/* Opens the store in f->dir and waits for the first report. */
static inline void fixture_open(struct fixture *f)
{
	struct claim_store_config config = { .data_dir = f->dir,
					     .retry_usec = 10 * USEC_PER_MSEC,
					     .loaded = fixture_on_loaded,
					     .userdata = f };
	struct error err = ERROR_INIT;

	fixture_close(f);
	f->n_loaded = 0;
	f->n_done = 0;
	assert_int_equal(sd_event_new(&f->event), 0);
	config.event = f->event;
	assert_int_equal(claim_store_new(&config, &f->store, &err), 0);
	assert_int_equal(claim_store_get_state(f->store), STORE_STATE_LOADING);
	assert_int_equal(claim_store_submit(f->store, NULL, 0, NULL, NULL), -E_STORE_UNAVAILABLE);
	fixture_wait_loaded(f, 1);
	assert_int_equal(claim_store_get_state(f->store), f->state);
}

/* Submits and waits; the result of that submit. */
static inline int fixture_commit(struct fixture *f, const struct store_op *ops, unsigned n)
{
	int before = f->n_done;
	int r;

	r = claim_store_submit(f->store, ops, n, fixture_on_done, f);
	if (r < 0)
		return r;
	fixture_wait_done(f, before + 1);
	return f->results[before % FIXTURE_CLAIMS_MAX];
}

static inline void fixture_init(struct fixture *f)
{
	*f = (struct fixture){ .dir = "/tmp/test-claim-store-XXXXXX" };
	assert_non_null(mkdtemp(f->dir));
}

static inline const char *fixture_path(const struct fixture *f, const char *name)
{
	static char path[128];

	snprintf(path, sizeof path, "%s/%s", f->dir, name);
	return path;
}

static inline void fixture_remove_files(const struct fixture *f)
{
	unlink(fixture_path(f, "claims.db"));
	unlink(fixture_path(f, "claims.db-wal"));
	unlink(fixture_path(f, "claims.db-journal"));
	unlink(fixture_path(f, "claims.gen"));
	rmdir(fixture_path(f, "claims.db"));
	rmdir(fixture_path(f, "claims.gen"));
}

static inline void fixture_done(struct fixture *f)
{
	fixture_close(f);
	fixture_remove_files(f);
	assert_int_equal(rmdir(f->dir), 0); /* nothing else was left there */
}

/* A valid claim number n: its VF is its own. */
static inline struct store_op fixture_put(unsigned n)
{
	struct store_op op = { .kind = STORE_OP_PUT_CLAIM };
	struct claim *c = &op.claim;

	snprintf(c->name, sizeof c->name, "claim-%u", n);
	c->state = CLAIM_STATE_BOUND;
	str_copy_cut(c->profile, sizeof c->profile, "NVIDIA L40S-4Q");
	c->type_id = 1148;
	c->vf = (struct pci_addr){ .bus = 0x41,
				   .device = (uint8_t)(n / 8),
				   .function = (uint8_t)(n % 8) };
	c->card = (struct pci_addr){ .bus = 0x41 };
	c->placement_id = -1;
	str_copy_cut(c->assigned_at, sizeof c->assigned_at, "2026-11-29T16:38:00.123456789Z");
	return op;
}

static inline struct store_op fixture_drop(unsigned n)
{
	struct store_op op = { .kind = STORE_OP_DROP_CLAIM };

	snprintf(op.claim.name, sizeof op.claim.name, "claim-%u", n);
	return op;
}
