/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/allocate.h"
#include "daemon/capacity.h"
#include "daemon/cards.h"
#include "daemon/catalogue.h"
#include "daemon/drift.h"
#include "daemon/node-metrics.h"
#include "daemon/sentinel.h"
#include "daemon/start.h"

/* Of one query; each is a message that a helper deep in the driver has not read yet. */
#define RESTARTS_MAX 64

/* How soon after a time-out NVML is tried again, doubled each time up to the longest. */
#define PROBE_FIRST_USEC   (500 * USEC_PER_MSEC)
#define PROBE_LONGEST_USEC (10 * USEC_PER_SEC)

int64_t snapshot_age_ms(const struct node *n)
{
	if (n->snapshot_usec == 0)
		return -1;
	return (int64_t)((clock_now_usec() - n->snapshot_usec) / USEC_PER_MSEC);
}

bool snapshot_lists_are_newer(const struct card *c, uint64_t seq)
{
	return c->fallback == NVML_REASON_NONE || c->list_seq > seq;
}

bool snapshot_waits_for_lists(const struct node *n)
{
	for (unsigned i = 0; i < n->n_cards; i++) {
		const struct card *c = n->cards[i];

		if (c->present && c->fallback != NVML_REASON_NONE && !c->nvml && c->listing &&
		    !c->lists_tried && !c->stuck)
			return true;
	}
	return false;
}

/* --- Lists of cards in a fallback ----------------------------------------------------------- */

static void request_lists(struct node *n, struct card *c);

static void say_bad_lines(struct card *c, const struct card_reply *reply)
{
	char text[PCI_ADDR_MAX];

	if (reply->bad_lines > 0 && reply->bad_lines != c->bad_lines)
		log_warning("catalogue: %u lines do not parse, ignoring them card=%s: %s",
			    reply->bad_lines, pci_addr_format(c->address, text), reply->text);
	c->bad_lines = reply->bad_lines;
}

static void lists_done(const struct card_reply *reply, void *userdata)
{
	struct node_job *job = userdata;
	struct node *n = job->node;
	struct card *c = job->card;

	node_job_free(job);
	c->listing = false;
	c->lists_tried = true;
	if (reply->result == 0) {
		say_bad_lines(c, reply);
		catalogue_take_lists(n, c, reply);
		c->list_seq = c->listing_seq;
	} else if (cards_is_gone(reply->result)) {
		node_request_scan(n);
	}
	node_changed(n);
	if (c->list_again)
		request_lists(n, c);
	start_try_finish(n);
	allocate_plan(n);
}

static void request_lists(struct node *n, struct card *c)
{
	struct card_request request = { .op = CARD_OP_LIST };
	struct node_job *job;

	if (c->listing) {
		c->list_again = true;
		return;
	}
	c->list_again = false;
	for (unsigned i = 0; i < c->n_vfs; i++)
		if (c->vfs[i].listed && request.n_vfs < CARD_VFS_MAX)
			request.vfs[request.n_vfs++] = c->vfs[i].address;
	if (!c->client || request.n_vfs == 0)
		return;
	job = node_job_new(n, c, c->address);
	if (!job)
		return;
	c->listing_seq = node_next_seq(n);
	c->listing_since_usec = clock_now_usec();
	if (card_client_submit(c->client, &request, lists_done, job) < 0) {
		node_job_free(job);
		return;
	}
	c->listing = true;
}

/* --- Fallbacks ------------------------------------------------------------------------------ */

static void publish_fallback(struct node *n, const char *gpu, enum nvml_reason reason,
			     const char *text)
{
	json_t *data = json_pack("{s:s?,s:s?,s:s?}", "gpu", gpu, "reason", nvml_reason_name(reason),
				 "detail", reason == NVML_REASON_NONE ? NULL : text);

	if (data && http_events_publish(n->events, "fallback", data) < 0)
		log_debug("events: a fallback event was not published, ignoring");
}

/* Is it worth another line? Where there is a number, the same one from another call is not. */
static bool same_error(const char *old_text, int old_code, const char *text, int code)
{
	return old_code == code && (code != 0 || strcmp(old_text, text) == 0);
}

static void set_host_fallback(struct node *n, enum nvml_reason reason, int code, const char *text)
{
	enum nvml_reason old = n->host_fallback;

	if (old == reason &&
	    same_error(n->host_fallback_text, n->host_fallback_code, reason ? text : "", code))
		return;
	n->host_fallback = reason;
	n->host_fallback_code = code;
	str_copy_cut(n->host_fallback_text, sizeof n->host_fallback_text, reason ? text : "");
	str_sanitize(n->host_fallback_text, strlen(n->host_fallback_text));
	if (reason != NVML_REASON_NONE)
		log_warning(
			"nvml: not usable, the host falls back to the VFs' own lists reason=%s: %s",
			nvml_reason_name(reason), n->host_fallback_text);
	else if (old != NVML_REASON_NONE)
		log_info("nvml: usable again");
	publish_fallback(n, NULL, reason, n->host_fallback_text);
}

static void set_card_fallback(struct node *n, struct card *c, enum nvml_reason reason, int code,
			      const char *text, bool of_host)
{
	bool same = c->fallback == reason &&
		    same_error(c->fallback_text, c->fallback_code, reason ? text : "", code);
	enum nvml_reason old = c->fallback;
	char address[PCI_ADDR_MAX];
	bool quiet = of_host || (reason == NVML_REASON_NONE && c->fallback_of_host);

	if (same)
		return;
	c->fallback_of_host = of_host;
	c->fallback_code = code;
	c->fallback = reason;
	str_copy_cut(c->fallback_text, sizeof c->fallback_text, reason ? text : "");
	str_sanitize(c->fallback_text, strlen(c->fallback_text));
	if (reason == NVML_REASON_NONE) {
		c->lists_tried = false;
		for (unsigned i = 0; i < c->n_vfs; i++)
			c->vfs[i].list_known = false;
	}
	if (quiet)
		return;
	pci_addr_format(c->address, address);
	if (reason != NVML_REASON_NONE)
		log_warning("nvml: card falls back to its VFs' own lists card=%s reason=%s: %s",
			    address, nvml_reason_name(reason), c->fallback_text);
	else if (old != NVML_REASON_NONE)
		log_info("nvml: card's placements are used again card=%s", address);
	publish_fallback(n, address, reason, c->fallback_text);
}

static void count_reasons(struct node *n, const struct nvml_answer *answer)
{
	bool occurred[NVML_REASON_ERROR + 1] = { false };

	occurred[answer->reason] = true;
	for (unsigned i = 0; i < answer->n_cards; i++)
		occurred[answer->cards[i].reason] = true;
	for (enum nvml_reason r = NVML_REASON_EQUAL_SIZE; r <= NVML_REASON_ERROR; r++)
		if (occurred[r])
			node_metrics_count_fallback(n, nvml_reason_name(r));
}

/* --- The answer ----------------------------------------------------------------------------- */

static void mark_counted_spans(struct node *n, struct card *c)
{
	bool configured_counts = n->driver_branch == 0 || n->driver_branch >= 570;

	for (unsigned i = 0; i < c->n_vfs; i++) {
		struct vf *v = &c->vfs[i];

		v->span_counted = configured_counts && v->type_id != 0 && v->busy == 0 &&
				  v->changed_seq < n->sweep_seq;
		cards_update_span(c, v);
	}
}

static void apply_card(struct node *n, struct card *c, const struct nvml_card *answer)
{
	c->overlapped = c->writes > 0 || c->write_seq != c->asked_write_seq;
	struct nvml_card *copy;

	if (answer->name[0])
		str_copy_cut(c->name, sizeof c->name, answer->name);
	str_sanitize(c->name, strlen(c->name));
	c->mode = answer->mode;
	c->seen_mixed |= c->mode == NVML_MODE_MIXED;
	if (answer->region > 0)
		c->region = answer->region;
	catalogue_take_nvml(n, c, answer);
	if (answer->reason != NVML_REASON_NONE) {
		set_card_fallback(n, c, answer->reason, answer->nvml_error, answer->text, false);
		return;
	}
	copy = malloc(sizeof *copy);
	if (!copy) {
		set_card_fallback(n, c, NVML_REASON_ERROR, 0, "out of memory", false);
		return;
	}
	*copy = *answer;
	free(c->nvml);
	c->nvml = copy;
	set_card_fallback(n, c, NVML_REASON_NONE, 0, "", false);
	mark_counted_spans(n, c);
	drift_judge(n, c);
}

static void apply_answer(struct node *n, const struct nvml_answer *answer)
{
	count_reasons(n, answer);
	if (answer->driver[0]) {
		uint32_t branch = 0;

		str_copy_cut(n->driver_version, sizeof n->driver_version, answer->driver);
		str_sanitize(n->driver_version, strlen(n->driver_version));
		if (str_to_u32_n(answer->driver, strcspn(answer->driver, "."), &branch) == 0)
			n->driver_branch = branch;
	}
	set_host_fallback(n, answer->reason, answer->nvml_error, answer->text);
	if (answer->reason != NVML_REASON_NONE) {
		for (unsigned i = 0; i < n->n_cards; i++) {
			n->cards[i]->mode = NVML_MODE_UNKNOWN;
			if (n->cards[i]->has_vfs)
				set_card_fallback(n, n->cards[i], answer->reason,
						  answer->nvml_error, answer->text, true);
		}
	}
	for (unsigned i = 0; i < answer->n_cards; i++) {
		struct card *c = node_find_card(n, answer->cards[i].address);

		if (c)
			apply_card(n, c, &answer->cards[i]);
	}
	if (answer->reason == NVML_REASON_NONE)
		n->snapshot_usec = answer->asked_usec;
	if (answer->reason == NVML_REASON_NONE)
		n->query_usec = answer->query_usec;
	node_metrics_observe_query(n, answer);
}

static void request_lists_of_fallbacks(struct node *n)
{
	for (unsigned i = 0; i < n->n_cards; i++)
		if (n->cards[i]->fallback != NVML_REASON_NONE)
			request_lists(n, n->cards[i]);
}

static void sweep_finished(struct node *n)
{
	n->sweep_busy = false;
	n->answered_seq = n->sweep_seq;
	sd_event_source_set_enabled(n->patience_timer, SD_EVENT_OFF);
	request_lists_of_fallbacks(n);
	n->snapshot_loaded = true;
	node_changed(n);
	start_try_finish(n);
	sentinel_snapshot_arrived(n);
	allocate_plan(n);
	if (n->sweep_wanted)
		snapshot_request(n);
}

static bool wants_query(const struct card *c)
{
	return c->present && c->has_vfs && c->n_vfs > 0;
}

/* --- While NVML hangs ------------------------------------------------------------------------- */

/* As if a query had been sent and had timed out. The text is that of the first one: it is one hang.
 */
static void apply_timeout(struct node *n)
{
	uint64_t now = clock_now_usec();
	struct nvml_answer answer = { .reason = NVML_REASON_TIMEOUT,
				      .skipped = true,
				      .asked_usec = now,
				      .answered_usec = now };

	if (n->host_fallback == NVML_REASON_TIMEOUT)
		str_copy_cut(answer.text, sizeof answer.text, n->host_fallback_text);
	else
		snprintf(answer.text, sizeof answer.text, "NVML did not answer within %g s",
			 (double)n->config->nvml_timeout_usec / (double)USEC_PER_SEC);
	apply_answer(n, &answer);
}

static void probe_later(struct node *n)
{
	sd_event_source_set_time(n->probe_timer, clock_now_usec() + n->probe_delay_usec);
	sd_event_source_set_enabled(n->probe_timer, SD_EVENT_ONESHOT);
	n->probe_delay_usec = MIN(n->probe_delay_usec * 2, PROBE_LONGEST_USEC);
}

static void probe_answered(const struct nvml_answer *answer, void *userdata)
{
	struct node *n = userdata;

	if (!answer->skipped) {
		count_reasons(n, answer);
		node_metrics_observe_query(n, answer);
	}
	if (n->nvml_hung && answer->reason == NVML_REASON_TIMEOUT) {
		probe_later(n);
		return;
	}
	n->nvml_hung = false;
	snapshot_request(n);
}

static int probe(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct node *n = userdata;
	struct pci_addr cards[NVML_CARDS_MAX];
	unsigned count = 0;

	(void)source;
	(void)usec;
	for (unsigned i = 0; i < n->n_cards && count < NVML_CARDS_MAX; i++)
		if (wants_query(n->cards[i]))
			cards[count++] = n->cards[i]->address;
	if (n->nvml_hung && nvml_client_query(n->nvml, cards, count, probe_answered, n) < 0)
		probe_later(n);
	return 0;
}

/* The helper is killed, but whether a fresh one hangs as well is for nobody to wait for. */
static void begin_hang(struct node *n)
{
	n->nvml_hung = true;
	n->probe_delay_usec = PROBE_FIRST_USEC;
	probe_later(n);
}

void snapshot_driver_changed(struct node *n)
{
	n->nvml_hung = false;
	sd_event_source_set_enabled(n->probe_timer, SD_EVENT_OFF);
}

/* Claims had to wait for the end of another query first: they fall back when their time is over.
 * The query goes on. */
static int claims_waited_enough(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct node *n = userdata;

	(void)source;
	(void)usec;
	if (!n->sweep_busy || n->answered_seq == n->sweep_seq)
		return 0;
	apply_timeout(n);
	n->answered_seq = n->sweep_seq;
	request_lists_of_fallbacks(n);
	node_changed(n);
	allocate_plan(n);
	return 0;
}

/* --- Asking ------------------------------------------------------------------------------------
 */

static void sweep_answered(const struct nvml_answer *answer, void *userdata)
{
	struct node *n = userdata;

	apply_answer(n, answer);
	if (answer->reason == NVML_REASON_TIMEOUT)
		begin_hang(n);
	sweep_finished(n);
}

/* What is said from now on is newer than all that was written before. Fills in whom to ask. */
static unsigned begin_query(struct node *n, struct pci_addr cards[static NVML_CARDS_MAX])
{
	unsigned count = 0;

	n->sweep_wanted = false;
	n->claims_since_usec = 0;
	n->sweep_seq = node_next_seq(n);
	for (unsigned i = 0; i < n->n_cards && count < NVML_CARDS_MAX; i++) {
		struct card *c = n->cards[i];

		if (!wants_query(c))
			continue;
		c->asked_write_seq = c->writes > 0 ? UINT64_MAX : c->write_seq;
		c->asked_changes = c->changes;
		cards[count++] = c->address;
	}
	return count;
}

/* A refresh gives way to a claim, unless it has run for as long as one takes: then it is nearly
 * over, or hangs. A query that claims wait for is asked anew only at its very beginning, so that
 * those of a burst, which do not all come in one turn of the loop, share it; that costs the first a
 * tenth. */
static void ask_anew_for_claims(struct node *n)
{
	bool waited_for = allocate_waits(n, n->answered_seq, n->sweep_seq);
	uint64_t now = clock_now_usec();
	uint64_t limit = waited_for ? n->query_usec / 10 : n->query_usec;
	struct pci_addr cards[NVML_CARDS_MAX];

	if (!allocate_waits(n, n->sweep_seq, UINT64_MAX) || n->sweep_restarts >= RESTARTS_MAX ||
	    now - n->sweep_begun_usec >= limit || nvml_client_restart(n->nvml, !waited_for) < 0)
		return;
	n->sweep_restarts++;
	if (!waited_for)
		n->sweep_begun_usec = now;
	(void)begin_query(n, cards);
}

static int start_sweep(sd_event_source *source, void *userdata)
{
	struct node *n = userdata;
	struct pci_addr cards[NVML_CARDS_MAX];
	uint64_t since = n->claims_since_usec;
	unsigned count;

	(void)source;
	if (n->sweep_busy)
		ask_anew_for_claims(n);
	if (n->sweep_busy || !n->inventory_known || (nvml_client_is_busy(n->nvml) && !n->nvml_hung))
		return 0; /* asked for again when that has ended */
	n->sweep_busy = true;
	n->sweep_begun_usec = clock_now_usec();
	n->sweep_restarts = 0;
	count = begin_query(n, cards);
	if (n->nvml_hung && count > 0) {
		apply_timeout(n);
		sweep_finished(n);
	} else if (count == 0 || nvml_client_query(n->nvml, cards, count, sweep_answered, n) < 0) {
		sweep_finished(n);
	} else if (since > 0) {
		sd_event_source_set_time(n->patience_timer, since + n->config->nvml_timeout_usec);
		sd_event_source_set_enabled(n->patience_timer, SD_EVENT_ONESHOT);
	}
	return 0;
}

void snapshot_request(struct node *n)
{
	n->sweep_wanted = true;
	if (n->sweep_busy && n->claims_since_usec == 0 &&
	    allocate_waits(n, n->sweep_seq, UINT64_MAX))
		n->claims_since_usec = clock_now_usec();
	/* Once per turn of the loop: claims that came in together share the query. */
	if (sd_event_source_set_enabled(n->defer, SD_EVENT_ONESHOT) < 0)
		log_error("snapshot: refresh cannot be started");
}

int snapshot_start(struct node *n, struct error *err)
{
	int r;

	r = sd_event_add_defer(n->event, &n->defer, start_sweep, n);
	if (r < 0)
		return error_set_errno(err, r, "refresh source");
	/* After everything that came in with the same turn. */
	r = sd_event_source_set_priority(n->defer, SD_EVENT_PRIORITY_NORMAL + 10);
	if (r >= 0)
		r = sd_event_source_set_enabled(n->defer, SD_EVENT_OFF);
	if (r >= 0)
		r = sd_event_add_time(n->event, &n->probe_timer, CLOCK_MONOTONIC, 0, 0, probe, n);
	if (r >= 0)
		r = sd_event_source_set_enabled(n->probe_timer, SD_EVENT_OFF);
	if (r >= 0)
		r = sd_event_add_time(n->event, &n->patience_timer, CLOCK_MONOTONIC, 0, 0,
				      claims_waited_enough, n);
	if (r >= 0)
		r = sd_event_source_set_enabled(n->patience_timer, SD_EVENT_OFF);
	if (r < 0)
		return error_set_errno(err, r, "refresh source");
	return 0;
}
