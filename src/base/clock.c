/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

uint64_t clock_now_usec(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * USEC_PER_SEC + (uint64_t)ts.tv_nsec / 1000;
}

void clock_rfc3339_now(char ret[static CLOCK_RFC3339_MAX])
{
	struct timespec ts;
	struct tm tm;
	size_t n;

	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	n = strftime(ret, CLOCK_RFC3339_MAX, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(ret + n, CLOCK_RFC3339_MAX - n, ".%09ldZ", ts.tv_nsec);
}
