/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one query asks of NVML: each card's mode, types, placements and active vGPUs.
 *
 * A session is the library initialised once, and what need not be asked twice: a card's types with
 * their supported placements, per mode. Creatable placements and instances are asked each time. A
 * failure is that card's alone; only what Init says, and a library that does not match the driver,
 * concern the whole host. Calls block for as long as the driver does; only berth-nvml links this.
 *
 * A creatable placement that is missing among the supported ones means that the table is out of
 * date: it is asked again, once. If the driver still insists, NVML is believed and the placement is
 * added behind the others for that answer.
 */
#pragma once

#include "nvml/load.h"
#include "nvml/message.h"

struct nvml_session;

/* The table is copied. -ENOMEM. */
int nvml_session_new(const struct nvml_api *api, struct nvml_session **ret) _must_check_;
/* Shuts NVML down. Returns NULL. */
struct nvml_session *nvml_session_free(struct nvml_session *s);

/* Before the cards of a query: initialises NVML where that is still to be done, and fills reason,
 * nvml_error, restart, text and driver of `end`. False: the cards cannot be asked. */
bool nvml_session_start(struct nvml_session *s, uint64_t now_usec,
			struct nvml_end_message *end) _must_check_;

/* False: it was given up, and `ret` says nothing. */
bool nvml_session_query_card(struct nvml_session *s, struct pci_addr address,
			     struct nvml_card *ret);

/* `fn` is called between the calls for a card; once it is true the card is given up. */
void nvml_session_set_interrupted(struct nvml_session *s, bool (*fn)(void));

/* After them: turns what a card ran into into an outcome of the whole host where it is one. Asks
 * for a fresh helper now and then while a card fails, because NVML looks for devices in Init only.
 */
/* Turns mixed-size mode on for the cards that are asked from here on. */
void nvml_session_set_mixed(struct nvml_session *s, bool set);

void nvml_session_finish(struct nvml_session *s, uint64_t now_usec, struct nvml_end_message *end);
