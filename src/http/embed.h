/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of the source tree inside the program: EMBED(api_openapi, EMBED_OPENAPI_JSON_PATH) gives
 * api_openapi[] with the bytes, and api_openapi_size.
 *
 * The paths, and a hash of each file, are in embedded.h, which the build makes (bin/meson.build).
 */
#pragma once

#include <stdint.h>

#include "embedded.h"

/* A path in parentheses would be no part of the string, and a name in them no declaration. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */
#define EMBED(name, path)                                                                          \
	__asm__(".section .rodata\n"                                                               \
		".balign 8\n"                                                                      \
		".global " #name "_size\n"                                                         \
		#name "_size: .quad 1f - " #name "\n"                                              \
		".global " #name "\n"                                                              \
		#name ": .incbin \"" path "\"\n"                                                   \
		"1: .byte 0\n"                                                                     \
		".previous\n");                                                                    \
	extern const char name[];                                                                  \
	extern const uint64_t name##_size
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */
