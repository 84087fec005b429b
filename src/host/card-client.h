/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's side of berth-card: one helper process per card, its outstanding operations, its
 * lock.
 *
 * Each helper holds a flock on <lock_dir>/card-<bdf>.lock for life. An operation that is not
 * answered within the time limit has the helper killed; every outstanding operation then ends in
 * -E_DRIVER_STUCK, and the card is STUCK until the dead helper has let go of the lock, however long
 * its write hangs in the driver. The same holds when a helper of an earlier berthd still has the
 * lock. A helper that ends by itself is started again, less and less often; what it had in hand
 * ends in -ECONNRESET (nothing of it can land late: all its threads are gone). Three such ends in a
 * row make the card STUCK too. All functions run in the loop of `event`.
 */
#pragma once

#include <systemd/sd-event.h>

#include "base/error.h"
#include "host/card-message.h"

enum card_client_state {
	CARD_CLIENT_STARTING, /* no helper has the lock yet, or it has not said so yet */
	CARD_CLIENT_READY,
	CARD_CLIENT_STUCK,
};

struct card_client;

struct card_client_config {
	sd_event *event;
	struct pci_addr card;
	const char *sysfs_root; /* "/sys" */
	const char *dev_root;	/* "/dev" */
	const char *proc_root;	/* "/proc" */
	const char *lock_dir;
	uint64_t timeout_usec; /* of one operation */
	/* Runs from the loop whenever the state changed. */
	void (*state_changed)(struct card_client *c, enum card_client_state state, void *userdata);
	void *userdata;
};

/* Starts the helper; the strings are copied. */
int card_client_new(const struct card_client_config *config, struct card_client **ret,
		    struct error *err) _must_check_;
/* Lets the helper end (end of file) without waiting. Outstanding functions are not called. */
struct card_client *card_client_free(struct card_client *c);

/* For operations from now on. */
void card_client_set_timeout(struct card_client *c, uint64_t timeout_usec);

enum card_client_state card_client_get_state(const struct card_client *c);
/* One sentence on why the card is stuck or not ready; "" when ready. */
const char *card_client_reason(const struct card_client *c);
pid_t card_client_pid(const struct card_client *c);

/* The reply is borrowed for the call; its `result` may be -E_DRIVER_STUCK. */
typedef void (*card_done_fn)(const struct card_reply *reply, void *userdata);

/* `request->version` and `id` are filled in. While STARTING operations wait (their time runs);
 * while STUCK: -E_DRIVER_STUCK at once. After 0 `done` runs later from the loop, exactly once;
 * after an error never. The time of a CONFIGURE begins anew when one in front of it is answered,
 * since they run one after another. -EAGAIN above CARD_OUTSTANDING_MAX operations. */
int card_client_submit(struct card_client *c, const struct card_request *request, card_done_fn done,
		       void *userdata) _must_check_;
