/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes and small macros for the whole tree. Nothing here has a run-time part.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define _printf_(a, b) __attribute__((format(printf, a, b)))
#define _must_check_   __attribute__((warn_unused_result))
#define _nonnull_(...) __attribute__((nonnull(__VA_ARGS__)))
#define _unused_       __attribute__((unused))
#define _noreturn_     __attribute__((noreturn))
#define _cleanup_(f)   __attribute__((cleanup(f)))
#define _fallthrough_  __attribute__((fallthrough))

#define ARRAY_SIZE(a)  (sizeof(a) / sizeof((a)[0]))

#define MIN(a, b)                                                                                  \
	({                                                                                         \
		__typeof__(a) _min_a = (a);                                                        \
		__typeof__(b) _min_b = (b);                                                        \
		_min_a < _min_b ? _min_a : _min_b;                                                 \
	})
#define MAX(a, b)                                                                                  \
	({                                                                                         \
		__typeof__(a) _max_a = (a);                                                        \
		__typeof__(b) _max_b = (b);                                                        \
		_max_a > _max_b ? _max_a : _max_b;                                                 \
	})

/* Hands a pointer over and leaves NULL behind. */
#define TAKE(p)                                                                                    \
	({                                                                                         \
		__typeof__(p) *_take_p = &(p);                                                     \
		__typeof__(p) _take_v = *_take_p;                                                  \
		*_take_p = NULL;                                                                   \
		_take_v;                                                                           \
	})
