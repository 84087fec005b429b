/* SPDX-License-Identifier: Apache-2.0 */
/*
 * berth-agent: watches in the guest whether the NVIDIA driver's init works, and says so on the
 * console.
 *
 * One thread, one poll; after the probe phase it wakes up for records of the kernel and for
 * questions of the host alone. Static, so that any image can carry it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "agent/channel.h"
#include "agent/console.h"
#include "agent/kmsg.h"
#include "agent/probe.h"
#include "base/str.h"

#define SECOND		  UINT64_C(1000000)
#define REPORT_PAUSE_USEC (30 * SECOND)
#define REOPEN_FIRST_USEC SECOND
/* Drivers of the channels may be loaded after us; looking for them ends when the probe phase does.
 */
#define CHANNEL_PAUSE_USEC (5 * SECOND)
#define CHANNEL_PHASE_USEC (600 * SECOND)
#define REOPEN_MAX_USEC	   (60 * SECOND)

static const char usage[] =
	"Usage: berth-agent [OPTION...]\n"
	"Watches the guest's kernel log for failures of the NVIDIA driver's init and reports them "
	"on the\n"
	"console, where the host's berthd reads them. Does nothing in a guest without an NVIDIA "
	"function.\n"
	"\n"
	"  --kmsg PATH          kernel log (/dev/kmsg)\n"
	"  --console PATH       where reports go (/dev/console)\n"
	"  --sysfs-root DIR     where PCI functions are looked for (/sys)\n"
	"  --nvidia-smi PATH    probe program (/usr/bin/nvidia-smi; none there: no probe)\n"
	"  --marker-prefix P    of the report lines (BERTH)\n"
	"  --vsock-port N       port on which the host may ask (52010; 0: none)\n"
	"  --virtio-port PATH   the same on a serial port (/dev/virtio-ports/org.berth.agent.0)\n"
	"  --force              watch without an NVIDIA function, too\n"
	"  --version, --help\n"
	"Examples:\n"
	"  berth-agent &                            (from an init script)\n"
	"  berth-agent --force --console /dev/tty1  (to see what it would report)\n"
	"See berth-agent(8).\n";

struct agent {
	struct kmsg kmsg;
	struct console console;
	struct probe probe;
	struct agent_channel channel;
	const char *sysfs_root, *nvidia_smi, *virtio_port;
	uint32_t vsock_port;
	bool force;

	enum { STATE_UNKNOWN, STATE_OK, STATE_FAILED } state;
	char since[32];
	char nvrm[KMSG_TEXT_MAX];
	uint64_t reported_usec; /* last FAILED report; 0: none yet */
	bool lost;		/* the watch is lost, which was said */
	uint64_t reopen_usec, reopen_pause_usec;
	uint64_t channel_usec, channel_end_usec; /* next look for missing channels; 0: no more */
};

static uint64_t now_usec(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SECOND + (uint64_t)ts.tv_nsec / 1000;
}

/* --- Reports
 * ------------------------------------------------------------------------------------------- */

static void set_state(struct agent *a, int state)
{
	if ((int)a->state != state)
		console_timestamp(a->since);
	a->state = state;
}

static void init_failed(const char *text, void *userdata)
{
	struct agent *a = userdata;
	uint64_t now = now_usec();

	set_state(a, STATE_FAILED);
	str_copy_cut(a->nvrm, sizeof a->nvrm, text);
	if (a->reported_usec && now < a->reported_usec + REPORT_PAUSE_USEC)
		return; /* the driver tries again and again */
	if (console_failed_marker(&a->console, text) == 0)
		a->reported_usec = now;
}

static void watch_lost(struct agent *a, const char *why)
{
	char text[256];

	kmsg_close(&a->kmsg);
	if (!a->lost) {
		a->lost = true;
		a->reopen_pause_usec = REOPEN_FIRST_USEC;
		snprintf(text, sizeof text,
			 "berth-agent: lost the watch of %.100s (%.60s), reopening it",
			 a->kmsg.path, why);
		(void)console_note(&a->console, text);
	} else {
		a->reopen_pause_usec = MIN(a->reopen_pause_usec * 2, REOPEN_MAX_USEC);
	}
	a->reopen_usec = now_usec() + a->reopen_pause_usec;
}

static void open_kmsg(struct agent *a)
{
	int r = kmsg_open(&a->kmsg);

	if (r < 0) {
		watch_lost(a, strerror(-r));
	} else if (a->lost) {
		a->lost = false;
		(void)console_note(&a->console, "berth-agent: watching the kernel log again; what "
						"came between was not seen");
	}
}

static void read_kmsg(struct agent *a)
{
	int r = kmsg_read(&a->kmsg, init_failed, a);

	if (r == 1)
		(void)console_note(
			&a->console,
			"berth-agent: kernel records were overwritten before they were read");
	else if (r < 0)
		watch_lost(a, strerror(-r));
}

/* --- The host asks
 * --------------------------------------------------------------------------------------- */

static size_t answer(char *ret, size_t size, void *userdata)
{
	static const char *const names[] = { "unknown", "ok", "failed" };
	const struct agent *a = userdata;
	char nvrm[2 * KMSG_TEXT_MAX];
	size_t n = 0;
	int len;

	for (const char *c = a->nvrm; *c; c++) {
		if (*c == '\\')
			nvrm[n++] = '\\';
		nvrm[n++] = (unsigned char)*c < 0x80
				    ? *c
				    : '?'; /* quotes and controls are gone already */
	}
	nvrm[n] = '\0';
	len = snprintf(ret, size,
		       "{\"agent\":\"berth\",\"version\":\"" BERTH_VERSION
		       "\",\"state\":\"%s\",\"watching\":%s,\"since\":\"%s\",\"nvrm\":\"%s\"}\n",
		       names[a->state], a->kmsg.fd >= 0 ? "true" : "false", a->since,
		       a->state == STATE_FAILED ? nvrm : "");
	return len < 0 ? 0 : MIN((size_t)len, size - 1);
}

/* --- Is there a GPU?
 * --------------------------------------------------------------------------------------- */

static bool starts_with_hex(const char *sysfs_root, const char *device, const char *attribute,
			    const char *wanted)
{
	char path[512], text[16] = "";
	int fd, n = snprintf(path, sizeof path, "%s/bus/pci/devices/%s/%s", sysfs_root, device,
			     attribute);
	bool same = false;

	if (n < 0 || (size_t)n >= sizeof path)
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (read(fd, text, sizeof text - 1) > 0)
		same = strncmp(text, wanted, strlen(wanted)) == 0;
	close(fd);
	return same;
}

static bool has_nvidia_function(const char *sysfs_root)
{
	char path[512];
	struct dirent *entry;
	bool found = false;
	DIR *dir;

	snprintf(path, sizeof path, "%s/bus/pci/devices", sysfs_root);
	dir = opendir(path);
	if (!dir)
		return false;
	while (!found && (entry = readdir(dir)))
		found = entry->d_name[0] != '.' &&
			starts_with_hex(sysfs_root, entry->d_name, "vendor", "0x10de") &&
			starts_with_hex(sysfs_root, entry->d_name, "class", "0x03");
	closedir(dir);
	return found;
}

/* --- The loop
 * ------------------------------------------------------------------------------------------------
 */

static int earlier(int a, int b)
{
	return a < 0 ? b : b < 0 ? a : MIN(a, b);
}

static int timeout_ms(const struct agent *a)
{
	uint64_t now = now_usec();
	int reopen = -1, channel = -1;

	if (a->kmsg.fd < 0)
		reopen = a->reopen_usec <= now ? 0 : (int)((a->reopen_usec - now) / 1000 + 1);
	if (a->channel_usec)
		channel = a->channel_usec <= now ? 0 : (int)((a->channel_usec - now) / 1000 + 1);
	return earlier(earlier(probe_timeout_ms(&a->probe, now), reopen), channel);
}

static void open_channels(struct agent *a)
{
	uint64_t now = now_usec();

	if (a->channel_usec == 0 || now < a->channel_usec)
		return;
	a->channel_usec = agent_channel_open_missing(&a->channel) && now < a->channel_end_usec
				  ? now + CHANNEL_PAUSE_USEC
				  : 0;
}

static void take_signals(struct agent *a, int fd)
{
	struct signalfd_siginfo info;

	while (read(fd, &info, sizeof info) == sizeof info) {
		if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT)
			exit(EXIT_SUCCESS);
		if (info.ssi_signo == SIGIO)
			agent_channel_port_changed(&a->channel);
	}
}

/* Before the channels are opened: the serial port sends SIGIO, which would end us. */
static int open_signals(void)
{
	static const int wanted[] = { SIGTERM, SIGINT, SIGCHLD, SIGIO };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		sigaddset(&set, wanted[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

static int run(struct agent *a, int signals)
{
	open_kmsg(a);
	for (;;) {
		struct pollfd fds[CHANNEL_FDS_MAX + 2] = { { .fd = signals, .events = POLLIN },
							   { .fd = a->kmsg.fd, .events = POLLIN } };
		unsigned n = agent_channel_poll_fds(&a->channel, fds + 2);

		if (poll(fds, n + 2, timeout_ms(a)) < 0 && errno != EINTR)
			return EXIT_FAILURE;
		if (a->kmsg.fd >= 0 && fds[1].revents)
			read_kmsg(a);
		else if (a->kmsg.fd < 0 && now_usec() >= a->reopen_usec)
			open_kmsg(a);
		agent_channel_handle(&a->channel, fds + 2, n);
		/* After the channels: a SIGIO is newer than a hang-up that poll() saw. */
		if (fds[0].revents)
			take_signals(a, signals);
		open_channels(a);
		if (probe_run(&a->probe, now_usec())) {
			set_state(a, STATE_OK);
			(void)console_ok_marker(&a->console);
		}
	}
}

/* --- Options
 * ---------------------------------------------------------------------------------------------------
 */

enum {
	OPT_KMSG = 256,
	OPT_CONSOLE,
	OPT_SYSFS,
	OPT_SMI,
	OPT_PREFIX,
	OPT_VSOCK,
	OPT_VIRTIO,
	OPT_FORCE,
	OPT_VERSION
};

/* -1: go on; else the exit status. */
static int parse_options(struct agent *a, int argc, char **argv)
{
	static const struct option options[] = {
		{ "kmsg", required_argument, NULL, OPT_KMSG },
		{ "console", required_argument, NULL, OPT_CONSOLE },
		{ "sysfs-root", required_argument, NULL, OPT_SYSFS },
		{ "nvidia-smi", required_argument, NULL, OPT_SMI },
		{ "marker-prefix", required_argument, NULL, OPT_PREFIX },
		{ "vsock-port", required_argument, NULL, OPT_VSOCK },
		{ "virtio-port", required_argument, NULL, OPT_VIRTIO },
		{ "force", no_argument, NULL, OPT_FORCE },
		{ "version", no_argument, NULL, OPT_VERSION },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "h", options, NULL)) >= 0) {
		switch (c) {
		case OPT_KMSG:
			a->kmsg.path = optarg;
			break;
		case OPT_CONSOLE:
			a->console.path = optarg;
			break;
		case OPT_SYSFS:
			a->sysfs_root = optarg;
			break;
		case OPT_SMI:
			a->nvidia_smi = optarg;
			break;
		case OPT_PREFIX:
			a->console.prefix = optarg;
			break;
		case OPT_VSOCK:
			if (str_to_u32(optarg, &a->vsock_port) < 0) {
				fputs("berth-agent: --vsock-port takes a number\n", stderr);
				return 2;
			}
			break;
		case OPT_VIRTIO:
			a->virtio_port = optarg;
			break;
		case OPT_FORCE:
			a->force = true;
			break;
		case OPT_VERSION:
			puts("berth-agent " BERTH_VERSION);
			return EXIT_SUCCESS;
		case 'h':
			fputs(usage, stdout);
			return EXIT_SUCCESS;
		default:
			fputs("Try 'berth-agent --help'.\n", stderr);
			return 2;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "berth-agent: unexpected argument: %s\n", argv[optind]);
		return 2;
	}
	return -1;
}

int main(int argc, char **argv)
{
	struct agent a = {
		.kmsg = { .fd = -1, .path = "/dev/kmsg" },
		.console = { .path = "/dev/console", .prefix = "BERTH" },
		.sysfs_root = "/sys",
		.nvidia_smi = "/usr/bin/nvidia-smi",
		.virtio_port = "/dev/virtio-ports/org.berth.agent.0",
		.vsock_port = 52010,
	};
	int signals, status = parse_options(&a, argc, argv);

	if (status >= 0)
		return status;
	if (!a.force && !has_nvidia_function(a.sysfs_root))
		return EXIT_SUCCESS; /* nothing to watch in this guest */
	signals = open_signals();
	if (signals < 0)
		return EXIT_FAILURE;
	console_timestamp(a.since);
	a.channel.answer = answer;
	a.channel.userdata = &a;
	agent_channel_open(&a.channel, a.vsock_port, a.virtio_port);
	a.channel_usec = now_usec();
	a.channel_end_usec = a.channel_usec + CHANNEL_PHASE_USEC;
	probe_init(&a.probe, a.nvidia_smi, now_usec());
	return run(&a, signals);
}
