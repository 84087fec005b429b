/* SPDX-License-Identifier: Apache-2.0 */
#include "host/inventory.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "host/listing.h"

#define VENDOR_NVIDIA	   0x10de
#define BASE_CLASS_DISPLAY 0x03
#define ATTR_MAX	   64

/* --- Attributes ----------------------------------------------------------------------------- */

static int read_text(int dir_fd, const char *name, char *buf, size_t size)
{
	int r = file_read_into(dir_fd, name, buf, size, NULL);

	if (r == 0)
		buf[strcspn(buf, "\r\n")] = '\0';
	return r;
}

/* "0x10de" */
static int read_hex(int dir_fd, const char *name, uint32_t *ret)
{
	char text[ATTR_MAX];
	char *end;
	unsigned long value;
	int r;

	r = read_text(dir_fd, name, text, sizeof text);
	if (r < 0)
		return r;
	if (!str_starts_with(text, "0x"))
		return -EBADMSG;
	value = strtoul(text + 2, &end, 16);
	if (end == text + 2 || *end || text[2] == '-' || text[2] == '+' || value > UINT32_MAX)
		return -EBADMSG;
	*ret = (uint32_t)value;
	return 0;
}

static int read_u32(int dir_fd, const char *name, uint32_t *ret)
{
	char text[ATTR_MAX];
	int r;

	r = read_text(dir_fd, name, text, sizeof text);
	if (r < 0)
		return r;
	return str_to_u32(text, ret) < 0 ? -EBADMSG : 0;
}

static int link_address(int dir_fd, const char *name, struct pci_addr *ret)
{
	char target[64];
	int r;

	r = file_link_basename(dir_fd, name, target, sizeof target);
	if (r < 0)
		return r;
	return pci_addr_parse(target, ret) < 0 ? -EBADMSG : 0;
}

/* Name of the driver; "" and 0 when unbound. */
static int read_driver(int dir_fd, char *ret, size_t size)
{
	int r = file_link_basename(dir_fd, "driver", ret, size);

	if (r < 0)
		ret[0] = '\0';
	return r == -ENOENT ? 0 : r;
}

static int read_iommu_group(int dir_fd)
{
	char name[16];
	uint32_t group;

	if (file_link_basename(dir_fd, "iommu_group", name, sizeof name) < 0 ||
	    str_to_u32(name, &group) < 0 || group > INT_MAX)
		return -1;
	return (int)group;
}

static bool exists(int dir_fd, const char *name)
{
	return faccessat(dir_fd, name, F_OK, 0) == 0;
}

static bool is_gone(int r)
{
	return r == -ENOENT || r == -ENODEV || r == -ENXIO || r == -ENOTDIR;
}

static void set_reason(char reason[static INVENTORY_REASON_MAX], const char *what, int code)
{
	if (reason[0])
		return; /* one is enough */
	if (code == 0)
		str_copy_cut(reason, INVENTORY_REASON_MAX, what);
	else
		snprintf(reason, INVENTORY_REASON_MAX, "%s: %s", what, strerror(-code));
}

/* --- VFs ------------------------------------------------------------------------------------ */

static void read_vfio_device(int vf_fd, struct inventory_vf *vf)
{
	_close_ int fd = -1;
	struct listing l;
	const char *name;
	int r;

	fd = openat(vf_fd, "vfio-dev", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return;
	listing_init(&l, fd);
	while ((name = listing_next(&l, &r)))
		if (str_starts_with(name, "vfio") &&
		    str_copy(vf->vfio_device, sizeof vf->vfio_device, name) == 0)
			return;
}

static void judge_vf(struct inventory_vf *vf, bool has_type_file, int driver_error)
{
	char foreign[64];

	snprintf(foreign, sizeof foreign, "bound to %s instead of nvidia", vf->driver);
	if (driver_error < 0)
		set_reason(vf->reason, "driver link", driver_error);
	else if (!vf->driver[0])
		set_reason(vf->reason, "bound to no driver", 0);
	else if (strcmp(vf->driver, "nvidia") != 0)
		set_reason(vf->reason, foreign, 0);
	else if (vf->mdev)
		set_reason(vf->reason, "mdev framework", 0);
	else if (!has_type_file)
		set_reason(vf->reason, "no nvidia/current_vgpu_type", 0);
	else
		vf->vendor_vfio = true;
}

static void read_vf(int vf_fd, struct pci_addr card, struct inventory_vf *vf)
{
	struct pci_addr physfn;
	bool has_type_file;
	int r;

	r = link_address(vf_fd, "physfn", &physfn);
	if (r < 0)
		set_reason(vf->reason, "physfn link", r);
	else if (!pci_addr_equal(physfn, card))
		set_reason(vf->reason, "physfn names another card", 0);
	r = read_driver(vf_fd, vf->driver, sizeof vf->driver);
	vf->vfio_group = read_iommu_group(vf_fd);
	has_type_file = exists(vf_fd, "nvidia/current_vgpu_type");
	vf->mdev = !has_type_file && exists(vf_fd, "mdev_supported_types");
	if (!vf->reason[0])
		judge_vf(vf, has_type_file, r);
	if (vf->vendor_vfio)
		read_vfio_device(vf_fd, vf);
}

static void scan_vf(int devices_fd, int card_fd, struct inventory_card *card, const char *link)
{
	struct inventory_vf *vf = &card->vfs[card->n_vfs];
	struct pci_addr address;
	_close_ int vf_fd = -1;
	char bdf[PCI_ADDR_MAX], text[64];
	uint32_t number;
	int r;

	if (str_to_u32(link + strlen("virtfn"), &number) < 0)
		return;
	r = link_address(card_fd, link, &address);
	if (is_gone(r))
		return;
	if (r < 0 || card->n_vfs == INVENTORY_VFS_MAX) {
		snprintf(text, sizeof text, "%.20s left out", link);
		set_reason(card->reason, text, r);
		return;
	}
	*vf = (struct inventory_vf){ .address = address, .number = number, .vfio_group = -1 };
	card->n_vfs++;
	/* Through the PF's link the way is shorter than from the bus's list of devices. */
	vf_fd = openat(card_fd, link, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (vf_fd < 0)
		vf_fd = openat(devices_fd, pci_addr_format(address, bdf),
			       O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (vf_fd < 0)
		set_reason(vf->reason, "VF folder", -errno);
	else
		read_vf(vf_fd, card->address, vf);
}

static int compare_vfs(const void *a, const void *b)
{
	const struct inventory_vf *x = a, *y = b;

	return (x->number > y->number) - (x->number < y->number);
}

/* The links virtfn0, virtfn1... in whatever order the folder lists them. */
static void scan_vfs(int devices_fd, int card_fd, struct inventory_card *card)
{
	_close_ int fd = -1;
	struct listing l;
	const char *name;
	int r;

	fd = openat(card_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		set_reason(card->reason, "list of VFs", -errno);
		return;
	}
	listing_init(&l, fd);
	while ((name = listing_next(&l, &r)))
		if (str_starts_with(name, "virtfn"))
			scan_vf(devices_fd, card_fd, card, name);
	if (r < 0 && !is_gone(r))
		set_reason(card->reason, "list of VFs", r);
	qsort(card->vfs, card->n_vfs, sizeof card->vfs[0], compare_vfs);
}

/* --- Cards ---------------------------------------------------------------------------------- */

/* -1 unless it names a node of this machine. A tree without any node folder names none to compare
 * with; the number counts then. */
static int read_numa_node(const char *sysfs_root, int card_fd)
{
	char path[PATH_MAX];
	uint32_t node;
	int n;

	if (read_u32(card_fd, "numa_node", &node) < 0 || node > INT_MAX)
		return -1;
	n = snprintf(path, sizeof path, "%s/devices/system/node", sysfs_root);
	if (n < 0 || (size_t)n >= sizeof path - 16)
		return -1;
	if (!exists(AT_FDCWD, path))
		return (int)node;
	snprintf(path + n, sizeof path - (size_t)n, "/node%" PRIu32, node);
	return exists(AT_FDCWD, path) ? (int)node : -1;
}

/* True for a graphics function of NVIDIA that does not say it is a VF. One that vanishes while it
 * is looked at is none. */
static bool is_card(int devices_fd, const char *name)
{
	struct pci_addr physfn;
	uint32_t vendor, class;
	char path[PCI_ADDR_MAX + 16];
	int r;

	/* Most functions on such a host are VFs, and one readlink tells. */
	snprintf(path, sizeof path, "%.19s/physfn", name);
	r = link_address(devices_fd, path, &physfn);
	if (r == 0)
		return false;
	snprintf(path, sizeof path, "%.19s/vendor", name);
	if (read_hex(devices_fd, path, &vendor) < 0 || vendor != VENDOR_NVIDIA)
		return false;
	snprintf(path, sizeof path, "%.19s/class", name);
	return read_hex(devices_fd, path, &class) == 0 && class >> 16 == BASE_CLASS_DISPLAY;
}

/* False when the card has vanished. */
static bool scan_card(const char *sysfs_root, int devices_fd, struct inventory_card *card)
{
	char bdf[PCI_ADDR_MAX];
	_close_ int fd = -1;
	uint32_t total = 0;
	int r;

	fd = openat(devices_fd, pci_addr_format(card->address, bdf),
		    O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return false;
	r = read_hex(fd, "device", &card->device_id);
	if (r < 0)
		set_reason(card->reason, "device", r);
	r = read_driver(fd, card->driver, sizeof card->driver);
	if (r < 0)
		set_reason(card->reason, "driver link", r);
	r = read_u32(fd, "sriov_totalvfs", &total);
	if (r < 0 && r != -ENOENT)
		set_reason(card->reason, "sriov_totalvfs", r);
	card->total_vfs = total;
	card->numa_node = read_numa_node(sysfs_root, fd);
	card->iommu_group = read_iommu_group(fd);
	scan_vfs(devices_fd, fd, card);
	return exists(fd, "vendor");
}

static bool has_mdev(const char *sysfs_root, int devices_fd, const struct inventory_card *card)
{
	char bdf[PCI_ADDR_MAX], path[PATH_MAX];
	int n;

	for (unsigned i = 0; i < card->n_vfs; i++)
		if (card->vfs[i].mdev)
			return true;
	snprintf(path, sizeof path, "%s/mdev_supported_types", pci_addr_format(card->address, bdf));
	if (exists(devices_fd, path))
		return true;
	for (unsigned i = 0; i <= card->n_vfs; i++) {
		pci_addr_format(i < card->n_vfs ? card->vfs[i].address : card->address, bdf);
		n = snprintf(path, sizeof path, "%s/class/mdev_bus/%s", sysfs_root, bdf);
		if (n > 0 && (size_t)n < sizeof path && exists(AT_FDCWD, path))
			return true;
	}
	return false;
}

static enum inventory_framework find_framework(const char *sysfs_root, int devices_fd,
					       const struct inventory *inv)
{
	bool may_become_vendor = false;

	for (unsigned c = 0; c < inv->n_cards; c++)
		for (unsigned i = 0; i < inv->cards[c].n_vfs; i++)
			if (inv->cards[c].vfs[i].vendor_vfio)
				return FRAMEWORK_VENDOR_VFIO;
	for (unsigned c = 0; c < inv->n_cards; c++) {
		const struct inventory_card *card = &inv->cards[c];

		if (has_mdev(sysfs_root, devices_fd, card))
			return FRAMEWORK_MDEV;
		may_become_vendor |= card->total_vfs > 0 && strcmp(card->driver, "nvidia") == 0;
	}
	return may_become_vendor ? FRAMEWORK_VENDOR_VFIO : FRAMEWORK_NONE;
}

/* --- The scan ------------------------------------------------------------------------------- */

static int open_devices(const char *sysfs_root)
{
	char path[PATH_MAX];
	int n, fd;

	n = snprintf(path, sizeof path, "%s/bus/pci/devices", sysfs_root);
	if (n < 0 || (size_t)n >= sizeof path)
		return -ENAMETOOLONG;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

struct candidate {
	struct pci_addr address;
	bool sriov;
};

/* Those with SR-IOV first: they tell which of the others are VFs without a physfn link. */
static int compare_candidates(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->sriov != y->sriov)
		return x->sriov ? -1 : 1;
	return pci_addr_compare(x->address, y->address);
}

struct candidates {
	unsigned n;
	struct candidate items[INVENTORY_CARDS_MAX * (INVENTORY_VFS_MAX + 1)];
};

static int find_candidates(int devices_fd, struct candidates *ret)
{
	struct listing l;
	const char *name;
	int r;

	listing_init(&l, devices_fd);
	while ((name = listing_next(&l, &r)) && ret->n < ARRAY_SIZE(ret->items)) {
		struct candidate *c = &ret->items[ret->n];
		char path[PCI_ADDR_MAX + 16];

		if (pci_addr_parse(name, &c->address) < 0 || !is_card(devices_fd, name))
			continue;
		snprintf(path, sizeof path, "%.19s/sriov_totalvfs", name);
		c->sriov = exists(devices_fd, path);
		ret->n++;
	}
	qsort(ret->items, ret->n, sizeof ret->items[0], compare_candidates);
	return name ? 0 : r;
}

static bool is_vf_of_another(const struct inventory *inv, struct pci_addr a)
{
	for (unsigned c = 0; c < inv->n_cards; c++)
		for (unsigned i = 0; i < inv->cards[c].n_vfs; i++)
			if (pci_addr_equal(inv->cards[c].vfs[i].address, a))
				return true;
	return false;
}

static int compare_cards(const void *a, const void *b)
{
	const struct inventory_card *x = a, *y = b;

	return pci_addr_compare(x->address, y->address);
}

static void scan_cards(const char *sysfs_root, int devices_fd, const struct candidates *found,
		       struct inventory *inv)
{
	for (unsigned i = 0; i < found->n; i++) {
		struct inventory_card *card = &inv->cards[inv->n_cards];

		if (!found->items[i].sriov && is_vf_of_another(inv, found->items[i].address))
			continue;
		if (inv->n_cards == INVENTORY_CARDS_MAX) {
			inv->n_cards_beyond++;
			continue;
		}
		*card = (struct inventory_card){ .address = found->items[i].address };
		if (scan_card(sysfs_root, devices_fd, card))
			inv->n_cards++;
	}
	qsort(inv->cards, inv->n_cards, sizeof inv->cards[0], compare_cards);
}

static struct inventory *inventory_new(unsigned n_candidates)
{
	struct inventory *inv = calloc(1, sizeof *inv);

	if (!inv)
		return NULL;
	inv->cards = calloc(MIN(n_candidates + 1U, (unsigned)INVENTORY_CARDS_MAX),
			    sizeof *inv->cards);
	return inv->cards ? inv : inventory_free(inv);
}

int inventory_scan(const char *sysfs_root, struct inventory **ret, struct error *err)
{
	_free_ struct candidates *found = NULL;
	struct inventory *inv;
	_close_ int fd = -1;
	int r;

	fd = open_devices(sysfs_root);
	if (fd < 0)
		return error_set_errno(err, fd, "%s/bus/pci/devices", sysfs_root);
	found = calloc(1, sizeof *found);
	if (!found)
		return error_set_errno(err, ENOMEM, "inventory");
	r = find_candidates(fd, found);
	if (r < 0)
		return error_set_errno(err, r, "%s/bus/pci/devices", sysfs_root);
	inv = inventory_new(found->n);
	if (!inv)
		return error_set_errno(err, ENOMEM, "inventory");
	scan_cards(sysfs_root, fd, found, inv);
	inv->framework = find_framework(sysfs_root, fd, inv);
	*ret = inv;
	return 0;
}

void inventory_find_nodes(struct inventory *inv, const char *dev_root)
{
	_close_ int fd = open(dev_root, O_PATH | O_DIRECTORY | O_CLOEXEC);

	/* Without the folder nothing is in it: faccessat() says so of -1. */
	inv->iommufd = exists(fd, "iommu");
	for (unsigned c = 0; c < inv->n_cards; c++) {
		for (unsigned i = 0; i < inv->cards[c].n_vfs; i++) {
			struct inventory_vf *vf = &inv->cards[c].vfs[i];
			char path[48];

			snprintf(path, sizeof path, "vfio/devices/%s", vf->vfio_device);
			vf->vfio_node = vf->vfio_device[0] && exists(fd, path);
		}
	}
}

struct inventory *inventory_free(struct inventory *inv)
{
	if (inv)
		free(inv->cards);
	free(inv);
	return NULL;
}

static bool vf_equal(const struct inventory_vf *a, const struct inventory_vf *b)
{
	return pci_addr_equal(a->address, b->address) && a->number == b->number &&
	       a->vendor_vfio == b->vendor_vfio && a->mdev == b->mdev &&
	       a->vfio_group == b->vfio_group && a->vfio_node == b->vfio_node &&
	       strcmp(a->driver, b->driver) == 0 && strcmp(a->vfio_device, b->vfio_device) == 0 &&
	       strcmp(a->reason, b->reason) == 0;
}

static bool card_equal(const struct inventory_card *a, const struct inventory_card *b)
{
	if (!pci_addr_equal(a->address, b->address) || a->device_id != b->device_id ||
	    a->numa_node != b->numa_node || a->total_vfs != b->total_vfs ||
	    a->iommu_group != b->iommu_group || a->n_vfs != b->n_vfs ||
	    strcmp(a->driver, b->driver) != 0 || strcmp(a->reason, b->reason) != 0)
		return false;
	for (unsigned i = 0; i < a->n_vfs; i++)
		if (!vf_equal(&a->vfs[i], &b->vfs[i]))
			return false;
	return true;
}

bool inventory_equal(const struct inventory *a, const struct inventory *b)
{
	if (a->framework != b->framework || a->n_cards != b->n_cards)
		return false;
	for (unsigned i = 0; i < a->n_cards; i++)
		if (!card_equal(&a->cards[i], &b->cards[i]))
			return false;
	return true;
}

/* FNV-1a with a final mix, so that sums of it do not cancel out. */
static uint64_t hash_name(const char *name)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
	h ^= h >> 31;
	h *= UINT64_C(0x9e3779b97f4a7c15);
	return h ^ h >> 29;
}

int inventory_fingerprint(const char *sysfs_root, uint64_t *ret)
{
	_close_ int fd = -1;
	uint64_t sum = 0;
	struct listing l;
	const char *name;
	int r;

	fd = open_devices(sysfs_root);
	if (fd < 0)
		return fd;
	/* A sum, since the order of names means nothing. */
	listing_init(&l, fd);
	while ((name = listing_next(&l, &r)))
		sum += hash_name(name);
	if (r < 0)
		return r;
	*ret = sum;
	return 0;
}

const char *inventory_framework_name(enum inventory_framework f)
{
	switch (f) {
	case FRAMEWORK_NONE:
		return "none";
	case FRAMEWORK_VENDOR_VFIO:
		return "vendor_vfio";
	case FRAMEWORK_MDEV:
		return "mdev";
	}
	return "none";
}
