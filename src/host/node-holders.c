/* SPDX-License-Identifier: Apache-2.0 */
#include "host/node-holders.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "host/file-key.h"
#include "host/listing.h"

#define NODES_MAX 128

struct node {
	struct file_key key;
	char name[32];
};

struct nodes {
	unsigned n;
	struct node items[NODES_MAX];
};

/* nvidia0..., nvidiactl, nvidia-uvm...; nvidia-caps is a folder and nobody's way to the driver. */
static int find_nodes(const char *dev_root, struct nodes *ret)
{
	_close_ int fd = open(dev_root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct listing l;
	const char *name;
	int r;

	if (fd < 0)
		return -errno;
	listing_init(&l, fd);
	while ((name = listing_next(&l, &r)) && ret->n < NODES_MAX) {
		struct node *node = &ret->items[ret->n];
		struct stat st;

		if (!str_starts_with(name, "nvidia") ||
		    str_copy(node->name, sizeof node->name, name) < 0 ||
		    fstatat(fd, name, &st, 0) < 0 || S_ISDIR(st.st_mode))
			continue;
		if (file_key_of(fd, name, &node->key) == 0)
			ret->n++;
	}
	return name ? 0 : r;
}

/* The node that the process has open, NULL for none; *ret_hidden when it cannot be told. */
static const struct node *find_open(const struct nodes *nodes, int proc_fd, const char *pid,
				    bool *ret_hidden)
{
	char path[64];
	_close_ int fd = -1;
	struct listing l;
	const char *name;
	int r;

	snprintf(path, sizeof path, "%.20s/fd", pid);
	fd = openat(proc_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*ret_hidden = fd < 0 && (errno == EACCES || errno == EPERM);
	if (fd < 0)
		return NULL;
	listing_init(&l, fd);
	while ((name = listing_next(&l, &r))) {
		struct file_key key;

		if (file_key_of(fd, name, &key) < 0)
			continue;
		for (unsigned i = 0; i < nodes->n; i++)
			if (file_key_equal(&nodes->items[i].key, &key))
				return &nodes->items[i];
	}
	return NULL;
}

static void name_process(int proc_fd, const char *pid, char *ret, size_t size)
{
	char path[64];

	snprintf(path, sizeof path, "%.20s/comm", pid);
	if (file_read_into(proc_fd, path, ret, size, NULL) < 0)
		str_copy_cut(ret, size, "?");
	ret[strcspn(ret, "\n")] = '\0';
	str_sanitize(ret, strlen(ret));
}

/* "0::/system.slice/nvidia-persistenced.service" */
static void find_unit(int proc_fd, const char *pid, char *ret, size_t size)
{
	char path[64], text[1024];
	const char *name;

	ret[0] = '\0';
	snprintf(path, sizeof path, "%.20s/cgroup", pid);
	if (file_read_into(proc_fd, path, text, sizeof text, NULL) < 0)
		return;
	text[strcspn(text, "\n")] = '\0';
	name = strrchr(text, '/');
	if (name && str_ends_with(name, ".service") && str_copy(ret, size, name + 1) == 0)
		str_sanitize(ret, strlen(ret));
}

int node_holders_find(const char *dev_root, const char *proc_root, struct node_holder *holders,
		      unsigned max, unsigned *ret_n, unsigned *ret_hidden)
{
	_free_ struct nodes *nodes = calloc(1, sizeof *nodes);
	unsigned n = 0, n_hidden = 0;
	_close_ int fd = -1;
	struct listing l;
	const char *pid;
	int r;

	if (!nodes)
		return -ENOMEM;
	r = find_nodes(dev_root, nodes);
	if (r < 0)
		return r;
	fd = open(proc_root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	listing_init(&l, fd);
	while ((pid = listing_next(&l, &r)) && n < max) {
		const struct node *open;
		uint32_t number;
		bool hidden;

		if (str_to_u32(pid, &number) < 0)
			continue;
		open = find_open(nodes, fd, pid, &hidden);
		n_hidden += hidden;
		if (!open)
			continue;
		holders[n].pid = (pid_t)number;
		memcpy(holders[n].node, open->name, sizeof holders[n].node);
		name_process(fd, pid, holders[n].name, sizeof holders[n].name);
		find_unit(fd, pid, holders[n].unit, sizeof holders[n].unit);
		n++;
	}
	if (!pid && r < 0)
		return r;
	*ret_n = n;
	*ret_hidden = n_hidden;
	return 0;
}
