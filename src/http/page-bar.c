/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "http/page-internal.h"
#include "model/placement.h"
#include "model/profile.h"

/* The bar is a table of one row with a column for each unit: cells are cut and sized by the style
 * sheet, where no element may have a style of its own. */

enum block_kind {
	BLOCK_VGPU,
	BLOCK_HOLE,
	BLOCK_OTHER, /* not known, or about to change */
};

struct block {
	unsigned id, size;
	enum block_kind kind;
	const json_t *what;
};

struct bar {
	unsigned region, n;
	bool loose; /* sizes only, in any order: the places are not known */
	struct block blocks[2 * PLACEMENT_UNITS_MAX];
};

bool page_is_placed(const json_t *card, const json_t *placed)
{
	json_int_t region = page_int(card, "region", 0);
	json_int_t id = page_int(placed, "id", -1), size = page_int(placed, "size", 0);

	return id >= 0 && size > 0 && id < region && size <= region - id;
}

static void bar_add(struct bar *bar, unsigned id, unsigned size, enum block_kind kind,
		    const json_t *what)
{
	if (bar->n < sizeof bar->blocks / sizeof bar->blocks[0])
		bar->blocks[bar->n++] = (struct block){ id, size, kind, what };
}

static int by_id(const void *a, const void *b)
{
	const struct block *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

static void collect_placed(struct bar *bar, const json_t *card)
{
	const json_t *list = json_object_get(card, "placed"), *placed;
	unsigned at = 0;
	size_t i;

	json_array_foreach(list, i, placed)
		bar->loose |= !page_is_placed(card, placed);
	json_array_foreach(list, i, placed) {
		json_int_t size = page_int(placed, "size", 0);

		if (!bar->loose)
			at = (unsigned)page_int(placed, "id", 0);
		else if (size < 1 || size > (json_int_t)(bar->region - at))
			continue;
		bar_add(bar, at, (unsigned)size, BLOCK_VGPU, placed);
		at += (unsigned)size;
	}
}

static void collect(struct bar *bar, const json_t *card)
{
	const json_t *hole;
	size_t i;

	collect_placed(bar, card);
	json_array_foreach(json_object_get(card, "holes"), i, hole)
		if (!bar->loose && page_is_placed(card, hole))
			bar_add(bar, (unsigned)page_int(hole, "id", 0),
				(unsigned)page_int(hole, "size", 0), BLOCK_HOLE, hole);
	qsort(bar->blocks, bar->n, sizeof bar->blocks[0], by_id);
}

/* How much of the bar it takes, for the style sheet to decide what can be written into it. */
static unsigned share_class(const struct bar *bar, unsigned size)
{
	unsigned percent = size * 100 / bar->region;

	return percent < 2 ? 0 : percent < 6 ? 1 : percent < 14 ? 2 : percent < 25 ? 3 : 4;
}

/* The name of a state for the style sheet; what it looks like is said by the legend. */
static const char *look_of(const json_t *vf, const json_t *claim)
{
	const char *state = page_str(vf, "state");

	if (page_flag(vf, "quarantined") || *page_str(claim, "problem"))
		return "bad";
	if (strcmp(state, "bound") == 0)
		return "bound";
	if (strcmp(state, "external") == 0)
		return "external";
	return strcmp(state, "unclaimed") == 0 || strcmp(state, "excluded") == 0 ? "foreign"
										 : "moving";
}

static void add_vgpu(const struct page *p, const struct bar *bar, const json_t *card,
		     const struct block *b)
{
	const char *claim_name = page_str(b->what, "claim"),
		   *profile = page_str(b->what, "profile");
	const json_t *vf = page_find(json_object_get(card, "vfs"), "address",
				     page_str(b->what, "vf"));
	const json_t *claim = page_claim(p, claim_name);
	const char *look = look_of(vf, claim), *state = page_str(vf, "state");

	buf_printf(p->out, "<td colspan=\"%u\" class=\"g %s t%u\" title=\"", b->size, look,
		   share_class(bar, b->size));
	html_text(p->out, profile_name_short(profile));
	buf_add_str(p->out, *claim_name ? ", claim " : ", no claim");
	html_text(p->out, claim_name);
	if (bar->loose)
		buf_printf(p->out, ", %u GiB, VF ", b->size);
	else
		buf_printf(p->out, ", units %u-%u, VF ", b->id, b->id + b->size - 1);
	html_text(p->out, page_str(b->what, "vf"));
	buf_add_str(p->out, ", ");
	html_text(p->out, page_flag(vf, "quarantined") ? "quarantined" : state);
	buf_add_str(p->out, "\"");
	if (*claim_name)
		page_id(p->out, " data-row=\"claim", claim_name);
	buf_add_str(p->out, *claim_name ? "\"><b>" : "><b>");
	html_text(p->out, page_profile_kind(profile));
	buf_add_str(p->out, "</b> <span>");
	html_text(p->out, *claim_name ? claim_name : state);
	buf_add_str(p->out, "</span></td>");
}

/* The largest profile that has a placement in a hole; NULL: none has. */
static const char *largest_fit(const json_t *card, const json_t *hole)
{
	const json_t *fit, *best = NULL;
	json_int_t best_size = 0;
	size_t i;

	json_array_foreach(json_object_get(hole, "fits"), i, fit) {
		const json_t *profile = page_find(json_object_get(card, "profiles"), "name",
						  page_str(fit, "profile"));
		json_int_t size = page_int(profile, "size", 0);

		if (size > best_size) {
			best = fit;
			best_size = size;
		}
	}
	return best ? page_str(best, "profile") : NULL;
}

static void add_hole(struct buf *out, const struct bar *bar, const json_t *card,
		     const struct block *b)
{
	const char *fit = largest_fit(card, b->what);

	buf_printf(out, "<td colspan=\"%u\" class=\"h t%u%s\" title=\"free, units %u-%u; ", b->size,
		   share_class(bar, b->size), fit ? "" : " nofit", b->id, b->id + b->size - 1);
	buf_add_str(out, fit ? "largest that fits: " : "no placement in it");
	html_text(out, fit ? profile_name_short(fit) : "");
	buf_printf(out, "\"><b>%u<i> free</i></b> <span>", b->size);
	if (fit)
		buf_add_str(out, "up to ");
	html_text(out, fit ? page_profile_kind(fit) : "nothing fits");
	buf_add_str(out, "</span></td>");
}

static void add_other(struct buf *out, const struct bar *bar, unsigned id, unsigned size)
{
	if (size == 0)
		return;
	buf_printf(out, "<td colspan=\"%u\" class=\"o t%u\" title=\"", size,
		   share_class(bar, size));
	if (bar->loose)
		buf_printf(out, "%u GiB that no vGPU of a known size takes", size);
	else
		buf_printf(out, "units %u-%u: not known, or about to change", id, id + size - 1);
	buf_printf(out, "\"><b>%u</b> <span>%s</span></td>", size,
		   bar->loose ? "not taken" : "not known");
}

static void add_ruler(struct buf *out, unsigned region)
{
	unsigned step = 1;

	while (region / step > 8)
		step *= 2;
	buf_add_str(out, "<tr class=\"ruler\">");
	for (unsigned unit = 0; unit < region; unit += step)
		buf_printf(out, "<td colspan=\"%u\">%u</td>", MIN(step, region - unit), unit);
	buf_add_str(out, "</tr>");
}

static void add_label(struct buf *out, const struct bar *bar)
{
	unsigned vgpus = 0, taken = 0, holes = 0, free = 0;

	for (unsigned i = 0; i < bar->n; i++) {
		bool is_hole = bar->blocks[i].kind == BLOCK_HOLE;

		vgpus += !is_hole;
		holes += is_hole;
		*(is_hole ? &free : &taken) += bar->blocks[i].size;
	}
	buf_printf(out, "%u GiB of framebuffer: %u GiB in %u vGPU%s", bar->region, taken, vgpus,
		   vgpus == 1 ? "" : "s");
	if (bar->loose)
		buf_add_str(out, ", at places that are not known");
	if (holes > 0)
		buf_printf(out, ", %u GiB free in %u hole%s", free, holes, holes == 1 ? "" : "s");
}

void page_bar(const struct page *p, const json_t *card)
{
	json_int_t region = page_int(card, "region", 0);
	unsigned at = 0;
	struct bar bar;

	if (region < 1 || region > PLACEMENT_UNITS_MAX) {
		buf_add_str(p->out, "<p class=\"none\">The size of this card's framebuffer is not "
				    "known, so it is not drawn.</p>");
		return;
	}
	bar.region = (unsigned)region;
	bar.n = 0;
	bar.loose = false;
	collect(&bar, card);
	buf_printf(p->out, "<div class=\"bar%s\" role=\"img\" aria-label=\"",
		   bar.loose ? " loose" : "");
	add_label(p->out, &bar);
	buf_printf(p->out, "\"><table role=\"presentation\"><colgroup span=\"%u\"></colgroup><tr>",
		   bar.region);
	for (unsigned i = 0; i < bar.n; i++) {
		const struct block *b = &bar.blocks[i];

		/* One that overlaps what is drawn has no room; the table below has it all the same.
		 */
		if (b->id < at)
			continue;
		add_other(p->out, &bar, at, b->id - at);
		if (b->kind == BLOCK_HOLE)
			add_hole(p->out, &bar, card, b);
		else
			add_vgpu(p, &bar, card, b);
		at = b->id + b->size;
	}
	add_other(p->out, &bar, at, bar.region - at);
	buf_add_str(p->out, "</tr>");
	if (!bar.loose)
		add_ruler(p->out, bar.region);
	buf_add_str(p->out, "</table></div>");
	if (bar.loose)
		buf_add_str(p->out, "<p class=\"none\">Sizes only: at which places these vGPUs are "
				    "is not known.</p>");
}

void page_vf_strip(struct buf *out, const json_t *card)
{
	static const struct {
		const char *state, *look;
	} looks[] = {
		{ "free", "f" },     { "bound", "u" },	  { "external", "u" }, { "unclaimed", "u" },
		{ "unusable", "x" }, { "excluded", "x" }, { "blocked", "x" },  { "unknown", "x" },
	};
	const json_t *slots = json_object_get(card, "slots"), *vf;
	size_t i;

	buf_printf(
		out,
		"<span class=\"vfs\" role=\"img\" aria-label=\"VFs: %lld usable, %lld used, %lld "
		"claimable, %lld quarantined\">",
		(long long)page_int(slots, "total", 0), (long long)page_int(slots, "used", 0),
		(long long)page_int(slots, "allocatable", 0),
		(long long)page_int(slots, "quarantined", 0));
	json_array_foreach(json_object_get(card, "vfs"), i, vf) {
		const char *state = page_str(vf, "state"), *look = "m";

		for (size_t k = 0; k < ARRAY_SIZE(looks); k++)
			if (strcmp(state, looks[k].state) == 0)
				look = looks[k].look;
		if (page_flag(vf, "quarantined"))
			look = "q";
		buf_printf(out, "<i class=\"%s\" title=\"", look);
		html_text(out, page_str(vf, "address"));
		buf_add_char(out, ' ');
		html_text(out, state);
		buf_add_str(out, *look == 'q' ? ", quarantined\"></i>" : "\"></i>");
	}
	buf_add_str(out, "</span>");
}
