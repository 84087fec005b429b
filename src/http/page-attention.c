/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/str.h"
#include "http/page-internal.h"

enum grade {
	GRADE_ERROR,
	GRADE_WARNING,
	GRADE_NOTE,
};

/* One pass for each grade, so that the worst stands on top. */
struct list {
	const struct page *page;
	enum grade grade;
	unsigned n;
};

/* Opens a row, up to its text; false where it is not its grade's turn. `card` "": the host. */
static bool row_open(struct list *l, enum grade grade, const char *card, const char *what)
{
	static const char *const names[] = { "error", "warning", "note" };
	static const char *const looks[] = { "bad", "warn", "note" };
	struct buf *out = l->page->out;

	if (grade != l->grade)
		return false;
	l->n++;
	buf_printf(out, "<tr class=\"%s\"><td><b class=\"tag %s\">%s</b></td><td class=\"a\">",
		   looks[grade], looks[grade], names[grade]);
	if (*card)
		page_card_link(l->page, card);
	else
		buf_add_str(out, "host");
	buf_add_str(out, "</td><td class=\"w\">");
	buf_add_str(out, what);
	return true;
}

static void row_end(struct list *l)
{
	buf_add_str(l->page->out, "</td></tr>");
}

/* A row whose text ends in one from outside. */
static void row(struct list *l, enum grade grade, const char *card, const char *what,
		const char *outside)
{
	if (!row_open(l, grade, card, what))
		return;
	if (*outside)
		html_outside(l->page->out, outside);
	row_end(l);
}

static void host_rows(struct list *l)
{
	const json_t *state = l->page->state, *fallback = json_object_get(state, "fallback");
	const char *framework = page_str(json_object_get(state, "gpu"), "framework");
	const char *not_ready = page_str(state, "not_ready");
	const char *claims = page_str(state, "claims_store"),
		   *health = page_str(state, "health_store");

	if (*claims)
		row(l, GRADE_ERROR, "",
		    "The claims database cannot be used, so nothing is placed, released or reset: ",
		    claims);
	if (*health)
		row(l, GRADE_ERROR, "",
		    "The health records cannot be used, so nothing is placed: ", health);
	if (*not_ready && !*claims && !*health)
		row(l, GRADE_WARNING, "", "berthd is not ready: ", not_ready);
	if (json_is_object(fallback) && row_open(l, GRADE_WARNING, "", "Fallback (")) {
		struct buf *out = l->page->out;

		html_text(out, page_str(fallback, "reason"));
		buf_add_str(out, "): NVML gives no placements, so the VFs' own lists count: ");
		html_outside(out, page_str(fallback, "detail"));
		row_end(l);
	}
	if (strcmp(framework, "mdev") == 0)
		row(l, GRADE_NOTE, "",
		    "This host's driver offers vGPUs through mdev. They are shown; claims are for "
		    "vendor VFIO only.",
		    "");
}

/* The host's own fallback, which every card has then, is told once. */
static void fallback_row(struct list *l, const json_t *card)
{
	const char *of_host = page_str(json_object_get(l->page->state, "fallback"), "reason");
	const char *reason = page_str(card, "fallback"),
		   *detail = page_str(card, "fallback_detail");
	const char *address = page_str(card, "address");
	struct buf *out = l->page->out;

	if (!*reason || strcmp(reason, of_host) == 0)
		return;
	if (!row_open(l, GRADE_WARNING, address, "Fallback ("))
		return;
	html_text(out, reason);
	buf_add_str(out, "): the VFs' own lists count: ");
	html_outside(out, detail);
	row_end(l);
}

static void recovery_row(struct list *l, const json_t *card)
{
	const json_t *recovery = json_object_get(card, "recovery");
	const char *state = page_str(recovery, "state"), *detail = page_str(recovery, "detail");
	bool running = strcmp(state, "running") == 0;
	struct buf *out = l->page->out;

	if (!*state || strcmp(state, "done") == 0)
		return;
	if (!row_open(l, running ? GRADE_NOTE : GRADE_ERROR, page_str(card, "address"),
		      "Recovery "))
		return;
	html_text(out, state);
	buf_add_str(out, " at step ");
	html_text(out, page_str(recovery, "step"));
	if (*detail) {
		buf_add_str(out, ": ");
		html_outside(out, detail);
	}
	row_end(l);
}

static void vf_rows(struct list *l, const json_t *card)
{
	const char *address = page_str(card, "address"), *reason = "";
	unsigned quarantined = 0, unusable = 0, open = 0;
	const json_t *vf;
	char text[160];
	size_t i;

	json_array_foreach(json_object_get(card, "vfs"), i, vf) {
		quarantined += page_flag(vf, "quarantined");
		open += page_flag(vf, "unclaimed_open");
		if (strcmp(page_str(vf, "state"), "unusable") != 0)
			continue;
		if (unusable++ == 0)
			reason = page_str(vf, "reason");
	}
	snprintf(text, sizeof text,
		 "%u VF%s quarantined, and not offered until a person clears that: ", quarantined,
		 quarantined == 1 ? " is" : "s are");
	if (quarantined > 0 && row_open(l, GRADE_WARNING, address, text)) {
		buf_add_str(l->page->out, "<a href=\"#health\">health of VFs</a>");
		row_end(l);
	}
	snprintf(text, sizeof text, "%u VF%s not usable. The first: ", unusable,
		 unusable == 1 ? " is" : "s are");
	if (unusable > 0)
		row(l, GRADE_WARNING, address, text, reason);
	snprintf(text, sizeof text,
		 "%u configured VF%s nobody's and open in some process, so left alone.", open,
		 open == 1 ? " is" : "s are");
	if (open > 0)
		row(l, GRADE_WARNING, address, text, "");
}

static void card_rows(struct list *l, const json_t *card)
{
	const char *address = page_str(card, "address");

	if (page_flag(card, "stuck"))
		row(l, GRADE_ERROR, address,
		    "Stuck: a call into the driver does not return. Shown is what was known last; "
		    "nothing of it is offered: ",
		    page_str(card, "stuck_reason"));
	recovery_row(l, card);
	fallback_row(l, card);
	vf_rows(l, card);
	if (page_flag(card, "drift"))
		row(l, GRADE_WARNING, address,
		    "NVML and the VFs disagree about which placements are taken. NVML counts.", "");
	if (page_flag(card, "cordoned"))
		row(l, GRADE_NOTE, address, "Cordoned: it takes no new claims.", "");
	if (page_flag(card, "excluded"))
		row(l, GRADE_NOTE, address, "Excluded by the configuration: shown, never written.",
		    "");
}

static void claim_row(struct list *l, const json_t *claim)
{
	static const struct {
		const char *problem, *text;
	} texts[] = {
		{ "vf_missing", "its VF is gone" },
		{ "type_lost", "its VF has lost its type" },
		{ "type_changed", "its VF has another type by now" },
		{ "card_stuck", "its card is stuck" },
	};
	const char *problem = page_str(claim, "problem"), *text = problem;

	if (!*problem)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (strcmp(problem, texts[i].problem) == 0)
			text = texts[i].text;
	if (!row_open(l, GRADE_ERROR, page_str(claim, "gpu"), "Claim "))
		return;
	page_claim_link(l->page, page_str(claim, "name"));
	buf_add_str(l->page->out, ": ");
	html_text(l->page->out, text);
	row_end(l);
}

static void all_rows(struct list *l)
{
	const json_t *item;
	size_t i;

	host_rows(l);
	json_array_foreach(json_object_get(l->page->state, "gpus"), i, item)
		card_rows(l, item);
	json_array_foreach(json_object_get(l->page->state, "claims"), i, item)
		claim_row(l, item);
}

void page_attention(const struct page *p)
{
	static const char *const heads[] = { "Grade", "Where", "What" };
	_buf_ struct buf rows = BUF_INIT;
	struct page inner = *p;
	struct list l = { .page = &inner };

	inner.out = &rows;
	for (l.grade = GRADE_ERROR; l.grade <= GRADE_NOTE; l.grade++)
		all_rows(&l);
	page_section(p->out, "attention", "Needs attention");
	if (l.n == 0) {
		buf_add_str(p->out, "<p class=\"none good\">Nothing.</p>");
	} else {
		page_table(p->out, "faults", "Faults, fallbacks and cordons, the worst first",
			   heads, ARRAY_SIZE(heads));
		buf_add(p->out, rows.data, rows.len);
		page_table_end(p->out);
	}
	p->out->failed |= rows.failed;
	buf_add_str(p->out, "</section>");
}
