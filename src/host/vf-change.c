/* SPDX-License-Identifier: Apache-2.0 */
#include "host/vf-change.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "host/vf.h"
#include "model/placement.h"

/* Ends an operation with a sentence of our own. */
static void refuse(struct card_reply *reply, enum card_step step, int code, const char *text)
{
	reply->result = code;
	reply->step = step;
	str_copy_cut(reply->text, sizeof reply->text, text);
}

/* Ends an operation with what the driver said. */
static void fail(struct card_reply *reply, enum card_step step, int code, const char *what)
{
	reply->result = code;
	reply->step = step;
	snprintf(reply->text, sizeof reply->text, "%s: %s", what, strerror(-code));
}

static void read_state(int fd, struct card_vf_state *vf)
{
	vf->error = vf_read_type(fd, &vf->type_id);
	vf->placement_id = PLACEMENT_NONE;
	vf->has_placement_file = vf_has_placement_file(fd);
	if (vf->error == 0 && vf->type_id != 0 && vf->has_placement_file)
		vf->placement_id = vf_read_placement(fd);
}

/* Clears the type we wrote. The driver answers EPERM where there is none: what reads back counts.
 */
static void undo(int fd, struct card_reply *reply)
{
	struct card_vf_state *vf = &reply->vfs[0];

	(void)!vf_write_type(fd, 0);
	read_state(fd, vf);
	reply->undone = vf->error == 0 && vf->type_id == 0;
}

/* The type write failed with `code`. */
static void write_failed(int fd, const struct card_request *request, int code,
			 struct card_reply *reply)
{
	struct card_vf_state *vf = &reply->vfs[0];

	read_state(fd, vf);
	/* EPERM says that a type stood there already. So one that stands there now is another
	 * writer's, even where it is the same. */
	if (vf->error == 0 && vf->type_id != 0 &&
	    (code == -EPERM || vf->type_id != request->type_id)) {
		refuse(reply, CARD_STEP_BEFORE, -EEXIST, "type written by somebody else meanwhile");
		return;
	}
	fail(reply, CARD_STEP_WRITE, code, "write of current_vgpu_type");
	if (vf->error == 0 && vf->type_id == 0)
		reply->undone = true;
	else if (code != -EPERM)
		undo(fd, reply);
}

/* True when the type stands. */
static bool write_type(int fd, const struct card_request *request, struct card_reply *reply)
{
	struct card_vf_state *vf = &reply->vfs[0];
	int r;

	r = vf_write_type(fd, request->type_id);
	if (r < 0) {
		write_failed(fd, request, r, reply);
		return false;
	}
	read_state(fd, vf);
	if (vf->error < 0) {
		fail(reply, CARD_STEP_READ_BACK, vf->error, "read back of current_vgpu_type");
		undo(fd, reply);
		return false;
	}
	if (vf->type_id == request->type_id)
		return true;
	if (vf->type_id == 0) {
		/* The documented sign of a type that the driver would not create. */
		refuse(reply, CARD_STEP_READ_BACK, -EIO, "type written but 0 reads back");
		reply->undone = true;
	} else {
		refuse(reply, CARD_STEP_READ_BACK, -EEXIST, "another type reads back");
	}
	return false;
}

static void steer(int fd, const struct card_request *request, struct card_reply *reply)
{
	struct card_vf_state *vf = &reply->vfs[0];
	int r;

	if (request->pin) {
		r = vf_pin_placement(fd, request->placement_id);
	} else {
		if (vf->placement_id == request->placement_id)
			return;
		r = vf_write_placement(fd, request->placement_id);
		if (vf->has_placement_file)
			vf->placement_id = vf_read_placement(fd);
		if (r == 0 && vf->placement_id != request->placement_id)
			r = -EIO;
	}
	reply->steered = r == 0;
	reply->steer_error = r;
	if (r < 0)
		snprintf(reply->text, sizeof reply->text, "placement %u: %s", request->placement_id,
			 strerror(-r));
}

/* Opens the VF and reads its state into vfs[0]; false when that failed. */
static bool begin(const char *sysfs_root, const struct card_request *request,
		  struct card_reply *reply, int *ret_fd)
{
	struct card_vf_state *vf = &reply->vfs[0];

	reply->n_vfs = 1;
	vf->address = request->vfs[0];
	vf->placement_id = PLACEMENT_NONE;
	vf->error = vf_open(sysfs_root, request->vfs[0], ret_fd);
	if (vf->error == 0)
		read_state(*ret_fd, vf);
	if (vf->error < 0)
		fail(reply, CARD_STEP_BEFORE, vf->error, "current_vgpu_type");
	return vf->error == 0;
}

void vf_configure(const char *sysfs_root, const struct card_request *request,
		  struct card_reply *reply)
{
	_close_ int fd = -1;

	if (!begin(sysfs_root, request, reply, &fd))
		return;
	if (reply->vfs[0].type_id != 0) {
		refuse(reply, CARD_STEP_BEFORE, -EEXIST, "the VF has a type already");
		return;
	}
	if (write_type(fd, request, reply) && request->placement_id != PLACEMENT_NONE)
		steer(fd, request, reply);
}

/* False when there is nothing (more) to do: the VF is free, or not ours. */
static bool is_ours(const struct card_request *request, struct card_reply *reply)
{
	const struct card_vf_state *vf = &reply->vfs[0];

	if (vf->error < 0) {
		fail(reply, CARD_STEP_BEFORE, vf->error, "current_vgpu_type");
		return false;
	}
	if (vf->type_id == 0)
		return false;
	if (request->type_id != 0 && vf->type_id != request->type_id) {
		refuse(reply, CARD_STEP_CHANGED, -ESTALE,
		       "another type than expected stands there");
		return false;
	}
	return true;
}

static void write_zero(int fd, struct card_reply *reply)
{
	struct card_vf_state *vf = &reply->vfs[0];
	int r = vf_write_type(fd, 0);

	read_state(fd, vf);
	if (r == -EPERM && vf->error == 0 && vf->type_id == 0)
		return; /* somebody else was faster */
	if (r < 0)
		fail(reply, CARD_STEP_WRITE, r, "write of 0 to current_vgpu_type");
	else if (vf->error < 0)
		fail(reply, CARD_STEP_READ_BACK, vf->error, "read back of current_vgpu_type");
	else if (vf->type_id != 0)
		refuse(reply, CARD_STEP_READ_BACK, -EIO, "0 written but a type reads back");
}

void vf_release(const char *sysfs_root, const struct card_request *request, vf_open_check_fn check,
		void *userdata, struct card_reply *reply)
{
	struct card_vf_state *vf = &reply->vfs[0];
	_close_ int fd = -1;

	if (!begin(sysfs_root, request, reply, &fd) || !is_ours(request, reply))
		return;
	check(reply, userdata);
	if (vf->open == CARD_OPEN_YES) {
		reply->result = -EBUSY;
		reply->step = CARD_STEP_SCAN;
		snprintf(reply->text, sizeof reply->text, "held open by %s", reply->holder);
		return;
	}
	if (vf->open == CARD_OPEN_UNKNOWN) {
		reply->result = -EAGAIN;
		reply->step = CARD_STEP_SCAN;
		return;
	}
	read_state(fd, vf);
	if (is_ours(request, reply))
		write_zero(fd, reply);
}
