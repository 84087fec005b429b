/* SPDX-License-Identifier: Apache-2.0 */
/* `berth gpu recover`: starts a recovery and tells its steps as they come. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cli/cli.h"

#define LOOK_NSEC 100000000 /* between looks */

static void wait_a_little(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = LOOK_NSEC }, NULL);
}

static int report_end(const struct cli *cli, const char *card, const json_t *recovery,
		      const char *state)
{
	char step[CLI_FIELD_SIZE], detail[CLI_FIELD_SIZE];
	int r = cli->json ? cli_print_json(recovery) : EXIT_STATUS_OK;

	if (strcmp(state, "done") == 0) {
		if (!cli->json)
			printf("%s is back: its VFs are free and their health records cleared\n",
			       card);
		return r == EXIT_STATUS_OK ? cli_print("") : r;
	}
	return cli_error(EXIT_STATUS_ERROR,
			 "%s: recovery %s at step %s: %s; the card stays cordoned", card, state,
			 cli_field(recovery, "step", step, sizeof step),
			 cli_field(recovery, "detail", detail, sizeof detail));
}

/* The steps are the result; what goes on in one is only for who looks on. */
static void say_step(const struct cli *cli, const char *card, const char *step,
		     struct progress *progress)
{
	if (!cli->json) {
		printf("%s: %s\n", card, step);
		fflush(stdout);
	}
	progress_begin(progress, "%s: %s", card, step);
}

/* Follows the card until the recovery has ended. */
static int follow(struct cli *cli, const char *card, const char *path)
{
	char step[CLI_FIELD_SIZE], state[CLI_FIELD_SIZE], last[CLI_FIELD_SIZE] = "";
	struct progress progress;

	progress_begin(&progress, "%s", card);
	cli->progress = &progress;
	for (;;) {
		_reply_ struct cli_reply reply = { 0 };
		const json_t *recovery;
		int r = cli_call(cli, "GET", path, NULL, CLI_READ_TIMEOUT_USEC, &reply);

		if (r != 0)
			return r;
		recovery = json_object_get(reply.json, "recovery");
		cli_field(recovery, "state", state, sizeof state);
		cli_field(recovery, "step", step, sizeof step);
		if (strcmp(step, last) != 0 || strcmp(state, "running") != 0)
			progress_clear(&progress);
		if (strcmp(state, "running") != 0)
			return report_end(cli, card, recovery, state);
		if (strcmp(step, last) != 0)
			say_step(cli, card, step, &progress);
		memcpy(last, step, sizeof last);
		progress_tick(&progress);
		wait_a_little();
	}
}

int cli_recover_card(struct cli *cli, const char *card)
{
	_reply_ struct cli_reply reply = { 0 };
	char path[CLI_FIELD_SIZE];
	int r;

	r = cli_make_path(cli, "/gpus/", card, "/recover", path, sizeof path);
	if (r == 0)
		r = cli_call(cli, "POST", path, NULL, CLI_WRITE_TIMEOUT_USEC, &reply);
	if (r == 0)
		r = cli_make_path(cli, "/gpus/", card, "", path, sizeof path);
	return r == 0 ? follow(cli, card, path) : r;
}
