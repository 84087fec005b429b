/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of `berth-sim ctl`.
 *
 * A command is answered once, at once or later (a guest that boots, a sriov-manage run). This
 * module knows nothing of sockets.
 */
#pragma once

#include "base/macro.h"
#include "sim/simcard.h"

#define SIMCOMMAND_ARGS_MAX 32

struct error;
struct sd_event;
struct simfuse;
struct simguests;
struct simnvml;
struct simcommand;

struct simcommand_parts {
	struct sim *sim;
	struct sd_event *event;
	struct simfuse *sys, *dev;
	struct simguests *guests;
	struct simnvml *nvml;
};

/* status: 0 done, 1 refused, 2 wrong usage. Both texts are complete lines or empty. */
typedef void (*simcommand_answer)(void *userdata, int status, const char *out, const char *err);

int simcommand_new(const struct simcommand_parts *parts, struct simcommand **ret) _must_check_;
struct simcommand *simcommand_free(struct simcommand *c);

/* Carries out argv. cwd: what relative paths in it are relative to. */
void simcommand_run(struct simcommand *c, int argc, const char *const argv[], const char *cwd,
		    simcommand_answer answer, void *userdata);
/* Whoever waits with this userdata has gone: what was begun goes on, nobody is answered. */
void simcommand_forget(struct simcommand *c, const void *userdata);

/* Help text, one command a line. */
extern const char simcommand_help[];
