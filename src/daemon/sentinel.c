/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/sentinel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/agent-channel.h"
#include "daemon/allocate.h"
#include "daemon/node-metrics.h"
#include "daemon/snapshot.h"
#include "host/console-tail.h"
#include "model/marker.h"
#include "model/outcome.h"
#include "store/health-store.h"

#define AGENT_TIMEOUT_USEC (2 * USEC_PER_SEC)
#define NVRM_TEXT_MAX	   160

enum report_stage {
	REPORT_NONE,  /* nothing to judge */
	REPORT_AGENT, /* the agent is being asked */
	REPORT_NVML,  /* waits for placements newer than nvml_seq */
	REPORT_STORING,
	REPORT_WAITING, /* to be judged again by the timer: not stored, or contradicted for now */
};

/* One followed log: an assignment, and the marker that is being judged. */
struct watch {
	struct sentinel *sentinel;
	char name[CLAIM_NAME_MAX];
	struct pci_addr vf, card;
	char assigned_at[CLAIM_TIME_MAX];
	char channel[CLAIM_CHANNEL_MAX];
	uid_t uid;		     /* whose claim it is */
	char trouble[NODE_TEXT_MAX]; /* why the log cannot be followed; "" when it can */

	enum marker_kind latest; /* of the pass under way */
	char latest_text[NVRM_TEXT_MAX];
	enum marker_kind done; /* last marker that was stored or ignored: not judged again */

	enum report_stage stage;
	enum marker_kind kind;
	char text[NVRM_TEXT_MAX];
	uint64_t since_usec;
	uint64_t nvml_seq;
	struct agent_query *query;
	enum health_change change;
	unsigned failures; /* after the change */
	bool removed;	   /* freed when its storing ends */
};

struct sentinel {
	struct node *node;
	struct console_tail *tail;
	sd_event_source *timer;
	unsigned n, cap;
	struct watch **watches;
};

static void judge(struct watch *w);

static const char *vf_text(const struct watch *w)
{
	static char text[PCI_ADDR_MAX]; /* the loop is one thread */

	return pci_addr_format(w->vf, text);
}

static const char *kind_name(enum marker_kind kind)
{
	return kind == MARKER_OK ? "ok" : "failed";
}

static struct watch *find(const struct sentinel *s, const char *name)
{
	for (unsigned i = 0; i < s->n; i++)
		if (!s->watches[i]->removed && strcmp(s->watches[i]->name, name) == 0)
			return s->watches[i];
	return NULL;
}

static void end_report(struct watch *w)
{
	w->done = w->kind;
	w->stage = REPORT_NONE;
	w->kind = MARKER_NONE;
}

static void ignore(struct watch *w, const char *reason, const char *why)
{
	log_notice("sentinel: marker ignored claim=%s vf=%s marker=%s reason=%s: %s", w->name,
		   vf_text(w), kind_name(w->kind), reason, why);
	node_metrics_count_ignored_marker(w->sentinel->node, reason);
	end_report(w);
}

static void arm(struct sentinel *s)
{
	sd_event_source_set_time(s->timer, clock_now_usec() + s->node->config->scan_interval_usec);
	sd_event_source_set_enabled(s->timer, SD_EVENT_ONESHOT);
}

static void wait_for_timer(struct watch *w)
{
	w->stage = REPORT_WAITING;
	arm(w->sentinel);
}

/* --- Storing
 * ----------------------------------------------------------------------------------------- */

static void watch_free(struct watch *w)
{
	agent_query_free(w->query);
	free(w);
}

static void drop_removed(struct sentinel *s)
{
	for (unsigned i = 0; i < s->n;) {
		struct watch *w = s->watches[i];

		if (w->removed && w->stage != REPORT_STORING) {
			s->watches[i] = s->watches[--s->n];
			watch_free(w);
		} else {
			i++;
		}
	}
}

static void tell_change(struct watch *w)
{
	struct node *n = w->sentinel->node;
	unsigned threshold = n->config->vf_quarantine_threshold;

	switch (w->change) {
	case HEALTH_UNCHANGED:
		return;
	case HEALTH_FAILURE:
		log_warning("sentinel: driver init failed in the guest vf=%s claim=%s "
			    "assignments=%u threshold=%u: %s",
			    vf_text(w), w->name, w->failures, threshold, w->text);
		node_metrics_count_init_failure(n);
		break;
	case HEALTH_QUARANTINED:
		log_error("sentinel: VF quarantined, driver init failed in %u assignments vf=%s "
			  "claim=%s: %s; to lift it "
			  "see 'berth gpu recover' and 'berth vf clear'",
			  w->failures, vf_text(w), w->name, w->text);
		node_metrics_count_quarantine(n);
		break;
	case HEALTH_CLEARED:
		log_notice("sentinel: driver init worked, earlier failures cleared vf=%s claim=%s",
			   vf_text(w), w->name);
		break;
	}
	sentinel_health_changed(n);
}

static void stored(int result, const struct error *err, void *userdata)
{
	struct watch *w = userdata;
	struct sentinel *s = w->sentinel;

	if (result < 0) {
		log_warning("sentinel: report not stored, it comes again vf=%s claim=%s: %s",
			    vf_text(w), w->name, error_text(err));
		wait_for_timer(w);
	} else {
		tell_change(w);
		end_report(w);
	}
	if (w->removed)
		drop_removed(s);
}

static int change_records(struct health *h, void *userdata)
{
	struct watch *w = userdata;
	const struct health_record *record;
	char now[CLOCK_RFC3339_MAX];
	int r = 0;

	clock_rfc3339_now(now);
	if (w->kind == MARKER_OK)
		w->change = health_report_success(h, w->vf);
	else
		r = health_report_failure(h, w->vf, w->name, w->assigned_at, now,
					  w->sentinel->node->config->vf_quarantine_threshold,
					  &w->change);
	record = health_find(h, w->vf);
	w->failures = record ? record->n_failures : 0;
	return r;
}

static void store(struct watch *w)
{
	w->stage = REPORT_STORING;
	if (health_store_change(w->sentinel->node->health, change_records, stored, w) < 0)
		wait_for_timer(w);
}

/* --- Judging
 * ------------------------------------------------------------------------------------------ */

/* The claim is still the assignment under which this log is followed. */
static bool is_current(const struct watch *w)
{
	const struct claim_entry *e = node_find_claim(w->sentinel->node, w->name);

	return e && pci_addr_equal(e->claim.vf, w->vf) &&
	       strcmp(e->claim.assigned_at, w->assigned_at) == 0;
}

/* A failure of this assignment stands already, or the VF is out of use: nothing new. */
static bool is_known(const struct watch *w)
{
	const struct health_record *r = health_find(health_store_get(w->sentinel->node->health),
						    w->vf);

	if (w->kind == MARKER_OK)
		return !r || r->quarantined_at[0];
	if (!r)
		return false;
	if (r->quarantined_at[0])
		return true;
	for (unsigned i = 0; i < r->n_failures; i++)
		if (strcmp(r->failures[i].instance_id, w->name) == 0 &&
		    strcmp(r->failures[i].assigned_at, w->assigned_at) == 0)
			return true;
	return false;
}

enum nvml_view {
	NVML_VIEW_NOTHING,
	NVML_VIEW_NOT_YET, /* a vGPU of that type has just started, its placement is not known for a
			      moment */
	NVML_VIEW_NO_DRIVER,
	NVML_VIEW_DRIVER,
};

/* What NVML shows at the claim's placement. */
static enum nvml_view nvml_shows(const struct watch *w)
{
	struct node *n = w->sentinel->node;
	const struct card *c = node_find_card(n, w->card);
	const struct vf *v = node_find_vf(n, w->vf, NULL);
	enum nvml_view view = NVML_VIEW_NOTHING;

	if (!c || !v || v->span.size == 0 || c->fallback != NVML_REASON_NONE || !c->nvml ||
	    !c->nvml->instances_known)
		return NVML_VIEW_NOTHING;
	for (unsigned i = 0; i < c->nvml->n_instances; i++) {
		const struct nvml_instance *in = &c->nvml->instances[i];

		if (in->type_id != v->type_id)
			continue;
		if (in->placement_id == v->span.id)
			return in->guest_driver ? NVML_VIEW_DRIVER : NVML_VIEW_NO_DRIVER;
		if (in->placement_id == PLACEMENT_NONE)
			view = NVML_VIEW_NOT_YET;
	}
	return view;
}

static void judge_by_nvml(struct watch *w)
{
	enum nvml_view view = nvml_shows(w);
	bool contradicted = view == (w->kind == MARKER_OK ? NVML_VIEW_NO_DRIVER : NVML_VIEW_DRIVER);
	/* NVML may show a guest driver for a while after its end, or not yet after its init. */
	bool may_change = clock_now_usec() <
			  w->since_usec + w->sentinel->node->config->contradiction_window_usec;

	if ((contradicted || view == NVML_VIEW_NOT_YET) && may_change)
		wait_for_timer(w);
	else if (contradicted)
		ignore(w, "nvml",
		       w->kind == MARKER_OK ? "NVML shows the vGPU without a guest driver"
					    : "NVML shows a loaded guest driver on the vGPU");
	else
		store(w);
}

static void ask_nvml(struct watch *w)
{
	w->stage = REPORT_NVML;
	w->nvml_seq = node_next_seq(w->sentinel->node);
	snapshot_request(w->sentinel->node);
}

static void agent_answered(enum agent_state state, void *userdata)
{
	struct watch *w = userdata;

	w->query = NULL;
	if (state != AGENT_UNKNOWN && state != (w->kind == MARKER_OK ? AGENT_OK : AGENT_FAILED))
		ignore(w, "agent", "the agent says otherwise on the claim's channel");
	else
		ask_nvml(w);
}

static void judge(struct watch *w)
{
	if (!is_current(w)) {
		ignore(w, "claim_changed", "the claim is another assignment now");
		return;
	}
	if (health_store_get_state(w->sentinel->node->health) != STORE_STATE_READY) {
		wait_for_timer(w);
		return;
	}
	if (is_known(w)) {
		end_report(w);
		return;
	}
	if (w->channel[0] && agent_query_new(w->sentinel->node->event, w->channel, w->uid,
					     AGENT_TIMEOUT_USEC, agent_answered, w, &w->query) == 0)
		w->stage = REPORT_AGENT;
	else
		ask_nvml(w);
}

void sentinel_snapshot_arrived(struct node *n)
{
	struct sentinel *s = n->sentinel;

	for (unsigned i = 0; s && i < s->n; i++)
		if (s->watches[i]->stage == REPORT_NVML &&
		    n->answered_seq > s->watches[i]->nvml_seq)
			judge_by_nvml(s->watches[i]);
}

static int timer_fired(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct sentinel *s = userdata;

	(void)source;
	(void)usec;
	for (unsigned i = 0; i < s->n; i++)
		if (s->watches[i]->stage == REPORT_WAITING)
			judge(s->watches[i]);
	return 0;
}

/* --- Lines
 * --------------------------------------------------------------------------------------------- */

static void got_line(const char *key, const char *line, size_t len, void *userdata)
{
	struct sentinel *s = userdata;
	const struct config *config = s->node->config;
	struct watch *w = find(s, key);
	enum marker_kind kind;

	if (!w)
		return;
	kind = marker_parse(line, len, (const char *const *)config->marker_prefixes,
			    config->n_marker_prefixes);
	if (kind == MARKER_NONE)
		return;
	w->latest = kind;
	w->latest_text[0] = '\0';
	if (kind == MARKER_FAILED)
		marker_nvrm_text(line, len, w->latest_text, sizeof w->latest_text);
}

/* Only the latest marker of a pass counts. */
static void got_pass(const char *key, void *userdata)
{
	struct watch *w = find(userdata, key);
	enum marker_kind kind;

	if (!w || w->latest == MARKER_NONE)
		return;
	kind = w->latest;
	w->latest = MARKER_NONE;
	if (kind == w->kind || (w->kind == MARKER_NONE && kind == w->done))
		return; /* repeated: being judged, or judged */
	if (w->stage == REPORT_STORING)
		return; /* decided; what the guest says later comes with its next line */
	w->query = agent_query_free(w->query);
	w->kind = kind;
	memcpy(w->text, w->latest_text, sizeof w->text);
	w->since_usec = clock_now_usec();
	judge(w);
}

/* Said when it begins and when it ends: the tail tells of changes only. */
static void got_trouble(const char *key, const struct error *err, void *userdata)
{
	struct watch *w = find(userdata, key);

	if (!w)
		return;
	str_copy_cut(w->trouble, sizeof w->trouble, err->code != 0 ? error_text(err) : "");
	node_changed(w->sentinel->node);
	if (err->code != 0)
		log_warning("sentinel: console log cannot be followed, a sick VF goes unnoticed, "
			    "retrying claim=%s: %s",
			    key, error_text(err));
	else
		log_notice("sentinel: console log is followed again claim=%s", key);
}

const char *sentinel_trouble(const struct node *n, const char *name)
{
	const struct watch *w = n->sentinel ? find(n->sentinel, name) : NULL;

	return w ? w->trouble : "";
}

/* --- Which logs
 * ------------------------------------------------------------------------------------------ */

void sentinel_unwatch(struct node *n, const char *name)
{
	struct watch *w = n->sentinel ? find(n->sentinel, name) : NULL;

	if (!w)
		return;
	console_tail_remove(n->sentinel->tail, name);
	w->removed = true;
	drop_removed(n->sentinel);
}

void sentinel_watch(struct node *n, const struct claim *claim)
{
	struct sentinel *s = n->sentinel;
	struct error err = ERROR_INIT;
	struct watch *w;

	if (!s || !claim->console_log[0] || claim->state != CLAIM_STATE_BOUND)
		return;
	sentinel_unwatch(n, claim->name);
	w = array_reserve(s->watches, s->n, s->cap) < 0 ? NULL : calloc(1, sizeof *w);
	if (!w) {
		log_error("sentinel: out of memory, not watching claim=%s", claim->name);
		return;
	}
	w->sentinel = s;
	w->vf = claim->vf;
	w->card = claim->card;
	memcpy(w->name, claim->name, sizeof w->name);
	memcpy(w->assigned_at, claim->assigned_at, sizeof w->assigned_at);
	memcpy(w->channel, claim->channel, sizeof w->channel);
	w->uid = claim->uid;
	s->watches[s->n++] = w;
	if (console_tail_add(s->tail, w->name, claim->console_log, &err) < 0) {
		log_warning("sentinel: console log cannot be followed, not watching claim=%s: %s",
			    w->name, error_text(&err));
		str_copy_cut(w->trouble, sizeof w->trouble, error_text(&err));
	}
}

void sentinel_health_changed(struct node *n)
{
	const struct health *h = health_store_get(n->health);
	bool ready = health_store_get_state(n->health) == STORE_STATE_READY;

	for (unsigned i = 0; i < n->n_cards; i++)
		for (unsigned k = 0; k < n->cards[i]->n_vfs; k++) {
			struct vf *v = &n->cards[i]->vfs[k];

			/* While the records cannot be read, what was known stays known. */
			if (ready)
				v->quarantined = health_is_quarantined(h, v->address);
		}
	node_changed(n);
	allocate_capacity_changed(n);
}

static int apply_threshold(struct health *h, void *userdata)
{
	const struct node *n = userdata;
	char now[CLOCK_RFC3339_MAX];

	clock_rfc3339_now(now);
	health_apply_threshold(h, n->config->vf_quarantine_threshold, now);
	return 0;
}

static void threshold_applied(int result, const struct error *err, void *userdata)
{
	if (result < 0)
		log_error("health records: the threshold is not applied to stored failures: %s",
			  error_text(err));
	else
		sentinel_health_changed(userdata);
}

void sentinel_apply_threshold(struct node *n)
{
	if (health_store_change(n->health, apply_threshold, threshold_applied, n) < 0)
		log_error("health records: the threshold cannot be applied");
}

void sentinel_config_changed(struct node *n)
{
	struct sentinel *s = n->sentinel;

	if (console_tail_configure(s->tail, (const char *const *)n->config->console_dirs,
				   n->config->n_console_dirs, n->config->scan_interval_usec) < 0)
		log_error("sentinel: out of memory, folders and interval stay as they were");
	/* A store that cannot be read now has the threshold applied when it can. */
	if (health_store_get_state(n->health) == STORE_STATE_READY)
		sentinel_apply_threshold(n);
	arm(s);
}

int sentinel_start(struct node *n, struct error *err)
{
	struct sentinel *s = calloc(1, sizeof *s);
	struct console_tail_config config = {
		.event = n->event,
		.dirs = (const char *const *)n->config->console_dirs,
		.n_dirs = n->config->n_console_dirs,
		.scan_usec = n->config->scan_interval_usec,
		.line_max = MARKER_LINE_MAX,
		.needle = "-GPU-INIT-",
		.line = got_line,
		.pass = got_pass,
		.trouble = got_trouble,
		.userdata = s,
	};
	int r;

	if (!s)
		return error_set(err, ENOMEM, "out of memory");
	s->node = n;
	n->sentinel = s;
	r = sd_event_add_time(n->event, &s->timer, CLOCK_MONOTONIC, UINT64_MAX, 0, timer_fired, s);
	if (r < 0)
		return error_set_errno(err, r, "sentinel timer");
	return console_tail_new(&config, &s->tail, err);
}

struct sentinel *sentinel_free(struct sentinel *s)
{
	if (!s)
		return NULL;
	console_tail_free(s->tail);
	sd_event_source_disable_unref(s->timer);
	for (unsigned i = 0; i < s->n; i++)
		watch_free(s->watches[i]);
	free(s->watches);
	free(s);
	return NULL;
}
