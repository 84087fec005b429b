/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Durations as Go's time.ParseDuration() reads them: "30s", "1h30m", "1.5m", "-2ms", "0".
 *
 * The interval of rescans is written in this syntax because manifests of NVIDIA's plugin are. The
 * rules for that interval (off, floor, refusal) are here too, so that they can be tested as one.
 */
#pragma once

#include "base/error.h"

#define RESCAN_FLOOR_NSEC INT64_C(5000000000)

/* In nanoseconds, also negative. -EINVAL for anything that is no duration (empty, a number without
 * unit other than 0, an unknown unit), -ERANGE above what Go can hold. */
int go_duration_parse(const char *s, int64_t *ret_nsec) _must_check_;

struct rescan_interval {
	uint64_t usec; /* 0: rescans are off */
	bool raised;   /* it was below the floor */
};

/* NULL and "" are off. `name` is what the message calls it. -EINVAL (negative, or no duration). */
int rescan_interval_parse(const char *name, const char *value, struct rescan_interval *ret,
			  struct error *err) _must_check_;
