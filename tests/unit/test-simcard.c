/* SPDX-License-Identifier: Apache-2.0 */
/* The driver model: geometry of every board, and what upstream and the driver's source say about it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/error.h"
#include "base/macro.h"
#include "sim/simcard.h"

#define L40S_1Q 1147
#define L40S_2Q 1148
#define L40S_4Q 1150
#define L40S_6Q 1151
#define L40S_8Q 1152
#define L40S_12Q 1153
#define L40S_16Q 1154
#define L40S_24Q 1155
#define L40S_48Q 1156

/* --- geometry -------------------------------------------------------------------------------- */

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
	{ 64, 1, 1, "0" },	   { 32, 2, 2, "0 32" },
	{ 16, 4, 4, "0 16 32 48" }, { 8, 8, 8, "0 8 16 24 32 40 48 56" },
	{ 4, 16, 16, "0 4 8 12 16 20 24 28 32 36 40 44 48 52 56 60" }, { 0 },
};
static const struct row rows_32[] = {
	{ 32, 1, 1, "0" },
	{ 16, 2, 2, "0 16" },
	{ 8, 4, 4, "0 8 16 24" },
	{ 1, 32, 32, "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31" },
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
	assert_int_equal(sim_model_type(sim_model_find("rtx-pro-6000", false), 1546)->max_instances, 48);
	assert_int_equal(sim_model_type(sim_model_find("rtx-pro-6000", false), 1549)->max_instances, 32);
}

/* --- a host ---------------------------------------------------------------------------------- */

static struct sim *new_sim(const char *model, enum sim_mode mode, const char *driver)
{
	struct sim_config config = { .root = "/nowhere", .model = model, .driver = driver, .cards = 2,
				     .mode = mode, .sriov = true };
	struct error err = ERROR_INIT;
	struct sim *sim = NULL;

	if (sim_new(&config, &sim, &err) < 0)
		fail_msg("%s", error_text(&err));
	return sim;
}

static uint32_t free_of(const struct sim_card *card, uint32_t type_id, char ret[256])
{
	struct sim_placements p = { 0 };

	assert_int_equal(sim_card_creatable_placements(card, sim_model_type(card->model, type_id), &p),
			 SIM_NVML_SUCCESS);
	ids_text(&p, ret);
	return p.count;
}

static bool lists(const struct sim_vf *vf, uint32_t type_id)
{
	const struct sim_type *types[SIM_TYPES_MAX];
	uint32_t n = sim_vf_listed_types(vf, types);

	for (uint32_t i = 0; i < n; i++)
		if (types[i]->id == type_id)
			return true;
	return false;
}

static bool nvml_lists(const struct sim_card *card, uint32_t type_id)
{
	const struct sim_type *types[SIM_TYPES_MAX];
	uint32_t n = sim_card_creatable_types(card, types);

	for (uint32_t i = 0; i < n; i++)
		if (types[i]->id == type_id)
			return true;
	return false;
}

/* Configures the next free VF and returns the placement the driver chose. */
static uint32_t place(struct sim_card *card, uint32_t type_id)
{
	for (uint32_t i = 0; i < card->vf_count; i++)
		if (!card->vfs[i].type) {
			assert_int_equal(sim_vf_write_type(&card->vfs[i], type_id), 0);
			return card->vfs[i].placement;
		}
	fail_msg("no free VF");
	return 0;
}

/* The table of upstream/000: 11, 12, 13 and 14 vGPUs on an L40S, and how it comes about. */
static void test_hidden_placements(void **state _unused_)
{
	static const uint32_t first[] = { 0, 8, 12, 20, 24, 32 }, second[] = { 4, 6, 16, 18, 28, 30 };
	struct sim *sim = new_sim("l40s", SIM_MODE_MIXED, "580.178.05");
	struct sim_card *card = &sim->cards[0];
	const struct sim_vf *last = &card->vfs[31];
	char ids[256];

	for (size_t i = 0; i < ARRAY_SIZE(first); i++)
		assert_int_equal(place(card, L40S_4Q), first[i]);
	for (size_t i = 0; i < ARRAY_SIZE(second) - 1; i++)
		assert_int_equal(place(card, L40S_2Q), second[i]);
	assert_int_equal(free_of(card, L40S_4Q, ids), 2); /* 11 on the card */
	assert_true(lists(last, L40S_4Q));
	assert_true(nvml_lists(card, L40S_4Q));
	assert_int_equal(place(card, L40S_2Q), second[5]);
	assert_int_equal(free_of(card, L40S_4Q, ids), 2); /* 12 */
	assert_string_equal(ids, "36 44");
	assert_false(lists(last, L40S_4Q));
	assert_true(nvml_lists(card, L40S_4Q));
	card->faults.value[SIM_FAULT_CREATABLE_GUARD_OFF] = 1;
	assert_true(lists(last, L40S_4Q));
	card->faults.value[SIM_FAULT_CREATABLE_GUARD_OFF] = 0;
	assert_int_equal(place(card, L40S_4Q), 36);
	assert_int_equal(free_of(card, L40S_4Q, ids), 1); /* 13 */
	assert_string_equal(ids, "44");
	assert_false(lists(last, L40S_4Q));
	assert_true(nvml_lists(card, L40S_4Q));
	assert_int_equal(place(card, L40S_4Q), 44);
	assert_int_equal(free_of(card, L40S_4Q, ids), 0); /* 14 */
	assert_false(lists(last, L40S_4Q));
	assert_false(nvml_lists(card, L40S_4Q));
	assert_int_equal(sim_vf_write_type(&card->vfs[31], L40S_4Q), -EIO);
	sim_free(sim);
}

static void test_fill_mixed_sizes(void **state _unused_)
{
	struct sim *sim = new_sim("l40s", SIM_MODE_MIXED, "580.178.05");
	struct sim_card *card = &sim->cards[0];
	const struct sim_type *types[SIM_TYPES_MAX];

	assert_int_equal(place(card, L40S_12Q), 0);
	assert_int_equal(place(card, L40S_8Q), 16);
	assert_int_equal(place(card, L40S_4Q), 12);
	assert_int_equal(place(card, L40S_24Q), 24);
	assert_int_equal(sim_card_used_mib(card), 48 * 1024);
	assert_int_equal(sim_card_creatable_types(card, types), 0);
	assert_int_equal(sim_vf_listed_types(&card->vfs[10], types), 0);
	/* The other card is not concerned. */
	assert_true(lists(&sim->cards[1].vfs[0], L40S_48Q));
	sim_free(sim);
}

static void test_small_ones_in_the_way(void **state _unused_)
{
	struct sim *sim = new_sim("l40s", SIM_MODE_MIXED, "580.178.05");
	struct sim_card *card = &sim->cards[0];
	char ids[256];

	assert_int_equal(place(card, L40S_1Q), 0);
	assert_int_equal(free_of(card, L40S_48Q, ids), 0);
	free_of(card, L40S_24Q, ids);
	assert_string_equal(ids, "24");
	free_of(card, L40S_16Q, ids);
	assert_string_equal(ids, "32");
	free_of(card, L40S_12Q, ids);
	assert_string_equal(ids, "12 24 36");
	for (int i = 0; i < 8; i++)
		place(card, L40S_1Q); /* up to 24 */
	assert_int_equal(free_of(card, L40S_24Q, ids), 0);
	for (int i = 0; i < 7; i++)
		place(card, L40S_1Q);
	assert_int_equal(free_of(card, L40S_1Q, ids), 0); /* 16 GB of 48 */
	assert_false(lists(&card->vfs[31], L40S_1Q));
	sim_free(sim);
}

static void test_release_gives_back(void **state _unused_)
{
	struct sim *sim = new_sim("l40s", SIM_MODE_MIXED, "580.178.05");
	struct sim_card *card = &sim->cards[0];
	char before[256], after[256];

	place(card, L40S_4Q);
	free_of(card, L40S_12Q, before);
	place(card, L40S_12Q);
	assert_int_equal(sim_vf_write_type(&card->vfs[1], 0), 0);
	free_of(card, L40S_12Q, after);
	assert_string_equal(before, after);
	/* A ghost does not come back until it is laid. */
	card->vfs[0].faults.value[SIM_FAULT_NVML_GHOST] = 1;
	assert_int_equal(sim_vf_write_type(&card->vfs[0], 0), 0);
	assert_int_equal(free_of(card, L40S_48Q, after), 0);
	assert_int_equal(place(card, L40S_4Q), 8);
	sim_free(sim);
}

static void test_type_errnos(void **state _unused_)
{
	struct sim *sim = new_sim("l40s", SIM_MODE_MIXED, "580.178.05");
	struct sim_vf *vf = &sim->cards[0].vfs[0];

	assert_int_equal(sim_vf_write_type(vf, 0), -EPERM);
	assert_int_equal(sim_vf_write_type(vf, 9999), -EIO);
	assert_int_equal(sim_vf_write_type(vf, 561), -EIO); /* an A40 type */
	assert_int_equal(sim_vf_write_placement(vf, 0), -ENXIO);
	assert_int_equal(sim_vf_write_params(vf, "a=1", 3), -ENXIO);
	assert_int_equal(sim_vf_write_gi(vf, 1), -ENXIO);
	assert_int_equal(sim_vf_write_type(vf, L40S_4Q), 0);
	assert_int_equal(sim_vf_write_type(vf, L40S_4Q), -EPERM);
	assert_int_equal(sim_vf_write_type(vf, L40S_2Q), -EPERM);
	vf->open_count = 1;
	assert_int_equal(sim_vf_write_type(vf, 0), -EPERM);
	assert_int_equal(sim_vf_write_params(vf, "a=1", 3), -EPERM);
	vf->open_count = 0;
	assert_int_equal(sim_vf_write_gi(vf, 1), -EIO);
	assert_int_equal(sim_vf_write_type(vf, 0), 0);
	assert_int_equal(sim_vf_rebind(vf, "vfio-pci"), 0);
	assert_false(sim_vf_has_attributes(vf));
	assert_int_equal(sim_vf_rebind(vf, "nvidia"), 0);
	assert_true(sim_vf_has_attributes(vf));
	assert_int_equal(sim_vf_write_type(vf, L40S_4Q), -EINVAL);
	assert_int_equal(sim_vf_rebind(vf, "i915"), -EINVAL);
	sim_free(sim);
}

static void test_steer(void **state _unused_)
{
	struct sim *sim = new_sim("l40s", SIM_MODE_MIXED, "580.178.05");
	struct sim_card *card = &sim->cards[0];
	struct sim_vf *vf = &card->vfs[0];
	char ids[256];

	assert_int_equal(place(card, L40S_12Q), 0);
	assert_int_equal(sim_vf_write_placement(vf, 0), 0);    /* no-op */
	assert_int_equal(sim_vf_write_placement(vf, 5), -EIO); /* no such id */
	assert_int_equal(sim_vf_write_placement(vf, 24), 0);
	assert_int_equal(vf->placement, 24);
	free_of(card, L40S_24Q, ids);
	assert_string_equal(ids, "0");
	assert_int_equal(place(card, L40S_4Q), 0);
	assert_int_equal(sim_vf_write_placement(&card->vfs[1], 24), -EIO); /* taken */
	assert_int_equal(sim_vf_write_placement(&card->vfs[1], 36), 0);
	sim_free(sim);
}

static void test_equal_size(void **state _unused_)
{
	struct sim *sim = new_sim("l40s", SIM_MODE_EQUAL, "580.178.05");
	struct sim_card *card = &sim->cards[0];
	char ids[256];

	assert_true(lists(&card->vfs[0], L40S_48Q));
	for (uint32_t i = 0; i < 12; i++) {
		assert_int_equal(place(card, i % 2 ? L40S_4Q : 1160), i * 4); /* 4Q and 4A mix */
		assert_false(lists(&card->vfs[20], L40S_2Q));
		assert_int_equal(sim_vf_write_type(&card->vfs[20], L40S_2Q), -EIO);
		assert_int_equal(lists(&card->vfs[20], L40S_4Q), i < 11);
	}
	assert_int_equal(sim_vf_write_type(&card->vfs[20], L40S_4Q), -EIO);
	for (uint32_t i = 0; i < 12; i++)
		assert_int_equal(sim_vf_write_type(&card->vfs[i], 0), 0);
	assert_true(lists(&card->vfs[0], L40S_48Q));
	free_of(card, L40S_24Q, ids);
	assert_string_equal(ids, "0 24");
	sim_free(sim);
}

/* No placements in equal-size mode before Ada, nor on any board with R550. */
static void test_equal_size_without_placements(void **state _unused_)
{
	static const struct {
		const char *model, *driver;
		uint32_t type, max;
	} cases[] = { { "a40", "580.178.05", 560, 12 }, { "l40s", "550.163.02", L40S_4Q, 12 } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct sim *sim = new_sim(cases[i].model, SIM_MODE_EQUAL, cases[i].driver);
		struct sim_card *card = &sim->cards[0];
		const struct sim_type *type = sim_model_type(card->model, cases[i].type);
		struct sim_placements p;

		assert_false(sim_card_has_equal_placements(card));
		assert_int_equal(sim_card_creatable_placements(card, type, &p), SIM_NVML_NOT_SUPPORTED);
		assert_int_equal(sim_card_supported_placements(card, type, false, &p), SIM_NVML_NOT_SUPPORTED);
		assert_int_equal(sim_card_supported_placements(card, type, true, &p), SIM_NVML_SUCCESS);
		for (uint32_t j = 0; j < cases[i].max; j++)
			assert_int_equal(place(card, cases[i].type), SIM_PLACEMENT_NONE);
		assert_int_equal(sim_vf_write_type(&card->vfs[20], cases[i].type), -EIO);
		sim_free(sim);
	}
}

static void test_branch_550(void **state _unused_)
{
	struct sim *sim = new_sim("l40s", SIM_MODE_MIXED, "550.163.02");
	struct sim_card *card = &sim->cards[0];
	char ids[256];

	/* Configured VFs hold nothing until a VM boots on them. */
	assert_int_equal(place(card, L40S_24Q), SIM_PLACEMENT_NONE);
	assert_int_equal(place(card, L40S_24Q), SIM_PLACEMENT_NONE);
	assert_int_equal(place(card, L40S_24Q), SIM_PLACEMENT_NONE);
	free_of(card, L40S_24Q, ids);
	assert_string_equal(ids, "0 24");
	assert_int_equal(sim_card_set_mixed(card, true), SIM_NVML_SUCCESS);
	assert_int_equal(sim_vf_write_params(&card->vfs[0], "vgpu-placement-id=24\n", 21), 0);
	assert_int_equal(sim_vf_start_guest(&card->vfs[0], 1, "vm", 0), 0);
	assert_int_equal(card->vfs[0].placement, 24);
	assert_int_equal(sim_card_set_mixed(card, false), SIM_NVML_IN_USE);
	assert_int_equal(sim_vf_start_guest(&card->vfs[1], 2, "vm", 0), 0);
	assert_int_equal(card->vfs[1].placement, 0);
	assert_int_equal(sim_vf_start_guest(&card->vfs[2], 3, "vm", 0), -EINVAL);
	sim_vf_stop_guest(&card->vfs[0], true);
	assert_int_equal(card->vfs[0].placement, SIM_PLACEMENT_NONE);
	free_of(card, L40S_24Q, ids);
	assert_string_equal(ids, "24");
	sim_free(sim);
}

static void test_mode_rules(void **state _unused_)
{
	struct sim *sim = new_sim("l40s", SIM_MODE_MIXED, "580.178.05");
	struct sim_card *card = &sim->cards[0];
	bool mixed = false;

	place(card, L40S_4Q);
	assert_int_equal(sim_card_set_mixed(card, false), SIM_NVML_IN_USE);
	assert_int_equal(sim_card_set_mode(card, SIM_MODE_EQUAL), -EBUSY);
	assert_int_equal(sim_vf_write_type(&card->vfs[0], 0), 0);
	assert_int_equal(sim_card_set_mode(card, SIM_MODE_MIG), -ENOTSUP);
	assert_int_equal(sim_card_set_mixed(card, false), SIM_NVML_SUCCESS);
	assert_int_equal(sim_card_get_mixed(card, &mixed), SIM_NVML_SUCCESS);
	assert_false(mixed);
	sim_card_set_sriov(card, false);
	assert_int_equal(sim_card_get_mixed(card, &mixed), SIM_NVML_NOT_SUPPORTED);
	assert_int_equal(sim_card_set_mixed(card, true), SIM_NVML_NOT_SUPPORTED);
	sim_free(sim);
}

static void test_events(void **state _unused_)
{
	struct sim *sim = new_sim("l40s", SIM_MODE_MIXED, "580.178.05");
	struct sim_card *card = &sim->cards[0];
	char boot_id[SIM_UUID_MAX];

	place(card, L40S_4Q);
	card->vfs[0].wedged = true;
	card->vfs[3].open_count = 1;
	assert_non_null(sim_card_sriov_blocked(card));
	card->vfs[3].open_count = 0;
	card->node_open_count = 1;
	assert_string_equal(sim_card_sriov_blocked(card), "Cannot obtain unbindLock for 0000:41:00.0");
	card->node_open_count = 0;
	assert_null(sim_card_sriov_blocked(card));
	sim_card_set_sriov(card, false);
	assert_null(sim_find_vf(sim, "0000:41:00.4"));
	sim_card_set_sriov(card, true);
	assert_non_null(sim_find_vf(sim, "0000:41:00.4"));
	assert_null(card->vfs[0].type);
	assert_false(card->vfs[0].wedged);
	assert_int_equal(card->mode, SIM_MODE_EQUAL);
	place(card, L40S_4Q);
	sim_card_remove(card);
	assert_null(sim_find_vf(sim, "0000:41:00.4"));
	sim_card_restore(card);
	assert_null(card->vfs[0].type);
	memcpy(boot_id, sim->boot_id, sizeof(boot_id));
	sim_reboot(sim);
	assert_string_not_equal(boot_id, sim->boot_id);
	assert_int_equal(sim->cards[1].vf_count, 0);
	assert_int_equal(sim->cards[1].mode, SIM_MODE_EQUAL);
	sim_free(sim);
}

static void test_guest(void **state _unused_)
{
	struct sim *sim = new_sim("l40s", SIM_MODE_MIXED, "580.178.05");
	struct sim_vf *vf = &sim->cards[0].vfs[0];

	assert_int_equal(sim_vf_start_guest(vf, 1, "vm", 1000000), -ENODEV);
	assert_int_equal(sim_vf_write_type(vf, L40S_4Q), 0);
	assert_int_equal(sim_vf_start_guest(vf, 1, "vm", 60000000), 0);
	assert_int_equal(sim_vf_start_guest(vf, 2, "vm", 0), -EBUSY);
	assert_true(vf->instance.id >= 0xc0000000);
	assert_ptr_equal(sim_find_instance(sim, vf->instance.id), vf);
	assert_int_equal(sim_instance_placement(vf), SIM_PLACEMENT_NONE); /* not reported yet */
	assert_string_equal(sim_instance_driver(vf), "Not Available");
	sim_vf_stop_guest(vf, true);
	assert_false(vf->wedged);
	assert_int_equal(vf->placement, 0); /* kept until 0 is written */
	assert_int_equal(sim_vf_start_guest(vf, 1, "vm", 0), 0);
	assert_int_equal(sim_instance_placement(vf), 0);
	vf->instance.driver_loaded = true;
	assert_string_equal(sim_instance_driver(vf), "580.178.05");
	sim_vf_stop_guest(vf, false); /* after the window: harmless */
	assert_false(vf->wedged);
	assert_int_equal(sim_vf_start_guest(vf, 1, "vm", 60000000), 0);
	sim_vf_stop_guest(vf, false);
	assert_true(vf->wedged);
	/* Neither a release nor another type mends it. */
	assert_int_equal(sim_vf_write_type(vf, 0), 0);
	assert_int_equal(sim_vf_write_type(vf, L40S_2Q), 0);
	assert_true(vf->wedged);
	sim_free(sim);
}

static void test_mig(void **state _unused_)
{
	struct sim *sim = new_sim("h100-80", SIM_MODE_MIG, "580.178.05");
	struct sim_card *card = &sim->cards[0];
	const char *whole[] = { "7g.80gb" }, *too_many[] = { "4g.40gb", "4g.40gb" };
	const struct sim_type *types[SIM_TYPES_MAX];
	struct sim_placements p;

	assert_false(lists(&card->vfs[0], 832)); /* 80C is time-sliced */
	assert_true(lists(&card->vfs[0], 823));	 /* 3-40C */
	assert_int_equal(place(card, 821), SIM_PLACEMENT_NONE);
	assert_int_equal(card->vfs[0].gi, 3);
	assert_int_equal(place(card, 821), SIM_PLACEMENT_NONE);
	assert_int_equal(card->vfs[1].gi, 4);
	assert_int_equal(sim_vf_write_type(&card->vfs[2], 821), -EIO);
	assert_int_equal(sim_vf_write_type(&card->vfs[2], 832), -EIO);
	assert_int_equal(sim_card_creatable_placements(card, card->vfs[0].type, &p), SIM_NVML_NOT_SUPPORTED);
	assert_int_equal(sim_card_set_gis(card, whole, 1), -EBUSY);
	assert_int_equal(sim_vf_write_type(&card->vfs[0], 0), 0);
	assert_int_equal(sim_vf_write_gi(&card->vfs[1], 3), 0);
	assert_int_equal(sim_vf_write_type(&card->vfs[1], 0), 0);
	assert_int_equal(sim_card_set_gis(card, too_many, 2), -EINVAL);
	assert_int_equal(sim_card_set_gis(card, whole, 1), 0);
	assert_int_equal(sim_card_creatable_types(card, types), 1);
	assert_int_equal(types[0]->id, 825);
	/* An SR-IOV cycle takes the instances, not the mode. */
	sim_card_set_sriov(card, false);
	sim_card_set_sriov(card, true);
	assert_int_equal(card->mode, SIM_MODE_MIG);
	assert_int_equal(sim_card_creatable_types(card, types), 0);
	sim_free(sim);
}

static void test_mig_time_slicing(void **state _unused_)
{
	struct sim *sim = new_sim("rtx-pro-6000", SIM_MODE_MIG, "580.178.05");
	struct sim_card *card = &sim->cards[0];

	for (uint32_t i = 0; i < 24; i++) { /* DC-1-2Q: 12 in each of two 24 GB instances */
		assert_int_equal(place(card, 1546), i % 12 * 2);
		assert_int_equal(card->vfs[i].gi, i < 12 ? 2 : 3);
	}
	assert_int_equal(sim_vf_write_type(&card->vfs[40], 1546), -EIO);
	sim_free(sim);
}

static void test_blackwell(void **state _unused_)
{
	struct sim *sim = new_sim("rtx-pro-6000", SIM_MODE_EQUAL, "580.105.06");
	struct sim_card *card = &sim->cards[0];

	assert_string_equal(card->vfs[0].address, "0000:41:00.2");
	assert_string_equal(card->vfs[47].address, "0000:41:06.1");
	/* Seen on a real host: 3Q and 3A side by side, 6Q refused; placements 0 and 3. */
	assert_int_equal(place(card, 1519), 0);
	assert_int_equal(place(card, 1520), 3);
	assert_int_equal(sim_vf_write_type(&card->vfs[2], 1523), -EIO);
	assert_int_equal(sim_vf_write_type(&card->vfs[2], 1518), -EIO); /* 2B has another profile size */
	sim_free(sim);
}

/* At most 32 vGPUs outside MIG, whatever would fit. */
static void test_card_limit(void **state _unused_)
{
	struct sim *sim = new_sim("rtx-pro-6000", SIM_MODE_MIXED, "580.105.06");
	struct sim_card *card = &sim->cards[0];
	char ids[256];

	for (int i = 0; i < 31; i++)
		place(card, 1518);
	assert_true(nvml_lists(card, 1518));
	place(card, 1518);
	assert_int_equal(free_of(card, 1518, ids), 0);
	assert_int_equal(sim_vf_write_type(&card->vfs[40], 1518), -EIO);
	sim_free(sim);
}

static void test_addresses(void **state _unused_)
{
	struct sim_config config = { .root = "/nowhere", .model = "l40s", .driver = "580.178.05", .cards = 2,
				     .vfs = 64, .sriov = true, .addresses = "0001:41:00.0,10000:C1:1f.0",
				     .numa = "1,-1" };
	struct error err = ERROR_INIT;
	struct sim *sim = NULL;

	assert_int_equal(sim_new(&config, &sim, &err), 0);
	assert_string_equal(sim->cards[0].vfs[63].address, "0001:41:08.3");
	assert_string_equal(sim->cards[1].address, "10000:c1:1f.0");
	assert_string_equal(sim->cards[1].vfs[4].address, "10000:c2:00.0"); /* over the bus's end */
	assert_int_equal(sim->cards[0].numa_node, 1);
	assert_int_equal(sim->cards[1].numa_node, -1);
	assert_ptr_equal(sim_find_card(sim, "1:41:0.0"), &sim->cards[0]);
	assert_ptr_equal(sim_find_vf(sim, "10000:C2:00.0"), &sim->cards[1].vfs[4]);
	assert_null(sim_find_card(sim, "0000:41:00.0"));
	assert_null(sim_find_card(sim, "nonsense"));
	sim_free(sim);
	sim = NULL;
	config.addresses = "0000:41:00.0,0000:41:00.0";
	assert_int_equal(sim_new(&config, &sim, &err), -EINVAL);
	config.addresses = "0000:41:00.0";
	assert_int_equal(sim_new(&config, &sim, &err), -EINVAL);
	config.addresses = NULL;
	config.mode = SIM_MODE_MIG;
	assert_int_equal(sim_new(&config, &sim, &err), -EINVAL);
	config.mode = SIM_MODE_MIXED;
	config.driver = "535.1";
	assert_int_equal(sim_new(&config, &sim, &err), -EINVAL);
	assert_null(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_geometry),
		cmocka_unit_test(test_geometry_edges),
		cmocka_unit_test(test_type_numbers),
		cmocka_unit_test(test_hidden_placements),
		cmocka_unit_test(test_fill_mixed_sizes),
		cmocka_unit_test(test_small_ones_in_the_way),
		cmocka_unit_test(test_release_gives_back),
		cmocka_unit_test(test_type_errnos),
		cmocka_unit_test(test_steer),
		cmocka_unit_test(test_equal_size),
		cmocka_unit_test(test_equal_size_without_placements),
		cmocka_unit_test(test_branch_550),
		cmocka_unit_test(test_mode_rules),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_guest),
		cmocka_unit_test(test_mig),
		cmocka_unit_test(test_mig_time_slicing),
		cmocka_unit_test(test_blackwell),
		cmocka_unit_test(test_card_limit),
		cmocka_unit_test(test_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
