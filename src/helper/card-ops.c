/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/card-ops.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "host/vf-change.h"
#include "model/placement.h"

void card_ops_init(struct card_ops *o, const struct holders_roots *roots, int canary_fd)
{
	*o = (struct card_ops){ .sysfs_root = roots->sysfs_root };
	card_scan_init(&o->scan, roots, canary_fd);
	pthread_mutex_init(&o->readers_lock, NULL);
}

static struct vf_reader *reader_of(struct card_ops *o, struct pci_addr vf)
{
	unsigned i;

	for (i = 0; i < o->n_readers; i++)
		if (pci_addr_equal(o->reader_vfs[i], vf))
			return &o->readers[i];
	/* A card has at most that many VFs; more names than that are of VFs that went away. */
	if (i == CARD_VFS_MAX) {
		for (i = 0; i < CARD_VFS_MAX; i++)
			vf_reader_done(&o->readers[i]);
		o->n_readers = i = 0;
	}
	o->reader_vfs[i] = vf;
	o->readers[i] = VF_READER_INIT;
	o->n_readers++;
	return &o->readers[i];
}

static void run_read(struct card_ops *o, const struct card_request *request,
		     struct card_reply *reply)
{
	/* The driver answers reads one at a time anyway. */
	pthread_mutex_lock(&o->readers_lock);
	for (unsigned i = 0; i < request->n_vfs; i++) {
		struct card_vf_state *vf = &reply->vfs[i];
		struct vf_reader *reader = reader_of(o, request->vfs[i]);

		vf->placement_id = PLACEMENT_NONE;
		vf->error = vf_reader_read(reader, o->sysfs_root, request->vfs[i], &vf->type_id,
					   &vf->placement_id);
		vf->has_placement_file = reader->has_placement_file;
	}
	pthread_mutex_unlock(&o->readers_lock);
}

/* The type ids that each VF lists; the union of all with names is in the reply. */
struct listed {
	struct {
		unsigned n;
		uint32_t ids[PROFILE_TYPES_MAX];
	} vfs[CARD_VFS_MAX];
	struct profile_list list;
};

static int index_of(const struct profile_list *l, uint32_t type_id)
{
	const struct profile *p = profile_list_find_id(l, type_id);

	return p ? (int)(p - l->items) : -ENOENT;
}

/* Every list is a part of the driver's one table, in its order: an unknown type belongs behind the
 * one in front of it. Types above the limit are dropped. */
static void merge(struct profile_list *all, const struct profile_list *l)
{
	unsigned at = 0;

	for (unsigned i = 0; i < l->n; i++) {
		int known = index_of(all, l->items[i].type_id);

		if (known >= 0) {
			at = (unsigned)known + 1;
			continue;
		}
		if (all->n == PROFILE_TYPES_MAX)
			return;
		memmove(&all->items[at + 1], &all->items[at], (all->n - at) * sizeof all->items[0]);
		all->items[at++] = l->items[i];
		all->n++;
	}
}

static void list_vf(struct card_ops *o, struct pci_addr address, unsigned i, struct listed *listed,
		    struct card_reply *reply)
{
	struct card_vf_state *vf = &reply->vfs[i];
	struct error err = ERROR_INIT;
	unsigned bad_lines = 0;
	_close_ int fd = -1;
	int r;

	vf->placement_id = PLACEMENT_NONE;
	vf->error = vf_open(o->sysfs_root, address, &fd);
	if (vf->error == 0)
		vf->error = vf_read_type(fd, &vf->type_id);
	reply->list_errors[i] = vf->error;
	if (fd < 0)
		return;
	vf->has_placement_file = vf_has_placement_file(fd);
	r = vf_read_list(fd, &listed->list, &bad_lines, &err);
	if (r < 0 && r != -E2BIG) {
		reply->list_errors[i] = r;
	} else {
		reply->list_errors[i] = 0;
		merge(&reply->types, &listed->list);
		listed->vfs[i].n = listed->list.n;
		for (unsigned t = 0; t < listed->list.n; t++)
			listed->vfs[i].ids[t] = listed->list.items[t].type_id;
		reply->bad_lines += bad_lines + (r == -E2BIG);
	}
	if (err.code && !reply->text[0])
		str_copy_cut(reply->text, sizeof reply->text, err.msg);
}

static void run_list(struct card_ops *o, const struct card_request *request,
		     struct card_reply *reply)
{
	_free_ struct listed *listed = calloc(1, sizeof *listed);

	if (!listed) {
		reply->result = -ENOMEM;
		return;
	}
	for (unsigned i = 0; i < request->n_vfs; i++)
		list_vf(o, request->vfs[i], i, listed, reply);
	for (unsigned i = 0; i < request->n_vfs; i++) {
		for (unsigned t = 0; t < listed->vfs[i].n; t++) {
			int at = index_of(&reply->types, listed->vfs[i].ids[t]);

			if (at >= 0)
				reply->lists[i][at / 64] |= UINT64_C(1) << (at % 64);
		}
	}
}

static void check_open(struct card_reply *reply, void *userdata)
{
	struct card_ops *o = userdata;

	card_scan_run(&o->scan, reply);
}

void card_ops_run(struct card_ops *o, const struct card_request *request, struct card_reply *reply)
{
	reply->n_vfs = request->n_vfs;
	for (unsigned i = 0; i < request->n_vfs; i++)
		reply->vfs[i].address = request->vfs[i];
	switch (request->op) {
	case CARD_OP_READ:
		run_read(o, request, reply);
		break;
	case CARD_OP_LIST:
		run_list(o, request, reply);
		break;
	case CARD_OP_CONFIGURE:
		vf_configure(o->sysfs_root, request, reply);
		break;
	case CARD_OP_RELEASE:
		vf_release(o->sysfs_root, request, check_open, o, reply);
		break;
	case CARD_OP_SCAN:
		for (unsigned i = 0; i < request->n_vfs; i++)
			reply->vfs[i].placement_id = PLACEMENT_NONE;
		card_scan_run(&o->scan, reply);
		break;
	}
}
