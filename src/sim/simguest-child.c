/* SPDX-License-Identifier: Apache-2.0 */
/* A guest: one process, started by the simulator, that stands for a VM with its driver and agent.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/channel.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "sim/simguest-message.h"
#include "sim/simguest.h"

/* What a wedged VF's guest driver prints; the numbers are those seen on an L40S with 580.159. */
#define NVRM_FAILED "NVRM: GPU 0000:00:05.0: RmInitAdapter failed! (0x22:0x65:884)"

struct child {
	const char *root, *vf, *cdev, *group, *prefix, *console;
	uint64_t init_usec;
	int console_fd, signal_fd;
	uint64_t started_usec;
};

static bool parse_options(int argc, char *argv[], struct child *c)
{
	static const struct option options[] = {
		{ "root", required_argument, NULL, 'r' },
		{ "vf", required_argument, NULL, 'v' },
		{ "cdev", required_argument, NULL, 'c' },
		{ "group", required_argument, NULL, 'g' },
		{ "prefix", required_argument, NULL, 'p' },
		{ "console", required_argument, NULL, 'o' },
		{ "init-usec", required_argument, NULL, 'i' },
		{ 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'r')
			c->root = optarg;
		else if (option == 'v')
			c->vf = optarg;
		else if (option == 'c')
			c->cdev = optarg;
		else if (option == 'g')
			c->group = optarg;
		else if (option == 'p')
			c->prefix = optarg;
		else if (option == 'o')
			c->console = optarg;
		else if (option != 'i' || str_to_u64(optarg, &c->init_usec) < 0)
			return false;
	}
	return c->root && c->vf && c->cdev && c->group && c->prefix && c->console;
}

static void print_console(const struct child *c, const char *line)
{
	_free_ char *text = str_printf("%s\n", line);

	/* A console that cannot be written does not stop a VM. */
	if (text && c->console_fd >= 0)
		(void)!write(c->console_fd, text, strlen(text));
}

static void print_kernel(const struct child *c, const char *message)
{
	double seconds = (double)(clock_now_usec() - c->started_usec) / USEC_PER_SEC;
	_free_ char *line = str_printf("[%12.6f] %s", seconds, message);

	if (line)
		print_console(c, line);
}

static void print_marker(const struct child *c, bool failed)
{
	char stamp[CLOCK_RFC3339_MAX], local[32];
	time_t now = time(NULL);
	struct tm tm;
	_free_ char *line = NULL;

	clock_rfc3339_now(stamp);
	strftime(local, sizeof(local), "%Y/%m/%d %H:%M:%S", gmtime_r(&now, &tm));
	line = failed ? str_printf("%s [guest-agent] %s-GPU-INIT-FAILED ts=%s nvrm=\"" NVRM_FAILED
				   "\"",
				   local, c->prefix, stamp)
		      : str_printf("%s [guest-agent] %s-GPU-INIT-OK ts=%s", local, c->prefix,
				   stamp);
	if (!line)
		return;
	if (failed) {
		print_kernel(c, NVRM_FAILED);
		print_kernel(
			c, "NVRM: GPU 0000:00:05.0: rm_init_adapter failed, device minor number 0");
	}
	/* The agent repeats a failure; whoever counts must not count it three times. */
	for (int i = 0; i < (failed ? 3 : 1); i++)
		print_console(c, line);
}

static int open_node(const struct child *c, const char *folder, const char *name)
{
	_free_ char *path = str_printf("%s/dev/vfio/%s%s", c->root, folder, name);
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	return fd < 0 ? -1 : 0; /* kept open until the process ends */
}

static int say(enum simguest_message message)
{
	return channel_send(CHANNEL_FD, &message, sizeof(message));
}

/* Waits for a signal, the simulator's end, or the time to pass (UINT64_MAX: no limit). Returns 0
 * when it passed; otherwise the guest is to end, and has said goodbye if it was asked to. */
static int wait_until(const struct child *c, uint64_t deadline_usec)
{
	struct pollfd fds[] = { { .fd = c->signal_fd, .events = POLLIN }, { .fd = CHANNEL_FD } };

	for (;;) {
		uint64_t now = clock_now_usec();
		uint64_t left = deadline_usec > now ? deadline_usec - now : 0;
		struct timespec ts = { .tv_sec = (time_t)(left / USEC_PER_SEC),
				       .tv_nsec = (long)(left % USEC_PER_SEC * 1000) };

		if (left == 0)
			return 0;
		if (ppoll(fds, 2, deadline_usec == UINT64_MAX ? NULL : &ts, NULL) < 0 &&
		    errno != EINTR)
			return -errno;
		if (fds[0].revents) {
			print_kernel(c, "reboot: Power down");
			(void)!say(SIMGUEST_BYE);
			return -ECANCELED;
		}
		if (fds[1].revents)
			return -EPIPE;
	}
}

static int ask(const struct child *c, enum simguest_message message, struct simguest_answer *ret)
{
	struct pollfd fds[] = { { .fd = CHANNEL_FD, .events = POLLIN } };
	size_t n;
	int r = say(message);

	(void)c;
	if (r < 0)
		return r;
	while (poll(fds, 1, -1) < 0 && errno == EINTR)
		;
	r = channel_recv(CHANNEL_FD, ret, sizeof(*ret), &n);
	return r <= 0 || n != sizeof(*ret) ? -EPIPE : ret->result;
}

static int run(struct child *c)
{
	struct simguest_answer answer = { 0 };

	if ((*c->cdev && open_node(c, "devices/", c->cdev) < 0) ||
	    (*c->group && open_node(c, "", c->group) < 0)) {
		(void)!say(SIMGUEST_OPEN_FAILED);
		return EXIT_FAILURE;
	}
	if (ask(c, SIMGUEST_OPENED, &answer) < 0)
		return EXIT_FAILURE;
	c->started_usec = clock_now_usec();
	print_kernel(c, "Linux version 6.8.0 (simulated guest)");
	print_kernel(c, "pci 0000:00:05.0: [10de:0000] type 00 class 0x030200");
	if (wait_until(c, c->started_usec + c->init_usec) == 0) {
		if (ask(c, SIMGUEST_INIT_OVER, &answer) < 0)
			return EXIT_FAILURE;
		print_marker(c, answer.wedged);
		if (wait_until(c, UINT64_MAX) == -EPIPE)
			return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}

int simguest_main(int argc, char *argv[])
{
	struct child c = { .console_fd = -1, .signal_fd = -1, .started_usec = clock_now_usec() };
	sigset_t mask;

	/* Who looks for the holder of a VF should find a name that tells. */
	prctl(PR_SET_NAME, "berth-sim-guest");
	if (!parse_options(argc, argv, &c))
		return 2;
	sigemptyset(&mask);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGINT);
	if (sigprocmask(SIG_BLOCK, &mask, NULL) < 0)
		return EXIT_FAILURE;
	c.signal_fd = signalfd(-1, &mask, SFD_CLOEXEC);
	if (*c.console)
		c.console_fd = open(c.console, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
	if (c.signal_fd < 0 || (*c.console && c.console_fd < 0)) {
		fprintf(stderr, "berth-sim guest: %s: %s\n", c.console, strerror(errno));
		(void)!say(SIMGUEST_OPEN_FAILED);
		return EXIT_FAILURE;
	}
	return run(&c);
}
