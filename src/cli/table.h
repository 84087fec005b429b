/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table in text: columns as wide as their widest cell, two blanks between.
 */
#pragma once

#include "base/buf.h"
#include "base/macro.h"

#define TABLE_COLUMNS_MAX 10

struct table {
	size_t n_columns;
	size_t n_cells;
	size_t cap;
	char **cells; /* row after row; the first row is the head */
	bool right[TABLE_COLUMNS_MAX];
	bool failed;
};

/* Names of the columns; one that starts with '>' is set to the right. */
void table_init(struct table *t, const char *const heads[], size_t n);
void table_done(struct table *t);
#define _table_ _cleanup_(table_done)

/* The next cell, row by row. The text is copied and made safe to print. */
void table_add(struct table *t, const char *text);
void table_addf(struct table *t, const char *fmt, ...) _printf_(2, 3);
/* Appends the table. 0 or -ENOMEM. */
int table_render(const struct table *t, struct buf *out) _must_check_;
