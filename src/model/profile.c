/* SPDX-License-Identifier: Apache-2.0 */
#include "model/profile.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"

#define NVIDIA_PREFIX "NVIDIA "

const char *profile_name_short(const char *name)
{
	return str_starts_with(name, NVIDIA_PREFIX) ? name + strlen(NVIDIA_PREFIX) : name;
}

bool profile_name_equal(const char *a, const char *b)
{
	return strcmp(profile_name_short(a), profile_name_short(b)) == 0;
}

static bool is_letter(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

uint32_t profile_name_framebuffer_mb(const char *name)
{
	size_t end = strlen(name);
	size_t letters, digits;
	uint32_t gb;

	for (letters = end; letters > 0 && is_letter(name[letters - 1]); letters--)
		;
	for (digits = letters; digits > 0 && is_digit(name[digits - 1]); digits--)
		;
	if (letters == end || digits == 0 || name[digits - 1] != '-')
		return 0;
	if (str_to_u32_n(name + digits, letters - digits, &gb) < 0 || gb > UINT32_MAX / 1024)
		return 0;
	return gb * 1024;
}

bool profile_name_is_mig(const char *name)
{
	const char *last = strrchr(name, '-');

	return last && last - name >= 3 && is_digit(last[-1]) && last[-2] == '-' &&
	       is_digit(last[1]);
}

/* "  1150 : NVIDIA L40S-4Q", without the newline. */
static int parse_line(const char *s, size_t n, struct profile *ret)
{
	const char *colon = memchr(s, ':', n);
	size_t id_len, name_len;
	const char *name;
	uint32_t id;

	if (!colon)
		return -EINVAL;
	id_len = (size_t)(colon - s);
	name = colon + 1;
	name_len = n - id_len - 1;
	while (name_len > 0 && is_blank(name[0])) {
		name++;
		name_len--;
	}
	while (name_len > 0 && is_blank(name[name_len - 1]))
		name_len--;
	if (str_to_u32_n(s, id_len, &id) < 0 || id == 0)
		return -EINVAL;
	if (name_len == 0 || name_len >= PROFILE_NAME_MAX || !str_is_utf8(name, name_len))
		return -EINVAL;
	for (size_t i = 0; i < name_len; i++)
		if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
			return -EINVAL;
	ret->type_id = id;
	memcpy(ret->name, name, name_len);
	ret->name[name_len] = '\0';
	ret->framebuffer_mb = profile_name_framebuffer_mb(ret->name);
	return 0;
}

/* The header says "ID    : vGPU Name"; what tells it from a type is that it starts with no digit.
 */
static bool is_header(const char *s, size_t n)
{
	while (n > 0 && is_blank(*s)) {
		s++;
		n--;
	}
	return n == 0 || !is_digit(*s);
}

static void quote_line(const char *s, size_t n, struct error *err)
{
	char text[80];

	n = MIN(n, sizeof text - 1);
	memcpy(text, s, n);
	str_sanitize(text, n);
	text[n] = '\0';
	error_set(err, EBADMSG, "line '%s' is no vGPU type", text);
}

int profile_list_parse(const char *text, size_t len, struct profile_list *ret,
		       unsigned *ret_bad_lines, struct error *err)
{
	const char *end = text + len;
	bool first = true, full = false;
	unsigned bad = 0;

	ret->n = 0;
	for (const char *next, *line = text; line < end; line = next) {
		const char *newline = memchr(line, '\n', (size_t)(end - line));
		size_t n = (size_t)((newline ? newline : end) - line);
		struct profile p;

		next = newline ? newline + 1 : end;
		if (n > 0 && line[n - 1] == '\r')
			n--;
		if (n == 0)
			continue;
		if (first && is_header(line, n)) {
			first = false;
			continue;
		}
		first = false;
		if (parse_line(line, n, &p) < 0) {
			if (bad++ == 0)
				quote_line(line, n, err);
			continue;
		}
		if (profile_list_find_id(ret, p.type_id))
			continue;
		if (ret->n == PROFILE_TYPES_MAX)
			full = true;
		else
			ret->items[ret->n++] = p;
	}
	if (ret_bad_lines)
		*ret_bad_lines = bad;
	if (full)
		return error_set(err, E2BIG, "more than %d vGPU types", PROFILE_TYPES_MAX);
	return 0;
}

const struct profile *profile_list_find_id(const struct profile_list *l, uint32_t type_id)
{
	for (unsigned i = 0; i < l->n; i++)
		if (l->items[i].type_id == type_id)
			return &l->items[i];
	return NULL;
}

const struct profile *profile_list_find_name(const struct profile_list *l, const char *name)
{
	for (unsigned i = 0; i < l->n; i++)
		if (profile_name_equal(l->items[i].name, name))
			return &l->items[i];
	return NULL;
}
