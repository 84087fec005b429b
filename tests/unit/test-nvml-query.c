/* SPDX-License-Identifier: Apache-2.0 */
/* The query against a library of plain functions. */
#include "nvml-fake-library.h"

#include "base/clock.h"
#include "nvml/query.h"

#define SECOND USEC_PER_SEC

static const struct pci_addr first = { .bus = 0x41 };
static const struct pci_addr second = { .bus = 0x81 };
static struct nvml_session *session;
static struct nvml_card card;

/* Two cards in mixed-size mode, with L40S-48Q, -24Q and -4Q. */
static int setup(void **state _unused_)
{
	static const struct fake_type types[] = {
		{ .id = 1155,
		  .name = "NVIDIA L40S-48Q",
		  .mib = 49152,
		  .max = 1,
		  .size = 48,
		  .n_supported = 1,
		  .supported = { 0 },
		  .n_creatable = 0 },
		{ .id = 1154,
		  .name = "NVIDIA L40S-24Q",
		  .mib = 24576,
		  .max = 2,
		  .size = 24,
		  .n_supported = 2,
		  .supported = { 0, 24 },
		  .n_creatable = 1,
		  .creatable = { 24 } },
		{ .id = 1149,
		  .name = "NVIDIA L40S-4Q",
		  .mib = 4096,
		  .max = 12,
		  .size = 4,
		  .n_supported = 8,
		  .supported = { 0, 8, 12, 20, 24, 32, 36, 44 },
		  .n_creatable = 3,
		  .creatable = { 44, 12, 24 } },
	};

	memset(&fake, 0, sizeof fake);
	fake.n_cards = 2;
	fake.cards[0].address = "0000:41:00.0";
	fake.cards[1].address = "0000:81:00.0";
	for (unsigned i = 0; i < 2; i++) {
		fake.cards[i].mode = NVML_ABI_MODE_ENABLED;
		fake.cards[i].n_types = ARRAY_SIZE(types);
		memcpy(fake.cards[i].types, types, sizeof types);
	}
	/* What a card's answer holds must not come from the one before. */
	memset(&card, 0xee, sizeof card);
	return nvml_session_new(&fake_api, &session);
}

static int teardown(void **state _unused_)
{
	session = nvml_session_free(session);
	return 0;
}

static struct nvml_end_message start_at(uint64_t now)
{
	struct nvml_end_message end = { 0 };

	(void)!nvml_session_start(session, now, &end);
	return end;
}

static struct nvml_end_message query_at(uint64_t now, struct pci_addr address)
{
	struct nvml_end_message end = start_at(now);

	if (end.reason == NVML_REASON_NONE) {
		nvml_session_query_card(session, address, &card);
		nvml_session_finish(session, now, &end);
	}
	return end;
}

static void query(void)
{
	(void)query_at(SECOND, first);
}

static void test_mixed(void **state _unused_)
{
	struct nvml_end_message end = query_at(SECOND, first);

	assert_int_equal(end.reason, NVML_REASON_NONE);
	assert_string_equal(end.driver, "580.178.05");
	assert_false(end.restart);
	assert_int_equal(card.reason, NVML_REASON_NONE);
	assert_int_equal(card.mode, NVML_MODE_MIXED);
	assert_string_equal(card.name, "NVIDIA L40S");
	assert_int_equal(card.region, 48);
	assert_int_equal(card.n_types, 3);
	assert_int_equal(card.types[0].placement.creatable, 0);
	assert_int_equal(card.types[1].placement.creatable, 2);
	assert_string_equal(card.types[2].profile.name, "NVIDIA L40S-4Q");
	assert_int_equal(card.types[2].profile.framebuffer_mb, 4096);
	assert_int_equal(card.types[2].max_instances, 12);
	assert_int_equal(card.types[2].placement.size, 4);
	assert_int_equal(card.types[2].placement.n_ids, 8);
	assert_int_equal(card.types[2].placement.ids[3], 20);
	/* 12, 24 and 44 in the order of the supported ones */
	assert_int_equal(card.types[2].placement.creatable, 0x94);
	assert_true(card.instances_known);
	assert_int_equal(card.n_instances, 0);
}

static void test_asked_once(void **state _unused_)
{
	query();
	query();
	assert_int_equal(fake.inits, 1);
	assert_int_equal(fake.calls_supported, 3);
	assert_int_equal(fake.calls_name, 3);
	assert_int_equal(fake.calls_creatable, 6);
	/* Another list of the same length counts as another list. */
	fake.cards[0].types[2].id = 1150;
	query();
	assert_int_equal(fake.calls_supported, 6);
	assert_int_equal(card.types[2].profile.type_id, 1150);
	/* Another mode and back. */
	fake.cards[0].mode = 0;
	query();
	assert_int_equal(fake.calls_supported, 6);
	fake.cards[0].mode = NVML_ABI_MODE_ENABLED;
	query();
	assert_int_equal(fake.calls_supported, 9);
}

static void test_list_v1(void **state _unused_)
{
	fake.v1_only = true;
	query();
	assert_int_equal(card.reason, NVML_REASON_NONE);
	assert_int_equal(card.types[2].placement.size, 4);
	assert_int_equal(card.types[2].placement.creatable, 0x94);
	assert_int_equal(fake.calls_v2, 1); /* and never again */
	/* A library that takes neither is asked with v2 first the next time. */
	fake.v1_only = false;
	query();
	assert_int_equal(card.reason, NVML_REASON_ERROR);
	assert_int_equal(card.nvml_error, NVML_CODE_ARGUMENT_VERSION_MISMATCH);
	query();
	assert_int_equal(card.reason, NVML_REASON_NONE);
}

static void test_list_grows(void **state _unused_)
{
	fake.cards[0].list_retries = 2;
	query();
	assert_int_equal(card.reason, NVML_REASON_NONE);
	assert_int_equal(card.n_types, 3);
	fake.cards[0].list_retries = 100;
	query();
	assert_int_equal(card.reason, NVML_REASON_ERROR);
	assert_int_equal(card.nvml_error, NVML_CODE_INSUFFICIENT_SIZE);
}

static void test_lost_card(void **state _unused_)
{
	struct nvml_end_message end;

	fake.cards[0].handle_code = NVML_CODE_GPU_IS_LOST;
	end = query_at(SECOND, first);
	assert_int_equal(end.reason, NVML_REASON_NONE);
	assert_int_equal(card.reason, NVML_REASON_ERROR);
	assert_int_equal(card.nvml_error, 15);
	assert_non_null(strstr(card.text, "GPU is lost (15)"));
	assert_int_equal(card.n_types, 0);
	query_at(SECOND, second);
	assert_int_equal(card.reason, NVML_REASON_NONE);
	/* Then only its placement query fails. */
	fake.cards[0].handle_code = 0;
	fake.cards[0].types[1].creatable_code = NVML_CODE_UNKNOWN;
	query();
	assert_int_equal(card.reason, NVML_REASON_ERROR);
	assert_int_equal(card.nvml_error, 999);
	assert_int_equal(fake.inits, 1);
}

static void test_fresh_helper_for_sick_card(void **state _unused_)
{
	fake.cards[0].handle_code = NVML_CODE_NOT_FOUND;
	assert_false(query_at(10 * SECOND, first).restart);
	assert_false(query_at(70 * SECOND - 1, first).restart);
	assert_true(query_at(70 * SECOND, first).restart);
	fake.cards[0].handle_code = 0;
	assert_false(query_at(71 * SECOND, first).restart);
}

static void test_mismatch(void **state _unused_)
{
	struct nvml_end_message end;

	fake.init_code = NVML_CODE_LIB_RM_VERSION_MISMATCH;
	end = start_at(SECOND);
	assert_int_equal(end.reason, NVML_REASON_LIBRARY);
	assert_int_equal(end.nvml_error, 18);
	assert_true(end.restart);
	assert_non_null(strstr(end.text, "mismatch"));
	/* The driver was replaced under an initialised session. */
	fake.init_code = 0;
	fake.cards[0].handle_code = NVML_CODE_LIB_RM_VERSION_MISMATCH;
	end = query_at(SECOND, first);
	assert_int_equal(end.reason, NVML_REASON_LIBRARY);
	assert_true(end.restart);
}

static void test_init_fails(void **state _unused_)
{
	static const int codes[] = { 4, NVML_CODE_DRIVER_NOT_LOADED, NVML_CODE_UNKNOWN };

	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		struct nvml_end_message end;

		fake.init_code = codes[i];
		end = start_at(SECOND);
		assert_int_equal(end.reason, NVML_REASON_ERROR);
		assert_int_equal(end.nvml_error, codes[i]);
		assert_false(end.restart);
	}
	fake.init_code = 0;
	assert_int_equal(start_at(SECOND).reason, NVML_REASON_NONE);
	assert_int_equal(fake.inits, 4);
	assert_int_equal(fake.shutdowns, 0);
	/* The driver goes away later: initialised anew for the next query. */
	fake.cards[0].handle_code = NVML_CODE_UNINITIALIZED;
	assert_int_equal(query_at(SECOND, first).reason, NVML_REASON_NONE);
	assert_int_equal(card.reason, NVML_REASON_ERROR);
	assert_int_equal(fake.shutdowns, 1);
	fake.cards[0].handle_code = 0;
	query();
	assert_int_equal(card.reason, NVML_REASON_NONE);
	assert_int_equal(fake.inits, 5);
}

static void test_equal_size(void **state _unused_)
{
	fake.cards[0].mode = 0;
	query();
	assert_int_equal(card.reason, NVML_REASON_EQUAL_SIZE);
	assert_int_equal(card.nvml_error, 0);
	assert_int_equal(card.mode, NVML_MODE_EQUAL);
	assert_int_equal(card.n_types, 3);
	assert_int_equal(card.types[2].max_instances, 12);
	assert_int_equal(card.types[2].placement.n_ids, 0);
	assert_int_equal(card.types[2].placement.size, 0);
	assert_int_equal(card.types[2].placement.type_id, 1149);
	assert_int_equal(card.region, 48);
	assert_int_equal(fake.calls_supported + fake.calls_creatable, 0);
}

static void test_mig_and_unsupported(void **state _unused_)
{
	fake.cards[0].mode_code = NVML_CODE_NOT_SUPPORTED;
	fake.cards[0].mig = true;
	query();
	assert_int_equal(card.reason, NVML_REASON_MIG);
	assert_int_equal(card.mode, NVML_MODE_MIG);
	assert_int_equal(card.n_types, 3);
	/* Another error is not about MIG. */
	fake.cards[0].mode_code = NVML_CODE_UNKNOWN;
	query();
	assert_int_equal(card.reason, NVML_REASON_ERROR);
	assert_int_equal(card.nvml_error, 999);
	fake.cards[0].mode_code = NVML_CODE_NOT_SUPPORTED;
	fake.cards[0].mig = false;
	query();
	assert_int_equal(card.reason, NVML_REASON_UNSUPPORTED);
	assert_int_equal(card.nvml_error, 3);
	assert_int_equal(card.mode, NVML_MODE_EQUAL);
	/* Not a vGPU host. */
	fake.cards[0].list_code = NVML_CODE_NOT_SUPPORTED;
	query();
	assert_int_equal(card.reason, NVML_REASON_UNSUPPORTED);
	assert_int_equal(card.mode, NVML_MODE_UNKNOWN);
	assert_int_equal(card.n_types, 0);
}

static void test_no_placement_support(void **state _unused_)
{
	for (unsigned i = 0; i < 3; i++)
		fake.cards[0].types[i].supported_code = NVML_CODE_NOT_SUPPORTED;
	query();
	assert_int_equal(card.reason, NVML_REASON_UNSUPPORTED);
	assert_int_equal(card.nvml_error, 3);
	/* One type without placements costs that type. */
	fake.cards[0].types[0].supported_code = fake.cards[0].types[2].supported_code = 0;
	fake.cards[0].types[1].id = 7;
	fake.cards[0].types[0].creatable_code = NVML_CODE_INVALID_ARGUMENT;
	/* A placement beyond any card. */
	fake.cards[0].types[2].supported[8] = 509;
	fake.cards[0].types[2].n_supported = 9;
	query();
	assert_int_equal(card.reason, NVML_REASON_NONE);
	assert_int_equal(card.types[0].placement.size, 0);
	assert_int_equal(card.types[0].placement.n_ids, 0);
	assert_int_equal(card.types[2].placement.n_ids, 8);
	assert_int_equal(card.types[1].placement.size, 0);
	assert_int_equal(card.types[1].placement.n_ids, 0);
	assert_int_equal(card.types[2].placement.creatable, 0x94);
}

static void test_types_not_there_yet(void **state _unused_)
{
	fake.cards[0].n_types = 0;
	query();
	assert_int_equal(card.reason, NVML_REASON_ERROR);
	fake.cards[0].n_types = 3;
	query();
	assert_int_equal(card.reason, NVML_REASON_NONE);
	assert_int_equal(card.n_types, 3);
}

static void test_many_types(void **state _unused_)
{
	struct nvml_device *d = &fake.cards[0];

	for (unsigned n = 127; n <= 130; n++) {
		for (unsigned i = 0; i < n; i++) {
			d->types[i] = d->types[2];
			d->types[i].id = 2000 + i;
		}
		d->n_types = n;
		query();
		assert_int_equal(card.reason, NVML_REASON_NONE);
		assert_int_equal(card.n_types, MIN(n, 128U));
		assert_int_equal(card.types[126].profile.type_id, 2126);
		assert_int_equal(card.types[126].placement.creatable, 0x94);
	}
}

static void test_description_fails(void **state _unused_)
{
	fake.cards[0].types[1].describe_code = NVML_CODE_NOT_FOUND;
	query();
	assert_int_equal(card.reason, NVML_REASON_NONE);
	assert_string_equal(card.types[1].profile.name, "");
	/* It is not remembered that way. */
	fake.cards[0].types[1].describe_code = 0;
	query();
	assert_string_equal(card.types[1].profile.name, "NVIDIA L40S-24Q");
	fake.cards[1].types[1].describe_code = NVML_CODE_UNKNOWN;
	fake.cards[1].types[1].id = 5;
	query_at(SECOND, second);
	assert_int_equal(card.reason, NVML_REASON_ERROR);
	assert_int_equal(card.nvml_error, 999);
}

static void test_unknown_creatable_id(void **state _unused_)
{
	struct fake_type *t = &fake.cards[0].types[2];

	query();
	/* The table was out of date: it is asked again in the same query. */
	t->supported[t->n_supported++] = 40;
	t->creatable[t->n_creatable++] = 40;
	query();
	assert_int_equal(fake.calls_supported, 6);
	assert_int_equal(card.types[2].placement.n_ids, 9);
	assert_int_equal(card.types[2].placement.creatable, 0x194);
	/* The driver insists on one that it does not support: believed, once asked again. */
	t->creatable[t->n_creatable++] = 16;
	query();
	assert_int_equal(fake.calls_supported, 9);
	assert_int_equal(card.types[2].placement.n_ids, 10);
	assert_int_equal(card.types[2].placement.ids[9], 16);
	assert_int_equal(card.types[2].placement.creatable, 0x394);
	query();
	assert_int_equal(fake.calls_supported, 9);
	assert_int_equal(card.types[2].placement.n_ids, 10);
	/* One beyond any card is passed over. */
	t->creatable[t->n_creatable - 1] = 600;
	query();
	assert_int_equal(card.types[2].placement.n_ids, 9);
	assert_int_equal(card.reason, NVML_REASON_NONE);
}

static void test_mode_changes_under_query(void **state _unused_)
{
	query();
	for (unsigned i = 0; i < 3; i++)
		fake.cards[0].types[i].creatable_code = NVML_CODE_NOT_SUPPORTED;
	query();
	assert_int_equal(card.reason, NVML_REASON_UNSUPPORTED);
	assert_int_equal(fake.calls_creatable, 3 + 3 + 3);
	query();
	assert_int_equal(fake.calls_creatable, 12);
	for (unsigned i = 0; i < 3; i++)
		fake.cards[0].types[i].creatable_code = 0;
	query();
	assert_int_equal(card.reason, NVML_REASON_NONE);
}

static void test_stale_count(void **state _unused_)
{
	fake.cards[0].types[1].stale_count = true;
	query();
	assert_int_equal(card.reason, NVML_REASON_NONE);
	assert_int_equal(card.types[1].placement.creatable, 0);
}

static void test_instances(void **state _unused_)
{
	static const struct fake_instance instances[] = {
		{ .id = 3251634190, .type = 1149, .placement = 8, .driver = "580.105.08" },
		{ .id = 3251637554, .type = 1149, .placement = 0xffff, .driver = "Not Available" },
		{ .id = 3251637555, .type = 1149, .placement = 12, .driver = "N/A" },
		{ .id = 3251637560, .type = 1149, .placement = 600, .driver = "N/A" },
		{ .id = 3251637556, .type = 1149, .placement = 0, .driver = "" },
		{ .id = 3251637557, .type = 1149, .code = NVML_CODE_NOT_FOUND },
		{ .id = 3251637558,
		  .type = 1149,
		  .placement = 20,
		  .driver_code = NVML_CODE_DRIVER_NOT_LOADED },
		{ .id = 3251637559, .type = 1154, .placement = 24, .driver = "550.90.07" },
	};
	static const struct nvml_instance expected[] = {
		{ 3251634190, 1149, 8, true },	 { 3251637554, 1149, PLACEMENT_NONE, false },
		{ 3251637555, 1149, 12, false }, { 3251637560, 1149, PLACEMENT_NONE, false },
		{ 3251637556, 1149, 0, false },	 { 3251637558, 1149, 20, false },
		{ 3251637559, 1154, 24, true },
	};

	fake.cards[0].n_instances = ARRAY_SIZE(instances);
	memcpy(fake.cards[0].instances, instances, sizeof instances);
	query();
	assert_true(card.instances_known);
	assert_int_equal(card.n_instances, ARRAY_SIZE(expected));
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
		assert_int_equal(card.instances[i].id, expected[i].id);
		assert_int_equal(card.instances[i].type_id, expected[i].type_id);
		assert_int_equal(card.instances[i].placement_id, expected[i].placement_id);
		assert_int_equal(card.instances[i].guest_driver, expected[i].guest_driver);
	}
}

static void test_instances_unknown(void **state _unused_)
{
	static const int codes[] = { NVML_CODE_INVALID_STATE, NVML_CODE_UNKNOWN };
	struct nvml_device *d = &fake.cards[0];

	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		d->active_code = codes[i];
		query();
		assert_int_equal(card.reason, NVML_REASON_NONE);
		assert_false(card.instances_known);
	}
	d->active_code = 0;
	d->n_instances = 2;
	d->instances[0] = (struct fake_instance){ .id = 9, .type = 1149 };
	d->instances[1] = (struct fake_instance){ .id = 10, .code = NVML_CODE_UNKNOWN };
	query();
	assert_int_equal(card.reason, NVML_REASON_NONE);
	assert_false(card.instances_known);
	assert_int_equal(card.n_instances, 0);
	d->instances[1] = (struct fake_instance){ .id = 10, .driver_code = NVML_CODE_UNKNOWN };
	query();
	assert_false(card.instances_known);
}

static void test_instances_limit(void **state _unused_)
{
	struct nvml_device *d = &fake.cards[0];

	for (unsigned i = 0; i < 65; i++)
		d->instances[i] = (struct fake_instance){ .id = 100 + i, .type = 1149 };
	d->n_instances = 64;
	query();
	assert_true(card.instances_known);
	assert_int_equal(card.n_instances, 64);
	d->n_instances = 65;
	query();
	assert_false(card.instances_known);
}

static unsigned calls_left;

static bool is_enough(void)
{
	return calls_left-- == 0;
}

/* Given up in the middle of a card, which costs nothing that the next query needs. */
static void test_given_up(void **state _unused_)
{
	struct nvml_end_message end = start_at(SECOND);

	nvml_session_set_interrupted(session, is_enough);
	for (unsigned i = 0; i < 3; i++) {
		calls_left = i;
		assert_false(nvml_session_query_card(session, first, &card));
	}
	calls_left = 3;
	assert_true(nvml_session_query_card(session, first, &card));
	assert_int_equal(card.reason, NVML_REASON_NONE);
	assert_int_equal(card.n_types, 3);
	assert_int_equal(placement_count(card.types[2].placement.creatable), 3);
	nvml_session_finish(session, SECOND, &end);
	assert_int_equal(end.reason, NVML_REASON_NONE);
}

static void test_optional_symbols(void **state _unused_)
{
	struct nvml_api api = fake_api;
	struct nvml_end_message end = { 0 };
	struct nvml_session *s;

	api.driver_version = NULL;
	api.device_name = NULL;
	api.device_mig_mode = NULL;
	api.active_instances = NULL;
	assert_int_equal(nvml_session_new(&api, &s), 0);
	assert_true(nvml_session_start(s, SECOND, &end));
	nvml_session_query_card(s, first, &card);
	assert_int_equal(card.reason, NVML_REASON_NONE);
	assert_string_equal(card.name, "");
	assert_false(card.instances_known);
	fake.cards[0].mode_code = NVML_CODE_NOT_SUPPORTED;
	nvml_session_query_card(s, first, &card);
	assert_int_equal(card.reason, NVML_REASON_UNSUPPORTED);
	nvml_session_finish(s, SECOND, &end);
	assert_string_equal(end.driver, "");
	s = nvml_session_free(s);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_mixed),
		TEST(test_asked_once),
		TEST(test_list_v1),
		TEST(test_list_grows),
		TEST(test_lost_card),
		TEST(test_fresh_helper_for_sick_card),
		TEST(test_mismatch),
		TEST(test_init_fails),
		TEST(test_equal_size),
		TEST(test_mig_and_unsupported),
		TEST(test_no_placement_support),
		TEST(test_types_not_there_yet),
		TEST(test_many_types),
		TEST(test_description_fails),
		TEST(test_unknown_creatable_id),
		TEST(test_mode_changes_under_query),
		TEST(test_stale_count),
		TEST(test_instances),
		TEST(test_instances_unknown),
		TEST(test_instances_limit),
		TEST(test_given_up),
		TEST(test_optional_symbols),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
