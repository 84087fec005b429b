/* SPDX-License-Identifier: Apache-2.0 */
/* The driver: its version, NVML, the cards' modes, whether it answers. */
#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "cli/doctor/doctor.h"
#include "cli/doctor/texts.h"
#include "nvml/message.h"

#define NVML_LIB_RM_VERSION_MISMATCH 18
#define PLACEMENTS_OLD_FACTOR	     3U

/* What NVML says the driver's version is, from whoever asked it. */
static const char *nvml_driver(const struct doctor *d, char *buf, size_t size)
{
	if (cli_field_is_set(d->status, "driver_version"))
		return cli_field(d->status, "driver_version", buf, size);
	return d->nvml->driver;
}

/* --- Version --------------------------------------------------------------------------------- */

void doctor_check_driver(struct doctor *d)
{
	char text[CLI_FIELD_SIZE];
	const char *module = d->host->module_version, *nvml = nvml_driver(d, text, sizeof text);
	const char *version = *module ? module : nvml;
	unsigned branch = doctor_branch(version);

	if (*module && *nvml && strcmp(module, nvml) != 0)
		doctor_report_add(&d->report, DOCTOR_DRIVER_MISMATCH, "nvidia",
				  "the loaded module is %s, NVML says %s", module, nvml);
	if (branch == 0) {
		doctor_report_not_made(&d->report, DOCTOR_CHECK_DRIVER,
				       "neither module/nvidia/version in sysfs nor NVML tells it");
		return;
	}
	if (branch < 550)
		doctor_report_add(&d->report, DOCTOR_DRIVER_TOO_OLD, "nvidia", "it is %s", version);
	else if (branch < 570)
		doctor_report_add(&d->report, DOCTOR_DRIVER_BEFORE_570, "nvidia", "it is %s",
				  version);
	doctor_report_made(&d->report, DOCTOR_CHECK_DRIVER);
}

/* --- NVML ------------------------------------------------------------------------------------ */

/* A sentence of the dynamic linker's, or of nvml/load.c. */
static enum doctor_id library_fault(const char *text)
{
	if (strstr(text, "does not export"))
		return DOCTOR_NVML_SYMBOL_MISSING;
	if (strstr(text, "No such file"))
		return DOCTOR_NVML_LIBRARY_MISSING;
	return DOCTOR_NVML_LIBRARY_UNUSABLE;
}

static void add_host_fault(struct doctor *d, const char *reason, int code, const char *text)
{
	const char *library = d->config->nvml_library;
	enum doctor_id id = DOCTOR_NVML_ERROR;

	if (code == NVML_LIB_RM_VERSION_MISMATCH) {
		if (!doctor_report_has(&d->report, DOCTOR_DRIVER_MISMATCH, NULL))
			doctor_report_add(&d->report, DOCTOR_DRIVER_MISMATCH, "nvidia",
					  "%s; the loaded module is %s", text,
					  d->host->module_version[0] ? d->host->module_version
								     : "of an unknown version");
		return;
	}
	if (code == 0 && strstr(text, "berth-nvml") && strstr(text, "No such file"))
		id = DOCTOR_NVML_HELPER_MISSING;
	else if (strcmp(reason, "library") == 0 && code == 0)
		id = library_fault(text);
	else if (strcmp(reason, "timeout") == 0)
		id = DOCTOR_NVML_HANGS;
	doctor_report_add(&d->report, id, library, "%s", text);
}

static void check_daemon_nvml(struct doctor *d)
{
	const json_t *nvml = json_object_get(d->status, "nvml"), *gpu;
	char state[CLI_FIELD_SIZE], reason[CLI_FIELD_SIZE], text[CLI_FIELD_SIZE];
	json_int_t age = cli_field_int(d->status, "placements_age_ms", -1);
	uint64_t limit = PLACEMENTS_OLD_FACTOR *
			 (uint64_t)cli_field_int(json_object_get(d->status, "reconcile"),
						 "interval_ms", 60000);
	size_t i;

	cli_field(nvml, "state", state, sizeof state);
	if (strcmp(state, "released") == 0)
		doctor_report_add(&d->report, DOCTOR_NVML_RELEASED, "berthd",
				  "berthd's helper is stopped by hand");
	else if (cli_field_is_set(nvml, "reason"))
		add_host_fault(d, cli_field(nvml, "reason", reason, sizeof reason),
			       (int)cli_field_int(nvml, "code", 0),
			       cli_field(nvml, "detail", text, sizeof text));
	else if (age < 0)
		doctor_report_not_made(&d->report, DOCTOR_CHECK_NVML,
				       "berthd has no placements from it yet");
	if (age >= 0 && (uint64_t)age > limit && !cli_field_is_set(nvml, "reason"))
		doctor_report_add(&d->report, DOCTOR_PLACEMENTS_OLD, "berthd",
				  "they are %lld s old", (long long)age / 1000);
	json_array_foreach(cli_field_array(d->gpus, "gpus"), i, gpu) {
		char card[CLI_FIELD_SIZE];

		cli_field(gpu, "address", card, sizeof card);
		if (cli_field_is_set(gpu, "drift"))
			doctor_report_add(&d->report, DOCTOR_PLACEMENT_DRIFT, card,
					  "NVML and the VFs disagree since at least two looks");
		cli_field(gpu, "fallback", reason, sizeof reason);
		/* The host's own has been said. */
		if (cli_field_is_set(nvml, "reason") ||
		    (strcmp(reason, "error") != 0 && strcmp(reason, "timeout") != 0))
			continue;
		doctor_report_add(&d->report, DOCTOR_CARD_NVML_ERROR, card, "%s",
				  cli_field(gpu, "fallback_detail", text, sizeof text));
	}
}

static void check_own_nvml(struct doctor *d)
{
	const struct doctor_nvml *n = d->nvml;
	const char *reason = nvml_reason_name((enum nvml_reason)n->reason);

	if (n->error == -ETIMEDOUT) {
		doctor_report_add(&d->report, DOCTOR_NVML_HANGS, d->config->nvml_library,
				  "no answer within %llu ms",
				  (unsigned long long)d->config->nvml_timeout_usec / 1000);
		return;
	}
	if (n->error < 0) {
		doctor_report_not_made(&d->report, DOCTOR_CHECK_NVML, "NVML could not be asked: %s",
				       strerrordesc_np(-n->error));
		return;
	}
	if (reason)
		add_host_fault(d, reason, n->nvml_error, n->text);
	for (unsigned i = 0; i < n->n_cards; i++) {
		char card[PCI_ADDR_MAX];

		pci_addr_format(n->cards[i].address, card);
		if (n->cards[i].reason == NVML_REASON_ERROR ||
		    n->cards[i].reason == NVML_REASON_TIMEOUT)
			doctor_report_add(&d->report, DOCTOR_CARD_NVML_ERROR, card, "%s",
					  n->cards[i].text);
	}
}

void doctor_check_nvml(struct doctor *d)
{
	const json_t *nvml = json_object_get(d->status, "nvml");
	char state[CLI_FIELD_SIZE];

	if (d->config_read && !*d->config->nvml_library)
		doctor_report_add(&d->report, DOCTOR_NVML_OFF, "nvml_library", "it is empty");
	else if (nvml && strcmp(cli_field(nvml, "state", state, sizeof state), "off") == 0)
		doctor_report_add(&d->report, DOCTOR_NVML_OFF, "nvml_library",
				  "berthd runs without it");
	else if (d->status && !cli_field_is_set(nvml, "state"))
		doctor_report_not_made(&d->report, DOCTOR_CHECK_NVML,
				       "berthd does not say what NVML answers");
	else if (d->status)
		check_daemon_nvml(d);
	else if (d->nvml->asked)
		check_own_nvml(d);
	else if (d->use_nvml)
		doctor_report_not_made(&d->report, DOCTOR_CHECK_NVML,
				       "there are no VFs to ask it about");
	else
		doctor_report_not_made(&d->report, DOCTOR_CHECK_NVML, "%s, and --no-nvml was given",
				       d->no_daemon);
	doctor_report_made(&d->report, DOCTOR_CHECK_NVML);
}

/* --- Modes ----------------------------------------------------------------------------------- */

/* Another card of this name is in mixed-size mode. */
static bool has_mixed_like(const struct doctor *d, const char *name)
{
	const json_t *gpu;
	char text[CLI_FIELD_SIZE];
	size_t i;

	json_array_foreach(cli_field_array(d->gpus, "gpus"), i, gpu)
		if (strcmp(cli_field(gpu, "mode", text, sizeof text), "mixed") == 0 &&
		    strcmp(cli_field(gpu, "name", text, sizeof text), name) == 0)
			return true;
	return false;
}

static void check_equal(struct doctor *d, const json_t *gpu, const char *card)
{
	char name[CLI_FIELD_SIZE], reason[CLI_FIELD_SIZE];
	const json_t *recovery = json_object_get(gpu, "recovery");

	cli_field(gpu, "name", name, sizeof name);
	cli_field(gpu, "fallback", reason, sizeof reason);
	if (strcmp(reason, "unsupported") == 0)
		doctor_report_add(&d->report, DOCTOR_CARD_NO_PLACEMENTS, card, "%s",
				  cli_field(gpu, "fallback_detail", reason, sizeof reason));
	else if (cli_field_is_set(gpu, "seen_mixed") || cli_field_is_set(recovery, "was_mixed"))
		doctor_report_add(
			&d->report, DOCTOR_MIXED_MODE_LOST, card,
			"it is in equal-size mode; berthd has seen it in mixed-size mode");
	else if (has_mixed_like(d, name))
		doctor_report_add(&d->report, DOCTOR_MIXED_MODE_LOST, card,
				  "it is in equal-size mode; another %s is in mixed-size mode",
				  name);
	else
		doctor_report_add(&d->report, DOCTOR_CARD_EQUAL_SIZE, card,
				  "NVML says that mixed-size mode is off");
}

static uint32_t device_of(const struct doctor *d, struct pci_addr address)
{
	for (unsigned i = 0; i < d->host->n_cards; i++)
		if (pci_addr_equal(d->host->cards[i].address, address))
			return d->host->cards[i].device_id;
	return 0;
}

/* The number of cards that NVML tells nothing of. */
static unsigned check_own_modes(struct doctor *d)
{
	unsigned unknown = 0;

	for (unsigned i = 0; i < d->nvml->n_cards; i++) {
		uint32_t device = device_of(d, d->nvml->cards[i].address);
		bool mixed = false;
		char card[PCI_ADDR_MAX];

		for (unsigned k = 0; k < d->nvml->n_cards; k++)
			mixed |= d->nvml->cards[k].mode == NVML_MODE_MIXED &&
				 device_of(d, d->nvml->cards[k].address) == device;
		unknown += d->nvml->cards[i].mode == NVML_MODE_UNKNOWN;
		pci_addr_format(d->nvml->cards[i].address, card);
		if (d->nvml->cards[i].reason == NVML_REASON_UNSUPPORTED)
			doctor_report_add(&d->report, DOCTOR_CARD_NO_PLACEMENTS, card, "%s",
					  d->nvml->cards[i].text);
		else if (d->nvml->cards[i].mode == NVML_MODE_MIG)
			doctor_report_add(&d->report, DOCTOR_CARD_MIG, card, "NVML says so");
		else if (d->nvml->cards[i].mode == NVML_MODE_EQUAL && mixed)
			doctor_report_add(
				&d->report, DOCTOR_MIXED_MODE_LOST, card,
				"it is in equal-size mode; another card of its model is in "
				"mixed-size mode");
		else if (d->nvml->cards[i].mode == NVML_MODE_EQUAL)
			doctor_report_add(&d->report, DOCTOR_CARD_EQUAL_SIZE, card,
					  "NVML says that mixed-size mode is off");
	}
	return unknown;
}

void doctor_check_mode(struct doctor *d)
{
	char mode[CLI_FIELD_SIZE], card[CLI_FIELD_SIZE];
	unsigned unknown, known;
	const json_t *gpu;
	size_t i;

	unknown = check_own_modes(d);
	known = d->nvml->n_cards;
	json_array_foreach(cli_field_array(d->gpus, "gpus"), i, gpu) {
		cli_field(gpu, "mode", mode, sizeof mode);
		cli_field(gpu, "address", card, sizeof card);
		if (strcmp(mode, "equal") == 0)
			check_equal(d, gpu, card);
		else if (strcmp(mode, "mig") == 0)
			doctor_report_add(&d->report, DOCTOR_CARD_MIG, card, "NVML says so");
		else if (strcmp(mode, "mixed") != 0)
			unknown++;
		known++;
	}
	if (known > 0 && unknown == 0)
		doctor_report_made(&d->report, DOCTOR_CHECK_MODE);
	else
		doctor_report_not_made(&d->report, DOCTOR_CHECK_MODE,
				       "only NVML tells, and it was not asked or did not answer");
}

/* --- Does it answer? ------------------------------------------------------------------------- */

void doctor_check_response(struct doctor *d)
{
	unsigned asked = 0;
	const json_t *gpu;
	size_t i;

	json_array_foreach(cli_field_array(d->gpus, "gpus"), i, gpu) {
		char card[CLI_FIELD_SIZE], reason[CLI_FIELD_SIZE];

		asked++;
		if (cli_field_is_set(gpu, "stuck"))
			doctor_report_add(&d->report, DOCTOR_CARD_STUCK,
					  cli_field(gpu, "address", card, sizeof card), "%s",
					  cli_field(gpu, "stuck_reason", reason, sizeof reason));
	}
	for (unsigned k = 0; k < d->host->n_cards; k++) {
		char card[PCI_ADDR_MAX];

		asked += d->types[k].asked;
		if (d->types[k].asked && d->types[k].error < 0 && !d->types[k].stuck)
			doctor_report_not_made(&d->report, DOCTOR_CHECK_RESPONSE,
					       "%s: %u of %u VFs were read within %llu ms",
					       pci_addr_format(d->host->cards[k].address, card),
					       d->types[k].n_read, d->host->cards[k].n_vfs,
					       (unsigned long long)d->types[k].limit_usec / 1000);
		if (d->types[k].stuck)
			doctor_report_add(&d->report, DOCTOR_CARD_STUCK,
					  pci_addr_format(d->host->cards[k].address, card),
					  "reading current_vgpu_type of its VFs does not return");
	}
	if (asked > 0)
		doctor_report_made(&d->report, DOCTOR_CHECK_RESPONSE);
	else
		doctor_report_not_made(&d->report, DOCTOR_CHECK_RESPONSE,
				       "there is no card that could be asked");
}
