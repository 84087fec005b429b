/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a process is still the one that a claim named: its start time tells a reused pid apart.
 */
#pragma once

#include "base/macro.h"

/* Start time in clock ticks since boot (field 22 of /proc/PID/stat). -ESRCH when there is no such
 * process, -errno when it cannot be told. */
int process_start_time(const char *proc_root, uint32_t pid, uint64_t *ret) _must_check_;
