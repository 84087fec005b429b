/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "model/profile.h"

#define NAME_MAP_ENTRIES_MAX 256

static bool is_alnum(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static bool is_middle(char c)
{
	return is_alnum(c) || c == '-' || c == '_' || c == '.';
}

static char to_upper(char c)
{
	return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

/* --- Rules of Kubernetes (IsExtendedResourceName and what it calls) -------------------------- */

static bool is_label_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* DNS-1123: labels of lower-case letters, digits and inner hyphens, with dots between. */
static int check_domain(const char *s, size_t len, struct error *err)
{
	if (len == 0 || len > RESOURCE_DOMAIN_MAX)
		return error_set(err, EINVAL,
				 "a domain of 1 to %d characters has to stand before the slash",
				 RESOURCE_DOMAIN_MAX);
	for (size_t i = 0; i < len; i++) {
		bool inner = i > 0 && i < len - 1 && is_label_char(s[i - 1]) && s[i] == '.' &&
			     is_label_char(s[i + 1]);
		bool hyphen = i > 0 && i < len - 1 && s[i] == '-' && s[i - 1] != '.' &&
			      s[i + 1] != '.';

		if (!is_label_char(s[i]) && !inner && !hyphen)
			return error_set(err, EINVAL, "\"%.*s\" is no domain name in lower case",
					 (int)len, s);
	}
	return 0;
}

int names_check(const char *resource, struct error *err)
{
	const char *slash = strchr(resource, '/');
	const char *part = slash ? slash + 1 : resource;
	size_t len = strlen(part);
	int r;

	if (!slash)
		return error_set(err, EINVAL, "\"%s\" has no domain", resource);
	if (strstr(resource, "kubernetes.io/"))
		return error_set(err, EINVAL, "\"%s\": kubernetes.io is not for extended resources",
				 resource);
	if (str_starts_with(resource, "requests."))
		return error_set(err, EINVAL, "\"%s\": a name may not begin with \"requests.\"",
				 resource);
	r = check_domain(resource, (size_t)(slash - resource), err);
	if (r < 0)
		return r;
	if (len == 0 || len > RESOURCE_PART_MAX)
		return error_set(err, EINVAL,
				 "\"%s\" has %zu characters behind the slash, 1 to %d are allowed",
				 part, len, RESOURCE_PART_MAX);
	if (!is_alnum(part[0]) || !is_alnum(part[len - 1]))
		return error_set(err, EINVAL,
				 "\"%s\" does not begin and end with a letter or digit", part);
	for (size_t i = 0; i < len; i++)
		if (!is_middle(part[i]))
			return error_set(err, EINVAL,
					 "\"%s\" has other characters than A-Z a-z 0-9 - _ .",
					 part);
	return 0;
}

/* --- Mending --------------------------------------------------------------------------------- */

/* Copies the characters that `mend` gives (NUL: leave out), with ends trimmed to letters and
 * digits. */
static int build(const char *source, char (*mend)(char), char ret[static RESOURCE_NAME_MAX],
		 struct error *err)
{
	char part[NAME_SOURCE_MAX], name[RESOURCE_NAME_MAX];
	size_t n = 0, first = 0;
	int r;

	if (strlen(source) >= NAME_SOURCE_MAX)
		return error_set(err, EINVAL, "\"%.40s...\" is too long for a resource", source);
	for (const char *s = source; *s; s++) {
		char c = mend(*s);

		if (c)
			part[n++] = c;
	}
	while (n > 0 && !is_alnum(part[n - 1]))
		n--;
	while (first < n && !is_alnum(part[first]))
		first++;
	part[n] = '\0';
	if (first == n)
		return error_set(err, EINVAL, "\"%s\" has no character that a resource may have",
				 source);
	snprintf(name, sizeof name, RESOURCE_DOMAIN "/%s", part + first);
	r = names_check(name, err);
	if (r < 0)
		return r;
	memcpy(ret, name, sizeof name);
	return 0;
}

static char mend_profile(char c)
{
	if (c == ' ' || c == '/')
		return '_';
	return is_middle(c) ? c : '\0';
}

/* The rules of NVIDIA's plugin, so that names stay what manifests out there have. */
static char mend_pci_ids(char c)
{
	if (c == ' ' || c == '/' || c == '.')
		return '_';
	return is_alnum(c) || c == '_' ? to_upper(c) : '\0';
}

int names_from_profile(const char *profile, char ret[static RESOURCE_NAME_MAX], struct error *err)
{
	return build(profile, mend_profile, ret, err);
}

int names_from_pci_ids(const char *name, char ret[static RESOURCE_NAME_MAX], struct error *err)
{
	return build(name, mend_pci_ids, ret, err);
}

void names_env(enum names_env_kind kind, const char *resource, char ret[static ENV_NAME_MAX])
{
	size_t n = (size_t)snprintf(ret, ENV_NAME_MAX, "%s_RESOURCE_",
				    kind == NAMES_ENV_MDEV ? "MDEV_PCI" : "PCI");

	for (; *resource && n < ENV_NAME_MAX - 1; resource++)
		ret[n++] = *resource == '/' || *resource == '.' ? '_' : to_upper(*resource);
	ret[n] = '\0';
}

/* --- The operator's names -------------------------------------------------------------------- */

struct name_entry {
	char source[NAME_SOURCE_MAX];
	char resource[RESOURCE_NAME_MAX];
};

struct name_map {
	unsigned n;
	struct name_entry entries[NAME_MAP_ENTRIES_MAX];
};

/* The text between two places, blanks and one pair of quotes taken off. */
static int take_word(const char *from, const char *end, char *ret, size_t size)
{
	while (from < end && (*from == ' ' || *from == '\t'))
		from++;
	while (end > from && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
		end--;
	if (end - from >= 2 && (*from == '"' || *from == '\'') && end[-1] == *from) {
		from++;
		end--;
	}
	if (end == from || (size_t)(end - from) >= size || memchr(from, '\0', (size_t)(end - from)))
		return -EINVAL;
	memcpy(ret, from, (size_t)(end - from));
	ret[end - from] = '\0';
	return 0;
}

/* The colon that ends the source: the first one with a blank or the end behind it, so that
 * "10de:26b9: name" is split where it should be. */
static const char *find_colon(const char *line, const char *end)
{
	for (const char *s = line; s < end; s++)
		if (*s == ':' && (s + 1 == end || s[1] == ' ' || s[1] == '\t' || s[1] == '\r'))
			return s;
	return NULL;
}

static int parse_line(struct name_map *m, const char *line, const char *end, unsigned number,
		      struct error *err)
{
	struct name_entry *e = &m->entries[m->n];
	char value[RESOURCE_NAME_MAX];
	const char *colon;

	while (line < end && (*line == ' ' || *line == '\t' || *line == '\r'))
		line++;
	if (line == end || *line == '#')
		return 0;
	if (m->n == NAME_MAP_ENTRIES_MAX)
		return error_set(err, EINVAL, "line %u: more than %d names", number,
				 NAME_MAP_ENTRIES_MAX);
	colon = find_colon(line, end);
	if (!colon || take_word(line, colon, e->source, sizeof e->source) < 0 ||
	    take_word(colon + 1, end, value, sizeof value - sizeof RESOURCE_DOMAIN) < 0)
		return error_set(err, EINVAL, "line %u: not of the form SOURCE: RESOURCE", number);
	if (strchr(value, '/'))
		snprintf(e->resource, sizeof e->resource, "%s", value);
	else
		snprintf(e->resource, sizeof e->resource, "%s/%.*s", RESOURCE_DOMAIN,
			 RESOURCE_DOMAIN_MAX, value);
	if (names_check(e->resource, err) < 0)
		return error_wrap(err, "line %u", number);
	for (unsigned i = 0; i < m->n; i++) {
		if (profile_name_equal(m->entries[i].source, e->source))
			return error_set(err, EINVAL, "line %u: \"%s\" is named twice", number,
					 e->source);
		if (strcmp(m->entries[i].resource, e->resource) == 0)
			return error_set(err, EINVAL, "line %u: \"%s\" already stands for \"%s\"",
					 number, e->resource, m->entries[i].source);
	}
	m->n++;
	return 0;
}

int name_map_parse(const char *text, size_t len, struct name_map **ret, struct error *err)
{
	_cleanup_(name_map_freep) struct name_map *m = calloc(1, sizeof *m);
	const char *end = text + len;
	unsigned number = 1;

	if (!m)
		return error_set(err, ENOMEM, "out of memory");
	for (; text < end; number++) {
		const char *newline = memchr(text, '\n', (size_t)(end - text));
		const char *stop = newline ? newline : end;
		int r = parse_line(m, text, stop, number, err);

		if (r < 0)
			return r;
		text = newline ? newline + 1 : end;
	}
	*ret = TAKE(m);
	return 0;
}

struct name_map *name_map_free(struct name_map *m)
{
	free(m);
	return NULL;
}

const char *name_map_find(const struct name_map *m, const char *source)
{
	for (unsigned i = 0; m && i < m->n; i++)
		if (profile_name_equal(m->entries[i].source, source))
			return m->entries[i].resource;
	return NULL;
}
