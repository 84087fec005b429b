/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The web page, made from the JSON that the API answers: there is no second account of the state.
 *
 * Pure: JSON in, HTML out, so that it can be tested with any state and any text. Nothing here
 * trusts a text, and what is missing in the state is shown as not known. web/page.js fetches the
 * same document again when something has changed and takes over what differs; it renders nothing
 * itself.
 */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "model/claim.h"

struct page_viewer {
	bool may_change; /* releases and cordons: buttons are there */
	bool may_clear;	 /* health records too */
	bool owns_all;	 /* may release anybody's claim */
	struct claimant who;
};

/* What `state` holds, all of it optional:
 *   "host", "version", "page"    texts; page: a hash of web/, changes with the program
 *   "not_ready", "claims_store", "health_store"   sentences, null when all is well
 *   "fallback"                   {"reason", "detail"} of the whole host, or null
 *   "placements_at"              RFC 3339, or null before the first answer of NVML
 *   "gpu"                        as in GET /resources; null: not known yet
 *   "gpus", "claims"             as in GET /gpus and GET /claims; null: not known
 *   "records"                    health records of VFs that are not there: {"address", "failures",
 *                                "quarantined_at"}
 * -ENOMEM. */
int page_render(const json_t *state, const struct page_viewer *viewer,
		struct buf *out) _must_check_;
