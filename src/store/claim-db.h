/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The claims database as a file: opened and checked, one transaction at a time, checkpointed.
 *
 * Blocks on the disk. Has no thread of its own and may move between threads, but is used by one at
 * a time. What stands in the tables is claim-rows's and claim-load's business.
 */
#pragma once

#include "base/error.h"
#include "store/claim-store.h"

struct claim_db;

/* Opens dir/claims.db, made if missing, and reads it. An existing file that is not accepted is left
 * as it is. *ret_content is the caller's, see claim_content_done(). -E_STORE_UNAVAILABLE. */
int claim_db_open(const char *dir, struct claim_db **ret, struct store_content *ret_content,
		  struct error *err) _must_check_;
struct claim_db *claim_db_close(struct claim_db *db);

struct claim_db_group {
	const struct store_op *ops;
	unsigned n_ops;
	int result; /* out: 0, or why this group is not part of the commit */
	struct error err;
};

/* One transaction. A group whose records are refused is left out (its result says so); after any
 * other failure nothing of all groups is stored, the return value is -E_STORE_UNAVAILABLE and their
 * results are meaningless. When a failed commit reached the log and only the flush to the disk
 * failed, it is unknown whether a crash right after brings it back; the next commit overwrites it.
 * Returns 1 when there was a commit, 0 when every group was refused. */
int claim_db_commit(struct claim_db *db, struct claim_db_group *groups, unsigned n,
		    struct error *err) _must_check_;

/* After a failed commit: the file is damaged or no longer at its place. Nothing more is written. */
bool claim_db_is_broken(const struct claim_db *db);

/* Pages in the write-ahead log that are not yet in the database file. */
unsigned claim_db_log_pages(const struct claim_db *db);
/* Brings them there. A failure loses nothing and shows in the next commit if it lasts. */
void claim_db_checkpoint(struct claim_db *db);
