/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "model/profile.h"

#include <cmocka.h>

#define HEADER "ID    : vGPU Name\n"

static void knows_the_framebuffer_from_the_name(void **state)
{
	static const struct {
		const char *name;
		uint32_t mb;
	} cases[] = {
		{ "L40S-4Q", 4096 },
		{ "NVIDIA L40S-48Q", 49152 },
		{ "NVIDIA RTX Pro 6000 Blackwell DC-1-24Q", 24576 },
		{ "A16-2B", 2048 },
		{ "H100-1-10CME", 10240 },
		{ "H200X-141C", 144384 },
		{ "X-4194303Q", 4294966272U },
		{ "X-4194304Q", 0 },
		{ "X-99999999999Q", 0 },
		{ "", 0 },
		{ "4Q", 0 },
		{ "-4Q", 4096 },
		{ "L40S", 0 },
		{ "L40S-4", 0 },
		{ "L40S-Q", 0 },
		{ "L40S-4Q ", 0 },
		{ "L40S-4Q2", 0 },
		{ "T4-0Q", 0 },
		{ "X-1A", 1024 },
		{ "X-1Z", 1024 },
		{ "X-1a", 1024 },
		{ "X-1z", 1024 },
		{ "X-1@", 0 },
		{ "X-1[", 0 },
		{ "X-1{", 0 },
		{ "L40S 4Q", 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint32_t mb = profile_name_framebuffer_mb(cases[i].name);

		if (mb != cases[i].mb)
			fail_msg("'%s' gave %u, not %u", cases[i].name, mb, cases[i].mb);
	}
}

static void knows_a_gpu_instance_from_the_name(void **state)
{
	static const char *const mig[] = { "H100-1-10C", "NVIDIA H100-1-10CME", "A-7-80C",
					   "NVIDIA RTX Pro 6000 Blackwell DC-4-96Q" };
	static const char *const others[] = { "H100-10C", "NVIDIA RTX Pro 6000 Blackwell DC-48Q",
					      "",	  "L40S",
					      "-1-",	  "1-10C",
					      "A--10C",	  "A-x-10C",
					      "A-1-C" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(mig); i++)
		if (!profile_name_is_mig(mig[i]))
			fail_msg("'%s' is MIG", mig[i]);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (profile_name_is_mig(others[i]))
			fail_msg("'%s' is not MIG", others[i]);
}

static void compares_names_with_and_without_the_vendor(void **state)
{
	(void)state;
	assert_true(profile_name_equal("NVIDIA L40S-4Q", "L40S-4Q"));
	assert_true(profile_name_equal("L40S-4Q", "NVIDIA L40S-4Q"));
	assert_true(profile_name_equal("NVIDIA L40S-4Q", "NVIDIA L40S-4Q"));
	assert_false(profile_name_equal("NVIDIA L40S-4Q", "NVIDIA L40S-4q"));
	assert_false(profile_name_equal("NVIDIA L40S-4Q", "nvidia L40S-4Q"));
	assert_false(profile_name_equal("NVIDIA L40S-4Q", "L40S-48Q"));
	assert_false(profile_name_equal("NVIDIA NVIDIA L40S-4Q", "L40S-4Q"));
	assert_false(profile_name_equal("NVIDIA L40S-4Q", " L40S-4Q"));
	assert_string_equal(profile_name_short("NVIDIA RTX Pro 6000 Blackwell DC-3Q"),
			    "RTX Pro 6000 Blackwell DC-3Q");
	assert_string_equal(profile_name_short("NVIDIAL40S"), "NVIDIAL40S");
	assert_string_equal(profile_name_short("NVIDIA "), "");
}

/* F01 */
static void reads_what_the_driver_prints(void **state)
{
	static const struct {
		const char *text;
		unsigned n, bad;
	} cases[] = {
		{ "", 0, 0 },
		{ HEADER, 0, 0 },
		{ "ID    : vGPU Name", 0, 0 },
		{ HEADER "1145  : NVIDIA L40S-1B\n", 1, 0 },
		{ HEADER "1145  : NVIDIA L40S-1B", 1, 0 },
		{ HEADER "1145  : NVIDIA L40S-1B\n1147  : NVIDIA L40S-1Q\n", 2, 0 },
		{ "ID    : vGPU Name\r\n1145  : NVIDIA L40S-1B\r\n1147  : NVIDIA L40S-1Q\r\n", 2,
		  0 },
		{ "1145  : NVIDIA L40S-1B\n", 1, 0 },
		{ HEADER "\n\n1145  : NVIDIA L40S-1B\n\n", 1, 0 },
		{ HEADER "1145:NVIDIA L40S-1B\n", 1, 0 },
		{ HEADER "1145  : NVIDIA L40S-1B\n1145  : NVIDIA L40S-9Z\n", 1, 0 },
		{ HEADER "4294967295 : X-1Q\n", 1, 0 },
		/* UG17's printed form, which no driver prints: header passed over, the rest is bad.
		 */
		{ "vGPU Name   ID\nNVIDIA A40-1Q 557\n", 0, 1 },
		{ HEADER "0     : NVIDIA L40S-1B\n", 0, 1 },
		{ HEADER "4294967296 : X-1Q\n", 0, 1 },
		{ HEADER "-5    : NVIDIA L40S-1B\n", 0, 1 },
		{ HEADER "1145  :\n", 0, 1 },
		{ HEADER "1145  :   \t\n", 0, 1 },
		{ HEADER "1145\n1147  : NVIDIA L40S-1Q\n", 1, 1 },
		{ HEADER "      : NVIDIA L40S-1Q\n", 0, 1 },
		{ HEADER HEADER "1147  : NVIDIA L40S-1Q\n", 1, 1 },
		{ HEADER "1147  : NVIDIA\x1b[2J\n", 0, 1 },
		{ HEADER "1147  : NVIDIA\xff\n", 0, 1 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct error err = ERROR_INIT;
		struct profile_list list;
		unsigned bad = 99;

		assert_int_equal(
			profile_list_parse(cases[i].text, strlen(cases[i].text), &list, &bad, &err),
			0);
		if (list.n != cases[i].n || bad != cases[i].bad)
			fail_msg("case %zu: %u types and %u bad lines, not %u and %u", i, list.n,
				 bad, cases[i].n, cases[i].bad);
		assert_int_equal(err.msg[0] != '\0', bad > 0);
		if (list.n > 0)
			assert_true(list.items[0].type_id != 0);
	}
}

static void keeps_order_names_and_framebuffer(void **state)
{
	static const char text[] = HEADER "1146  : NVIDIA L40S-2B\n"
					  "1519  : NVIDIA RTX Pro 6000 Blackwell DC-3Q\n"
					  "2164  : NVIDIA L40S: odd name \n"
					  "1145  : NVIDIA L40S-1B\n";
	struct profile_list list;
	unsigned bad;

	(void)state;
	assert_int_equal(profile_list_parse(text, strlen(text), &list, &bad, NULL), 0);
	assert_int_equal(list.n, 4);
	assert_int_equal(bad, 0);
	assert_string_equal(list.items[0].name, "NVIDIA L40S-2B");
	assert_int_equal(list.items[0].framebuffer_mb, 2048);
	assert_string_equal(list.items[1].name, "NVIDIA RTX Pro 6000 Blackwell DC-3Q");
	assert_string_equal(list.items[2].name, "NVIDIA L40S: odd name");
	assert_int_equal(list.items[2].framebuffer_mb, 0);
	assert_ptr_equal(profile_list_find_id(&list, 1145), &list.items[3]);
	assert_null(profile_list_find_id(&list, 0));
	assert_null(profile_list_find_id(&list, 1147));
	assert_ptr_equal(profile_list_find_name(&list, "L40S-1B"), &list.items[3]);
	assert_ptr_equal(profile_list_find_name(&list, "NVIDIA L40S-1B"), &list.items[3]);
	assert_null(profile_list_find_name(&list, "L40S-1Q"));
}

static void embedded_nul_is_part_of_a_bad_line(void **state)
{
	static const char text[] = HEADER "1145  : NVIDIA\0 L40S-1B\n1146  : NVIDIA L40S-2B\n";
	struct error err = ERROR_INIT;
	struct profile_list list;
	unsigned bad;

	(void)state;
	assert_int_equal(profile_list_parse(text, sizeof text - 1, &list, &bad, &err), 0);
	assert_int_equal(bad, 1);
	assert_int_equal(list.n, 1);
	assert_int_equal(list.items[0].type_id, 1146);
}

static void holds_both_sides_of_its_limits(void **state)
{
	char name[PROFILE_NAME_MAX + 1];
	struct profile_list list;
	_buf_ struct buf b = BUF_INIT;
	unsigned bad;

	(void)state;
	memset(name, 'x', sizeof name);
	name[PROFILE_NAME_MAX - 1] = '\0';
	buf_printf(&b, HEADER "1 : %s\n", name);
	name[PROFILE_NAME_MAX - 1] = 'x';
	name[PROFILE_NAME_MAX] = '\0';
	buf_printf(&b, "2 : %s\n", name);
	assert_int_equal(profile_list_parse(b.data, b.len, &list, &bad, NULL), 0);
	assert_int_equal(list.n, 1);
	assert_int_equal(bad, 1);

	buf_clear(&b);
	for (unsigned i = 1; i <= PROFILE_TYPES_MAX; i++)
		buf_printf(&b, "%u : L40S-%uQ\n", i, i);
	buf_add_str(&b, "1 : again\n");
	assert_int_equal(profile_list_parse(b.data, b.len, &list, &bad, NULL), 0);
	assert_int_equal(list.n, PROFILE_TYPES_MAX);
	buf_add_str(&b, "999 : one too many\n");
	assert_int_equal(profile_list_parse(b.data, b.len, &list, NULL, NULL), -E2BIG);
	assert_int_equal(list.n, PROFILE_TYPES_MAX);
	assert_int_equal(list.items[PROFILE_TYPES_MAX - 1].type_id, PROFILE_TYPES_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(knows_the_framebuffer_from_the_name),
		cmocka_unit_test(knows_a_gpu_instance_from_the_name),
		cmocka_unit_test(compares_names_with_and_without_the_vendor),
		cmocka_unit_test(reads_what_the_driver_prints),
		cmocka_unit_test(keeps_order_names_and_framebuffer),
		cmocka_unit_test(embedded_nul_is_part_of_a_bad_line),
		cmocka_unit_test(holds_both_sides_of_its_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
