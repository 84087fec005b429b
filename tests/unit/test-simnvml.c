/* SPDX-License-Identifier: Apache-2.0 */
/* What the calls answer: sessions, handles, buffer and version rules, placements, instances. */
#include "simnvml-host.h"

static void test_session(void **state)
{
	struct host h;
	unsigned n = 0;
	char text[80];

	(void)state;
	host_start(&h, "580.178.05", SIM_MODE_MIXED);
	host_load(&h);
	assert_int_equal(NVML(&h, nvmlDeviceGetCount_v2)(&n), 1);
	assert_int_equal(NVML(&h, nvmlShutdown)(), 1);
	assert_int_equal(NVML(&h, nvmlInit_v2)(), 0);
	assert_int_equal(NVML(&h, nvmlInitWithFlags)(1), 0);
	assert_int_equal(NVML(&h, nvmlInitWithFlags)(64), 2);
	assert_int_equal(NVML(&h, nvmlShutdown)(), 0);
	assert_int_equal(NVML(&h, nvmlDeviceGetCount_v2)(&n), 0);
	assert_int_equal(n, 2);
	assert_int_equal(NVML(&h, nvmlSystemGetDriverVersion)(text, sizeof(text)), 0);
	assert_string_equal(text, "580.178.05");
	assert_int_equal(NVML(&h, nvmlSystemGetDriverVersion)(text, 10), 7);
	assert_int_equal(NVML(&h, nvmlShutdown)(), 0);
	assert_int_equal(NVML(&h, nvmlDeviceGetCount_v2)(&n), 1);

	set_fault(&h, SIM_FAULT_NVML_ERROR, 18, -1);
	assert_int_equal(NVML(&h, nvmlInit_v2)(), 18);
	set_fault(&h, SIM_FAULT_NVML_ERROR, 0, -1);
	assert_int_equal(NVML(&h, nvmlInit_v2)(), 0);
	assert_int_equal(NVML(&h, nvmlShutdown)(), 0);
	host_stop(&h);
}

static void test_bus_ids(void **state)
{
	static const struct {
		const char *text;
		int r;
	} cases[] = {
		{ "0000:41:00.0", 0 },
		{ "00000000:41:00.0", 0 },
		{ "0:41:0.0", 0 },
		{ "41:00.0", 0 },
		{ "0000:41:00", 0 },
		{ "0000:81:00.0", 0 },
		{ "0000:41:00.4", 6 },
		{ "0000:42:00.0", 6 },
		{ "0001:41:00.0", 6 },
		{ "", 2 },
		{ "41", 2 },
		{ "41:00", 2 },
		{ "0000:41:00.0.0", 2 },
		{ "0000:41:00.0 ", 2 },
		{ "0000.41.00.0", 2 },
		{ "0000:141:00.0", 2 },
		{ "0000:41:20.0", 2 },
		{ "0000:41:00.8", 2 },
		{ "0000:4x:00.0", 2 },
		{ "1ffffffff:41:00.0", 2 },
		{ "0000:41:00.", 2 },
	};
	nvmlPciInfo_t pci;
	nvmlDevice_t dev;
	struct host h;

	(void)state;
	host_start(&h, "580.178.05", SIM_MODE_MIXED);
	host_load(&h);
	assert_int_equal(NVML(&h, nvmlInit_v2)(), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (NVML(&h, nvmlDeviceGetHandleByPciBusId_v2)(cases[i].text, &dev) != cases[i].r)
			fail_msg("%s", cases[i].text);
	assert_int_equal(NVML(&h, nvmlDeviceGetHandleByIndex_v2)(2, &dev), 2);
	assert_int_equal(NVML(&h, nvmlDeviceGetPciInfo_v3)(card(&h, 1), &pci), 0);
	assert_string_equal(pci.busId, "00000000:81:00.0");
	assert_string_equal(pci.busIdLegacy, "0000:81:00.0");
	assert_int_equal(pci.pciDeviceId & 0xffff, 0x10de);
	assert_int_equal(NVML(&h, nvmlDeviceGetPciInfo_v3)((nvmlDevice_t)&pci, &pci), 2);
	assert_int_equal(NVML(&h, nvmlDeviceGetPciInfo_v3)(NULL, &pci), 2);
	assert_int_equal(NVML(&h, nvmlShutdown)(), 0);
	host_stop(&h);
}

/* The vector of sysfs against NVML: what is free after six 4Q, and between 12 and 14 vGPUs. */
static void test_placements(void **state)
{
	unsigned ids[64], count = 0;
	nvmlVgpuPlacementList_v2_t list = { .version = 0x02000020, .mode = 0 };
	struct host h;

	(void)state;
	host_start(&h, "580.178.05", SIM_MODE_MIXED);
	host_load(&h);
	assert_int_equal(NVML(&h, nvmlInit_v2)(), 0);
	CREATABLE(&h, L40S_4Q, 0, 8, 12, 20, 24, 32, 36, 44);
	for (unsigned i = 0; i < 6; i++)
		write_type(&h, i, L40S_4Q);
	CREATABLE(&h, L40S_4Q, 36, 44);
	for (unsigned i = 6; i < 12; i++)
		write_type(&h, i, L40S_2Q);
	CREATABLE(&h, L40S_4Q, 36, 44);
	write_type(&h, 12, L40S_4Q);
	CREATABLE(&h, L40S_4Q, 44);
	write_type(&h, 13, L40S_4Q);
	check_creatable(&h, L40S_4Q, NULL, 0);

	/* Too little room: the number, no elements. */
	assert_int_equal(
		NVML(&h, nvmlDeviceGetVgpuTypeSupportedPlacements)(card(&h, 0), L40S_4Q, &list), 7);
	assert_int_equal(list.count, 8);
	list.placementIds = ids;
	ids[0] = 77;
	list.count = 7;
	assert_int_equal(
		NVML(&h, nvmlDeviceGetVgpuTypeSupportedPlacements)(card(&h, 0), L40S_4Q, &list), 7);
	assert_int_equal(ids[0], 77);
	assert_int_equal(
		NVML(&h, nvmlDeviceGetVgpuTypeSupportedPlacements)(card(&h, 0), L40S_4Q, &list), 0);
	assert_int_equal(list.placementSize, 4);
	assert_int_equal(ids[1], 8);
	list.mode = 1;
	list.count = 64;
	assert_int_equal(
		NVML(&h, nvmlDeviceGetVgpuTypeSupportedPlacements)(card(&h, 0), L40S_4Q, &list), 0);
	assert_int_equal(list.count, 12);
	list.mode = 2;
	assert_int_equal(
		NVML(&h, nvmlDeviceGetVgpuTypeSupportedPlacements)(card(&h, 0), L40S_4Q, &list), 2);

	assert_int_equal(NVML(&h, nvmlDeviceGetSupportedVgpus)(card(&h, 0), &count, NULL), 7);
	assert_true(count >= 23 && count <= 64);
	count--;
	assert_int_equal(NVML(&h, nvmlDeviceGetSupportedVgpus)(card(&h, 0), &count, ids), 7);
	assert_int_equal(NVML(&h, nvmlDeviceGetSupportedVgpus)(card(&h, 0), &count, ids), 0);
	count = 0;
	assert_int_equal(NVML(&h, nvmlDeviceGetActiveVgpus)(card(&h, 0), &count, NULL), 0);
	assert_int_equal(NVML(&h, nvmlShutdown)(), 0);
	host_stop(&h);
}

static void test_versions(void **state)
{
	unsigned ids[64];
	nvmlVgpuPlacementList_v1_t v1 = { .version = 0x01000018, .placementIds = ids };
	nvmlVgpuPlacementList_v2_t v2 = { .version = 0x02000020, .count = 64, .placementIds = ids };
	nvmlVgpuHeterogeneousMode_t mode = { .version = 0x01000008, .mode = 5 };
	struct host h;

	(void)state;
	for (int new_driver = 0; new_driver < 2; new_driver++) {
		host_start(&h, new_driver ? "580.178.05" : "550.163.02", SIM_MODE_MIXED);
		host_load(&h);
		assert_int_equal(NVML(&h, nvmlInit_v2)(), 0);
		__typeof__(&nvmlDeviceGetVgpuTypeSupportedPlacements) supported = NVML(
			&h, nvmlDeviceGetVgpuTypeSupportedPlacements);

		v1.version = 0x01000018;
		v1.count = 0;
		assert_int_equal(supported(card(&h, 0), L40S_4Q, &v1), 0);
		assert_int_equal(v1.count, 8);
		assert_int_equal(v1.placementSize, 4);
		v2.version = 0x02000020;
		v2.count = 64;
		assert_int_equal(supported(card(&h, 0), L40S_4Q, &v2), new_driver ? 0 : 25);
		v2.version = 0x01000020; /* sizeof v2 as v1: a binding's mistake */
		v2.count = 64;
		assert_int_equal(supported(card(&h, 0), L40S_4Q, &v2), 25);
		assert_int_equal(v2.count, 64);
		assert_int_equal(supported(card(&h, 0), 4711, &v1), 2);

		mode.version = 0x01000008;
		assert_int_equal(NVML(&h, nvmlDeviceGetVgpuHeterogeneousMode)(card(&h, 0), &mode),
				 0);
		assert_int_equal(mode.mode, 1);
		mode.version = 0;
		assert_int_equal(NVML(&h, nvmlDeviceGetVgpuHeterogeneousMode)(card(&h, 0), &mode),
				 25);
		assert_int_equal(NVML(&h, nvmlShutdown)(), 0);
		host_stop(&h);
	}
}

static void test_card_errors(void **state)
{
	nvmlDevice_t first, second;
	char text[96];
	struct host h;

	(void)state;
	host_start(&h, "580.178.05", SIM_MODE_MIXED);
	host_load(&h);
	assert_int_equal(NVML(&h, nvmlInit_v2)(), 0);
	first = card(&h, 0);
	second = card(&h, 1);
	set_fault(&h, SIM_FAULT_NVML_ERROR, 999, 0);
	assert_int_equal(NVML(&h, nvmlDeviceGetName)(first, text, sizeof(text)), 999);
	assert_int_equal(NVML(&h, nvmlDeviceGetName)(second, text, sizeof(text)), 0);
	assert_int_equal(NVML(&h, nvmlDeviceGetHandleByPciBusId_v2)("0000:41:00.0", &first), 0);
	set_fault(&h, SIM_FAULT_NVML_ERROR, 15, 0);
	assert_int_equal(NVML(&h, nvmlDeviceGetHandleByPciBusId_v2)("0000:41:00.0", &first), 15);
	assert_int_equal(NVML(&h, nvmlShutdown)(), 0);
	host_stop(&h);
}

static void run_guest(struct host *h, void *arg)
{
	*(int *)arg = sim_vf_start_guest(&h->sim->cards[0].vfs[0], getpid(), "vm-1", USEC_PER_SEC);
}

static void run_guest_end(struct host *h, void *arg)
{
	(void)arg;
	sim_vf_stop_guest(&h->sim->cards[0].vfs[0], true);
}

static void test_instances(void **state)
{
	unsigned ids[64], count = 64, type = 0, length = 32;
	nvmlVgpuLicenseInfo_t license;
	char text[80];
	struct host h;
	int kind = 0, r = -1;

	(void)state;
	host_start(&h, "580.178.05", SIM_MODE_MIXED);
	host_load(&h);
	assert_int_equal(NVML(&h, nvmlInit_v2)(), 0);
	write_type(&h, 0, L40S_4Q);
	/* Configured is not active. */
	assert_int_equal(NVML(&h, nvmlDeviceGetActiveVgpus)(card(&h, 0), &count, ids), 0);
	assert_int_equal(count, 0);
	in_loop(&h, run_guest, &r);
	assert_int_equal(r, 0);
	count = 64;
	assert_int_equal(NVML(&h, nvmlDeviceGetActiveVgpus)(card(&h, 0), &count, ids), 0);
	assert_int_equal(count, 1);
	assert_true(ids[0] >= 0xc0000000);
	assert_int_equal(NVML(&h, nvmlVgpuInstanceGetType)(ids[0], &type), 0);
	assert_int_equal(type, L40S_4Q);
	assert_int_equal(NVML(&h, nvmlVgpuInstanceGetVmID)(ids[0], text, 80, &kind), 0);
	assert_int_equal(strlen(text), 36);
	assert_int_equal(kind, 1);
	assert_int_equal(NVML(&h, nvmlVgpuInstanceGetVmDriverVersion)(ids[0], text, 80), 0);
	assert_string_equal(text, "Not Available");
	assert_int_equal(NVML(&h, nvmlVgpuInstanceGetGpuPciId)(ids[0], text, &length), 0);
	assert_string_equal(text, "00000000:00:00.0");
	assert_int_equal(NVML(&h, nvmlVgpuInstanceGetLicenseInfo_v2)(ids[0], &license), 9);
	assert_int_equal(NVML(&h, nvmlVgpuInstanceGetMdevUUID)(ids[0], text, 80), 3);
	in_loop(&h, run_guest_end, NULL);
	assert_int_equal(NVML(&h, nvmlVgpuInstanceGetType)(ids[0], &type), 6);
	assert_int_equal(NVML(&h, nvmlVgpuInstanceGetType)(0, &type), 2);
	assert_int_equal(NVML(&h, nvmlShutdown)(), 0);
	host_stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_session),	    cmocka_unit_test(test_bus_ids),
		cmocka_unit_test(test_placements),  cmocka_unit_test(test_versions),
		cmocka_unit_test(test_card_errors), cmocka_unit_test(test_instances),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
