/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of the claims database: the schema, and operations as SQL.
 *
 * What is written must pass the checks that claim-load makes when it is read, so that no accepted
 * record can make the next load fail. Transactions, files and their checks are claim-db's.
 */
#pragma once

#include <sqlite3.h>

#include "base/error.h"
#include "store/claim-store.h"

#define CLAIM_ROWS_APPLICATION 0x62727468 /* application_id: "brth" */
/* user_version. A database begins with the first and goes up when a record needs it, so that until
 * then an older berthd can still be put back. */
#define CLAIM_ROWS_VERSION_FIRST 1
#define CLAIM_ROWS_VERSION_PEER	 2 /* claims.peer */
#define CLAIM_ROWS_VERSION	 CLAIM_ROWS_VERSION_PEER
#define CLAIM_ROWS_TEXT_MAX	 (4U << 20) /* bytes of a catalogue with NUL */
#define CLAIM_ROWS_UNIT_MAX	 65534 /* of placement ids and sizes; NVML's 0xffff means none */

enum claim_rows_query {
	CLAIM_ROWS_PUT_CLAIM,
	CLAIM_ROWS_DROP_CLAIM,
	CLAIM_ROWS_PUT_UNDO,
	CLAIM_ROWS_DROP_UNDO,
	CLAIM_ROWS_CORDON,
	CLAIM_ROWS_CATALOGUE,
	CLAIM_ROWS_RECOVERY,
	CLAIM_ROWS_ADOPTABLE,
	CLAIM_ROWS_DROP_ADOPTABLE,
	CLAIM_ROWS_COMMITS,
	CLAIM_ROWS_N,
};

struct claim_rows {
	sqlite3 *sql;			     /* borrowed */
	sqlite3_stmt *queries[CLAIM_ROWS_N]; /* prepared when first used */
	unsigned version;		     /* of the tables as they are now */
};

void claim_rows_init(struct claim_rows *rows, sqlite3 *sql);
void claim_rows_done(struct claim_rows *rows);

/* These return SQLite's result codes: a caller must tell a full disk from a broken rule. */
int claim_rows_create(struct claim_rows *rows, uint64_t commits);
/* To the newest version, within the transaction under way. */
int claim_rows_extend(struct claim_rows *rows);
int claim_rows_apply(struct claim_rows *rows, const struct store_op *op);
int claim_rows_set_commits(struct claim_rows *rows, uint64_t commits);

/* The tables are of this version: found so, or so again after a rollback. */
void claim_rows_set_version(struct claim_rows *rows, unsigned version);
/* The version that the record of an operation needs. */
unsigned claim_rows_version_of(const struct store_op *op);

/* Whether the record of an operation could be read back. -EINVAL. */
int claim_rows_check(const struct store_op *op, struct error *err) _must_check_;
