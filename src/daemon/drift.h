/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drift: NVML counts placements as taken, or as free, that the VFs of the card say otherwise of. A
 * vGPU that the driver did not let go of looks like this. NVML counts; drift is shown, logged and
 * counted.
 *
 * It does not repair anything, and it is not judged before driver 570, where NVML does not count
 * configured VFs.
 */
#pragma once

#include "daemon/node.h"

/* Holds c->nvml, which has just come in, against the VFs. */
void drift_judge(struct node *n, struct card *c);

/* The VFs of a card on which they disagree were read again: asks once more, if it is time. */
void drift_vfs_were_read(struct node *n, const struct card *c);
