/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `berth complete KIND`: words for a shell's completion, one a line, with a tab and a description.
 *
 * Somebody waits at a prompt: it is quick, silent about every error, and always successful.
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "client/http-client.h"
#include "model/profile.h"

#define PATIENCE_USEC USEC_PER_SEC

/* NULL when there is no answer, for whatever reason. */
static json_t *ask(const struct cli *cli, const char *path)
{
	_answer_ struct http_answer answer = { 0 };

	if (http_client_request(cli->socket, "GET", path, NULL, PATIENCE_USEC, &answer, NULL) < 0 ||
	    answer.status != 200)
		return NULL;
	return json_loadb(answer.body, answer.len, JSON_REJECT_DUPLICATES, NULL);
}

/* A shell may act on anything else, as may a program on a word that begins like an option. */
static bool is_plain(const char *word)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789._:+-";

	return *word && *word != '-' && word[strspn(word, plain)] == '\0';
}

static void add_word(struct buf *out, const char *word, const char *description)
{
	if (is_plain(word))
		buf_printf(out, "%s\t%s\n", word, description);
}

static void add_profiles(const json_t *answer, struct buf *out)
{
	const json_t *profile;
	size_t i;

	json_array_foreach(cli_field_array(json_object_get(answer, "gpu"), "profiles"), i,
			   profile) {
		char name[CLI_FIELD_SIZE], text[64], n[CLI_FIELD_SIZE];

		cli_field(profile, "name", name, sizeof name);
		snprintf(text, sizeof text, "%.20s fit",
			 cli_field(profile, "available", n, sizeof n));
		add_word(out, profile_name_short(name), text);
	}
}

/* Two fields of each item of a list. */
static void add_list(const json_t *answer, const char *list, const char *word,
		     const char *description, struct buf *out)
{
	const json_t *item;
	size_t i;

	json_array_foreach(cli_field_array(answer, list), i, item) {
		char word_text[CLI_FIELD_SIZE], description_text[CLI_FIELD_SIZE];

		add_word(out, cli_field(item, word, word_text, sizeof word_text),
			 cli_field(item, description, description_text, sizeof description_text));
	}
}

static void add_claims(const json_t *answer, struct buf *out)
{
	add_list(answer, "claims", "name", "profile", out);
}

static void add_gpus(const json_t *answer, struct buf *out)
{
	add_list(answer, "gpus", "address", "name", out);
}

static void add_vfs(const json_t *answer, struct buf *out)
{
	const json_t *vf;
	size_t i;

	json_array_foreach(cli_field_array(answer, "vfs"), i, vf) {
		char address[CLI_FIELD_SIZE], state[CLI_FIELD_SIZE];

		add_word(out, cli_field(vf, "address", address, sizeof address),
			 cli_field_is_set(vf, "quarantined")
				 ? "quarantined"
				 : cli_field(vf, "state", state, sizeof state));
	}
}

static int run_complete(struct cli *cli, int argc, char **argv)
{
	static const struct {
		const char *kind, *path;
		void (*add)(const json_t *answer, struct buf *out);
	} kinds[] = {
		{ "profiles", "/resources", add_profiles },
		{ "claims", "/claims", add_claims },
		{ "gpus", "/gpus", add_gpus },
		{ "vfs", "/vfs", add_vfs },
	};
	int r = cli_parse(cli, argc, argv, 1, 1);

	if (r != CLI_GO_ON)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		_buf_ struct buf out = BUF_INIT;
		json_t *answer;

		if (strcmp(argv[optind], kinds[i].kind) != 0)
			continue;
		answer = ask(cli, kinds[i].path);
		kinds[i].add(answer, &out);
		json_decref(answer);
		if (out.len > 0 && buf_finish(&out) == 0)
			fputs(out.data, stdout);
	}
	return EXIT_STATUS_OK;
}

const struct cli_command cli_complete = {
	.name = "complete",
	.args = "profiles|claims|gpus|vfs",
	.summary = "Words for a shell's completion",
	.help = "One a line, with a tab and a description. Prints nothing when the daemon does "
		"not\n"
		"answer, and is always successful.\n"
		"\n"
		"Examples:\n"
		"  berth complete profiles\n"
		"  berth complete claims | cut -f1\n",
	.hidden = true,
	.run = run_complete,
};
