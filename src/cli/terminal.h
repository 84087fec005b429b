/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the terminal (or whatever standard output is) can show.
 */
#pragma once

#include "base/macro.h"

struct terminal {
	unsigned columns; /* 80 where nobody knows */
	bool utf8;
	bool colour; /* a terminal, and NO_COLOR is not set */
};

/* Needs setlocale() to have been called. */
struct terminal terminal_probe(void);
/* Columns that the text takes. */
size_t terminal_width(const char *text);
/* Makes text from outside safe to print here, in place: no control characters, and nothing but
 * ASCII where the terminal does not know UTF-8. */
void terminal_make_safe(char *text);
