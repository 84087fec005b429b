/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulator's side of the fake libnvidia-ml.so.1: the socket DIR/nvml.sock on which it answers
 * the library's calls out of the driver model, and the copy DIR/lib/libnvidia-ml.so.1 that clients
 * load.
 *
 * Runs in the simulator's one thread. A call that hangs, or waits for an event, is kept back and
 * answered later; a client has at most one of those, so the memory used is bounded by
 * SIMNVML_CLIENTS_MAX. A client that sends anything but requests is disconnected.
 */
#pragma once

#include "base/macro.h"
#include "sim/simcard.h"

#define SIMNVML_CLIENTS_MAX 256

struct error;
struct sd_event;
struct simnvml;

/* Makes sim->root/lib with the library and listens on sim->root/nvml.sock. `library` is the file
 * that was built; NULL: found beside the program. The event loop and the model stay the caller's
 * and must outlive the server. */
int simnvml_new(struct sim *sim, struct sd_event *event, const char *library, struct simnvml **ret,
		struct error *err) _must_check_;
struct simnvml *simnvml_free(struct simnvml *n);

/* To be called after any fault or the list of missing symbols was changed: answers the calls whose
 * hang has been lifted, and replaces the library's file if its symbols are others now (who has
 * loaded it keeps the old one). Logs a name that the library does not have anyway. -errno. */
int simnvml_changed(struct simnvml *n, struct error *err) _must_check_;

/* An Xid on a card, for the event sets that are registered for it. */
void simnvml_raise_xid(struct simnvml *n, const struct sim_card *card, uint64_t xid);

/* Writes `from` to dir_lib/libnvidia-ml.so.1 so that dlsym() finds none of the missing names, as
 * the library of that driver version. ret_unknown: the last name that was not there to begin with,
 * or NULL. -EBADMSG for a file that is no such library, -errno. */
int simnvml_install_library(const char *from, const char *dir_lib, const char *driver,
			    const char *const missing[], size_t n_missing, const char **ret_unknown,
			    struct error *err) _must_check_;

/* Symbols that a driver branch (535, 550...) does not have yet; i-th name, NULL past the end. */
const char *simnvml_branch_lacks(uint32_t branch, size_t i);
