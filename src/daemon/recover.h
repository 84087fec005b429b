/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bringing a card with wedged VFs back: the SR-IOV cycle, in one command, step by step.
 *
 * Nothing short of it heals a wedge, and it needs the whole card: no claim, no open VF, nobody
 * holding /dev/nvidia*. Steps: cordon; stop the NVML helper and the configured services;
 * sriov-manage -d, -e; wait for the VFs (it can exit 0 without any); mixed-size mode again if it
 * was on; services again; a verify command if configured; only then the card's quarantine records
 * are cleared and the cordon returns to what it was. A step that fails ends it there: records
 * untouched, card cordoned. Progress is kept in the claims database, so a berthd that ends in the
 * middle reports where when it starts again.
 */
#pragma once

#include <jansson.h>

#include "daemon/node.h"

struct recovery;

/* Checks, and starts; the answer to the request is that it was started, or why not. 0 when under
 * way. */
typedef void (*recover_started_fn)(int code, const char *detail, void *userdata);
void recover_submit(struct node *n, struct card *c, recover_started_fn started, void *userdata);

/* {"state": "running"|"failed"|"done"|"interrupted", "step", "detail", "started_at"}; null when
 * none. */
json_t *recover_json(const struct card *c);

/* After a start: a recovery that was under way is reported, and the card stays cordoned. */
void recover_restore(struct node *n, struct card *c, const char *text);

bool recover_is_running(const struct card *c);
/* An operator's cordon, or its end, is stored. Without it a recovery that did not end well is no
 * longer shown or stored. While one runs, having begun after the request, the card stays cordoned;
 * what was asked for is what it gets in the end. */
void recover_cordon_changed(struct node *n, struct card *c, bool cordoned);

struct recovery *recovery_free(struct recovery *r);
