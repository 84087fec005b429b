/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What berth-card is asked and answers, over a SOCK_SEQPACKET pair, in the machine's own layout.
 *
 * Requests carry an id; answers carry it back and come in any order: releases, reads and scans run
 * beside each other, configures one after another.
 */
#pragma once

#include "model/pci.h"
#include "model/profile.h"

#define CARD_MESSAGE_VERSION 1
#define CARD_VFS_MAX	     64 /* more VFs per PF are impossible (RM's 64-bit mask) */
#define CARD_TEXT_MAX	     160
#define CARD_OUTSTANDING_MAX 256 /* requests of one card that are not answered yet */

/* The first message of a helper. With a lock_error it ends right after it. */
struct card_hello {
	uint32_t version;
	int32_t lock_error; /* 0: ready; -EWOULDBLOCK: another helper holds the lock; -errno */
};

enum card_op {
	CARD_OP_READ = 1,  /* current type and placement of each VF named */
	CARD_OP_LIST,	   /* creatable_vgpu_types of each VF named, and its current type */
	CARD_OP_CONFIGURE, /* vfs[0]: write a type, read it back, steer the placement, read that
			      back */
	CARD_OP_RELEASE,   /* vfs[0]: scan for open handles, write 0, read back */
	CARD_OP_SCAN,	   /* which VFs named are open */
};

struct card_request {
	uint32_t version;
	enum card_op op;
	uint64_t id;
	uint32_t n_vfs;
	struct pci_addr vfs[CARD_VFS_MAX];
	uint32_t type_id; /* CONFIGURE: the type to write. RELEASE: the type expected there, 0: any
			   */
	uint16_t placement_id; /* CONFIGURE: where it should be, PLACEMENT_NONE: the driver's choice
				*/
	bool pin; /* CONFIGURE: ask through vgpu_params (before 570) instead of placement_id */
};

enum card_open {
	CARD_OPEN_UNKNOWN, /* /proc cannot be listed, no CAP_SYS_PTRACE, or the canary was not found
			    */
	CARD_OPEN_NO,
	CARD_OPEN_YES,
};

/* How far a CONFIGURE or RELEASE came. */
enum card_step {
	CARD_STEP_DONE,
	/* Nothing of ours was written: the VF could not be read (-ENOENT, -ENODEV: it is gone or
	 * not bound to the driver), (CONFIGURE, -EEXIST) somebody else's type stands there, or no
	 * helper ever had the request. */
	CARD_STEP_BEFORE,
	CARD_STEP_SCAN,	     /* RELEASE: open (-EBUSY) or unknown (-EAGAIN): nothing written */
	CARD_STEP_CHANGED,   /* RELEASE: another type than expected stands there (-ESTALE): nothing
				written */
	CARD_STEP_WRITE,     /* the write failed */
	CARD_STEP_READ_BACK, /* the write was accepted but the value did not stay */
};

struct card_vf_state {
	struct pci_addr address;
	int error;	  /* -errno of reading current_vgpu_type; 0: the fields below are good */
	uint32_t type_id; /* 0: free */
	uint16_t placement_id; /* PLACEMENT_NONE: none or not readable (before 570: no such file) */
	bool has_placement_file;
	enum card_open open; /* after SCAN, and after a RELEASE that came to its scan */
};

struct card_reply {
	uint32_t version;
	enum card_op op;
	uint64_t id;
	int result; /* 0, or -errno (or -E_DRIVER_STUCK, set by the client side) */
	enum card_step step;
	bool undone;	   /* CONFIGURE failed and the VF reads 0 now */
	bool steered;	   /* the placement asked for was written */
	int steer_error;   /* -errno of the placement_id or vgpu_params write that was refused; 0:
			      none */
	bool scan_partial; /* single processes could not be looked into */
	char holder[64];   /* "pid 123 (qemu-system-x86)": one process that holds vfs[0] open */
	char text[CARD_TEXT_MAX]; /* one sentence about a failure */
	uint32_t n_vfs;
	struct card_vf_state vfs[CARD_VFS_MAX];
	/* LIST: types[] holds the union of the lists in table order; lists[i] says which of them VF
	 * i shows (bit t = types.items[t]), list_errors[i] is its -errno. */
	int list_errors[CARD_VFS_MAX];
	uint64_t lists[CARD_VFS_MAX][PROFILE_TYPES_MAX / 64];
	uint32_t bad_lines;
	struct profile_list types; /* last: only the used part is sent */
};

/* Bytes of a reply on the wire: all of it but the unused types. */
size_t card_reply_size(const struct card_reply *reply);
/* Whether a received message of `len` bytes is one: version, counts and texts within their limits.
 * -EBADMSG otherwise. */
int card_reply_check(const struct card_reply *reply, size_t len) _must_check_;
int card_request_check(const struct card_request *request, size_t len) _must_check_;

const char *card_op_name(enum card_op op); /* "read", "configure"... */
