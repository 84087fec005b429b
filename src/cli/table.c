/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/table.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "cli/terminal.h"

void table_init(struct table *t, const char *const heads[], size_t n)
{
	assert(n <= TABLE_COLUMNS_MAX);
	*t = (struct table){ .n_columns = n };
	for (size_t i = 0; i < n; i++) {
		t->right[i] = heads[i][0] == '>';
		table_add(t, heads[i] + t->right[i]);
	}
}

void table_done(struct table *t)
{
	for (size_t i = 0; i < t->n_cells; i++)
		free(t->cells[i]);
	free(t->cells);
	*t = (struct table){ 0 };
}

void table_add(struct table *t, const char *text)
{
	if (array_reserve(t->cells, t->n_cells, t->cap) < 0) {
		t->failed = true;
		return;
	}
	t->cells[t->n_cells] = strdup(text);
	if (!t->cells[t->n_cells]) {
		t->failed = true;
		return;
	}
	terminal_make_safe(t->cells[t->n_cells++]);
}

void table_addf(struct table *t, const char *fmt, ...)
{
	_free_ char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	if (text)
		table_add(t, text);
	else
		t->failed = true;
}

static void render_row(const struct table *t, size_t first, const size_t *widths, struct buf *out)
{
	for (size_t i = 0; i < t->n_columns; i++) {
		const char *cell = t->cells[first + i];
		int pad = (int)(widths[i] - terminal_width(cell));
		bool last = i + 1 == t->n_columns;

		if (t->right[i])
			buf_printf(out, "%*s%s%s", pad, "", cell, last ? "" : "  ");
		else
			buf_printf(out, "%s%*s", cell, last ? 0 : pad + 2, "");
	}
	buf_add_char(out, '\n');
}

int table_render(const struct table *t, struct buf *out)
{
	size_t widths[TABLE_COLUMNS_MAX] = { 0 };

	if (t->failed)
		return -ENOMEM;
	for (size_t i = 0; i < t->n_cells; i++)
		widths[i % t->n_columns] = MAX(widths[i % t->n_columns],
					       terminal_width(t->cells[i]));
	for (size_t i = 0; i + t->n_columns <= t->n_cells; i += t->n_columns)
		render_row(t, i, widths, out);
	return buf_finish(out);
}
