/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/host-scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "host/listing.h"

#define CLASS_BRIDGE	0x06
#define FOLDER_PATH_MAX 512

bool host_is_vfio_driver(const char *driver)
{
	return strcmp(driver, "vfio-pci") == 0 || strcmp(driver, "nvgrace_gpu_vfio_pci") == 0;
}

/* --- Single functions ------------------------------------------------------------------------ */

static int open_folder(const char *sysfs_root, const char *folder, const char *name, int flags)
{
	char path[FOLDER_PATH_MAX];
	int n, fd;

	n = snprintf(path, sizeof path, "%s/%s/%s", sysfs_root, folder, name);
	if (n < 0 || (size_t)n >= sizeof path)
		return -ENAMETOOLONG;
	fd = open(path, flags | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int open_function(const char *sysfs_root, struct pci_addr function)
{
	char bdf[PCI_ADDR_MAX];

	return open_folder(sysfs_root, "bus/pci/devices", pci_addr_format(function, bdf), O_PATH);
}

static uint32_t read_hex(int fd, const char *name)
{
	char text[32];

	if (file_read_into(fd, name, text, sizeof text, NULL) < 0)
		return 0;
	return (uint32_t)strtoul(text, NULL, 16);
}

static int read_group_link(int fd)
{
	char name[16];
	uint32_t group;

	if (file_link_basename(fd, "iommu_group", name, sizeof name) < 0 ||
	    str_to_u32(name, &group) < 0 || group > INT_MAX)
		return -1;
	return (int)group;
}

static void read_driver(int fd, char *ret, size_t size)
{
	if (file_link_basename(fd, "driver", ret, size) < 0)
		ret[0] = '\0';
}

static void read_vfio_device(int function_fd, char ret[static 24])
{
	_close_ int fd = openat(function_fd, "vfio-dev", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct listing l;
	const char *name;
	int r;

	ret[0] = '\0';
	if (fd < 0)
		return;
	listing_init(&l, fd);
	while ((name = listing_next(&l, &r)))
		if (str_starts_with(name, "vfio") && str_copy(ret, 24, name) == 0)
			return;
}

int host_read_function(const char *sysfs_root, struct pci_addr function, struct function_now *ret)
{
	_close_ int fd = open_function(sysfs_root, function);

	if (fd < 0)
		return fd;
	ret->vendor = read_hex(fd, "vendor");
	ret->group = read_group_link(fd);
	read_driver(fd, ret->driver, sizeof ret->driver);
	read_vfio_device(fd, ret->vfio_device);
	return 0;
}

int host_read_mdev_group(const char *sysfs_root, const char *uuid, int *ret)
{
	_close_ int fd = open_folder(sysfs_root, "bus/mdev/devices", uuid, O_PATH);

	if (fd < 0)
		return fd;
	*ret = read_group_link(fd);
	return 0;
}

/* --- Groups ---------------------------------------------------------------------------------- */

static void add_member(const char *sysfs_root, struct pci_addr address, struct gpu_group *g)
{
	struct group_member *m = &g->members[g->n];
	_close_ int fd = -1;

	if (g->n == GROUP_MEMBERS_MAX)
		return;
	fd = open_function(sysfs_root, address);
	if (fd < 0)
		return;
	*m = (struct group_member){ .address = address };
	read_driver(fd, m->driver, sizeof m->driver);
	read_vfio_device(fd, m->vfio_device);
	m->bridge = read_hex(fd, "class") >> 16 == CLASS_BRIDGE;
	g->n++;
}

static int compare_members(const void *a, const void *b)
{
	return pci_addr_compare(((const struct group_member *)a)->address,
				((const struct group_member *)b)->address);
}

void host_read_group(const char *sysfs_root, struct pci_addr function, struct gpu_group *ret)
{
	_close_ int function_fd = open_function(sysfs_root, function);
	_close_ int fd = -1;
	struct listing l;
	const char *name;
	bool found = false;
	int r;

	*ret = (struct gpu_group){ .gpu = function };
	if (function_fd >= 0)
		fd = openat(function_fd, "iommu_group/devices", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		listing_init(&l, fd);
		while ((name = listing_next(&l, &r))) {
			struct pci_addr member;

			if (pci_addr_parse(name, &member) == 0)
				add_member(sysfs_root, member, ret);
		}
	}
	for (unsigned i = 0; i < ret->n; i++)
		found |= pci_addr_equal(ret->members[i].address, function);
	if (!found)
		add_member(sysfs_root, function, ret);
	qsort(ret->members, ret->n, sizeof ret->members[0], compare_members);
}

static int scan_groups(const char *sysfs_root, struct host_scan *s)
{
	const struct inventory *inv = s->inventory;

	s->groups = calloc(inv->n_cards + 1U, sizeof *s->groups);
	if (!s->groups)
		return -ENOMEM;
	for (unsigned i = 0; i < inv->n_cards; i++)
		if (host_is_vfio_driver(inv->cards[i].driver))
			host_read_group(sysfs_root, inv->cards[i].address,
					&s->groups[s->n_groups++]);
	return 0;
}

/* --- Mediated devices ------------------------------------------------------------------------ */

/* The folder above the device's own: "…/0000:41:00.4/<uuid>". */
static int read_parent(int folder_fd, const char *uuid, struct pci_addr *ret)
{
	char target[PATH_MAX], *end, *start;
	ssize_t n;

	n = readlinkat(folder_fd, uuid, target, sizeof target - 1);
	if (n < 0)
		return -errno;
	target[n] = '\0';
	end = strrchr(target, '/');
	if (!end)
		return -EBADMSG;
	*end = '\0';
	start = strrchr(target, '/');
	return pci_addr_parse(start ? start + 1 : target, ret);
}

static bool read_mdev(int folder_fd, const char *uuid, struct mdev *m)
{
	_close_ int fd = openat(folder_fd, uuid, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || str_copy(m->uuid, sizeof m->uuid, uuid) < 0 ||
	    read_parent(folder_fd, uuid, &m->parent) < 0 ||
	    file_read_into(fd, "mdev_type/name", m->type_name, sizeof m->type_name, NULL) < 0)
		return false;
	m->type_name[strcspn(m->type_name, "\r\n")] = '\0';
	m->group = read_group_link(fd);
	return true;
}

static int scan_mdevs(const char *sysfs_root, struct host_scan *s)
{
	_close_ int fd = open_folder(sysfs_root, "bus/mdev", "devices", O_RDONLY);
	struct listing l;
	const char *name;
	int r;

	if (fd < 0)
		return 0; /* no mdev bus on this host */
	listing_init(&l, fd);
	while ((name = listing_next(&l, &r)) && s->n_mdevs < MDEVS_MAX) {
		struct mdev *all = s->mdevs;

		if (s->n_mdevs % 64 == 0)
			all = reallocarray(s->mdevs, s->n_mdevs + 64, sizeof *all);
		if (!all)
			return -ENOMEM;
		s->mdevs = all;
		all[s->n_mdevs] = (struct mdev){ 0 };
		if (read_mdev(fd, name, &all[s->n_mdevs]))
			s->n_mdevs++;
	}
	return 0;
}

/* --- EGM ------------------------------------------------------------------------------------- */

static void read_egm(int folder_fd, const char *name, struct host_scan *s)
{
	struct egm *e = &s->egms[s->n_egms];
	char path[64], text[EGM_GPUS_MAX * PCI_ADDR_MAX], *word, *rest = text;

	*e = (struct egm){ 0 };
	if (str_copy(e->name, sizeof e->name, name) < 0)
		return;
	snprintf(path, sizeof path, "%s/gpu_devices", name);
	if (file_read_into(folder_fd, path, text, sizeof text, NULL) < 0)
		return;
	while ((word = strsep(&rest, " \t\r\n,")) && e->n_gpus < EGM_GPUS_MAX)
		if (pci_addr_parse(word, &e->gpus[e->n_gpus]) == 0)
			e->n_gpus++;
	if (e->n_gpus > 0)
		s->n_egms++;
}

static void scan_egms(const char *sysfs_root, struct host_scan *s)
{
	_close_ int fd = open_folder(sysfs_root, "class", "egm", O_RDONLY);
	struct listing l;
	const char *name;
	int r;

	if (fd < 0)
		return;
	listing_init(&l, fd);
	while ((name = listing_next(&l, &r)) && s->n_egms < EGMS_MAX)
		if (str_starts_with(name, "egm"))
			read_egm(fd, name, s);
}

/* --- All of it ------------------------------------------------------------------------------- */

int host_scan_run(const char *sysfs_root, struct host_scan **ret, struct error *err)
{
	_cleanup_(host_scan_freep) struct host_scan *s = calloc(1, sizeof *s);
	int r;

	if (!s)
		return error_set(err, ENOMEM, "out of memory");
	r = inventory_scan(sysfs_root, &s->inventory, err);
	if (r < 0)
		return r;
	if (scan_groups(sysfs_root, s) < 0 || scan_mdevs(sysfs_root, s) < 0)
		return error_set(err, ENOMEM, "out of memory");
	scan_egms(sysfs_root, s);
	*ret = TAKE(s);
	return 0;
}

struct host_scan *host_scan_free(struct host_scan *s)
{
	if (!s)
		return NULL;
	inventory_free(s->inventory);
	free(s->groups);
	free(s->mdevs);
	free(s);
	return NULL;
}
