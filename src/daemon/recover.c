/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/recover-internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/allocate.h"
#include "daemon/cards.h"
#include "daemon/catalogue.h"
#include "daemon/reconcile.h"
#include "daemon/sentinel.h"
#include "daemon/snapshot.h"
#include "model/outcome.h"
#include "store/health-store.h"

#define LOOK_USEC (200 * USEC_PER_MSEC)

static void next(struct recovery *r);

/* --- Ends
 * ------------------------------------------------------------------------------------------------
 */

static void resume_nvml(struct recovery *r)
{
	if (!r->nvml_was_released)
		nvml_client_resume(r->node->nvml);
	snapshot_request(r->node);
}

static void fail(struct recovery *r, const char *why)
{
	str_copy_cut(r->detail, sizeof r->detail, why);
	r->state = RECOVERY_FAILED;
	log_error("recover: failed, card stays cordoned and its records as they are card=%s "
		  "step=%s: %s",
		  recovery_card_text(r), recovery_step_name(r), why);
	if (r->step >= STEP_STOP_NVML)
		resume_nvml(r);
	recovery_remember(r);
	recovery_publish(r);
	recovery_tell_started(r, -E_INTERNAL, why);
}

void recovery_advance(struct recovery *r)
{
	r->step++;
	r->service = 0;
	if (r->step == STEP_WAIT_FOR_VFS)
		r->sriov_seq = node_next_seq(r->node);
	r->step_deadline_usec = clock_now_usec() + r->config->recover_timeout_usec;
	log_notice("recover: step card=%s step=%s", recovery_card_text(r), recovery_step_name(r));
	recovery_remember(r);
	recovery_publish(r);
	fault_point("recover.step");
	next(r);
}

/* --- Commands
 * ---------------------------------------------------------------------------------------------- */

static void command_ended(int status, const char *output, void *userdata)
{
	struct recovery *r = userdata;
	char what[64], why[NODE_TEXT_MAX];

	r->command = NULL;
	command_describe(status, what, sizeof what);
	if (*output)
		log_info("recover: output card=%s step=%s: %s", recovery_card_text(r),
			 recovery_step_name(r), output);
	if (*what) {
		snprintf(why, sizeof why, "%s%s%.120s", what, *output ? ": " : "", output);
		fail(r, why);
		return;
	}
	if (r->step == STEP_STOP_SERVICES || r->step == STEP_START_SERVICES) {
		r->service++;
		next(r);
		return;
	}
	recovery_advance(r);
}

static void run(struct recovery *r, const char *line)
{
	char vf[PCI_ADDR_MAX] = "", sysfs[512] = "";
	const struct command_word words[] = { { "gpu", recovery_card_text(r) },
					      { "vf", vf },
					      { "sysfs", sysfs } };
	uint64_t now = clock_now_usec();
	struct error err = ERROR_INIT;

	if (r->card->n_vfs > 0) {
		pci_addr_format(r->card->vfs[0].address, vf);
		snprintf(sysfs, sizeof sysfs, "%s/bus/pci/devices/%s", r->node->config->sysfs_root,
			 vf);
	}
	if (command_start(r->node->event, line, words, ARRAY_SIZE(words),
			  r->step_deadline_usec > now ? r->step_deadline_usec - now : 1,
			  command_ended, r, &r->command, &err) < 0)
		fail(r, error_text(&err));
}

/* A single word is a systemd unit, anything longer a command. */
static void run_service(struct recovery *r, char *const *services, size_t n, const char *verb)
{
	_free_ char *line = NULL;

	if (r->service == n) {
		recovery_advance(r);
		return;
	}
	if (strchr(services[r->service], ' '))
		line = strdup(services[r->service]);
	else
		line = str_printf("systemctl %s %s", verb, services[r->service]);
	if (line)
		run(r, line);
	else
		fail(r, "out of memory");
}

static void run_sriov(struct recovery *r, const char *flag)
{
	_free_ char *line = str_printf("%s %s {gpu}", r->config->recover_sriov_manage, flag);

	if (line)
		run(r, line);
	else
		fail(r, "out of memory");
}

/* --- Waiting
 * ------------------------------------------------------------------------------------------------
 */

static int look_again(sd_event_source *source, uint64_t usec, void *userdata)
{
	(void)source;
	(void)usec;
	next(userdata);
	return 0;
}

static void wait_a_little(struct recovery *r, const char *what)
{
	uint64_t at = clock_now_usec() + LOOK_USEC;

	if (at > r->step_deadline_usec) {
		fail(r, what);
		return;
	}
	if (!r->timer) {
		if (sd_event_add_time(r->node->event, &r->timer, CLOCK_MONOTONIC, at, 0, look_again,
				      r) < 0)
			fail(r, "out of memory");
		return;
	}
	sd_event_source_set_time(r->timer, at);
	sd_event_source_set_enabled(r->timer, SD_EVENT_ONESHOT);
}

/* sriov-manage can exit 0 without having made the VFs, or before the driver has bound them. */
static void wait_for_vfs(struct recovery *r)
{
	struct node *n = r->node;
	unsigned usable = 0;
	char why[NODE_TEXT_MAX];

	for (unsigned i = 0; i < r->card->n_vfs; i++)
		usable += r->card->vfs[i].usable;
	if (r->card->present && n->scanned_seq > r->sriov_seq && r->card->read_seq > r->sriov_seq &&
	    !r->card->reading && usable >= r->expected_vfs) {
		recovery_advance(r);
		return;
	}
	if (n->scanned_seq <= r->sriov_seq)
		usable = 0;
	node_request_scan(n);
	snprintf(why, sizeof why, "%u of %u VFs came back", usable, r->expected_vfs);
	wait_a_little(r, why);
}

/* --- Steps
 * ---------------------------------------------------------------------------------------------------
 */

static void mode_set(const struct nvml_answer *answer, void *userdata)
{
	struct recovery *r = userdata;

	if (answer->reason != NVML_REASON_NONE)
		fail(r, answer->text);
	else if (answer->n_cards != 1 || answer->cards[0].mode != NVML_MODE_MIXED)
		fail(r, answer->n_cards ? answer->cards[0].text : "no answer for the card");
	else
		recovery_advance(r);
}

static void set_mixed_mode(struct recovery *r)
{
	if (!r->was_mixed) {
		recovery_advance(r);
		return;
	}
	if (!r->nvml_was_released)
		nvml_client_resume(r->node->nvml);
	if (nvml_client_set_mixed(r->node->nvml, r->card->address, mode_set, r) < 0)
		wait_a_little(r, "the NVML helper is busy");
}

static int clear_card(struct health *h, void *userdata)
{
	struct recovery *r = userdata;

	for (unsigned i = 0; i < r->card->n_vfs; i++)
		health_clear(h, r->card->vfs[i].address);
	return 0;
}

static void records_cleared(int result, const struct error *err, void *userdata)
{
	struct recovery *r = userdata;

	if (result < 0) {
		fail(r, error_text(err));
		return;
	}
	sentinel_health_changed(r->node);
	recovery_advance(r);
}

static void uncordoned(int result, const struct error *err, void *userdata)
{
	struct recovery *r = userdata;

	if (result < 0) {
		fail(r, error_text(err));
		return;
	}
	catalogue_set_cordon(r->node, r->card, r->was_cordoned);
	r->step = STEP_DONE;
	r->state = RECOVERY_DONE;
	recovery_store(r->node, r->card, NULL);
	log_notice("recover: card is back card=%s vfs=%u", recovery_card_text(r), r->card->n_vfs);
	snapshot_request(r->node);
	recovery_publish(r);
	allocate_capacity_changed(r->node);
}

static void cordoned(int result, const struct error *err, void *userdata)
{
	struct recovery *r = userdata;

	if (result < 0) {
		fail(r, error_text(err));
		return;
	}
	recovery_tell_started(r, 0, "");
	recovery_advance(r);
}

static void store_cordon(struct recovery *r, bool value, store_done_fn done)
{
	struct store_op *op = calloc(1, sizeof *op);
	int result = -ENOMEM;

	if (op) {
		op->kind = STORE_OP_CORDON;
		op->card = r->card->address;
		op->cordoned = value;
		result = claim_store_submit(r->node->store, op, 1, done, r);
	}
	free(op);
	if (result < 0)
		fail(r, "the claims database takes nothing now");
}

static void next(struct recovery *r)
{
	struct node *n = r->node;
	const struct config *config = r->config;

	switch (r->step) {
	case STEP_CHECK:
	case STEP_DONE:
		return;
	case STEP_CORDON:
		store_cordon(r, true, cordoned);
		return;
	case STEP_STOP_NVML:
		nvml_client_release(n->nvml);
		if (nvml_client_pid(n->nvml) == 0)
			recovery_advance(r);
		else
			wait_a_little(r, "the NVML helper does not end");
		return;
	case STEP_STOP_SERVICES:
		run_service(r, config->recover_services_stop, config->n_recover_services_stop,
			    "stop");
		return;
	case STEP_SRIOV_OFF:
		run_sriov(r, "-d");
		return;
	case STEP_SRIOV_ON:
		run_sriov(r, "-e");
		return;
	case STEP_WAIT_FOR_VFS:
		wait_for_vfs(r);
		return;
	case STEP_MIXED_MODE:
		set_mixed_mode(r);
		return;
	case STEP_START_SERVICES:
		resume_nvml(r);
		run_service(r, config->recover_services_start, config->n_recover_services_start,
			    "start");
		return;
	case STEP_VERIFY:
		if (config->recover_verify)
			run(r, config->recover_verify);
		else
			recovery_advance(r);
		return;
	case STEP_CLEAR_RECORDS:
		if (health_store_change(n->health, clear_card, records_cleared, r) < 0)
			fail(r, "the health records cannot be changed now");
		return;
	case STEP_UNCORDON:
		store_cordon(r, r->was_cordoned, uncordoned);
		return;
	}
}
