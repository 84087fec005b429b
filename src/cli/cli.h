/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the commands of `berth` share: options, calling the daemon, saying what went wrong.
 *
 * A command is a function from its arguments to the exit status. It prints its result to standard
 * output and complaints to standard error. Everything that comes from the daemon is made safe
 * before it goes to a terminal.
 */
#pragma once

#include <getopt.h>
#include <jansson.h>

#include "base/macro.h"
#include "cli/progress.h"
#include "model/outcome.h"

#define CLI_DEFAULT_SOCKET "/run/berth/berthd.sock"
/* Longer than the daemon's own limits, so that it is the daemon that says what is late. */
#define CLI_READ_TIMEOUT_USEC  (UINT64_C(30) * 1000000)
#define CLI_WRITE_TIMEOUT_USEC (UINT64_C(120) * 1000000)

struct cli {
	const struct cli_command *command;
	const char *socket;
	bool socket_given; /* by option or environment */
	bool json;
	struct progress *progress; /* shown while an answer is waited for, cleared when it is a
				       refusal; NULL: none */
};

struct cli_command {
	const char *name;
	const char *args;    /* for the usage line */
	const char *summary; /* for the list of commands */
	const char *help;    /* options and examples */
	bool hidden;	     /* for programs: not in the list of commands */
	int (*run)(struct cli *cli, int argc, char **argv);
};

extern const struct cli_command cli_resources, cli_gpus, cli_map, cli_claim, cli_release,
	cli_claims, cli_complete, cli_doctor, cli_fit, cli_gpu, cli_driver, cli_run, cli_vf;

/* `berth gpu recover CARD`; an exit status. */
int cli_recover_card(struct cli *cli, const char *card);

/* --- Options -------------------------------------------------------------------------------- */

enum { CLI_OPT_JSON = 256, CLI_OPT_SOCKET, CLI_OPT_COLOR, CLI_OPT_OWN };

/* Put these first into a command's own list; its values begin at CLI_OPT_OWN. */
#define CLI_COMMON_OPTIONS                                                                         \
	{ "help", no_argument, NULL, 'h' }, { "json", no_argument, NULL, CLI_OPT_JSON },           \
		{ "socket", required_argument, NULL, CLI_OPT_SOCKET },                             \
	{                                                                                          \
		"color", required_argument, NULL, CLI_OPT_COLOR                                    \
	}

#define CLI_GO_ON (-1)

/* "auto", "always" or "never". CLI_GO_ON, or EXIT_STATUS_USAGE after a complaint. */
int cli_take_colour(const char *when);
/* For what a command's own switch does not know. CLI_GO_ON, or the exit status to end with. */
int cli_common_option(struct cli *cli, int opt);
/* Options of a command that has none of its own, and the number of its arguments, which then begin
 * at argv[optind]. CLI_GO_ON, or the exit status. */
int cli_parse(struct cli *cli, int argc, char **argv, int min_args, int max_args);
/* Checks argc - optind, after a command's own loop. */
int cli_check_args(const struct cli *cli, int argc, int min_args, int max_args);
/* "berth: <sentence>", where to find help, EXIT_STATUS_USAGE. */
int cli_usage_error(const struct cli *cli, const char *fmt, ...) _printf_(2, 3);
void cli_print_help(const struct cli_command *command);

/* --- The daemon ----------------------------------------------------------------------------- */

struct cli_reply {
	int status;
	json_t *json; /* NULL when there was no body */
};

void cli_reply_done(struct cli_reply *reply);
#define _reply_ _cleanup_(cli_reply_done)

/* Asks. A 2xx is success: 0. Otherwise the exit status (never 0), after the reason
 * was printed; with --json the problem goes to standard output as well. body may be NULL. */
int cli_call(const struct cli *cli, const char *method, const char *path, const json_t *body,
	     uint64_t timeout_usec, struct cli_reply *ret) _must_check_;
/* The same, but a 404 is success too. */
int cli_call_may_miss(const struct cli *cli, const char *method, const char *path,
		      uint64_t timeout_usec, struct cli_reply *ret) _must_check_;
/* "<prefix><segment, encoded><suffix>" as path; a usage error where the segment is empty or too
 * long. */
int cli_make_path(const struct cli *cli, const char *prefix, const char *segment,
		  const char *suffix, char *ret, size_t size) _must_check_;

/* --- Output --------------------------------------------------------------------------------- */

/* "berth: <sentence>" on standard error, made safe; returns `status`. */
int cli_error(int status, const char *fmt, ...) _printf_(2, 3);
/* The whole output at once: EXIT_STATUS_OK, or _ERROR when it could not be written. */
int cli_print(const char *text);
/* As the API gave it, indented. NULL prints nothing. */
int cli_print_json(const json_t *json);

/* A member as text that is safe to print: strings, numbers and booleans; "-" for anything else and
 * where it is missing. Returns ret. */
const char *cli_field(const json_t *object, const char *key, char *ret, size_t size);
#define CLI_FIELD_SIZE 320
/* An integer member, `missing` where it is none. */
json_int_t cli_field_int(const json_t *object, const char *key, json_int_t missing);
bool cli_field_is_set(const json_t *object, const char *key); /* there and not null, false or "" */
/* An array member; an empty array where it is none (borrowed, for json_array_foreach). */
const json_t *cli_field_array(const json_t *object, const char *key);
