/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/terminal.h"

#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "base/str.h"

#define COLUMNS_MIN 40U
#define COLUMNS_MAX 400U

static bool locale_is_utf8(void)
{
	return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

static enum terminal_colour colour_wanted;

void terminal_set_colour(enum terminal_colour colour)
{
	colour_wanted = colour;
}

bool terminal_is_smart(void)
{
	const char *term = getenv("TERM");

	return !term || strcmp(term, "dumb") != 0;
}

struct terminal terminal_probe(void)
{
	struct terminal t = { .columns = 80, .rows = 24, .utf8 = locale_is_utf8() };
	const char *columns = getenv("COLUMNS");
	bool is_tty = isatty(STDOUT_FILENO);
	struct winsize size;
	uint32_t n;

	if (is_tty && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
		if (size.ws_col > 0)
			t.columns = size.ws_col;
		if (size.ws_row > 0)
			t.rows = size.ws_row;
	}
	if (columns && str_to_u32(columns, &n) == 0 && n > 0)
		t.columns = n;
	t.columns = MIN(MAX(t.columns, COLUMNS_MIN), COLUMNS_MAX);
	t.screen = is_tty && terminal_is_smart();
	t.colour = colour_wanted == TERMINAL_COLOUR_ALWAYS ||
		   (colour_wanted == TERMINAL_COLOUR_AUTO && t.screen &&
		    str_is_empty(getenv("NO_COLOR")));
	return t;
}

size_t terminal_width(const char *text)
{
	mbstate_t state = { 0 };
	size_t left = strlen(text), width = 0;

	while (left > 0) {
		wchar_t wc;
		size_t n = mbrtowc(&wc, text, left, &state);
		int columns;

		if (n == 0 || n > left) {
			/* No character of this locale: printed as it is, one column a byte. */
			state = (mbstate_t){ 0 };
			n = 1;
			columns = 1;
		} else {
			columns = wcwidth(wc);
		}
		width += columns > 0 ? (size_t)columns : 0;
		text += n;
		left -= n;
	}
	return width;
}

void terminal_make_safe(char *text)
{
	str_sanitize(text, strlen(text));
	if (locale_is_utf8())
		return;
	for (char *c = text; *c; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?';
}
