/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "http/page-internal.h"
#include "model/profile.h"

/* Profiles come as L40S-1Q, L40S-2Q, ... L40S-1A, ...: forty names in which only board, size and
 * series differ. A row is a board's series, a column a size. */

#define ROWS_MAX  64
#define SIZES_MAX 64
#define CELLS_MAX 1024

struct kind {
	char board[PROFILE_NAME_MAX];
	char series[8];
	unsigned size;
};

struct matrix {
	unsigned n_rows, n_sizes, n_cells;
	struct kind rows[ROWS_MAX]; /* size is not used */
	unsigned sizes[SIZES_MAX];
	struct {
		struct kind kind;
		const json_t *profile;
	} cells[CELLS_MAX];
};

const char *page_profile_kind(const char *name)
{
	const char *dash = strrchr(name, '-');

	return dash && dash[1] ? dash + 1 : name;
}

/* "NVIDIA L40S-4Q" -> L40S, 4, Q. False: made up otherwise. */
static bool read_kind(const char *name, struct kind *ret)
{
	const char *board = profile_name_short(name), *dash = strrchr(board, '-'), *series;
	unsigned long size;
	char *end;

	if (!dash || dash == board || dash[1] < '1' || dash[1] > '9')
		return false;
	size = strtoul(dash + 1, &end, 10);
	series = end;
	if (size > 512 || !*series || strlen(series) >= sizeof ret->series ||
	    (size_t)(dash - board) >= sizeof ret->board)
		return false;
	ret->size = (unsigned)size;
	str_copy_cut(ret->series, sizeof ret->series, series);
	str_copy_cut(ret->board, (size_t)(dash - board) + 1, board);
	return true;
}

static bool same_row(const struct kind *a, const struct kind *b)
{
	return strcmp(a->board, b->board) == 0 && strcmp(a->series, b->series) == 0;
}

static int compare_sizes(const void *a, const void *b)
{
	return (int)*(const unsigned *)a - (int)*(const unsigned *)b;
}

/* What is asked for most goes first. */
static unsigned series_rank(const char *series)
{
	static const char order[] = "QCAB";
	const char *at = strchr(order, series[0]);

	return at ? (unsigned)(at - order) : sizeof order;
}

static int compare_rows(const void *a, const void *b)
{
	const struct kind *x = a, *y = b;
	int r = strcmp(x->board, y->board);

	if (r == 0)
		r = (int)series_rank(x->series) - (int)series_rank(y->series);
	return r ? r : strcmp(x->series, y->series);
}

/* False: it does not go into the table. */
static bool matrix_add(struct matrix *m, const json_t *profile)
{
	struct kind kind;
	unsigned row = 0, size = 0;

	if (m->n_cells == CELLS_MAX || !read_kind(page_str(profile, "name"), &kind))
		return false;
	while (row < m->n_rows && !same_row(&m->rows[row], &kind))
		row++;
	while (size < m->n_sizes && m->sizes[size] != kind.size)
		size++;
	if (row == ROWS_MAX || size == SIZES_MAX)
		return false;
	if (row == m->n_rows)
		m->rows[m->n_rows++] = kind;
	if (size == m->n_sizes)
		m->sizes[m->n_sizes++] = kind.size;
	m->cells[m->n_cells].kind = kind;
	m->cells[m->n_cells++].profile = profile;
	return true;
}

static const json_t *matrix_find(const struct matrix *m, const struct kind *row, unsigned size)
{
	for (unsigned i = 0; i < m->n_cells; i++)
		if (m->cells[i].kind.size == size && same_row(&m->cells[i].kind, row))
			return m->cells[i].profile;
	return NULL;
}

/* "3", or "3 of 8": free placements where there are more of them than VFs to put there. */
static void add_count(struct buf *out, const json_t *profile)
{
	json_int_t available = page_int(profile, "available", 0);
	json_int_t placements = page_int(profile, "free_placements", -1);

	buf_printf(out, "%lld", (long long)available);
	if (placements >= 0 && placements != available)
		buf_printf(out, " <small>of %lld</small>", (long long)placements);
}

static const char *series_meaning(const char *series)
{
	switch (series[0]) {
	case 'Q':
		return "workstation";
	case 'C':
		return "compute";
	case 'A':
		return "applications";
	case 'B':
		return "desktop";
	default:
		return "";
	}
}

static void add_row(struct buf *out, const struct matrix *m, const struct kind *row)
{
	buf_add_str(out, "<tr><th scope=\"row\">");
	html_outside(out, row->board);
	buf_add_str(out, " <b>");
	html_text(out, row->series);
	buf_printf(out, "</b> <small>%s</small></th>", series_meaning(row->series));
	for (unsigned i = 0; i < m->n_sizes; i++) {
		const json_t *profile = matrix_find(m, row, m->sizes[i]);

		if (!profile) {
			buf_add_str(out, "<td></td>");
			continue;
		}
		buf_printf(out, "<td class=\"n%s\"",
			   page_int(profile, "available", 0) > 0 ? "" : " zero");
		html_attr(out, "title", profile_name_short(page_str(profile, "name")));
		buf_add_char(out, '>');
		add_count(out, profile);
		buf_add_str(out, "</td>");
	}
	buf_add_str(out, "</tr>");
}

static void add_table(struct buf *out, const char *caption, struct matrix *m)
{
	qsort(m->sizes, m->n_sizes, sizeof m->sizes[0], compare_sizes);
	qsort(m->rows, m->n_rows, sizeof m->rows[0], compare_rows);
	buf_printf(out,
		   "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"%s\"><table "
		   "class=\"matrix\"><caption>%s</caption><thead><tr><th scope=\"col\">GiB</th>",
		   caption, caption);
	for (unsigned i = 0; i < m->n_sizes; i++)
		buf_printf(out, "<th scope=\"col\">%u</th>", m->sizes[i]);
	buf_add_str(out, "</tr></thead><tbody>");
	for (unsigned i = 0; i < m->n_rows; i++)
		add_row(out, m, &m->rows[i]);
	page_table_end(out);
}

void page_profile_table(struct buf *out, const char *caption, const json_t *profiles)
{
	_free_ struct matrix *m = calloc(1, sizeof *m);
	_buf_ struct buf others = BUF_INIT;
	const json_t *profile;
	size_t i;

	if (!m) {
		out->failed = true;
		return;
	}
	json_array_foreach(profiles, i, profile) {
		const char *name = page_str(profile, "name");

		if (matrix_add(m, profile))
			continue;
		buf_add_str(&others, others.len ? ", " : "<p class=\"more\">");
		html_outside(&others, *name ? name : "a type without a name");
		buf_add_str(&others, ": ");
		add_count(&others, profile);
	}
	if (m->n_rows > 0)
		add_table(out, caption, m);
	if (others.len > 0) {
		buf_add(out, others.data, others.len);
		buf_add_str(out, "</p>");
	}
	out->failed |= others.failed;
}
