/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's side of berth-nvml: one helper process, one query at a time, a deadline that counts
 * from the moment the query was asked for.
 *
 * Whatever happens (no library, a hang, a crash) a query ends in exactly one call of its function.
 * After a time-out the helper is killed; until it has been reaped no second one is started and
 * queries answer NVML_REASON_TIMEOUT at once. Everything runs in the loop of `event`.
 */
#pragma once

#include <systemd/sd-event.h>

#include "base/error.h"
#include "nvml/message.h"

struct nvml_answer {
	enum nvml_reason reason; /* whole host */
	int nvml_error;
	char text[NVML_TEXT_MAX];
	char driver[80];
	uint64_t asked_usec; /* monotonic, when the query was sent */
	uint64_t answered_usec;
	uint64_t query_usec; /* inside the library; 0 when it did not answer */
	bool skipped;	     /* the helper was not asked: stuck, stopped by hand, or switched off */
	unsigned n_cards;    /* in the order asked; 0 when reason is set */
	struct nvml_card *cards;
};

struct nvml_client_config {
	sd_event *event;
	const char *library;   /* path or soname; "": no NVML, no helper is ever started */
	uint64_t timeout_usec; /* of one query, waiting for the slot included */
};

struct nvml_client;

/* The strings of the configuration are copied. */
int nvml_client_new(const struct nvml_client_config *config, struct nvml_client **ret,
		    struct error *err) _must_check_;
/* Ends the helper in order (end of file), without waiting for it. Outstanding functions are not
 * called. */
struct nvml_client *nvml_client_free(struct nvml_client *c);

/* The answer is borrowed for the call. */
typedef void (*nvml_done_fn)(const struct nvml_answer *answer, void *userdata);

/* Asks for these cards; -EBUSY while a query is out, -EINVAL for more than NVML_CARDS_MAX cards,
 * else 0 and `done` runs later from the loop (never from within this call). */
int nvml_client_query(struct nvml_client *c, const struct pci_addr *cards, unsigned n,
		      nvml_done_fn done, void *userdata) _must_check_;
/* Turns mixed-size mode on for a card that has no vGPU configured, then asks for it: done gets one
 * card, whose reason tells whether that worked. */
int nvml_client_set_mixed(struct nvml_client *c, struct pci_addr card, nvml_done_fn done,
			  void *userdata) _must_check_;
/* Asks the query that is out anew, for the same cards: the helper gives the old one up at its next
 * call into the library. With `renew` the deadline counts from now, for those who wait only since
 * now. -EALREADY when the answer stands already. */
int nvml_client_restart(struct nvml_client *c, bool renew) _must_check_;
/* For queries from now on. */
void nvml_client_set_timeout(struct nvml_client *c, uint64_t timeout_usec);

bool nvml_client_is_busy(const struct nvml_client *c);
/* True while a helper hangs in the driver: queries are skipped. */
bool nvml_client_is_stuck(const struct nvml_client *c);

/* `berth driver release|resume`: stops the helper so that /dev/nvidia* is free, and keeps it
 * stopped; queries answer NVML_REASON_LIBRARY ("stopped by hand") meanwhile. */
void nvml_client_release(struct nvml_client *c);
void nvml_client_resume(struct nvml_client *c);
bool nvml_client_is_released(const struct nvml_client *c);

/* Pid of the helper, 0 when none runs. */
pid_t nvml_client_pid(const struct nvml_client *c);
