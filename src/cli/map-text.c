/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/map-text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "cli/cli.h"
#include "cli/map-draw.h"
#include "cli/table.h"
#include "model/profile.h"

/* "4Q" of "NVIDIA L40S-4Q". */
static const char *short_profile(const char *name)
{
	const char *dash = strrchr(name, '-');

	return dash && dash[1] ? dash + 1 : name;
}

static const char *claim_text(const json_t *placed, char *buf, size_t size)
{
	if (cli_field_is_set(placed, "claim"))
		return cli_field(placed, "claim", buf, size);
	return "(not claimed)";
}

static bool is_placed(const json_t *placed, json_int_t region, struct map_block *ret)
{
	json_int_t id = cli_field_int(placed, "id", -1), size = cli_field_int(placed, "size", 0);

	if (id < 0 || size < 1 || id >= region || size > region - id)
		return false;
	*ret = (struct map_block){ .id = (unsigned)id, .size = (unsigned)size };
	return true;
}

/* The blocks whose place is known. */
static void fill_strip(const json_t *gpu, struct map_strip *strip)
{
	json_int_t region = cli_field_int(gpu, "region", 0);
	const json_t *placed;
	size_t i;

	strip->region = region > 0 && region <= MAP_UNITS_MAX ? (unsigned)region : 0;
	strip->n_blocks = 0;
	json_array_foreach(cli_field_array(gpu, "placed"), i, placed) {
		struct map_block *b = &strip->blocks[strip->n_blocks];
		char profile[CLI_FIELD_SIZE], claim[CLI_FIELD_SIZE], label[2 * CLI_FIELD_SIZE];

		if (strip->n_blocks >= MAP_BLOCKS_MAX || !is_placed(placed, strip->region, b))
			continue;
		cli_field(placed, "profile", profile, sizeof(profile));
		snprintf(label, sizeof(label), "%s %s", short_profile(profile),
			 cli_field_is_set(placed, "claim")
				 ? cli_field(placed, "claim", claim, sizeof(claim))
				 : "");
		str_copy_cut(b->label, sizeof(b->label), label);
		/* The cut may have gone through a character. */
		terminal_make_safe(b->label);
		strip->n_blocks++;
	}
	map_sort(strip);
}

/* A strip is drawn when every vGPU's place is known, so that what looks free is free. */
static bool can_draw(const json_t *gpu, const struct map_strip *strip)
{
	size_t n_placed = json_array_size(cli_field_array(gpu, "placed"));
	json_int_t used = cli_field_int(json_object_get(gpu, "slots"), "used", 0);

	if (strip->region == 0 || strip->n_blocks != n_placed)
		return false;
	return !cli_field_is_set(gpu, "fallback") || used <= (json_int_t)strip->n_blocks;
}

static void add_title(struct buf *out, const json_t *gpu)
{
	const json_t *slots = json_object_get(gpu, "slots");
	char a[CLI_FIELD_SIZE], b[CLI_FIELD_SIZE], c[CLI_FIELD_SIZE];

	buf_printf(out, "%s  %s  %s", cli_field(gpu, "address", a, sizeof(a)),
		   cli_field(gpu, "name", b, sizeof(b)), cli_field(gpu, "mode", c, sizeof(c)));
	if (cli_field_int(gpu, "numa_node", -1) >= 0)
		buf_printf(out, "  NUMA %s", cli_field(gpu, "numa_node", a, sizeof(a)));
	buf_printf(out, "  VFs: %s of %s used", cli_field(slots, "used", a, sizeof(a)),
		   cli_field(slots, "total", b, sizeof(b)));
	if (cli_field_int(slots, "quarantined", 0) > 0)
		buf_printf(out, ", %s quarantined", cli_field(slots, "quarantined", a, sizeof(a)));
	buf_add_char(out, '\n');
	if (cli_field_is_set(gpu, "stuck"))
		buf_add_str(out, "  stuck: the driver hangs; this is the last that is known\n");
	if (cli_field_is_set(gpu, "cordoned"))
		buf_add_str(out, "  cordoned: no new claims\n");
	if (cli_field_is_set(gpu, "fallback"))
		buf_printf(out, "  NVML has no placements for this card: %s\n",
			   cli_field(gpu, "fallback", a, sizeof(a)));
}

static const json_t *find_placed(const json_t *gpu, const struct map_block *b)
{
	const json_t *placed;
	size_t i;

	json_array_foreach(cli_field_array(gpu, "placed"), i, placed)
		if (cli_field_int(placed, "id", -1) == b->id &&
		    cli_field_int(placed, "size", 0) == b->size)
			return placed;
	return NULL;
}

static void add_legend_row(struct table *t, const char *key, const char *units,
			   const json_t *placed)
{
	char text[CLI_FIELD_SIZE];

	table_addf(t, "  %s", key);
	table_add(t, units);
	table_add(t, profile_name_short(cli_field(placed, "profile", text, sizeof(text))));
	table_add(t, claim_text(placed, text, sizeof(text)));
	table_add(t, cli_field(placed, "vf", text, sizeof(text)));
}

static int add_legend(struct buf *out, const json_t *gpu, const struct map_strip *strip, bool drawn)
{
	static const char *const heads[] = { "  ", "UNITS", "PROFILE", "CLAIM", "VF" };
	const json_t *placed;
	_table_ struct table t = { 0 };
	struct map_block b;
	size_t i;

	if (json_array_size(cli_field_array(gpu, "placed")) == 0)
		return 0;
	table_init(&t, heads, ARRAY_SIZE(heads));
	for (i = 0; i < strip->n_blocks; i++) {
		const char key[2] = { drawn ? strip->blocks[i].key : '\0', '\0' };

		_buf_ struct buf units = BUF_INIT;

		map_list_units(strip->blocks[i].id, strip->blocks[i].size, &units);
		if (buf_finish(&units) < 0)
			return -1;
		add_legend_row(&t, key, units.data, find_placed(gpu, &strip->blocks[i]));
	}
	json_array_foreach(cli_field_array(gpu, "placed"), i, placed)
		if (!is_placed(placed, strip->region, &b))
			add_legend_row(&t, "", "?", placed);
	return table_render(&t, out);
}

/* "2 x 8Q" and so on, as many to a line as fit. */
static void add_room(struct buf *out, const json_t *gpu, unsigned columns)
{
	static const char head[] = "  room for, each alone:";
	size_t width = sizeof(head) - 1;
	const json_t *profile;
	bool any = false;
	size_t i;

	buf_add_str(out, head);
	json_array_foreach(cli_field_array(gpu, "profiles"), i, profile) {
		json_int_t n = cli_field_int(profile, "available", 0);
		char name[CLI_FIELD_SIZE], text[CLI_FIELD_SIZE + 32];
		int len;

		if (n <= 0)
			continue;
		cli_field(profile, "name", name, sizeof(name));
		len = snprintf(text, sizeof(text), "%s %lld x %s", any ? "," : "", (long long)n,
			       short_profile(name));
		if (width + (size_t)len > columns) {
			buf_add_str(out, any ? ",\n   " : "\n   ");
			width = 3;
			buf_add_str(out, text + (any ? 1 : 0));
		} else {
			buf_add_str(out, text);
		}
		width += (size_t)len;
		any = true;
	}
	buf_add_str(out, any ? "\n" : " nothing\n");
}

static int add_gpu(struct buf *out, const json_t *gpu, const struct terminal *terminal)
{
	struct map_strip strip;
	bool drawn;

	fill_strip(gpu, &strip);
	drawn = can_draw(gpu, &strip);
	add_title(out, gpu);
	if (drawn && map_draw(&strip, terminal, out) < 0)
		return -1;
	if (add_legend(out, gpu, &strip, drawn) < 0)
		return -1;
	if (drawn) {
		buf_add_str(out, "  free units: ");
		map_list_free(&strip, out);
		buf_add_char(out, '\n');
	}
	add_room(out, gpu, terminal->columns);
	return buf_finish(out);
}

int map_text(const json_t *gpus, const struct terminal *terminal, struct buf *out)
{
	const json_t *gpu;
	size_t i;

	if (json_array_size(gpus) == 0) {
		buf_add_str(out, "there are no vGPU cards on this host\n");
		return buf_finish(out);
	}
	json_array_foreach(gpus, i, gpu) {
		if (i > 0)
			buf_add_char(out, '\n');
		if (add_gpu(out, gpu, terminal) < 0)
			return -ENOMEM;
	}
	return buf_finish(out);
}
