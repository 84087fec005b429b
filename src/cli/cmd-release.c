/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli/cli.h"
#include "client/http-client.h"

#define WAIT_DEFAULT_USEC (60 * USEC_PER_SEC)
/* An event may be missed (a full daemon serves none), so the claim is looked at anyway. */
#define LOOK_AGAIN_USEC (500 * USEC_PER_MSEC)

enum { OPT_WAIT = CLI_OPT_OWN };

static int parse_release(struct cli *cli, int argc, char **argv, uint64_t *ret_wait_usec)
{
	static const struct option options[] = {
		CLI_COMMON_OPTIONS,
		{ "wait", optional_argument, NULL, OPT_WAIT },
		{ 0 },
	};
	int opt, r;

	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (opt == OPT_WAIT) {
			*ret_wait_usec = WAIT_DEFAULT_USEC;
			if (optarg && str_to_usec(optarg, ret_wait_usec) < 0)
				return cli_usage_error(
					cli, "--wait wants a duration such as 30s, not \"%s\"",
					optarg);
			continue;
		}
		r = cli_common_option(cli, opt);
		if (r != CLI_GO_ON)
			return r;
	}
	return cli_check_args(cli, argc, 1, 1);
}

/* Until something happens in the daemon, or it is time to look anyway. */
static void wait_for_event(struct http_event_stream **stream, uint64_t usec)
{
	const struct timespec ts = { .tv_sec = (time_t)(usec / USEC_PER_SEC),
				     .tv_nsec = (long)(usec % USEC_PER_SEC * 1000) };
	const char *type, *data;

	if (*stream && http_event_stream_next(*stream, usec, &type, &data, NULL) >= 0)
		return;
	*stream = http_event_stream_free(*stream);
	(void)nanosleep(&ts, NULL);
}

/* 0: gone, CLI_GO_ON: still being released, else the exit status. */
static int look(const struct cli *cli, const char *path, const char *name)
{
	_reply_ struct cli_reply reply = { 0 };
	char state[CLI_FIELD_SIZE];
	int r = cli_call_may_miss(cli, "GET", path, CLI_READ_TIMEOUT_USEC, &reply);

	if (r == 0 && reply.status != 404)
		cli_field(reply.json, "state", state, sizeof(state));
	if (r == 0 && reply.status != 404 && strcmp(state, "releasing") == 0)
		return CLI_GO_ON;
	progress_clear(cli->progress);
	if (r != 0 || reply.status == 404)
		return r;
	return cli_error(EXIT_STATUS_ERROR, "%s was not released: its state is %s again", name,
			 state);
}

static int wait_till_gone(struct cli *cli, const char *path, const char *name, uint64_t wait_usec)
{
	_cleanup_(http_event_stream_freep) struct http_event_stream *stream = NULL;
	uint64_t start = clock_now_usec();
	struct progress progress;

	progress_begin(&progress, "%s is being released", name);
	cli->progress = &progress;
	/* Events only make it quicker: without them the claim is looked at now and then. */
	if (http_event_stream_open(cli->socket, "/events", LOOK_AGAIN_USEC, NULL, &stream, NULL) <
	    0)
		stream = NULL;
	for (;;) {
		uint64_t passed;
		int r = look(cli, path, name);
		if (r != CLI_GO_ON)
			return r;
		passed = clock_now_usec() - start;
		if (passed >= wait_usec) {
			progress_clear(&progress);
			return cli_error(EXIT_STATUS_ERROR,
					 "%s is still being released; berthd goes on trying", name);
		}
		progress_tick(&progress);
		wait_for_event(&stream, MIN(wait_usec - passed, LOOK_AGAIN_USEC));
	}
}

static int run_release(struct cli *cli, int argc, char **argv)
{
	_reply_ struct cli_reply reply = { 0 };
	struct progress progress;
	uint64_t wait_usec = 0;
	const char *name;
	char path[1024];
	bool pending;
	int r = parse_release(cli, argc, argv, &wait_usec);

	if (r != CLI_GO_ON)
		return r;
	name = argv[optind];
	r = cli_make_path(cli, "/claims/", name, "", path, sizeof(path));
	progress_begin(&progress, "releasing %s", name);
	cli->progress = &progress;
	if (r == 0)
		r = cli_call(cli, "DELETE", path, NULL, CLI_WRITE_TIMEOUT_USEC, &reply);
	if (r != 0)
		return r;
	if (reply.status == 204)
		return cli_error(EXIT_STATUS_NOT_FOUND, "there is no claim named %s", name);
	progress_clear(&progress);
	pending = reply.status == 202;
	if (pending && wait_usec > 0) {
		r = wait_till_gone(cli, path, name, wait_usec);
		pending = false;
	}
	if (r != 0)
		return r;
	if (cli->json)
		return cli_print_json(reply.json);
	printf(pending ? "%s is being released; berthd goes on until the driver lets go\n"
		       : "released %s\n",
	       name);
	return cli_print("");
}

const struct cli_command cli_release = {
	.name = "release",
	.args = "NAME [--wait[=DURATION]]",
	.summary = "Give a claimed vGPU back",
	.help = "Nothing is changed while a VM has the virtual function open. Where the driver "
		"takes\n"
		"its time, the claim is shown as releasing until it is done; that is a success, "
		"too.\n"
		"\n"
		"Options:\n"
		"  --wait[=DURATION]  wait until it is really free (without: 1m)\n"
		"\n"
		"Examples:\n"
		"  berth release vm1\n"
		"  berth release vm1 --wait=30s\n",
	.run = run_release,
};
