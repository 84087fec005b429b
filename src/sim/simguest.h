/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulated guests: child processes that hold a VF's VFIO node as a VM does, go through the guest
 * driver's init window, and print the agent's marker lines.
 *
 * A guest that gets SIGTERM shuts down cleanly. One that dies otherwise inside its init window
 * leaves the VF wedged. Guests end when the simulator does.
 */
#pragma once

#include "base/macro.h"
#include "sim/simcard.h"

struct error;
struct sd_event;
struct simguests;

struct simguest_options {
	const char *console; /* absolute path, or NULL */
	const char *prefix;  /* of the marker lines */
	const char *node;    /* "group", "cdev" or "both" */
	uint64_t init_usec;
};

/* The guest holds its node and is an NVML instance (0), or could not start (-errno). */
typedef void (*simguest_started)(void *userdata, pid_t pid, int result);

int simguests_new(struct sim *sim, struct sd_event *event, struct simguests **ret) _must_check_;
/* Kills what still runs. The mounts must be gone before, or a guest may wait for them. */
struct simguests *simguests_free(struct simguests *g);

/* Starts one. `started` is called once, later, from the loop. */
int simguests_boot(struct simguests *g, struct sim_vf *vf, const struct simguest_options *options,
		   simguest_started started, void *userdata, struct error *err) _must_check_;
/* The client that waits for `started` has gone. */
void simguests_forget(struct simguests *g, const void *userdata);
/* Ends the guests whose VF was taken away (SR-IOV cycle, removal, reboot). */
void simguests_sync(struct simguests *g);

/* The child's main(): `berth-sim guest ...`, started by simguests_boot() only. */
int simguest_main(int argc, char *argv[]);
