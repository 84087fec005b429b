/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_done(struct buf *b)
{
	free(b->data);
	*b = BUF_INIT;
}

static bool reserve(struct buf *b, size_t more)
{
	size_t need, cap;
	char *data;

	if (b->failed)
		return false;
	if (__builtin_add_overflow(b->len, more, &need) || __builtin_add_overflow(need, 1, &need)) {
		b->failed = true;
		return false;
	}
	if (need <= b->cap)
		return true;
	cap = MAX(need, b->cap * 2);
	cap = MAX(cap, (size_t)64);
	data = realloc(b->data, cap);
	if (!data) {
		b->failed = true;
		return false;
	}
	b->data = data;
	b->cap = cap;
	return true;
}

void buf_add(struct buf *b, const void *data, size_t n)
{
	if (!reserve(b, n))
		return;
	if (n > 0)
		memcpy(b->data + b->len, data, n);
	b->len += n;
	b->data[b->len] = '\0';
}

void buf_add_str(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

void buf_add_char(struct buf *b, char c)
{
	buf_add(b, &c, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0) {
		b->failed = true;
		return;
	}
	if (!reserve(b, (size_t)n))
		return;
	va_start(ap, fmt);
	vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
}

void buf_clear(struct buf *b)
{
	b->len = 0;
	b->failed = false;
	if (b->data)
		b->data[0] = '\0';
}

int buf_finish(const struct buf *b)
{
	return b->failed ? -ENOMEM : 0;
}

int buf_take(struct buf *b, char **ret, size_t *ret_len)
{
	buf_add(b, "", 0);
	if (b->failed)
		return -ENOMEM;
	*ret = b->data;
	if (ret_len)
		*ret_len = b->len;
	*b = BUF_INIT;
	return 0;
}
