/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "config/schema.h"

/* Edit distance; both are shorter than CONFIG_PATH_MAX. */
static size_t distance(const char *a, const char *b)
{
	size_t row[CONFIG_PATH_MAX];
	size_t n = strlen(b);

	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
			size_t shifted = MIN(row[j], row[j - 1]) + 1;

			diagonal = row[j];
			row[j] = MIN(replaced, shifted);
		}
	}
	return row[n];
}

static const char *last_part(const char *path)
{
	const char *dot = strrchr(path, '.');

	return dot ? dot + 1 : path;
}

/* Settings, then sections; NULL behind the last. */
static const char *candidate_at(size_t i)
{
	const struct config_setting *s = config_setting_at(i);
	size_t n = 0;

	if (s)
		return config_setting_path(s);
	while (config_setting_at(n))
		n++;
	return config_section_name((int)(i - n));
}

const char *config_suggest(const char *path)
{
	size_t nearest = strlen(path) / 5 + 1;
	const char *candidate, *best = NULL;

	if (strlen(path) >= CONFIG_PATH_MAX)
		return NULL;
	/* A key that stands in the wrong section is meant more surely than one that looks alike. */
	for (size_t i = 0; (candidate = candidate_at(i)); i++)
		if (config_setting_at(i) && strcmp(last_part(path), last_part(candidate)) == 0)
			return candidate;
	for (size_t i = 0; (candidate = candidate_at(i)); i++) {
		size_t d = distance(path, candidate);

		if (d < nearest || (d == nearest && !best)) {
			nearest = d;
			best = candidate;
		}
	}
	return best;
}
