/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver model as JSON, for `berth-sim ctl state`: what really is, whatever faults are set.
 */
#pragma once

#include "base/macro.h"
#include "sim/simcard.h"

/* Owned by the caller, with a newline behind; NULL when memory is out. */
char *simstate_render(const struct sim *sim) _must_check_;
