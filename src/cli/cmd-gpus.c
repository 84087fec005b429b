/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cli/cli.h"
#include "cli/table.h"

/* What keeps a card from being used as it should, in a few words. */
static void add_state(struct table *t, const json_t *gpu)
{
	char reason[CLI_FIELD_SIZE];
	_buf_ struct buf b = BUF_INIT;

	if (cli_field_is_set(gpu, "stuck"))
		buf_add_str(&b, ", stuck");
	if (cli_field_is_set(gpu, "cordoned"))
		buf_add_str(&b, ", cordoned");
	if (cli_field_is_set(gpu, "fallback"))
		buf_printf(&b, ", fallback: %s",
			   cli_field(gpu, "fallback", reason, sizeof(reason)));
	table_add(t, b.len > 0 ? b.data + 2 : "ok");
}

static int print_gpus(struct buf *out, const json_t *gpus)
{
	static const char *const heads[] = { "GPU",	     "NAME",   ">NUMA",	 "MODE",
					     "DRIVER",	     "SOURCE", ">SLOTS", ">ALLOCATABLE",
					     ">QUARANTINED", "STATE" };
	static const char *const plain[] = { "address", "name",	  "numa_node",
					     "mode",	"driver", "source" };
	char a[CLI_FIELD_SIZE], b[CLI_FIELD_SIZE];
	_table_ struct table t = { 0 };
	const json_t *gpu;
	size_t i;

	if (json_array_size(gpus) == 0) {
		buf_add_str(out, "there are no vGPU cards on this host\n");
		return 0;
	}
	table_init(&t, heads, ARRAY_SIZE(heads));
	json_array_foreach(gpus, i, gpu) {
		const json_t *slots = json_object_get(gpu, "slots");

		for (size_t k = 0; k < ARRAY_SIZE(plain); k++)
			table_add(&t, cli_field(gpu, plain[k], a, sizeof(a)));
		table_addf(&t, "%s/%s", cli_field(slots, "used", a, sizeof(a)),
			   cli_field(slots, "total", b, sizeof(b)));
		table_add(&t, cli_field(slots, "allocatable", a, sizeof(a)));
		table_add(&t, cli_field(slots, "quarantined", a, sizeof(a)));
		add_state(&t, gpu);
	}
	return table_render(&t, out);
}

static int run_gpus(struct cli *cli, int argc, char **argv)
{
	_reply_ struct cli_reply reply = { 0 };
	_buf_ struct buf out = BUF_INIT;
	int r = cli_parse(cli, argc, argv, 0, 0);

	if (r != CLI_GO_ON)
		return r;
	r = cli_call(cli, "GET", "/gpus", NULL, CLI_READ_TIMEOUT_USEC, &reply);
	if (r != 0)
		return r;
	if (cli->json)
		return cli_print_json(reply.json);
	if (print_gpus(&out, cli_field_array(reply.json, "gpus")) < 0 || buf_finish(&out) < 0)
		return cli_error(EXIT_STATUS_ERROR, "out of memory");
	return cli_print(out.data);
}

const struct cli_command cli_gpus = {
	.name = "gpus",
	.args = "",
	.summary = "List the cards, with mode, slots and state",
	.help = "SLOTS is used/total virtual functions. STATE says why a card is not used in "
		"full:\n"
		"  stuck     its driver hangs in a call; nothing can be claimed on it\n"
		"  cordoned  kept free by 'berth gpu cordon'\n"
		"  fallback  NVML has no placements for it; the driver's own lists are used\n"
		"\n"
		"Examples:\n"
		"  berth gpus\n"
		"  berth gpus --json | jq -r '.gpus[].address'\n",
	.run = run_gpus,
};

static int run_gpu(struct cli *cli, int argc, char **argv)
{
	_reply_ struct cli_reply reply = { 0 };
	const char *verb, *card;
	char path[1024];
	bool cordon;
	int r = cli_parse(cli, argc, argv, 2, 2);

	if (r != CLI_GO_ON)
		return r;
	verb = argv[optind];
	card = argv[optind + 1];
	if (strcmp(verb, "recover") == 0)
		return cli_recover_card(cli, card);
	cordon = strcmp(verb, "cordon") == 0;
	if (!cordon && strcmp(verb, "uncordon") != 0)
		return cli_usage_error(cli, "\"%s\" is neither cordon, uncordon nor recover", verb);
	r = cli_make_path(cli, "/gpus/", card, "/cordon", path, sizeof(path));
	if (r == 0)
		r = cli_call(cli, cordon ? "PUT" : "DELETE", path, NULL, CLI_WRITE_TIMEOUT_USEC,
			     &reply);
	if (r != 0)
		return r;
	if (cli->json)
		return cli_print_json(reply.json);
	printf(cordon ? "%s is cordoned: no new claim goes there, what runs goes on\n"
		      : "%s takes claims again\n",
	       card);
	return cli_print("");
}

const struct cli_command cli_gpu = {
	.name = "gpu",
	.args = "cordon|uncordon|recover BDF",
	.summary = "Keep new claims away from a card, or bring one back with an SR-IOV cycle",
	.help = "BDF is the card's PCI address, as 'berth gpus' shows it.\n"
		"\n"
		"recover needs the whole card: no claim, no open VF. It stops what holds the card\n"
		"(recover.services_stop), cycles SR-IOV, turns mixed-size mode on again if it was "
		"on,\n"
		"starts the services and clears the card's health records. A step that fails ends "
		"it:\n"
		"the card stays cordoned. Root only; 'cordon' first lets the card drain.\n"
		"\n"
		"Examples:\n"
		"  berth gpu cordon 0000:41:00.0\n"
		"  berth gpu uncordon 0000:41:00.0\n"
		"  berth gpu recover 0000:41:00.0\n",
	.run = run_gpu,
};
