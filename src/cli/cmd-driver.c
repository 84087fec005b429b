/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cli/cli.h"

static int run_driver(struct cli *cli, int argc, char **argv)
{
	_reply_ struct cli_reply reply = { 0 };
	const char *verb;
	bool release;
	int r = cli_parse(cli, argc, argv, 1, 1);

	if (r != CLI_GO_ON)
		return r;
	verb = argv[optind];
	release = strcmp(verb, "release") == 0;
	if (!release && strcmp(verb, "resume") != 0)
		return cli_usage_error(cli, "\"%s\" is neither release nor resume", verb);
	r = cli_call(cli, "POST", release ? "/driver/release" : "/driver/resume", NULL,
		     CLI_WRITE_TIMEOUT_USEC, &reply);
	if (r != 0)
		return r;
	if (cli->json)
		return cli_print_json(reply.json);
	return cli_print(release ? "released: berthd holds no /dev/nvidia* open until 'berth "
				   "driver resume'\n"
				 : "resumed: berthd asks NVML again\n");
}

const struct cli_command cli_driver = {
	.name = "driver",
	.args = "release|resume",
	.summary = "Have berthd let go of /dev/nvidia*, or take it up again",
	.help = "For an SR-IOV cycle or a driver update, which need the devices closed. Meanwhile "
		"the\n"
		"capacity comes from the driver's own lists; claims and running VMs are not "
		"touched.\n"
		"\n"
		"Examples:\n"
		"  berth driver release\n"
		"  berth driver resume\n",
	.run = run_driver,
};
