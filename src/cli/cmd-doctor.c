/* SPDX-License-Identifier: Apache-2.0 */
/* `berth doctor`: gathers what can be seen, has it checked, prints the report. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/doctor/doctor.h"
#include "cli/doctor/probe.h"
#include "cli/terminal.h"

#define DEFAULT_CONFIG	    "/etc/berth/berthd.yaml"
#define DEFAULT_KUBELET_DIR "/var/lib/kubelet/device-plugins"

enum { OPT_CONFIG = CLI_OPT_OWN, OPT_KUBELET, OPT_NO_NVML, OPT_LIST };

struct options {
	const char *config, *kubelet_dir;
	bool no_nvml, list;
};

static int parse(struct cli *cli, int argc, char **argv, struct options *o)
{
	static const struct option options[] = {
		CLI_COMMON_OPTIONS,
		{ "config", required_argument, NULL, OPT_CONFIG },
		{ "kubelet-dir", required_argument, NULL, OPT_KUBELET },
		{ "no-nvml", no_argument, NULL, OPT_NO_NVML },
		{ "list", no_argument, NULL, OPT_LIST },
		{ 0 },
	};
	int opt, r;

	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (opt) {
		case OPT_CONFIG:
			o->config = optarg;
			break;
		case OPT_KUBELET:
			o->kubelet_dir = optarg;
			break;
		case OPT_NO_NVML:
			o->no_nvml = true;
			break;
		case OPT_LIST:
			o->list = true;
			break;
		default:
			r = cli_common_option(cli, opt);
			if (r != CLI_GO_ON)
				return r;
		}
	}
	return cli_check_args(cli, argc, 0, 0);
}

/* Of no use to be given back: the program ends right after. */
static int share_memory(struct doctor *d)
{
	d->host = doctor_probe_memory(sizeof *d->host);
	d->types = doctor_probe_memory(sizeof *d->types * INVENTORY_CARDS_MAX);
	d->files = doctor_probe_memory(sizeof *d->files);
	d->processes = doctor_probe_memory(sizeof *d->processes);
	d->nvml = doctor_probe_memory(sizeof *d->nvml);
	return d->host && d->types && d->files && d->processes && d->nvml ? 0 : -ENOMEM;
}

static bool there_are_vfs(const struct doctor_host *h)
{
	for (unsigned i = 0; i < h->n_cards; i++)
		if (h->cards[i].n_vfs > 0 && h->framework == FRAMEWORK_VENDOR_VFIO)
			return true;
	return false;
}

static void gather(struct doctor *d)
{
	doctor_ask_daemon(d);
	doctor_look_at_host(d);
	doctor_look_at_files(d);
	doctor_look_at_processes(d);
	if (d->status)
		return;
	doctor_read_types(d);
	if (d->use_nvml && *d->config->nvml_library && there_are_vfs(d->host))
		doctor_ask_nvml(d);
}

static void check(struct doctor *d)
{
	static void (*const checks[])(struct doctor * d) = {
		doctor_check_config,   doctor_check_access,   doctor_check_data,
		doctor_check_consoles, doctor_check_tls,      doctor_check_clock,
		doctor_check_cards,    doctor_check_vfs,      doctor_check_vfio,
		doctor_check_sysfs,    doctor_check_driver,   doctor_check_nvml,
		doctor_check_mode,     doctor_check_response, doctor_check_stores,
		doctor_check_claims,   doctor_check_health,   doctor_check_reconcile,
		doctor_check_handles,  doctor_check_recover,  doctor_check_plugin,
	};

	for (size_t i = 0; i < ARRAY_SIZE(checks); i++)
		checks[i](d);
}

static int print_json(json_t *json)
{
	int r;

	if (!json)
		return cli_error(EXIT_STATUS_ERROR, "out of memory");
	r = cli_print_json(json);
	json_decref(json);
	return r;
}

static int print_text(const struct doctor_report *report)
{
	struct terminal terminal = terminal_probe();
	_buf_ struct buf out = BUF_INIT;

	if (report)
		doctor_report_text(report, &terminal, &out);
	else
		doctor_list_text(&terminal, &out);
	if (buf_finish(&out) < 0)
		return cli_error(EXIT_STATUS_ERROR, "out of memory");
	return cli_print(out.data);
}

static int examine(struct doctor *d)
{
	int r;

	if (share_memory(d) < 0 || doctor_read_config(d) < 0)
		return cli_error(EXIT_STATUS_ERROR, "out of memory");
	/* --socket and BERTH_SOCKET name another daemon; else it is the one of these settings. */
	if (!d->cli->socket_given)
		d->socket = d->config->socket;
	gather(d);
	check(d);
	r = d->cli->json ? print_json(doctor_report_json(&d->report)) : print_text(&d->report);
	return r == EXIT_STATUS_OK ? doctor_report_exit_status(&d->report) : r;
}

static int run_doctor(struct cli *cli, int argc, char **argv)
{
	struct options o = { .kubelet_dir = DEFAULT_KUBELET_DIR };
	struct doctor d = { .cli = cli };
	int r = parse(cli, argc, argv, &o);

	if (r != CLI_GO_ON)
		return r;
	if (o.list)
		return cli->json ? print_json(doctor_list_json()) : print_text(NULL);
	d.config_path = o.config ?: DEFAULT_CONFIG;
	d.config_given = o.config != NULL;
	d.socket = cli->socket;
	d.kubelet_dir = o.kubelet_dir;
	d.use_nvml = !o.no_nvml;
	d.root = geteuid() == 0;
	r = examine(&d);
	doctor_report_done(&d.report);
	config_free(d.config);
	free(d.health_path);
	json_decref(d.status);
	json_decref(d.gpus);
	json_decref(d.claims);
	return r;
}

const struct cli_command cli_doctor = {
	.name = "doctor",
	.args = "[OPTION...]",
	.summary = "Say what is wrong on this host and how to mend it",
	.help = "Looks at the cards, the driver, NVML, VFIO, files and modes, and at berthd where\n"
		"it answers. Works without berthd and without root, and then says what it could\n"
		"not look at. Changes nothing.\n"
		"\n"
		"Options:\n"
		"  --config FILE      berthd's settings (default " DEFAULT_CONFIG ")\n"
		"  --no-nvml          without berthd: do not load NVIDIA's library\n"
		"  --kubelet-dir DIR  where device plugins have their sockets\n"
		"                     (default " DEFAULT_KUBELET_DIR ")\n"
		"  --list             print every finding there is and end\n"
		"\n"
		"Exit status: 0 nothing to mend, 6 warnings, 7 errors; 1 and 2 as for the other\n"
		"commands. berth-doctor(7) explains each finding.\n"
		"\n"
		"Examples:\n"
		"  sudo berth doctor\n"
		"  berth doctor --json | jq -r '.findings[] | .severity + \" \" + .id'\n"
		"  berth doctor --config /tmp/host/berthd.yaml\n",
	.run = run_doctor,
};
