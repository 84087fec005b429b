/* SPDX-License-Identifier: Apache-2.0 */
#include "model/marker.h"

#include <string.h>

#include "base/str.h"

/* What is left of the line. */
struct cursor {
	const char *at;
	size_t left;
};

static bool skip_text(struct cursor *c, const char *text)
{
	size_t n = strlen(text);

	if (c->left < n || memcmp(c->at, text, n) != 0)
		return false;
	c->at += n;
	c->left -= n;
	return true;
}

/* '0' in the pattern stands for a digit, everything else for itself. */
static bool skip_pattern(struct cursor *c, const char *pattern)
{
	size_t n = strlen(pattern);

	if (c->left < n)
		return false;
	for (size_t i = 0; i < n; i++) {
		bool digit = c->at[i] >= '0' && c->at[i] <= '9';

		if (pattern[i] == '0' ? !digit : c->at[i] != pattern[i])
			return false;
	}
	c->at += n;
	c->left -= n;
	return true;
}

static bool skip_timestamp(struct cursor *c)
{
	const char *end = memchr(c->at, ' ', c->left);
	size_t n = end ? (size_t)(end - c->at) : c->left;

	if (!str_is_rfc3339(c->at, n))
		return false;
	c->at += n;
	c->left -= n;
	return true;
}

static bool skip_prefix(struct cursor *c, const char *const prefixes[], size_t n_prefixes)
{
	for (size_t i = 0; i < n_prefixes; i++) {
		struct cursor mine = *c;

		if (!skip_text(&mine, prefixes[i]) || !skip_text(&mine, "-GPU-INIT-"))
			continue;
		*c = mine;
		return true;
	}
	return false;
}

static bool contains(const char *text, size_t len, const char *needle)
{
	return memmem(text, len, needle, strlen(needle)) != NULL;
}

/* nvrm="NVRM: ...RmInitAdapter failed!...", to the end of the line. */
static bool is_nvrm_field(const struct cursor *c)
{
	struct cursor rest = *c;

	if (!skip_text(&rest, " nvrm=\"NVRM: ") || rest.left == 0 || rest.at[rest.left - 1] != '"')
		return false;
	rest.left--;
	/* A quote inside would end the field earlier: then something stands behind it. */
	for (size_t i = 0; i < rest.left; i++)
		if (rest.at[i] == '"' || (unsigned char)rest.at[i] < 0x20 || rest.at[i] == 0x7f)
			return false;
	return contains(rest.at, rest.left, "RmInitAdapter failed!");
}

enum marker_kind marker_parse(const char *line, size_t len, const char *const prefixes[],
			      size_t n_prefixes)
{
	struct cursor c = { line, len };

	if (len > MARKER_LINE_MAX)
		return MARKER_NONE;
	if (c.left > 0 && c.at[c.left - 1] == '\r')
		c.left--;
	if (!skip_pattern(&c, "0000/00/00 00:00:00 [guest-agent] ") ||
	    !skip_prefix(&c, prefixes, n_prefixes))
		return MARKER_NONE;
	if (skip_text(&c, "OK ts="))
		return skip_timestamp(&c) && c.left == 0 ? MARKER_OK : MARKER_NONE;
	if (skip_text(&c, "FAILED ts="))
		return skip_timestamp(&c) && is_nvrm_field(&c) ? MARKER_FAILED : MARKER_NONE;
	return MARKER_NONE;
}

void marker_nvrm_text(const char *line, size_t len, char *ret, size_t size)
{
	static const char field[] = " nvrm=\"";
	const char *start = memmem(line, len, field, sizeof field - 1);
	size_t n;

	ret[0] = '\0';
	if (!start || size == 0)
		return;
	start += sizeof field - 1;
	n = len - (size_t)(start - line);
	if (n > 0 && start[n - 1] == '\r')
		n--;
	if (n > 0 && start[n - 1] == '"')
		n--;
	n = MIN(n, size - 1);
	memcpy(ret, start, n);
	ret[n] = '\0';
	str_sanitize(ret, n);
}
