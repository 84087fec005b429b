/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/terminal.h"
#include "client/http-client.h"

void cli_reply_done(struct cli_reply *reply)
{
	json_decref(reply->json);
	reply->json = NULL;
}

int cli_make_path(const struct cli *cli, const char *prefix, const char *segment,
		  const char *suffix, char *ret, size_t size)
{
	char encoded[3 * 255 + 1];

	/* "." and ".." would be taken for folders on the way. */
	if (!*segment || strcmp(segment, ".") == 0 || strcmp(segment, "..") == 0)
		return cli_usage_error(cli, "\"%s\" is no name", segment);
	if (strlen(segment) > 255 || http_client_encode(segment, encoded, sizeof(encoded)) < 0 ||
	    snprintf(ret, size, "%s%s%s", prefix, encoded, suffix) >= (int)size)
		return cli_usage_error(cli, "the name is too long");
	return 0;
}

/* A refusal may say card by card why: an array of objects with a reason each. */
static void print_reasons(const json_t *problem)
{
	const json_t *member, *row;
	const char *key;
	size_t i;

	json_object_foreach((json_t *)problem, key, member) {
		json_array_foreach(member, i, row) {
			char card[CLI_FIELD_SIZE], reason[CLI_FIELD_SIZE];
			bool has_gpu = cli_field_is_set(row, "gpu");

			if (!json_is_object(row) || !cli_field_is_set(row, "reason"))
				continue;
			fprintf(stderr, "  %s: %s\n",
				cli_field(row, has_gpu ? "gpu" : "address", card, sizeof(card)),
				cli_field(row, "reason", reason, sizeof(reason)));
		}
	}
}

static int explain_problem(const struct cli *cli, int status, const json_t *problem)
{
	const json_t *code = json_object_get(problem, "code");
	const struct outcome *outcome = json_is_string(code)
						? outcome_by_name(json_string_value(code))
						: NULL;
	char text[CLI_FIELD_SIZE];

	if (cli_field_is_set(problem, "detail"))
		cli_field(problem, "detail", text, sizeof(text));
	else if (cli_field_is_set(problem, "title"))
		cli_field(problem, "title", text, sizeof(text));
	else
		snprintf(text, sizeof(text), "the daemon answered with status %d", status);
	cli_error(EXIT_STATUS_ERROR, "%s", text);
	print_reasons(problem);
	if (cli->json && problem)
		(void)cli_print_json(problem);
	/* A code that we do not know is an error like any other. */
	if (!outcome || outcome->exit_status == EXIT_STATUS_OK)
		return EXIT_STATUS_ERROR;
	return outcome->exit_status;
}

static int call(const struct cli *cli, const char *method, const char *path, const json_t *body,
		uint64_t timeout_usec, bool may_miss, struct cli_reply *ret)
{
	_answer_ struct http_answer answer = { 0 };
	struct error err = ERROR_INIT;
	json_t *json = NULL;
	const struct http_tick tick = { progress_tick, cli->progress, -1 };
	int r = http_client_request_ticking(cli->socket, method, path, body, timeout_usec,
					    cli->progress ? &tick : NULL, &answer, &err);

	/* Where it goes well the caller does this, who may go on waiting. */
	if (cli->progress && (r < 0 || answer.status >= 300))
		progress_clear(cli->progress);
	if (r < 0)
		return cli_error(outcome_of(r)->exit_status, "%s", error_text(&err));
	if (answer.len > 0) {
		json = json_loadb(answer.body, answer.len, JSON_REJECT_DUPLICATES, NULL);
		if (!json || !json_is_object(json)) {
			json_decref(json);
			return cli_error(EXIT_STATUS_ERROR,
					 "the daemon's answer (status %d) is no JSON object",
					 answer.status);
		}
	}
	if (answer.status >= 200 && answer.status < 300) {
		*ret = (struct cli_reply){ .status = answer.status, .json = json };
		return 0;
	}
	if (may_miss && answer.status == 404) {
		json_decref(json);
		*ret = (struct cli_reply){ .status = answer.status };
		return 0;
	}
	r = explain_problem(cli, answer.status, json);
	json_decref(json);
	return r;
}

int cli_call(const struct cli *cli, const char *method, const char *path, const json_t *body,
	     uint64_t timeout_usec, struct cli_reply *ret)
{
	return call(cli, method, path, body, timeout_usec, false, ret);
}

int cli_call_may_miss(const struct cli *cli, const char *method, const char *path,
		      uint64_t timeout_usec, struct cli_reply *ret)
{
	return call(cli, method, path, NULL, timeout_usec, true, ret);
}
