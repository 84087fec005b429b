/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/simfuse.h"

#define FUSE_USE_VERSION 312

#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <systemd/sd-event.h>
#include <time.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "sim/simtree.h"

/* A read or write that could not be answered at once. */
struct op {
	struct simfuse *fuse;
	fuse_req_t req;
	bool write;
	bool hung; /* waits for simfuse_changed() */
	uint64_t ino;
	struct file *file;
	size_t size;
	char *data; /* of a write, owned */
	sd_event_source *timer;
};

/* An open file or folder; in simfuse.files[index]. */
struct file {
	size_t index;
	char *text; /* of an attribute, since its last read from 0 */
	size_t len;
	struct simdev_handle handle;
	struct sim_listing listing;
};

struct simfuse {
	struct sim *sim;
	sd_event *event;
	enum simfuse_tree tree;
	struct fuse_session *session;
	struct fuse_buf buf;
	bool mounted;
	sd_event_source *source;
	struct timespec started;
	struct op **ops; /* those not answered yet */
	size_t op_count, op_cap;
	struct file **files; /* those open */
	size_t file_count, file_cap;
};

static struct simfuse *self(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static uint64_t node_of(const struct simfuse *f, fuse_ino_t ino)
{
	struct sim_node root = { .kind = f->tree == SIMFUSE_SYS ? SIM_KIND_SYS_ROOT
								: SIM_KIND_DEV_ROOT };

	return ino == FUSE_ROOT_ID ? sim_node_pack(&root) : ino;
}

static int list(struct simfuse *f, fuse_ino_t ino, struct sim_listing *l)
{
	uint64_t node = node_of(f, ino);

	return f->tree == SIMFUSE_SYS ? simsys_list(f->sim, node, l) : simdev_list(f->sim, node, l);
}

static void fill_stat(const struct simfuse *f, fuse_ino_t ino, struct stat *st)
{
	uint64_t node = node_of(f, ino);

	*st = (struct stat){
		.st_ino = ino,
		.st_mode = f->tree == SIMFUSE_SYS ? simsys_mode(node) : simdev_mode(node),
		.st_nlink = 1,
		.st_uid = geteuid(),
		.st_gid = getegid(),
		.st_blksize = SIM_ATTRIBUTE_SIZE,
		.st_atim = f->started,
		.st_mtim = f->started,
		.st_ctim = f->started,
	};
	if (S_ISREG(st->st_mode) && f->tree == SIMFUSE_SYS)
		st->st_size = SIM_ATTRIBUTE_SIZE;
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct simfuse *f = self(req);
	struct sim_listing l = { .wanted = name };
	struct fuse_entry_param entry = { 0 };
	int r = list(f, parent, &l);

	if (r < 0 || !l.found) {
		fuse_reply_err(req, r < 0 ? -r : ENOENT);
		return;
	}
	entry.ino = l.match.ino;
	fill_stat(f, entry.ino, &entry.attr);
	fuse_reply_entry(req, &entry);
}

static void on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi _unused_)
{
	struct stat st;

	fill_stat(self(req), ino, &st);
	fuse_reply_attr(req, &st, 0);
}

/* Truncation (and time stamps) are accepted and do nothing; modes and owners stay as they are. */
static void on_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr _unused_, int to_set,
		       struct fuse_file_info *fi)
{
	if (to_set & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
		fuse_reply_err(req, EPERM);
	else
		on_getattr(req, ino, fi);
}

static void on_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char target[SIM_ATTRIBUTE_SIZE];
	int r = simsys_readlink(self(req)->sim, ino, target);

	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_readlink(req, target);
}

static struct file *file_new(struct simfuse *f)
{
	struct file *file;

	if (array_reserve(f->files, f->file_count, f->file_cap) < 0)
		return NULL;
	file = calloc(1, sizeof(*file));
	if (!file)
		return NULL;
	file->index = f->file_count;
	f->files[f->file_count++] = file;
	return file;
}

static void file_free(struct simfuse *f, struct file *file)
{
	if (!file)
		return;
	f->files[file->index] = f->files[--f->file_count];
	f->files[file->index]->index = file->index;
	simdev_close(f->sim, &file->handle);
	sim_listing_done(&file->listing);
	free(file->text);
	free(file);
}

static void on_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct simfuse *f = self(req);
	struct file *file = file_new(f);
	int r = file ? list(f, ino, &file->listing) : -ENOMEM;

	if (r < 0) {
		file_free(f, file);
		fuse_reply_err(req, -r);
		return;
	}
	fi->fh = (uint64_t)(uintptr_t)file;
	if (fuse_reply_open(req, fi) == -ENOENT)
		file_free(f, file); /* the caller was interrupted: no release follows */
}

static void on_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	struct simfuse *f = self(req);
	struct file *file = (struct file *)(uintptr_t)fi->fh;
	size_t used = 0, count = file->listing.count + 2;
	_free_ char *buf = malloc(size);

	if (!buf) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	for (size_t i = (size_t)off; i < count; i++) {
		const char *name = i == 0 ? "." : i == 1 ? ".." : file->listing.entries[i - 2].name;
		fuse_ino_t child = i < 2 ? ino : file->listing.entries[i - 2].ino;
		struct stat st;
		size_t n;

		fill_stat(f, child, &st);
		n = fuse_add_direntry(req, buf + used, size - used, name, &st, (off_t)i + 1);
		if (n > size - used)
			break;
		used += n;
	}
	fuse_reply_buf(req, buf, used);
}

static void on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct simfuse *f = self(req);
	struct file *file;
	struct stat st;
	int r = 0;

	/* As kernfs, root included. */
	fill_stat(f, ino, &st);
	if (f->tree == SIMFUSE_SYS && (fi->flags & O_ACCMODE) != O_RDONLY && !(st.st_mode & 0200)) {
		fuse_reply_err(req, EACCES);
		return;
	}
	file = file_new(f);
	if (!file)
		r = -ENOMEM;
	else if (f->tree == SIMFUSE_DEV)
		r = simdev_open(f->sim, ino, &file->handle);
	if (r < 0) {
		file_free(f, file);
		fuse_reply_err(req, -r);
		return;
	}
	fi->fh = (uint64_t)(uintptr_t)file;
	fi->direct_io = 1;
	if (fuse_reply_open(req, fi) == -ENOENT)
		file_free(f, file);
}

static void on_release(fuse_req_t req, fuse_ino_t ino _unused_, struct fuse_file_info *fi)
{
	file_free(self(req), (struct file *)(uintptr_t)fi->fh);
	fuse_reply_err(req, 0);
}

static void op_forget(struct op *op)
{
	struct simfuse *f = op->fuse;

	for (size_t i = 0; i < f->op_count; i++)
		if (f->ops[i] == op) {
			f->ops[i] = f->ops[--f->op_count];
			break;
		}
	sd_event_source_disable_unref(op->timer);
	free(op->data);
	free(op);
}

static void complete_read(struct op *op, const struct sim_vf *vf)
{
	char text[SIM_ATTRIBUTE_SIZE];
	ssize_t n = vf ? -(ssize_t)vf->faults.value[SIM_FAULT_READ_ERRNO] : 0;
	char *copy;

	if (n == 0)
		n = simsys_read(op->fuse->sim, op->ino, text);
	if (n < 0) {
		fuse_reply_err(op->req, (int)-n);
		return;
	}
	copy = malloc((size_t)n + 1);
	if (!copy) {
		fuse_reply_err(op->req, ENOMEM);
		return;
	}
	memcpy(copy, text, (size_t)n);
	free(op->file->text);
	op->file->text = copy;
	op->file->len = (size_t)n;
	fuse_reply_buf(op->req, copy, MIN((size_t)n, op->size));
}

static void complete_write(struct op *op, const struct sim_vf *vf)
{
	int r = 0;

	if (vf)
		r = -(int)vf->faults.value[SIM_FAULT_WRITE_ERRNO];
	if (r == 0 && vf && simsys_is_release(op->ino, op->data, op->size))
		r = -(int)vf->faults.value[SIM_FAULT_RELEASE_ERRNO];
	if (r == 0 && vf && simsys_is_placement(op->ino))
		r = -(int)vf->faults.value[SIM_FAULT_PLACEMENT_ERRNO];
	if (r == 0)
		r = simsys_write(op->fuse->sim, op->ino, op->data, op->size);
	if (r < 0)
		fuse_reply_err(op->req, -r);
	else
		fuse_reply_write(op->req, op->size);
}

/* Answers the request unless its attribute hangs. */
static void op_proceed(struct op *op)
{
	struct sim *sim = op->fuse->sim;
	const struct sim_vf *vf = simsys_attribute_vf(sim, op->ino);

	op->hung = vf && vf->faults.value[op->write ? SIM_FAULT_WRITE_HANG : SIM_FAULT_READ_HANG];
	op->hung |= !op->write && simsys_is_blocked(sim, op->ino);
	if (op->hung)
		return;
	if (op->write)
		complete_write(op, vf);
	else
		complete_read(op, vf);
	op_forget(op);
}

static int on_latency_over(sd_event_source *s _unused_, uint64_t usec _unused_, void *userdata)
{
	op_proceed(userdata);
	return 0;
}

static int op_keep(struct op *op)
{
	struct simfuse *f = op->fuse;

	if (array_reserve(f->ops, f->op_count, f->op_cap) < 0)
		return -ENOMEM;
	f->ops[f->op_count++] = op;
	return 0;
}

static void op_start(fuse_req_t req, uint64_t ino, struct file *file, const char *data, size_t size)
{
	struct simfuse *f = self(req);
	struct sim_vf *vf = simsys_attribute_vf(f->sim, ino);
	struct op *op = calloc(1, sizeof(*op));
	int64_t latency_ms = 0;

	if (vf && data)
		f->sim->counters.attr_writes++;
	else if (vf)
		f->sim->counters.attr_reads++;
	if (op)
		*op = (struct op){
			.fuse = f, .req = req, .write = data, .ino = ino, .file = file, .size = size
		};
	if (op && data) {
		op->data = malloc(size + 1);
		if (op->data)
			memcpy(op->data, data, size);
	}
	if (!op || (data && !op->data) || op_keep(op) < 0) {
		if (op)
			free(op->data);
		free(op);
		fuse_reply_err(req, ENOMEM);
		return;
	}
	if (vf)
		latency_ms = vf->faults.value[data ? SIM_FAULT_WRITE_LATENCY_MS
						   : SIM_FAULT_READ_LATENCY_MS];
	if (latency_ms > 0 && sd_event_add_time_relative(f->event, &op->timer, CLOCK_MONOTONIC,
							 (uint64_t)latency_ms * USEC_PER_MSEC, 1,
							 on_latency_over, op) >= 0)
		return;
	op_proceed(op);
}

static void on_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	struct file *file = (struct file *)(uintptr_t)fi->fh;

	if (self(req)->tree == SIMFUSE_DEV) {
		fuse_reply_err(req, EINVAL);
	} else if (off == 0 || !file->text) {
		op_start(req, ino, file, NULL, size);
	} else if ((size_t)off >= file->len) {
		fuse_reply_buf(req, NULL, 0);
	} else {
		fuse_reply_buf(req, file->text + off, MIN(size, file->len - (size_t)off));
	}
}

static void on_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size,
		     off_t off _unused_, struct fuse_file_info *fi)
{
	if (self(req)->tree == SIMFUSE_DEV)
		fuse_reply_err(req, EINVAL);
	else
		op_start(req, ino, (struct file *)(uintptr_t)fi->fh, data, size);
}

/* New names are refused as sysfs and devtmpfs of a foreign driver refuse them. */
static void on_create(fuse_req_t req, fuse_ino_t parent _unused_, const char *name _unused_,
		      mode_t mode _unused_, struct fuse_file_info *fi _unused_)
{
	fuse_reply_err(req, EACCES);
}

static void on_mknod(fuse_req_t req, fuse_ino_t parent _unused_, const char *name _unused_,
		     mode_t mode _unused_, dev_t rdev _unused_)
{
	fuse_reply_err(req, EPERM);
}

static void on_mkdir(fuse_req_t req, fuse_ino_t parent _unused_, const char *name _unused_,
		     mode_t mode _unused_)
{
	fuse_reply_err(req, EPERM);
}

static void on_unlink(fuse_req_t req, fuse_ino_t parent _unused_, const char *name _unused_)
{
	fuse_reply_err(req, EPERM);
}

static const struct fuse_lowlevel_ops operations = {
	.lookup = on_lookup,
	.getattr = on_getattr,
	.setattr = on_setattr,
	.readlink = on_readlink,
	.opendir = on_opendir,
	.readdir = on_readdir,
	.releasedir = on_release,
	.open = on_open,
	.read = on_read,
	.write = on_write,
	.release = on_release,
	.create = on_create,
	.mknod = on_mknod,
	.mkdir = on_mkdir,
	.unlink = on_unlink,
	.rmdir = on_unlink,
};

void simfuse_drain(struct simfuse *f)
{
	for (;;) {
		int r = fuse_session_receive_buf(f->session, &f->buf);

		if (r == -EINTR)
			continue;
		if (r <= 0 || fuse_session_exited(f->session))
			return;
		fuse_session_process_buf(f->session, &f->buf);
	}
}

static int on_readable(sd_event_source *s, int fd _unused_, uint32_t revents, void *userdata)
{
	struct simfuse *f = userdata;

	simfuse_drain(f);
	/* Somebody unmounted it: nothing will come any more. */
	if ((revents & (EPOLLERR | EPOLLHUP)) || fuse_session_exited(f->session))
		return sd_event_source_set_enabled(s, SD_EVENT_OFF);
	return 0;
}

void simfuse_changed(struct simfuse *f)
{
	/* op_proceed() takes answered ones out of the array: each is looked at once, from the end.
	 */
	for (size_t i = f->op_count; i > 0; i--)
		if (i <= f->op_count && f->ops[i - 1]->hung)
			op_proceed(f->ops[i - 1]);
}

static int mount_tree(struct simfuse *f, const char *mountpoint, struct error *err)
{
	/* Others see the files too where that is allowed, with the kernel checking permissions. */
	const char *options =
		geteuid() == 0 ? "fsname=berth-sim,subtype=sim,default_permissions,allow_other"
			       : "fsname=berth-sim,subtype=sim,default_permissions";
	char *argv[] = { (char *)"berth-sim", (char *)"-o", (char *)options, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	struct stat st;

	if (stat(mountpoint, &st) < 0 && errno == ENOTCONN)
		umount2(mountpoint, MNT_DETACH);
	f->session = fuse_session_new(&args, &operations, sizeof(operations), f);
	fuse_opt_free_args(&args);
	if (!f->session)
		return error_set(err, ENOMEM, "no FUSE session");
	if (fuse_session_mount(f->session, mountpoint) != 0)
		return error_set(err, EIO,
				 "FUSE: cannot mount on %s (is /dev/fuse there and open to us?)",
				 mountpoint);
	f->mounted = true;
	if (fcntl(fuse_session_fd(f->session), F_SETFL, O_NONBLOCK) < 0)
		return error_set_errno(err, errno, "FUSE: cannot set up %s", mountpoint);
	return 0;
}

int simfuse_new(struct sim *sim, sd_event *event, enum simfuse_tree tree, const char *mountpoint,
		struct simfuse **ret, struct error *err)
{
	struct simfuse *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return error_set_errno(err, ENOMEM, "FUSE");
	*f = (struct simfuse){ .sim = sim, .event = event, .tree = tree };
	clock_gettime(CLOCK_REALTIME, &f->started);
	r = mount_tree(f, mountpoint, err);
	if (r >= 0) {
		r = sd_event_add_io(event, &f->source, fuse_session_fd(f->session), EPOLLIN,
				    on_readable, f);
		if (r < 0)
			r = error_set_errno(err, r, "FUSE: event loop");
	}
	/* Before the control socket: what a process did before it asked is known when it asks. */
	if (r >= 0)
		r = sd_event_source_set_priority(f->source, SD_EVENT_PRIORITY_IMPORTANT);
	if (r < 0) {
		simfuse_free(f);
		return r;
	}
	*ret = f;
	return 0;
}

struct simfuse *simfuse_free(struct simfuse *f)
{
	if (!f)
		return NULL;
	while (f->op_count > 0) {
		fuse_reply_err(f->ops[0]->req, EIO);
		op_forget(f->ops[0]);
	}
	sd_event_source_disable_unref(f->source);
	if (f->mounted)
		fuse_session_unmount(f->session);
	if (f->session)
		fuse_session_destroy(f->session);
	while (f->file_count > 0)
		file_free(f, f->files[0]);
	free(f->buf.mem);
	free(f->files);
	free(f->ops);
	free(f);
	return NULL;
}
