/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of the source tree inside the program: EMBED(api_openapi, EMBED_OPENAPI_JSON_PATH) gives
 * api_openapi[] with the bytes, and EMBED_SIZE(api_openapi).
 *
 * The paths, and a hash of each file, are in embedded.h, which the build makes (bin/meson.build).
 */
#pragma once

#include "embedded.h"

/* A path in parentheses would be no part of the string, and a name in them no declaration. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */
#define EMBED(name, path)                                                                          \
	__asm__(".section .rodata\n"                                                               \
		".global " #name "\n"                                                              \
		#name ":\n"                                                                        \
		".incbin \"" path "\"\n"                                                           \
		".global " #name "_end\n"                                                          \
		#name "_end:\n"                                                                    \
		".byte 0\n"                                                                        \
		".previous\n");                                                                    \
	extern const char name[], name##_end[]
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

#define EMBED_SIZE(name) ((size_t)(name##_end - name))
