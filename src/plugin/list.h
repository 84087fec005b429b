/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a set looks like to people: the table and the JSON of --list, the block of
 * --print-permitted.
 */
#pragma once

#include "base/buf.h"
#include "plugin/device.h"

void list_table(const struct discovery *d, struct buf *out);
/* {"resources": [{"name", "source", "kind", "devices": [...]}], "left_out": [...]}; -ENOMEM. */
int list_json(const struct discovery *d, struct buf *out) _must_check_;
/* YAML for spec.configuration of the KubeVirt CR. */
void list_permitted(const struct discovery *d, struct buf *out);
