/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One berth-card process as its parent holds it: pid, pidfd and channel, from start to collection.
 *
 * Nothing here waits for a process: one that hangs in the driver ends when the driver lets it. What
 * its end means for the card is the business of card-client.
 */
#pragma once

#include <sys/wait.h>
#include <systemd/sd-event.h>

#include "model/pci.h"

struct card_process {
	pid_t pid; /* 0: no process */
	int pidfd; /* readable once it has ended */
	int fd;	   /* channel; -1 once it is given up */
};

#define CARD_PROCESS_INIT ((struct card_process){ .pidfd = -1, .fd = -1 })

struct card_process_paths {
	char *sysfs_root, *dev_root, *proc_root, *lock; /* owned */
};

int card_process_start(struct card_process *p, struct pci_addr card,
		       const struct card_process_paths *paths) _must_check_;
void card_process_close_channel(struct card_process *p);
void card_process_kill(struct card_process *p);
/* True when it had ended; it is forgotten then. */
bool card_process_collect(struct card_process *p, siginfo_t *ret);
/* Closes the channel, at which the process ends by itself, sooner or later; the loop collects it
 * for as long as it runs. */
void card_process_abandon(struct card_process *p, sd_event *event);
