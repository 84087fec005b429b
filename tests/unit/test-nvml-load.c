/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nvml/load.h"

/* F54 */
static void test_no_file(void **state _unused_)
{
	struct nvml_api api = { 0 };
	struct error err = ERROR_INIT;

	assert_int_equal(nvml_api_load("/nonexistent/libnvidia-ml.so.1", &api, &err), -ENOENT);
	assert_non_null(strstr(err.msg, "/nonexistent/libnvidia-ml.so.1"));
	assert_null(api.init);
	assert_int_equal(nvml_api_load("libberth-no-such-library.so.1", &api, &err), -ENOENT);
	assert_non_null(strstr(err.msg, "libberth-no-such-library.so.1"));
}

/* F54 */
static void test_no_symbol(void **state _unused_)
{
	struct nvml_api api = { 0 };
	struct error err = ERROR_INIT;

	assert_int_equal(nvml_api_load("libc.so.6", &api, &err), -ENOSYS);
	assert_string_equal(err.msg, "libc.so.6 does not export nvmlInit_v2");
	assert_null(api.init);
}

/* F54 */
static void test_other_architecture(void **state _unused_)
{
	char path[] = "/tmp/test-nvml-load-XXXXXX";
	Elf32_Ehdr header = { .e_type = ET_DYN, .e_machine = EM_ARM, .e_version = EV_CURRENT };
	char rest[4096] = { 0 };
	struct nvml_api api = { 0 };
	struct error err = ERROR_INIT;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	memcpy(header.e_ident, ELFMAG, SELFMAG);
	header.e_ident[EI_CLASS] = ELFCLASS32;
	header.e_ident[EI_DATA] = ELFDATA2LSB;
	header.e_ident[EI_VERSION] = EV_CURRENT;
	assert_int_equal(write(fd, &header, sizeof header), sizeof header);
	assert_int_equal(write(fd, rest, sizeof rest), sizeof rest);
	close(fd);
	assert_int_equal(nvml_api_load(path, &api, &err), -ENOENT);
	unlink(path);
	assert_non_null(strstr(err.msg, path));
	assert_non_null(strstr(err.msg, "ELF"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_file),
		cmocka_unit_test(test_no_symbol),
		cmocka_unit_test(test_other_architecture),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
