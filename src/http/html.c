/* SPDX-License-Identifier: Apache-2.0 */
#include "http/html.h"

#include <string.h>

#include "base/str.h"

static const char *entity(char c)
{
	switch (c) {
	case '&':
		return "&amp;";
	case '<':
		return "&lt;";
	case '>':
		return "&gt;";
	case '"':
		return "&quot;";
	case '\'':
		return "&#39;";
	default:
		return NULL;
	}
}

void html_text(struct buf *out, const char *text)
{
	size_t from = out->len, n = strlen(text);
	const char *rest = text;

	for (size_t i = 0; i < n; i++) {
		const char *e = entity(text[i]);

		if (!e)
			continue;
		buf_add(out, rest, (size_t)(text + i - rest));
		buf_add_str(out, e);
		rest = text + i + 1;
	}
	buf_add(out, rest, (size_t)(text + n - rest));
	/* What was put in between is ASCII, so this sees the same bytes as before. */
	if (!out->failed && out->len > from)
		str_sanitize(out->data + from, out->len - from);
}

void html_outside(struct buf *out, const char *text)
{
	buf_add_str(out, "<bdi>");
	html_text(out, text);
	buf_add_str(out, "</bdi>");
}

void html_attr(struct buf *out, const char *name, const char *value)
{
	buf_printf(out, " %s=\"", name);
	html_text(out, value);
	buf_add_char(out, '"');
}
