/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fake libnvidia-ml.so.1 and berth-sim say to each other over DIR/nvml.sock.
 *
 * SOCK_SEQPACKET; one request of fixed size, then one reply of fixed size, never two requests in
 * flight on one connection. A process has one connection for its calls and one more for each event
 * set. Both ends run on one machine, so numbers are in its byte order. A message of another length,
 * magic or version ends the connection. Return codes are NVML's own numbers; every rule about
 * buffers and struct versions is the library's part, every fact about cards the simulator's.
 */
#pragma once

#include "base/macro.h"

#define WIRE_MAGIC	 UINT32_C(0x4c4d564e) /* "NVML" */
#define WIRE_VERSION	 1
#define WIRE_SOCKET_NAME "nvml.sock"
#define WIRE_MAX_CARDS	 32
#define WIRE_MAX_IDS	 128 /* types per GPU from driver 580 on; placements and vGPUs are fewer */
#define WIRE_MAX_TEXT	 (WIRE_MAX_IDS * 4)

enum wire_op {
	WIRE_INIT = 1, /* arg: flags; num[0]: how many /dev/nvidiaN there are */
	WIRE_SHUTDOWN,
	WIRE_DRIVER_VERSION, /* text */
	WIRE_DRIVER_BRANCH,  /* text */
	WIRE_COUNT,	     /* num[0] */
	WIRE_CARD_BY_INDEX,  /* arg: index; num[0]: card */
	WIRE_CARD_BY_BUS,    /* wide: domain << 16 | bus << 8 | device << 3 | function; num[0] */
	WIRE_CARD_INDEX,     /* card; num[0] */
	WIRE_CARD_MINOR,     /* card; num[0]: N of /dev/nvidiaN */
	WIRE_CARD_NAME,	     /* card; text */
	WIRE_CARD_UUID,	     /* card; text */
	WIRE_CARD_PCI,	     /* card; num: domain, bus << 8 | device, device id, subsystem id */
	WIRE_CARD_MEMORY,    /* card; num: total, reserved, free, used in bytes */
	WIRE_CARD_VIRT_MODE, /* card; num[0] */
	WIRE_CARD_HOST_MODE, /* card; num[0] */
	WIRE_CARD_MIG_MODE,  /* card; num[0] current, num[1] pending */
	WIRE_CARD_GET_CAP,   /* card, arg: capability; num[0] */
	WIRE_CARD_SET_CAP, /* card, arg: capability, arg2: 0 or 1, wide: 1 if the caller is root */
	WIRE_DRIVER_CAP,   /* arg: capability; num[0] */
	WIRE_CARD_SUPPORTED,  /* card; ids */
	WIRE_CARD_CREATABLE,  /* card; ids */
	WIRE_CARD_ACTIVE,     /* card; ids */
	WIRE_CARD_GET_MODE,   /* card; num[0]: 1 is mixed-size */
	WIRE_CARD_SET_MODE,   /* card, arg: mode, wide: 1 if the caller is root */
	WIRE_CARD_PLACEABLE,  /* card, type, arg: mode, arg2: struct version; ids, num[0]: size */
	WIRE_CARD_PLACEMENTS, /* the same, of the static geometry */
	WIRE_CARD_MAX_INSTANCES,  /* card, type; num[0] */
	WIRE_TYPE_NAME,		  /* type; text */
	WIRE_TYPE_CLASS,	  /* type; text */
	WIRE_TYPE_LICENSE,	  /* type; text */
	WIRE_TYPE_NUMBER,	  /* type, arg: enum wire_type_number; num[0], num[1] */
	WIRE_TYPE_CAP,		  /* type, arg: capability; num[0] */
	WIRE_INSTANCE_TYPE,	  /* instance; num[0] */
	WIRE_INSTANCE_VM_ID,	  /* instance; text, num[0]: kind of id */
	WIRE_INSTANCE_UUID,	  /* instance; text */
	WIRE_INSTANCE_MDEV,	  /* instance; text */
	WIRE_INSTANCE_FB_USED,	  /* instance; num[0] in bytes */
	WIRE_INSTANCE_PCI,	  /* instance; text */
	WIRE_INSTANCE_DRIVER,	  /* instance; text */
	WIRE_INSTANCE_LICENSE,	  /* instance; num[0]: licensed, num[1]: state */
	WIRE_INSTANCE_PLACEMENT,  /* instance; num[0] */
	WIRE_INSTANCE_STATE_SIZE, /* instance; num[0] in bytes */
	WIRE_INSTANCE_RATE,	  /* instance; num[0] frames per second */
	WIRE_INSTANCE_ECC,	  /* instance; num[0] */
	WIRE_INSTANCE_GI,	  /* instance; num[0] */
	WIRE_CARD_GIS,		  /* card, arg: GPU instance profile; ids */
	WIRE_EVENT_TYPES,	  /* card; num[0]: mask */
	WIRE_EVENT_REGISTER,	  /* card, wide: mask */
	WIRE_EVENT_WAIT, /* arg: ms; num: card, type, data, GPU and compute instance in halves */
	WIRE_OP_END,
};

enum wire_type_number {
	WIRE_TYPE_FRAMEBUFFER = 1, /* bytes */
	WIRE_TYPE_PER_VM,
	WIRE_TYPE_PER_GI,
	WIRE_TYPE_PCI_IDS, /* num[0] device, num[1] subsystem */
	WIRE_TYPE_RATE,
	WIRE_TYPE_HEADS,
	WIRE_TYPE_RESOLUTION, /* num[0] x, num[1] y; arg2: head */
	WIRE_TYPE_GI_PROFILE,
	WIRE_TYPE_BAR1_MB,
	WIRE_TYPE_GSP_HEAP,    /* bytes */
	WIRE_TYPE_FB_RESERVED, /* bytes */
};

struct wire_request {
	uint32_t magic;
	uint16_t version;
	uint16_t op;
	uint32_t seq;
	uint32_t card;
	uint32_t type;
	uint32_t instance;
	uint32_t arg;
	uint32_t arg2;
	uint64_t wide;
};

#define WIRE_FLAG_CRASH 1 /* the library ends its process with abort() */

struct wire_reply {
	uint32_t magic;
	uint16_t version;
	uint16_t flags;
	uint32_t seq;
	int32_t ret;
	uint64_t cost_nsec; /* how long the driver took; the library waits until that has passed */
	uint64_t num[4];
	uint32_t n_ids;
	uint32_t zero;
	union {
		uint32_t ids[WIRE_MAX_IDS];
		char text[WIRE_MAX_TEXT];
	};
};

_Static_assert(sizeof(struct wire_request) == 40, "no padding in a request");
_Static_assert(sizeof(struct wire_reply) == 64 + WIRE_MAX_TEXT, "no padding in a reply");

/* Whether `n` received bytes are a request; what they ask for may still be nonsense. */
static inline bool wire_request_valid(const struct wire_request *r, size_t n)
{
	return n == sizeof(*r) && r->magic == WIRE_MAGIC && r->version == WIRE_VERSION && r->op &&
	       r->op < WIRE_OP_END;
}

/* The same of a reply to request `seq`: list within limits, text ended. */
static inline bool wire_reply_valid(const struct wire_reply *r, size_t n, uint32_t seq)
{
	return n == sizeof(*r) && r->magic == WIRE_MAGIC && r->version == WIRE_VERSION &&
	       r->seq == seq && r->n_ids <= WIRE_MAX_IDS &&
	       (r->n_ids || r->text[WIRE_MAX_TEXT - 1] == '\0');
}
