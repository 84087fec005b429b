/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "http/page-internal.h"
#include "model/placement.h"
#include "model/profile.h"

/* Cards of a small host show their tables; of a large one they are opened one by one. Above the
 * second number they stand side by side where there is room. */
#define OPEN_CARDS_MAX 2
#define WIDE_CARDS_MAX 4

static void add_tag(struct buf *out, const char *look, const char *before, const char *text)
{
	buf_printf(out, "<li class=\"tag %s\">%s", look, before);
	html_text(out, text);
	buf_add_str(out, "</li>");
}

static void add_state_tags(struct buf *out, const json_t *card)
{
	const json_t *recovery = json_object_get(card, "recovery");
	const char *recovering = page_str(recovery, "state");

	if (page_flag(card, "stuck"))
		add_tag(out, "bad", "stuck in the driver", "");
	if (*recovering && strcmp(recovering, "done") != 0)
		add_tag(out, strcmp(recovering, "running") == 0 ? "note" : "bad", "recovery ",
			recovering);
	if (page_flag(card, "cordoned"))
		add_tag(out, "warn", "cordoned", "");
	if (page_flag(card, "excluded"))
		add_tag(out, "warn", "excluded", "");
	if (*page_str(card, "fallback"))
		add_tag(out, "warn", "fallback: ", page_str(card, "fallback"));
	if (page_flag(card, "drift"))
		add_tag(out, "warn", "NVML and VFs disagree", "");
}

static void add_tags(struct buf *out, const json_t *card)
{
	static const struct {
		const char *mode, *text;
	} modes[] = {
		{ "mixed", "mixed sizes" },
		{ "equal", "one size only" },
		{ "mig", "MIG" },
		{ "unknown", "mode not known" },
	};
	const char *mode = page_str(card, "mode");

	buf_add_str(out, "<ul class=\"tags\">");
	add_state_tags(out, card);
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
		if (strcmp(mode, modes[i].mode) == 0)
			add_tag(out, "plain", modes[i].text, "");
	if (page_int(card, "numa_node", -1) >= 0)
		buf_printf(out, "<li class=\"tag plain\">NUMA %lld</li>",
			   (long long)page_int(card, "numa_node", 0));
	buf_add_str(out, "</ul>");
}

static void add_slots(struct buf *out, const json_t *card)
{
	const json_t *slots = json_object_get(card, "slots");
	json_int_t quarantined = page_int(slots, "quarantined", 0);

	buf_printf(out,
		   " <span class=\"slots\"><b>%lld</b> of %lld VFs used, <b>%lld</b> claimable",
		   (long long)page_int(slots, "used", 0), (long long)page_int(slots, "total", 0),
		   (long long)page_int(slots, "allocatable", 0));
	if (quarantined > 0)
		buf_printf(out, ", <b class=\"q\">%lld quarantined</b>", (long long)quarantined);
	buf_add_str(out, "</span>");
}

/* --- What is on the card, in the order of its framebuffer ------------------------------------ */

struct row {
	json_int_t id; /* -1: not known */
	const json_t *vgpu, *hole;
};

static int compare_rows(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	/* Those without a place go last. */
	if ((x->id < 0) != (y->id < 0))
		return x->id < 0 ? 1 : -1;
	return (x->id > y->id) - (x->id < y->id);
}

static void add_vgpu_row(const struct page *p, const json_t *card, const json_t *placed)
{
	const char *claim_name = page_str(placed, "claim"), *address = page_str(placed, "vf");
	const json_t *claim = page_claim(p, claim_name);
	const json_t *vf = page_find(json_object_get(card, "vfs"), "address", address);

	buf_add_str(p->out, "<tr>");
	page_units(p->out, page_int(placed, "id", -1), page_int(placed, "size", 0));
	buf_add_str(p->out, "<td>");
	html_outside(p->out, profile_name_short(page_str(placed, "profile")));
	buf_add_str(p->out, "</td><td>");
	if (*claim_name)
		page_claim_link(p, claim_name);
	else
		buf_add_str(p->out, "no claim");
	buf_add_str(p->out, "</td><td class=\"a\">");
	html_text(p->out, address);
	buf_add_str(p->out, "</td><td>");
	html_text(p->out, page_str(vf, "state"));
	if (page_flag(vf, "quarantined"))
		buf_add_str(p->out, ", quarantined");
	if (*page_str(claim, "problem")) {
		buf_add_str(p->out, ", ");
		html_text(p->out, page_str(claim, "problem"));
	}
	buf_add_str(p->out, "</td><td>");
	if (*claim_name)
		page_time(p->out, page_str(claim, "assigned_at"));
	buf_add_str(p->out, "</td></tr>");
}

static json_int_t fit_size(const json_t *card, const json_t *fit)
{
	return page_int(
		page_find(json_object_get(card, "profiles"), "name", page_str(fit, "profile")),
		"size", 0);
}

/* "1 x 16Q 16A 16C, 2 x 8Q 8A 8C": profiles of a size share their placements. */
static void add_fits(struct buf *out, const json_t *card, const json_t *hole)
{
	const json_t *fits = json_object_get(hole, "fits"), *fit;
	json_int_t below = PLACEMENT_UNITS_MAX + 1;
	bool any = false;
	size_t i;

	for (;;) {
		json_int_t size = 0, count = 0;

		json_array_foreach(fits, i, fit) {
			json_int_t s = fit_size(card, fit);

			if (s < below && s > size) {
				size = s;
				count = page_int(fit, "placements", 0);
			}
		}
		if (size == 0)
			break;
		buf_printf(out, "%s<span class=\"fit\">%lld\u00d7", any ? " " : "",
			   (long long)count);
		json_array_foreach(fits, i, fit)
			if (fit_size(card, fit) == size) {
				buf_add_char(out, ' ');
				html_text(out, page_profile_kind(page_str(fit, "profile")));
			}
		buf_add_str(out, "</span>");
		below = size;
		any = true;
	}
	if (!any)
		buf_add_str(out, "nothing: NVML offers no placement here");
}

static void add_hole_row(struct buf *out, const json_t *card, const json_t *hole)
{
	json_int_t size = page_int(hole, "size", 0);

	buf_add_str(out, "<tr class=\"hole\">");
	page_units(out, page_int(hole, "id", 0), size);
	buf_printf(out, "<td>free, %lld GiB</td><td colspan=\"4\">", (long long)size);
	add_fits(out, card, hole);
	buf_add_str(out, "</td></tr>");
}

static void add_layout(const struct page *p, const json_t *card)
{
	static const char *const heads[] = { "Units", "What",  "Claim, or what fits (each alone)",
					     "VF",    "State", "Since" };
	const json_t *placed = json_object_get(card, "placed");
	const json_t *holes = json_object_get(card, "holes"), *item;
	struct row *rows = calloc(json_array_size(placed) + json_array_size(holes) + 1,
				  sizeof *rows);
	size_t i, n = 0;

	if (!rows) {
		p->out->failed = true;
		return;
	}
	json_array_foreach(placed, i, item)
		rows[n++] = (struct row){ page_int(item, "id", -1), item, NULL };
	json_array_foreach(holes, i, item)
		rows[n++] = (struct row){ page_int(item, "id", 0), NULL, item };
	qsort(rows, n, sizeof *rows, compare_rows);
	if (n > 0) {
		page_table(p->out, "layout",
			   "vGPUs and free units, in the order of the framebuffer", heads,
			   ARRAY_SIZE(heads));
		for (i = 0; i < n; i++) {
			if (rows[i].vgpu)
				add_vgpu_row(p, card, rows[i].vgpu);
			else
				add_hole_row(p->out, card, rows[i].hole);
		}
		page_table_end(p->out);
	}
	free(rows);
	if (json_is_null(holes))
		buf_add_str(p->out, "<p class=\"none\">Which units are free is not known: NVML "
				    "gives no placements of this card, or a vGPU has no place "
				    "yet.</p>");
}

/* --- VFs that are neither free nor at work ---------------------------------------------------- */

static bool is_ordinary(const json_t *vf)
{
	const char *state = page_str(vf, "state");

	return !page_flag(vf, "quarantined") && !page_flag(vf, "unclaimed_open") &&
	       (strcmp(state, "free") == 0 || strcmp(state, "bound") == 0 ||
		strcmp(state, "external") == 0);
}

static void add_odd_vfs(struct buf *out, const json_t *card)
{
	static const char *const heads[] = { "VF", "State", "Reason" };
	const json_t *vfs = json_object_get(card, "vfs"), *vf;
	bool any = false;
	size_t i;

	json_array_foreach(vfs, i, vf)
		any |= !is_ordinary(vf);
	if (!any)
		return;
	page_table(out, "odd", "VFs that are neither free nor simply in use", heads,
		   ARRAY_SIZE(heads));
	json_array_foreach(vfs, i, vf) {
		if (is_ordinary(vf))
			continue;
		buf_add_str(out, "<tr><td class=\"a\">");
		html_text(out, page_str(vf, "address"));
		buf_add_str(out, "</td><td>");
		html_text(out, page_str(vf, "state"));
		if (page_flag(vf, "quarantined"))
			buf_add_str(out, ", quarantined");
		buf_add_str(out, "</td><td>");
		if (page_flag(vf, "unclaimed_open"))
			buf_add_str(out, "a process has it open, so it is left alone ");
		html_outside(out, page_str(vf, "reason"));
		buf_add_str(out, "</td></tr>");
	}
	page_table_end(out);
}

/* --- The card --------------------------------------------------------------------------------- */

static void add_cordon_button(const struct page *p, const json_t *card)
{
	const char *address = page_str(card, "address");
	bool cordoned = page_flag(card, "cordoned");
	char path[64], ask[256];

	if (!p->viewer->may_change)
		return;
	snprintf(path, sizeof path, "/gpus/%.32s/cordon", address);
	snprintf(
		ask, sizeof ask,
		cordoned
			? "Uncordon card %.32s? It takes new claims again."
			: "Cordon card %.32s? It takes no new claims until it is uncordoned. vGPUs "
			  "that are on it stay and go on.",
		address);
	page_button(p->out, cordoned ? "Uncordon" : "Cordon", cordoned ? "DELETE" : "PUT", path,
		    ask);
}

/* No VFs: what else the card is used for. */
static void add_whole_card(struct buf *out, const json_t *card)
{
	const char *driver = page_str(card, "driver");

	buf_add_str(out, "<p class=\"none\">No VFs. ");
	if (strcmp(driver, "vfio-pci") == 0) {
		buf_add_str(out, "It is bound to vfio-pci: it goes to one VM as a whole.");
	} else if (*driver) {
		buf_add_str(out, "It is bound to the driver ");
		html_outside(out, driver);
		buf_add_str(out, strcmp(driver, "nvidia") == 0
					 ? "; VFs appear when SR-IOV is turned on."
					 : ".");
	} else {
		buf_add_str(out, "It is bound to no driver.");
	}
	buf_add_str(out, "</p>");
}

static void add_card_details(const struct page *p, const json_t *card, bool open)
{
	buf_add_str(p->out, "<details");
	page_id(p->out, " id=\"more", page_str(card, "address"));
	buf_printf(p->out, "\"%s><summary>", open ? " open" : "");
	page_vf_strip(p->out, card);
	add_slots(p->out, card);
	buf_add_str(p->out, " <span class=\"vh\">vGPUs, free units and profiles of ");
	html_text(p->out, page_str(card, "address"));
	buf_add_str(p->out, "</span></summary>");
	add_layout(p, card);
	add_odd_vfs(p->out, card);
	page_profile_table(p->out, "vGPUs of each profile that could be claimed on this card",
			   json_object_get(card, "profiles"));
	buf_add_str(p->out, "</details>");
}

static void add_card(const struct page *p, const json_t *card, bool open)
{
	const char *address = page_str(card, "address");
	bool bad = page_flag(card, "stuck");
	bool warn = *page_str(card, "fallback") || page_flag(card, "cordoned") ||
		    page_int(json_object_get(card, "slots"), "quarantined", 0) > 0;

	buf_add_str(p->out, "<article");
	page_id(p->out, " id=\"card", address);
	buf_printf(p->out, "\" class=\"card%s\"", bad ? " isbad" : warn ? " iswarn" : "");
	page_id(p->out, " aria-labelledby=\"name", address);
	buf_add_str(p->out, "\"><div class=\"top\"><h3");
	page_id(p->out, " id=\"name", address);
	buf_add_str(p->out, "\"><span class=\"a\">");
	html_text(p->out, address);
	buf_add_str(p->out, "</span> ");
	html_outside(p->out, page_str(card, "name"));
	buf_add_str(p->out, "</h3>");
	add_tags(p->out, card);
	if (json_array_size(json_object_get(card, "vfs")) > 0)
		add_cordon_button(p, card);
	buf_add_str(p->out, "</div>");
	if (json_array_size(json_object_get(card, "vfs")) == 0) {
		add_whole_card(p->out, card);
	} else {
		page_bar(p, card);
		add_card_details(p, card, open);
	}
	buf_add_str(p->out, "</article>");
}

static void add_legend(struct buf *out)
{
	static const struct {
		const char *look, *text;
	} items[] = {
		{ "g bound", "vGPU of a claim" },
		{ "g external", "external claim" },
		{ "g moving", "on its way in or out" },
		{ "g foreign", "nobody's" },
		{ "g bad", "needs attention" },
		{ "h", "free" },
		{ "o", "not known" },
		{ "v f", "VF free" },
		{ "v u", "used" },
		{ "v m", "on its way" },
		{ "v q", "quarantined" },
		{ "v x", "not usable" },
	};

	buf_add_str(out, "<p class=\"legend\">");
	for (size_t i = 0; i < ARRAY_SIZE(items); i++)
		buf_printf(out, "<span><i class=\"%s\"></i>%s</span> ", items[i].look,
			   items[i].text);
	buf_add_str(out, "</p>");
}

void page_cards(const struct page *p)
{
	const json_t *gpus = json_object_get(p->state, "gpus"), *card;
	size_t i;

	page_section(p->out, "cards", "Cards");
	if (!json_is_array(gpus)) {
		buf_add_str(p->out, "<p class=\"none\">Not known yet.</p>");
	} else if (json_array_size(gpus) == 0) {
		buf_add_str(p->out, "<p class=\"none\">No NVIDIA GPU was found on this host.</p>");
	} else {
		if (strcmp(page_str(json_object_get(p->state, "gpu"), "mode"), "vgpu") == 0)
			add_legend(p->out);
		buf_printf(p->out, "<div class=\"cards%s\">",
			   json_array_size(gpus) > WIDE_CARDS_MAX ? " many" : "");
		json_array_foreach(gpus, i, card)
			add_card(p, card, json_array_size(gpus) <= OPEN_CARDS_MAX);
		buf_add_str(p->out, "</div>");
	}
	buf_add_str(p->out, "</section>");
}
