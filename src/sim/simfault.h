/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault keys by name: parsing, writing them where they apply, and taking them back after a time.
 *
 * A value set for the whole host or for a card replaces what was set below it, so the last command
 * always wins. Nothing here injects a fault; simfuse and simnvml look at the values.
 */
#pragma once

#include "base/macro.h"
#include "sim/simcard.h"

#define SIMFAULT_REVERTS_MAX 64

struct error;
struct sd_event;
struct simfault;

/* changed is called after every change, those by a timer included. */
int simfault_new(struct sim *sim, struct sd_event *event, void (*changed)(void *userdata),
		 void *userdata, struct simfault **ret) _must_check_;
struct simfault *simfault_free(struct simfault *s);

/* One `set KEY VALUE` command. card and vf limit it (both NULL: the whole host). for_usec: when the
 * former value comes back; 0: never. -EINVAL (no such key or value; key not for one VF), -EBUSY and
 * -ENOTSUP of a mode change. */
int simfault_set(struct simfault *s, const char *key, const char *value, struct sim_card *card,
		 struct sim_vf *vf, uint64_t for_usec, struct error *err) _must_check_;

/* i-th key with a short explanation, NULL past the last; for --help. */
const char *simfault_key(size_t i, const char **ret_help);
