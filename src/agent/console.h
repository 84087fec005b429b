/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines on the guest's console, in the shape that the host looks for.
 *
 * Serial lines get torn by whatever else writes there, so each marker is written three times, each
 * a complete line in one write. A console that takes nothing is given up after five seconds.
 */
#pragma once

#include "base/macro.h"

struct console {
	const char *path;
	const char *prefix; /* of markers: "BERTH" */
};

/* RFC 3339 in UTC, seconds. */
void console_timestamp(char ret[static 32]);
/* -errno of the last write that failed. */
int console_failed_marker(const struct console *c, const char *nvrm);
int console_ok_marker(const struct console *c);
/* One line of plain text, for people. */
int console_note(const struct console *c, const char *text);
