/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/table.h"

static int print_vfs(struct buf *out, const json_t *vfs)
{
	static const char *const heads[] = { "VF",    "GPU",	"STATE",	 "PROFILE",
					     "CLAIM", "HEALTH", "WHY NOT USABLE" };
	char text[CLI_FIELD_SIZE];
	_table_ struct table t;
	const json_t *vf;
	size_t i;

	table_init(&t, heads, ARRAY_SIZE(heads));
	json_array_foreach(vfs, i, vf) {
		table_add(&t, cli_field(vf, "address", text, sizeof text));
		table_add(&t, cli_field(vf, "gpu", text, sizeof text));
		table_add(&t, cli_field(vf, "state", text, sizeof text));
		table_add(&t, cli_field(vf, "profile", text, sizeof text));
		table_add(&t, cli_field(vf, "claim", text, sizeof text));
		if (cli_field_is_set(vf, "quarantined"))
			table_add(&t, "quarantined");
		else if (json_array_size(json_object_get(vf, "failures")) > 0)
			table_addf(&t, "%zu failed",
				   json_array_size(json_object_get(vf, "failures")));
		else
			table_add(&t, "ok");
		table_add(&t, cli_field_is_set(vf, "reason")
				      ? cli_field(vf, "reason", text, sizeof text)
				      : "");
	}
	return table_render(&t, out);
}

static int list_vfs(struct cli *cli)
{
	_reply_ struct cli_reply reply = { 0 };
	_buf_ struct buf out = BUF_INIT;
	int r;

	r = cli_call(cli, "GET", "/vfs", NULL, CLI_READ_TIMEOUT_USEC, &reply);
	if (r != 0)
		return r;
	if (cli->json)
		return cli_print_json(reply.json);
	if (print_vfs(&out, cli_field_array(reply.json, "vfs")) < 0 || buf_finish(&out) < 0)
		return cli_error(EXIT_STATUS_ERROR, "out of memory");
	return cli_print(out.data ? out.data : "");
}

static int change_vf(struct cli *cli, const char *vf, bool quarantine)
{
	_reply_ struct cli_reply reply = { 0 };
	char path[CLI_FIELD_SIZE];
	int r;

	r = cli_make_path(cli, "/vfs/", vf, "/quarantine", path, sizeof path);
	if (r == 0)
		r = cli_call(cli, quarantine ? "PUT" : "DELETE", path, NULL, CLI_WRITE_TIMEOUT_USEC,
			     &reply);
	if (r != 0)
		return r;
	if (cli->json)
		return cli_print_json(reply.json);
	printf(quarantine ? "%s is quarantined: nothing is placed on it\n"
			  : "%s has a clean record and may be used again\n",
	       vf);
	return cli_print("");
}

static int run_vf(struct cli *cli, int argc, char **argv)
{
	int r = cli_parse(cli, argc, argv, 1, 2);
	const char *verb;

	if (r != CLI_GO_ON)
		return r;
	verb = argv[optind];
	if (strcmp(verb, "list") == 0)
		return argc - optind == 1 ? list_vfs(cli)
					  : cli_usage_error(cli, "list takes no argument");
	if (strcmp(verb, "quarantine") != 0 && strcmp(verb, "clear") != 0)
		return cli_usage_error(cli, "\"%s\" is neither list, quarantine nor clear", verb);
	if (argc - optind != 2)
		return cli_usage_error(cli, "%s takes the address of one VF", verb);
	return change_vf(cli, argv[optind + 1], strcmp(verb, "quarantine") == 0);
}

const struct cli_command cli_vf = {
	.name = "vf",
	.args = "list | quarantine VF | clear VF",
	.summary = "Show the VFs; take one out of use, or clear its record",
	.help = "A VF on which the guest driver's init failed in several assignments is "
		"quarantined:\n"
		"nothing is placed on it until its card was recovered ('berth gpu recover', which\n"
		"clears the records itself) or a person clears it. Root only.\n"
		"\n"
		"Examples:\n"
		"  berth vf list\n"
		"  berth vf quarantine 0000:41:00.4\n"
		"  berth vf clear 0000:41:00.4\n",
	.run = run_vf,
};
