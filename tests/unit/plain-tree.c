/* SPDX-License-Identifier: Apache-2.0 */
#include "plain-tree.h"

#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

#include <cmocka.h>

static char *scratch(void)
{
	static char buffers[16][512];
	static unsigned next;

	return buffers[next++ % ARRAY_SIZE(buffers)];
}

void plain_tree_init(struct plain_tree *t)
{
	const char *tmp = getenv("TMPDIR");

	memset(t, 0, sizeof *t);
	t->next_group = 40;
	snprintf(t->root, sizeof t->root, "%.40s/berth-tree-XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(t->root));
	snprintf(t->sys, sizeof t->sys, "%s/sys", t->root);
	snprintf(t->dev, sizeof t->dev, "%s/dev", t->root);
	plain_tree_dir(t, "sys/bus/pci/devices");
	plain_tree_dir(t, "sys/bus/pci/drivers/nvidia");
	plain_tree_dir(t, "sys/kernel/iommu_groups");
	plain_tree_dir(t, "sys/devices/system/node/node0");
	plain_tree_dir(t, "sys/devices/system/node/node1");
	plain_tree_dir(t, "dev/vfio/devices");
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	remove(path);
	return 0;
}

void plain_tree_done(struct plain_tree *t)
{
	if (t->root[0])
		nftw(t->root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	t->root[0] = '\0';
}

char *plain_tree_path(const struct plain_tree *t, const char *path)
{
	char *buf = scratch();

	snprintf(buf, 512, "%s/%s", t->root, path);
	return buf;
}

void plain_tree_dir(struct plain_tree *t, const char *path)
{
	assert_int_equal(file_make_dirs(plain_tree_path(t, path), 0755), 0);
}

static void make_parent(struct plain_tree *t, const char *path)
{
	char *copy = scratch();
	char *slash;

	snprintf(copy, 512, "%s", path);
	slash = strrchr(copy, '/');
	if (slash) {
		*slash = '\0';
		plain_tree_dir(t, copy);
	}
}

void plain_tree_write(struct plain_tree *t, const char *path, const char *text)
{
	int fd;

	make_parent(t, path);
	fd = open(plain_tree_path(t, path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

void plain_tree_link(struct plain_tree *t, const char *path, const char *target)
{
	make_parent(t, path);
	unlink(plain_tree_path(t, path));
	assert_int_equal(symlink(target, plain_tree_path(t, path)), 0);
}

void plain_tree_remove(struct plain_tree *t, const char *path)
{
	nftw(plain_tree_path(t, path), remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

char *plain_tree_read(struct plain_tree *t, const char *path)
{
	char *buf = scratch();

	assert_int_equal(file_read_into(AT_FDCWD, plain_tree_path(t, path), buf, 512, NULL), 0);
	return buf;
}

char *plain_tree_device(struct pci_addr a, const char *name)
{
	char *buf = scratch();
	char bdf[PCI_ADDR_MAX];

	snprintf(buf, 512, "sys/bus/pci/devices/%s%s%s", pci_addr_format(a, bdf), name ? "/" : "",
		 name ? name : "");
	return buf;
}

static void add_function(struct plain_tree *t, struct pci_addr a, int numa_node)
{
	char text[64];

	plain_tree_write(t, plain_tree_device(a, "vendor"), "0x10de\n");
	plain_tree_write(t, plain_tree_device(a, "device"), "0x26b9\n");
	plain_tree_write(t, plain_tree_device(a, "class"), "0x030200\n");
	snprintf(text, sizeof text, "%d\n", numa_node);
	plain_tree_write(t, plain_tree_device(a, "numa_node"), text);
	plain_tree_link(t, plain_tree_device(a, "driver"), "../../drivers/nvidia");
	snprintf(text, sizeof text, "../../../../kernel/iommu_groups/%d", t->next_group);
	plain_tree_link(t, plain_tree_device(a, "iommu_group"), text);
}

void plain_tree_card(struct plain_tree *t, struct pci_addr a, unsigned total_vfs, int numa_node)
{
	char text[16];

	add_function(t, a, numa_node);
	t->next_group++;
	snprintf(text, sizeof text, "%u\n", total_vfs);
	plain_tree_write(t, plain_tree_device(a, "sriov_totalvfs"), text);
}

struct pci_addr plain_tree_vf_address(struct pci_addr card, unsigned number, unsigned offset)
{
	unsigned devfn = card.device * 8U + card.function + offset + number;

	return (struct pci_addr){ card.domain, (uint8_t)(card.bus + devfn / 256),
				  (uint8_t)(devfn % 256 / 8), (uint8_t)(devfn % 8) };
}

struct pci_addr plain_tree_vf(struct plain_tree *t, struct pci_addr card, unsigned number,
			      unsigned offset)
{
	struct pci_addr vf = plain_tree_vf_address(card, number, offset);
	char bdf[PCI_ADDR_MAX], text[64], link[64];

	add_function(t, vf, 0);
	snprintf(text, sizeof text, "dev/vfio/%d", t->next_group);
	plain_tree_write(t, text, "");
	snprintf(text, sizeof text, "dev/vfio/devices/vfio%d", t->next_group);
	plain_tree_write(t, text, "");
	snprintf(text, sizeof text, "vfio-dev/vfio%d", t->next_group);
	plain_tree_dir(t, plain_tree_device(vf, text));
	t->next_group++;

	snprintf(link, sizeof link, "virtfn%u", number);
	snprintf(text, sizeof text, "../%s", pci_addr_format(vf, bdf));
	plain_tree_link(t, plain_tree_device(card, link), text);
	snprintf(text, sizeof text, "../%s", pci_addr_format(card, bdf));
	plain_tree_link(t, plain_tree_device(vf, "physfn"), text);

	plain_tree_write(t, plain_tree_device(vf, "nvidia/current_vgpu_type"), "0\n");
	plain_tree_write(t, plain_tree_device(vf, "nvidia/creatable_vgpu_types"),
			 "ID    : vGPU Name\n1145  : NVIDIA L40S-1B\n1147  : NVIDIA L40S-1Q\n");
	plain_tree_write(t, plain_tree_device(vf, "nvidia/placement_id"), "");
	plain_tree_write(t, plain_tree_device(vf, "nvidia/vgpu_params"), "");
	return vf;
}
