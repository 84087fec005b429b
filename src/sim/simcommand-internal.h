/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What simcommand.c (parsing, faults, guests) and simcommand-event.c (things that happen to the
 * host) share. Nobody else includes this.
 */
#pragma once

#include <systemd/sd-event.h>

#include "base/macro.h"
#include "sim/simcommand.h"

#define SIMCOMMAND_JOBS_MAX 64

/* A command that takes time. */
struct job {
	struct simcommand *owner;
	bool used;
	struct sim_card *card;
	bool sriov_on;
	bool hidden; /* of a flap */
	uint64_t period_usec, end_usec;
	simcommand_answer answer; /* NULL: nobody waits any more */
	void *userdata;
	sd_event_source *timer;
};

struct simcommand {
	struct simcommand_parts parts;
	struct sim *sim;
	struct simfault *faults;
	struct job jobs[SIMCOMMAND_JOBS_MAX];
};

/* A command line taken apart. */
struct request {
	struct simcommand *c;
	int argc; /* positional arguments, the command's name first */
	const char *argv[SIMCOMMAND_ARGS_MAX];
	const char *cwd;
	const char *gpu, *vf, *for_seconds, *console, *init_ms, *node, *prefix, *hz;
	bool enable, disable;
	simcommand_answer answer;
	void *userdata;
};

void simcommand_done(const struct request *q, const char *out);
/* status 1 or 2, and why; the newline is added. */
void simcommand_refuse(const struct request *q, int status, const char *fmt, ...) _printf_(3, 4);
/* NULL: refused already. */
struct sim_card *simcommand_card(const struct request *q, const char *address);
struct job *simcommand_job(const struct request *q);
int simcommand_seconds(const char *text, uint64_t *ret_usec) _must_check_;

void simcommand_sriov(const struct request *q);
void simcommand_remove(const struct request *q);
void simcommand_restore(const struct request *q);
void simcommand_flap(const struct request *q);
void simcommand_reboot(const struct request *q);
