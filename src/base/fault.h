/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault points: named places at which a test may have the process killed.
 *
 * BERTH_FAULT="NAME" or "NAME:N" in the environment kills the process with SIGKILL the first (Nth)
 * time that point is passed. Without the variable a point is one load and compare. The points of
 * berthd are listed in docs/fault-points.md; a test passes each of them.
 */
#pragma once

#include "base/macro.h"

void fault_point(const char *name);
