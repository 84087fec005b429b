/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/table.h"

/* A fallback is a word, or an object that says which card and why. */
static void print_fallback(struct buf *out, const json_t *fallback)
{
	static const char *const keys[] = { "gpu", "address", "reason", "detail", "error" };
	char text[CLI_FIELD_SIZE];
	const char *separator = "";

	buf_add_str(out, "fallback    ");
	if (json_is_string(fallback)) {
		json_t *holder = json_pack("{s:O}", "text", (json_t *)fallback);

		buf_add_str(out, cli_field(holder, "text", text, sizeof(text)));
		json_decref(holder);
	}
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		if (!cli_field_is_set(fallback, keys[i]))
			continue;
		buf_printf(out, "%s%s", separator,
			   cli_field(fallback, keys[i], text, sizeof(text)));
		separator = ": ";
	}
	buf_add_char(out, '\n');
}

static void print_head(struct buf *out, const json_t *gpu)
{
	char a[CLI_FIELD_SIZE], b[CLI_FIELD_SIZE], c[CLI_FIELD_SIZE], d[CLI_FIELD_SIZE];
	const json_t *fallback;
	json_int_t age;
	size_t i;

	buf_printf(out, "mode        %s", cli_field(gpu, "mode", a, sizeof(a)));
	if (cli_field_is_set(gpu, "framework"))
		buf_printf(out, " (%s)", cli_field(gpu, "framework", a, sizeof(a)));
	buf_add_char(out, '\n');
	if (cli_field_is_set(gpu, "total_slots"))
		buf_printf(out, "slots       %s total, %s used, %s allocatable, %s quarantined\n",
			   cli_field(gpu, "total_slots", a, sizeof(a)),
			   cli_field(gpu, "used_slots", b, sizeof(b)),
			   cli_field(gpu, "allocatable_slots", c, sizeof(c)),
			   cli_field(gpu, "quarantined_slots", d, sizeof(d)));
	age = cli_field_int(gpu, "placements_age_ms", -1);
	if (age >= 0)
		buf_printf(out, "placements  as of %lld.%lld s ago\n", (long long)age / 1000,
			   (long long)age % 1000 / 100);
	json_array_foreach(cli_field_array(gpu, "fallbacks"), i, fallback)
		print_fallback(out, fallback);
}

static int print_profiles(struct buf *out, const json_t *profiles)
{
	static const char *const heads[] = { "PROFILE", ">MEMORY", ">AVAILABLE" };
	char name[CLI_FIELD_SIZE], available[CLI_FIELD_SIZE], memory[CLI_FIELD_SIZE];
	_table_ struct table t = { 0 };
	const json_t *row;
	size_t i;

	if (json_array_size(profiles) == 0)
		return 0;
	table_init(&t, heads, ARRAY_SIZE(heads));
	json_array_foreach(profiles, i, row) {
		table_add(&t, cli_field(row, "name", name, sizeof(name)));
		table_addf(&t, "%s MB", cli_field(row, "framebuffer_mb", memory, sizeof(memory)));
		table_add(&t, cli_field(row, "available", available, sizeof(available)));
	}
	buf_add_char(out, '\n');
	return table_render(&t, out);
}

static int print_devices(struct buf *out, const json_t *devices)
{
	static const char *const heads[] = { "ADDRESS", "NAME", "AVAILABLE" };
	char text[CLI_FIELD_SIZE];
	_table_ struct table t = { 0 };
	const json_t *row;
	size_t i;

	if (json_array_size(devices) == 0)
		return 0;
	table_init(&t, heads, ARRAY_SIZE(heads));
	json_array_foreach(devices, i, row) {
		table_add(&t, cli_field(row, "address", text, sizeof(text)));
		table_add(&t, cli_field(row, "name", text, sizeof(text)));
		table_add(&t, cli_field(row, "available", text, sizeof(text)));
	}
	buf_add_char(out, '\n');
	return table_render(&t, out);
}

static int run_resources(struct cli *cli, int argc, char **argv)
{
	_reply_ struct cli_reply reply = { 0 };
	_buf_ struct buf out = BUF_INIT;
	const json_t *gpu;
	int r = cli_parse(cli, argc, argv, 0, 0);

	if (r != CLI_GO_ON)
		return r;
	r = cli_call(cli, "GET", "/resources", NULL, CLI_READ_TIMEOUT_USEC, &reply);
	if (r != 0)
		return r;
	if (cli->json)
		return cli_print_json(reply.json);
	gpu = json_object_get(reply.json, "gpu");
	print_head(&out, gpu);
	if (print_profiles(&out, cli_field_array(gpu, "profiles")) < 0 ||
	    print_devices(&out, cli_field_array(gpu, "devices")) < 0 || buf_finish(&out) < 0)
		return cli_error(EXIT_STATUS_ERROR, "out of memory");
	return cli_print(out.data);
}

const struct cli_command cli_resources = {
	.name = "resources",
	.args = "",
	.summary = "Show what can still be claimed on this host, by profile",
	.help = "AVAILABLE is how many more vGPUs of that profile fit now. The numbers exclude "
		"each\n"
		"other: a claim of one profile takes room from the others.\n"
		"\n"
		"Examples:\n"
		"  berth resources\n"
		"  berth resources --json | jq '.gpu.allocatable_slots'\n",
	.run = run_resources,
};
