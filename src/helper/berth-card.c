/* SPDX-License-Identifier: Apache-2.0 */
/*
 * berth-card: every read and write of one card's driver attributes, and the open-handle scans.
 *
 * Started by host/card-client with a channel at CHANNEL_FD; it ends when that reports end of file.
 * A worker that hangs in the driver then keeps the process, and with it the card's lock, until the
 * driver lets go: so no second helper writes while a late write of this one may still land.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/channel.h"
#include "base/log.h"
#include "helper/card-ops.h"
#include "helper/card-pool.h"

#define PARALLEL_MAX CARD_SCAN_WAITERS_MAX /* operations beside each other; more wait */

struct helper {
	struct card_ops ops;
	struct card_pool configures; /* one thread: type writes of a card come one after another */
	struct card_pool others;
};

static struct helper helper;

static void send_reply(const struct card_reply *reply)
{
	int r = channel_send(CHANNEL_FD, reply, card_reply_size(reply));

	if (r == -EPIPE)
		_exit(EXIT_SUCCESS);
	if (r < 0)
		log_error("helper: reply to a %s is lost: %s", card_op_name(reply->op),
			  strerror(-r));
}

static void run(const struct card_request *request, void *userdata)
{
	struct card_ops *ops = userdata;
	struct card_reply reply = { .version = CARD_MESSAGE_VERSION,
				    .op = request->op,
				    .id = request->id };

	card_ops_run(ops, request, &reply);
	send_reply(&reply);
}

static void refuse(const struct card_request *request, int code)
{
	struct card_reply reply = { .version = CARD_MESSAGE_VERSION,
				    .op = request->op,
				    .id = request->id,
				    .result = code,
				    .step = CARD_STEP_BEFORE,
				    .text = "too many operations at a time" };

	send_reply(&reply);
}

/* Returns the locked descriptor, which nobody closes, or -errno. */
static int take_lock(const char *path)
{
	char pid[24];
	int fd, n;

	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		int r = -errno;

		close(fd);
		return r;
	}
	/* Who has it, for the sentence that explains a card that is stuck. */
	n = snprintf(pid, sizeof pid, "%d\n", (int)getpid());
	if (ftruncate(fd, 0) < 0 || write(fd, pid, (size_t)n) < 0)
		log_warning("helper: pid not written path=\"%s\": %s, ignoring", path,
			    strerror(errno));
	return fd;
}

static _noreturn_ void serve(void)
{
	for (;;) {
		struct card_request request;
		size_t len;
		int r;

		r = channel_recv(CHANNEL_FD, &request, sizeof request, &len);
		if (r == 0)
			_exit(EXIT_SUCCESS);
		if (r == 1)
			r = card_request_check(&request, len);
		if (r < 0) {
			log_error("helper: request not understood: %s", strerror(-r));
			_exit(EXIT_FAILURE);
		}
		r = card_pool_submit(request.op == CARD_OP_CONFIGURE ? &helper.configures
								     : &helper.others,
				     &request);
		if (r < 0)
			refuse(&request, r);
	}
}

enum {
	OPTION_CARD = 256,
	OPTION_SYSFS_ROOT,
	OPTION_DEV_ROOT,
	OPTION_PROC_ROOT,
	OPTION_LOCK,
	OPTION_HELP,
	OPTION_VERSION,
};

static const struct option long_options[] = {
	{ "card", required_argument, NULL, OPTION_CARD },
	{ "sysfs-root", required_argument, NULL, OPTION_SYSFS_ROOT },
	{ "dev-root", required_argument, NULL, OPTION_DEV_ROOT },
	{ "proc-root", required_argument, NULL, OPTION_PROC_ROOT },
	{ "lock", required_argument, NULL, OPTION_LOCK },
	{ "help", no_argument, NULL, OPTION_HELP },
	{ "version", no_argument, NULL, OPTION_VERSION },
	{ 0 },
};

static const char *lock_path;

static void usage(FILE *f)
{
	fputs("Usage: berth-card --card BDF --lock FILE [--sysfs-root DIR] [--dev-root DIR] "
	      "[--proc-root DIR]\n"
	      "Reads and writes the driver's attributes of one card on behalf of berthd, which "
	      "starts it\n"
	      "with a socket at descriptor 3.\n"
	      "\n"
	      "  --card BDF        the card, for the list of processes\n"
	      "  --lock FILE       locked as long as this process lives\n"
	      "  --sysfs-root DIR  instead of /sys\n"
	      "  --dev-root DIR    instead of /dev\n"
	      "  --proc-root DIR   instead of /proc\n"
	      "  --help            this text\n"
	      "  --version         the version\n"
	      "\n"
	      "Examples:\n"
	      "  berth gpus      (asks berthd, which asks this program)\n"
	      "  berth doctor    (whether a card's driver hangs)\n"
	      "See berth-card(8).\n",
	      f);
}

/* 1: helped, there is nothing else to do; -EINVAL. */
static int parse_options(int argc, char **argv, struct holders_roots *roots)
{
	int c;

	while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		switch (c) {
		case OPTION_CARD:
			break; /* shows in the list of processes whose helper this is */
		case OPTION_SYSFS_ROOT:
			roots->sysfs_root = optarg;
			break;
		case OPTION_DEV_ROOT:
			roots->dev_root = optarg;
			break;
		case OPTION_PROC_ROOT:
			roots->proc_root = optarg;
			break;
		case OPTION_LOCK:
			lock_path = optarg;
			break;
		case OPTION_HELP:
			usage(stdout);
			return 1;
		case OPTION_VERSION:
			puts("berth-card " BERTH_VERSION);
			return 1;
		default:
			return -EINVAL;
		}
	}
	return lock_path && optind == argc ? 0 : -EINVAL;
}

int main(int argc, char **argv)
{
	struct holders_roots roots = { .sysfs_root = "/sys",
				       .dev_root = "/dev",
				       .proc_root = "/proc" };
	struct card_hello hello = { .version = CARD_MESSAGE_VERSION };
	int lock_fd, r;

	log_init("berth-card", LOG_LEVEL_INFO);
	r = parse_options(argc, argv, &roots);
	if (r > 0)
		return EXIT_SUCCESS;
	if (r < 0) {
		usage(stderr);
		return 2;
	}
	/* A signal to the whole group or unit must not cut off an operation that the parent, which
	 * gets it too, still wants to see through; end of file ends us. */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);

	lock_fd = take_lock(lock_path);
	if (lock_fd < 0)
		hello.lock_error = lock_fd;
	else
		card_ops_init(&helper.ops, &roots, lock_fd);
	if (channel_send(CHANNEL_FD, &hello, sizeof hello) < 0 || lock_fd < 0)
		return EXIT_FAILURE;
	card_pool_init(&helper.configures, 1, run, &helper.ops);
	card_pool_init(&helper.others, PARALLEL_MAX, run, &helper.ops);
	serve();
}
