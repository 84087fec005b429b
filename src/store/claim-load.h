/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the claims database's tables into a struct store_content and checks every field.
 *
 * A row that does not hold what it must is an error that names it: a claim that cannot be read is
 * never taken for one that is not there.
 */
#pragma once

#include <sqlite3.h>

#include "base/error.h"
#include "store/claim-store.h"

/* version: of the tables. */
int claim_load(sqlite3 *sql, unsigned version, struct store_content *ret, uint64_t *ret_commits,
	       struct error *err) _must_check_;
void claim_content_done(struct store_content *c);
