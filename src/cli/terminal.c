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

struct terminal terminal_probe(void)
{
	struct terminal t = { .columns = 80, .utf8 = locale_is_utf8() };
	const char *columns = getenv("COLUMNS"), *term = getenv("TERM");
	bool is_tty = isatty(STDOUT_FILENO);
	struct winsize size;
	uint32_t n;

	if (columns && str_to_u32(columns, &n) == 0 && n > 0)
		t.columns = n;
	else if (is_tty && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
		t.columns = size.ws_col;
	t.columns = MIN(MAX(t.columns, COLUMNS_MIN), COLUMNS_MAX);
	t.colour = is_tty && str_is_empty(getenv("NO_COLOR")) &&
		   !(term && strcmp(term, "dumb") == 0);
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
