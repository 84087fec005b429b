/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the fake library share: the session with the simulator and the ways in which
 * NVML hands things out. Nothing here is exported.
 *
 * One lock covers the session; a call holds it from request to the end of the time the simulated
 * driver takes, as calls of a process queue up at the real driver's lock.
 */
#pragma once

#include "sim/fakenvml/nvml-abi.h"
#include "sim/fakenvml/wire.h"

/* A device handle points at an element of lib_cards; which card that is, is its index. */
struct nvmlDevice_st {
	char unused;
};

extern struct nvmlDevice_st lib_cards[WIRE_MAX_CARDS];

/* Whether the library is initialised: NVML_SUCCESS or NVML_ERROR_UNINITIALIZED. */
int lib_ready(void);

/* Asks the simulator and waits for as long as the driver would take. The reply is meaningful only
 * when the result is 0. `op` and its arguments are the caller's, the rest is filled in. */
int lib_call(struct wire_request *req, struct wire_reply *ret);

/* The same about a card; a handle that is none gives NVML_ERROR_INVALID_ARGUMENT. */
int lib_call_card(nvmlDevice_t device, struct wire_request *req, struct wire_reply *ret);

/* Calls whose whole result is one number. */
int lib_get_number(struct wire_request *req, unsigned int *ret);
int lib_get_number64(struct wire_request *req, unsigned long long *ret);
int lib_get_card_number(nvmlDevice_t device, struct wire_request *req, unsigned int *ret);

/* Hands a text out; NVML_ERROR_INSUFFICIENT_SIZE if it does not fit with its NUL. */
int lib_put_text(const struct wire_reply *rep, char *buf, unsigned int size);

/* Hands the list out by NVML's rule: too little room means the needed number and no elements. */
int lib_put_ids(const struct wire_reply *rep, unsigned int *count, unsigned int *ids);

/* For event sets: a connection of their own, one exchange on one, and whether a reply came. */
int lib_connect(void);
int lib_exchange(int sock, uint32_t *seq, struct wire_request *req, struct wire_reply *ret);
/* Called with the last nvmlShutdown: event sets end with the session. */
void lib_events_end(void);
