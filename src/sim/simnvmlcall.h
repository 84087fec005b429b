/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each NVML call answers, out of the driver model. No sockets, no waiting: a request in, a
 * reply out. Event waits are the server's (simnvml.c), as they take time.
 */
#pragma once

#include "sim/fakenvml/wire.h"
#include "sim/simcard.h"

/* The card that a call is about, NULL for one that is about none (or none that exists). */
struct sim_card *simnvml_call_card(struct sim *sim, const struct wire_request *req);

/* Whether a hang that was asked for keeps this call from being answered. */
bool simnvml_call_hangs(struct sim *sim, const struct wire_request *req);

/* Fills the whole reply but magic, version and seq. Injected errors and crashes are in it. */
void simnvml_call_answer(struct sim *sim, const struct wire_request *req, struct wire_reply *ret);
