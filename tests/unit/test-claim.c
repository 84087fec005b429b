/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include "model/claim.h"

#include <cmocka.h>

static void names_hold_their_rule(void **state)
{
	static const struct {
		const char *name;
		bool valid;
	} cases[] = {
		{ "", false },	   { "a", true },	  { "Z", true },
		{ "0", true },	   { "vm-1.a_B", true },  { "-a", false },
		{ ".a", false },   { "_a", false },	  { "a b", false },
		{ "a/b", false },  { "a\n", false },	  { "a:b", false },
		{ "a%2e", false }, { "\xc3\xa4", false }, { "a\xc3\xa4", false },
		{ "..", false },   { "a..", true },	  { "a-", true },
		{ " a", false },   { "@", false },	  { "[", false },
		{ "`", false },	   { "{", false },	  { "a@", false },
		{ "A", true },	   { "z", true },	  { "9", true },
		{ "/", false },
	};
	char longest[CLAIM_NAME_MAX + 1];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (claim_name_is_valid(cases[i].name) != cases[i].valid)
			fail_msg("'%s'", cases[i].name);
	memset(longest, 'x', sizeof longest);
	longest[128] = '\0';
	assert_true(claim_name_is_valid(longest));
	longest[128] = 'x';
	longest[129] = '\0';
	assert_false(claim_name_is_valid(longest));
}

static void states_and_problems_have_names(void **state)
{
	static const struct {
		enum claim_state s;
		const char *name;
	} states[] = {
		{ CLAIM_STATE_INTENT, "intent" },
		{ CLAIM_STATE_BOUND, "bound" },
		{ CLAIM_STATE_RELEASING, "releasing" },
		{ CLAIM_STATE_EXTERNAL, "external" },
	};
	enum claim_state s;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		assert_string_equal(claim_state_name(states[i].s), states[i].name);
		assert_int_equal(claim_state_from_name(states[i].name, &s), 0);
		assert_int_equal(s, states[i].s);
	}
	s = CLAIM_STATE_RELEASING;
	assert_int_equal(claim_state_from_name("Bound", &s), -EINVAL);
	assert_int_equal(claim_state_from_name("", &s), -EINVAL);
	assert_int_equal(s, CLAIM_STATE_RELEASING);
	assert_null(claim_problem_name(CLAIM_PROBLEM_NONE));
	assert_string_equal(claim_problem_name(CLAIM_PROBLEM_VF_MISSING), "vf_missing");
	assert_string_equal(claim_problem_name(CLAIM_PROBLEM_TYPE_LOST), "type_lost");
	assert_string_equal(claim_problem_name(CLAIM_PROBLEM_TYPE_CHANGED), "type_changed");
	assert_string_equal(claim_problem_name(CLAIM_PROBLEM_CARD_STUCK), "card_stuck");
}

static void adopted_claims_are_named_after_the_vf(void **state)
{
	struct pci_addr vf = { .domain = 0, .bus = 0x41, .device = 0, .function = 4 };
	struct pci_addr wide = { .domain = 0xffffffff, .bus = 0xff, .device = 31, .function = 7 };
	char name[CLAIM_NAME_MAX];

	(void)state;
	claim_name_external(vf, name);
	assert_string_equal(name, "external-0000-41-00.4");
	assert_true(claim_name_is_valid(name));
	claim_name_external(wide, name);
	assert_string_equal(name, "external-ffffffff-ff-1f.7");
	assert_true(claim_name_is_valid(name));
}

static void judges_what_was_read_last(void **state)
{
	static const struct {
		enum claim_state state;
		bool present;
		uint32_t type; /* the claim's is 1150 */
		bool stuck;
		enum claim_problem problem;
	} cases[] = {
		{ CLAIM_STATE_BOUND, true, 1150, false, CLAIM_PROBLEM_NONE },
		{ CLAIM_STATE_BOUND, true, 0, false, CLAIM_PROBLEM_TYPE_LOST },
		{ CLAIM_STATE_BOUND, true, 1151, false, CLAIM_PROBLEM_TYPE_CHANGED },
		{ CLAIM_STATE_BOUND, false, 0, false, CLAIM_PROBLEM_VF_MISSING },
		{ CLAIM_STATE_BOUND, false, 1150, true, CLAIM_PROBLEM_VF_MISSING },
		{ CLAIM_STATE_BOUND, true, 1150, true, CLAIM_PROBLEM_CARD_STUCK },
		{ CLAIM_STATE_BOUND, true, 0, true, CLAIM_PROBLEM_CARD_STUCK },
		{ CLAIM_STATE_EXTERNAL, true, 0, false, CLAIM_PROBLEM_TYPE_LOST },
		{ CLAIM_STATE_EXTERNAL, true, 1150, false, CLAIM_PROBLEM_NONE },
		{ CLAIM_STATE_RELEASING, true, 0, false, CLAIM_PROBLEM_NONE },
		{ CLAIM_STATE_RELEASING, true, 1151, false, CLAIM_PROBLEM_TYPE_CHANGED },
		{ CLAIM_STATE_RELEASING, false, 0, false, CLAIM_PROBLEM_VF_MISSING },
		{ CLAIM_STATE_INTENT, true, 0, false, CLAIM_PROBLEM_NONE },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct claim c = { .state = cases[i].state, .type_id = 1150 };

		if (claim_problem_judge(&c, cases[i].present, cases[i].type, cases[i].stuck) !=
		    cases[i].problem)
			fail_msg("case %zu", i);
	}
}

static void owners_and_their_like(void **state)
{
	static const struct {
		struct claimant who;
		uint32_t uid;
		const char *peer;
		bool owns;
	} cases[] = {
		{ { .uid = 1000 }, 1000, "", true },
		{ { .uid = 1000 }, 1001, "", false },
		{ { .uid = 0 }, 1000, "", false }, /* root is an admin, not a number */
		{ { .uid = 0, .is_admin = true }, 1000, "", true },
		{ { .uid = 0, .is_admin = true }, CLAIM_UID_NONE, "ops", true },
		{ { .uid = CLAIM_UID_NONE, .peer = "ops" }, CLAIM_UID_NONE, "ops", true },
		{ { .uid = CLAIM_UID_NONE, .peer = "ops" }, CLAIM_UID_NONE, "Ops", false },
		{ { .uid = CLAIM_UID_NONE, .peer = "ops", .is_admin = true }, 1000, "", true },
		/* A user and a certificate are never the same. */
		{ { .uid = CLAIM_UID_NONE, .peer = "ops" }, CLAIM_UID_NONE, "", false },
		{ { .uid = CLAIM_UID_NONE }, CLAIM_UID_NONE, "ops", false },
		{ { .uid = 1000 }, 1000, "ops", false },
		{ { .uid = 1000, .peer = "ops" }, 1000, "", false },
	};
	char text[20];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (claimant_owns(&cases[i].who, cases[i].uid, cases[i].peer) != cases[i].owns)
			fail_msg("case %zu", i);
	assert_string_equal(claimant_describe(1000, "", text, sizeof text), "user 1000");
	assert_string_equal(claimant_describe(CLAIM_UID_NONE, "a long name", text, sizeof text),
			    "certificate a long ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_hold_their_rule),
		cmocka_unit_test(states_and_problems_have_names),
		cmocka_unit_test(adopted_claims_are_named_after_the_vf),
		cmocka_unit_test(judges_what_was_read_last),
		cmocka_unit_test(owners_and_their_like),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
