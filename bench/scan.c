/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench-scan SYSFS-ROOT ROUNDS: the inventory's scan beside a bare loop of the calls that any scan
 * of such a tree needs, in turns, on the same tree. Prints one JSON line with the times of both.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "host/inventory.h"

#define LISTING_BYTES (32 << 10)

static char buf[PATH_MAX]; /* what is read is not looked at */

static void fail(const char *what)
{
	fprintf(stderr, "bench-scan: %s: %s\n", what, strerror(errno));
	exit(EXIT_FAILURE);
}

static void bare_read(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, buf, sizeof buf) < 0)
		fail(name);
	close(fd);
}

static void bare_link(int dir_fd, const char *name)
{
	if (readlinkat(dir_fd, name, buf, sizeof buf) < 0)
		fail(name);
}

static int bare_open(int dir_fd, const char *name, int flags)
{
	int fd = openat(dir_fd, name, flags | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		fail(name);
	return fd;
}

static void bare_vf(int card_fd, const char *link)
{
	int fd, dev_fd;

	bare_link(card_fd, link);
	fd = bare_open(card_fd, link, O_PATH);
	bare_link(fd, "physfn");
	bare_link(fd, "driver");
	bare_link(fd, "iommu_group");
	if (faccessat(fd, "nvidia/current_vgpu_type", F_OK, 0) < 0)
		fail("current_vgpu_type");
	dev_fd = bare_open(fd, "vfio-dev", O_RDONLY);
	if (getdents64(dev_fd, buf, sizeof buf) < 0)
		fail("vfio-dev");
	close(dev_fd);
	close(fd);
}

/* Calls fn for every name in the folder but . and .. */
static void bare_list(int fd, void (*fn)(int fd, const char *name))
{
	char *data = malloc(LISTING_BYTES);
	ssize_t n;

	if (!data)
		fail("memory");
	while ((n = getdents64(fd, data, LISTING_BYTES)) > 0) {
		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *e = (const struct dirent64 *)(void *)(data + at);

			at += e->d_reclen;
			if (e->d_name[0] != '.')
				fn(fd, e->d_name);
		}
	}
	free(data);
}

static void bare_card_entry(int fd, const char *name)
{
	if (strncmp(name, "virtfn", 6) == 0)
		bare_vf(fd, name);
}

static void bare_card(int devices_fd, const char *name)
{
	int fd = bare_open(devices_fd, name, O_PATH);
	int list_fd;

	bare_read(fd, "vendor");
	bare_read(fd, "class");
	bare_read(fd, "device");
	bare_link(fd, "driver");
	bare_read(fd, "sriov_totalvfs");
	bare_read(fd, "numa_node");
	bare_link(fd, "iommu_group");
	list_fd = bare_open(fd, ".", O_RDONLY);
	bare_list(list_fd, bare_card_entry);
	close(list_fd);
	close(fd);
}

static void bare_device(int devices_fd, const char *name)
{
	char path[64];

	snprintf(path, sizeof path, "%.40s/physfn", name);
	if (readlinkat(devices_fd, path, buf, sizeof buf) < 0)
		bare_card(devices_fd, name);
}

static void bare_scan(const char *sysfs_root)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof path, "%.3000s/bus/pci/devices", sysfs_root);
	fd = bare_open(AT_FDCWD, path, O_RDONLY);
	bare_list(fd, bare_device);
	close(fd);
}

static void scan(const char *sysfs_root, unsigned *ret_cards, unsigned *ret_vfs)
{
	struct error err = ERROR_INIT;
	struct inventory *inv = NULL;

	if (inventory_scan(sysfs_root, &inv, &err) < 0)
		fail(error_text(&err));
	*ret_cards = inv->n_cards;
	*ret_vfs = 0;
	for (unsigned i = 0; i < inv->n_cards; i++)
		for (unsigned k = 0; k < inv->cards[i].n_vfs; k++)
			*ret_vfs += inv->cards[i].vfs[k].vendor_vfio;
	inventory_free(inv);
}

static void print(const char *name, const uint64_t *usec, unsigned n)
{
	printf("\"%s\": [", name);
	for (unsigned i = 0; i < n; i++)
		printf("%s%" PRIu64, i ? ", " : "", usec[i]);
	printf("], ");
}

int main(int argc, char **argv)
{
	unsigned rounds = argc == 3 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
	uint64_t *scans = calloc(rounds + 1, sizeof *scans);
	uint64_t *bare = calloc(rounds + 1, sizeof *bare);
	unsigned n_cards = 0, n_vfs = 0;

	if (rounds == 0 || !scans || !bare) {
		fputs("Usage: bench-scan SYSFS-ROOT ROUNDS\n", stderr);
		return 2;
	}
	for (unsigned i = 0; i <= rounds; i++) { /* the first only warms the caches */
		uint64_t t0 = clock_now_usec(), t1;

		scan(argv[1], &n_cards, &n_vfs);
		t1 = clock_now_usec();
		bare_scan(argv[1]);
		scans[i] = t1 - t0;
		bare[i] = clock_now_usec() - t1;
	}
	printf("{");
	print("scan_usec", scans + 1, rounds);
	print("bare_usec", bare + 1, rounds);
	printf("\"cards\": %u, \"vfs\": %u}\n", n_cards, n_vfs);
	free(scans);
	free(bare);
	return EXIT_SUCCESS;
}
