/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket DIR/ctl.sock and the `berth-sim ctl` client.
 *
 * One request per connection: a line of JSON {"cwd": "...", "argv": ["set", "mode", "equal"]}. One
 * answer: {"exit": 0, "out": "...", "err": "..."}, the texts and the status with which the client
 * ends. So the client knows no commands, and any program can speak to the simulator. Commands are
 * carried out by simcommand.c.
 */
#pragma once

#include "base/macro.h"
#include "sim/simcard.h"

#define SIMCTL_CLIENTS_MAX 64

struct error;
struct sd_event;
struct simcommand;
struct simctl;

/* Listens on sim->root/ctl.sock. `command` stays the caller's. */
int simctl_new(struct sim *sim, struct sd_event *event, struct simcommand *command,
	       struct simctl **ret, struct error *err) _must_check_;
struct simctl *simctl_free(struct simctl *c);

/* The client: sends argv to the simulator at root, prints its answer, returns its exit status. */
int simctl_client(const char *root, int argc, char *argv[]);
