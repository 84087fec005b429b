/* SPDX-License-Identifier: Apache-2.0 */
/* The sysfs tree: folders, links and the plain PCI attributes. nvidia/ is in simsys-nvidia.c. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/macro.h"
#include "base/str.h"
#include "sim/simtree.h"
#include "sim/simsys-nvidia.h"

enum folder {
	FOLDER_BUS,
	FOLDER_BUS_PCI,
	FOLDER_BUS_PCI_DEVICES,
	FOLDER_BUS_PCI_DRIVERS,
	FOLDER_CLASS,
	FOLDER_CLASS_MDEV_BUS,
	FOLDER_DEVICES,
	FOLDER_SYSTEM,
	FOLDER_NODES,
	FOLDER_NODE0,
	FOLDER_NODE1,
	FOLDER_KERNEL,
	FOLDER_IOMMU_GROUPS,
	FOLDER_MODULE,
	FOLDER_MODULE_NVIDIA,
	FOLDER_NONE, /* the root, as parent */
};

/* The fixed part of the tree. */
static const struct {
	const char *name;
	enum folder folder, parent;
} folders[] = {
	{ "bus", FOLDER_BUS, FOLDER_NONE },
	{ "pci", FOLDER_BUS_PCI, FOLDER_BUS },
	{ "devices", FOLDER_BUS_PCI_DEVICES, FOLDER_BUS_PCI },
	{ "drivers", FOLDER_BUS_PCI_DRIVERS, FOLDER_BUS_PCI },
	{ "class", FOLDER_CLASS, FOLDER_NONE },
	{ "mdev_bus", FOLDER_CLASS_MDEV_BUS, FOLDER_CLASS },
	{ "devices", FOLDER_DEVICES, FOLDER_NONE },
	{ "system", FOLDER_SYSTEM, FOLDER_DEVICES },
	{ "node", FOLDER_NODES, FOLDER_SYSTEM },
	{ "node0", FOLDER_NODE0, FOLDER_NODES },
	{ "node1", FOLDER_NODE1, FOLDER_NODES },
	{ "kernel", FOLDER_KERNEL, FOLDER_NONE },
	{ "iommu_groups", FOLDER_IOMMU_GROUPS, FOLDER_KERNEL },
	{ "module", FOLDER_MODULE, FOLDER_NONE },
	{ "nvidia", FOLDER_MODULE_NVIDIA, FOLDER_MODULE },
};

static const struct {
	const char *name;
	enum folder parent;
	const char *text; /* NULL: the driver's version */
} texts[] = {
	{ "online", FOLDER_NODES, "0-1\n" },	   { "possible", FOLDER_NODES, "0-1\n" },
	{ "cpulist", FOLDER_NODE0, "0-15\n" },	   { "cpulist", FOLDER_NODE1, "16-31\n" },
	{ "version", FOLDER_MODULE_NVIDIA, NULL },
};

static const char *const drivers[] = { "nvidia", "vfio-pci" };

enum attribute {
	ATTRIBUTE_VENDOR,
	ATTRIBUTE_DEVICE,
	ATTRIBUTE_CLASS,
	ATTRIBUTE_REVISION,
	ATTRIBUTE_SUBSYSTEM_VENDOR,
	ATTRIBUTE_SUBSYSTEM_DEVICE,
	ATTRIBUTE_NUMA_NODE,
	ATTRIBUTE_LOCAL_CPULIST,
	ATTRIBUTE_IRQ,
	ATTRIBUTE_ENABLE,
	ATTRIBUTE_ARI_ENABLED,
	ATTRIBUTE_RESET_METHOD,
	ATTRIBUTE_DRIVER_OVERRIDE,
	ATTRIBUTE_MODALIAS,
	ATTRIBUTE_UEVENT,
	ATTRIBUTE_SRIOV_TOTALVFS, /* from here on: on the PF only */
	ATTRIBUTE_SRIOV_NUMVFS,
	ATTRIBUTE_SRIOV_OFFSET,
	ATTRIBUTE_SRIOV_STRIDE,
	ATTRIBUTE_SRIOV_VF_DEVICE,
	ATTRIBUTE_SRIOV_VF_TOTAL_MSIX,
	ATTRIBUTE_SRIOV_DRIVERS_AUTOPROBE,
	ATTRIBUTE_VFIO_DEV, /* <VF>/vfio-dev/vfioN/dev; not among the function's own */
};

static const struct {
	const char *name;
	mode_t mode;
} attributes[] = {
	[ATTRIBUTE_VENDOR] = { "vendor", 0444 },
	[ATTRIBUTE_DEVICE] = { "device", 0444 },
	[ATTRIBUTE_CLASS] = { "class", 0444 },
	[ATTRIBUTE_REVISION] = { "revision", 0444 },
	[ATTRIBUTE_SUBSYSTEM_VENDOR] = { "subsystem_vendor", 0444 },
	[ATTRIBUTE_SUBSYSTEM_DEVICE] = { "subsystem_device", 0444 },
	[ATTRIBUTE_NUMA_NODE] = { "numa_node", 0644 },
	[ATTRIBUTE_LOCAL_CPULIST] = { "local_cpulist", 0444 },
	[ATTRIBUTE_IRQ] = { "irq", 0444 },
	[ATTRIBUTE_ENABLE] = { "enable", 0644 },
	[ATTRIBUTE_ARI_ENABLED] = { "ari_enabled", 0444 },
	[ATTRIBUTE_RESET_METHOD] = { "reset_method", 0644 },
	[ATTRIBUTE_DRIVER_OVERRIDE] = { "driver_override", 0644 },
	[ATTRIBUTE_MODALIAS] = { "modalias", 0444 },
	[ATTRIBUTE_UEVENT] = { "uevent", 0644 },
	[ATTRIBUTE_SRIOV_TOTALVFS] = { "sriov_totalvfs", 0444 },
	[ATTRIBUTE_SRIOV_NUMVFS] = { "sriov_numvfs", 0644 },
	[ATTRIBUTE_SRIOV_OFFSET] = { "sriov_offset", 0444 },
	[ATTRIBUTE_SRIOV_STRIDE] = { "sriov_stride", 0444 },
	[ATTRIBUTE_SRIOV_VF_DEVICE] = { "sriov_vf_device", 0444 },
	[ATTRIBUTE_SRIOV_VF_TOTAL_MSIX] = { "sriov_vf_total_msix", 0444 },
	[ATTRIBUTE_SRIOV_DRIVERS_AUTOPROBE] = { "sriov_drivers_autoprobe", 0644 },
	[ATTRIBUTE_VFIO_DEV] = { "dev", 0444 },
};

enum link {
	LINK_DRIVER,
	LINK_IOMMU_GROUP,
	LINK_SUBSYSTEM,
	LINK_PHYSFN,
};

/* Name of the driver that a function is bound to; NULL while there is none. */
static const char *bound_driver(const struct sim_card *card, uint32_t fn)
{
	if (fn == SIM_FUNCTION_PF)
		return card->sriov_busy ? NULL : drivers[0];
	return drivers[card->vfs[fn].rebound ? 1 : 0];
}

static uint32_t function_group(const struct sim_card *card, uint32_t fn)
{
	return fn == SIM_FUNCTION_PF ? card->group : card->vfs[fn].group;
}

/* Calls `add` for every function on the bus, PFs first. */
static void each_function(struct sim *sim, struct sim_listing *l,
			  void (*add)(struct sim_listing *l, struct sim_card *card, uint32_t fn,
				      uint32_t arg),
			  uint32_t arg)
{
	for (uint32_t i = 0; i < sim->card_count; i++) {
		struct sim_card *card = &sim->cards[i];

		if (!card->present)
			continue;
		add(l, card, SIM_FUNCTION_PF, arg);
		for (uint32_t j = 0; j < card->vf_count; j++)
			if (sim_vf_visible(&card->vfs[j]))
				add(l, card, j, arg);
	}
}

static void add_bus_link(struct sim_listing *l, struct sim_card *card, uint32_t fn,
			 uint32_t arg _unused_)
{
	struct sim_node node = sim_function_node(card, fn, SIM_KIND_BUS_LINK, 0);

	sim_listing_add(l, sim_function_address(card, fn), &node);
}

static void add_driver_link(struct sim_listing *l, struct sim_card *card, uint32_t fn,
			    uint32_t driver)
{
	const char *bound = bound_driver(card, fn);
	struct sim_node node = sim_function_node(card, fn, SIM_KIND_BUS_LINK, 1);

	if (bound && strcmp(bound, drivers[driver]) == 0)
		sim_listing_add(l, sim_function_address(card, fn), &node);
}

/* Functions below devices/pciDDDD:BB; arg: a card on that bus. */
static void add_device(struct sim_listing *l, struct sim_card *card, uint32_t fn, uint32_t arg)
{
	const struct sim_card *named = &card->sim->cards[arg];
	struct sim_node node = sim_function_node(card, fn, SIM_KIND_FUNCTION, 0);

	if (card->domain == named->domain && card->bus == named->bus)
		sim_listing_add(l, sim_function_address(card, fn), &node);
}

static void add_group(struct sim_listing *l, struct sim_card *card, uint32_t fn,
		      uint32_t arg _unused_)
{
	struct sim_node node = sim_function_node(card, fn, SIM_KIND_GROUP, 0);
	char name[24];

	snprintf(name, sizeof(name), "%u", function_group(card, fn));
	for (size_t i = 0; i < l->count; i++)
		if (strcmp(l->entries[i].name, name) == 0)
			return;
	sim_listing_add(l, name, &node);
}

static void add_group_device(struct sim_listing *l, struct sim_card *card, uint32_t fn,
			     uint32_t group)
{
	struct sim_node node = sim_function_node(card, fn, SIM_KIND_GROUP_LINK, 0);

	if (function_group(card, fn) == group)
		sim_listing_add(l, sim_function_address(card, fn), &node);
}

static void list_pci_roots(struct sim *sim, struct sim_listing *l)
{
	for (uint32_t i = 0; i < sim->card_count; i++) {
		struct sim_card *card = &sim->cards[i];
		bool seen = false;
		char name[24];

		for (uint32_t j = 0; j < i; j++)
			seen |= sim->cards[j].domain == card->domain &&
				sim->cards[j].bus == card->bus;
		if (seen)
			continue;
		snprintf(name, sizeof(name), "pci%04x:%02x", card->domain, card->bus);
		sim_listing_add(l, name,
				&(struct sim_node){ .kind = SIM_KIND_PCI_ROOT, .card = i });
	}
}

static void list_folder(struct sim *sim, enum folder folder, struct sim_listing *l)
{
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
		if (folders[i].parent == folder)
			sim_listing_add(l, folders[i].name,
					&(struct sim_node){ .kind = SIM_KIND_SYS_FOLDER,
							    .attr = folders[i].folder });
	for (uint32_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (texts[i].parent == folder)
			sim_listing_add(l, texts[i].name,
					&(struct sim_node){ .kind = SIM_KIND_TEXT, .attr = i });
	if (folder == FOLDER_BUS_PCI_DEVICES)
		each_function(sim, l, add_bus_link, 0);
	if (folder == FOLDER_IOMMU_GROUPS)
		each_function(sim, l, add_group, 0);
	if (folder == FOLDER_DEVICES)
		list_pci_roots(sim, l);
	for (uint32_t i = 0; folder == FOLDER_BUS_PCI_DRIVERS && i < ARRAY_SIZE(drivers); i++)
		sim_listing_add(l, drivers[i],
				&(struct sim_node){ .kind = SIM_KIND_DRIVER, .attr = i });
}

static void add_link(struct sim_listing *l, struct sim_card *card, uint32_t fn, const char *name,
		     enum link link)
{
	struct sim_node node = sim_function_node(card, fn, SIM_KIND_FUNCTION_LINK, link);

	sim_listing_add(l, name, &node);
}

static void list_function(struct sim_card *card, uint32_t fn, struct sim_listing *l)
{
	bool pf = fn == SIM_FUNCTION_PF;
	uint32_t last = pf ? ATTRIBUTE_SRIOV_DRIVERS_AUTOPROBE : ATTRIBUTE_UEVENT;
	struct sim_node node;

	for (uint32_t i = 0; i <= last; i++) {
		node = sim_function_node(card, fn, SIM_KIND_FUNCTION_ATTRIBUTE, i);
		sim_listing_add(l, attributes[i].name, &node);
	}
	if (bound_driver(card, fn))
		add_link(l, card, fn, "driver", LINK_DRIVER);
	add_link(l, card, fn, "iommu_group", LINK_IOMMU_GROUP);
	add_link(l, card, fn, "subsystem", LINK_SUBSYSTEM);
	if (pf) {
		for (uint32_t j = 0; j < card->vf_count; j++) {
			char name[24];

			if (!sim_vf_visible(&card->vfs[j]))
				continue;
			snprintf(name, sizeof(name), "virtfn%u", j);
			node = sim_function_node(card, j, SIM_KIND_VIRTFN_LINK, 0);
			sim_listing_add(l, name, &node);
		}
		return;
	}
	if (!card->vfs[fn].faults.value[SIM_FAULT_PHYSFN_MISSING])
		add_link(l, card, fn, "physfn", LINK_PHYSFN);
	node = sim_function_node(card, fn, SIM_KIND_VFIO_DEV, 0);
	sim_listing_add(l, "vfio-dev", &node);
	node = sim_function_node(card, fn, SIM_KIND_NVIDIA, 0);
	if (sim_vf_has_attributes(&card->vfs[fn]))
		sim_listing_add(l, "nvidia", &node);
}

static void list_vfio_dev(struct sim_vf *vf, enum sim_kind kind, struct sim_listing *l)
{
	struct sim_node node;
	char name[24];

	if (kind == SIM_KIND_VFIO_N) {
		node = sim_function_node(vf->card, vf->index, SIM_KIND_FUNCTION_ATTRIBUTE,
					 ATTRIBUTE_VFIO_DEV);
		sim_listing_add(l, attributes[ATTRIBUTE_VFIO_DEV].name, &node);
		return;
	}
	snprintf(name, sizeof(name), "vfio%u", vf->vfio);
	node = sim_function_node(vf->card, vf->index, SIM_KIND_VFIO_N, 0);
	sim_listing_add(l, name, &node);
}

/* Nodes that are named by a function, and go with it. */
static bool is_function_kind(enum sim_kind kind)
{
	return (kind >= SIM_KIND_FUNCTION && kind <= SIM_KIND_NVIDIA_ATTRIBUTE) ||
	       (kind >= SIM_KIND_BUS_LINK && kind <= SIM_KIND_VIRTFN_LINK);
}

static int check_alive(struct sim *sim, const struct sim_node *node)
{
	if (is_function_kind(node->kind) && !sim_node_alive(sim, node))
		return -ENOENT;
	if ((node->kind == SIM_KIND_NVIDIA || node->kind == SIM_KIND_NVIDIA_ATTRIBUTE) &&
	    !sim_vf_has_attributes(&sim->cards[node->card].vfs[node->fn]))
		return -ENOENT;
	return 0;
}

int simsys_list(struct sim *sim, uint64_t ino, struct sim_listing *l)
{
	struct sim_node node = sim_node_unpack(ino), devices;
	struct sim_card *card = &sim->cards[node.card];
	int r = check_alive(sim, &node);

	if (r < 0)
		return r;
	if (node.kind == SIM_KIND_SYS_ROOT) {
		list_folder(sim, FOLDER_NONE, l);
	} else if (node.kind == SIM_KIND_SYS_FOLDER) {
		list_folder(sim, (enum folder)node.attr, l);
	} else if (node.kind == SIM_KIND_DRIVER) {
		each_function(sim, l, add_driver_link, node.attr);
	} else if (node.kind == SIM_KIND_PCI_ROOT) {
		each_function(sim, l, add_device, node.card);
	} else if (node.kind == SIM_KIND_FUNCTION) {
		list_function(card, node.fn, l);
	} else if (node.kind == SIM_KIND_NVIDIA) {
		simsys_nvidia_list(&card->vfs[node.fn], l);
	} else if (node.kind == SIM_KIND_VFIO_DEV || node.kind == SIM_KIND_VFIO_N) {
		list_vfio_dev(&card->vfs[node.fn], node.kind, l);
	} else if (node.kind == SIM_KIND_GROUP) {
		devices = sim_function_node(card, node.fn, SIM_KIND_GROUP_DEVICES, 0);
		sim_listing_add(l, "devices", &devices);
	} else if (node.kind == SIM_KIND_GROUP_DEVICES) {
		each_function(sim, l, add_group_device, function_group(card, node.fn));
	} else {
		return -ENOTDIR;
	}
	return l->failed ? -ENOMEM : 0;
}

mode_t simsys_mode(uint64_t ino)
{
	struct sim_node node = sim_node_unpack(ino);

	if (node.kind <= SIM_KIND_GROUP_DEVICES)
		return S_IFDIR | 0755;
	if (node.kind == SIM_KIND_FUNCTION_ATTRIBUTE)
		return S_IFREG | attributes[node.attr].mode;
	if (node.kind == SIM_KIND_NVIDIA_ATTRIBUTE)
		return S_IFREG | simsys_nvidia_mode(node.attr);
	if (node.kind == SIM_KIND_TEXT)
		return S_IFREG | 0444;
	return S_IFLNK | 0777;
}

int simsys_readlink(struct sim *sim, uint64_t ino, char ret[SIM_ATTRIBUTE_SIZE])
{
	struct sim_node node = sim_node_unpack(ino);
	const struct sim_card *card = &sim->cards[node.card];
	const char *address, *up = node.kind == SIM_KIND_GROUP_LINK || node.attr == 1
					   ? "../../../../"
					   : "../../../";
	int r = check_alive(sim, &node);

	if (r < 0)
		return r;
	address = sim_function_address(card, node.fn);
	if (node.kind == SIM_KIND_BUS_LINK || node.kind == SIM_KIND_GROUP_LINK) {
		snprintf(ret, SIM_ATTRIBUTE_SIZE, "%sdevices/pci%04x:%02x/%s", up, card->domain,
			 card->bus, address);
		return 0;
	}
	if (node.kind == SIM_KIND_VIRTFN_LINK) {
		snprintf(ret, SIM_ATTRIBUTE_SIZE, "../%s", address);
		return 0;
	}
	switch ((enum link)node.attr) {
	case LINK_DRIVER:
		snprintf(ret, SIM_ATTRIBUTE_SIZE, "../../../bus/pci/drivers/%s",
			 bound_driver(card, node.fn) ?: "");
		break;
	case LINK_IOMMU_GROUP:
		snprintf(ret, SIM_ATTRIBUTE_SIZE, "../../../kernel/iommu_groups/%u",
			 function_group(card, node.fn));
		break;
	case LINK_SUBSYSTEM:
		snprintf(ret, SIM_ATTRIBUTE_SIZE, "../../../bus/pci");
		break;
	case LINK_PHYSFN:
		snprintf(ret, SIM_ATTRIBUTE_SIZE, "../%s", card->address);
		break;
	}
	return 0;
}

static int modalias(const struct sim_card *card, uint32_t subsystem, char *ret, size_t size)
{
	const struct sim_model *m = card->model;

	return snprintf(ret, size, "pci:v000010DEd%08Xsv000010DEsd%08Xbc%02Xsc%02Xi%02X\n",
			m->device, subsystem, m->class_code >> 16, m->class_code >> 8 & 0xff,
			m->class_code & 0xff);
}

static int uevent(const struct sim_card *card, uint32_t fn, uint32_t subsystem, char *ret)
{
	const struct sim_model *m = card->model;
	const char *driver = bound_driver(card, fn);
	char alias[96];

	modalias(card, subsystem, alias, sizeof(alias));
	return snprintf(ret, SIM_ATTRIBUTE_SIZE,
			"%s%s%sPCI_CLASS=%X\nPCI_ID=10DE:%04X\nPCI_SUBSYS_ID=10DE:%04X\n"
			"PCI_SLOT_NAME=%s\nMODALIAS=%s",
			driver ? "DRIVER=" : "", driver ?: "", driver ? "\n" : "", m->class_code,
			m->device, subsystem, sim_function_address(card, fn), alias);
}

static int read_function(const struct sim_card *card, uint32_t fn, enum attribute attribute,
			 char *ret)
{
	const struct sim_model *m = card->model;
	bool pf = fn == SIM_FUNCTION_PF;
	uint32_t subsystem = pf ? m->subsystem_device : 0;
	const size_t size = SIM_ATTRIBUTE_SIZE;

	switch (attribute) {
	case ATTRIBUTE_VENDOR:
	case ATTRIBUTE_SUBSYSTEM_VENDOR:
		return snprintf(ret, size, "0x10de\n");
	case ATTRIBUTE_DEVICE:
		return snprintf(ret, size, "0x%04x\n", m->device);
	case ATTRIBUTE_CLASS:
		return snprintf(ret, size, "0x%06x\n", m->class_code);
	case ATTRIBUTE_REVISION:
		return snprintf(ret, size, "0xa1\n");
	case ATTRIBUTE_SUBSYSTEM_DEVICE:
		return snprintf(ret, size, "0x%04x\n", subsystem);
	case ATTRIBUTE_NUMA_NODE:
		return snprintf(ret, size, "%d\n", card->numa_node);
	case ATTRIBUTE_LOCAL_CPULIST:
		return snprintf(ret, size, "%s\n", card->numa_node == 1 ? "16-31" : "0-15");
	case ATTRIBUTE_IRQ:
	case ATTRIBUTE_SRIOV_VF_TOTAL_MSIX:
		return snprintf(ret, size, "0\n");
	case ATTRIBUTE_ENABLE:
	case ATTRIBUTE_ARI_ENABLED:
	case ATTRIBUTE_SRIOV_STRIDE:
	case ATTRIBUTE_SRIOV_DRIVERS_AUTOPROBE:
		return snprintf(ret, size, "1\n");
	case ATTRIBUTE_RESET_METHOD:
		return snprintf(ret, size, "%s\n", pf ? "flr bus" : "flr");
	case ATTRIBUTE_DRIVER_OVERRIDE:
		return snprintf(ret, size, "(null)\n");
	case ATTRIBUTE_MODALIAS:
		return modalias(card, subsystem, ret, size);
	case ATTRIBUTE_UEVENT:
		return uevent(card, fn, subsystem, ret);
	case ATTRIBUTE_SRIOV_TOTALVFS:
		return snprintf(ret, size, "%u\n", card->total_vfs);
	case ATTRIBUTE_SRIOV_NUMVFS:
		return snprintf(ret, size, "%u\n", card->vf_count);
	case ATTRIBUTE_SRIOV_OFFSET:
		return snprintf(ret, size, "%u\n", m->vf_offset);
	case ATTRIBUTE_SRIOV_VF_DEVICE:
		return snprintf(ret, size, "%x\n", m->device);
	case ATTRIBUTE_VFIO_DEV:
		return snprintf(ret, size, "510:%u\n", card->vfs[fn].vfio);
	}
	return -EIO;
}

ssize_t simsys_read(struct sim *sim, uint64_t ino, char ret[SIM_ATTRIBUTE_SIZE])
{
	struct sim_node node = sim_node_unpack(ino);
	struct sim_card *card = &sim->cards[node.card];

	if (check_alive(sim, &node) < 0)
		return -ENODEV;
	if (node.kind == SIM_KIND_NVIDIA_ATTRIBUTE)
		return simsys_nvidia_read(&card->vfs[node.fn], node.attr, ret);
	if (node.kind == SIM_KIND_FUNCTION_ATTRIBUTE)
		return read_function(card, node.fn, (enum attribute)node.attr, ret);
	if (texts[node.attr].text)
		return snprintf(ret, SIM_ATTRIBUTE_SIZE, "%s", texts[node.attr].text);
	return snprintf(ret, SIM_ATTRIBUTE_SIZE, "%s\n", sim->driver);
}

int simsys_write(struct sim *sim, uint64_t ino, const char *data, size_t n)
{
	struct sim_node node = sim_node_unpack(ino);

	if (check_alive(sim, &node) < 0)
		return -ENODEV;
	if (node.kind == SIM_KIND_NVIDIA_ATTRIBUTE)
		return simsys_nvidia_write(&sim->cards[node.card].vfs[node.fn], node.attr, data, n);
	/* The driver rejects raw writes to sriov_numvfs; the rest is not simulated. */
	return -EPERM;
}

struct sim_vf *simsys_attribute_vf(struct sim *sim, uint64_t ino)
{
	struct sim_node node = sim_node_unpack(ino);

	return node.kind == SIM_KIND_NVIDIA_ATTRIBUTE ? &sim->cards[node.card].vfs[node.fn] : NULL;
}

bool simsys_is_release(uint64_t ino, const char *data, size_t n)
{
	struct sim_node node = sim_node_unpack(ino);
	uint32_t value;

	return node.kind == SIM_KIND_NVIDIA_ATTRIBUTE && simsys_nvidia_is_type(node.attr) &&
	       str_to_u32_n(data, n, &value) == 0 && value == 0;
}

bool simsys_is_placement(uint64_t ino)
{
	struct sim_node node = sim_node_unpack(ino);

	return node.kind == SIM_KIND_NVIDIA_ATTRIBUTE && simsys_nvidia_is_placement(node.attr);
}

bool simsys_is_blocked(struct sim *sim, uint64_t ino)
{
	struct sim_node node = sim_node_unpack(ino);

	return node.kind == SIM_KIND_FUNCTION_ATTRIBUTE && node.attr == ATTRIBUTE_SRIOV_NUMVFS &&
	       sim->cards[node.card].sriov_busy;
}
