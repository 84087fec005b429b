/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line on standard error that says what is waited for and how long already.
 *
 * Only where standard error is a terminal that can write over a line; elsewhere nothing is printed.
 */
#pragma once

#include "base/macro.h"

struct progress {
	bool on;
	bool shown;
	uint64_t begun_usec;
	char text[160];
};

/* What is waited for from now on. */
void progress_begin(struct progress *p, const char *fmt, ...) _printf_(2, 3);
/* Replaces the line by "<text>, 12 s"; nothing within the first second. */
void progress_tick(void *progress);
/* Before anything else is printed, and at the end. */
void progress_clear(struct progress *p);
