/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The quarantined VFs of a berthd on the same host, from its vf-health.json. Read only.
 *
 * No file means no berthd. A file that is there and cannot be understood leaves what was known last
 * in force: it is never "no quarantines".
 */
#pragma once

#include "plugin/plugin-set.h"

#define QUARANTINE_FILE	    "/var/lib/berth/gpu/vf-health.json"
#define QUARANTINE_FILE_MAX (4 << 20)

/* The VFs with `quarantined_at`, into fresh memory. -EINVAL with the reason. */
int quarantine_parse(const char *text, size_t len, struct pci_addr **ret, unsigned *ret_n,
		     struct error *err) _must_check_;

/* Reads the file again. 1: who is quarantined changed, 0: it did not, negative: the file cannot be
 * read or understood (q->unreadable is set then). */
int quarantine_load(const char *path, struct quarantine *q, struct error *err) _must_check_;
void quarantine_done(struct quarantine *q);
