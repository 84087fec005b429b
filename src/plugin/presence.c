/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/presence.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "host/listing.h"

static void set_bit(uint8_t *bits, uint32_t n)
{
	bits[n / 8] |= (uint8_t)(1U << n % 8);
}

static bool has_bit(const uint8_t *bits, uint32_t n)
{
	return bits[n / 8] >> n % 8 & 1;
}

static int open_folder(const char *root, const char *folder)
{
	char path[512];

	snprintf(path, sizeof path, "%s/%s", root, folder);
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int compare_addresses(const void *a, const void *b)
{
	return pci_addr_compare(*(const struct pci_addr *)a, *(const struct pci_addr *)b);
}

static void look_at_functions(struct presence *p, const char *sysfs_root)
{
	_close_ int fd = open_folder(sysfs_root, "bus/pci/devices");
	struct listing l;
	const char *name;
	int r;

	if (fd < 0)
		return;
	p->n_functions = 0;
	listing_init(&l, fd);
	while ((name = listing_next(&l, &r))) {
		if (array_reserve(p->functions, p->n_functions, p->size_functions) < 0) {
			p->functions_known = false;
			return;
		}
		if (pci_addr_parse(name, &p->functions[p->n_functions]) == 0)
			p->n_functions++;
	}
	p->functions_known = r == 0;
	if (p->n_functions > 0)
		qsort(p->functions, p->n_functions, sizeof p->functions[0], compare_addresses);
}

static void look_at_nodes(struct presence *p, const char *dev_root)
{
	_close_ int groups = open_folder(dev_root, "vfio");
	_close_ int devices = open_folder(dev_root, "vfio/devices");
	_close_ int dev = open_folder(dev_root, ".");
	struct listing l;
	const char *name;
	uint32_t n;
	int r;

	memset(p->groups, 0, sizeof p->groups);
	memset(p->vfio_devices, 0, sizeof p->vfio_devices);
	p->vfio_node = false;
	p->iommu_node = dev >= 0 && faccessat(dev, "iommu", F_OK, 0) == 0;
	if (groups >= 0) {
		listing_init(&l, groups);
		while ((name = listing_next(&l, &r))) {
			p->vfio_node |= strcmp(name, "vfio") == 0;
			if (str_to_u32(name, &n) == 0 && n < GROUPS_MAX)
				set_bit(p->groups, n);
		}
	}
	if (devices >= 0) {
		listing_init(&l, devices);
		while ((name = listing_next(&l, &r)))
			if (str_starts_with(name, "vfio") && str_to_u32(name + 4, &n) == 0 &&
			    n < VFIO_DEVICES_MAX)
				set_bit(p->vfio_devices, n);
	}
}

void presence_look(struct presence *p, const char *sysfs_root, const char *dev_root)
{
	look_at_functions(p, sysfs_root);
	look_at_nodes(p, dev_root);
}

void presence_done(struct presence *p)
{
	free(p->functions);
	*p = (struct presence){ 0 };
}

bool presence_has_vfio_device(const struct presence *p, const char *name)
{
	uint32_t n;

	return str_starts_with(name, "vfio") && str_to_u32(name + 4, &n) == 0 &&
	       n < VFIO_DEVICES_MAX && has_bit(p->vfio_devices, n);
}

bool presence_judge(const struct presence *p, struct device *d)
{
	bool was_missing = d->presence[0] != '\0';

	d->presence[0] = '\0';
	if (p->functions_known && !bsearch(&d->address, p->functions, p->n_functions,
					   sizeof d->address, compare_addresses))
		snprintf(d->presence, sizeof d->presence, "the function is not on the bus");
	else if (!p->vfio_node)
		snprintf(d->presence, sizeof d->presence, "/dev/vfio/vfio is missing");
	else if (d->group < 0 || d->group >= GROUPS_MAX || !has_bit(p->groups, (uint32_t)d->group))
		snprintf(d->presence, sizeof d->presence, "/dev/vfio/%d is missing", d->group);
	return was_missing != (d->presence[0] != '\0');
}
