/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/table.h"

static void add_claim(struct table *t, const json_t *claim)
{
	const json_t *placement = json_object_get(claim, "placement");
	char a[CLI_FIELD_SIZE], b[CLI_FIELD_SIZE];

	table_add(t, cli_field(claim, "name", a, sizeof(a)));
	if (cli_field_is_set(claim, "problem"))
		table_addf(t, "%s (%s)", cli_field(claim, "state", a, sizeof(a)),
			   cli_field(claim, "problem", b, sizeof(b)));
	else
		table_add(t, cli_field(claim, "state", a, sizeof(a)));
	table_add(t, cli_field(claim, "profile", a, sizeof(a)));
	table_add(t, cli_field(claim, "vf", a, sizeof(a)));
	table_add(t, cli_field(claim, "gpu", a, sizeof(a)));
	table_add(t, cli_field(placement, "id", a, sizeof(a)));
	/* A time stamp with nanoseconds is for machines. */
	cli_field(claim, "assigned_at", a, sizeof(a));
	table_addf(t, "%.19s", a);
	table_add(t, cli_field(claim, "owner", a, sizeof(a)));
}

static int print_claims(struct buf *out, const json_t *claims)
{
	static const char *const heads[] = { "NAME", "STATE",	   "PROFILE",	  "VF",
					     "GPU",  ">PLACEMENT", "SINCE (UTC)", "OWNER" };
	_table_ struct table t = { 0 };
	const json_t *claim;
	size_t i;

	if (json_array_size(claims) == 0) {
		buf_add_str(out, "there are no claims\n");
		return 0;
	}
	table_init(&t, heads, ARRAY_SIZE(heads));
	json_array_foreach(claims, i, claim)
		add_claim(&t, claim);
	return table_render(&t, out);
}

static int run_claims(struct cli *cli, int argc, char **argv)
{
	_reply_ struct cli_reply reply = { 0 };
	_buf_ struct buf out = BUF_INIT;
	int r = cli_parse(cli, argc, argv, 0, 0);

	if (r != CLI_GO_ON)
		return r;
	r = cli_call(cli, "GET", "/claims", NULL, CLI_READ_TIMEOUT_USEC, &reply);
	if (r != 0)
		return r;
	if (cli->json)
		return cli_print_json(reply.json);
	if (print_claims(&out, cli_field_array(reply.json, "claims")) < 0 || buf_finish(&out) < 0)
		return cli_error(EXIT_STATUS_ERROR, "out of memory");
	return cli_print(out.data);
}

const struct cli_command cli_claims = {
	.name = "claims",
	.args = "",
	.summary = "List the claims",
	.help = "A claim is bound, releasing, or external (a virtual function that was found "
		"configured\n"
		"when berthd first started). In brackets: what is wrong with it.\n"
		"\n"
		"Examples:\n"
		"  berth claims\n"
		"  berth claims --json | jq -r '.claims[] | [.name, .vf] | @tsv'\n",
	.run = run_claims,
};
