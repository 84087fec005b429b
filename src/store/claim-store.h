/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The claims database: data_dir/claims.db (SQLite, WAL, synchronous FULL), written by one thread.
 *
 * The loop submits operations; the store thread takes all that wait into one transaction, commits,
 * and reports each back in the loop (in order). A batch stands or falls together, but for one case:
 * a submit that breaks a rule of the schema, or could not be read back, fails alone, so that
 * nobody's bad request costs others their claims. The store decides nothing: uniqueness of a VF
 * over claims and undo records is checked by the daemon and, as a second line, by the schema.
 *
 * Failing closed: a database that is damaged, of another application or version, unreadable, or
 * older than the counter in claims.gen beside it is UNREADABLE: the file is left as it is, nothing
 * is written, loading is tried again every 5 s. A missing file, or one without schema, starts empty
 * with `fresh` set: what is configured on the host is then adopted. The schema is created by the
 * first commit and not before, so that a start that is killed is fresh again. Submit everything
 * adopted in one call (n may be 0): then either all of it is stored or nothing.
 *
 * After an I/O error or on a full disk the store stays READY, as a later commit may succeed. A
 * database that turns out damaged, or is removed or replaced while it is open, becomes UNREADABLE.
 */
#pragma once

#include <systemd/sd-event.h>

#include "base/error.h"
#include "model/claim.h"

enum store_state {
	STORE_STATE_LOADING,
	STORE_STATE_READY,
	STORE_STATE_UNREADABLE,
};

/* A VF that may be configured although no claim says so: writing 0 failed. It is not offered. */
struct undo_record {
	struct pci_addr vf;
	struct pci_addr card;
	uint32_t type_id;
};

/* What was last known of a card, so that totals and names survive a start while it is stuck. */
struct card_record {
	struct pci_addr card;
	bool cordoned;
	char *recovery;	 /* owned; JSON text of a recovery under way; NULL: none */
	char *catalogue; /* owned; JSON text that the daemon makes and reads; NULL: none */
};

/* What a load found. Borrowed by the function that receives it. */
struct store_content {
	bool fresh;	/* there was no database (or no schema) before */
	char note[240]; /* something a person should read although it loaded; empty: nothing */
	unsigned n_claims;
	struct claim *claims; /* in every state, intents too */
	unsigned n_undos;
	struct undo_record *undos;
	unsigned n_cards;
	struct card_record *cards;
	unsigned n_adoptable; /* VFs that could not be read at the adoption and are adopted when
				 they can */
	struct pci_addr *adoptable;
};

enum store_op_kind {
	STORE_OP_PUT_CLAIM,  /* insert or replace by name */
	STORE_OP_DROP_CLAIM, /* by name */
	STORE_OP_PUT_UNDO,   /* undo; drops the claim `claim.name` in the same step if it is set */
	STORE_OP_DROP_UNDO,  /* by undo.vf */
	STORE_OP_CORDON,     /* card, cordoned */
	STORE_OP_CATALOGUE,  /* card, text */
	STORE_OP_RECOVERY,   /* card, text (NULL: none under way) */
	STORE_OP_ADOPTABLE,  /* undo.vf may be adopted later */
	STORE_OP_DROP_ADOPTABLE,
};

struct store_op {
	enum store_op_kind kind;
	struct claim claim;
	struct undo_record undo;
	struct pci_addr card;
	bool cordoned;
	const char *text; /* copied by claim_store_submit() */
};

struct claim_store;

struct claim_store_config {
	sd_event *event;
	const char *data_dir; /* exists; copied */
	uint64_t retry_usec;  /* between attempts to load; 0: 5 s */
	/* From the loop: loaded (content), or UNREADABLE with the reason (content NULL); the latter
	 * again only when the reason changes. */
	void (*loaded)(struct claim_store *s, enum store_state state,
		       const struct store_content *content, const struct error *err,
		       void *userdata);
	void *userdata;
};

/* Starts the store thread and loading. */
int claim_store_new(const struct claim_store_config *config, struct claim_store **ret,
		    struct error *err) _must_check_;
/* Finishes what was submitted, joins the thread. Outstanding functions are not called. Not to be
 * called from one of the store's functions. */
struct claim_store *claim_store_free(struct claim_store *s);

enum store_state claim_store_get_state(const struct claim_store *s);

/* result: 0 when committed and durable, else negative, err says why: -E_STORE_UNAVAILABLE, -EINVAL
 * (a record that could not be read back), -EEXIST (the VF has another record). */
typedef void (*store_done_fn)(int result, const struct error *err, void *userdata);

/* Copies the operations; they are committed together (all or none), in the order submitted.
 * -E_STORE_UNAVAILABLE when not READY, -ENOMEM; else 0 and `done` (may be NULL) runs from the loop.
 */
int claim_store_submit(struct claim_store *s, const struct store_op *ops, unsigned n,
		       store_done_fn done, void *userdata) _must_check_;

/* Commits of this store so far; for metrics and benches. */
uint64_t claim_store_commits(const struct claim_store *s);
