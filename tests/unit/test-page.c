/* SPDX-License-Identifier: Apache-2.0 */
/* States that the daemon can hardly be brought into, and texts that it should never see. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "http/page.h"

#include <cmocka.h>

static const struct page_viewer reader;
static const struct page_viewer root = { .may_change = true, .may_clear = true, .owns_all = true };

/* A state as JSON with ' for ". */
static json_t *parse(const char *text)
{
	_free_ char *copy = strdup(text);
	json_t *state;

	for (char *at = copy; *at; at++)
		if (*at == '\'')
			*at = '"';
	state = json_loads(copy, 0, NULL);
	assert_non_null(state);
	return state;
}

static char *render(json_t *state, const struct page_viewer *viewer)
{
	struct buf out = BUF_INIT;
	size_t len;
	char *text;

	assert_int_equal(page_render(state, viewer, &out), 0);
	assert_int_equal(buf_take(&out, &text, &len), 0);
	return text;
}

static char *render_text(const char *json, const struct page_viewer *viewer)
{
	json_t *state = parse(json);
	char *text = render(state, viewer);

	json_decref(state);
	return text;
}

static unsigned count(const char *text, const char *what)
{
	unsigned n = 0;

	for (text = strstr(text, what); text; text = strstr(text + 1, what))
		n++;
	return n;
}

#define has(text, what)	  assert_non_null(strstr(text, what))
#define lacks(text, what) assert_null(strstr(text, what))

/* The cells of the bar of the only card must fill it: not a unit more or less. */
static void check_bar(const char *text, unsigned region)
{
	const char *at = strstr(text, "<colgroup"), *end = strstr(text, "class=\"ruler\"");
	unsigned sum = 0;

	assert_non_null(at);
	if (!end)
		end = strstr(at, "</table>");
	while ((at = strstr(at, "<td colspan=\"")) && at < end) {
		at += strlen("<td colspan=\"");
		sum += (unsigned)strtoul(at, NULL, 10);
	}
	assert_int_equal(sum, region);
}

static void what_is_missing_is_not_known(void **state)
{
	_free_ char *text = render_text("{}", &reader);

	(void)state;
	assert_int_equal(count(text, "Not known"), 4); /* summary, cards, profiles, claims */
	lacks(text, "<b>0</b>");
	lacks(text, "No NVIDIA GPU");
	has(text, "</html>");
}

static void a_host_without_gpus_says_so(void **state)
{
	_free_ char *text = render_text(
		"{'gpu': {'mode': 'none', 'framework': 'none'}, 'gpus': [], "
		"'claims': [], 'not_ready': null}",
		&root);

	(void)state;
	has(text, "No NVIDIA GPU was found");
	has(text, "No profile is known");
	lacks(text, "VFs used");
}

static void stores_that_cannot_be_read_stand_on_top(void **state)
{
	_free_ char *text = render_text(
		"{'claims_store': 'claims.db is older than claims.gen', 'health_store': 'line 3',"
		" 'not_ready': 'claims.db is older than claims.gen', 'claims': null,"
		" 'gpu': {'mode': 'vgpu'}, 'gpus': []}",
		&root);

	(void)state;
	has(text, "nothing is placed, released or reset: <bdi>claims.db is older");
	has(text, "nothing is placed: <bdi>line 3");
	has(text, "the claims database cannot be read");
	has(text, "the health records cannot be read");
	lacks(text, "berthd is not ready");
	lacks(text, "no VF is quarantined");
}

#define CARD "'address': '0000:41:00.0', 'name': 'L40S', 'mode': 'mixed', 'region': 48, "
#define VFS                                                                                        \
	"'vfs': [{'address': '0000:41:00.4', 'state': 'bound', 'claim': 'a'},"                     \
	" {'address': '0000:41:00.5', 'state': 'free', 'quarantined': true}], "                    \
	"'profiles': [{'name': 'NVIDIA L40S-8Q', 'size': 8, 'available': 2, 'free_placements': "   \
	"3},"                                                                                      \
	" {'name': 'NVIDIA L40S-4Q', 'size': 4, 'available': 5, 'free_placements': 5},"            \
	" {'name': 'odd one', 'available': 1}]"

static void bars_are_filled_whatever_is_placed(void **state)
{
	static const char *const contents[] = {
		"'placed': [], 'holes': [{'id': 0, 'size': 48, 'fits': []}], ",
		"'placed': [], 'holes': null, ",
		("'placed': [{'id': 8, 'size': 8, 'vf': '0000:41:00.4', 'claim': 'a'}], 'holes':"
		 " [{'id': 0, 'size': 8, 'fits': [{'profile': 'NVIDIA L40S-4Q', 'placements': 2},"
		 " {'profile': 'NVIDIA L40S-8Q', 'placements': 1}]}, {'id': 20, 'size': 28}], "),
		/* overlapping, beyond the end, of no size */
		("'placed': [{'id': 8, 'size': 8}, {'id': 12, 'size': 8}, {'id': 30, 'size': 4}],"
		 " 'holes': [{'id': 10, 'size': 30}], "),
		"'placed': [{'id': 40, 'size': 16}, {'id': 0, 'size': 4}], 'holes': null, ",
		"'placed': [{'id': null, 'size': 40}, {'id': null, 'size': 9}], 'holes': null, ",
		"'placed': [{'id': -3, 'size': 1000000000000}, {'id': 1, 'size': 0}], ",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(contents); i++) {
		_buf_ struct buf json = BUF_INIT;
		_free_ char *text = NULL;

		buf_printf(&json, "{'gpu': {'mode': 'vgpu'}, 'gpus': [{%s%s%s}]}", CARD,
			   contents[i], VFS);
		assert_int_equal(buf_finish(&json), 0);
		text = render_text(json.data, &reader);
		check_bar(text, 48);
	}
}

static void a_card_tells_what_is_on_it(void **state)
{
	_free_ char *text = render_text(
		"{'gpu': {'mode': 'vgpu', 'profiles': [{'name': 'NVIDIA L40S-8Q', 'available': 2,"
		" 'free_placements': 3}]}, 'gpus': [{" CARD
		"'placed': [{'id': 8, 'size': 8, 'profile': 'NVIDIA L40S-8Q', 'vf': '0000:41:00.4',"
		" 'claim': 'a'}], 'holes': [{'id': 0, 'size': 8, 'fits': [{'profile': 'NVIDIA "
		"L40S-4Q',"
		" 'placements': 2}, {'profile': 'NVIDIA L40S-8Q', 'placements': 1}]},"
		" {'id': 16, 'size': 32, 'fits': []}], " VFS "}],"
		" 'claims': [{'name': 'a', 'vf': '0000:41:00.4', 'gpu': '0000:41:00.0', 'uid': 7,"
		" 'profile': 'NVIDIA L40S-8Q', 'problem': 'type_lost', 'state': 'bound',"
		" 'assigned_at': '2026-11-29T16:38:00.5Z', 'placement': {'id': 8, 'size': 8}}]}",
		&root);

	(void)state;
	has(text, "8 GiB in 1 vGPU, 40 GiB free in 2 holes");
	has(text, "up to 8Q");
	has(text, "nothing fits");
	has(text, "<span class=\"fit\">1\u00d7 8Q</span> <span class=\"fit\">2\u00d7 4Q</span>");
	has(text, "2 <small>of 3</small>");
	has(text, "<bdi>odd one</bdi>: 1");
	has(text, "its VF has lost its type");
	has(text, "<time datetime=\"2026-11-29T16:38:00.5Z\">2026-11-29 16:38:00 UTC</time>");
	has(text, "href=\"#claim-a\"");
	has(text, "id=\"claim-a\"");
}

static void buttons_are_for_those_who_may(void **state)
{
	static const struct {
		struct page_viewer viewer;
		unsigned releases, cordons, clears;
	} cases[] = {
		{ { .who = { .uid = 7 } }, 0, 0, 0 },
		{ { .may_change = true, .who = { .uid = 7 } }, 1, 1, 0 },
		{ { .may_change = true, .who = { .uid = 8 } }, 0, 1, 0 },
		{ { .may_change = true, .who = { CLAIM_UID_NONE, "node-a", false } }, 1, 1, 0 },
		{ { .may_change = true, .who = { CLAIM_UID_NONE, "node-b", false } }, 0, 1, 0 },
		{ { .may_change = true, .owns_all = true, .who = { .uid = 8 } }, 3, 1, 0 },
		{ { .may_change = true, .owns_all = true, .may_clear = true }, 3, 1, 2 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_free_ char *text = render_text(
			"{'gpu': {'mode': 'vgpu'}, 'gpus': [{" CARD
			"'placed': [], 'holes': null, " VFS
			"}], 'claims': [{'name': 'a', 'uid': 7}, {'name': 'b', 'uid': 0},"
			" {'name': 'c', 'uid': null, 'peer': 'node-a'}],"
			" 'records': [{'address': '0000:99:00.4', 'quarantined_at': 'x'}]}",
			&cases[i].viewer);

		assert_int_equal(count(text, "data-path=\"/claims/"), cases[i].releases);
		assert_int_equal(count(text, "/cordon\""), cases[i].cordons);
		assert_int_equal(count(text, "/quarantine\""), cases[i].clears);
		assert_int_equal(count(text, "for reading only"), !cases[i].viewer.may_change);
	}
}

/* Puts a text in place of every text, wherever it is. */
static void poison(json_t *value, const char *text)
{
	const char *key;
	json_t *member;
	size_t i;

	json_array_foreach(value, i, member)
		poison(member, text);
	json_object_foreach(value, key, member) {
		if (json_is_string(member) && strcmp(key, "mode") != 0)
			json_object_set_new(value, key, json_string_nocheck(text));
		else
			poison(member, text);
	}
}

static void no_text_gets_out_of_its_place(void **state)
{
	static const char *const texts[] = {
		"\"><script>alert(1)</script><x y='",
		"</title></textarea></script><x>",
		"--><x>",
		"' onfocus=x autofocus ",
		"\xff\xfe<x>",
		"",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		json_t *json = parse(
			"{'host': 'h', 'version': 'v', 'page': 'p', 'not_ready': 'n', "
			"'claims_store': 'c',"
			" 'health_store': null, 'fallback': {'reason': 'r', 'detail': 'd'},"
			" 'placements_at': 't', 'gpu': {'mode': 'vgpu', 'profiles': [{'name': "
			"'n'}]},"
			" 'gpus': [{" CARD
			"'driver_version': 'd', 'fallback': 'f', 'fallback_detail': 'd',"
			" 'stuck': true, 'stuck_reason': 'r', 'recovery': {'state': 's', 'step': "
			"'s',"
			" 'detail': 'd'}, 'placed': [{'id': 0, 'size': 8, 'profile': 'p', 'vf': "
			"'v',"
			" 'claim': 'c'}], 'holes': [{'id': 8, 'size': 40, 'fits': [{'profile': "
			"'NVIDIA"
			" L40S-4Q', 'placements': 1}]}], " VFS "},"
			" {'address': 'a', 'name': 'n', 'driver': 'd', 'vfs': []}],"
			" 'claims': [{'name': 'a', 'owner': 'o', 'profile': 'p', 'problem': 'p',"
			" 'state': 's', 'vf': 'v', 'gpu': 'g', 'assigned_at': 'a'}],"
			" 'records': [{'address': 'a', 'failures': [{'claim': 'c', 'reported_at': "
			"'r'}],"
			" 'quarantined_at': 'q'}]}");
		_free_ char *text = NULL;

		poison(json, texts[i]);
		text = render(json, &root);
		json_decref(json);
		assert_int_equal(count(text, "<script"), 1);
		assert_int_equal(count(text, "</script"), 1);
		lacks(text, "<x");
		lacks(text, "--><");
		lacks(text, "\xff");
		lacks(text, "\" onfocus");
		lacks(text, "' onfocus");
		check_bar(text, 48);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_missing_is_not_known),
		cmocka_unit_test(a_host_without_gpus_says_so),
		cmocka_unit_test(stores_that_cannot_be_read_stand_on_top),
		cmocka_unit_test(bars_are_filled_whatever_is_placed),
		cmocka_unit_test(a_card_tells_what_is_on_it),
		cmocka_unit_test(buttons_are_for_those_who_may),
		cmocka_unit_test(no_text_gets_out_of_its_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
