/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int to_u64_n(const char *s, size_t n, uint64_t limit, uint64_t *ret)
{
	uint64_t v = 0;

	if (n == 0)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		unsigned digit = (unsigned)(unsigned char)s[i] - '0';

		if (digit > 9)
			return -EINVAL;
		if (v > (limit - digit) / 10)
			return -ERANGE;
		v = v * 10 + digit;
	}
	*ret = v;
	return 0;
}

int str_to_u64(const char *s, uint64_t *ret)
{
	return to_u64_n(s, strlen(s), UINT64_MAX, ret);
}

int str_to_u32(const char *s, uint32_t *ret)
{
	return str_to_u32_n(s, strlen(s), ret);
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

int str_to_u32_n(const char *s, size_t n, uint32_t *ret)
{
	uint64_t v;
	int r;

	while (n > 0 && is_blank(s[0])) {
		s++;
		n--;
	}
	while (n > 0 && is_blank(s[n - 1]))
		n--;
	r = to_u64_n(s, n, UINT32_MAX, &v);
	if (r < 0)
		return r;
	*ret = (uint32_t)v;
	return 0;
}

int str_to_usec(const char *s, uint64_t *ret_usec)
{
	static const struct {
		const char *unit;
		uint64_t usec;
	} units[] = {
		{ "us", 1 },	   { "ms", 1000 },	   { "s", 1000000 },
		{ "m", 60000000 }, { "h", 3600000000ULL }, { "", 1000000 },
	};
	size_t digits = strspn(s, "0123456789");
	uint64_t v;
	int r;

	r = to_u64_n(s, digits, UINT64_MAX, &v);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (strcmp(s + digits, units[i].unit) != 0)
			continue;
		if (__builtin_mul_overflow(v, units[i].usec, &v))
			return -ERANGE;
		*ret_usec = v;
		return 0;
	}
	return -EINVAL;
}

int str_copy(char *dst, size_t size, const char *src)
{
	size_t n = strlen(src);

	if (n >= size)
		return -ENAMETOOLONG;
	memcpy(dst, src, n + 1);
	return 0;
}

void str_copy_cut(char *dst, size_t size, const char *src)
{
	size_t n = strnlen(src, size - 1);

	memcpy(dst, src, n);
	dst[n] = '\0';
}

/* Length of the valid UTF-8 sequence at s, 0 if there is none. */
static size_t utf8_length(const unsigned char *s, size_t n)
{
	uint32_t cp;
	size_t len;

	if (s[0] < 0x80)
		return 1;
	if (s[0] >= 0xc2 && s[0] <= 0xdf)
		len = 2;
	else if (s[0] >= 0xe0 && s[0] <= 0xef)
		len = 3;
	else if (s[0] >= 0xf0 && s[0] <= 0xf4)
		len = 4;
	else
		return 0;
	if (n < len)
		return 0;
	cp = s[0] & (0x7fU >> len);
	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		cp = cp << 6 | (s[i] & 0x3fU);
	}
	if ((len == 3 && cp < 0x800) || (len == 4 && cp < 0x10000) || cp > 0x10ffff ||
	    (cp >= 0xd800 && cp <= 0xdfff))
		return 0;
	return len;
}

const char *str_quote(const char *s, char *ret, size_t size)
{
	size_t n = 0;

	ret[n++] = '"';
	for (; *s; s++) {
		bool escape = *s == '"' || *s == '\\';

		/* Room for this, the closing quote and the NUL. */
		if (n + (escape ? 2 : 1) + 2 > size)
			break;
		if (escape)
			ret[n++] = '\\';
		ret[n++] = *s;
	}
	ret[n++] = '"';
	ret[n] = '\0';
	return ret;
}

/* Characters that are not seen, but change how the line around them is shown: controls, line and
 * paragraph separators, and what switches the direction of writing. */
static bool is_control(const unsigned char *s, size_t len)
{
	switch (len) {
	case 1:
		return s[0] < 0x20 || s[0] == 0x7f;
	case 2: /* U+0080 to U+009f; U+061c */
		return (s[0] == 0xc2 && s[1] < 0xa0) || (s[0] == 0xd8 && s[1] == 0x9c);
	case 3: /* U+200e, U+200f, U+2028 to U+202e; U+2066 to U+2069 */
		return s[0] == 0xe2 && ((s[1] == 0x80 && (s[2] == 0x8e || s[2] == 0x8f ||
							  (s[2] >= 0xa8 && s[2] <= 0xae))) ||
					(s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9));
	default:
		return false;
	}
}

void str_sanitize(char *s, size_t n)
{
	for (size_t i = 0; i < n;) {
		const unsigned char *at = (const unsigned char *)s + i;
		size_t len = utf8_length(at, n - i);

		if (len > 0 && !is_control(at, len)) {
			i += len;
			continue;
		}
		s[i] = '?';
		i++;
	}
}

bool str_is_utf8(const char *s, size_t n)
{
	for (size_t i = 0; i < n;) {
		size_t len = utf8_length((const unsigned char *)s + i, n - i);

		if (len == 0)
			return false;
		i += len;
	}
	return true;
}

/* '0' in the pattern stands for a digit, everything else for itself. */
static bool matches_pattern(const char *s, const char *pattern)
{
	for (; *pattern; s++, pattern++)
		if (*pattern == '0' ? *s < '0' || *s > '9' : *s != *pattern)
			return false;
	return true;
}

static int two_digits(const char *s)
{
	return (s[0] - '0') * 10 + (s[1] - '0');
}

static bool is_date(const char *s)
{
	static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	int year = two_digits(s) * 100 + two_digits(s + 2);
	int month = two_digits(s + 5), day = two_digits(s + 8);
	bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);

	if (month < 1 || month > 12 || day < 1)
		return false;
	return day <= days[month - 1] + (month == 2 && leap);
}

static bool is_time(const char *s)
{
	return two_digits(s) <= 23 && two_digits(s + 3) <= 59;
}

bool str_is_rfc3339(const char *s, size_t n)
{
	static const char date_time[] = "0000-00-00T00:00:00", offset[] = "+00:00";
	size_t at = sizeof date_time - 1;

	if (n <= at || !matches_pattern(s, date_time) || !is_date(s) || !is_time(s + 11) ||
	    two_digits(s + 17) > 59)
		return false;
	if (s[at] == '.') {
		size_t start = ++at;

		while (at < n && s[at] >= '0' && s[at] <= '9')
			at++;
		if (at == start)
			return false;
	}
	if (n - at == 1)
		return s[at] == 'Z';
	return n - at == sizeof offset - 1 && (s[at] == '+' || s[at] == '-') &&
	       matches_pattern(s + at + 1, offset + 1) && is_time(s + at + 1);
}

bool str_starts_with(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends_with(const char *s, const char *suffix)
{
	size_t n = strlen(s), m = strlen(suffix);

	return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

char *str_printf(const char *fmt, ...)
{
	va_list ap;
	char *s;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&s, fmt, ap);
	va_end(ap);
	return n < 0 ? NULL : s;
}

int str_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}
