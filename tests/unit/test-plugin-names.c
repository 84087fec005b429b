/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plugin/names.h"
#include "plugin/pci-ids.h"

#define X10 "xxxxxxxxxx"
#define X56 X10 X10 X10 X10 X10 "xxxxxx"

static void test_profiles(void **state)
{
	static const struct {
		const char *profile, *resource;
	} cases[] = {
		{ "NVIDIA L40S-4Q", "nvidia.com/NVIDIA_L40S-4Q" },
		{ "NVIDIA RTX Pro 6000 Blackwell DC-1-24Q",
		  "nvidia.com/NVIDIA_RTX_Pro_6000_Blackwell_DC-1-24Q" },
		{ "GRID T4-1B4", "nvidia.com/GRID_T4-1B4" },
		{ "A/B", "nvidia.com/A_B" },
		{ " (x) ", "nvidia.com/x" },
		{ "4Q.", "nvidia.com/4Q" },
		{ "NVIDIA " X56, "nvidia.com/NVIDIA_" X56 }, /* 63 */
		{ "NVIDIA x" X56, NULL },
		{ "", NULL },
		{ "---", NULL },
		{ "\303\244", NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char name[RESOURCE_NAME_MAX] = "untouched";
		int r = names_from_profile(cases[i].profile, name, NULL);

		assert_int_equal(r, cases[i].resource ? 0 : -EINVAL);
		assert_string_equal(name, cases[i].resource ? cases[i].resource : "untouched");
	}
}

static void test_check(void **state)
{
	static const char *const good[] = { "nvidia.com/a", "a/b", "example.org/A_b-c.d9",
					    "a-b.c/1" };
	static const char *const bad[] = { "a",
					   "/a",
					   "a/",
					   "A.com/b",
					   "a..b/c",
					   ".a/b",
					   "a./b",
					   "-a/b",
					   "a-/b",
					   "a.-b/c",
					   "a_b/c",
					   "a/b c",
					   "a/_b",
					   "a/b-",
					   "a/b/c",
					   "x.kubernetes.io/y",
					   "requests.a/b",
					   "a/" X56 X10 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_int_equal(names_check(good[i], NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(names_check(bad[i], NULL), -EINVAL);
}

/* F30 */
static void test_env(void **state)
{
	char name[ENV_NAME_MAX];

	(void)state;
	names_env(NAMES_ENV_PCI, "nvidia.com/NVIDIA_L40S-4Q", name);
	assert_string_equal(name, "PCI_RESOURCE_NVIDIA_COM_NVIDIA_L40S-4Q");
	names_env(NAMES_ENV_PCI, "nvidia.com/26b9", name);
	assert_string_equal(name, "PCI_RESOURCE_NVIDIA_COM_26B9");
	names_env(NAMES_ENV_MDEV, "my-co.org/a.b_c", name);
	assert_string_equal(name, "MDEV_PCI_RESOURCE_MY-CO_ORG_A_B_C");
}

static void test_map(void **state)
{
	static const char text[] = "# names\n\nNVIDIA L40S-4Q: small\r\n\"10de:26b9\": 'a.org/b'\n"
				   "  A40-8Q :big";
	struct name_map *m = NULL;

	(void)state;
	assert_int_equal(name_map_parse(text, strlen(text), &m, NULL),
			 -EINVAL); /* no blank behind the colon */
	assert_null(m);
	assert_int_equal(name_map_parse(text, strlen(text) - strlen(":big"), &m, NULL), -EINVAL);
	assert_int_equal(name_map_parse(text, strlen(text) - strlen("  A40-8Q :big"), &m, NULL), 0);
	assert_string_equal(name_map_find(m, "L40S-4Q"), "nvidia.com/small");
	assert_string_equal(name_map_find(m, "NVIDIA L40S-4Q"), "nvidia.com/small");
	assert_string_equal(name_map_find(m, "10de:26b9"), "a.org/b");
	assert_null(name_map_find(m, "L40S-4"));
	assert_null(name_map_find(NULL, "L40S-4Q"));
	name_map_free(m);
}

static void test_bad_maps(void **state)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{ "a: b\na: c\n", "line 2: \"a\" is named twice" },
		{ "a: b\nNVIDIA a: c\n", "named twice" },
		{ "a: b\nc: b\n", "line 2" },
		{ "just text\n", "line 1" },
		{ ": b\n", "line 1" },
		{ "a: \n", "line 1" },
		{ "\n\na: b c\n", "line 3" },
		{ "a: kubernetes.io/b\n", "line 1" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct error err = ERROR_INIT;
		struct name_map *m = NULL;

		assert_int_equal(name_map_parse(cases[i].text, strlen(cases[i].text), &m, &err),
				 -EINVAL);
		assert_non_null(strstr(error_text(&err), cases[i].says));
	}
}

static FILE *list_of(const char *text)
{
	FILE *f = fmemopen((void *)text, strlen(text), "r");

	assert_non_null(f);
	return f;
}

/* F27 */
static void test_pci_ids(void **state)
{
	static const char text[] =
		"# c\n10dd  Before\n\t0001  Thing\n\t\t10de 1f08  Subsystem\n"
		"10de  NVIDIA Corporation\n\t0020  NV4 [Riva TNT]\n\t\t1043 1f08  Wrong\n"
		"\t1F08  TU106 [GeForce RTX 2060 Rev. A]\n\t26b9  \n"
		"8086  Intel\n\t1f08  Atom\n\t2235  Something\n";
	char name[NAME_SOURCE_MAX];
	FILE *f = list_of(text);

	(void)state;
	assert_int_equal(pci_ids_find(f, 0x1f08, name), 0);
	assert_string_equal(name, "TU106 [GeForce RTX 2060 Rev. A]");
	assert_int_equal(pci_ids_find(f, 0x20, name), 0);
	assert_string_equal(name, "NV4 [Riva TNT]");
	assert_int_equal(pci_ids_find(f, 0x2235, name), -ENOENT);
	assert_int_equal(pci_ids_find(f, 0x26b9, name), -ENOENT);
	assert_int_equal(pci_ids_find(f, 0x0001, name), -ENOENT);
	fclose(f);
}

static void test_gpu_names(void **state)
{
	char name[RESOURCE_NAME_MAX];

	(void)state;
	assert_int_equal(names_from_pci_ids("TU106 [GeForce RTX 2060 Rev. A]", name, NULL), 0);
	assert_string_equal(name, "nvidia.com/TU106_GEFORCE_RTX_2060_REV__A");
	assert_int_equal(names_from_pci_ids("GA102GL [A40]", name, NULL), 0);
	assert_string_equal(name, "nvidia.com/GA102GL_A40");
	assert_int_equal(names_from_pci_ids("[]", name, NULL), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_profiles),  cmocka_unit_test(test_check),
		cmocka_unit_test(test_env),	  cmocka_unit_test(test_map),
		cmocka_unit_test(test_bad_maps),  cmocka_unit_test(test_pci_ids),
		cmocka_unit_test(test_gpu_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
