/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data_dir/claims.gen: a copy of the claims database's commit counter outside of it, by which a
 * database that was put back from a backup, or lost its log, is recognised.
 *
 * Written after each commit without fsync: it may lag behind the database, it never leads. Reads
 * and writes the number; what it means is claim-db's business.
 */
#pragma once

#include "base/error.h"

#define CLAIM_GEN_NAME "claims.gen"

/* 0 when there is no such file, or an empty or zeroed one (what a power cut leaves of a file that
 * was never synced). Anything else that is no number is an error, as it cannot be told what it was.
 */
int claim_gen_read(const char *dir, uint64_t *ret, struct error *err) _must_check_;

/* -errno. */
int claim_gen_write(const char *dir, uint64_t commits);
