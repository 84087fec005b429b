/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the page-*.c files: reading the state, and the small pieces that all sections use.
 */
#pragma once

#include <string.h>

#include "http/html.h"
#include "http/page.h"

struct page {
	struct buf *out;
	const json_t *state;
	const struct page_viewer *viewer;
	json_t *claims; /* by name, as there may be hundreds */
};

/* "" for null, absent or no text. */
static inline const char *page_str(const json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key)) ?: "";
}

/* `otherwise` for null, absent or no number. */
static inline json_int_t page_int(const json_t *o, const char *key, json_int_t otherwise)
{
	const json_t *value = json_object_get(o, key);

	return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

static inline bool page_flag(const json_t *o, const char *key)
{
	return json_is_true(json_object_get(o, key));
}

/* The member with this text under this key, or NULL. */
const json_t *page_find(const json_t *list, const char *key, const char *value);

/* The claim of that name, or NULL. */
const json_t *page_claim(const struct page *p, const char *name);

/* "card-0000-41-00.0": for ids and links. */
void page_id(struct buf *out, const char *kind, const char *name);
/* <a href="#card-...">0000:41:00.0</a>; text only where there is no such card. */
void page_card_link(const struct page *p, const char *address);
void page_claim_link(const struct page *p, const char *name);
/* <time>, in UTC; the script makes it an age. "not known" for "". */
void page_time(struct buf *out, const char *rfc3339);
/* A button that asks before it sends METHOD PATH. `ask`: a question up to its "?", and what
 * will happen; may hold texts from outside. */
void page_button(struct buf *out, const char *label, const char *method, const char *path,
		 const char *ask);
/* Opens a section with a heading that can take the focus. */
void page_section(struct buf *out, const char *id, const char *heading);
/* "<td>4-7</td>"; id below 0: not known. */
void page_units(struct buf *out, json_int_t id, json_int_t size);
/* Opens a table that scrolls by itself where the window is narrow; ends with the open <tbody>.
 * look: a class for the style sheet. */
void page_table(struct buf *out, const char *look, const char *caption, const char *const heads[],
		size_t n);
void page_table_end(struct buf *out);

/* page-attention.c */
void page_attention(const struct page *p);
/* page-card.c */
void page_cards(const struct page *p);
/* page-bar.c */
void page_bar(const struct page *p, const json_t *card);
void page_vf_strip(struct buf *out, const json_t *card);
/* Is a vGPU at a known place on the card's region? */
bool page_is_placed(const json_t *card, const json_t *placed);
/* page-profiles.c: available vGPUs by series and size; `profiles` as in /resources or of a card. */
void page_profile_table(struct buf *out, const char *caption, const json_t *profiles);
/* The part of a profile's name behind the board: "4Q". */
const char *page_profile_kind(const char *name);
/* page-claims.c */
void page_claims(const struct page *p);
void page_health(const struct page *p);
