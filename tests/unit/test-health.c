/* SPDX-License-Identifier: Apache-2.0 */
/* The rules about failures, thresholds and quarantines, and what hypeman's file may hold. */
#include "model/health.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/str.h"

#define NOW   "2026-11-29T16:38:00Z"
#define LATER "2026-11-29T17:00:00Z"

static const struct pci_addr vf4 = { .bus = 0x41, .function = 4 };
static const struct pci_addr vf5 = { .bus = 0x41, .function = 5 };
static const struct pci_addr wide = { .domain = 0x10000, .bus = 0x41, .function = 4 };

static enum health_change fail_vf(struct health *h, struct pci_addr vf, const char *name,
				  const char *assigned, unsigned threshold)
{
	enum health_change change = HEALTH_CLEARED;

	assert_int_equal(health_report_failure(h, vf, name, assigned, NOW, threshold, &change), 0);
	return change;
}

static void test_threshold_one(void **state _unused_)
{
	struct health h = { 0 };

	assert_int_equal(fail_vf(&h, vf4, "a", "t1", 1), HEALTH_QUARANTINED);
	assert_int_equal(fail_vf(&h, vf4, "b", "t2", 1), HEALTH_UNCHANGED);
	assert_true(health_is_quarantined(&h, vf4));
	assert_false(health_is_quarantined(&h, vf5));
	assert_false(health_is_quarantined(&h, wide));
	assert_int_equal(health_find(&h, vf4)->n_failures, 1);
	assert_string_equal(health_find(&h, vf4)->quarantined_at, NOW);
	health_done(&h);
}

static void test_threshold_two(void **state _unused_)
{
	struct health h = { 0 };

	assert_int_equal(fail_vf(&h, vf4, "a", "t1", 2), HEALTH_FAILURE);
	for (int i = 0; i < 3; i++)
		assert_int_equal(fail_vf(&h, vf4, "a", "t1", 2), HEALTH_UNCHANGED);
	/* Failures of another VF are its own. */
	assert_int_equal(fail_vf(&h, vf5, "b", "t2", 2), HEALTH_FAILURE);
	assert_int_equal(health_count_quarantined(&h), 0);
	/* The same name claimed again is another assignment. */
	assert_int_equal(fail_vf(&h, vf4, "a", "t3", 2), HEALTH_QUARANTINED);
	assert_int_equal(health_count_quarantined(&h), 1);
	assert_int_equal(fail_vf(&h, vf4, "a", "t1", 2), HEALTH_UNCHANGED);
	assert_int_equal(health_find(&h, vf4)->n_failures, 2);
	assert_string_equal(health_find(&h, vf4)->failures[1].assigned_at, "t3");
	assert_string_equal(health_find(&h, vf4)->failures[1].instance_id, "a");
	assert_string_equal(health_find(&h, vf4)->failures[1].reported_at, NOW);
	health_done(&h);
}

static void test_threshold_three_and_success(void **state _unused_)
{
	struct health h = { 0 };

	assert_int_equal(health_report_success(&h, vf4), HEALTH_UNCHANGED);
	assert_int_equal(fail_vf(&h, vf4, "a", "t1", 3), HEALTH_FAILURE);
	assert_int_equal(fail_vf(&h, vf4, "b", "t1", 3), HEALTH_FAILURE);
	assert_int_equal(health_report_success(&h, vf4), HEALTH_CLEARED);
	assert_null(health_find(&h, vf4));
	assert_int_equal(h.n, 0);
	assert_int_equal(fail_vf(&h, vf4, "c", "t1", 3), HEALTH_FAILURE);
	assert_int_equal(fail_vf(&h, vf4, "d", "t1", 3), HEALTH_FAILURE);
	assert_int_equal(fail_vf(&h, vf4, "e", "t1", 3), HEALTH_QUARANTINED);
	assert_int_equal(health_report_success(&h, vf4), HEALTH_UNCHANGED);
	assert_true(health_is_quarantined(&h, vf4));
	health_done(&h);
}

static void test_by_a_person(void **state _unused_)
{
	struct health h = { 0 };
	enum health_change change;

	assert_int_equal(health_clear(&h, vf4), HEALTH_UNCHANGED);
	assert_int_equal(health_quarantine(&h, vf4, NOW, &change), 0);
	assert_int_equal(change, HEALTH_QUARANTINED);
	assert_int_equal(health_quarantine(&h, vf4, LATER, &change), 0);
	assert_int_equal(change, HEALTH_UNCHANGED);
	assert_string_equal(health_find(&h, vf4)->quarantined_at, NOW);
	assert_int_equal(health_find(&h, vf4)->n_failures, 0);
	assert_int_equal(fail_vf(&h, vf5, "a", "t1", 2), HEALTH_FAILURE);
	assert_int_equal(health_quarantine(&h, vf5, LATER, &change), 0);
	assert_int_equal(health_find(&h, vf5)->n_failures, 1);
	assert_int_equal(health_clear(&h, vf5), HEALTH_CLEARED);
	assert_int_equal(health_clear(&h, vf4), HEALTH_CLEARED);
	assert_int_equal(h.n, 0);
	health_done(&h);
}

/* A threshold that was lowered applies to what is stored; a raised one lifts nothing. */
static void test_apply_threshold(void **state _unused_)
{
	struct health h = { 0 };

	assert_int_equal(fail_vf(&h, vf4, "a", "t1", 3), HEALTH_FAILURE);
	assert_int_equal(fail_vf(&h, vf4, "b", "t2", 3), HEALTH_FAILURE);
	assert_int_equal(fail_vf(&h, vf5, "c", "t3", 3), HEALTH_FAILURE);
	assert_int_equal(health_apply_threshold(&h, 3, LATER), 0);
	assert_int_equal(health_apply_threshold(&h, 2, LATER), 1);
	assert_string_equal(health_find(&h, vf4)->quarantined_at, LATER);
	assert_false(health_is_quarantined(&h, vf5));
	assert_int_equal(health_apply_threshold(&h, 2, NOW), 0);
	assert_int_equal(health_apply_threshold(&h, 9, NOW), 0);
	assert_true(health_is_quarantined(&h, vf4));
	health_done(&h);
}

/* Files name no instance or no time now and then: such a failure stands for an assignment of its
 * own. */
static void test_nameless_failures(void **state _unused_)
{
	struct health_failure failures[3] = { { .reported_at = NOW },
					      { .reported_at = NOW },
					      { .reported_at = NOW } };
	struct health_record r = { .vf = vf4, .n_failures = 2, .failures = failures };
	struct health h = { 0 };

	assert_int_equal(health_add_record(&h, &r), 0);
	assert_int_equal(health_apply_threshold(&h, 3, NOW), 0);
	assert_int_equal(fail_vf(&h, vf4, "a", "", 4), HEALTH_FAILURE);
	assert_int_equal(fail_vf(&h, vf4, "a", "", 4), HEALTH_UNCHANGED);
	assert_int_equal(health_apply_threshold(&h, 3, NOW), 1);
	health_done(&h);
}

static void test_add_record(void **state _unused_)
{
	struct health_failure failure = { .instance_id = "a", .reported_at = NOW };
	struct health_record empty = { .vf = vf4 };
	struct health_record with = { .vf = vf5, .n_failures = 1, .failures = &failure };
	struct health_record out = { .vf = vf4, .quarantined_at = NOW };
	struct health_record far = { .vf = wide, .quarantined_at = NOW };
	struct health_record many = { .vf = vf4,
				      .n_failures = HEALTH_FAILURES_MAX + 1,
				      .failures = &failure };
	struct health h = { 0 };

	assert_int_equal(health_add_record(&h, &empty), -EINVAL);
	assert_int_equal(health_add_record(&h, &many), -E2BIG);
	assert_int_equal(health_add_record(&h, &far), 0);
	assert_int_equal(health_add_record(&h, &with), 0);
	assert_int_equal(health_add_record(&h, &out), 0);
	assert_int_equal(health_add_record(&h, &out), -EEXIST);
	assert_int_equal(h.n, 3);
	/* By address, whatever the order of the file. */
	assert_true(pci_addr_equal(h.records[0].vf, vf4) && pci_addr_equal(h.records[2].vf, wide));
	assert_ptr_not_equal(h.records[1].failures, &failure);
	health_done(&h);
}

static void test_copy_and_equal(void **state _unused_)
{
	struct health a = { 0 }, b = { 0 }, none = { 0 };
	enum health_change change;

	assert_int_equal(health_copy(&none, &b), 0);
	assert_true(health_equal(&none, &b));
	health_done(&b);
	fail_vf(&a, vf4, "a", "t1", 5);
	fail_vf(&a, vf4, "b", "t2", 5);
	assert_int_equal(health_quarantine(&a, vf5, NOW, &change), 0);
	assert_int_equal(health_copy(&a, &b), 0);
	assert_true(health_equal(&a, &b));
	assert_ptr_not_equal(a.records[0].failures, b.records[0].failures);
	str_copy_cut(b.records[0].failures[1].reported_at, 64, LATER);
	assert_false(health_equal(&a, &b));
	str_copy_cut(b.records[0].failures[1].reported_at, 64, NOW);
	str_copy_cut(b.records[0].failures[1].assigned_at, 64, "t9");
	assert_false(health_equal(&a, &b));
	str_copy_cut(b.records[0].failures[1].assigned_at, 64, "t2");
	str_copy_cut(b.records[1].quarantined_at, 64, LATER);
	assert_false(health_equal(&a, &b));
	str_copy_cut(b.records[1].quarantined_at, 64, NOW);
	assert_true(health_equal(&a, &b));
	health_clear(&b, vf5);
	assert_false(health_equal(&a, &b));
	health_done(&a);
	health_done(&b);
}

/* Many VFs in any order; the limits; and so many failures are enough under any threshold. */
static void test_limits(void **state _unused_)
{
	struct health h = { 0 };
	enum health_change change;

	for (unsigned i = 0; i < HEALTH_RECORDS_MAX; i++) {
		unsigned k = (i * 1229) % HEALTH_RECORDS_MAX;
		struct pci_addr vf = { .bus = (uint8_t)(k >> 8),
				       .device = (k >> 3) & 31,
				       .function = k & 7 };

		assert_int_equal(fail_vf(&h, vf, "a", "t", 2), HEALTH_FAILURE);
	}
	for (unsigned i = 1; i < h.n; i++)
		assert_true(pci_addr_compare(h.records[i - 1].vf, h.records[i].vf) < 0);
	assert_int_equal(health_report_failure(&h, wide, "a", "t", NOW, 2, &change), -E2BIG);
	assert_int_equal(health_quarantine(&h, wide, NOW, &change), -E2BIG);
	assert_int_equal(h.n, HEALTH_RECORDS_MAX);
	health_done(&h);
	for (unsigned i = 1; i <= HEALTH_FAILURES_MAX; i++) {
		char name[16];

		snprintf(name, sizeof name, "vm-%u", i);
		assert_int_equal(fail_vf(&h, vf4, name, "t", 1000),
				 i < HEALTH_FAILURES_MAX ? HEALTH_FAILURE : HEALTH_QUARANTINED);
	}
	/* As a file may have it. */
	h.records[0].quarantined_at[0] = '\0';
	assert_int_equal(fail_vf(&h, vf4, "one-more", "t", 1000), HEALTH_QUARANTINED);
	assert_int_equal(health_find(&h, vf4)->n_failures, HEALTH_FAILURES_MAX);
	health_done(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threshold_one),
		cmocka_unit_test(test_threshold_two),
		cmocka_unit_test(test_threshold_three_and_success),
		cmocka_unit_test(test_by_a_person),
		cmocka_unit_test(test_apply_threshold),
		cmocka_unit_test(test_nameless_failures),
		cmocka_unit_test(test_add_record),
		cmocka_unit_test(test_copy_and_equal),
		cmocka_unit_test(test_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
