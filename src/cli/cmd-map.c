/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/map-text.h"
#include "cli/map-watch.h"

enum { OPT_WATCH = CLI_OPT_OWN };

static int run_once(const struct cli *cli)
{
	struct terminal terminal = terminal_probe();
	_reply_ struct cli_reply reply = { 0 };
	_buf_ struct buf out = BUF_INIT;
	int r = cli_call(cli, "GET", "/gpus", NULL, CLI_READ_TIMEOUT_USEC, &reply);

	if (r != 0)
		return r;
	if (cli->json)
		return cli_print_json(reply.json);
	if (map_text(cli_field_array(reply.json, "gpus"), &terminal, &out) < 0)
		return cli_error(EXIT_STATUS_ERROR, "out of memory");
	return cli_print(out.data);
}

static int run_map(struct cli *cli, int argc, char **argv)
{
	static const struct option options[] = {
		CLI_COMMON_OPTIONS,
		{ "watch", no_argument, NULL, OPT_WATCH },
		{ 0 },
	};
	bool watch = false;
	int opt, r = CLI_GO_ON;

	while (r == CLI_GO_ON && (opt = getopt_long(argc, argv, "hw", options, NULL)) != -1) {
		if (opt == OPT_WATCH || opt == 'w')
			watch = true;
		else
			r = cli_common_option(cli, opt);
	}
	if (r == CLI_GO_ON)
		r = cli_check_args(cli, argc, 0, 0);
	if (r != CLI_GO_ON)
		return r;
	return watch ? map_watch(cli) : run_once(cli);
}

const struct cli_command cli_map = {
	.name = "map",
	.args = "[--watch]",
	.summary = "Draw each card: where the vGPUs lie and where the holes are",
	.help = "One column is one unit of the card's framebuffer (several columns on a wide "
		"terminal).\n"
		"A block is a vGPU, with the letter it has in the list below; dots are free. A "
		"vGPU needs\n"
		"a hole of its size at a place that the driver allows, so the number of free units "
		"alone\n"
		"does not say what fits. Colours: only on a terminal, and not with NO_COLOR.\n"
		"\n"
		"Options:\n"
		"  -w, --watch    stay, and draw the map anew whenever something changes, until\n"
		"                 Ctrl-C; where the output is no terminal, print each new map;\n"
		"                 with --json, one line each\n"
		"\n"
		"Examples:\n"
		"  berth map\n"
		"  berth map --watch\n"
		"  berth map --watch --json | jq -r '.gpus[] | .address + \" \" + .mode'\n"
		"  COLUMNS=120 berth map --color=always | less -R\n",
	.run = run_map,
};
