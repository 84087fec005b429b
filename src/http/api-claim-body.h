/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of PUT /claims/{name}: which fields there are, and what each may hold.
 *
 * Strict: an unknown field, a wrong type, or a value out of range is refused by name. It looks at
 * /proc for the holder's start time, and at nothing else.
 */
#pragma once

#include <jansson.h>

#include "daemon/allocate.h"

struct claim_body_rules {
	const char *proc_root;
	const char *const *console_dirs;
	size_t n_console_dirs;
};

/* Fills in what the body says; the rest of q stays. -E_BAD_REQUEST with "field: what is wrong". */
int claim_body_read(const struct claim_body_rules *rules, json_t *body,
		    struct allocation_request *q, struct error *err) _must_check_;
