/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing byte buffer for text that is put together piece by piece.
 *
 * A failed allocation is remembered: further additions do nothing, and buf_finish() reports it, so
 * callers check once at the end.
 */
#pragma once

#include "base/macro.h"

struct buf {
	char *data; /* NUL-terminated once anything was added */
	size_t len;
	size_t cap;
	bool failed;
};

#define BUF_INIT ((struct buf){ 0 })

void buf_done(struct buf *b);
#define _buf_ _cleanup_(buf_done)

void buf_add(struct buf *b, const void *data, size_t n);
void buf_add_str(struct buf *b, const char *s);
void buf_add_char(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) _printf_(2, 3);
void buf_clear(struct buf *b);
/* 0, or -ENOMEM if any addition failed. */
int buf_finish(const struct buf *b) _must_check_;
/* Hands the text over (never NULL after success); the buffer is empty afterwards. -ENOMEM. */
int buf_take(struct buf *b, char **ret, size_t *ret_len) _must_check_;
