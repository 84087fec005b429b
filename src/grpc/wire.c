/* SPDX-License-Identifier: Apache-2.0 */
#include "grpc/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"

#define TIMEOUT_DIGITS	   8
#define TIMEOUT_DIGITS_END UINT64_C(100000000)
#define FIRST_ROOM	   512u

static const char *const status_names[] = {
	[GRPC_OK] = "OK",
	[GRPC_CANCELLED] = "CANCELLED",
	[GRPC_UNKNOWN] = "UNKNOWN",
	[GRPC_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
	[GRPC_DEADLINE_EXCEEDED] = "DEADLINE_EXCEEDED",
	[GRPC_NOT_FOUND] = "NOT_FOUND",
	[GRPC_ALREADY_EXISTS] = "ALREADY_EXISTS",
	[GRPC_PERMISSION_DENIED] = "PERMISSION_DENIED",
	[GRPC_RESOURCE_EXHAUSTED] = "RESOURCE_EXHAUSTED",
	[GRPC_FAILED_PRECONDITION] = "FAILED_PRECONDITION",
	[GRPC_ABORTED] = "ABORTED",
	[GRPC_OUT_OF_RANGE] = "OUT_OF_RANGE",
	[GRPC_UNIMPLEMENTED] = "UNIMPLEMENTED",
	[GRPC_INTERNAL] = "INTERNAL",
	[GRPC_UNAVAILABLE] = "UNAVAILABLE",
	[GRPC_DATA_LOSS] = "DATA_LOSS",
	[GRPC_UNAUTHENTICATED] = "UNAUTHENTICATED",
};

const char *grpc_status_name(enum grpc_status status)
{
	return status_names[(size_t)status < ARRAY_SIZE(status_names) ? status : GRPC_UNKNOWN];
}

enum grpc_status grpc_status_parse(const char *text, size_t n)
{
	uint32_t value;

	if (str_to_u32_n(text, n, &value) < 0 || value >= ARRAY_SIZE(status_names))
		return GRPC_UNKNOWN;
	return (enum grpc_status)value;
}

void grpc_reader_init(struct grpc_reader *r, size_t max)
{
	*r = (struct grpc_reader){ 0 };
	r->max = (uint32_t)MIN(max, (size_t)INT32_MAX);
}

void grpc_reader_done(struct grpc_reader *r)
{
	free(TAKE(r->msg));
}

static int take_prefix(struct grpc_reader *r)
{
	const uint8_t *p = r->prefix;

	if (p[0] > 1)
		return -EBADMSG;
	if (p[0] == 1)
		return -EOPNOTSUPP;
	r->size = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
	return r->size > r->max ? -EMSGSIZE : 0;
}

static int make_room(struct grpc_reader *r, size_t n)
{
	uint32_t cap = MAX(r->cap, FIRST_ROOM);
	uint8_t *bigger;

	if (r->have + n <= r->cap)
		return 0;
	while (cap < r->have + n)
		cap *= 2;
	cap = MIN(cap, r->size);
	bigger = realloc(r->msg, cap);
	if (!bigger)
		return -ENOMEM;
	r->msg = bigger;
	r->cap = cap;
	return 0;
}

int grpc_reader_feed(struct grpc_reader *r, const uint8_t *data, size_t n)
{
	int e;

	while (n > 0 && r->n_prefix < GRPC_PREFIX_SIZE) {
		r->prefix[r->n_prefix++] = *data++;
		n--;
		if (r->n_prefix < GRPC_PREFIX_SIZE)
			continue;
		e = take_prefix(r);
		if (e < 0)
			return e;
	}
	if (n == 0)
		return 0;
	if (n > r->size - r->have)
		return -EBADMSG;
	e = make_room(r, n);
	if (e < 0)
		return e;
	memcpy(r->msg + r->have, data, n);
	r->have += (uint32_t)n;
	return 0;
}

int grpc_reader_finish(const struct grpc_reader *r)
{
	if (r->n_prefix == 0)
		return -ENODATA;
	return r->n_prefix < GRPC_PREFIX_SIZE || r->have < r->size ? -EBADMSG : 0;
}

void grpc_prefix_write(uint8_t ret[static GRPC_PREFIX_SIZE], uint32_t size)
{
	ret[0] = 0;
	ret[1] = (uint8_t)(size >> 24);
	ret[2] = (uint8_t)(size >> 16);
	ret[3] = (uint8_t)(size >> 8);
	ret[4] = (uint8_t)size;
}

int grpc_timeout_parse(const char *text, size_t n, uint64_t *ret_usec)
{
	uint64_t value = 0;

	if (n < 2 || n > TIMEOUT_DIGITS + 1)
		return -EINVAL;
	for (size_t i = 0; i < n - 1; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -EINVAL;
		value = value * 10 + (uint64_t)(text[i] - '0');
	}
	switch (text[n - 1]) {
	case 'H':
		*ret_usec = value * 3600 * USEC_PER_SEC;
		return 0;
	case 'M':
		*ret_usec = value * 60 * USEC_PER_SEC;
		return 0;
	case 'S':
		*ret_usec = value * USEC_PER_SEC;
		return 0;
	case 'm':
		*ret_usec = value * USEC_PER_MSEC;
		return 0;
	case 'u':
		*ret_usec = value;
		return 0;
	case 'n':
		*ret_usec = (value + 999) / 1000;
		return 0;
	default:
		return -EINVAL;
	}
}

void grpc_timeout_format(uint64_t usec, char ret[static GRPC_TIMEOUT_TEXT_MAX])
{
	static const struct {
		char unit;
		uint64_t usec;
	} units[] = {
		{ 'u', 1 },
		{ 'm', USEC_PER_MSEC },
		{ 'S', USEC_PER_SEC },
		{ 'H', 3600 * USEC_PER_SEC },
	};
	uint64_t value = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(units); i++) {
		value = usec / units[i].usec + (usec % units[i].usec != 0);
		if (value < TIMEOUT_DIGITS_END)
			break;
	}
	if (i == ARRAY_SIZE(units)) {
		i--;
		value = TIMEOUT_DIGITS_END - 1;
	}
	snprintf(ret, GRPC_TIMEOUT_TEXT_MAX, "%" PRIu64 "%c", value, units[i].unit);
}

void grpc_text_encode(const char *text, char ret[static GRPC_ENCODED_TEXT_MAX])
{
	static const char hex[] = "0123456789ABCDEF";
	char cut[GRPC_TEXT_MAX];
	char *out = ret;

	str_copy_cut(cut, sizeof(cut), text);
	str_sanitize(cut, strlen(cut));
	for (const char *p = cut; *p; p++) {
		uint8_t c = (uint8_t)*p;

		if (c >= 0x20 && c <= 0x7e && c != '%') {
			*out++ = *p;
			continue;
		}
		*out++ = '%';
		*out++ = hex[c >> 4];
		*out++ = hex[c & 15];
	}
	*out = '\0';
}

void grpc_text_decode(const char *text, size_t n, char ret[static GRPC_TEXT_MAX])
{
	size_t len = 0;

	for (size_t i = 0; i < n && len < GRPC_TEXT_MAX - 1; i++) {
		int high = i + 2 < n && text[i] == '%' ? str_hex_digit(text[i + 1]) : -1;
		int low = high >= 0 ? str_hex_digit(text[i + 2]) : -1;

		if (low >= 0) {
			ret[len++] = (char)(high << 4 | low);
			i += 2;
		} else {
			ret[len++] = text[i];
		}
	}
	/* A NUL in the middle would hide the rest. */
	str_sanitize(ret, len);
	ret[len] = '\0';
}

bool grpc_content_type_ok(const char *text, size_t n)
{
	static const char type[] = "application/grpc";
	size_t len = sizeof(type) - 1;

	if (n < len || strncasecmp(text, type, len) != 0)
		return false;
	return n == len || text[len] == '+' || text[len] == ';';
}
