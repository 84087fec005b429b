/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include "model/pci.h"

#include <cmocka.h>

static void refuses_what_is_no_address(void **state)
{
	static const char *const bad[] = {
		"",
		":",
		".",
		"41",
		"41:00",
		"41.0",
		"41:00.",
		":41:00.0",
		"0000::00.0",
		"0000:41:.0",
		"0000:41:00.8",
		"0000:41:20.0",
		"0000:100:00.0",
		"100000000:41:00.0",
		"0:0000:41:00.0",
		"0000:41:00.0 ",
		" 0000:41:00.0",
		"0000:41:00.0\n",
		"0000:41:00.0.0",
		"0000:41:00:0",
		"0x41:00.0",
		"-1:00.0",
		"+1:00.0",
		"0000:4g:00.0",
		"0000.41:00.0",
		"0000:41:00.4 x",
		"0000:41:00.10",
		"0000:4/:00.0",
		"0000:4@:00.0",
		"0000:4`:00.0",
		"0000:41:00.ffffffffff",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct pci_addr a = { .domain = 7, .bus = 7, .device = 7, .function = 7 };

		if (pci_addr_parse(bad[i], &a) != -EINVAL)
			fail_msg("'%s' was accepted", bad[i]);
		assert_int_equal(a.domain + a.bus + a.device + a.function, 28);
	}
}

static void prints_every_spelling_as_sysfs_does(void **state)
{
	static const struct {
		const char *text, *printed;
	} cases[] = {
		{ "0000:41:00.0", "0000:41:00.0" },
		{ "00000000:41:00.0", "0000:41:00.0" },
		{ "41:00.4", "0000:41:00.4" },
		{ "1:2.3", "0000:01:02.3" },
		{ "0:1:2.3", "0000:01:02.3" },
		{ "0000:C1:1F.7", "0000:c1:1f.7" },
		{ "0000:c1:1f.7", "0000:c1:1f.7" },
		{ "ffff:ff:1f.7", "ffff:ff:1f.7" },
		{ "AFaf:A9:0A.1", "afaf:a9:0a.1" },
		{ "10000:01:00.0", "10000:01:00.0" },
		{ "FFFFFFFF:FF:1F.7", "ffffffff:ff:1f.7" },
		{ "000000000000abcd:00041:0000.00007", "abcd:41:00.7" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char buf[PCI_ADDR_MAX];
		struct pci_addr a;

		assert_int_equal(pci_addr_parse(cases[i].text, &a), 0);
		assert_string_equal(pci_addr_format(a, buf), cases[i].printed);
	}
}

static void orders_by_number_from_the_domain_down(void **state)
{
	static const char *const ascending[] = {
		"0000:00:00.0", "0000:00:00.7", "0000:00:01.0",	 "0000:00:1f.7",
		"0000:01:00.0", "0000:09:00.0", "0000:10:00.0",	 "0000:ff:00.0",
		"0001:00:00.0", "ffff:00:00.0", "10000:00:00.0", "ffffffff:00:00.0",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ascending); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(ascending); j++) {
			struct pci_addr a, b;
			int order;

			assert_int_equal(pci_addr_parse(ascending[i], &a), 0);
			assert_int_equal(pci_addr_parse(ascending[j], &b), 0);
			order = pci_addr_compare(a, b);
			assert_true(i < j ? order < 0 : i > j ? order > 0 : order == 0);
			assert_int_equal(pci_addr_equal(a, b), i == j);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses_what_is_no_address),
		cmocka_unit_test(prints_every_spelling_as_sysfs_does),
		cmocka_unit_test(orders_by_number_from_the_domain_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
