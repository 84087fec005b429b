/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of a card's recovery share: recover-start.c (may it begin?), recover.c (its steps)
 * and recover-record.c (what is shown and stored of it). Nobody else includes it.
 */
#pragma once

#include "base/clock.h"
#include "daemon/command.h"
#include "daemon/recover.h"

enum recovery_step {
	STEP_CHECK,
	STEP_CORDON,
	STEP_STOP_NVML,
	STEP_STOP_SERVICES,
	STEP_SRIOV_OFF,
	STEP_SRIOV_ON,
	STEP_WAIT_FOR_VFS,
	STEP_MIXED_MODE,
	STEP_START_SERVICES,
	STEP_VERIFY,
	STEP_CLEAR_RECORDS,
	STEP_UNCORDON,
	STEP_DONE,
};

enum recovery_state { RECOVERY_RUNNING, RECOVERY_FAILED, RECOVERY_DONE, RECOVERY_INTERRUPTED };

struct recovery {
	struct node *node;
	struct config *config; /* as it was when the recovery began; NULL: it does not run */
	struct card *card;
	enum recovery_state state;
	enum recovery_step step;
	char detail[NODE_TEXT_MAX];
	char started_at[CLOCK_RFC3339_MAX];
	bool was_cordoned, was_mixed, nvml_was_released;
	bool refused_cordon; /* the cordon to put back when the checks refuse */
	unsigned expected_vfs;
	uint64_t sriov_seq; /* when sriov-manage -e ended: what was seen before is of the old VFs */
	size_t service;	    /* index of the service command under way */
	uint64_t step_deadline_usec;
	struct command *command;
	sd_event_source *timer;
	recover_started_fn started;
	void *userdata;
	struct recovery
		*previous; /* until the checks are over: the card shows it again when they refuse */
};

/* recover-record.c */
const char *recovery_step_name(const struct recovery *r);
const char *recovery_card_text(const struct recovery *r);
/* An event, and whoever looks at the card sees it. */
void recovery_publish(struct recovery *r);
/* Answers the request that asked for it; only the first call does anything. */
void recovery_tell_started(struct recovery *r, int code, const char *detail);
/* text NULL: the database forgets the card's recovery. */
void recovery_store(struct node *n, struct card *c, const char *text);
/* Commits are made in order: that there is a recovery is on disk before the cordon is, and that
 * before anything is touched. A later step may begin before its name is there, so a crash may
 * report the one before it. */
void recovery_remember(struct recovery *r);

/* recover.c: ends the present step well and goes on with the next one. */
void recovery_advance(struct recovery *r);
