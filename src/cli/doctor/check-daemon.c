/* SPDX-License-Identifier: Apache-2.0 */
/* What berthd knows: stores, claims, sick VFs, reconciliation; and what stands in its way. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/doctor/doctor.h"

/* Of what berthd tries again: so many in a row are no accident. */
#define FAILURES_MIN 3

static bool daemon_is_known(struct doctor *d, enum doctor_check c)
{
	if (d->status)
		return true;
	doctor_report_not_made(&d->report, c, "only berthd knows, and %s", d->no_daemon);
	return false;
}

void doctor_check_stores(struct doctor *d)
{
	static const struct {
		const char *key;
		enum doctor_id id;
	} stores[] = { { "claims_store", DOCTOR_CLAIMS_STORE_UNAVAILABLE },
		       { "health_store", DOCTOR_HEALTH_STORE_UNAVAILABLE } };
	char state[CLI_FIELD_SIZE], reason[CLI_FIELD_SIZE];

	if (!daemon_is_known(d, DOCTOR_CHECK_STORES))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(stores); i++) {
		const json_t *store = json_object_get(d->status, stores[i].key);

		if (strcmp(cli_field(store, "state", state, sizeof state), "ready") == 0)
			continue;
		if (strcmp(state, "unreadable") == 0)
			doctor_report_add(&d->report, stores[i].id, stores[i].key, "%s",
					  cli_field(store, "reason", reason, sizeof reason));
		else
			doctor_report_not_made(&d->report, DOCTOR_CHECK_STORES, "%s is %s",
					       stores[i].key, state);
	}
	doctor_report_made(&d->report, DOCTOR_CHECK_STORES);
}

/* --- Claims ---------------------------------------------------------------------------------- */

static void check_problems(struct doctor *d)
{
	const json_t *claim;
	size_t i;

	json_array_foreach(cli_field_array(d->claims, "claims"), i, claim) {
		char name[CLI_FIELD_SIZE], problem[CLI_FIELD_SIZE], vf[CLI_FIELD_SIZE];

		if (cli_field_is_set(claim, "problem"))
			doctor_report_add(&d->report, DOCTOR_CLAIM_PROBLEM,
					  cli_field(claim, "name", name, sizeof name),
					  "%s, its VF is %s",
					  cli_field(claim, "problem", problem, sizeof problem),
					  cli_field(claim, "vf", vf, sizeof vf));
	}
}

static void check_unclaimed(struct doctor *d)
{
	const json_t *gpu, *vf;
	size_t i, k;

	json_array_foreach(cli_field_array(d->gpus, "gpus"), i, gpu) {
		struct doctor_group open = { 0 }, shut = { 0 };
		char card[CLI_FIELD_SIZE];

		json_array_foreach(cli_field_array(gpu, "vfs"), k, vf) {
			char address[CLI_FIELD_SIZE], text[CLI_FIELD_SIZE];

			if (strcmp(cli_field(vf, "state", text, sizeof text), "unclaimed") != 0 ||
			    cli_field_is_set(vf, "excluded"))
				continue;
			cli_field(vf, "address", address, sizeof address);
			cli_field(vf, "profile", text, sizeof text);
			doctor_group_add(cli_field_is_set(vf, "unclaimed_open") ? &open : &shut,
					 address, text);
		}
		cli_field(gpu, "address", card, sizeof card);
		doctor_group_report(d, DOCTOR_VF_UNCLAIMED_OPEN, card, &open);
		doctor_group_report(d, DOCTOR_VF_UNCLAIMED, card, &shut);
	}
}

/* Without the daemon all that can be said is what is configured. */
static void check_types(struct doctor *d)
{
	for (unsigned i = 0; i < d->host->n_cards; i++) {
		const struct inventory_card *c = &d->host->cards[i];
		struct doctor_group configured = { 0 };
		char vf[PCI_ADDR_MAX], card[PCI_ADDR_MAX], what[64];

		for (unsigned k = 0; k < c->n_vfs; k++) {
			if (!d->types[i].asked || d->types[i].error < 0 ||
			    d->types[i].errors[k] < 0 || d->types[i].types[k] == 0)
				continue;
			snprintf(what, sizeof what, "type %u; whose it is only berthd knows",
				 d->types[i].types[k]);
			doctor_group_add(&configured, pci_addr_format(c->vfs[k].address, vf), what);
		}
		doctor_group_report(d, DOCTOR_VF_UNCLAIMED, pci_addr_format(c->address, card),
				    &configured);
	}
}

void doctor_check_claims(struct doctor *d)
{
	if (!d->status)
		check_types(d);
	if (!daemon_is_known(d, DOCTOR_CHECK_CLAIMS))
		return;
	if (!d->claims)
		doctor_report_not_made(&d->report, DOCTOR_CHECK_CLAIMS, "%s", d->no_claims);
	check_problems(d);
	check_unclaimed(d);
	doctor_report_made(&d->report, DOCTOR_CHECK_CLAIMS);
}

/* --- Health, reconciliation, recovery --------------------------------------------------------- */

void doctor_check_health(struct doctor *d)
{
	const json_t *gpu, *vf;
	size_t i, k;

	if (!daemon_is_known(d, DOCTOR_CHECK_HEALTH))
		return;
	json_array_foreach(cli_field_array(d->gpus, "gpus"), i, gpu) {
		struct doctor_group sick = { 0 }, failing = { 0 };
		char card[CLI_FIELD_SIZE], address[CLI_FIELD_SIZE], since[CLI_FIELD_SIZE];
		char what[CLI_FIELD_SIZE + 16];

		cli_field(gpu, "address", card, sizeof card);
		if (cli_field_is_set(gpu, "cordoned"))
			doctor_report_add(&d->report, DOCTOR_CARD_CORDONED, card,
					  "by berth gpu cordon, or by a recovery");
		json_array_foreach(cli_field_array(gpu, "vfs"), k, vf) {
			cli_field(vf, "address", address, sizeof address);
			snprintf(what, sizeof what, "since %s",
				 cli_field(vf, "quarantined_at", since, sizeof since));
			if (cli_field_is_set(vf, "quarantined"))
				doctor_group_add(&sick, address, what);
			else if (json_array_size(cli_field_array(vf, "failures")) > 0)
				doctor_group_add(&failing, address,
						 "the driver of a guest failed to start on it");
		}
		doctor_group_report(d, DOCTOR_VF_QUARANTINED, card, &sick);
		doctor_group_report(d, DOCTOR_VF_FAILING, card, &failing);
	}
	doctor_report_made(&d->report, DOCTOR_CHECK_HEALTH);
}

void doctor_check_reconcile(struct doctor *d)
{
	const json_t *reconcile = json_object_get(d->status, "reconcile"), *row;
	json_int_t interval = cli_field_int(reconcile, "interval_ms", 60000);
	size_t i;

	if (!daemon_is_known(d, DOCTOR_CHECK_RECONCILE))
		return;
	if (!cli_field_array(reconcile, "failures"))
		doctor_report_not_made(&d->report, DOCTOR_CHECK_RECONCILE,
				       "berthd does not say what failed");
	json_array_foreach(cli_field_array(reconcile, "failures"), i, row) {
		char stage[CLI_FIELD_SIZE];
		json_int_t count = cli_field_int(row, "count", 0);
		json_int_t age = cli_field_int(row, "last_ms_ago", 0);

		cli_field(row, "stage", stage, sizeof stage);
		/* VFs that were left alone since they are open: no failure. */
		if (str_ends_with(stage, "_vf_open") || count < FAILURES_MIN || age > 2 * interval)
			continue;
		doctor_report_add(&d->report, DOCTOR_RECONCILE_FAILING, stage,
				  "stage %s failed %lld times, the last time %lld s ago", stage,
				  (long long)count, (long long)age / 1000);
	}
	doctor_report_made(&d->report, DOCTOR_CHECK_RECONCILE);
}

void doctor_check_handles(struct doctor *d)
{
	const struct doctor_processes *p = d->processes;

	if (!p->known) {
		doctor_report_not_made(&d->report, DOCTOR_CHECK_HANDLES,
				       "looking through /proc did not end within 10 s");
		return;
	}
	if (d->status && p->daemon_pid == 0)
		doctor_report_not_made(&d->report, DOCTOR_CHECK_HANDLES,
				       "berthd's process is not to be found in %s",
				       d->config->proc_root);
	else if (d->status && !p->daemon_may_trace)
		doctor_report_add(&d->report, DOCTOR_SCAN_BLIND, "berthd",
				  "its process %d lacks CAP_SYS_PTRACE", (int)p->daemon_pid);
	else if (d->status && p->daemon_own_pids)
		doctor_report_add(&d->report, DOCTOR_SCAN_BLIND, "berthd",
				  "its process %d is in a PID namespace of its own",
				  (int)p->daemon_pid);
	if (!d->root) {
		doctor_report_not_made(&d->report, DOCTOR_CHECK_HANDLES,
				       "only root sees what other processes have open");
		return;
	}
	if (p->scan_error < 0 && !doctor_report_has(&d->report, DOCTOR_SCAN_BLIND, NULL)) {
		if (d->status)
			doctor_report_not_made(&d->report, DOCTOR_CHECK_HANDLES,
					       "from here it cannot be seen: %s", p->scan_text);
		else
			doctor_report_add(&d->report, DOCTOR_SCAN_BLIND, d->config->proc_root, "%s",
					  p->scan_text);
	} else if (p->scan_partial) {
		doctor_report_add(&d->report, DOCTOR_SCAN_PARTIAL, d->config->proc_root,
				  "the descriptors of single processes are hidden from root here");
	}
	doctor_report_made(&d->report, DOCTOR_CHECK_HANDLES);
}

/* NVIDIA's vGPU services have to run, and sriov-manage puts up with them; berth's own helpers are
 * stopped by a recovery itself. */
static bool is_in_the_way(const char *name)
{
	static const char *const others[] = { "nvidia-vgpu-mgr", "nvidia-vgpud", "berth-nvml",
					      "berthd" };

	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (str_starts_with(name, others[i]))
			return false;
	return true;
}

static void check_holders(struct doctor *d)
{
	const struct doctor_processes *p = d->processes;
	_buf_ struct buf list = BUF_INIT, names = BUF_INIT;

	for (unsigned i = 0; i < p->n_holders; i++) {
		const char *name = p->holders[i].unit[0] ? p->holders[i].unit : p->holders[i].name;

		if (!is_in_the_way(p->holders[i].name))
			continue;
		buf_printf(&list, "%spid %d (%s) has %s open", list.len ? ", " : "",
			   (int)p->holders[i].pid, p->holders[i].name, p->holders[i].node);
		if (!names.data || !strstr(names.data, name))
			buf_printf(&names, "%s%s", names.len ? ", " : "", name);
	}
	if (list.len == 0 || buf_finish(&list) < 0 || buf_finish(&names) < 0)
		return;
	doctor_report_add(&d->report, DOCTOR_CARD_HELD, names.data, "%s", list.data);
	if (d->config->n_recover_services_stop == 0)
		doctor_report_add(&d->report, DOCTOR_SERVICES_STOP_EMPTY, names.data,
				  "recover.services_stop names nothing");
}

void doctor_check_recover(struct doctor *d)
{
	const struct doctor_path *manage = &d->files->sriov_manage;
	char card[CLI_FIELD_SIZE], state[CLI_FIELD_SIZE], step[CLI_FIELD_SIZE];
	const json_t *gpu;
	size_t i;

	if (!d->files->known)
		doctor_report_not_made(&d->report, DOCTOR_CHECK_RECOVER,
				       "%s could not be looked at", manage->path);
	else if (manage->error < 0)
		doctor_report_add(&d->report, DOCTOR_SRIOV_MANAGE_MISSING, manage->path, "%s: %s",
				  manage->path, strerrordesc_np(-manage->error));
	else if (!S_ISREG(manage->mode))
		doctor_report_add(&d->report, DOCTOR_SRIOV_MANAGE_MISSING, manage->path,
				  "%s is no file", manage->path);
	else if (!(manage->mode & S_IXUSR))
		doctor_report_add(&d->report, DOCTOR_SRIOV_MANAGE_MISSING, manage->path,
				  "%s is not executable", manage->path);
	if (d->processes->known && d->processes->holders_error == 0)
		check_holders(d);
	else
		doctor_report_not_made(&d->report, DOCTOR_CHECK_RECOVER,
				       "only root sees which programs have the driver open");
	if (!d->status)
		doctor_report_not_made(&d->report, DOCTOR_CHECK_RECOVER,
				       "how the last recovery ended only berthd knows, and %s",
				       d->no_daemon);
	json_array_foreach(cli_field_array(d->gpus, "gpus"), i, gpu) {
		const json_t *recovery = json_object_get(gpu, "recovery");

		cli_field(recovery, "state", state, sizeof state);
		if (strcmp(state, "failed") == 0 || strcmp(state, "interrupted") == 0)
			doctor_report_add(&d->report, DOCTOR_RECOVERY_FAILED,
					  cli_field(gpu, "address", card, sizeof card),
					  "%s at step %s: %s", state,
					  cli_field(recovery, "step", step, sizeof step),
					  cli_field(recovery, "detail", state, sizeof state));
	}
	doctor_report_made(&d->report, DOCTOR_CHECK_RECOVER);
}

void doctor_check_plugin(struct doctor *d)
{
	const char *unclaimed = json_string_value(
		json_object_get(json_object_get(d->status, "settings"), "unclaimed_vfs"));
	bool reset = unclaimed ? strcmp(unclaimed, "reset") == 0
			       : d->config->unclaimed_vfs == CONFIG_UNCLAIMED_RESET;
	bool exposed = false;

	if (!d->processes->known || !d->host->known) {
		doctor_report_not_made(&d->report, DOCTOR_CHECK_PLUGIN,
				       "the host's processes or cards could not be listed");
		return;
	}
	if (d->processes->sockets_error < 0)
		doctor_report_not_made(&d->report, DOCTOR_CHECK_PLUGIN, "%s: %s", d->kubelet_dir,
				       strerrordesc_np(-d->processes->sockets_error));
	for (unsigned i = 0; i < d->host->n_cards; i++)
		exposed |= d->host->cards[i].n_vfs > 0 &&
			   !doctor_is_excluded(d, d->host->cards[i].address);
	if (d->processes->n_plugins > 0 && reset && exposed)
		doctor_report_add(&d->report, DOCTOR_PLUGIN_AND_RESET, d->processes->plugins[0],
				  "%s is there, unclaimed_vfs is reset, and not every card is in "
				  "gpu.exclude",
				  d->processes->plugins[0]);
	doctor_report_made(&d->report, DOCTOR_CHECK_PLUGIN);
}
