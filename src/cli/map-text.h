/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cards as text, from the daemon's answer to GET /gpus: what `berth map` prints.
 */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "cli/terminal.h"

/* Every card of the array. -ENOMEM. */
int map_text(const json_t *gpus, const struct terminal *terminal, struct buf *out) _must_check_;
