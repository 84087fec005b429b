/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>

#include "base/str.h"
#include "http/page-internal.h"

/* --- Pieces that all sections use ------------------------------------------------------------- */

const json_t *page_find(const json_t *list, const char *key, const char *value)
{
	const json_t *item;
	size_t i;

	json_array_foreach(list, i, item)
		if (strcmp(page_str(item, key), value) == 0)
			return item;
	return NULL;
}

const json_t *page_claim(const struct page *p, const char *name)
{
	return json_object_get(p->claims, name);
}

void page_id(struct buf *out, const char *kind, const char *name)
{
	buf_add_str(out, kind);
	buf_add_char(out, '-');
	/* Only what an id may be made of without being escaped anywhere. */
	for (; *name; name++)
		buf_add_char(out, strchr(":/ \"'<>&%#?", *name) || (unsigned char)*name < 0x20 ||
						  (unsigned char)*name > 0x7e
					  ? '-'
					  : *name);
}

static void add_link(struct buf *out, const char *kind, const char *name, bool is_there)
{
	if (is_there) {
		buf_add_str(out, "<a href=\"#");
		page_id(out, kind, name);
		buf_add_str(out, "\">");
	}
	html_outside(out, name);
	if (is_there)
		buf_add_str(out, "</a>");
}

void page_card_link(const struct page *p, const char *address)
{
	add_link(p->out, "card", address,
		 page_find(json_object_get(p->state, "gpus"), "address", address));
}

void page_claim_link(const struct page *p, const char *name)
{
	add_link(p->out, "claim", name, page_claim(p, name));
}

void page_time(struct buf *out, const char *rfc3339)
{
	char text[20];

	if (!str_is_rfc3339(rfc3339, strlen(rfc3339))) {
		html_outside(out, *rfc3339 ? rfc3339 : "not known");
		return;
	}
	str_copy_cut(text, sizeof text, rfc3339);
	text[10] = ' ';
	buf_add_str(out, "<time");
	html_attr(out, "datetime", rfc3339);
	buf_add_char(out, '>');
	html_text(out, text);
	buf_add_str(out, str_ends_with(rfc3339, "Z") ? " UTC</time>" : "</time>");
}

void page_button(struct buf *out, const char *label, const char *method, const char *path,
		 const char *ask)
{
	buf_add_str(out, "<button type=\"button\" class=\"act\"");
	html_attr(out, "data-method", method);
	html_attr(out, "data-path", path);
	html_attr(out, "data-ask", ask);
	buf_printf(out, ">%s</button>", label);
}

void page_section(struct buf *out, const char *id, const char *heading)
{
	buf_printf(out,
		   "<section id=\"%s\" aria-labelledby=\"%s-h\"><h2 id=\"%s-h\" "
		   "tabindex=\"-1\">%s</h2>",
		   id, id, id, heading);
}

void page_units(struct buf *out, json_int_t id, json_int_t size)
{
	if (id < 0)
		buf_add_str(out, "<td>not known</td>");
	else if (size > 1)
		buf_printf(out, "<td class=\"u\">%lld\u2013%lld</td>", (long long)id,
			   (long long)(id + size - 1));
	else
		buf_printf(out, "<td class=\"u\">%lld</td>", (long long)id);
}

void page_table(struct buf *out, const char *look, const char *caption, const char *const heads[],
		size_t n)
{
	buf_printf(out,
		   "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"%s\"><table "
		   "class=\"%s\"><caption>%s</caption><thead><tr>",
		   caption, look, caption);
	for (size_t i = 0; i < n; i++)
		buf_printf(out, "<th scope=\"col\">%s</th>", heads[i]);
	buf_add_str(out, "</tr></thead><tbody>");
}

void page_table_end(struct buf *out)
{
	buf_add_str(out, "</tbody></table></div>");
}

/* --- The host at a glance --------------------------------------------------------------------- */

static void add_framebuffer(struct buf *out, const json_t *gpus)
{
	json_int_t region = 0, taken = 0;
	const json_t *card, *placed;
	size_t i, k;

	json_array_foreach(gpus, i, card) {
		region += page_int(card, "region", 0);
		if (page_int(card, "region", 0) > 0)
			json_array_foreach(json_object_get(card, "placed"), k, placed)
				taken += page_int(placed, "size", 0);
	}
	if (region > 0)
		buf_printf(out,
			   "<div><dt>Framebuffer placed</dt><dd><b>%lld</b> of %lld GiB</dd></div>",
			   (long long)taken, (long long)region);
}

static void add_vf_counts(struct buf *out, const json_t *gpu)
{
	json_int_t quarantined = page_int(gpu, "quarantined_slots", 0);

	buf_printf(out,
		   "<div><dt>VFs used</dt><dd><b>%lld</b> of %lld</dd></div>"
		   "<div><dt>VFs claimable</dt><dd><b>%lld</b></dd></div>"
		   "<div%s><dt>VFs quarantined</dt><dd><b>%lld</b></dd></div>",
		   (long long)page_int(gpu, "used_slots", 0),
		   (long long)page_int(gpu, "total_slots", 0),
		   (long long)page_int(gpu, "allocatable_slots", 0),
		   quarantined > 0 ? " class=\"iswarn\"" : "", (long long)quarantined);
}

static void add_placements_age(const struct page *p)
{
	const json_t *fallback = json_object_get(p->state, "fallback");

	buf_printf(p->out, "<div%s><dt>Placements</dt><dd>",
		   json_is_object(fallback) ? " class=\"iswarn\"" : "");
	if (json_is_object(fallback)) {
		buf_add_str(p->out, "fallback: ");
		html_text(p->out, page_str(fallback, "reason"));
	} else {
		buf_add_str(p->out, "NVML, ");
		page_time(p->out, page_str(p->state, "placements_at"));
	}
	buf_add_str(p->out, "</dd></div>");
}

/* One host has one driver; the cards say what NVML told of it. */
static void add_driver(struct buf *out, const json_t *gpus)
{
	const char *version = "";
	const json_t *card;
	size_t i;

	json_array_foreach(gpus, i, card)
		if (*page_str(card, "driver_version"))
			version = page_str(card, "driver_version");
	buf_add_str(out, "<div><dt>Driver</dt><dd>");
	html_outside(out, *version ? version : "not known");
	buf_add_str(out, "</dd></div>");
}

static void add_summary(const struct page *p)
{
	const json_t *gpu = json_object_get(p->state, "gpu");
	const json_t *gpus = json_object_get(p->state, "gpus");
	const json_t *claims = json_object_get(p->state, "claims");
	const char *mode = page_str(gpu, "mode");

	buf_add_str(p->out, "<section id=\"summary\" aria-labelledby=\"summary-h\"><h2 "
			    "id=\"summary-h\" class=\"vh\">At a glance</h2>");
	if (!json_is_object(gpu)) {
		buf_add_str(p->out, "<p class=\"none\">Not known yet: ");
		html_outside(p->out, page_str(p->state, "not_ready"));
		buf_add_str(p->out, "</p></section>");
		return;
	}
	buf_printf(p->out, "<dl><div><dt>Cards</dt><dd><b>%zu</b>%s</dd></div>",
		   json_array_size(gpus),
		   strcmp(mode, "passthrough") == 0 ? " passed through whole" : "");
	if (json_is_array(claims))
		buf_printf(p->out, "<div><dt>Claims</dt><dd><b>%zu</b></dd></div>",
			   json_array_size(claims));
	else
		buf_add_str(p->out, "<div><dt>Claims</dt><dd>not known</dd></div>");
	if (strcmp(mode, "vgpu") == 0) {
		add_vf_counts(p->out, gpu);
		add_framebuffer(p->out, gpus);
		add_placements_age(p);
		add_driver(p->out, gpus);
	}
	buf_add_str(p->out, "</dl></section>");
}

static void add_profiles(const struct page *p)
{
	const json_t *gpu = json_object_get(p->state, "gpu");
	const json_t *profiles = json_object_get(gpu, "profiles");

	page_section(p->out, "profiles", "What fits now");
	if (json_array_size(profiles) == 0) {
		buf_printf(p->out, "<p class=\"none\">%s</p></section>",
			   json_is_object(gpu) ? "No profile is known on this host."
					       : "Not known yet.");
		return;
	}
	page_profile_table(p->out, "vGPUs of each profile that could be claimed, by size in GiB",
			   profiles);
	buf_add_str(p->out,
		    "<p class=\"none\">Each number holds for that profile alone: what one takes, "
		    "others lose. <code>berth fit</code> answers for several together. “3 of 8”: "
		    "3 VFs are left for 8 free placements.</p></section>");
}

/* --- The document ----------------------------------------------------------------------------- */

static void add_head(const struct page *p)
{
	buf_add_str(p->out,
		    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta "
		    "name=\"viewport\" content=\"width=device-width, initial-scale=1\"><meta "
		    "name=\"color-scheme\" content=\"light dark\"><meta name=\"berth-page\"");
	html_attr(p->out, "content", page_str(p->state, "page"));
	buf_add_str(p->out, "><title>");
	html_text(p->out, page_str(p->state, "host"));
	buf_add_str(p->out, " - berth</title><link rel=\"icon\" href=\"/icon.svg\" "
			    "type=\"image/svg+xml\"><link rel=\"stylesheet\" href=\"/page.css\">"
			    "<script src=\"/page.js\" defer></script></head>\n");
}

static void add_top(const struct page *p)
{
	buf_add_str(
		p->out,
		"<body><a class=\"skip\" href=\"#cards-h\">Skip to the cards</a><header><h1>berth "
		"<span>");
	html_outside(p->out, page_str(p->state, "host"));
	buf_add_str(
		p->out,
		"</span></h1><nav aria-label=\"On this page\"><a href=\"#cards\">Cards</a> <a "
		"href=\"#profiles\">Profiles</a> <a href=\"#claims\">Claims</a> <a "
		"href=\"#health\">Health</a></nav><p id=\"live\" role=\"status\"><noscript>As of "
		"loading: reload for newer figures.</noscript></p></header>\n");
}

static void add_bottom(const struct page *p)
{
	buf_add_str(p->out, "<footer><p>berthd ");
	html_text(p->out, page_str(p->state, "version"));
	buf_add_str(p->out,
		    ". The same as JSON: <a href=\"/gpus\">/gpus</a>, <a "
		    "href=\"/claims\">/claims</a>, <a href=\"/resources\">/resources</a>; <a "
		    "href=\"/metrics\">metrics</a>, <a href=\"/openapi.json\">all paths</a>.");
	if (!p->viewer->may_change)
		buf_add_str(p->out, " This way of reaching berthd is for reading only.");
	buf_add_str(
		p->out,
		"</p></footer>\n<dialog id=\"ask\" aria-labelledby=\"ask-what\" "
		"aria-describedby=\"ask-text\"><h2 id=\"ask-what\"></h2><p id=\"ask-text\"></p><p "
		"id=\"ask-error\" role=\"alert\"></p><p class=\"row\"><button type=\"button\" "
		"id=\"ask-no\">Cancel</button> <button type=\"button\" "
		"id=\"ask-yes\"></button></p></dialog><p id=\"say\" class=\"vh\" "
		"aria-live=\"polite\"></p></body></html>\n");
}

static json_t *index_claims(const json_t *state)
{
	json_t *index = json_object(), *claim;
	size_t i;

	json_array_foreach(json_object_get(state, "claims"), i, claim)
		(void)json_object_set(index, page_str(claim, "name"), claim);
	return index;
}

int page_render(const json_t *state, const struct page_viewer *viewer, struct buf *out)
{
	struct page p = { .out = out, .state = state, .viewer = viewer };

	p.claims = index_claims(state);
	if (!p.claims)
		return -ENOMEM;
	add_head(&p);
	add_top(&p);
	buf_add_str(out, "<main id=\"main\">");
	add_summary(&p);
	page_attention(&p);
	page_cards(&p);
	add_profiles(&p);
	page_claims(&p);
	page_health(&p);
	buf_add_str(out, "</main>\n");
	add_bottom(&p);
	json_decref(p.claims);
	return buf_finish(out);
}
