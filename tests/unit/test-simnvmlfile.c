/* SPDX-License-Identifier: Apache-2.0 */
/* The library's file: hidden symbols, driver branches, damaged files. */
#include "simnvml-host.h"

static void test_install(void **state)
{
	char dir[] = "/tmp/test-simnvml-XXXXXX", built[4096], path[64];
	const char *missing[] = { "nvmlVgpuTypeGetName", "nvmlInit_v2", "nvmlVgpuTypeGetName" };
	const char *other[] = { "nvmlInit_v2", "nvmlSuchCallIsNot" }, *unknown = "";
	struct error err = ERROR_INIT;
	void *lib;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/libnvidia-ml.so.1", dir);
	built_library(built, sizeof(built));
	assert_int_equal(
		simnvml_install_library(built, dir, "580.178.05", missing, 3, &unknown, &err), 0);
	assert_null(unknown);
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	assert_non_null(lib);
	assert_null(dlsym(lib, "nvmlVgpuTypeGetName"));
	assert_null(dlsym(lib, "nvmlInit_v2"));
	assert_non_null(dlsym(lib, "nvmlInit"));
	assert_non_null(dlsym(lib, "nvmlVgpuTypeGetClass"));
	dlclose(lib);

	/* The names of other objects do not count: only what the library defines can be missing. */
	assert_int_equal(
		simnvml_install_library(built, dir, "580.178.05", other, 2, &unknown, &err), 0);
	assert_string_equal(unknown, "nvmlSuchCallIsNot");
	other[1] = "dladdr";
	assert_int_equal(
		simnvml_install_library(built, dir, "580.178.05", other, 2, &unknown, &err), 0);
	assert_string_equal(unknown, "dladdr");
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	assert_non_null(lib);
	assert_null(dlsym(lib, "nvmlInit_v2"));
	dlclose(lib);
	assert_int_equal(simnvml_install_library("/nowhere", dir, "580", NULL, 0, &unknown, &err),
			 -ENOENT);
	assert_int_equal(simnvml_install_library(built, "/nowhere", "580", NULL, 0, &unknown, &err),
			 -ENOENT);
	remove_tree(dir);
}

static void test_install_damaged(void **state)
{
	char dir[] = "/tmp/test-simnvml-XXXXXX", built[4096], path[64];
	const char *missing[] = { "nvmlInit_v2" }, *unknown;
	_free_ char *data = NULL;
	size_t size;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/damaged", dir);
	built_library(built, sizeof(built));
	assert_int_equal(file_read_at(AT_FDCWD, built, 1 << 24, &data, &size), 0);
	for (size_t n = 0; n < size; n += n < 128 ? 1 : size / 37) {
		assert_int_equal(file_replace(path, data, n, 0644), 0);
		assert_int_equal(
			simnvml_install_library(path, dir, "580", missing, 1, &unknown, NULL),
			-EBADMSG);
	}
	/* Every byte of the headers set to all ones: refused or survived, never out of bounds. */
	for (size_t i = 0; i < 64 + 40 * 64; i++) {
		size_t at = i < 64 ? i : size - (i - 63);
		char saved = data[at];

		data[at] = (char)0xff;
		assert_int_equal(file_replace(path, data, size, 0644), 0);
		data[at] = saved;
		(void)!simnvml_install_library(path, dir, "580", missing, 1, &unknown, NULL);
	}
	remove_tree(dir);
}

static void check_branch(const char *driver, uint32_t branch, bool mode, bool bar1, bool state_size,
			 bool slices)
{
	char dir[] = "/tmp/test-simnvml-XXXXXX", built[4096], path[64], version[80];
	const char *missing[64], *name, *unknown;
	size_t n = 0;
	void *lib;

	while ((name = simnvml_branch_lacks(branch, n)))
		missing[n++] = name;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/libnvidia-ml.so.1", dir);
	built_library(built, sizeof(built));
	assert_int_equal(simnvml_install_library(built, dir, driver, missing, n, &unknown, NULL),
			 0);
	assert_null(unknown);
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	assert_non_null(lib);
	assert_int_equal(!!dlsym(lib, "nvmlDeviceGetVgpuHeterogeneousMode"), mode);
	assert_int_equal(!!dlsym(lib, "nvmlDeviceGetVgpuTypeCreatablePlacements"), mode);
	assert_int_equal(!!dlsym(lib, "nvmlVgpuTypeGetBAR1Info"), bar1);
	assert_int_equal(!!dlsym(lib, "nvmlVgpuInstanceGetRuntimeStateSize"), state_size);
	assert_int_equal(!!dlsym(lib, "nvmlGpuInstanceGetVgpuTypeCreatablePlacements"), slices);
	assert_non_null(dlsym(lib, "nvmlDeviceGetCreatableVgpus"));
	assert_int_equal(((__typeof__(&nvmlSystemGetNVMLVersion))dlsym(
				 lib, "nvmlSystemGetNVMLVersion"))(version, sizeof(version)),
			 0);
	assert_string_equal(version + 3, driver);
	assert_string_equal(((__typeof__(&nvmlErrorString))dlsym(lib, "nvmlErrorString"))(19),
			    "In use by another client");
	/* No simulator here. */
	assert_int_equal(((__typeof__(&nvmlInit_v2))dlsym(lib, "nvmlInit_v2"))(), 9);
	dlclose(lib);
	remove_tree(dir);
}

static void test_branches(void **state)
{
	(void)state;
	check_branch("535.261.04", 535, false, false, false, false);
	check_branch("550.163.02", 550, true, false, false, false);
	check_branch("560.35.03", 560, true, true, false, false);
	check_branch("565.57.01", 565, true, true, true, false);
	check_branch("570.172.07", 570, true, true, true, false);
	check_branch("580.178.05", 580, true, true, true, true);
}

/* Symbols go missing while others have the library loaded. */
static void run_missing(struct host *h, void *arg)
{
	(void)arg;
	strcpy(h->sim->symbols_missing[0], "nvmlVgpuTypeGetClass");
	h->sim->symbol_count = 1;
	assert_int_equal(simnvml_changed(h->server, NULL), 0);
	strcpy(h->sim->symbols_missing[0], "nvmlNoSuchCall");
	h->sim->symbol_count = 2;
	strcpy(h->sim->symbols_missing[1], "nvmlVgpuTypeGetClass");
	assert_int_equal(simnvml_changed(h->server, NULL), 0);
}

static void test_symbol_missing(void **state)
{
	struct host h;
	unsigned size = 64;
	char text[64];

	(void)state;
	host_start(&h, "580.178.05", SIM_MODE_MIXED);
	host_load(&h);
	assert_int_equal(NVML(&h, nvmlInit_v2)(), 0);
	in_loop(&h, run_missing, NULL);
	assert_int_equal(NVML(&h, nvmlVgpuTypeGetClass)(L40S_4Q, text, &size), 0);
	assert_string_equal(text, "Quadro");
	assert_int_equal(NVML(&h, nvmlShutdown)(), 0);
	dlclose(h.lib); /* as another process: this one would get what it has already */
	host_load(&h);
	assert_null(dlsym(h.lib, "nvmlVgpuTypeGetClass"));
	assert_non_null(dlsym(h.lib, "nvmlVgpuTypeGetName"));
	host_stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_install),
		cmocka_unit_test(test_install_damaged),
		cmocka_unit_test(test_branches),
		cmocka_unit_test(test_symbol_missing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
