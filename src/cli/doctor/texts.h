/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts of the kernel's and of other programs, taken apart for `berth doctor`. Pure.
 */
#pragma once

#include "base/macro.h"

/* "580" of "580.178.05"; 0: no version. */
unsigned doctor_branch(const char *version);
/* The version in the first line of /proc/driver/nvidia/version; "" where there is none. */
void doctor_parse_proc_version(const char *text, char *ret, size_t size);
/* The value of a long option in a command line, whose words end in NUL (`len` bytes, with a NUL
 * behind them); NULL where it is not there. */
const char *doctor_find_option(const char *line, size_t len, const char *option);
/* /proc/<pid>/status of a berthd: whether it has CAP_SYS_PTRACE, and is in a PID namespace below
 * ours. -EBADMSG: it is no berthd's. */
int doctor_parse_status(const char *text, bool *ret_may_trace, bool *ret_own_pids) _must_check_;
