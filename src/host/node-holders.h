/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes have the NVIDIA driver open (<dev>/nvidia*): what an SR-IOV cycle has to stop.
 *
 * For people to read: unlike holders.h it does not say whether the answer is complete beyond what
 * -errno tells, and nothing may be decided on it.
 */
#pragma once

#include "base/macro.h"

struct node_holder {
	pid_t pid;
	char name[32]; /* the process's name, made safe */
	char unit[64]; /* its systemd service, as its control group says; "" none */
	char node[32]; /* one node that it has open: "nvidiactl" */
};

/* Fills at most `max`, one a process, by pid order of the folder. *ret_hidden: processes that
 * could not be looked into. -errno when <proc_root> cannot be listed. */
int node_holders_find(const char *dev_root, const char *proc_root, struct node_holder *holders,
		      unsigned max, unsigned *ret_n, unsigned *ret_hidden) _must_check_;
