/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/go-duration.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"

#define MAGNITUDE_MAX                                                                              \
	(UINT64_C(1) << 63) /* of a negative duration; a positive one has one less                 \
			     */

static const struct unit {
	const char *name;
	uint64_t nsec;
} units[] = {
	/* Longer names first where one begins like another. */
	{ "ns", 1 },
	{ "us", 1000 },
	{ "\302\265s", 1000 },
	{ "\316\274s", 1000 },
	{ "ms", 1000000 },
	{ "s", 1000000000 },
	{ "m", UINT64_C(60000000000) },
	{ "h", UINT64_C(3600000000000) },
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static int parse_whole(const char **s, uint64_t *ret)
{
	uint64_t v = 0;

	for (; is_digit(**s); (*s)++) {
		if (v > MAGNITUDE_MAX / 10)
			return -ERANGE;
		v = v * 10 + (uint64_t)(**s - '0');
		if (v > MAGNITUDE_MAX)
			return -ERANGE;
	}
	*ret = v;
	return 0;
}

/* Digits beyond what fits are passed over: they are below a nanosecond. */
static void parse_fraction(const char **s, uint64_t *ret, double *ret_scale)
{
	uint64_t v = 0;
	double scale = 1;
	bool full = false;

	for (; is_digit(**s); (*s)++) {
		uint64_t digit = (uint64_t)(**s - '0');

		full |= v > (MAGNITUDE_MAX - 1 - digit) / 10;
		if (full)
			continue;
		v = v * 10 + digit;
		scale *= 10;
	}
	*ret = v;
	*ret_scale = scale;
}

/* The unit's name goes up to the next digit or dot. */
static const struct unit *parse_unit(const char **s)
{
	size_t len = strcspn(*s, "0123456789.");

	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (strlen(units[i].name) != len || memcmp(units[i].name, *s, len) != 0)
			continue;
		*s += len;
		return &units[i];
	}
	return NULL;
}

static int parse_part(const char **s, uint64_t *sum)
{
	uint64_t whole = 0, fraction = 0;
	const struct unit *unit;
	const char *start = *s;
	double scale = 1;
	bool digits;
	int r;

	r = parse_whole(s, &whole);
	if (r < 0)
		return r;
	digits = *s > start;
	if (**s == '.') {
		const char *dot = ++*s;

		parse_fraction(s, &fraction, &scale);
		digits |= *s > dot;
	}
	if (!digits)
		return -EINVAL;
	unit = parse_unit(s);
	if (!unit)
		return -EINVAL;
	if (whole > MAGNITUDE_MAX / unit->nsec)
		return -ERANGE;
	whole *= unit->nsec;
	whole += (uint64_t)((double)fraction * ((double)unit->nsec / scale));
	if (whole > MAGNITUDE_MAX || *sum > MAGNITUDE_MAX - whole)
		return -ERANGE;
	*sum += whole;
	return 0;
}

int go_duration_parse(const char *s, int64_t *ret_nsec)
{
	bool negative = false;
	uint64_t sum = 0;

	if (*s == '-' || *s == '+')
		negative = *s++ == '-';
	if (strcmp(s, "0") == 0) {
		*ret_nsec = 0;
		return 0;
	}
	if (!*s)
		return -EINVAL;
	while (*s) {
		int r = parse_part(&s, &sum);

		if (r < 0)
			return r;
	}
	if (!negative && sum == MAGNITUDE_MAX)
		return -ERANGE;
	*ret_nsec = negative ? (int64_t)(0 - sum) : (int64_t)sum;
	return 0;
}

int rescan_interval_parse(const char *name, const char *value, struct rescan_interval *ret,
			  struct error *err)
{
	int64_t nsec = 0;

	if (!str_is_empty(value) && go_duration_parse(value, &nsec) < 0)
		return error_set(err, EINVAL,
				 "%s: \"%s\" is no duration such as 30s, 1m30s or 0 for off", name,
				 value);
	if (nsec < 0)
		return error_set(err, EINVAL, "%s: \"%s\" is negative; 0 switches rescans off",
				 name, value);
	*ret = (struct rescan_interval){ 0 };
	if (nsec == 0)
		return 0;
	ret->raised = nsec < RESCAN_FLOOR_NSEC;
	ret->usec = (uint64_t)MAX(nsec, RESCAN_FLOOR_NSEC) / 1000;
	return 0;
}
