/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/cli.h"

/* The longest that the daemon lets a claim wait. */
#define WAIT_MAX_USEC (600 * USEC_PER_SEC)

struct claim_options {
	const char *profile;
	const char *gpu;
	const char *owner;
	const char *console_log;
	const char *channel;
	const char *policy;
	int64_t numa_node; /* -1: not given */
	int64_t pid;
	uint64_t wait_usec;
};

enum {
	OPT_GPU = CLI_OPT_OWN,
	OPT_NUMA,
	OPT_OWNER,
	OPT_LOG,
	OPT_CHANNEL,
	OPT_PID,
	OPT_POLICY,
	OPT_WAIT
};

static int number_option(const struct cli *cli, const char *name, int64_t *ret)
{
	uint32_t n;

	if (str_to_u32(optarg, &n) < 0 || n > INT32_MAX)
		return cli_usage_error(cli, "--%s wants a number, not \"%s\"", name, optarg);
	*ret = n;
	return CLI_GO_ON;
}

static int wait_option(const struct cli *cli, uint64_t *ret)
{
	*ret = WAIT_MAX_USEC;
	if (!optarg)
		return CLI_GO_ON;
	if (str_to_usec(optarg, ret) < 0 || *ret > WAIT_MAX_USEC)
		return cli_usage_error(
			cli, "--wait wants a duration of at most 10m such as 30s, not \"%s\"",
			optarg);
	return CLI_GO_ON;
}

static int take_option(struct cli *cli, int opt, struct claim_options *o)
{
	switch (opt) {
	case 'p':
		o->profile = optarg;
		return CLI_GO_ON;
	case OPT_GPU:
		o->gpu = optarg;
		return CLI_GO_ON;
	case OPT_NUMA:
		return number_option(cli, "numa-node", &o->numa_node);
	case OPT_OWNER:
		o->owner = optarg;
		return CLI_GO_ON;
	case OPT_LOG:
		o->console_log = optarg;
		return CLI_GO_ON;
	case OPT_CHANNEL:
		o->channel = optarg;
		return CLI_GO_ON;
	case OPT_PID:
		return number_option(cli, "pid", &o->pid);
	case OPT_POLICY:
		o->policy = optarg;
		return CLI_GO_ON;
	case OPT_WAIT:
		return wait_option(cli, &o->wait_usec);
	default:
		return cli_common_option(cli, opt);
	}
}

static int parse_claim(struct cli *cli, int argc, char **argv, struct claim_options *o)
{
	static const struct option options[] = {
		CLI_COMMON_OPTIONS,
		{ "profile", required_argument, NULL, 'p' },
		{ "gpu", required_argument, NULL, OPT_GPU },
		{ "numa-node", required_argument, NULL, OPT_NUMA },
		{ "owner", required_argument, NULL, OPT_OWNER },
		{ "console-log", required_argument, NULL, OPT_LOG },
		{ "channel", required_argument, NULL, OPT_CHANNEL },
		{ "pid", required_argument, NULL, OPT_PID },
		{ "policy", required_argument, NULL, OPT_POLICY },
		{ "wait", optional_argument, NULL, OPT_WAIT },
		{ 0 },
	};
	int opt, r;

	while ((opt = getopt_long(argc, argv, "hp:", options, NULL)) != -1) {
		r = take_option(cli, opt, o);
		if (r != CLI_GO_ON)
			return r;
	}
	r = cli_check_args(cli, argc, 1, 1);
	if (r == CLI_GO_ON && str_is_empty(o->profile))
		return cli_usage_error(cli,
				       "which profile? (-p PROFILE; 'berth resources' lists them)");
	return r;
}

static int add_text(json_t *body, const char *key, const char *value)
{
	return value ? json_object_set_new(body, key, json_string(value)) : 0;
}

static int add_number(json_t *body, const char *key, int64_t value)
{
	return value >= 0 ? json_object_set_new(body, key, json_integer(value)) : 0;
}

/* NULL: out of memory, or a text is no UTF-8. */
static json_t *claim_body(const struct claim_options *o)
{
	json_t *body = json_object();

	if (!body)
		return NULL;
	if (add_text(body, "profile", o->profile) == 0 && add_text(body, "gpu", o->gpu) == 0 &&
	    add_text(body, "owner", o->owner) == 0 &&
	    add_text(body, "console_log", o->console_log) == 0 &&
	    add_text(body, "channel", o->channel) == 0 &&
	    add_text(body, "policy", o->policy) == 0 &&
	    add_number(body, "numa_node", o->numa_node) == 0 &&
	    add_number(body, "pid", o->pid) == 0 &&
	    add_number(body, "wait_ms",
		       o->wait_usec ? (int64_t)(o->wait_usec / USEC_PER_MSEC) : -1) == 0)
		return body;
	json_decref(body);
	return NULL;
}

static int print_claim(const json_t *claim, bool is_new)
{
	static const struct {
		const char *key;
		const char *label;
	} rows[] = {
		{ "vf", "VF" },
		{ "sysfs_path", "sysfs path" },
		{ "vfio_group", "VFIO group" },
		{ "vfio_device", "VFIO device" },
		{ "iommufd", "iommufd" },
		{ "problem", "problem" },
	};
	const json_t *placement = json_object_get(claim, "placement");
	char a[CLI_FIELD_SIZE], b[CLI_FIELD_SIZE], c[CLI_FIELD_SIZE];
	_buf_ struct buf out = BUF_INIT;

	buf_printf(&out, is_new ? "claimed %s: %s on %s\n" : "%s was claimed before: %s on %s\n",
		   cli_field(claim, "name", a, sizeof(a)),
		   cli_field(claim, "profile", b, sizeof(b)),
		   cli_field(claim, "gpu", c, sizeof(c)));
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (cli_field_is_set(claim, rows[i].key))
			buf_printf(&out, "  %-12s %s\n", rows[i].label,
				   cli_field(claim, rows[i].key, a, sizeof(a)));
	if (cli_field_is_set(placement, "id"))
		buf_printf(&out, "  %-12s %s, size %s\n", "placement",
			   cli_field(placement, "id", a, sizeof(a)),
			   cli_field(placement, "size", b, sizeof(b)));
	if (buf_finish(&out) < 0)
		return cli_error(EXIT_STATUS_ERROR, "out of memory");
	return cli_print(out.data);
}

static int run_claim(struct cli *cli, int argc, char **argv)
{
	struct claim_options o = { .numa_node = -1, .pid = -1 };
	_reply_ struct cli_reply reply = { 0 };
	struct progress progress;
	char path[1024];
	json_t *body;
	int r = parse_claim(cli, argc, argv, &o);

	if (r != CLI_GO_ON)
		return r;
	r = cli_make_path(cli, "/claims/", argv[optind], "", path, sizeof(path));
	if (r != 0)
		return r;
	body = claim_body(&o);
	if (!body)
		return cli_usage_error(cli, "an argument is not valid UTF-8");
	if (o.wait_usec > 0)
		progress_begin(&progress, "waiting for room for %s", o.profile);
	else
		progress_begin(&progress, "claiming %s", argv[optind]);
	cli->progress = &progress;
	r = cli_call(cli, "PUT", path, body, CLI_WRITE_TIMEOUT_USEC + o.wait_usec, &reply);
	progress_clear(&progress);
	json_decref(body);
	if (r != 0)
		return r;
	return cli->json ? cli_print_json(reply.json)
			 : print_claim(reply.json, reply.status == 201);
}

const struct cli_command cli_claim = {
	.name = "claim",
	.args = "NAME -p PROFILE [OPTION...]",
	.summary = "Claim a vGPU under a name of your choice",
	.help = "Claiming the same name and profile again shows the claim that is there.\n"
		"\n"
		"Options:\n"
		"  -p, --profile PROFILE  such as L40S-4Q; 'berth resources' lists them\n"
		"  --gpu BDF              only on this card\n"
		"  --numa-node N          only on a card of this NUMA node\n"
		"  --wait[=DURATION]      wait until there is room (30s, 5m; without: 10m)\n"
		"  --owner TEXT           a note that is shown with the claim\n"
		"  --pid PID              release it when this process has ended\n"
		"  --console-log PATH     where the guest's console is logged\n"
		"  --channel CHANNEL      where the guest's agent answers, such as vsock:5\n"
		"  --policy POLICY        how the placement is chosen\n"
		"\n"
		"Examples:\n"
		"  berth claim vm1 -p L40S-4Q\n"
		"  berth claim vm2 -p L40S-24Q --numa-node 1 --wait=2m\n"
		"  berth claim vm3 -p L40S-1Q --json | jq -r .vf\n",
	.run = run_claim,
};
