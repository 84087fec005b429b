/* SPDX-License-Identifier: Apache-2.0 */
#include "host/holders.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "host/file-key.h"
#include "host/listing.h"

struct node {
	struct file_key key;
	unsigned vf; /* index into the vfs asked for */
};

struct scan {
	struct holders_vf *vfs;
	struct node *nodes;
	unsigned n_nodes;
	bool *undecided; /* per VF: a node exists or may exist that could not be looked at */
	struct file_key canary;
	bool canary_seen;
	bool partial;
	int proc_fd;
	pid_t self; /* our pid as this proc numbers it */
};

static void add_node(struct scan *s, unsigned vf, const char *path)
{
	struct node *n = &s->nodes[s->n_nodes];
	int r;

	r = file_key_of(AT_FDCWD, path, &n->key);
	if (r == 0) {
		n->vf = vf;
		s->n_nodes++;
	} else if (r != -ENOENT && r != -ENOTDIR) {
		s->undecided[vf] = true;
	}
}

/* Name of the VF's entry in vfio-dev/ ("vfio12"); -ENOENT when it has none. */
static int vfio_device_name(const char *folder, char *ret, size_t size)
{
	struct listing l;
	_close_ int fd = -1;
	const char *name;
	int r;

	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	listing_init(&l, fd);
	while ((name = listing_next(&l, &r)))
		if (str_starts_with(name, "vfio"))
			return str_copy(ret, size, name);
	return r < 0 ? r : -ENOENT;
}

static int find_nodes(struct scan *s, const struct holders_roots *roots, unsigned vf)
{
	_free_ char *folder = NULL, *group_link = NULL, *vfio_dev = NULL, *path = NULL;
	char bdf[PCI_ADDR_MAX];
	char name[32];
	int r;

	folder = str_printf("%s/bus/pci/devices/%s", roots->sysfs_root,
			    pci_addr_format(s->vfs[vf].vf, bdf));
	group_link = str_printf("%s/iommu_group", folder ? folder : "");
	vfio_dev = str_printf("%s/vfio-dev", folder ? folder : "");
	if (!folder || !group_link || !vfio_dev)
		return -ENOMEM;

	r = file_link_basename(AT_FDCWD, group_link, name, sizeof name);
	if (r == 0) {
		path = str_printf("%s/vfio/%s", roots->dev_root, name);
		if (!path)
			return -ENOMEM;
		add_node(s, vf, path);
	} else if (r != -ENOENT) {
		s->undecided[vf] = true;
	}
	r = vfio_device_name(vfio_dev, name, sizeof name);
	if (r == 0) {
		free(path);
		path = str_printf("%s/vfio/devices/%s", roots->dev_root, name);
		if (!path)
			return -ENOMEM;
		add_node(s, vf, path);
	} else if (r != -ENOENT) {
		s->undecided[vf] = true;
	}
	return 0;
}

static void name_holder(const struct scan *s, const char *pid, char *ret, size_t size)
{
	char path[64], comm[32] = "?";
	size_t len;

	snprintf(path, sizeof path, "%.20s/comm", pid);
	if (file_read_into(s->proc_fd, path, comm, sizeof comm, &len) == 0) {
		comm[strcspn(comm, "\n")] = '\0';
		str_sanitize(comm, strlen(comm));
	}
	snprintf(ret, size, "pid %.20s (%s)", pid, comm);
}

static void match(struct scan *s, const struct file_key *key, const char *pid)
{
	for (unsigned i = 0; i < s->n_nodes; i++) {
		struct holders_vf *vf = &s->vfs[s->nodes[i].vf];

		if (!file_key_equal(&s->nodes[i].key, key) || vf->open == CARD_OPEN_YES)
			continue;
		vf->open = CARD_OPEN_YES;
		name_holder(s, pid, vf->holder, sizeof vf->holder);
	}
}

/* EACCES comes from the process being closed to us, or from a FUSE mount that admits only its
 * owner; a file of the latter is no VFIO node. */
static bool is_hidden(int dir_fd, const char *name)
{
	char target[16];

	return readlinkat(dir_fd, name, target, sizeof target) < 0 &&
	       (errno == EACCES || errno == EPERM);
}

/* One folder of descriptors. Returns how many entries it had; -errno when it could not be listed.
 */
static int scan_fds(struct scan *s, const char *path, const char *pid, bool own)
{
	struct listing l;
	_close_ int fd = -1;
	const char *name;
	int count = 0, r;

	fd = openat(s->proc_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	listing_init(&l, fd);
	while ((name = listing_next(&l, &r))) {
		struct file_key key;
		int e = file_key_of(fd, name, &key);

		count++;
		if ((e == -EACCES || e == -EPERM) && is_hidden(fd, name))
			s->partial = true;
		if (e < 0)
			continue; /* closed meanwhile, or a file on a dead server: no VFIO node */
		if (!own)
			match(s, &key, pid);
		else if (file_key_equal(&key, &s->canary))
			s->canary_seen = true;
	}
	return r < 0 ? r : count;
}

/* True when a process that shows no descriptor at all has further threads: its first thread has
 * ended, and the descriptors show under the others. The link count of task/ is their number. */
static bool has_other_threads(const struct scan *s, const char *pid)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof path, "%.20s/task", pid);
	return fstatat(s->proc_fd, path, &st, 0) == 0 && st.st_nlink > 3;
}

static int scan_threads(struct scan *s, const char *pid)
{
	struct listing l;
	_close_ int fd = -1;
	char path[96];
	const char *tid;
	int r;

	snprintf(path, sizeof path, "%.20s/task", pid);
	fd = openat(s->proc_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	listing_init(&l, fd);
	while ((tid = listing_next(&l, &r))) {
		snprintf(path, sizeof path, "%.20s/task/%.20s/fd", pid, tid);
		if (scan_fds(s, path, pid, false) > 0)
			return 0; /* all threads share one table */
	}
	return r;
}

/*
 * /proc/<pid>/fd is the table of the first thread, which all threads of a process share unless one
 * called unshare(CLONE_FILES) or was cloned without CLONE_FILES. Looking through each thread's own
 * folder would multiply the work by the number of threads (a VM has dozens) for a case that no VM
 * manager makes, and in which the driver's own check still refuses the write.
 */
static int scan_process(struct scan *s, const char *pid)
{
	char path[64];
	uint32_t number;
	int r;

	if (str_to_u32(pid, &number) < 0)
		return 0;
	snprintf(path, sizeof path, "%.20s/fd", pid);
	r = scan_fds(s, path, pid, (pid_t)number == s->self);
	if (r == 0 && has_other_threads(s, pid))
		r = scan_threads(s, pid);
	if (r == -EACCES || r == -EPERM) {
		s->partial = true;
		return 0;
	}
	/* Ended since /proc was listed. */
	if (r == -ENOENT || r == -ESRCH)
		return 0;
	return MIN(r, 0);
}

static int scan_processes(struct scan *s, struct error *err)
{
	struct listing l;
	const char *pid;
	int r;

	listing_init(&l, s->proc_fd);
	while ((pid = listing_next(&l, &r))) {
		if (pid[0] < '0' || pid[0] > '9')
			continue;
		r = scan_process(s, pid);
		if (r < 0)
			return error_set_errno(err, r, "descriptors of process %.20s", pid);
	}
	return r < 0 ? error_set_errno(err, r, "list of processes") : 0;
}

/* Without it the kernel hides the descriptors of other users' processes. */
static bool have_ptrace_capability(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	if (syscall(SYS_capget, &header, data) < 0)
		return false;
	return data[CAP_TO_INDEX(CAP_SYS_PTRACE)].effective & CAP_TO_MASK(CAP_SYS_PTRACE);
}

/* Opens proc and finds ourselves in it: "self" does not resolve in a proc in which we have no pid.
 */
static int open_proc(struct scan *s, const char *proc_root, int canary_fd, struct error *err)
{
	char self[32];
	uint32_t pid = 0;
	int r;

	s->proc_fd = open(proc_root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->proc_fd < 0)
		return error_set_errno(err, errno, "%s", proc_root);
	r = file_link_basename(s->proc_fd, "self", self, sizeof self);
	if (r == 0)
		r = str_to_u32(self, &pid);
	if (r < 0)
		return error_set_errno(err, r, "own entry in %s", proc_root);
	s->self = (pid_t)pid;
	r = file_key_of(canary_fd, "", &s->canary);
	return r < 0 ? error_set_errno(err, r, "canary descriptor") : 0;
}

static int scan_all(struct scan *s, const struct holders_roots *roots, int canary_fd,
		    unsigned n_vfs, struct error *err)
{
	int r;

	for (unsigned i = 0; i < n_vfs; i++) {
		r = find_nodes(s, roots, i);
		if (r < 0)
			return error_set_errno(err, r, "VFIO nodes");
	}
	r = open_proc(s, roots->proc_root, canary_fd, err);
	if (r < 0)
		return r;
	r = scan_processes(s, err);
	if (r < 0)
		return r;
	if (!have_ptrace_capability())
		return error_set(err, EPERM,
				 "no CAP_SYS_PTRACE: descriptors of other processes are hidden");
	if (!s->canary_seen)
		return error_set(err, ENODATA,
				 "%s does not show a descriptor that is known to be open",
				 roots->proc_root);
	return 0;
}

int holders_scan(const struct holders_roots *roots, int canary_fd, struct holders_vf *vfs,
		 unsigned n_vfs, bool *ret_partial, struct error *err)
{
	_free_ struct node *nodes = NULL;
	_free_ bool *undecided = NULL;
	struct scan s = { .vfs = vfs, .proc_fd = -1 };
	int r;

	for (unsigned i = 0; i < n_vfs; i++) {
		vfs[i].open = CARD_OPEN_UNKNOWN;
		vfs[i].holder[0] = '\0';
	}
	nodes = calloc((size_t)MAX(n_vfs, 1U) * 2, sizeof *nodes);
	undecided = calloc(MAX(n_vfs, 1U), sizeof *undecided);
	if (!nodes || !undecided)
		return error_set_errno(err, ENOMEM, "open-handle scan");
	s.nodes = nodes;
	s.undecided = undecided;
	r = scan_all(&s, roots, canary_fd, n_vfs, err);
	cleanup_close(&s.proc_fd);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < n_vfs; i++)
		if (vfs[i].open == CARD_OPEN_UNKNOWN && !undecided[i])
			vfs[i].open = CARD_OPEN_NO;
	*ret_partial = s.partial;
	return 0;
}
