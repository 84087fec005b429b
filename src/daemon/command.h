/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running a configured command with a limit, without a shell, from the loop.
 *
 * The command line is split at blanks; "{NAME}" in a word is replaced. The child gets /dev/null as
 * standard input and nothing of ours but its output pipe; its last output is kept for the log. A
 * child that outlives the limit is killed with its process group.
 */
#pragma once

#include <systemd/sd-event.h>

#include "base/error.h"

#define COMMAND_OUTPUT_MAX 512

struct command_word {
	const char *name; /* replaced where "{name}" stands */
	const char *value;
};

struct command;

/* status: as from waitpid(); -ETIMEDOUT when it was killed. output: its last bytes, made safe. */
typedef void (*command_done_fn)(int status, const char *output, void *userdata);

int command_start(sd_event *event, const char *line, const struct command_word words[],
		  size_t n_words, uint64_t limit_usec, command_done_fn done, void *userdata,
		  struct command **ret, struct error *err) _must_check_;
/* Kills it; done is not called. */
struct command *command_free(struct command *c);

/* "exit status 3" and the like; "" when the command succeeded. */
void command_describe(int status, char *ret, size_t size);
