/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "http/page-internal.h"
#include "model/claim.h"
#include "model/profile.h"

/* --- Claims ----------------------------------------------------------------------------------- */

static bool is_own(const struct page *p, const json_t *claim)
{
	json_int_t uid = page_int(claim, "uid", CLAIM_UID_NONE);

	return claimant_owns(&p->viewer->who, (uint32_t)uid, page_str(claim, "peer"));
}

static void add_release_button(const struct page *p, const json_t *claim)
{
	const char *name = page_str(claim, "name");
	char path[CLAIM_NAME_MAX + 16], ask[512];

	if (!p->viewer->may_change || !(p->viewer->owns_all || is_own(p, claim)))
		return;
	snprintf(path, sizeof path, "/claims/%.128s", name);
	snprintf(ask, sizeof ask,
		 "Release claim %.128s? Its vGPU %.64s on VF %.32s is taken off the card and the "
		 "VF is "
		 "free for others. While a process has the VF open, berthd refuses.",
		 name, profile_name_short(page_str(claim, "profile")), page_str(claim, "vf"));
	page_button(p->out, "Release", "DELETE", path, ask);
}

static void add_claim_state(struct buf *out, const json_t *claim)
{
	const char *state = page_str(claim, "state"), *problem = page_str(claim, "problem");

	buf_add_str(out, "<td>");
	html_text(out, state);
	if (strcmp(state, "external") == 0)
		buf_add_str(out, " <small>(found at the first start)</small>");
	if (*problem) {
		buf_add_str(out, " <b class=\"tag bad\">");
		html_text(out, problem);
		buf_add_str(out, "</b>");
	}
	buf_add_str(out, "</td>");
}

static void add_claim(const struct page *p, const json_t *claim)
{
	const json_t *placement = json_object_get(claim, "placement");

	buf_add_str(p->out, "<tr");
	page_id(p->out, " id=\"claim", page_str(claim, "name"));
	buf_add_str(p->out, "\" tabindex=\"-1\"><th scope=\"row\">");
	html_outside(p->out, page_str(claim, "name"));
	buf_add_str(p->out, "</th><td>");
	html_outside(p->out, profile_name_short(page_str(claim, "profile")));
	buf_add_str(p->out, "</td><td class=\"a\">");
	page_card_link(p, page_str(claim, "gpu"));
	buf_add_str(p->out, "</td><td class=\"a\">");
	html_text(p->out, page_str(claim, "vf"));
	buf_add_str(p->out, "</td>");
	page_units(p->out, page_int(placement, "id", -1), page_int(placement, "size", 0));
	add_claim_state(p->out, claim);
	buf_add_str(p->out, "<td>");
	page_time(p->out, page_str(claim, "assigned_at"));
	buf_add_str(p->out, "</td><td class=\"w\">");
	html_outside(p->out, page_str(claim, "owner"));
	buf_add_str(p->out, "</td>");
	if (p->viewer->may_change) {
		buf_add_str(p->out, "<td class=\"act\">");
		add_release_button(p, claim);
		buf_add_str(p->out, "</td>");
	}
	buf_add_str(p->out, "</tr>");
}

void page_claims(const struct page *p)
{
	static const char *const heads[] = { "Name",  "Profile", "Card",  "VF",	   "Units",
					     "State", "Since",	 "Owner", "Action" };
	const json_t *claims = json_object_get(p->state, "claims"), *claim;
	size_t i;

	page_section(p->out, "claims", "Claims");
	if (!json_is_array(claims)) {
		buf_add_str(p->out,
			    "<p class=\"none\">Not known: the claims database cannot be read "
			    "at present.</p>");
	} else if (json_array_size(claims) == 0) {
		buf_add_str(p->out, "<p class=\"none\">None.</p>");
	} else {
		page_table(p->out, "claims", "Who has which vGPU", heads,
			   ARRAY_SIZE(heads) - !p->viewer->may_change);
		json_array_foreach(claims, i, claim)
			add_claim(p, claim);
		page_table_end(p->out);
	}
	buf_add_str(p->out, "</section>");
}

/* --- Health of VFs ---------------------------------------------------------------------------- */

static bool has_record(const json_t *vf)
{
	return page_flag(vf, "quarantined") || *page_str(vf, "quarantined_at") ||
	       json_array_size(json_object_get(vf, "failures")) > 0;
}

static void add_failures(struct buf *out, const json_t *vf)
{
	const json_t *failures = json_object_get(vf, "failures"), *failure;
	size_t i;

	buf_add_str(out, "<td>");
	if (json_array_size(failures) == 0)
		buf_add_str(out, "none: by hand");
	json_array_foreach(failures, i, failure) {
		const char *claim = page_str(failure, "claim");

		buf_add_str(out, i ? ", " : "");
		html_outside(out, *claim ? claim : "a claim without a name");
		buf_add_char(out, ' ');
		page_time(out, page_str(failure, "reported_at"));
	}
	buf_add_str(out, "</td>");
}

static void add_record(const struct page *p, const json_t *vf)
{
	const char *address = page_str(vf, "address"), *since = page_str(vf, "quarantined_at");
	const char *claim = page_str(vf, "claim"), *state = page_str(vf, "state");
	char path[64], ask[256];

	buf_add_str(p->out, "<tr><th scope=\"row\" class=\"a\">");
	html_text(p->out, address);
	buf_add_str(p->out, "</th><td>");
	if (page_flag(vf, "quarantined") || *since) {
		buf_add_str(p->out, "<b class=\"tag bad\">quarantined</b> ");
		page_time(p->out, since);
	} else {
		buf_add_str(p->out, "failures below the threshold");
	}
	buf_add_str(p->out, "</td>");
	add_failures(p->out, vf);
	buf_add_str(p->out, "<td>");
	html_text(p->out, *state ? state : "not there at present");
	buf_add_str(p->out, "</td><td>");
	if (*claim)
		page_claim_link(p, claim);
	buf_add_str(p->out, "</td>");
	if (p->viewer->may_clear) {
		snprintf(path, sizeof path, "/vfs/%.32s/quarantine", address);
		snprintf(ask, sizeof ask,
			 "Clear the record of VF %.32s? It is offered again. Only an SR-IOV cycle "
			 "of the "
			 "card heals a wedged VF; clearing alone does not.",
			 address);
		buf_add_str(p->out, "<td class=\"act\">");
		page_button(p->out, "Clear", "DELETE", path, ask);
		buf_add_str(p->out, "</td>");
	}
	buf_add_str(p->out, "</tr>");
}

/* f(): once to count, once to show. */
static size_t each_record(const struct page *p, void (*f)(const struct page *p, const json_t *vf))
{
	const json_t *card, *vf;
	size_t i, k, n = 0;

	json_array_foreach(json_object_get(p->state, "gpus"), i, card)
		json_array_foreach(json_object_get(card, "vfs"), k, vf) {
			if (!has_record(vf))
				continue;
			n++;
			if (f)
				f(p, vf);
		}
	json_array_foreach(json_object_get(p->state, "records"), i, vf) {
		n++;
		if (f)
			f(p, vf);
	}
	return n;
}

void page_health(const struct page *p)
{
	static const char *const heads[] = { "VF",	 "Health",    "Failures",
					     "VF state", "In use by", "Action" };

	page_section(p->out, "health", "Health of VFs");
	if (*page_str(p->state, "health_store")) {
		buf_add_str(p->out,
			    "<p class=\"none\">Not known: the health records cannot be read "
			    "at present.</p>");
	} else if (each_record(p, NULL) == 0) {
		buf_add_str(p->out, "<p class=\"none\">No failures, and no VF is quarantined.</p>");
	} else {
		page_table(p->out, "records", "VFs with a failure on record, or quarantined", heads,
			   ARRAY_SIZE(heads) - !p->viewer->may_clear);
		each_record(p, add_record);
		page_table_end(p->out);
	}
	buf_add_str(p->out, "</section>");
}
