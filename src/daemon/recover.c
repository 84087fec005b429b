/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/recover.h"

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
#include "daemon/command.h"
#include "daemon/reconcile.h"
#include "daemon/sentinel.h"
#include "daemon/snapshot.h"
#include "model/outcome.h"
#include "store/health-store.h"

#define LOOK_USEC (200 * USEC_PER_MSEC)

enum recovery_step {
	STEP_CHECK,
	STEP_CORDON,
	STEP_STOP_NVML,
	STEP_STOP_SERVICES,
	STEP_SRIOV_OFF,
	STEP_SRIOV_ON,
	STEP_WAIT_FOR_VFS,
	STEP_MIXED_MODE,
	STEP_START_SERVICES,
	STEP_VERIFY,
	STEP_CLEAR_RECORDS,
	STEP_UNCORDON,
	STEP_DONE,
};

static const char *const step_names[] = {
	[STEP_CHECK] = "check",
	[STEP_CORDON] = "cordon",
	[STEP_STOP_NVML] = "stop_nvml",
	[STEP_STOP_SERVICES] = "stop_services",
	[STEP_SRIOV_OFF] = "sriov_off",
	[STEP_SRIOV_ON] = "sriov_on",
	[STEP_WAIT_FOR_VFS] = "wait_for_vfs",
	[STEP_MIXED_MODE] = "mixed_mode",
	[STEP_START_SERVICES] = "start_services",
	[STEP_VERIFY] = "verify",
	[STEP_CLEAR_RECORDS] = "clear_records",
	[STEP_UNCORDON] = "uncordon",
	[STEP_DONE] = "done",
};

enum recovery_state { RECOVERY_RUNNING, RECOVERY_FAILED, RECOVERY_DONE, RECOVERY_INTERRUPTED };

static const char *const state_names[] = {
	[RECOVERY_RUNNING] = "running",
	[RECOVERY_FAILED] = "failed",
	[RECOVERY_DONE] = "done",
	[RECOVERY_INTERRUPTED] = "interrupted",
};

struct recovery {
	struct node *node;
	struct card *card;
	enum recovery_state state;
	enum recovery_step step;
	char detail[NODE_TEXT_MAX];
	char started_at[CLOCK_RFC3339_MAX];
	bool was_cordoned, was_mixed, nvml_was_released;
	bool refused_cordon; /* the cordon to put back when the checks refuse */
	unsigned expected_vfs;
	uint64_t sriov_seq; /* when sriov-manage -e ended: what was seen before is of the old VFs */
	size_t service;	    /* index of the service command under way */
	uint64_t step_deadline_usec;
	struct command *command;
	sd_event_source *timer;
	recover_started_fn started;
	void *userdata;
	struct recovery
		*previous; /* until the checks are over: the card shows it again when they refuse */
};

static void next(struct recovery *r);

static const char *card_text(const struct recovery *r)
{
	static char text[PCI_ADDR_MAX]; /* the loop is one thread */

	return pci_addr_format(r->card->address, text);
}

struct recovery *recovery_free(struct recovery *r)
{
	if (!r)
		return NULL;
	command_free(r->command);
	sd_event_source_disable_unref(r->timer);
	recovery_free(r->previous);
	free(r);
	return NULL;
}

json_t *recover_json(const struct card *c)
{
	const struct recovery *r = c->recovery;

	if (!r)
		return json_null();
	return json_pack("{s:s,s:s,s:s?,s:s}", "state", state_names[r->state], "step",
			 step_names[r->step], "detail", r->detail[0] ? r->detail : NULL,
			 "started_at", r->started_at);
}

static void publish(struct recovery *r)
{
	json_t *data = recover_json(r->card);

	if (data)
		json_object_set_new(data, "gpu", json_string(card_text(r)));
	if (data && http_events_publish(r->node->events, "recover", data) < 0)
		log_debug("events: a recovery event was not published, ignoring");
	node_changed(r->node);
}

static void tell_started(struct recovery *r, int code, const char *detail)
{
	recover_started_fn started = r->started;

	r->started = NULL;
	if (started)
		started(code, detail, r->userdata);
}

/* --- What the database keeps
 * ------------------------------------------------------------------------- */

/* The card outlives its recoveries. */
static void stored(int result, const struct error *err, void *userdata)
{
	const struct card *c = userdata;
	char text[PCI_ADDR_MAX];

	if (result < 0)
		log_error("claims database: recovery progress not stored card=%s: %s",
			  pci_addr_format(c->address, text), error_text(err));
}

static void store_progress(struct node *n, struct card *c, const char *text)
{
	struct store_op *op = calloc(1, sizeof *op);

	if (op) {
		op->kind = STORE_OP_RECOVERY;
		op->card = c->address;
		op->text = text;
	}
	if (!op || claim_store_submit(n->store, op, 1, stored, c) < 0)
		log_error("claims database: recovery progress not stored");
	free(op);
}

/* Commits are made in order: that there is a recovery is on disk before the cordon is, and that
 * before anything is touched. A later step may begin before its name is there, so a crash may
 * report the one before it. */
static void remember(struct recovery *r)
{
	json_t *json = json_pack("{s:s,s:s,s:s,s:s,s:b,s:b,s:i}", "state", state_names[r->state],
				 "step", step_names[r->step], "detail", r->detail, "started_at",
				 r->started_at, "was_cordoned", r->was_cordoned, "was_mixed",
				 r->was_mixed, "vfs", (int)r->expected_vfs);
	_free_ char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;

	json_decref(json);
	if (text)
		store_progress(r->node, r->card, text);
	else
		log_error("claims database: recovery progress not stored: out of memory");
}

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
		  card_text(r), step_names[r->step], why);
	if (r->step >= STEP_STOP_NVML)
		resume_nvml(r);
	remember(r);
	publish(r);
	tell_started(r, -E_INTERNAL, why);
}

static void advance(struct recovery *r)
{
	r->step++;
	r->service = 0;
	if (r->step == STEP_WAIT_FOR_VFS)
		r->sriov_seq = node_next_seq(r->node);
	r->step_deadline_usec = clock_now_usec() + r->node->config->recover_timeout_usec;
	log_notice("recover: step card=%s step=%s", card_text(r), step_names[r->step]);
	remember(r);
	publish(r);
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
		log_info("recover: output card=%s step=%s: %s", card_text(r), step_names[r->step],
			 output);
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
	advance(r);
}

static void run(struct recovery *r, const char *line)
{
	char vf[PCI_ADDR_MAX] = "", sysfs[512] = "";
	const struct command_word words[] = { { "gpu", card_text(r) },
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
		advance(r);
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
	_free_ char *line = str_printf("%s %s {gpu}", r->node->config->recover_sriov_manage, flag);

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
		advance(r);
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
		advance(r);
}

static void set_mixed_mode(struct recovery *r)
{
	if (!r->was_mixed) {
		advance(r);
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
	advance(r);
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
	store_progress(r->node, r->card, NULL);
	log_notice("recover: card is back card=%s vfs=%u", card_text(r), r->card->n_vfs);
	snapshot_request(r->node);
	publish(r);
	allocate_capacity_changed(r->node);
}

static void cordoned(int result, const struct error *err, void *userdata)
{
	struct recovery *r = userdata;

	if (result < 0) {
		fail(r, error_text(err));
		return;
	}
	tell_started(r, 0, "");
	advance(r);
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
	const struct config *config = n->config;

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
			advance(r);
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
			advance(r);
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

bool recover_is_running(const struct card *c)
{
	return c->recovery && c->recovery->state == RECOVERY_RUNNING;
}

void recover_forget(struct node *n, struct card *c)
{
	if (!c->recovery || c->recovery->state == RECOVERY_RUNNING ||
	    c->recovery->state == RECOVERY_DONE)
		return;
	store_progress(n, c, NULL);
	c->recovery = recovery_free(c->recovery);
	catalogue_forget_recovery(n, c);
}

/* --- Starting
 * --------------------------------------------------------------------------------------------------
 */

/* The card is as it was before. */
static void refuse(struct recovery *r, int code, const char *detail)
{
	r->card->recovery = TAKE(r->previous);
	r->card->cordoned = r->refused_cordon;
	node_changed(r->node);
	allocate_capacity_changed(r->node);
	tell_started(r, code, detail);
	recovery_free(r);
}

/* Also claims whose VF is gone. */
static bool has_claims(const struct node *n, const struct card *c)
{
	for (unsigned i = 0; i < c->n_vfs; i++)
		if (c->vfs[i].hold != VF_HOLD_NONE)
			return true;
	for (unsigned i = 0; i < n->n_claims; i++)
		if (pci_addr_equal(n->claims[i]->claim.card, c->address))
			return true;
	return false;
}

static void begin(struct recovery *r)
{
	r->previous = recovery_free(r->previous);
	advance(r);
}

static void scanned(const struct card_reply *reply, void *userdata)
{
	struct recovery *r = userdata;
	char text[PCI_ADDR_MAX], why[NODE_TEXT_MAX];

	for (unsigned i = 0; i < reply->n_vfs; i++) {
		if (reply->vfs[i].open == CARD_OPEN_NO)
			continue;
		snprintf(why, sizeof why, "%s %s: %.100s",
			 pci_addr_format(reply->vfs[i].address, text),
			 reply->vfs[i].open == CARD_OPEN_YES ? "is open" : "may be open",
			 reply->text);
		refuse(r, -E_IN_USE, why);
		return;
	}
	if (reply->result < 0) {
		refuse(r, reply->result, reply->text);
		return;
	}
	begin(r);
}

/* The second try after one that did not end well: what the card was like is what it was like before
 * that. */
static void take_over(struct recovery *r, const struct recovery *last)
{
	r->was_cordoned = last->was_cordoned;
	r->was_mixed |= last->was_mixed;
	r->expected_vfs = MAX(r->expected_vfs, last->expected_vfs);
}

void recover_submit(struct node *n, struct card *c, recover_started_fn started, void *userdata)
{
	struct card_request request = { .op = CARD_OP_SCAN };
	struct recovery *r;

	if (!node_is_ready(n)) {
		started(-E_NOT_READY, node_not_ready_reason(n), userdata);
		return;
	}
	if (recover_is_running(c)) {
		started(-E_IN_USE, "a recovery of this card is under way", userdata);
		return;
	}
	if (has_claims(n, c)) {
		started(-E_IN_USE, "the card has claims; cordon it and let it drain", userdata);
		return;
	}
	for (unsigned i = 0; i < c->n_vfs; i++)
		request.vfs[request.n_vfs++] = c->vfs[i].address;
	r = calloc(1, sizeof *r);
	if (!r) {
		started(-E_INTERNAL, "out of memory", userdata);
		return;
	}
	r->node = n;
	r->card = c;
	r->started = started;
	r->userdata = userdata;
	r->nvml_was_released = nvml_client_is_released(n->nvml);
	r->was_cordoned = r->refused_cordon = c->cordoned;
	r->was_mixed = c->mode == NVML_MODE_MIXED;
	r->expected_vfs = MAX(c->n_vfs, 1U);
	if (c->recovery && c->recovery->state != RECOVERY_DONE)
		take_over(r, c->recovery);
	clock_rfc3339_now(r->started_at);
	r->previous = c->recovery;
	c->recovery = r;
	c->cordoned = true; /* at once: no claim may come in between */
	node_changed(n);
	if (request.n_vfs == 0 || !c->client) {
		begin(r);
		return;
	}
	if (card_client_submit(c->client, &request, scanned, r) < 0)
		refuse(r, -E_DRIVER_STUCK, card_client_reason(c->client));
}

void recover_restore(struct node *n, struct card *c, const char *text)
{
	json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	const char *step = json_string_value(json_object_get(json, "step"));
	const char *at = json_string_value(json_object_get(json, "started_at"));
	const char *state = json_string_value(json_object_get(json, "state"));
	const char *detail = json_string_value(json_object_get(json, "detail"));
	bool failed = state && strcmp(state, state_names[RECOVERY_FAILED]) == 0;
	struct recovery *r = calloc(1, sizeof *r);

	if (!r) {
		json_decref(json);
		return;
	}
	r->node = n;
	r->card = c;
	r->state = failed ? RECOVERY_FAILED : RECOVERY_INTERRUPTED;
	for (enum recovery_step s = STEP_CHECK; step && s < STEP_DONE; s++)
		if (strcmp(step_names[s], step) == 0)
			r->step = s;
	str_copy_cut(r->started_at, sizeof r->started_at, at ? at : "");
	r->was_cordoned = json_is_true(json_object_get(json, "was_cordoned"));
	r->was_mixed = json_is_true(json_object_get(json, "was_mixed"));
	r->expected_vfs = (unsigned)json_integer_value(json_object_get(json, "vfs"));
	str_copy_cut(r->detail, sizeof r->detail,
		     failed && detail ? detail
				      : "berthd ended in the middle; start the recovery again");
	c->cordoned = true;
	c->recovery = r;
	log_error("recover: %s earlier, card stays cordoned: run 'berth gpu recover' again card=%s "
		  "step=%s",
		  failed ? "failed" : "was interrupted", card_text(r), step_names[r->step]);
	json_decref(json);
}
