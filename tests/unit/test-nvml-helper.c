/* SPDX-License-Identifier: Apache-2.0 */
/* The client, the real berth-nvml and the simulator's library together. */
#include "simnvml-host.h"

#include <dirent.h>

#include "nvml/client.h"

#define LIMIT_USEC (20 * USEC_PER_SEC)
#define L40S_24Q   1154

static struct host host;
static sd_event *event;
static struct nvml_client *client;
static struct nvml_answer answer; /* cards: copies in `cards` */
static struct nvml_card cards[3];
static bool answered;

static void start(const char *driver, enum sim_mode mode, uint64_t timeout_usec)
{
	struct nvml_client_config config = { .timeout_usec = timeout_usec };
	char library[128];

	host_start(&host, driver, mode);
	snprintf(library, sizeof(library), "%s/lib/libnvidia-ml.so.1", host.root);
	assert_true(sd_event_new(&event) >= 0);
	config.event = event;
	config.library = library;
	assert_int_equal(nvml_client_new(&config, &client, NULL), 0);
}

static int stop(void **state _unused_)
{
	client = nvml_client_free(client);
	event = sd_event_unref(event);
	host_stop(&host);
	return 0;
}

static void on_done(const struct nvml_answer *a, void *userdata _unused_)
{
	answer = *a;
	for (unsigned i = 0; i < a->n_cards; i++)
		cards[i] = a->cards[i];
	answered = true;
}

static void run_loop(void)
{
	assert_true(sd_event_run(event, USEC_PER_SEC) >= 0);
}

static void query_n(unsigned n)
{
	static const struct pci_addr addresses[] = { { .bus = 0x41 },
						     { .bus = 0x81 },
						     { .bus = 9 } };
	uint64_t end = clock_now_usec() + LIMIT_USEC;

	answered = false;
	assert_int_equal(nvml_client_query(client, addresses, n, on_done, NULL), 0);
	while (!answered) {
		assert_true(clock_now_usec() < end);
		run_loop();
	}
}

static void query(void)
{
	query_n(2);
}

static void run_until_gone(void)
{
	uint64_t end = clock_now_usec() + LIMIT_USEC;

	while (nvml_client_pid(client)) {
		assert_true(clock_now_usec() < end);
		run_loop();
	}
}

static const struct nvml_type *find(const struct nvml_card *c, uint32_t type)
{
	for (unsigned i = 0; i < c->n_types; i++)
		if (c->types[i].profile.type_id == type)
			return &c->types[i];
	fail_msg("no type %u", type);
	return NULL;
}

static unsigned creatable(const struct nvml_card *c, uint32_t type)
{
	return placement_count(find(c, type)->placement.creatable);
}

/* Descriptors of a process that lead to the simulated /dev. */
static unsigned device_descriptors(pid_t pid)
{
	char folder[64], link[400], target[400];
	unsigned count = 0;
	struct dirent *e;
	DIR *d;

	snprintf(folder, sizeof(folder), "/proc/%d/fd", (int)pid);
	d = opendir(folder);
	assert_non_null(d);
	while ((e = readdir(d))) {
		ssize_t n;

		snprintf(link, sizeof(link), "%s/%s", folder, e->d_name);
		n = readlink(link, target, sizeof(target) - 1);
		if (n < 0)
			continue;
		target[n] = '\0';
		count += strstr(target, "/dev/nvidia") != NULL;
	}
	closedir(d);
	return count;
}

static void test_mixed(void **state _unused_)
{
	start("580.178.05", SIM_MODE_MIXED, LIMIT_USEC);
	query();
	assert_int_equal(answer.reason, NVML_REASON_NONE);
	assert_string_equal(answer.driver, "580.178.05");
	assert_int_equal(answer.n_cards, 2);
	assert_int_equal(cards[0].reason, NVML_REASON_NONE);
	assert_int_equal(cards[0].mode, NVML_MODE_MIXED);
	assert_int_equal(cards[0].region, 48);
	assert_string_equal(find(&cards[0], L40S_4Q)->profile.name, "NVIDIA L40S-4Q");
	assert_int_equal(find(&cards[0], L40S_4Q)->profile.framebuffer_mb, 4096);
	assert_int_equal(find(&cards[0], L40S_4Q)->max_instances, 12);
	assert_int_equal(creatable(&cards[0], L40S_4Q), 8);
	assert_true(cards[0].instances_known);
	/* Twelve vGPUs, of which six 4Q: sysfs lists none any more, NVML still has two. */
	for (unsigned i = 0; i < 12; i++)
		write_type(&host, i, i < 6 ? L40S_4Q : L40S_2Q);
	query();
	assert_int_equal(creatable(&cards[0], L40S_4Q), 2);
	assert_int_equal(creatable(&cards[1], L40S_4Q), 8);
}

static void test_branch_550(void **state _unused_)
{
	start("550.90.05", SIM_MODE_MIXED, LIMIT_USEC);
	query();
	assert_int_equal(answer.reason, NVML_REASON_NONE);
	assert_int_equal(cards[0].reason, NVML_REASON_NONE);
	assert_int_equal(creatable(&cards[0], L40S_4Q), 8);
	assert_int_equal(find(&cards[0], L40S_4Q)->placement.size, 4);
}

static void test_equal(void **state _unused_)
{
	start("580.178.05", SIM_MODE_EQUAL, LIMIT_USEC);
	query();
	assert_int_equal(answer.reason, NVML_REASON_NONE);
	assert_int_equal(cards[0].reason, NVML_REASON_EQUAL_SIZE);
	assert_int_equal(cards[0].mode, NVML_MODE_EQUAL);
	assert_int_equal(find(&cards[0], L40S_4Q)->max_instances, 12);
	assert_int_equal(cards[0].region, 48);
}

static void test_one_lost(void **state _unused_)
{
	start("580.178.05", SIM_MODE_MIXED, LIMIT_USEC);
	set_fault(&host, SIM_FAULT_NVML_ERROR, 15, 0);
	query_n(3);
	assert_int_equal(answer.reason, NVML_REASON_NONE);
	assert_int_equal(cards[0].reason, NVML_REASON_ERROR);
	assert_int_equal(cards[0].nvml_error, 15);
	assert_int_equal(cards[1].reason, NVML_REASON_NONE);
	/* A card that NVML does not know. */
	assert_int_equal(cards[2].reason, NVML_REASON_ERROR);
	assert_int_equal(cards[2].nvml_error, 6);
	set_fault(&host, SIM_FAULT_NVML_ERROR, 0, 0);
	query();
	assert_int_equal(cards[0].reason, NVML_REASON_NONE);
}

static void test_init_errors(void **state _unused_)
{
	start("580.178.05", SIM_MODE_MIXED, LIMIT_USEC);
	set_fault(&host, SIM_FAULT_NVML_ERROR, 18, -1);
	query();
	assert_int_equal(answer.reason, NVML_REASON_LIBRARY);
	assert_int_equal(answer.nvml_error, 18);
	run_until_gone();
	set_fault(&host, SIM_FAULT_NVML_ERROR, 9, -1);
	query();
	assert_int_equal(answer.reason, NVML_REASON_ERROR);
	assert_int_equal(answer.nvml_error, 9);
	assert_int_equal(answer.n_cards, 0);
	set_fault(&host, SIM_FAULT_NVML_ERROR, 0, -1);
	query();
	assert_int_equal(answer.reason, NVML_REASON_NONE);
}

static void set_missing(struct host *h, void *arg)
{
	const char *name = arg;

	h->sim->symbol_count = name ? 1 : 0;
	if (name)
		assert_int_equal(str_copy(h->sim->symbols_missing[0], 64, name), 0);
	assert_int_equal(simnvml_changed(h->server, NULL), 0);
}

static void test_symbol_missing(void **state _unused_)
{
	char name[] = "nvmlDeviceGetVgpuTypeCreatablePlacements";
	char optional[] = "nvmlDeviceGetActiveVgpus";

	start("580.178.05", SIM_MODE_MIXED, LIMIT_USEC);
	in_loop(&host, set_missing, name);
	query();
	assert_int_equal(answer.reason, NVML_REASON_LIBRARY);
	assert_non_null(strstr(answer.text, name));
	/* The next helper sees the file that stands there then. */
	in_loop(&host, set_missing, optional);
	query();
	assert_int_equal(answer.reason, NVML_REASON_NONE);
	assert_int_equal(cards[0].reason, NVML_REASON_NONE);
	assert_false(cards[0].instances_known);
}

static void test_hang(void **state _unused_)
{
	start("580.178.05", SIM_MODE_MIXED, 200 * USEC_PER_MSEC);
	set_fault(&host, SIM_FAULT_NVML_HANG, 1, -1);
	query();
	assert_int_equal(answer.reason, NVML_REASON_TIMEOUT);
	run_until_gone();
	set_fault(&host, SIM_FAULT_NVML_HANG, 0, -1);
	query();
	assert_int_equal(answer.reason, NVML_REASON_NONE);
}

static void test_crash(void **state _unused_)
{
	start("580.178.05", SIM_MODE_MIXED, LIMIT_USEC);
	query();
	set_fault(&host, SIM_FAULT_NVML_CRASH, 1, -1);
	query();
	assert_int_equal(answer.reason, NVML_REASON_ERROR);
	assert_non_null(strstr(answer.text, "signal 6"));
	set_fault(&host, SIM_FAULT_NVML_CRASH, 0, -1);
	query();
	assert_int_equal(answer.reason, NVML_REASON_NONE);
}

static void test_descriptors(void **state _unused_)
{
	pid_t pid;

	start("580.178.05", SIM_MODE_MIXED, LIMIT_USEC);
	query();
	pid = nvml_client_pid(client);
	assert_true(device_descriptors(pid) > 0);
	assert_int_equal(device_descriptors(getpid()), 0);
	nvml_client_release(client);
	run_until_gone();
	assert_int_equal(kill(pid, 0), -1);
	query();
	assert_int_equal(answer.reason, NVML_REASON_LIBRARY);
	assert_int_equal(nvml_client_pid(client), 0);
	nvml_client_resume(client);
	query();
	assert_int_equal(answer.reason, NVML_REASON_NONE);
}

static void run_guest(struct host *h, void *arg)
{
	struct sim_vf *vf = &h->sim->cards[0].vfs[0];

	assert_int_equal(sim_vf_start_guest(vf, 1, "vm", USEC_PER_SEC), 0);
	vf->instance.placement_known_usec = 0;
	*(uint32_t *)arg = vf->instance.id;
}

static void load_guest_driver(struct host *h, void *arg _unused_)
{
	h->sim->cards[0].vfs[0].instance.driver_loaded = true;
}

static void test_instances(void **state _unused_)
{
	uint32_t id = 0;

	start("580.178.05", SIM_MODE_MIXED, LIMIT_USEC);
	write_type(&host, 0, L40S_24Q);
	query();
	/* Configured is not active. */
	assert_true(cards[0].instances_known);
	assert_int_equal(cards[0].n_instances, 0);
	in_loop(&host, run_guest, &id);
	query();
	assert_int_equal(cards[0].n_instances, 1);
	assert_int_equal(cards[0].instances[0].id, id);
	assert_int_equal(cards[0].instances[0].type_id, L40S_24Q);
	assert_int_equal(cards[0].instances[0].placement_id, 0);
	assert_false(cards[0].instances[0].guest_driver);
	in_loop(&host, load_guest_driver, NULL);
	query();
	assert_true(cards[0].instances[0].guest_driver);
	assert_int_equal(cards[1].n_instances, 0);
}

/* As when systemd stops the whole unit: NVML is closed at the end of file, not cut off. */
static void test_signals(void **state _unused_)
{
	pid_t pid;

	start("580.178.05", SIM_MODE_MIXED, LIMIT_USEC);
	query();
	pid = nvml_client_pid(client);
	assert_int_equal(kill(pid, SIGTERM), 0);
	assert_int_equal(kill(pid, SIGINT), 0);
	query();
	assert_int_equal(answer.reason, NVML_REASON_NONE);
	assert_int_equal(nvml_client_pid(client), pid);
	nvml_client_release(client);
	run_until_gone();
}

#define TEST(f) cmocka_unit_test_teardown(f, stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_mixed),     TEST(test_branch_550),  TEST(test_equal),
		TEST(test_one_lost),  TEST(test_init_errors), TEST(test_symbol_missing),
		TEST(test_hang),      TEST(test_crash),	      TEST(test_descriptors),
		TEST(test_instances), TEST(test_signals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
