/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors: a negative int says what kind, a struct error carries the sentence.
 *
 * Functions that can fail return 0 or more on success and a negative code on failure: -errno, or
 * one of berth's own codes (from 1000, see model/outcome.h). Where a sentence helps, the last
 * parameter is a struct error * on the caller's stack; it may be NULL. Setting one cannot fail.
 * This module knows no domain codes and never logs.
 */
#pragma once

#include "base/macro.h"

struct error {
	int code; /* positive errno or berth code; 0 while unset */
	char msg[240];
};

#define ERROR_INIT ((struct error){ 0 })

/* Stores the code (either sign is accepted) and the formatted sentence; returns the negative code.
 */
int error_set(struct error *e, int code, const char *fmt, ...) _printf_(3, 4);

/* Like error_set(), with ": <strerror(code)>" behind the sentence. */
int error_set_errno(struct error *e, int code, const char *fmt, ...) _printf_(3, 4);

/* Puts "<fmt>: " in front of the sentence that is there; returns the negative code it holds. The
 * code lives in the carrier alone: without one it is lost, and -ENOTRECOVERABLE is returned. */
int error_wrap(struct error *e, const char *fmt, ...) _printf_(2, 3);

/* The sentence, or a placeholder where none was set. Never NULL. */
const char *error_text(const struct error *e);
