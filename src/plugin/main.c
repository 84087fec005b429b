/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "plugin/kubelet.h"
#include "plugin/list.h"
#include "plugin/run-dir.h"
#include "plugin/service.h"

#define NAMES_FILE_MAX	       (256 << 10)
#define INTERVAL_VARIABLE      "VFIO_VGPU_RESCAN_INTERVAL"
#define LIST_CARD_TIMEOUT_USEC (15 * USEC_PER_SEC)
#define LIST_NVML_TIMEOUT_USEC (5 * USEC_PER_SEC)

static const char usage[] =
	"Usage: berth-device-plugin [OPTION...]\n"
	"Offers the vGPUs and passed-through GPUs of this node to Kubernetes, for KubeVirt.\n"
	"\n"
	"  --kubelet-dir DIR        folder of the plugins' sockets "
	"(/var/lib/kubelet/device-plugins)\n"
	"  --rescan-interval D      look for other profiles every D, such as 30s; 0 is off (the "
	"default,\n"
	"                           else $" INTERVAL_VARIABLE "); at least 5s\n"
	"  --pod-resources SOCKET   the kubelet's pod-resources socket: what pods have stays "
	"listed\n"
	"  --listen ADDRESS:PORT    serve /metrics, /healthz, /readyz and /devices\n"
	"  --nvml-library PATH      libnvidia-ml.so.1; empty: never asked\n"
	"  --names FILE             own resource names, lines \"PROFILE: NAME\"\n"
	"  --pci-ids FILE           names of GPUs that are passed through whole\n"
	"  --health-file FILE       quarantines of a berthd on this host (" QUARANTINE_FILE ")\n"
	"  --sysfs-root DIR --dev-root DIR   where to look (/sys, /dev); answers always name /dev\n"
	"\n"
	"  --list                   print what would be offered, and end\n"
	"  --print-permitted        print permittedHostDevices for the KubeVirt resource, and end\n"
	"  --check                  say whether it could start here, and end\n"
	"  --json                   JSON for --list\n"
	"  --version, --help\n"
	"\n"
	"SIGHUP looks for changes at once. BERTH_LOG_LEVEL (error ... debug) sets what is logged.\n"
	"Examples:\n"
	"  berth-device-plugin --list\n"
	"  berth-device-plugin --rescan-interval 30s --listen 0.0.0.0:9410\n"
	"See berth-device-plugin(8).\n";

enum action { ACTION_SERVE, ACTION_LIST, ACTION_PERMITTED, ACTION_CHECK };

struct command {
	struct options options;
	const char *interval; /* NULL: not given */
	enum action action;
	bool json;
};

enum {
	OPTION_KUBELET_DIR = 256,
	OPTION_SYSFS_ROOT,
	OPTION_DEV_ROOT,
	OPTION_NVML_LIBRARY,
	OPTION_RESCAN_INTERVAL,
	OPTION_POD_RESOURCES,
	OPTION_LISTEN,
	OPTION_NAMES,
	OPTION_PCI_IDS,
	OPTION_HEALTH_FILE,
	OPTION_LIST,
	OPTION_PERMITTED,
	OPTION_CHECK,
	OPTION_JSON,
	OPTION_VERSION,
};

static const struct option long_options[] = {
	{ "kubelet-dir", required_argument, NULL, OPTION_KUBELET_DIR },
	{ "sysfs-root", required_argument, NULL, OPTION_SYSFS_ROOT },
	{ "dev-root", required_argument, NULL, OPTION_DEV_ROOT },
	{ "nvml-library", required_argument, NULL, OPTION_NVML_LIBRARY },
	{ "rescan-interval", required_argument, NULL, OPTION_RESCAN_INTERVAL },
	{ "pod-resources", required_argument, NULL, OPTION_POD_RESOURCES },
	{ "listen", required_argument, NULL, OPTION_LISTEN },
	{ "names", required_argument, NULL, OPTION_NAMES },
	{ "pci-ids", required_argument, NULL, OPTION_PCI_IDS },
	{ "health-file", required_argument, NULL, OPTION_HEALTH_FILE },
	{ "list", no_argument, NULL, OPTION_LIST },
	{ "print-permitted", no_argument, NULL, OPTION_PERMITTED },
	{ "check", no_argument, NULL, OPTION_CHECK },
	{ "json", no_argument, NULL, OPTION_JSON },
	{ "version", no_argument, NULL, OPTION_VERSION },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

/* --- Options --------------------------------------------------------------------------------- */

/* -1: go on; else the exit status. */
static int take_option(int c, struct command *cmd)
{
	switch (c) {
	case OPTION_KUBELET_DIR:
		cmd->options.kubelet_dir = optarg;
		return -1;
	case OPTION_SYSFS_ROOT:
		cmd->options.sysfs_root = optarg;
		return -1;
	case OPTION_DEV_ROOT:
		cmd->options.dev_root = optarg;
		return -1;
	case OPTION_NVML_LIBRARY:
		cmd->options.nvml_library = optarg;
		return -1;
	case OPTION_RESCAN_INTERVAL:
		cmd->interval = optarg;
		return -1;
	case OPTION_POD_RESOURCES:
		cmd->options.pod_resources = *optarg ? optarg : NULL;
		return -1;
	case OPTION_LISTEN:
		cmd->options.listen = *optarg ? optarg : NULL;
		return -1;
	case OPTION_NAMES:
		cmd->options.names_file = *optarg ? optarg : NULL;
		return -1;
	case OPTION_PCI_IDS:
		cmd->options.pci_ids = optarg;
		return -1;
	case OPTION_HEALTH_FILE:
		cmd->options.health_file = optarg;
		return -1;
	case OPTION_LIST:
		cmd->action = ACTION_LIST;
		return -1;
	case OPTION_PERMITTED:
		cmd->action = ACTION_PERMITTED;
		return -1;
	case OPTION_CHECK:
		cmd->action = ACTION_CHECK;
		return -1;
	case OPTION_JSON:
		cmd->json = true;
		return -1;
	case OPTION_VERSION:
		puts("berth-device-plugin " BERTH_VERSION);
		return EXIT_SUCCESS;
	case 'h':
		fputs(usage, stdout);
		return EXIT_SUCCESS;
	default:
		fputs("Try 'berth-device-plugin --help'.\n", stderr);
		return 2;
	}
}

static int parse_options(int argc, char **argv, struct command *cmd)
{
	int c, status = -1;

	while (status < 0 && (c = getopt_long(argc, argv, "h", long_options, NULL)) >= 0)
		status = take_option(c, cmd);
	if (status < 0 && optind < argc) {
		fprintf(stderr, "berth-device-plugin: unexpected argument: %s\n", argv[optind]);
		status = 2;
	}
	return status;
}

/* The option wins; the variable does not even have to make sense then. */
static int read_interval(struct command *cmd, struct error *err)
{
	const char *name = cmd->interval ? "--rescan-interval" : INTERVAL_VARIABLE;
	const char *value = cmd->interval ? cmd->interval : getenv(INTERVAL_VARIABLE);
	int r = rescan_interval_parse(name, value, &cmd->options.rescan, err);

	if (r == 0 && cmd->options.rescan.raised)
		log_warning("plugin: %s is %s; scans come every 5s, no oftener", name, value);
	return r;
}

static int read_names(struct plugin *p, struct error *err)
{
	_free_ char *text = NULL;
	size_t len;
	int r;

	if (!p->options.names_file)
		return 0;
	r = file_read_at(AT_FDCWD, p->options.names_file, NAMES_FILE_MAX, &text, &len);
	if (r < 0)
		return error_set_errno(err, r, "%s", p->options.names_file);
	if (name_map_parse(text, len, &p->names, err) < 0)
		return error_wrap(err, "%s", p->options.names_file);
	return 0;
}

/* --- Looking only ---------------------------------------------------------------------------- */

struct look {
	struct plugin *plugin;
	struct discovery *found;
	struct error err;
};

static void look_done(struct discovery *take, const struct scan_stats *stats,
		      const struct error *err, void *userdata)
{
	struct look *l = userdata;

	if (stats->nvml_text[0])
		log_warning("plugin: NVML could not name types: %s", stats->nvml_text);
	l->found = take;
	if (!take)
		l->err = *err;
	sd_event_exit(l->plugin->event, 0);
}

/* As it would be told to the kubelet, but for what pods have. */
static int judge(struct plugin *p, struct discovery *scanned, struct discovery **ret,
		 struct error *err)
{
	struct discovery *d;

	if (quarantine_load(p->options.health_file, &p->quarantine, err) < 0) {
		log_error("plugin: berthd's health file cannot be read: %s", error_text(err));
		*err = ERROR_INIT;
	}
	if (plugin_set_compute(scanned, NULL, &p->pods, &p->quarantine, &d) < 0)
		return error_set(err, ENOMEM, "out of memory");
	presence_look(&p->presence, p->options.sysfs_root, p->options.dev_root);
	for (unsigned i = 0; i < d->n_resources; i++)
		for (unsigned k = 0; k < d->resources[i].n_devices; k++)
			(void)presence_judge(&p->presence, &d->resources[i].devices[k]);
	*ret = d;
	return 0;
}

static int look(struct plugin *p, struct discovery **ret, struct error *err)
{
	struct look l = { .plugin = p };
	struct scan_config config = { .event = p->event,
				      .sysfs_root = p->options.sysfs_root,
				      .dev_root = p->options.dev_root,
				      .nvml_library = p->options.nvml_library,
				      .run_dir = p->run_dir,
				      .pci_ids = p->options.pci_ids,
				      .names = p->names,
				      .card_timeout_usec = LIST_CARD_TIMEOUT_USEC,
				      .wait_usec = LIST_CARD_TIMEOUT_USEC,
				      .nvml_timeout_usec = LIST_NVML_TIMEOUT_USEC,
				      .done = look_done,
				      .userdata = &l };
	int r;

	r = scan_new(&config, &p->scan, err);
	if (r < 0)
		return r;
	scan_request(p->scan);
	r = sd_event_loop(p->event);
	if (r < 0)
		return error_set_errno(err, r, "event loop");
	if (!l.found) {
		*err = l.err;
		return -EIO;
	}
	r = judge(p, l.found, ret, err);
	discovery_free(l.found);
	return r;
}

static int print_look(const struct command *cmd, struct plugin *p, struct error *err)
{
	_cleanup_(discovery_freep) struct discovery *d = NULL;
	_buf_ struct buf out = BUF_INIT;
	int r = look(p, &d, err);

	if (r < 0)
		return r;
	if (cmd->action == ACTION_PERMITTED)
		list_permitted(d, &out);
	else if (!cmd->json)
		list_table(d, &out);
	else if (list_json(d, &out) < 0)
		return error_set(err, ENOMEM, "out of memory");
	if (buf_finish(&out) < 0)
		return error_set(err, ENOMEM, "out of memory");
	if (fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout) != 0)
		return error_set_errno(err, errno, "standard output");
	return 0;
}

/* What a start would stumble over. */
static int check(struct plugin *p, struct error *err)
{
	_cleanup_(discovery_freep) struct discovery *d = NULL;
	int r;

	r = kubelet_check_folder(p->options.kubelet_dir, err);
	if (r < 0)
		return r;
	if (access(p->options.kubelet_dir, W_OK | X_OK) < 0)
		return error_set_errno(err, errno, "%s", p->options.kubelet_dir);
	r = look(p, &d, err);
	if (r < 0)
		return r;
	assert(d);
	printf("ok: %u resources, %u devices left out, rescans %s\n", d->n_resources, d->n_left_out,
	       p->options.rescan.usec ? "on" : "off");
	return 0;
}

/* --- Serving --------------------------------------------------------------------------------- */

static int stop_wanted(sd_event_source *source, const struct signalfd_siginfo *info, void *userdata)
{
	struct plugin *p = userdata;

	(void)source;
	if (info->ssi_signo == SIGHUP) {
		plugin_rescan(p);
		return 0;
	}
	log_notice("plugin: stopping signal=%s", sigabbrev_np((int)info->ssi_signo) ?: "?");
	sd_event_exit(p->event, 0);
	return 0;
}

static int add_signals(struct plugin *p)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP };
	sigset_t set;
	int r = 0;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		sigaddset(&set, signals[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(signals); i++)
		r = sd_event_add_signal(p->event, NULL, signals[i], stop_wanted, p);
	return r;
}

static int serve(struct plugin *p, struct error *err)
{
	int r;

	r = add_signals(p);
	if (r < 0)
		return error_set_errno(err, r, "signals");
	plugin_metrics_init(&p->metrics);
	r = plugin_start(p, err);
	if (r < 0)
		return r;
	if (p->options.listen) {
		r = service_new(p, err);
		if (r < 0)
			return r;
	}
	log_notice("plugin: " BERTH_VERSION " started kubelet_dir=%s rescans=%s",
		   p->options.kubelet_dir, p->options.rescan.usec ? "on" : "off");
	r = sd_event_loop(p->event);
	return r < 0 ? error_set_errno(err, r, "event loop") : 0;
}

static int run(const struct command *cmd, struct plugin *p, struct error *err)
{
	int r;

	p->options = cmd->options;
	r = read_names(p, err);
	if (r < 0)
		return r;
	r = sd_event_default(&p->event);
	if (r < 0)
		return error_set_errno(err, r, "event loop");
	switch (cmd->action) {
	case ACTION_SERVE:
		return serve(p, err);
	case ACTION_CHECK:
		return check(p, err);
	case ACTION_LIST:
	case ACTION_PERMITTED:
		return print_look(cmd, p, err);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct command cmd = { .options = { .kubelet_dir = "/var/lib/kubelet/device-plugins",
					    .sysfs_root = "/sys",
					    .dev_root = "/dev",
					    .nvml_library = "libnvidia-ml.so.1",
					    .health_file = QUARANTINE_FILE } };
	struct run_dir run_dir = RUN_DIR_INIT;
	struct error err = ERROR_INIT;
	struct plugin *p;
	int status, r;

	file_reserve_standard();
	status = parse_options(argc, argv, &cmd);
	if (status >= 0)
		return status;
	log_init("berth-device-plugin", LOG_LEVEL_INFO);
	mallopt(M_ARENA_MAX, 1); /* the scan's thread needs no heap of its own */
	p = calloc(1, sizeof *p);
	r = p ? read_interval(&cmd, &err) : error_set(&err, ENOMEM, "out of memory");
	if (r == 0)
		r = run_dir_make(&run_dir, &err);
	if (p && r == 0) {
		str_copy_cut(p->run_dir, sizeof p->run_dir, run_dir.path);
		r = run(&cmd, p, &err);
		service_done(p);
		plugin_done(p);
		sd_event_unref(p->event);
	}
	run_dir_done(&run_dir);
	free(p);
	if (r < 0)
		log_error("plugin: %s", error_text(&err));
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
