/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strings: strict number parsing, copying with a limit, and making outside text safe to print.
 */
#pragma once

#include "base/macro.h"

/* Whole decimal numbers without sign, blank or suffix. -EINVAL on anything else (also empty),
 * -ERANGE above the type's range; the output is untouched on failure. */
int str_to_u32(const char *s, uint32_t *ret) _must_check_;
int str_to_u64(const char *s, uint64_t *ret) _must_check_;
/* The same on n bytes that need no NUL; blanks and newlines at both ends are passed over. */
int str_to_u32_n(const char *s, size_t n, uint32_t *ret) _must_check_;

/* "500ms", "2s", "1m", "1h"; a bare number is seconds. In microseconds. -EINVAL, -ERANGE. */
int str_to_usec(const char *s, uint64_t *ret_usec) _must_check_;

/* Copies with NUL; -ENAMETOOLONG (and nothing copied) when it does not fit. */
int str_copy(char *dst, size_t size, const char *src) _must_check_;
/* Copies as much as fits, always with NUL; for text that may be cut. */
void str_copy_cut(char *dst, size_t size, const char *src);

/* Replaces control characters, what switches the direction of writing, and bytes that are no valid
 * UTF-8 by '?', in place. */
void str_sanitize(char *s, size_t n);
/* In double quotes, with a backslash before quotes and backslashes; cut to size, the closing quote
 * kept. size: at least 3. Returns ret. */
const char *str_quote(const char *s, char *ret, size_t size);
bool str_is_utf8(const char *s, size_t n);

/* "2026-11-29T16:38:00[.fraction](Z|+01:00)" with a date and a time that exist. */
bool str_is_rfc3339(const char *s, size_t n);

bool str_starts_with(const char *s, const char *prefix);
bool str_ends_with(const char *s, const char *suffix);
static inline bool str_is_empty(const char *s)
{
	return !s || !*s;
}

/* 0 to 15, of either case; -1 when c is no digit. */
int str_hex_digit(char c);

/* asprintf that returns NULL when memory is out. */
char *str_printf(const char *fmt, ...) _printf_(1, 2) _must_check_;
