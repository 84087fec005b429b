/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probing the driver at boot: `nvidia-smi -L` opens the device, which runs RmInitAdapter.
 *
 * Success is the OK marker. A failing or stuck probe says nothing by itself: it makes the driver
 * print its kernel line, and that is what counts. One attempt at a time, at most 30 s each, every
 * 15 s for 10 minutes; one that is stuck in the kernel and cannot be killed is waited for, never
 * doubled.
 */
#pragma once

#include "base/macro.h"

struct probe {
	const char *program;
	pid_t pid; /* 0: none runs */
	int output;
	bool killed, done, listed; /* listed: the output named a GPU */
	uint64_t end_usec, next_usec, limit_usec;
};

/* Without the program there is nothing to probe: done at once. */
void probe_init(struct probe *p, const char *program, uint64_t now_usec);

/* Milliseconds until probe_run() wants to be called, -1: never (done), or when the child ends. */
int probe_timeout_ms(const struct probe *p, uint64_t now_usec);

/* Starts, limits and reaps attempts. True once, when an attempt succeeded. */
bool probe_run(struct probe *p, uint64_t now_usec);
