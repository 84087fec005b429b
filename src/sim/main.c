/* SPDX-License-Identifier: Apache-2.0 */
/* berth-sim: a simulated vGPU host. `run` is the host, `ctl` talks to it. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "sim/simcommand.h"
#include "sim/simctl.h"
#include "sim/simfault.h"
#include "sim/simfuse.h"
#include "sim/simguest.h"
#include "sim/simnvml.h"

#define EXIT_USAGE 2

/* Everything that runs, in the order in which it is built. */
struct host {
	struct sim *sim;
	sd_event *event;
	struct simfuse *sys, *dev;
	struct simguests *guests;
	struct simnvml *nvml;
	struct simcommand *command;
	struct simctl *ctl;
	int lock_fd;
};

static void print_help(void)
{
	const char *help;

	printf("Usage: berth-sim run --root DIR [OPTION...]\n"
	       "       berth-sim ctl --root DIR COMMAND...\n"
	       "A simulated vGPU host: sysfs, /dev/vfio and libnvidia-ml.so.1 below DIR.\n\n"
	       "run:\n"
	       "  --root DIR             where it stands (made if missing)\n"
	       "  --cards N              2\n"
	       "  --model NAME           ");
	for (unsigned i = 0; sim_model_key(i); i++)
		printf("%s%s", i ? ", " : "", sim_model_key(i));
	printf(" (l40s)\n"
	       "  --mode MODE            mixed, equal, mig (mixed)\n"
	       "  --driver VERSION       580.178.05; 550.x behaves as that branch\n"
	       "  --vfs N                functions per card, at most %d (the board's own number)\n"
	       "  --nvml-latency MS      of one sweep over all cards and types (20)\n"
	       "  --address BDF,BDF      where the cards stand (0000:41:00.0, 0000:81:00.0, ...)\n"
	       "  --numa NODE,NODE       NUMA node of each card, -1 for none\n"
	       "  --sriov on|off         are the VFs there at start? (on)\n"
	       "  --compute-types        list the C-series types of graphics boards too\n"
	       "  --boot-id ID           (random)\n\n"
	       "ctl:\n%s\nkeys of set:\n",
	       SIM_VFS_MAX, simcommand_help);
	for (size_t i = 0;; i++) {
		const char *key = simfault_key(i, &help);

		if (!key)
			break;
		printf("  %-23s %s\n", key, help);
	}
	fputs("\nBERTH_SIM_ROOT in the environment stands in for --root of ctl.\n"
	      "Examples:\n"
	      "  berth-sim run --root /tmp/host &\n"
	      "  berth-sim run --root /tmp/old --cards 4 --model a40 --driver 550.144.02 &\n"
	      "  berth-sim ctl --root /tmp/host state | jq .counters\n"
	      "  berth-sim ctl --root /tmp/host configure 0000:41:00.4 L40S-4Q\n"
	      "  berth-sim ctl --root /tmp/host boot 0000:41:00.4 --console "
	      "/tmp/host/console/a.log\n"
	      "  berth-sim ctl --root /tmp/host set sysfs.write_hang 1 --gpu 0000:41:00.0 --for "
	      "10\n"
	      "See berth-sim(1).\n",
	      stdout);
}

static int usage_error(const char *what, const char *value)
{
	fprintf(stderr, "berth-sim: %s%s%s\nberth-sim --help shows what there is.\n", what,
		value ? " " : "", value ?: "");
	return EXIT_USAGE;
}

enum option_number {
	OPTION_ROOT = 1,
	OPTION_CARDS,
	OPTION_MODEL,
	OPTION_MODE,
	OPTION_DRIVER,
	OPTION_VFS,
	OPTION_LATENCY,
	OPTION_ADDRESS,
	OPTION_NUMA,
	OPTION_SRIOV,
	OPTION_COMPUTE,
	OPTION_BOOT_ID,
};

static bool parse_option(int option, const char *value, struct sim_config *config)
{
	uint32_t number = 0;

	switch ((enum option_number)option) {
	case OPTION_ROOT:
		config->root = value;
		return *value != '\0';
	case OPTION_MODEL:
		config->model = value;
		return sim_model_find(value, false) != NULL;
	case OPTION_DRIVER:
		config->driver = value;
		return true;
	case OPTION_ADDRESS:
		config->addresses = value;
		return true;
	case OPTION_NUMA:
		config->numa = value;
		return true;
	case OPTION_BOOT_ID:
		config->boot_id = value;
		return true;
	case OPTION_COMPUTE:
		config->compute_types = true;
		return true;
	case OPTION_MODE:
		return sim_mode_parse(value, &config->mode) == 0;
	case OPTION_SRIOV:
		config->sriov = strcmp(value, "off") != 0;
		return !config->sriov || strcmp(value, "on") == 0;
	case OPTION_CARDS:
		return str_to_u32(value, &config->cards) == 0 && config->cards <= SIM_CARDS_MAX;
	case OPTION_VFS:
		return str_to_u32(value, &config->vfs) == 0 && config->vfs > 0 &&
		       config->vfs <= SIM_VFS_MAX;
	case OPTION_LATENCY:
		if (str_to_u32(value, &number) < 0)
			return false;
		config->nvml_latency_ms = number;
		return true;
	}
	return false;
}

/* 0, or the exit status. */
static int parse_run(int argc, char *argv[], struct sim_config *config)
{
	static const struct option options[] = {
		{ "root", required_argument, NULL, OPTION_ROOT },
		{ "cards", required_argument, NULL, OPTION_CARDS },
		{ "model", required_argument, NULL, OPTION_MODEL },
		{ "mode", required_argument, NULL, OPTION_MODE },
		{ "driver", required_argument, NULL, OPTION_DRIVER },
		{ "vfs", required_argument, NULL, OPTION_VFS },
		{ "nvml-latency", required_argument, NULL, OPTION_LATENCY },
		{ "address", required_argument, NULL, OPTION_ADDRESS },
		{ "numa", required_argument, NULL, OPTION_NUMA },
		{ "sriov", required_argument, NULL, OPTION_SRIOV },
		{ "compute-types", no_argument, NULL, OPTION_COMPUTE },
		{ "boot-id", required_argument, NULL, OPTION_BOOT_ID },
		{ 0 },
	};
	int option, which = 0;

	while ((option = getopt_long(argc, argv, "", options, &which)) != -1) {
		if (option == '?')
			return EXIT_USAGE; /* getopt has said what is wrong */
		if (!parse_option(option, optarg ?: "", config)) {
			fprintf(stderr, "berth-sim: '%s' is no value of --%s\n", optarg,
				options[which].name);
			return EXIT_USAGE;
		}
	}
	if (optind < argc)
		return usage_error("unexpected argument", argv[optind]);
	return config->root ? 0 : usage_error("run needs --root DIR", NULL);
}

static int write_file(const char *root, const char *name, const struct buf *text, mode_t mode,
		      struct error *err)
{
	_free_ char *path = str_printf("%s/%s", root, name);
	int r = path ? buf_finish(text) : -ENOMEM;

	if (r >= 0)
		r = file_replace(path, text->data, text->len, mode);
	return r < 0 ? error_set_errno(err, r, "%s/%s", root, name) : 0;
}

static int write_config(const struct sim *sim, struct error *err)
{
	_buf_ struct buf text = BUF_INIT;
	const char *root = sim->root;

	buf_printf(&text,
		   "# Made by berth-sim: a berthd on the simulated host below this folder.\n"
		   "data_dir: \"%s/state\"\n"
		   "socket: \"%s/berthd.sock\"\n"
		   "sysfs_root: \"%s/sys\"\n"
		   "dev_root: \"%s/dev\"\n"
		   "boot_id_file: \"%s/boot_id\"\n"
		   "nvml_library: \"%s/lib/libnvidia-ml.so.1\"\n"
		   "sentinel:\n"
		   "  console_dirs: [\"%s/console\"]\n"
		   "recover:\n"
		   "  sriov_manage: \"%s/sriov-manage\"\n",
		   root, root, root, root, root, root, root, root);
	return write_file(root, "berthd.yaml", &text, 0644, err);
}

/* Stands for /usr/lib/nvidia/sriov-manage. */
static int write_sriov_manage(const struct sim *sim, struct error *err)
{
	_buf_ struct buf text = BUF_INIT;
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0)
		return error_set_errno(err, errno, "/proc/self/exe");
	self[n] = '\0';
	buf_printf(&text, "#!/bin/sh\nexec '%s' ctl --root '%s' sriov \"$@\"\n", self, sim->root);
	return write_file(sim->root, "sriov-manage", &text, 0755, err);
}

static int make_folders(const char *root, struct error *err)
{
	static const char *const names[] = { "sys", "dev", "console", "state" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_free_ char *path = str_printf("%s/%s", root, names[i]);

		/* EEXIST is also the answer of a mount that a killed simulator left. berthd makes
		 * its folder for itself alone, too. */
		mode_t mode = strcmp(names[i], "state") == 0 ? 0700 : 0755;

		if (!path || (mkdir(path, mode) < 0 && errno != EEXIST))
			return error_set_errno(err, path ? errno : ENOMEM, "%s/%s", root, names[i]);
	}
	return 0;
}

static int prepare_root(struct host *h, struct error *err)
{
	_free_ char *lock = str_printf("%s/sim.lock", h->sim->root);
	_buf_ struct buf boot_id = BUF_INIT;
	int r;

	if (!lock)
		return error_set_errno(err, ENOMEM, "%s", h->sim->root);
	h->lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (h->lock_fd < 0)
		return error_set_errno(err, errno, "%s", lock);
	if (flock(h->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return error_set(err, EBUSY, "a simulator runs at %s already", h->sim->root);
	r = make_folders(h->sim->root, err);
	if (r < 0)
		return r;
	buf_printf(&boot_id, "%s\n", h->sim->boot_id);
	r = write_file(h->sim->root, "boot_id", &boot_id, 0644, err);
	if (r >= 0)
		r = write_config(h->sim, err);
	return r < 0 ? r : write_sriov_manage(h->sim, err);
}

static int mount_both(struct host *h, struct error *err)
{
	_free_ char *sys = str_printf("%s/sys", h->sim->root);
	_free_ char *dev = str_printf("%s/dev", h->sim->root);
	int r;

	if (!sys || !dev)
		return error_set_errno(err, ENOMEM, "mount points");
	r = simfuse_new(h->sim, h->event, SIMFUSE_SYS, sys, &h->sys, err);
	return r < 0 ? r : simfuse_new(h->sim, h->event, SIMFUSE_DEV, dev, &h->dev, err);
}

static int host_start(struct host *h, struct error *err)
{
	struct simcommand_parts parts;
	int r;

	r = sd_event_default(&h->event);
	if (r < 0)
		return error_set_errno(err, r, "event loop");
	r = prepare_root(h, err);
	if (r < 0)
		return r;
	sd_event_add_signal(h->event, NULL, SIGTERM, NULL, NULL);
	sd_event_add_signal(h->event, NULL, SIGINT, NULL, NULL);
	r = mount_both(h, err);
	if (r < 0)
		return r;
	r = simnvml_new(h->sim, h->event, NULL, &h->nvml, err);
	if (r < 0)
		return r;
	r = simguests_new(h->sim, h->event, &h->guests);
	if (r < 0)
		return error_set_errno(err, r, "guests");
	parts = (struct simcommand_parts){ .sim = h->sim,
					   .event = h->event,
					   .sys = h->sys,
					   .dev = h->dev,
					   .guests = h->guests,
					   .nvml = h->nvml };
	r = simcommand_new(&parts, &h->command);
	if (r < 0)
		return error_set_errno(err, r, "commands");
	return simctl_new(h->sim, h->event, h->command, &h->ctl, err);
}

static void host_stop(struct host *h)
{
	simctl_free(h->ctl);
	/* The mounts first: a guest that waits for them can end then. */
	simfuse_free(h->sys);
	simfuse_free(h->dev);
	simguests_free(h->guests);
	simcommand_free(h->command);
	simnvml_free(h->nvml);
	sd_event_unref(h->event);
	sim_free(h->sim);
	if (h->lock_fd >= 0)
		close(h->lock_fd);
}

static int run_main(int argc, char *argv[])
{
	struct sim_config config = { .model = "l40s",
				     .driver = "580.178.05",
				     .cards = 2,
				     .mode = SIM_MODE_MIXED,
				     .sriov = true,
				     .nvml_latency_ms = 20 };
	struct host h = { .lock_fd = -1 };
	struct error err = ERROR_INIT;
	_free_ char *root = NULL;
	const char *given;
	sigset_t mask;
	int r;

	r = parse_run(argc, argv, &config);
	if (r != 0)
		return r;
	given = config.root;
	r = file_make_dirs(given, 0755);
	root = r < 0 ? NULL : realpath(given, NULL);
	if (!root) {
		log_error("%s: %s", given, strerror(r < 0 ? -r : errno));
		return EXIT_FAILURE;
	}
	config.root = root;
	sigemptyset(&mask);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGINT);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	signal(SIGPIPE, SIG_IGN);
	r = sim_new(&config, &h.sim, &err);
	if (r < 0) {
		fprintf(stderr, "berth-sim: %s\n", error_text(&err));
		return EXIT_USAGE;
	}
	r = host_start(&h, &err);
	if (r < 0) {
		log_error("%s", error_text(&err));
	} else {
		printf("ready %s\n", given);
		fflush(stdout);
		r = sd_event_loop(h.event);
	}
	host_stop(&h);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* --root stands before the command: what follows belongs to it. */
static int ctl_main(int argc, char *argv[])
{
	const char *root = getenv("BERTH_SIM_ROOT");
	int i = 1;

	if (i < argc && str_starts_with(argv[i], "--root=")) {
		root = argv[i++] + strlen("--root=");
	} else if (i + 1 < argc && strcmp(argv[i], "--root") == 0) {
		root = argv[i + 1];
		i += 2;
	}
	if (str_is_empty(root))
		return usage_error("ctl needs --root DIR", NULL);
	return simctl_client(root, argc - i, argv + i);
}

int main(int argc, char *argv[])
{
	const char *command = argc > 1 ? argv[1] : "";

	file_reserve_standard();
	log_init("berth-sim", LOG_LEVEL_INFO);
	/* What follows a ctl command is that command's own. */
	for (int i = 1; i < argc && (strcmp(command, "ctl") != 0 || i <= 2); i++)
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			command = "--help";
	if (strcmp(command, "--help") == 0) {
		print_help();
		return EXIT_SUCCESS;
	}
	if (strcmp(command, "--version") == 0) {
		printf("berth-sim %s\n", BERTH_VERSION);
		return EXIT_SUCCESS;
	}
	if (strcmp(command, "run") == 0)
		return run_main(argc - 1, argv + 1);
	if (strcmp(command, "ctl") == 0)
		return ctl_main(argc - 1, argv + 1);
	if (strcmp(command, "guest") == 0)
		return simguest_main(argc - 1, argv + 1);
	return usage_error(*command ? "unknown command" : "no command", *command ? command : NULL);
}
