/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/catalogue.h"
#include "daemon/recover-internal.h"

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

static const char *const state_names[] = {
	[RECOVERY_RUNNING] = "running",
	[RECOVERY_FAILED] = "failed",
	[RECOVERY_DONE] = "done",
	[RECOVERY_INTERRUPTED] = "interrupted",
};

const char *recovery_card_text(const struct recovery *r)
{
	static char text[PCI_ADDR_MAX]; /* the loop is one thread */

	return pci_addr_format(r->card->address, text);
}

const char *recovery_step_name(const struct recovery *r)
{
	return step_names[r->step];
}

struct recovery *recovery_free(struct recovery *r)
{
	if (!r)
		return NULL;
	command_free(r->command);
	sd_event_source_disable_unref(r->timer);
	recovery_free(r->previous);
	config_free(r->config);
	free(r);
	return NULL;
}

json_t *recover_json(const struct card *c)
{
	const struct recovery *r = c->recovery;

	if (!r)
		return json_null();
	return json_pack("{s:s,s:s,s:s?,s:s}", "state", state_names[r->state], "step",
			 recovery_step_name(r), "detail", r->detail[0] ? r->detail : NULL,
			 "started_at", r->started_at);
}

void recovery_publish(struct recovery *r)
{
	json_t *data = recover_json(r->card);

	if (data)
		json_object_set_new(data, "gpu", json_string(recovery_card_text(r)));
	if (data && http_events_publish(r->node->events, "recover", data) < 0)
		log_debug("events: a recovery event was not published, ignoring");
	node_changed(r->node);
}

void recovery_tell_started(struct recovery *r, int code, const char *detail)
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

void recovery_store(struct node *n, struct card *c, const char *text)
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

void recovery_remember(struct recovery *r)
{
	json_t *json = json_pack("{s:s,s:s,s:s,s:s,s:b,s:b,s:i}", "state", state_names[r->state],
				 "step", recovery_step_name(r), "detail", r->detail, "started_at",
				 r->started_at, "was_cordoned", r->was_cordoned, "was_mixed",
				 r->was_mixed, "vfs", (int)r->expected_vfs);
	_free_ char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;

	json_decref(json);
	if (text)
		recovery_store(r->node, r->card, text);
	else
		log_error("claims database: recovery progress not stored: out of memory");
}

bool recover_is_running(const struct card *c)
{
	return c->recovery && c->recovery->state == RECOVERY_RUNNING;
}

/* A recovery that did not end well is no longer shown or stored. */
static void recover_forget(struct node *n, struct card *c)
{
	if (!c->recovery || c->recovery->state == RECOVERY_RUNNING ||
	    c->recovery->state == RECOVERY_DONE)
		return;
	recovery_store(n, c, NULL);
	c->recovery = recovery_free(c->recovery);
	catalogue_forget_recovery(n, c);
}

void recover_cordon_changed(struct node *n, struct card *c, bool cordoned)
{
	struct recovery *r = c->recovery;

	catalogue_set_cordon(n, c, cordoned);
	if (recover_is_running(c)) {
		r->was_cordoned = r->refused_cordon = cordoned;
		c->cordoned = true;
	} else if (!cordoned) {
		recover_forget(n, c);
	}
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
		  failed ? "failed" : "was interrupted", recovery_card_text(r),
		  recovery_step_name(r));
	json_decref(json);
}
