/* SPDX-License-Identifier: Apache-2.0 */
/* The driver model: what upstream and the driver's source say about it. */
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

#define L40S_1Q	 1147
#define L40S_2Q	 1148
#define L40S_4Q	 1150
#define L40S_6Q	 1151
#define L40S_8Q	 1152
#define L40S_12Q 1153
#define L40S_16Q 1154
#define L40S_24Q 1155
#define L40S_48Q 1156

static void ids_text(const struct sim_placements *p, char ret[256])
{
	size_t n = 0;

	ret[0] = '\0';
	for (uint32_t i = 0; i < p->count; i++)
		n += (size_t)snprintf(ret + n, 256 - n, "%s%u", i ? " " : "", p->id[i]);
}

static struct sim *new_sim(const char *model, enum sim_mode mode, const char *driver)
{
	struct sim_config config = { .root = "/nowhere",
				     .model = model,
				     .driver = driver,
				     .cards = 2,
				     .mode = mode,
				     .sriov = true };
	struct error err = ERROR_INIT;
	struct sim *sim = NULL;

	if (sim_new(&config, &sim, &err) < 0)
		fail_msg("%s", error_text(&err));
	return sim;
}

static uint32_t free_of(const struct sim_card *card, uint32_t type_id, char ret[256])
{
	struct sim_placements p = { 0 };

	assert_int_equal(
		sim_card_creatable_placements(card, sim_model_type(card->model, type_id), &p),
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
	static const uint32_t first[] = { 0, 8, 12, 20, 24, 32 },
			      second[] = { 4, 6, 16, 18, 28, 30 };
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
		assert_int_equal(sim_card_creatable_placements(card, type, &p),
				 SIM_NVML_NOT_SUPPORTED);
		assert_int_equal(sim_card_supported_placements(card, type, false, &p),
				 SIM_NVML_NOT_SUPPORTED);
		assert_int_equal(sim_card_supported_placements(card, type, true, &p),
				 SIM_NVML_SUCCESS);
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
	assert_string_equal(sim_card_sriov_blocked(card),
			    "Cannot obtain unbindLock for 0000:41:00.0");
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
	assert_int_equal(sim_card_creatable_placements(card, card->vfs[0].type, &p),
			 SIM_NVML_NOT_SUPPORTED);
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
	assert_int_equal(sim_vf_write_type(&card->vfs[2], 1518),
			 -EIO); /* 2B has another profile size */
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
	struct sim_config config = { .root = "/nowhere",
				     .model = "l40s",
				     .driver = "580.178.05",
				     .cards = 2,
				     .vfs = 64,
				     .sriov = true,
				     .addresses = "0001:41:00.0,10000:C1:1f.0",
				     .numa = "1,-1" };
	static const char *const no_nodes[] = { "x", "0x1", "", "0,-2", "0,4294967296" };
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
	for (size_t i = 0; i < ARRAY_SIZE(no_nodes); i++) {
		config.numa = no_nodes[i];
		assert_int_equal(sim_new(&config, &sim, &err), -EINVAL);
	}
	config.numa = NULL;
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
