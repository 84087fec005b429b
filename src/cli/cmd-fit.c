/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/table.h"

enum { OPT_MAX_OF = CLI_OPT_OWN };

/* "L40S-4Q=3" into the object of counts. */
static int add_count(const struct cli *cli, json_t *profiles, const char *arg)
{
	const char *equals = strrchr(arg, '=');
	_free_ char *name = NULL;
	uint32_t count;

	if (!equals || equals == arg || str_to_u32(equals + 1, &count) < 0)
		return cli_usage_error(cli, "\"%s\" is not PROFILE=N", arg);
	name = strndup(arg, (size_t)(equals - arg));
	if (!name)
		return cli_error(EXIT_STATUS_ERROR, "out of memory");
	if (json_object_get(profiles, name))
		return cli_usage_error(cli, "%s is named twice", name);
	json_object_set_new(profiles, name, json_integer(count));
	return CLI_GO_ON;
}

static int print_plan(struct buf *out, const json_t *plan)
{
	static const char *const heads[] = { "PROFILE", "GPU", ">PLACEMENT", ">SIZE" };
	char text[CLI_FIELD_SIZE];
	_table_ struct table t;
	const json_t *step;
	size_t i;

	table_init(&t, heads, ARRAY_SIZE(heads));
	json_array_foreach(plan, i, step) {
		const json_t *placement = json_object_get(step, "placement");

		table_add(&t, cli_field(step, "profile", text, sizeof text));
		table_add(&t, cli_field(step, "gpu", text, sizeof text));
		table_add(&t, cli_field(placement, "id", text, sizeof text));
		table_add(&t, cli_field(placement, "size", text, sizeof text));
	}
	return table_render(&t, out);
}

static void print_max(struct buf *out, const json_t *max)
{
	char text[CLI_FIELD_SIZE];

	if (!json_is_object(max))
		return;
	buf_printf(out, "%s%lld more of %s would fit beside that\n",
		   json_is_true(json_object_get(max, "exact")) ? "" : "at least ",
		   (long long)cli_field_int(max, "more", 0),
		   cli_field(max, "profile", text, sizeof text));
}

static int print_answer(const json_t *json, bool *ret_fits)
{
	_buf_ struct buf out = BUF_INIT;
	const json_t *fits = json_object_get(json, "fits"), *count;
	const json_t *lower = json_object_get(json, "lower_bound");
	const char *name;

	*ret_fits = json_is_true(fits);
	buf_add_str(&out, json_is_true(fits)	? "fits\n"
			  : json_is_false(fits) ? "does not fit\n"
						: "not decided within the time limit\n");
	if (json_is_true(fits)) {
		if (json_array_size(json_object_get(json, "plan")) > 0 &&
		    print_plan(&out, json_object_get(json, "plan")) < 0)
			return cli_error(EXIT_STATUS_ERROR, "out of memory");
	} else {
		buf_add_str(&out, "together there is room for at least:\n");
		json_object_foreach((json_t *)lower, name, count)
			buf_printf(&out, "  %lld x %s\n", (long long)json_integer_value(count),
				   name);
	}
	print_max(&out, json_object_get(json, "max"));
	if (json_array_size(json_object_get(json, "ignored")) > 0)
		buf_add_str(
			&out,
			"cards whose placements are not known were left out (see berth gpus)\n");
	if (buf_finish(&out) < 0)
		return cli_error(EXIT_STATUS_ERROR, "out of memory");
	return cli_print(out.data);
}

static int ask(const struct cli *cli, const json_t *body)
{
	_reply_ struct cli_reply reply = { 0 };
	bool fits = false;
	int r;

	r = cli_call(cli, "POST", "/fit", body, CLI_READ_TIMEOUT_USEC, &reply);
	if (r != 0)
		return r;
	fits = json_is_true(json_object_get(reply.json, "fits"));
	r = cli->json ? cli_print_json(reply.json) : print_answer(reply.json, &fits);
	return r == EXIT_STATUS_OK && !fits ? EXIT_STATUS_INSUFFICIENT : r;
}

static int run_fit(struct cli *cli, int argc, char **argv)
{
	static const struct option options[] = {
		CLI_COMMON_OPTIONS,
		{ "max-of", required_argument, NULL, OPT_MAX_OF },
		{ 0 },
	};
	json_t *body = json_pack("{s:{}}", "profiles");
	json_t *profiles = json_object_get(body, "profiles");
	int opt, r = CLI_GO_ON;

	if (!body)
		return cli_error(EXIT_STATUS_ERROR, "out of memory");
	while (r == CLI_GO_ON && (opt = getopt_long(argc, argv, "h", options, NULL)) >= 0) {
		if (opt == OPT_MAX_OF)
			json_object_set_new(body, "max_of", json_string(optarg));
		else
			r = cli_common_option(cli, opt);
	}
	for (int i = optind; r == CLI_GO_ON && i < argc; i++)
		r = add_count(cli, profiles, argv[i]);
	if (r == CLI_GO_ON && json_object_size(profiles) == 0 && !json_object_get(body, "max_of"))
		r = cli_usage_error(cli, "at least one PROFILE=N is needed");
	if (r == CLI_GO_ON)
		r = ask(cli, body);
	json_decref(body);
	return r;
}

const struct cli_command cli_fit = {
	.name = "fit",
	.args = "PROFILE=N... [--max-of PROFILE]",
	.summary = "Say whether these vGPUs would fit together, now, and where",
	.help = "The counts of 'berth resources' do not add up: each is what would fit of that\n"
		"profile alone. This asks for several together and is exact.\n"
		"\n"
		"  --max-of PROFILE   also say how many more of PROFILE would fit beside them\n"
		"\n"
		"Exit status 3 when they do not fit, or when that was not decided in time.\n"
		"\n"
		"Examples:\n"
		"  berth fit L40S-4Q=3 L40S-24Q=1\n"
		"  berth fit L40S-24Q=1 --max-of L40S-2Q\n",
	.run = run_fit,
};
