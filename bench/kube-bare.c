/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bare system calls behind a scan and behind an allocation, one after another in one thread:
 * what bench/kube.py compares the device plugin with. It asks for what the plugin's answers
 * contain, and for nothing else.
 *
 * kube-bare SYSFS DEV ROUNDS scan | kube-bare SYSFS DEV ROUNDS VF...: microseconds of each round.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *sysfs, *dev;

static double now_usec(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void read_file(int dir, const char *name)
{
	char data[4096];
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	(void)!read(fd, data, sizeof data);
	close(fd);
}

static void read_link(int dir, const char *name, char *ret)
{
	ssize_t n = readlinkat(dir, name, ret, PATH_MAX - 1);

	ret[n < 0 ? 0 : n] = '\0';
}

/* The last name in the folder, as "vfio7" of vfio-dev. */
static void list_folder(int dir, const char *name, char *ret)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (ret && e->d_name[0] != '.')
			snprintf(ret, NAME_MAX, "%s", e->d_name);
	if (d)
		closedir(d);
}

static void scan(void)
{
	char path[PATH_MAX], link[PATH_MAX], name[NAME_MAX];
	struct dirent *e;
	DIR *all;

	snprintf(path, sizeof path, "%s/bus/pci/devices", sysfs);
	all = opendir(path);
	while (all && (e = readdir(all))) {
		int fd;

		if (e->d_name[0] == '.')
			continue;
		fd = openat(dirfd(all), e->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		read_link(fd, "physfn", link);
		if (link[0]) {
			read_link(fd, "driver", link);
			read_link(fd, "iommu_group", link);
			read_file(fd, "nvidia/current_vgpu_type");
			list_folder(fd, "vfio-dev", name);
		} else {
			static const char *const of_card[] = { "vendor", "class", "device",
							       "sriov_totalvfs", "numa_node" };

			for (size_t i = 0; i < sizeof of_card / sizeof *of_card; i++)
				read_file(fd, of_card[i]);
			read_link(fd, "driver", link);
			read_link(fd, "iommu_group", link);
			list_folder(fd, ".", NULL);
		}
		close(fd);
	}
	if (all)
		closedir(all);
	snprintf(path, sizeof path, "%s/vfio", dev);
	list_folder(AT_FDCWD, path, NULL);
}

static void look(const char *fmt, const char *name)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof path, "%s/", dev);

	snprintf(path + n, sizeof path - (size_t)n, fmt, name);
	(void)!access(path, F_OK);
}

static void allocate(const char *vf)
{
	char path[PATH_MAX], link[PATH_MAX], name[NAME_MAX] = "";
	int fd;

	snprintf(path, sizeof path, "%s/bus/pci/devices/%s", sysfs, vf);
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	read_file(fd, "nvidia/current_vgpu_type");
	read_file(fd, "vendor");
	read_link(fd, "driver", link);
	read_link(fd, "iommu_group", link);
	list_folder(fd, "vfio-dev", name);
	close(fd);
	look("vfio/%s", "vfio");
	look("vfio/%s", strrchr(link, '/') ? strrchr(link, '/') + 1 : link);
	look("%s", "iommu");
	look("vfio/devices/%s", name);
}

int main(int argc, char **argv)
{
	int rounds;

	if (argc < 5)
		return 2;
	sysfs = argv[1];
	dev = argv[2];
	rounds = atoi(argv[3]);
	for (int i = 0; i < rounds; i++) {
		double start = now_usec();

		for (int k = 4; k < argc; k++)
			if (strcmp(argv[k], "scan") == 0)
				scan();
			else
				allocate(argv[k]);
		printf("%.1f\n", now_usec() - start);
	}
	return 0;
}
