/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `berth run`: claims a vGPU, runs a command with it, releases it when the command ends.
 *
 * A SIGKILL of the VM while the guest driver initialises wedges the VF. So during that window (from
 * the start of the command until the OK marker in the console log, else --init-window) a stop of
 * ours asks the command to stop and waits; only a second one, or the window's end, insists.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/cli.h"
#include "model/marker.h"

#define EXIT_OWN_FAILURE      125
#define INIT_WINDOW_USEC      (30 * USEC_PER_SEC)
#define KILL_AFTER_USEC	      (10 * USEC_PER_SEC) /* a stop that is insisted on */
#define LOOK_MSEC	      200		  /* at the console log, inside the window */
#define RELEASE_PATIENCE_USEC (60 * USEC_PER_SEC)

enum {
	OPT_PROFILE = CLI_OPT_OWN,
	OPT_NAME,
	OPT_CONSOLE,
	OPT_CHANNEL,
	OPT_GPU,
	OPT_NUMA,
	OPT_OWNER,
	OPT_WINDOW,
	OPT_WAIT
};

struct run {
	struct cli *cli;
	const char *profile, *console, *channel, *gpu, *owner;
	char name[CLI_FIELD_SIZE];
	uint32_t numa_node;
	bool has_numa_node;
	uint64_t wait_usec, window_usec;
	char **command;

	char vf[CLI_FIELD_SIZE], sysfs[CLI_FIELD_SIZE], group[CLI_FIELD_SIZE],
		device[CLI_FIELD_SIZE];
	pid_t child;
	int pidfd;
	uint64_t started_usec, stop_usec; /* stop_usec: when a stop was asked for; 0: not yet */
	bool insisted, init_done;
};

/* --- Claiming
 * ------------------------------------------------------------------------------------- */

static int claim(struct run *r)
{
	json_t *body = json_pack("{s:s,s:I}", "profile", r->profile, "pid", (json_int_t)getpid());
	_reply_ struct cli_reply reply = { 0 };
	char path[CLI_FIELD_SIZE];
	int status;

	if (r->console)
		json_object_set_new(body, "console_log", json_string(r->console));
	if (r->channel)
		json_object_set_new(body, "channel", json_string(r->channel));
	if (r->gpu)
		json_object_set_new(body, "gpu", json_string(r->gpu));
	if (r->owner)
		json_object_set_new(body, "owner", json_string(r->owner));
	if (r->has_numa_node)
		json_object_set_new(body, "numa_node", json_integer(r->numa_node));
	if (r->wait_usec)
		json_object_set_new(body, "wait_ms",
				    json_integer((json_int_t)(r->wait_usec / USEC_PER_MSEC)));
	status = cli_make_path(r->cli, "/claims/", r->name, "", path, sizeof path);
	if (status == 0)
		status = cli_call(r->cli, "PUT", path, body, CLI_WRITE_TIMEOUT_USEC + r->wait_usec,
				  &reply);
	json_decref(body);
	if (status != 0)
		return status;
	if (reply.status != 201)
		return cli_error(EXIT_OWN_FAILURE,
				 "a claim named %s is there already; choose another --name",
				 r->name);
	cli_field(reply.json, "vf", r->vf, sizeof r->vf);
	cli_field(reply.json, "sysfs_path", r->sysfs, sizeof r->sysfs);
	cli_field(reply.json, "vfio_group", r->group, sizeof r->group);
	cli_field(reply.json, "vfio_device", r->device, sizeof r->device);
	return 0;
}

/* The driver may still be tearing down, or a child of the VM hold the VF for a moment longer. */
static void release(struct run *r)
{
	uint64_t limit = clock_now_usec() + RELEASE_PATIENCE_USEC;
	char path[CLI_FIELD_SIZE];

	if (cli_make_path(r->cli, "/claims/", r->name, "", path, sizeof path) != 0)
		return;
	while (clock_now_usec() < limit) {
		_reply_ struct cli_reply reply = { 0 };

		if (cli_call(r->cli, "DELETE", path, NULL, CLI_WRITE_TIMEOUT_USEC, &reply) == 0)
			return;
		nanosleep(&(struct timespec){ .tv_nsec = 500000000 }, NULL);
	}
	cli_error(
		EXIT_OWN_FAILURE,
		"the claim %s could not be released; berthd goes on trying when its holder is gone",
		r->name);
}

/* --- The command
 * ------------------------------------------------------------------------------------- */

static char *fill_in(const struct run *r, const char *word)
{
	const struct {
		const char *name, *value;
	} fields[] = { { "{vf}", r->vf },
		       { "{sysfs}", r->sysfs },
		       { "{group}", r->group },
		       { "{device}", r->device } };
	struct buf out = BUF_INIT;
	char *text = NULL;

	while (*word) {
		size_t i = 0;

		while (i < ARRAY_SIZE(fields) && !str_starts_with(word, fields[i].name))
			i++;
		if (i < ARRAY_SIZE(fields)) {
			buf_add_str(&out, fields[i].value);
			word += strlen(fields[i].name);
		} else {
			buf_add_char(&out, *word++);
		}
	}
	if (buf_take(&out, &text, NULL) < 0)
		buf_done(&out);
	return text;
}

static void run_child(const struct run *r, const sigset_t *mask)
{
	size_t n = 0;

	setenv("BERTH_CLAIM", r->name, 1);
	setenv("BERTH_VF", r->vf, 1);
	setenv("BERTH_SYSFS", r->sysfs, 1);
	setenv("BERTH_GROUP", r->group, 1);
	setenv("BERTH_DEVICE", r->device, 1);
	setenv("BERTH_PROFILE", r->profile, 1);
	sigprocmask(SIG_SETMASK, mask, NULL);
	while (r->command[n]) {
		r->command[n] = fill_in(r, r->command[n]);
		if (!r->command[n++])
			_exit(EXIT_OWN_FAILURE);
	}
	assert(r->command[0]); /* parse_options() wants a command */
	execvp(r->command[0], r->command);
	cli_error(EXIT_OWN_FAILURE, "%s: %s", r->command[0],
		  strerrordesc_np(errno) ?: "cannot be started");
	_exit(EXIT_OWN_FAILURE);
}

/* An OK marker anywhere in the console log ends the window: the log began with this claim. */
static bool has_ok_marker(const struct run *r)
{
	static const char *const prefixes[] = { "BERTH", "HYPEMAN" };
	_fclose_ FILE *f = r->console ? fopen(r->console, "re") : NULL;
	char line[MARKER_LINE_MAX + 2];

	while (f && fgets(line, sizeof line, f)) {
		size_t n = strcspn(line, "\n");

		if (line[n] == '\n' &&
		    marker_parse(line, n, prefixes, ARRAY_SIZE(prefixes)) == MARKER_OK)
			return true;
	}
	return false;
}

static bool in_init_window(struct run *r)
{
	if (!r->init_done)
		r->init_done = clock_now_usec() >= r->started_usec + r->window_usec ||
			       has_ok_marker(r);
	return !r->init_done;
}

static void signal_child(const struct run *r, int signal)
{
	pidfd_send_signal(r->pidfd, signal, NULL, 0);
}

static void got_signal(struct run *r, int signal)
{
	if (signal != SIGTERM && signal != SIGINT) {
		signal_child(r, signal);
		return;
	}
	if (r->stop_usec)
		r->insisted = true;
	else
		r->stop_usec = clock_now_usec();
	if (!r->insisted && in_init_window(r))
		fprintf(stderr, "berth: asked the command to stop; waiting for the guest driver's "
				"init to be over "
				"(a second signal insists)\n");
	signal_child(r, SIGTERM);
}

/* Nothing is killed inside the window unless somebody insists. */
static void look_at_stop(struct run *r)
{
	uint64_t now = clock_now_usec();

	if (!r->stop_usec || (!r->insisted && in_init_window(r)))
		return;
	if (r->insisted || now >= r->stop_usec + KILL_AFTER_USEC)
		signal_child(r, SIGKILL);
}

static int wait_for_child(struct run *r, int signals)
{
	for (;;) {
		struct pollfd fds[] = { { .fd = r->pidfd, .events = POLLIN },
					{ .fd = signals, .events = POLLIN } };
		int status;

		/* Without a stop there is nothing to look at. */
		if (poll(fds, ARRAY_SIZE(fds), r->stop_usec ? LOOK_MSEC : -1) < 0 && errno != EINTR)
			return EXIT_OWN_FAILURE;
		if (fds[1].revents & POLLIN) {
			struct signalfd_siginfo info;

			if (read(signals, &info, sizeof info) == sizeof info)
				got_signal(r, (int)info.ssi_signo);
		}
		if (fds[0].revents & POLLIN) {
			if (waitpid(r->child, &status, 0) != r->child)
				return EXIT_OWN_FAILURE;
			return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
		}
		look_at_stop(r);
	}
}

static int run_command(struct run *r)
{
	static const int passed_on[] = { SIGTERM, SIGINT,   SIGHUP, SIGUSR1,
					 SIGUSR2, SIGWINCH, SIGCONT };
	_close_ int signals = -1;
	sigset_t set, old;
	int status;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(passed_on); i++)
		sigaddset(&set, passed_on[i]);
	sigprocmask(SIG_BLOCK, &set, &old);
	signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0)
		return cli_error(EXIT_OWN_FAILURE, "signals: %s", strerrordesc_np(errno));
	r->started_usec = clock_now_usec();
	r->child = fork();
	if (r->child == 0)
		run_child(r, &old);
	if (r->child < 0)
		return cli_error(EXIT_OWN_FAILURE, "fork: %s", strerrordesc_np(errno));
	r->pidfd = pidfd_open(r->child, 0);
	if (r->pidfd < 0) {
		kill(r->child, SIGTERM);
		waitpid(r->child, NULL, 0);
		return cli_error(EXIT_OWN_FAILURE, "pidfd: %s", strerrordesc_np(errno));
	}
	status = wait_for_child(r, signals);
	close(r->pidfd);
	return status;
}

/* --- Options
 * ------------------------------------------------------------------------------------------- */

static int take_option(struct run *r, int opt)
{
	switch (opt) {
	case 'p':
	case OPT_PROFILE:
		r->profile = optarg;
		return CLI_GO_ON;
	case OPT_NAME:
		str_copy_cut(r->name, sizeof r->name, optarg);
		return CLI_GO_ON;
	case OPT_CONSOLE:
		r->console = optarg;
		return CLI_GO_ON;
	case OPT_CHANNEL:
		r->channel = optarg;
		return CLI_GO_ON;
	case OPT_GPU:
		r->gpu = optarg;
		return CLI_GO_ON;
	case OPT_OWNER:
		r->owner = optarg;
		return CLI_GO_ON;
	case OPT_NUMA:
		r->has_numa_node = true;
		if (str_to_u32(optarg, &r->numa_node) < 0)
			return cli_usage_error(r->cli, "--numa-node takes a number");
		return CLI_GO_ON;
	case OPT_WINDOW:
		if (str_to_usec(optarg, &r->window_usec) < 0)
			return cli_usage_error(r->cli,
					       "--init-window takes a duration such as 30s");
		return CLI_GO_ON;
	case OPT_WAIT:
		if (str_to_usec(optarg, &r->wait_usec) < 0)
			return cli_usage_error(r->cli, "--wait takes a duration such as 1m");
		return CLI_GO_ON;
	default:
		return cli_common_option(r->cli, opt);
	}
}

static int run_run(struct cli *cli, int argc, char **argv)
{
	static const struct option options[] = {
		CLI_COMMON_OPTIONS,
		{ "profile", required_argument, NULL, OPT_PROFILE },
		{ "name", required_argument, NULL, OPT_NAME },
		{ "console", required_argument, NULL, OPT_CONSOLE },
		{ "channel", required_argument, NULL, OPT_CHANNEL },
		{ "gpu", required_argument, NULL, OPT_GPU },
		{ "numa-node", required_argument, NULL, OPT_NUMA },
		{ "owner", required_argument, NULL, OPT_OWNER },
		{ "init-window", required_argument, NULL, OPT_WINDOW },
		{ "wait", required_argument, NULL, OPT_WAIT },
		{ 0 },
	};
	struct run r = { .cli = cli, .window_usec = INIT_WINDOW_USEC };
	int opt, status = CLI_GO_ON;

	snprintf(r.name, sizeof r.name, "run-%d", (int)getpid());
	while (status == CLI_GO_ON && (opt = getopt_long(argc, argv, "+hp:", options, NULL)) >= 0)
		status = take_option(&r, opt);
	if (status != CLI_GO_ON)
		return status;
	if (!r.profile)
		return cli_usage_error(cli, "which profile? (-p PROFILE)");
	if (optind >= argc)
		return cli_usage_error(cli, "which command? (-- CMD...)");
	r.command = argv + optind;
	status = claim(&r);
	if (status != 0)
		return EXIT_OWN_FAILURE;
	status = run_command(&r);
	release(&r);
	return status;
}

const struct cli_command cli_run = {
	.name = "run",
	.args = "-p PROFILE [OPTION...] -- CMD...",
	.summary = "Claim a vGPU, run a command with it, release it",
	.help = "In the command {vf}, {sysfs}, {group} and {device} are replaced; BERTH_CLAIM, "
		"BERTH_VF,\n"
		"BERTH_SYSFS, BERTH_GROUP, BERTH_DEVICE and BERTH_PROFILE are in its environment.\n"
		"Signals are passed on. Inside the guest driver's init window a stop only asks "
		"the\n"
		"command to stop: killing a VM there wedges the VF. A second signal insists.\n"
		"\n"
		"  -p, --profile PROFILE  such as L40S-4Q\n"
		"  --name NAME            of the claim (default run-PID)\n"
		"  --console FILE         console log of the guest, watched by berthd\n"
		"  --channel CHANNEL      of the guest agent: vsock:CID, unix:PATH, "
		"hvsock:PATH:PORT\n"
		"  --init-window D        how long init may take without a marker (default 30s)\n"
		"  --wait D               wait for capacity\n"
		"  --gpu BDF, --numa-node N, --owner TEXT  as for 'berth claim'\n"
		"\n"
		"The exit status is the command's own, 128+N after signal N, 125 for a failure of\n"
		"berth run itself, a refused claim included.\n"
		"\n"
		"Examples:\n"
		"  berth run -p L40S-4Q -- qemu-system-x86_64 -device vfio-pci,sysfsdev={sysfs} "
		"...\n"
		"  berth run -p L40S-4Q --console /var/log/berth/vm1.log -- ./start-vm vm1 {vf}\n",
	.run = run_run,
};
