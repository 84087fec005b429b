/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/node-metrics.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "daemon/capacity.h"
#include "daemon/snapshot.h"
#include "model/outcome.h"

struct node_metrics {
	struct metric *slots, *profile_slots, *fallbacks, *query_seconds, *placements_age, *drift,
		*steer;
	struct metric *card_stuck, *claims, *claim_seconds, *reconcile_failures, *store_unavailable;
	struct metric *unclaimed_open, *commits;
	struct metric *fallback_active, *card_cordoned, *profile_used, *claims_held,
		*claims_with_problem, *failing_vfs, *certificate_end;
	struct metric *init_failures, *quarantines, *ignored_markers, *quarantined_vfs,
		*health_unavailable;
};

/* Series that are shown from the start: one that begins with its first failure has no increase that
 * a rule could see. */
static const char *const fallback_reasons[] = { "equal_size", "mig",	 "unsupported",
						"library",    "timeout", "error" };
static const char *const stages[] = { "holder_gone_vf_open", "inventory",
				      "open_scan",	     "release",
				      "reset_unclaimed_vfs", "store",
				      "unclaimed_vf_open",   "undo" };
static const char *const ignored_reasons[] = { "agent", "claim_changed", "nvml" };
static const int claim_results[] = {
	E_INSUFFICIENT_RESOURCES,   E_CORDONED,		 E_ARCHIVE_FAILED,
	E_HEALTH_STORE_UNAVAILABLE, E_STORE_UNAVAILABLE, E_SYSFS_READ_ONLY,
	E_DRIVER_REFUSED,	    E_DRIVER_STUCK,	 E_INTERNAL,
};

static void declare_counters(struct metrics *m, struct node_metrics *f)
{
	static const char *const reason[] = { "reason" }, *const result[] = { "result" },
				 *const stage[] = { "stage" };

	f->fallbacks = metrics_counter(
		m, "berth_nvml_fallbacks_total",
		"NVML queries in which a card or the host fell back to sysfs, by reason.", reason,
		1);
	f->drift = metrics_counter(m, "berth_placement_drift_total",
				   "NVML answers that disagree with what the VFs say.", NULL, 0);
	f->steer = metrics_counter(
		m, "berth_placement_steer_failures_total",
		"Placements asked for that the driver refused; its own choice was kept.", NULL, 0);
	f->claims = metrics_counter(m, "berth_claims_total",
				    "Claims and releases that ended, by result.", result, 1);
	f->reconcile_failures = metrics_counter(
		m, "berth_reconcile_failures_total",
		"Steps of reconciliation that failed or were put off, by stage.", stage, 1);
	f->init_failures = metrics_counter(
		m, "berth_sentinel_init_failures_total",
		"Driver init failures reported from guests, below the threshold.", NULL, 0);
	f->quarantines = metrics_counter(m, "berth_sentinel_quarantines_total",
					 "VFs quarantined by the sentinel.", NULL, 0);
	f->ignored_markers = metrics_counter(
		m, "berth_sentinel_ignored_markers_total",
		"Markers that contradict what the host can see, by reason.", reason, 1);
	f->commits = metrics_gauge(m, "berth_claims_store_commits",
				   "Commits to the claims database by this berthd.", NULL, 0);
}

static void declare_state(struct metrics *m, struct node_metrics *f)
{
	static const char *const fallback[] = { "gpu", "reason" }, *const profile[] = { "profile" },
				 *const gpu[] = { "gpu" }, *const state[] = { "state" },
				 *const problem[] = { "problem" };
	static const char *const build[] = { "version" };
	static const char *const version[] = { BERTH_VERSION };

	f->fallback_active = metrics_gauge(
		m, "berth_nvml_fallback_active",
		"1 while NVML is not used for a card, with the reason; else 0 with reason none.",
		fallback, 2);
	f->card_cordoned = metrics_gauge(m, "berth_card_cordoned",
					 "1 while a card takes no new claims.", gpu, 1);
	f->profile_used = metrics_gauge(
		m, "berth_profile_used_vfs",
		"VFs configured with a profile, by whomever; unknown where its name is not known.",
		profile, 1);
	f->claims_held = metrics_gauge(m, "berth_claims_held", "Claims that are there, by state.",
				       state, 1);
	f->claims_with_problem = metrics_gauge(
		m, "berth_claims_with_problem",
		"Claims whose VF is not as it was claimed, by problem.", problem, 1);
	f->failing_vfs = metrics_gauge(
		m, "berth_vfs_with_init_failures",
		"VFs with recorded init failures, below the threshold or above it.", NULL, 0);
	f->certificate_end = metrics_gauge(
		m, "berth_tls_certificate_expires_seconds",
		"When the TLS listener's certificate ends, seconds since 1970; 0: no TLS.", NULL,
		0);
	metric_set(f->certificate_end, NULL, 0);
	metric_set(metrics_gauge(m, "berth_start_time_seconds",
				 "When this berthd started, seconds since 1970.", NULL, 0),
		   NULL, (double)time(NULL));
	metric_set(metrics_gauge(m, "berth_build_info", "1, with the version as label.", build, 1),
		   version, 1);
}

static void declare_gauges(struct metrics *m, struct node_metrics *f)
{
	static const char *const slots[] = { "gpu", "state" }, *const profile[] = { "profile" },
				 *const gpu[] = { "gpu" };
	static const double query[] = { .005, .01, .02, .05, .1, .2, .5, 1, 2, 5 };
	static const double claim[] = { .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 60 };

	f->slots = metrics_gauge(m, "berth_slots",
				 "VFs of a card by state; quarantined overlaps used.", slots, 2);
	f->profile_slots = metrics_gauge(
		m, "berth_profile_slots",
		"vGPUs of a profile that fit now (placements; not additive).", profile, 1);
	f->placements_age = metrics_gauge(m, "berth_placements_age_seconds",
					  "Age of the placements in use; -1 before the first.",
					  NULL, 0);
	f->card_stuck = metrics_gauge(m, "berth_card_stuck",
				      "1 while a card's driver does not answer.", gpu, 1);
	f->store_unavailable = metrics_gauge(m, "berth_claims_store_unavailable",
					     "1 while the claims database cannot be used.", NULL,
					     0);
	f->quarantined_vfs = metrics_gauge(m, "berth_quarantined_vfs",
					   "VFs that are quarantined, present or not.", NULL, 0);
	f->health_unavailable = metrics_gauge(m, "berth_vf_health_store_unavailable",
					      "1 while the health records cannot be used.", NULL,
					      0);
	f->unclaimed_open = metrics_gauge(
		m, "berth_unclaimed_open_vfs",
		"Configured VFs without a claim that a process holds open.", NULL, 0);
	f->query_seconds = metrics_histogram(m, "berth_nvml_query_seconds",
					     "Time of an NVML query of all cards.", NULL, 0, query,
					     ARRAY_SIZE(query));
	f->claim_seconds = metrics_histogram(m, "berth_claim_seconds",
					     "Time from a claim's arrival to its end.", NULL, 0,
					     claim, ARRAY_SIZE(claim));
}

static void show_series(struct node_metrics *f)
{
	static const char *const good[] = { "ok", "released" };

	for (size_t i = 0; i < ARRAY_SIZE(fallback_reasons); i++)
		metric_add(f->fallbacks, &fallback_reasons[i], 0);
	for (size_t i = 0; i < ARRAY_SIZE(stages); i++)
		metric_add(f->reconcile_failures, &stages[i], 0);
	for (size_t i = 0; i < ARRAY_SIZE(ignored_reasons); i++)
		metric_add(f->ignored_markers, &ignored_reasons[i], 0);
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		metric_add(f->claims, &good[i], 0);
	for (size_t i = 0; i < ARRAY_SIZE(claim_results); i++)
		metric_add(f->claims, &outcome_of(claim_results[i])->name, 0);
}

int node_metrics_start(struct node *n)
{
	n->metrics = metrics_new();
	n->m = calloc(1, sizeof *n->m);
	if (!n->metrics || !n->m)
		return -ENOMEM;
	declare_counters(n->metrics, n->m);
	declare_gauges(n->metrics, n->m);
	declare_state(n->metrics, n->m);
	show_series(n->m);
	return 0;
}

void node_metrics_count_fallback(struct node *n, const char *reason)
{
	metric_add(n->m->fallbacks, &reason, 1);
}

void node_metrics_observe_query(struct node *n, const struct nvml_answer *answer)
{
	if (!answer->skipped)
		metric_observe(n->m->query_seconds, NULL,
			       (double)(answer->answered_usec - answer->asked_usec) /
				       (double)USEC_PER_SEC);
}

void node_metrics_count_init_failure(struct node *n)
{
	metric_add(n->m->init_failures, NULL, 1);
}

void node_metrics_count_quarantine(struct node *n)
{
	metric_add(n->m->quarantines, NULL, 1);
}

void node_metrics_count_ignored_marker(struct node *n, const char *reason)
{
	metric_add(n->m->ignored_markers, &reason, 1);
}

void node_metrics_set_certificate_end(struct node *n, int64_t seconds)
{
	metric_set(n->m->certificate_end, NULL, (double)seconds);
}

void node_metrics_count_drift(struct node *n)
{
	metric_add(n->m->drift, NULL, 1);
}

void node_metrics_count_steer_failure(struct node *n)
{
	metric_add(n->m->steer, NULL, 1);
}

void node_metrics_count_claim(struct node *n, const char *result, uint64_t took_usec)
{
	metric_add(n->m->claims, &result, 1);
	if (took_usec > 0)
		metric_observe(n->m->claim_seconds, NULL, (double)took_usec / (double)USEC_PER_SEC);
}

void node_metrics_count_reconcile_failure(struct node *n, const char *stage)
{
	metric_add(n->m->reconcile_failures, &stage, 1);
}

static void fill_card_state(struct node *n, const struct card *c, const char *gpu)
{
	const char *reason = nvml_reason_name(c->fallback);

	metric_set(n->m->fallback_active, (const char *[]){ gpu, reason ? reason : "none" },
		   reason != NULL);
	metric_set(n->m->card_stuck, (const char *[]){ gpu }, c->stuck);
	metric_set(n->m->card_cordoned, (const char *[]){ gpu }, c->cordoned);
}

static void fill_slots(struct node *n)
{
	struct node_metrics *f = n->m;
	unsigned open = 0;

	metric_clear(f->slots);
	metric_clear(f->card_stuck);
	metric_clear(f->card_cordoned);
	metric_clear(f->fallback_active);
	for (unsigned i = 0; i < n->n_cards; i++) {
		const struct card *c = n->cards[i];
		struct capacity_slots s = capacity_count_slots(n, c);
		char gpu[PCI_ADDR_MAX];
		const struct {
			const char *state;
			unsigned count;
		} rows[] = { { "total", s.total },
			     { "used", s.used },
			     { "allocatable", s.allocatable },
			     { "quarantined", s.quarantined } };

		if (!c->present || !c->has_vfs)
			continue;
		pci_addr_format(c->address, gpu);
		for (size_t k = 0; k < ARRAY_SIZE(rows); k++)
			metric_set(f->slots, (const char *[]){ gpu, rows[k].state }, rows[k].count);
		fill_card_state(n, c, gpu);
		for (unsigned k = 0; k < c->n_vfs; k++)
			open += c->vfs[k].unclaimed_open;
	}
	metric_set(f->unclaimed_open, NULL, open);
}

static void fill_used_profiles(struct node *n, const struct card *c)
{
	for (unsigned i = 0; i < c->types.n; i++)
		metric_add(n->m->profile_used, (const char *[]){ c->types.items[i].name }, 0);
	for (unsigned i = 0; i < c->n_vfs; i++) {
		const struct profile *p = profile_list_find_id(&c->types, c->vfs[i].type_id);

		if (c->vfs[i].type_id != 0)
			metric_add(n->m->profile_used, (const char *[]){ p ? p->name : "unknown" },
				   1);
	}
}

static void fill_profiles(struct node *n)
{
	metric_clear(n->m->profile_slots);
	metric_clear(n->m->profile_used);
	for (unsigned i = 0; i < n->n_cards; i++) {
		const struct card *c = n->cards[i];
		struct placement_set overlay;

		if (!c->present)
			continue;
		capacity_overlay(n, c, &overlay);
		for (unsigned k = 0; k < c->types.n; k++)
			metric_add(n->m->profile_slots, (const char *[]){ c->types.items[k].name },
				   capacity_available(n, c, k, &overlay));
		fill_used_profiles(n, c);
	}
}

static void fill_claims(struct node *n)
{
	static const enum claim_state states[] = { CLAIM_STATE_BOUND, CLAIM_STATE_RELEASING,
						   CLAIM_STATE_EXTERNAL };

	metric_clear(n->m->claims_held);
	metric_clear(n->m->claims_with_problem);
	for (size_t i = 0; i < ARRAY_SIZE(states); i++)
		metric_set(n->m->claims_held, (const char *[]){ claim_state_name(states[i]) }, 0);
	for (enum claim_problem p = CLAIM_PROBLEM_NONE + 1; p <= CLAIM_PROBLEM_CARD_STUCK; p++)
		metric_set(n->m->claims_with_problem, (const char *[]){ claim_problem_name(p) }, 0);
	for (unsigned i = 0; i < n->n_claims; i++) {
		const struct claim_entry *e = n->claims[i];
		const char *problem = claim_problem_name(e->problem);

		metric_add(n->m->claims_held, (const char *[]){ claim_state_name(e->claim.state) },
			   1);
		if (problem)
			metric_add(n->m->claims_with_problem, &problem, 1);
	}
}

static unsigned count_failing(const struct health *h)
{
	unsigned count = 0;

	for (unsigned i = 0; i < h->n; i++)
		count += h->records[i].n_failures > 0;
	return count;
}

int node_metrics_render(struct node *n, struct buf *out)
{
	int64_t age = snapshot_age_ms(n);

	fill_slots(n);
	fill_profiles(n);
	fill_claims(n);
	metric_set(n->m->placements_age, NULL, age < 0 ? -1 : (double)age / 1000);
	metric_set(n->m->store_unavailable, NULL,
		   claim_store_get_state(n->store) != STORE_STATE_READY);
	metric_set(n->m->quarantined_vfs, NULL,
		   health_count_quarantined(health_store_get(n->health)));
	metric_set(n->m->failing_vfs, NULL, count_failing(health_store_get(n->health)));
	metric_set(n->m->health_unavailable, NULL,
		   health_store_get_state(n->health) != STORE_STATE_READY);
	metric_set(n->m->commits, NULL, (double)claim_store_commits(n->store));
	return metrics_render(n->metrics, out);
}
