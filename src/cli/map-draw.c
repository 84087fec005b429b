/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/map-draw.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define MARGIN	  2U
#define SCALE_MAX 4U
/* A free part gets its size written into it from this many columns on. */
#define FREE_LABEL_MIN 12U

/* One column: its character, and the block it belongs to (-1: free). */
struct cell {
	char text[8];
	int block;
};

struct layout {
	unsigned scale;	   /* columns a unit */
	unsigned per_line; /* units a line */
};

static int compare_blocks(const void *a, const void *b)
{
	const struct map_block *x = a, *y = b;

	return x->id != y->id ? (x->id < y->id ? -1 : 1)
			      : (int)(x->size > y->size) - (int)(x->size < y->size);
}

void map_sort(struct map_strip *strip)
{
	static const char keys[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

	qsort(strip->blocks, strip->n_blocks, sizeof(strip->blocks[0]), compare_blocks);
	for (size_t i = 0; i < strip->n_blocks; i++)
		strip->blocks[i].key = i < sizeof(keys) - 1 ? keys[i] : '#';
}

static struct layout choose_layout(unsigned region, unsigned columns)
{
	struct layout l = { .per_line = region };
	unsigned width = columns - 2 * MARGIN, lines;

	l.scale = MAX(1U, MIN(width / region, SCALE_MAX));
	if (l.scale * region <= width)
		return l;
	/* Lines of the same length, that begin at round numbers where there is room for that. */
	lines = (region + width - 1) / width;
	l.per_line = (region + lines - 1) / lines;
	if ((l.per_line + 7) / 8 * 8 <= width)
		l.per_line = (l.per_line + 7) / 8 * 8;
	return l;
}

static void set_cell(struct cell *cell, const char *text, size_t n)
{
	if (n >= sizeof(cell->text))
		return;
	memcpy(cell->text, text, n);
	cell->text[n] = '\0';
}

/* Bytes of the UTF-8 character at s; the text was made safe, so it is whole. */
static size_t char_length(const char *s)
{
	unsigned char c = (unsigned char)*s;

	return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* Writes text into cells from `at` on, not beyond `end`. Only characters of one column. */
static unsigned put_text(struct cell *cells, unsigned at, unsigned end, const char *text)
{
	for (size_t n; *text && at < end; text += n) {
		char one[8] = { 0 };

		n = char_length(text);
		memcpy(one, text, n);
		if (terminal_width(one) == 1)
			set_cell(&cells[at++], one, n);
	}
	return at;
}

static void fill_free(struct cell *cells, unsigned first, unsigned end, unsigned units, bool utf8)
{
	char label[32];
	unsigned width = end - first, len;

	for (unsigned i = first; i < end; i++)
		set_cell(&cells[i], utf8 ? "·" : ".", utf8 ? 2 : 1);
	len = (unsigned)snprintf(label, sizeof(label), " %u free ", units);
	if (width >= MAX(FREE_LABEL_MIN, len + 2))
		(void)put_text(cells, first + (width - len) / 2, end, label);
}

static void fill_block(struct cell *cells, unsigned first, unsigned end, const struct map_block *b,
		       bool utf8)
{
	char key[2] = { b->key, '\0' };
	unsigned at;

	for (unsigned i = first; i < end; i++)
		set_cell(&cells[i],
			 end - first < 3 ? key
			 : utf8		 ? "─"
					 : "-",
			 utf8 && end - first >= 3 ? 3 : 1);
	if (end - first < 3)
		return;
	set_cell(&cells[first], "[", 1);
	set_cell(&cells[end - 1], "]", 1);
	at = put_text(cells, first + 1, end - 1, key);
	/* A label of which only a letter or two would be seen says nothing. */
	if (end - 1 - at >= 3 && b->label[0])
		(void)put_text(cells, put_text(cells, at, end - 1, " "), end - 1, b->label);
}

static void add_ruler(struct buf *out, unsigned first, unsigned last, unsigned scale)
{
	unsigned step = scale >= 2 ? 4 : 8, column = 0;

	buf_printf(out, "%*s", (int)MARGIN, "");
	for (unsigned unit = first; unit < last; unit += step) {
		char number[16];
		int n = snprintf(number, sizeof(number), "%u", unit);

		/* The last mark may have too little room for its number; then it would stick out.
		 */
		if (column + (unsigned)n > (last - first) * scale)
			break;
		buf_printf(out, "%s", number);
		column += (unsigned)n;
		for (; column < (unit - first + step) * scale && unit + step < last; column++)
			buf_add_char(out, ' ');
	}
	buf_add_char(out, '\n');
}

static void add_cells(struct buf *out, const struct cell *cells, unsigned n, bool colour)
{
	/* Black on a light background, six in turn; readable on light and dark terminals. */
	static const int backgrounds[] = { 42, 46, 43, 45, 44, 47 };
	int block = -1;

	buf_printf(out, "%*s", (int)MARGIN, "");
	for (unsigned i = 0; i < n; i++) {
		if (colour && cells[i].block != block) {
			block = cells[i].block;
			if (block < 0)
				buf_add_str(out, "\033[0m");
			else
				buf_printf(out, "\033[30;%dm",
					   backgrounds[(size_t)block % ARRAY_SIZE(backgrounds)]);
		}
		buf_add_str(out, cells[i].text);
	}
	buf_add_str(out, block >= 0 ? "\033[0m\n" : "\n");
}

/* Fills the strip's columns; blocks must be sorted. */
static int fill_cells(const struct map_strip *strip, unsigned scale, bool utf8, struct cell *cells)
{
	unsigned unit = 0;

	for (size_t i = 0; i <= strip->n_blocks; i++) {
		const struct map_block *b = i < strip->n_blocks ? &strip->blocks[i] : NULL;
		unsigned first = b ? b->id : strip->region;

		if (b &&
		    (b->size == 0 || b->size > strip->region || b->id > strip->region - b->size))
			return -ERANGE;
		if (first > unit)
			fill_free(cells, unit * scale, first * scale, first - unit, utf8);
		if (!b)
			break;
		for (unsigned c = first * scale; c < (first + b->size) * scale; c++)
			cells[c].block = (int)i;
		fill_block(cells, first * scale, (first + b->size) * scale, b, utf8);
		unit = MAX(unit, first + b->size);
	}
	return 0;
}

int map_draw(const struct map_strip *strip, const struct terminal *terminal, struct buf *out)
{
	struct layout l;
	_free_ struct cell *cells = NULL;
	int r;

	if (strip->region == 0 || strip->region > MAP_UNITS_MAX)
		return -ERANGE;
	l = choose_layout(strip->region, terminal->columns);
	cells = calloc((size_t)strip->region * l.scale, sizeof(*cells));
	if (!cells)
		return -ENOMEM;
	for (unsigned i = 0; i < strip->region * l.scale; i++)
		cells[i].block = -1;
	r = fill_cells(strip, l.scale, terminal->utf8, cells);
	if (r < 0)
		return r;
	for (unsigned first = 0; first < strip->region; first += l.per_line) {
		unsigned last = MIN(first + l.per_line, strip->region);

		add_ruler(out, first, last, l.scale);
		add_cells(out, cells + (size_t)first * l.scale, (last - first) * l.scale,
			  terminal->colour);
	}
	return buf_finish(out);
}

void map_list_units(unsigned first, unsigned n, struct buf *out)
{
	if (n > 1)
		buf_printf(out, "%u-%u", first, first + n - 1);
	else
		buf_printf(out, "%u", first);
}

void map_list_free(const struct map_strip *strip, struct buf *out)
{
	const char *separator = "";
	unsigned unit = 0;

	for (size_t i = 0; i <= strip->n_blocks; i++) {
		unsigned first = i < strip->n_blocks ? strip->blocks[i].id : strip->region;

		if (first > unit) {
			buf_add_str(out, separator);
			map_list_units(unit, first - unit, out);
			buf_printf(out, " (%u)", first - unit);
			separator = ", ";
		}
		if (i < strip->n_blocks)
			unit = MAX(unit, first + strip->blocks[i].size);
	}
	if (!*separator)
		buf_add_str(out, "none");
}
