/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include "model/policy.h"

#include <cmocka.h>

static const struct placement_type type_4q = {
	.type_id = 1150,
	.size = 4,
	.n_ids = 8,
	.ids = { 0, 8, 12, 20, 24, 32, 36, 44 },
	.creatable = 0xff,
};

/* The card at bus number `bus`. */
static struct policy_card card(unsigned bus, unsigned quarantined, uint64_t used_mb, uint64_t free)
{
	return (struct policy_card){
		.address = { .bus = (uint8_t)bus },
		.quarantined_vfs = quarantined,
		.used_mb = used_mb,
		.type = &type_4q,
		.free = free,
	};
}

static void knows_its_names(void **state)
{
	enum policy p = (enum policy)77;

	(void)state;
	assert_int_equal(policy_from_name("least-loaded", &p), -EINVAL);
	assert_int_equal(policy_from_name("", &p), -EINVAL);
	assert_int_equal(policy_from_name("LEAST_LOADED", &p), -EINVAL);
	assert_int_equal(p, 77);
	assert_int_equal(policy_from_name("least_loaded", &p), 0);
	assert_int_equal(p, POLICY_LEAST_LOADED);
	assert_string_equal(policy_name(p), "least_loaded");
}

static void no_candidate_is_told(void **state)
{
	struct policy_card full[] = { card(0x41, 0, 0, 0), card(0x81, 0, 0, 0) };
	struct policy_choice choice = { .card = 9 };

	(void)state;
	assert_int_equal(policy_choose(POLICY_LEAST_LOADED, NULL, 0, &choice), -ENOENT);
	assert_int_equal(policy_choose(POLICY_LEAST_LOADED, full, 2, &choice), -ENOENT);
	/* Free bits that no id stands for are no placement. */
	full[0].free = UINT64_C(1) << 8;
	assert_int_equal(policy_choose(POLICY_LEAST_LOADED, full, 2, &choice), -ENOENT);
	assert_int_equal(choice.card, 9);
}

static void least_loaded_goes_by_quarantine_then_load_then_address(void **state)
{
	struct policy_card cases[][3] = {
		/* the winner comes second each time */
		{ card(0x41, 1, 0, 0xff), card(0x81, 0, 40960, 0xff), card(0xc1, 2, 0, 0xff) },
		{ card(0x41, 1, 8193, 0xff), card(0x81, 1, 8192, 0xff), card(0xc1, 1, 8194, 0xff) },
		{ card(0x81, 0, 4096, 0xff), card(0x41, 0, 4096, 0xff), card(0xc1, 0, 4096, 0xff) },
		{ card(0x41, 0, 0, 0), card(0x81, 3, 40960, 0x80), card(0xc1, 4, 0, 0xff) },
	};
	struct policy_choice choice;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(policy_choose(POLICY_LEAST_LOADED, cases[i], 3, &choice), 0);
		if (choice.card != 1)
			fail_msg("case %zu chose %u", i, choice.card);
		assert_int_equal(choice.span.size, 4);
		assert_int_equal(choice.span.id, cases[i][1].free == 0x80 ? 44 : 0);
	}
}

static void takes_the_drivers_first_fit(void **state)
{
	struct policy_card c = card(0x41, 0, 0, 0xe8); /* 20 32 36 44 */
	struct policy_choice choice;

	(void)state;
	assert_int_equal(policy_choose(POLICY_LEAST_LOADED, &c, 1, &choice), 0);
	assert_int_equal(choice.card, 0);
	assert_int_equal(choice.span.id, 20);
}

static void unknown_placements_leave_the_choice_to_the_driver(void **state)
{
	struct policy_card cards[] = { card(0x41, 0, 4096, 0xff), card(0x81, 0, 0, 0) };
	struct policy_choice choice = { .span = { 1, 1 } };

	(void)state;
	cards[1].type = NULL;
	assert_int_equal(policy_choose(POLICY_LEAST_LOADED, cards, 2, &choice), 0);
	assert_int_equal(choice.card, 1);
	assert_int_equal(choice.span.size, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(knows_its_names),
		cmocka_unit_test(no_candidate_is_told),
		cmocka_unit_test(least_loaded_goes_by_quarantine_then_load_then_address),
		cmocka_unit_test(takes_the_drivers_first_fit),
		cmocka_unit_test(unknown_placements_leave_the_choice_to_the_driver),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
