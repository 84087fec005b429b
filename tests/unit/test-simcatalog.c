/* SPDX-License-Identifier: Apache-2.0 */
/* The boards' types and placement ids, against the published tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/macro.h"
#include "sim/simcatalog.h"

#define L40S_48Q 1156

/* NVIDIA's tables: maximum of a size in equal-size and in mixed-size mode, and the mixed ids. */
struct row {
	uint32_t size, equal, mixed;
	const char *ids;
};

#define STEP3 "0 3 6 9 12 15 18 21 24 27 30 33 36 39 42 45"

static const struct row rows_48_ada[] = {
	{ 48, 1, 1, "0" },
	{ 24, 2, 2, "0 24" },
	{ 16, 3, 2, "0 32" },
	{ 12, 4, 4, "0 12 24 36" },
	{ 8, 6, 4, "0 16 24 40" },
	{ 6, 8, 8, "0 6 12 18 24 30 36 42" },
	{ 4, 12, 8, "0 8 12 20 24 32 36 44" },
	{ 3, 16, 16, STEP3 },
	{ 2, 24, 16, "0 4 6 10 12 16 18 22 24 28 30 34 36 40 42 46" },
	{ 1, 32, 16, "0 5 6 11 12 17 18 23 24 29 30 35 36 41 42 47" },
	{ 0 },
};
static const struct row rows_48_ampere[] = {
	{ 48, 1, 1, "0" },
	{ 24, 2, 2, "0 24" },
	{ 16, 3, 2, "0 32" },
	{ 12, 4, 4, "0 12 24 36" },
	{ 8, 6, 4, "0 16 24 40" },
	{ 6, 8, 8, "0 6 12 18 24 30 36 42" },
	{ 4, 12, 8, "0 8 12 20 24 32 36 44" },
	{ 3, 16, 16, STEP3 },
	{ 2, 24, 16, "0 4 6 10 12 16 18 22 24 28 30 34 36 40 42 46" },
	{ 1, 32, 30,
	  "0 2 3 5 6 9 11 12 14 15 17 18 20 21 23 24 26 27 29 30 33 35 36 38 39 41 42 44 45 47" },
	{ 0 },
};
static const struct row rows_24[] = {
	{ 24, 1, 1, "0" },
	{ 12, 2, 2, "0 12" },
	{ 8, 3, 2, "0 16" },
	{ 6, 4, 4, "0 6 12 18" },
	{ 4, 6, 4, "0 8 12 20" },
	{ 3, 8, 8, "0 3 6 9 12 15 18 21" },
	{ 2, 12, 8, "0 4 6 10 12 16 18 22" },
	{ 1, 24, 16, "0 2 3 5 6 8 9 11 12 14 15 17 18 20 21 23" },
	{ 0 },
};
static const struct row rows_16[] = {
	{ 16, 1, 1, "0" },
	{ 8, 2, 2, "0 8" },
	{ 4, 4, 4, "0 4 8 12" },
	{ 2, 8, 8, "0 2 4 6 8 10 12 14" },
	{ 1, 16, 16, "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15" },
	{ 0 },
};
static const struct row rows_80[] = {
	{ 80, 1, 1, "0" },
	{ 40, 2, 2, "0 40" },
	{ 20, 4, 4, "0 20 40 60" },
	{ 16, 5, 4, "0 24 40 64" },
	{ 10, 8, 8, "0 10 20 30 40 50 60 70" },
	{ 8, 10, 8, "0 12 20 32 40 52 60 72" },
	{ 5, 16, 16, "0 5 10 15 20 25 30 35 40 45 50 55 60 65 70 75" },
	{ 4, 20, 16, "0 6 10 16 20 26 30 36 40 46 50 56 60 66 70 76" },
	{ 0 },
};
static const struct row rows_96[] = {
	{ 96, 1, 1, "0" },
	{ 48, 2, 2, "0 48" },
	{ 32, 3, 3, "0 32 64" },
	{ 24, 4, 4, "0 24 48 72" },
	{ 16, 6, 6, "0 16 32 48 64 80" },
	{ 12, 8, 8, "0 12 24 36 48 60 72 84" },
	{ 8, 12, 12, "0 8 16 24 32 40 48 56 64 72 80 88" },
	{ 6, 16, 16, "0 6 12 18 24 30 36 42 48 54 60 66 72 78 84 90" },
	{ 4, 24, 24, "0 4 8 12 16 20 24 28 32 36 40 44 48 52 56 60 64 68 72 76 80 84 88 92" },
	{ 3, 32, 32, STEP3 " 48 51 54 57 60 63 66 69 72 75 78 81 84 87 90 93" },
	{ 2, 32, 32, STEP3 " 48 51 54 57 60 63 66 69 72 75 78 81 84 87 90 93" },
	{ 0 },
};
/* Boards that are not simulated, through the generator alone. */
static const struct row rows_94[] = {
	{ 94, 1, 1, "0" },
	{ 47, 2, 2, "0 47" },
	{ 23, 4, 4, "0 24 47 71" },
	{ 15, 6, 4, "0 32 47 79" },
	{ 11, 8, 8, "0 12 23 36 47 59 70 83" },
	{ 6, 15, 8, "0 17 23 41 47 64 70 88" },
	{ 4, 23, 16, "0 7 11 19 23 31 35 43 47 54 58 66 70 78 82 90" },
	{ 0 },
};
static const struct row rows_40[] = {
	{ 40, 1, 1, "0" },
	{ 20, 2, 2, "0 20" },
	{ 10, 4, 4, "0 10 20 30" },
	{ 8, 5, 4, "0 12 20 32" },
	{ 5, 8, 8, "0 5 10 15 20 25 30 35" },
	{ 4, 10, 8, "0 6 10 16 20 26 30 36" },
	{ 0 },
};
static const struct row rows_64[] = {
	{ 64, 1, 1, "0" },
	{ 32, 2, 2, "0 32" },
	{ 16, 4, 4, "0 16 32 48" },
	{ 8, 8, 8, "0 8 16 24 32 40 48 56" },
	{ 4, 16, 16, "0 4 8 12 16 20 24 28 32 36 40 44 48 52 56 60" },
	{ 0 },
};
static const struct row rows_32[] = {
	{ 32, 1, 1, "0" },
	{ 16, 2, 2, "0 16" },
	{ 8, 4, 4, "0 8 16 24" },
	{ 1, 32, 32,
	  "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31" },
	{ 0 },
};
static const struct row rows_20[] = {
	{ 20, 1, 1, "0" },
	{ 10, 2, 2, "0 10" },
	{ 5, 4, 4, "0 5 10 15" },
	{ 4, 5, 4, "0 6 10 16" },
	{ 2, 10, 8, "0 3 5 8 10 13 15 18" },
	{ 1, 20, 16, "0 1 2 4 5 6 7 9 10 11 12 14 15 16 17 19" },
	{ 0 },
};

static void ids_text(const struct sim_placements *p, char ret[256])
{
	size_t n = 0;

	ret[0] = '\0';
	for (uint32_t i = 0; i < p->count; i++)
		n += (size_t)snprintf(ret + n, 256 - n, "%s%u", i ? " " : "", p->id[i]);
}

static void check_model(const char *key, const struct row *rows)
{
	const struct sim_model *m = sim_model_find(key, true);
	char text[256];

	assert_non_null(m);
	for (uint32_t i = 0; i < m->type_count; i++) {
		const struct sim_type *t = &m->types[i];
		const struct row *row = rows;

		if (t->mig)
			continue;
		while (row->size != t->fb_mib / 1024)
			assert_int_not_equal((++row)->size, 0);
		ids_text(&t->mixed, text);
		assert_string_equal(text, row->ids);
		assert_int_equal(t->max_instances, row->equal);
		assert_int_equal(t->mixed.count, row->mixed);
	}
	for (const struct row *row = rows; row->size; row++) {
		bool found = false;

		for (uint32_t i = 0; i < m->type_count; i++)
			found |= !m->types[i].mig && m->types[i].fb_mib == row->size * 1024;
		assert_true(found);
	}
}

static void check_generator(uint32_t region, const struct row *rows)
{
	struct sim_placements p;
	char text[256];

	for (; rows->size; rows++) {
		sim_geometry_mixed(region, rows->size, rows->equal, NULL, 0, &p);
		ids_text(&p, text);
		assert_string_equal(text, rows->ids);
		assert_int_equal(p.count, rows->mixed);
	}
}

static void test_geometry(void **state _unused_)
{
	check_model("l40s", rows_48_ada);
	check_model("a40", rows_48_ampere);
	check_model("l4", rows_24);
	check_model("a16", rows_16);
	check_model("h100-80", rows_80);
	check_model("rtx-pro-6000", rows_96);
	check_generator(94, rows_94);
	check_generator(40, rows_40);
	check_generator(64, rows_64);
	check_generator(32, rows_32);
	check_generator(20, rows_20);
}

static void test_geometry_edges(void **state _unused_)
{
	struct sim_placements p;

	sim_geometry_mixed(48, 0, 4, NULL, 0, &p);
	assert_int_equal(p.count, 0);
	sim_geometry_mixed(48, 4, 0, NULL, 0, &p);
	assert_int_equal(p.count, 0);
	sim_geometry_mixed(16, 24, 1, NULL, 0, &p);
	assert_int_equal(p.count, 0);
	sim_geometry_equal(48, 4, 12, &p);
	assert_int_equal(p.count, 12);
	assert_int_equal(p.id[11], 44);
	sim_geometry_equal(48, 16, 12, &p);
	assert_int_equal(p.count, 3);
	assert_null(sim_model_find("t4", false));
	assert_null(sim_model_key(6));
}

static void check_type(const char *model, uint32_t id, const char *name)
{
	const struct sim_model *m = sim_model_find(model, true);
	const struct sim_type *t = sim_model_type(m, id);

	assert_non_null(t);
	assert_string_equal(t->name, name);
	assert_ptr_equal(sim_model_type_by_name(m, name), t);
	assert_ptr_equal(sim_model_type_by_name(m, name + strlen("NVIDIA ")), t);
}

static void test_type_numbers(void **state _unused_)
{
	check_type("l40s", 1145, "NVIDIA L40S-1B");
	check_type("l40s", L40S_48Q, "NVIDIA L40S-48Q");
	check_type("l40s", 1157, "NVIDIA L40S-1A");
	check_type("l40s", 1166, "NVIDIA L40S-48A");
	check_type("l40s", 2164, "NVIDIA L40S-3B");
	check_type("l40s", 1185, "NVIDIA L40S-48C");
	check_type("l4", 914, "NVIDIA L4-6Q");
	check_type("l4", 925, "NVIDIA L4-24A");
	check_type("a16", 715, "NVIDIA A16-16Q");
	check_type("a16", 723, "NVIDIA A16-16C");
	check_type("a40", 561, "NVIDIA A40-6Q");
	check_type("a40", 576, "NVIDIA A40-48A");
	check_type("h100-80", 821, "NVIDIA H100-1-10C");
	check_type("h100-80", 993, "NVIDIA H100-1-10CME");
	check_type("h100-80", 832, "NVIDIA H100-80C");
	check_type("rtx-pro-6000", 1519, "NVIDIA RTX Pro 6000 Blackwell DC-3Q");
	check_type("rtx-pro-6000", 1545, "NVIDIA RTX Pro 6000 Blackwell DC-96C");
	check_type("rtx-pro-6000", 1561, "NVIDIA RTX Pro 6000 Blackwell DC-1-24Q");
	assert_int_equal(sim_model_find("l40s", false)->type_count, 23);
	assert_int_equal(sim_model_find("l40s", true)->type_count, 30);
	assert_null(sim_model_type(sim_model_find("l40s", false), 1179));
	assert_null(sim_model_type_by_name(sim_model_find("l40s", true), "L40S-5Q"));
	assert_int_equal(sim_model_type(sim_model_find("rtx-pro-6000", false), 1518)->size, 3);
	assert_int_equal(sim_model_type(sim_model_find("rtx-pro-6000", false), 1546)->max_instances,
			 48);
	assert_int_equal(sim_model_type(sim_model_find("rtx-pro-6000", false), 1549)->max_instances,
			 32);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_geometry),
		cmocka_unit_test(test_geometry_edges),
		cmocka_unit_test(test_type_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
