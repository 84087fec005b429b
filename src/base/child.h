/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts a child process that inherits nothing by accident.
 *
 * Standard input is /dev/null, the signal mask is empty, every signal has its default action, and
 * only the descriptors named here are open. What the child is for, and waiting for it, is the
 * caller's matter.
 */
#pragma once

#include "base/macro.h"

struct child_options {
	const char *path; /* with a slash, or looked for in PATH */
	char *const *argv;
	int output_fd;	/* standard output and error; -1: both are the parent's standard error */
	int extra_fd;	/* what the child finds at descriptor 3; -1: nothing. Above 3 */
	bool own_group; /* a process group of its own, to be killed with all it starts */
};

/* 0 and the pid, or -errno. Fails also where path cannot be executed. */
int child_start(const struct child_options *s, pid_t *ret_pid) _must_check_;
