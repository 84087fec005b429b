/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the terminal (or whatever standard output is) can show.
 */
#pragma once

#include "base/macro.h"

struct terminal {
	unsigned columns; /* 80 where nobody knows */
	unsigned rows;	  /* 24 where nobody knows */
	bool utf8;
	bool colour; /* --color=always; else a terminal, and NO_COLOR is not set */
	bool screen; /* a terminal on which the cursor can be moved */
};

enum terminal_colour {
	TERMINAL_COLOUR_AUTO,
	TERMINAL_COLOUR_ALWAYS,
	TERMINAL_COLOUR_NEVER,
};

/* For every later probe: what the option --color says. */
void terminal_set_colour(enum terminal_colour colour);

/* Needs setlocale() to have been called. */
struct terminal terminal_probe(void);
/* TERM is not "dumb". */
bool terminal_is_smart(void);
/* Columns that the text takes. */
size_t terminal_width(const char *text);
/* Makes text from outside safe to print here, in place: no control characters, and nothing but
 * ASCII where the terminal does not know UTF-8. */
void terminal_make_safe(char *text);
