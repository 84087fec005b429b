/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time: a monotonic clock in microseconds for durations, RFC 3339 text for records.
 */
#pragma once

#include "base/macro.h"

#define USEC_PER_MSEC	  UINT64_C(1000)
#define USEC_PER_SEC	  UINT64_C(1000000)
#define CLOCK_RFC3339_MAX 40 /* bytes with NUL */

/* Microseconds of CLOCK_MONOTONIC, the clock of sd-event's CLOCK_MONOTONIC timers. */
uint64_t clock_now_usec(void);

/* The present time, UTC with nanoseconds: "2026-11-29T16:38:00.123456789Z". */
void clock_rfc3339_now(char ret[static CLOCK_RFC3339_MAX]);
