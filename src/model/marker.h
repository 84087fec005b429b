/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marker lines in a guest's console log: what the guest agent prints about the driver's init.
 *
 *   YYYY/MM/DD HH:MM:SS [guest-agent] <PREFIX>-GPU-INIT-FAILED ts=<RFC 3339> nvrm="NVRM:
 * ...RmInitAdapter failed!..." YYYY/MM/DD HH:MM:SS [guest-agent] <PREFIX>-GPU-INIT-OK ts=<RFC 3339>
 *
 * Complete and alone on a line; one '\r' before the newline belongs to the line's end. The whole
 * shape is required: a bare token may stand in an echoed command line, and the raw kernel line is
 * no report.
 */
#pragma once

#include "base/macro.h"

#define MARKER_LINE_MAX 1024 /* longer lines are never markers */

enum marker_kind {
	MARKER_NONE,
	MARKER_FAILED,
	MARKER_OK,
};

/* One line without its newline. prefixes: "BERTH", "HYPEMAN". */
enum marker_kind marker_parse(const char *line, size_t len, const char *const prefixes[],
			      size_t n_prefixes);

/* The text between nvrm=" and the closing quote of a FAILED line, made safe and cut; for the log.
 */
void marker_nvrm_text(const char *line, size_t len, char *ret, size_t size);
