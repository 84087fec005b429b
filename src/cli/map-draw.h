/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws one card's framebuffer as a strip: a vGPU is a block with a letter, what is free is dots.
 *
 *   0       8       16      24      32      40
 *   [a-][b 8Q--]························[c 12Q vm3-]
 *
 * Pure: from placements to text. Reading the daemon's answer is cmd-map.c's part. A strip that is
 * too wide for the terminal goes on in the next line; one that is narrow gets several columns a
 * unit.
 */
#pragma once

#include "base/buf.h"
#include "base/macro.h"
#include "cli/terminal.h"

#define MAP_UNITS_MAX  512
#define MAP_BLOCKS_MAX 256
#define MAP_LABEL_MAX  64

struct map_block {
	unsigned id;		   /* first unit */
	unsigned size;		   /* in units, at least 1 */
	char key;		   /* names it in the legend; set by map_sort() */
	char label[MAP_LABEL_MAX]; /* short text, cut to what fits */
};

struct map_strip {
	unsigned region; /* units, 1 to MAP_UNITS_MAX */
	size_t n_blocks;
	struct map_block blocks[MAP_BLOCKS_MAX];
};

/* Into the order of placement, each with its key. */
void map_sort(struct map_strip *strip);
/* Ruler and strip. 0, -ENOMEM, or -ERANGE when a block sticks out of the region. */
int map_draw(const struct map_strip *strip, const struct terminal *terminal,
	     struct buf *out) _must_check_;
/* "4-7", or "4" where n is 1. */
void map_list_units(unsigned first, unsigned n, struct buf *out);
/* "4-7 (4), 20-47 (28)", or "none". */
void map_list_free(const struct map_strip *strip, struct buf *out);
