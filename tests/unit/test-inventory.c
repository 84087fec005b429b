/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/str.h"
#include "host/inventory.h"
#include "plain-tree.h"

#include <cmocka.h>

static const struct pci_addr card41 = { 0, 0x41, 0, 0 };
static const struct pci_addr card81 = { 0, 0x81, 0, 0 };

static int set_up(void **state)
{
	struct plain_tree *t = calloc(1, sizeof *t);

	assert_non_null(t);
	plain_tree_init(t);
	*state = t;
	return 0;
}

static int tear_down(void **state)
{
	plain_tree_done(*state);
	free(*state);
	return 0;
}

static struct inventory *scan(const struct plain_tree *t)
{
	struct inventory *inv;

	assert_int_equal(inventory_scan(t->sys, &inv, NULL), 0);
	return inv;
}

static void add_card_with_vfs(struct plain_tree *t, struct pci_addr card, unsigned n,
			      unsigned offset)
{
	plain_tree_card(t, card, n, 0);
	for (unsigned i = 0; i < n; i++)
		plain_tree_vf(t, card, i, offset);
}

static void an_unreadable_bus_is_an_error(void **state)
{
	struct plain_tree *t = *state;
	struct error err = ERROR_INIT;
	struct inventory *inv = (void *)t;
	uint64_t print = 7;

	plain_tree_remove(t, "sys/bus/pci/devices");
	assert_int_equal(inventory_scan(t->sys, &inv, &err), -ENOENT);
	assert_ptr_equal(inv, t);
	assert_non_null(strstr(error_text(&err), "bus/pci/devices"));
	assert_int_equal(inventory_fingerprint(t->sys, &print), -ENOENT);
	assert_int_equal(print, 7);
}

static void a_host_without_cards_is_empty(void **state)
{
	struct plain_tree *t = *state;
	struct inventory *inv = scan(t);

	assert_int_equal(inv->n_cards, 0);
	assert_int_equal(inv->framework, FRAMEWORK_NONE);
	assert_null(inventory_free(inv));
	inventory_free(NULL);
}

static void finds_the_nodes_of_vfs(void **state)
{
	struct plain_tree *t = *state;
	struct inventory *inv;
	char path[64];

	add_card_with_vfs(t, card41, 2, 4);
	inv = scan(t);
	assert_false(inv->cards[0].vfs[0].vfio_node);
	inventory_find_nodes(inv, t->dev);
	assert_true(inv->cards[0].vfs[0].vfio_node);
	assert_true(inv->cards[0].vfs[1].vfio_node);
	assert_false(inv->iommufd);
	snprintf(path, sizeof path, "dev/vfio/devices/%s", inv->cards[0].vfs[1].vfio_device);
	plain_tree_remove(t, path);
	plain_tree_write(t, "dev/iommu", "");
	inventory_find_nodes(inv, t->dev);
	assert_true(inv->cards[0].vfs[0].vfio_node);
	assert_false(inv->cards[0].vfs[1].vfio_node);
	assert_true(inv->iommufd);
	plain_tree_remove(t, "dev");
	inventory_find_nodes(inv, t->dev);
	assert_false(inv->cards[0].vfs[0].vfio_node);
	assert_false(inv->iommufd);
	/* Without an entry in sysfs the folder of all nodes is none. */
	plain_tree_dir(t, "dev/vfio/devices");
	inv->cards[0].vfs[0].vfio_device[0] = '\0';
	inventory_find_nodes(inv, t->dev);
	assert_false(inv->cards[0].vfs[0].vfio_node);
	inventory_free(inv);
}

static void finds_cards_and_their_vfs_by_number(void **state)
{
	struct plain_tree *t = *state;
	struct pci_addr far = { 0x10000, 0x1, 0, 0 };
	struct inventory *inv;

	add_card_with_vfs(t, far, 2, 4);
	add_card_with_vfs(t, card81, 3, 2);
	add_card_with_vfs(t, card41, 32, 4);
	inv = scan(t);
	assert_int_equal(inv->n_cards, 3);
	assert_int_equal(inv->framework, FRAMEWORK_VENDOR_VFIO);
	assert_true(pci_addr_equal(inv->cards[0].address, card41));
	assert_true(pci_addr_equal(inv->cards[1].address, card81));
	assert_true(pci_addr_equal(inv->cards[2].address, far));
	assert_int_equal(inv->cards[2].n_vfs, 2);
	assert_int_equal(inv->cards[0].device_id, 0x26b9);
	assert_int_equal(inv->cards[0].total_vfs, 32);
	assert_int_equal(inv->cards[0].n_vfs, 32);
	assert_string_equal(inv->cards[0].driver, "nvidia");
	assert_string_equal(inv->cards[0].reason, "");
	for (unsigned i = 0; i < 32; i++) {
		const struct inventory_vf *vf = &inv->cards[0].vfs[i];
		char want[24];

		assert_int_equal(vf->number, i);
		assert_true(pci_addr_equal(vf->address, plain_tree_vf_address(card41, i, 4)));
		assert_true(vf->vendor_vfio);
		assert_false(vf->mdev);
		assert_string_equal(vf->reason, "");
		assert_string_equal(vf->driver, "nvidia");
		snprintf(want, sizeof want, "vfio%d", vf->vfio_group);
		assert_string_equal(vf->vfio_device, want);
	}
	inventory_free(inv);
}

static void other_functions_are_no_cards(void **state)
{
	struct plain_tree *t = *state;
	struct pci_addr audio = { 0, 0x41, 0, 1 }, other = { 0, 0x42, 0, 0 },
			broken = { 0, 0x43, 0, 0 };
	struct inventory *inv;

	plain_tree_card(t, card41, 0, 0);
	plain_tree_write(t, plain_tree_device(card41, "class"), "0x030000\n");
	plain_tree_card(t, audio, 0, 0);
	plain_tree_write(t, plain_tree_device(audio, "class"), "0x040300\n");
	plain_tree_card(t, other, 0, 0);
	plain_tree_write(t, plain_tree_device(other, "vendor"), "0x1002\n");
	plain_tree_card(t, broken, 0, 0);
	plain_tree_write(t, plain_tree_device(broken, "vendor"), "-0x10de\n");
	plain_tree_dir(t, "sys/bus/pci/devices/not-an-address");
	inv = scan(t);
	assert_int_equal(inv->n_cards, 1);
	assert_true(pci_addr_equal(inv->cards[0].address, card41));
	inventory_free(inv);
}

static void cards_for_passthrough_are_listed(void **state)
{
	struct plain_tree *t = *state;
	struct inventory *inv;

	plain_tree_card(t, card41, 0, 0);
	plain_tree_link(t, plain_tree_device(card41, "driver"), "../../drivers/vfio-pci");
	unlink(plain_tree_path(t, plain_tree_device(card41, "sriov_totalvfs")));
	inv = scan(t);
	assert_int_equal(inv->n_cards, 1);
	assert_int_equal(inv->framework, FRAMEWORK_NONE);
	assert_int_equal(inv->cards[0].total_vfs, 0);
	assert_int_equal(inv->cards[0].iommu_group, 40);
	assert_string_equal(inv->cards[0].driver, "vfio-pci");
	assert_string_equal(inv->cards[0].reason, "");
	inventory_free(inv);
}

/* What each kind of damage costs: that VF, with a reason that says what. */
static void a_damaged_vf_costs_only_itself(void **state)
{
	struct plain_tree *t = *state;
	static const char *const reasons[] = {
		"physfn link",
		"physfn names another card",
		"bound to vfio-pci",
		"bound to no driver",
		"no nvidia/current_vgpu_type",
		"VF folder",
		"mdev framework",
		"",
	};
	struct pci_addr vf[ARRAY_SIZE(reasons)];
	struct inventory *inv;

	add_card_with_vfs(t, card41, ARRAY_SIZE(reasons), 4);
	plain_tree_card(t, card81, 0, 0);
	for (unsigned i = 0; i < ARRAY_SIZE(vf); i++)
		vf[i] = plain_tree_vf_address(card41, i, 4);
	unlink(plain_tree_path(t, plain_tree_device(vf[0], "physfn")));
	plain_tree_link(t, plain_tree_device(vf[1], "physfn"), "../0000:81:00.0");
	plain_tree_link(t, plain_tree_device(vf[2], "driver"), "../../drivers/vfio-pci");
	unlink(plain_tree_path(t, plain_tree_device(vf[3], "driver")));
	plain_tree_remove(t, plain_tree_device(vf[4], "nvidia"));
	plain_tree_remove(t, plain_tree_device(vf[5], NULL));
	plain_tree_remove(t, plain_tree_device(vf[6], "nvidia"));
	plain_tree_dir(t, plain_tree_device(vf[6], "mdev_supported_types"));

	inv = scan(t);
	assert_int_equal(inv->n_cards, 2); /* the VF without physfn is no card */
	assert_int_equal(inv->framework, FRAMEWORK_VENDOR_VFIO);
	assert_int_equal(inv->cards[0].n_vfs, ARRAY_SIZE(reasons));
	for (unsigned i = 0; i < ARRAY_SIZE(reasons); i++) {
		const struct inventory_vf *v = &inv->cards[0].vfs[i];

		if (!str_starts_with(v->reason, reasons[i]) ||
		    (reasons[i][0] == '\0') != v->vendor_vfio)
			fail_msg("VF %u: '%s' instead of '%s'", i, v->reason, reasons[i]);
	}
	inventory_free(inv);
}

static void odd_attributes_of_a_card_cost_only_themselves(void **state)
{
	struct plain_tree *t = *state;
	struct inventory *inv;

	add_card_with_vfs(t, card41, 2, 4);
	plain_tree_write(t, plain_tree_device(card41, "sriov_totalvfs"), "many\n");
	plain_tree_write(t, plain_tree_device(card41, "device"), "");
	unlink(plain_tree_path(t, plain_tree_device(card41, "driver")));
	unlink(plain_tree_path(t, plain_tree_device(card41, "iommu_group")));
	plain_tree_link(t, plain_tree_device(card41, "virtfnX"), "../0000:41:00.4");
	plain_tree_link(t, plain_tree_device(card41, "virtfn7"), "../nonsense");
	inv = scan(t);
	assert_int_equal(inv->n_cards, 1);
	assert_int_equal(inv->cards[0].n_vfs, 2);
	assert_int_equal(inv->cards[0].iommu_group, -1);
	assert_string_equal(inv->cards[0].driver, "");
	assert_true(inv->cards[0].reason[0] != '\0');
	inventory_free(inv);
}

static void vfs_may_come_later(void **state)
{
	struct plain_tree *t = *state;
	struct inventory *inv;
	uint64_t before, same, after;

	plain_tree_card(t, card41, 4, 0);
	inv = scan(t);
	assert_int_equal(inv->framework, FRAMEWORK_VENDOR_VFIO);
	assert_int_equal(inv->cards[0].n_vfs, 0);
	assert_int_equal(inv->cards[0].total_vfs, 4);
	inventory_free(inv);
	assert_int_equal(inventory_fingerprint(t->sys, &before), 0);
	assert_int_equal(inventory_fingerprint(t->sys, &same), 0);
	assert_int_equal(before, same);
	for (unsigned i = 0; i < 4; i++)
		plain_tree_vf(t, card41, i, 4);
	assert_int_equal(inventory_fingerprint(t->sys, &after), 0);
	assert_int_not_equal(before, after);
	inv = scan(t);
	assert_int_equal(inv->cards[0].n_vfs, 4);
	inventory_free(inv);
}

/* What a change looks like that no name shows. */
static void two_scans_are_compared_by_content(void **state)
{
	struct plain_tree *t = *state;
	struct pci_addr vf;
	struct inventory *a, *b;
	static const struct {
		const char *name, *target;
	} links[] = {
		{ "driver", "../../drivers/vfio-pci" },
		{ "iommu_group", "../../../../kernel/iommu_groups/99" },
	};

	plain_tree_card(t, card41, 2, 0);
	plain_tree_vf(t, card41, 0, 4);
	vf = plain_tree_vf(t, card41, 1, 4);
	for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
		a = scan(t);
		b = scan(t);
		assert_true(inventory_equal(a, b));
		inventory_free(b);
		plain_tree_link(t, plain_tree_device(vf, links[i].name), links[i].target);
		b = scan(t);
		assert_false(inventory_equal(a, b));
		inventory_free(a);
		inventory_free(b);
	}
	a = scan(t);
	plain_tree_remove(t, plain_tree_device(vf, NULL));
	b = scan(t);
	assert_false(inventory_equal(a, b));
	inventory_free(a);
	plain_tree_remove(t, plain_tree_device(card41, NULL));
	a = scan(t);
	assert_false(inventory_equal(a, b));
	inventory_free(a);
	inventory_free(b);
}

/* F35 */
static void numa_nodes_are_those_of_this_machine(void **state)
{
	struct plain_tree *t = *state;
	static const struct {
		const char *text;
		int node;
	} cases[] = {
		{ "0\n", 0 }, { "1\n", 1 },    { "-1\n", -1 },	       { "2\n", -1 },
		{ "\n", -1 }, { "one\n", -1 }, { "4294967295\n", -1 },
	};

	plain_tree_card(t, card41, 0, 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct inventory *inv;

		plain_tree_write(t, plain_tree_device(card41, "numa_node"), cases[i].text);
		inv = scan(t);
		if (inv->cards[0].numa_node != cases[i].node)
			fail_msg("'%s' gives %d", cases[i].text, inv->cards[0].numa_node);
		inventory_free(inv);
	}
	unlink(plain_tree_path(t, plain_tree_device(card41, "numa_node")));
	struct inventory *inv = scan(t);
	assert_int_equal(inv->cards[0].numa_node, -1);
	inventory_free(inv);

	plain_tree_write(t, plain_tree_device(card41, "numa_node"), "7\n");
	plain_tree_remove(t, "sys/devices/system/node");
	inv = scan(t);
	assert_int_equal(inv->cards[0].numa_node, 7);
	inventory_free(inv);
}

static void more_cards_than_the_limit_are_counted(void **state)
{
	struct plain_tree *t = *state;
	struct inventory *inv;

	for (unsigned i = 0; i < INVENTORY_CARDS_MAX + 3; i++)
		plain_tree_card(t, (struct pci_addr){ 1, (uint8_t)(i + 1), 0, 0 }, 0, 0);
	inv = scan(t);
	assert_int_equal(inv->n_cards, INVENTORY_CARDS_MAX);
	assert_int_equal(inv->n_cards_beyond, 3);
	assert_int_equal(inv->cards[INVENTORY_CARDS_MAX - 1].address.bus, INVENTORY_CARDS_MAX);
	inventory_free(inv);
}

static void a_large_host_is_read_whole(void **state)
{
	struct plain_tree *t = *state;
	struct inventory *inv;

	for (unsigned c = 0; c < 16; c++)
		add_card_with_vfs(t, (struct pci_addr){ 0, (uint8_t)(0x10 + 2 * c), 0, 0 }, 48, 2);
	inv = scan(t);
	assert_int_equal(inv->n_cards, 16);
	for (unsigned c = 0; c < 16; c++) {
		assert_int_equal(inv->cards[c].n_vfs, 48);
		for (unsigned i = 0; i < 48; i++)
			assert_true(inv->cards[c].vfs[i].vendor_vfio);
	}
	inventory_free(inv);
	/* Without a single physfn link the VFs are still nobody's cards. */
	for (unsigned c = 0; c < 16; c++)
		for (unsigned i = 0; i < 48; i++) {
			struct pci_addr card = { 0, (uint8_t)(0x10 + 2 * c), 0, 0 };

			unlink(plain_tree_path(
				t, plain_tree_device(plain_tree_vf_address(card, i, 2), "physfn")));
		}
	inv = scan(t);
	assert_int_equal(inv->n_cards, 16);
	assert_int_equal(inv->n_cards_beyond, 0);
	inventory_free(inv);
}

/* --- A card that comes and goes beside another one ------------------------------------------- */

/* Every third read below card81's folders finds the device gone, as when it goes behind the open.
 */
static atomic_bool reads_fail;
static unsigned n_failed;

ssize_t __real_read(int fd, void *buf, size_t size);
ssize_t __wrap_read(int fd, void *buf, size_t size);

ssize_t __wrap_read(int fd, void *buf, size_t size)
{
	static atomic_uint n;
	char link[32], path[256] = "";

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	if (reads_fail && readlink(link, path, sizeof path - 1) > 0 && strstr(path, "/0000:81:") &&
	    n++ % 3 == 0) {
		n_failed++;
		errno = ENODEV;
		return -1;
	}
	return __real_read(fd, buf, size);
}

struct flicker {
	struct plain_tree *tree;
	atomic_bool stop;
	unsigned rounds;
};

static void rename_device(const struct plain_tree *t, struct pci_addr a, bool away)
{
	char bdf[PCI_ADDR_MAX];
	char here[256], there[256];

	pci_addr_format(a, bdf);
	snprintf(here, sizeof here, "%s/bus/pci/devices/%s", t->sys, bdf);
	snprintf(there, sizeof there, "%s/away/%s", t->root, bdf);
	if (rename(away ? here : there, away ? there : here) < 0)
		abort();
}

static void *flicker_run(void *userdata)
{
	struct flicker *f = userdata;

	while (!f->stop) {
		rename_device(f->tree, card81, true);
		for (unsigned i = 0; i < 8; i++)
			rename_device(f->tree, plain_tree_vf_address(card81, i, 4), true);
		for (unsigned i = 0; i < 8; i++)
			rename_device(f->tree, plain_tree_vf_address(card81, i, 4), false);
		rename_device(f->tree, card81, false);
		f->rounds++;
	}
	return NULL;
}

/* F11 */
static void a_vanishing_card_does_not_touch_another(void **state)
{
	struct plain_tree *t = *state;
	struct flicker flicker = { .tree = t };
	struct inventory *first, *inv;
	pthread_t thread;
	unsigned n_whole = 0;

	add_card_with_vfs(t, card41, 32, 4);
	add_card_with_vfs(t, card81, 8, 4);
	plain_tree_dir(t, "away");
	first = scan(t);
	reads_fail = true;
	assert_int_equal(pthread_create(&thread, NULL, flicker_run, &flicker), 0);
	for (unsigned i = 0; i < 1000; i++) {
		inv = scan(t);
		if (inv->n_cards == 0 ||
		    memcmp(&inv->cards[0], &first->cards[0], sizeof inv->cards[0]) != 0)
			fail_msg("scan %u sees another card41", i);
		assert_true(inv->n_cards <= 2);
		n_whole += inv->n_cards == 2 && inv->cards[1].n_vfs == 8;
		inventory_free(inv);
	}
	flicker.stop = true;
	reads_fail = false;
	pthread_join(thread, NULL);
	inventory_free(first);
	assert_true(flicker.rounds > 0);
	assert_true(n_failed > 0);
	print_message("%u rounds and %u failed reads beside 1000 scans, %u saw all of card81\n",
		      flicker.rounds, n_failed, n_whole);
}

/* --- Captures of real hosts ------------------------------------------------------------------ */

static char *shared_path(const char *path)
{
	const char *shared = getenv("BERTH_SHARED");
	static char buf[512];

	snprintf(buf, sizeof buf, "%s/%s", shared ? shared : "../shared", path);
	if (access(buf, R_OK) == 0)
		return buf;
	print_message("SKIPPED: %s is not there (BERTH_SHARED names its folder)\n", buf);
	return NULL;
}

/* One line of an umockdev description of the PCI devices; the devices lie flat in bus/pci/devices.
 */
static void lay_out_line(struct plain_tree *t, char *line, struct pci_addr *device)
{
	char *name = line + 3, *value;

	if (str_starts_with(line, "P: ")) {
		assert_int_equal(pci_addr_parse(strrchr(line, '/') + 1, device), 0);
		return;
	}
	value = strchr(line, '=');
	if (!value || (line[0] != 'A' && line[0] != 'L'))
		return;
	*value++ = '\0';
	if (line[0] == 'L') {
		plain_tree_link(t, plain_tree_device(*device, name), value);
		return;
	}
	if (str_ends_with(value, "\\n"))
		strcpy(value + strlen(value) - 2, "\n");
	plain_tree_write(t, plain_tree_device(*device, name), value);
}

static void the_capture_of_an_a2_host(void **state)
{
	struct plain_tree *t = *state;
	char *path = shared_path("data/captures/harvester/a2-node-nvidia.umockdev");
	struct pci_addr device = { 0 }, pf = { 0, 0x08, 0, 0 };
	struct inventory *inv;
	char *text, *line, *rest;

	if (!path)
		skip();
	assert_int_equal(file_read_at(AT_FDCWD, path, 1 << 20, &text, NULL), 0);
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		lay_out_line(t, line, &device);
	free(text);
	inv = scan(t);
	assert_int_equal(inv->n_cards, 1);
	assert_true(pci_addr_equal(inv->cards[0].address, pf));
	assert_int_equal(inv->cards[0].device_id, 0x25b6);
	assert_int_equal(inv->cards[0].total_vfs, 16);
	assert_int_equal(inv->cards[0].n_vfs, 16);
	assert_string_equal(inv->cards[0].reason, "");
	for (unsigned i = 0; i < 16; i++) {
		assert_true(pci_addr_equal(inv->cards[0].vfs[i].address,
					   plain_tree_vf_address(pf, i, 4)));
		assert_true(inv->cards[0].vfs[i].vfio_group > 0);
		assert_false(inv->cards[0].vfs[i].vendor_vfio); /* mdev host: no nvidia/ */
		assert_string_equal(inv->cards[0].vfs[i].reason, "no nvidia/current_vgpu_type");
	}
	assert_int_equal(inv->framework, FRAMEWORK_VENDOR_VFIO); /* so far nothing says mdev */
	inventory_free(inv);

	/* The other capture of that host: one VF's mdev folder. */
	plain_tree_dir(t, "sys/class/mdev_bus");
	plain_tree_link(t, "sys/class/mdev_bus/0000:08:01.7", "../../bus/pci/devices/0000:08:01.7");
	inv = scan(t);
	assert_int_equal(inv->framework, FRAMEWORK_MDEV);
	inventory_free(inv);
	plain_tree_dir(t, "sys/bus/pci/devices/0000:08:01.7/mdev_supported_types");
	inv = scan(t);
	assert_int_equal(inv->framework, FRAMEWORK_MDEV);
	assert_true(inv->cards[0].vfs[11].mdev);
	assert_string_equal(inv->cards[0].vfs[11].reason, "mdev framework");
	inventory_free(inv);
}

static void foreign_mdev_devices_do_not_count(void **state)
{
	struct plain_tree *t = *state;
	struct inventory *inv;

	plain_tree_card(t, card41, 0, 0);
	plain_tree_dir(t, "sys/class/mdev_bus/0000:00:02.0");
	inv = scan(t);
	assert_int_equal(inv->framework, FRAMEWORK_NONE);
	inventory_free(inv);
	/* A card without SR-IOV that offers mdev types itself. */
	plain_tree_dir(t, plain_tree_device(card41, "mdev_supported_types"));
	inv = scan(t);
	assert_int_equal(inv->framework, FRAMEWORK_MDEV);
	inventory_free(inv);
	assert_string_equal(inventory_framework_name(FRAMEWORK_MDEV), "mdev");
	assert_string_equal(inventory_framework_name(FRAMEWORK_VENDOR_VFIO), "vendor_vfio");
	assert_string_equal(inventory_framework_name(FRAMEWORK_NONE), "none");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_unreadable_bus_is_an_error),
		TEST(a_host_without_cards_is_empty),
		TEST(finds_cards_and_their_vfs_by_number),
		TEST(finds_the_nodes_of_vfs),
		TEST(other_functions_are_no_cards),
		TEST(cards_for_passthrough_are_listed),
		TEST(a_damaged_vf_costs_only_itself),
		TEST(odd_attributes_of_a_card_cost_only_themselves),
		TEST(vfs_may_come_later),
		TEST(two_scans_are_compared_by_content),
		TEST(numa_nodes_are_those_of_this_machine),
		TEST(more_cards_than_the_limit_are_counted),
		TEST(a_large_host_is_read_whole),
		TEST(a_vanishing_card_does_not_touch_another),
		TEST(the_capture_of_an_a2_host),
		TEST(foreign_mdev_devices_do_not_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
