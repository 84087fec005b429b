/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/plugin-metrics.h"

#include <time.h>

#include "base/clock.h"

static const double seconds_buckets[] = { 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30 };

static const char *result_name(bool ok)
{
	return ok ? "ok" : "error";
}

void plugin_metrics_init(struct plugin_metrics *m)
{
	static const char *const version[] = { "version" };
	static const char *const by_resource[] = { "resource" };
	static const char *const by_result[] = { "result" };
	static const char *const by_health[] = { "resource", "health" };
	static const char *const by_resource_result[] = { "resource", "result" };
	static const char *const by_call[] = { "resource", "call", "result" };
	static const char *const this_version[] = { BERTH_VERSION };
	struct metrics *r = metrics_new();

	m->registry = r;
	if (!r)
		return;
	m->build_info = metrics_gauge(r, "berth_plugin_build_info", "Version of the plugin",
				      version, 1);
	m->devices = metrics_gauge(r, "berth_plugin_devices", "Devices that are listed", by_health,
				   2);
	m->left_out = metrics_gauge(r, "berth_plugin_left_out_devices",
				    "Devices that are found but not listed", NULL, 0);
	m->free_vfs = metrics_gauge(r, "berth_plugin_unconfigured_vfs", "VFs without a vGPU type",
				    NULL, 0);
	m->registrations = metrics_counter(r, "berth_plugin_registrations_total",
					   "Registrations with the kubelet", by_resource_result, 2);
	m->lists = metrics_counter(r, "berth_plugin_lists_total", "Changes of a resource's list",
				   by_resource, 1);
	m->allocations = metrics_counter(r, "berth_plugin_allocations_total",
					 "Allocate and PreStartContainer calls", by_call, 3);
	m->allocation_seconds = metrics_histogram(r, "berth_plugin_allocation_seconds",
						  "Time that they took", NULL, 0, seconds_buckets,
						  ARRAY_SIZE(seconds_buckets));
	m->scans = metrics_counter(r, "berth_plugin_scans_total", "Scans of the host", by_result,
				   1);
	m->scan_seconds = metrics_histogram(r, "berth_plugin_scan_seconds", "Time that they took",
					    NULL, 0, seconds_buckets, ARRAY_SIZE(seconds_buckets));
	m->nvml_queries = metrics_counter(r, "berth_plugin_nvml_cards_total",
					  "Cards that NVML was asked about", NULL, 0);
	m->kubelet_up = metrics_gauge(r, "berth_plugin_kubelet_socket",
				      "Is the kubelet's socket there?", NULL, 0);
	m->quarantine_unreadable = metrics_gauge(r, "berth_plugin_health_file_unreadable",
						 "berthd's vf-health.json cannot be read", NULL, 0);
	m->pods_known = metrics_gauge(r, "berth_plugin_pod_resources_known",
				      "Did the newest question to pod-resources get an answer? -1: "
				      "none was asked",
				      NULL, 0);
	m->last_scan = metrics_gauge(r, "berth_plugin_last_scan_age_seconds",
				     "Since the last good scan ended; -1 before the first", NULL,
				     0);
	metric_set(m->build_info, this_version, 1);
	metric_set(m->pods_known, NULL, -1);
	metric_set(m->last_scan, NULL, -1);
	for (int ok = 0; ok <= 1; ok++)
		metric_add(m->scans, (const char *const[]){ result_name(ok) }, 0);
	metric_set(metrics_gauge(r, "berth_plugin_start_time_seconds",
				 "When this plugin started, seconds since 1970", NULL, 0),
		   NULL, (double)time(NULL));
}

void plugin_metrics_done(struct plugin_metrics *m)
{
	m->registry = metrics_free(m->registry);
}

/* A series that begins with its first error has no increase that a rule could see. */
static void show_results(struct plugin_metrics *m, const char *resource)
{
	static const char *const calls[] = { "allocate", "pre_start" };

	for (int ok = 0; ok <= 1; ok++) {
		metric_add(m->registrations, (const char *const[]){ resource, result_name(ok) }, 0);
		for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
			metric_add(m->allocations,
				   (const char *const[]){ resource, calls[i], result_name(ok) }, 0);
	}
}

void plugin_metrics_list_sent(struct plugin_metrics *m, const char *resource)
{
	metric_add(m->lists, (const char *const[]){ resource }, 1);
}

void plugin_metrics_registered(struct plugin_metrics *m, const char *resource, bool ok)
{
	metric_add(m->registrations, (const char *const[]){ resource, result_name(ok) }, 1);
}

void plugin_metrics_allocated(struct plugin_metrics *m, const char *resource, bool pre_start,
			      bool ok, uint64_t usec)
{
	const char *call = pre_start ? "pre_start" : "allocate";

	metric_add(m->allocations, (const char *const[]){ resource, call, result_name(ok) }, 1);
	metric_observe(m->allocation_seconds, NULL, (double)usec / (double)USEC_PER_SEC);
}

void plugin_metrics_scanned(struct plugin_metrics *m, bool ok, uint64_t usec, unsigned nvml_cards)
{
	metric_add(m->scans, (const char *const[]){ result_name(ok) }, 1);
	metric_observe(m->scan_seconds, NULL, (double)usec / (double)USEC_PER_SEC);
	metric_add(m->nvml_queries, NULL, nvml_cards);
}

void plugin_metrics_set(struct plugin_metrics *m, const struct discovery *d)
{
	metric_clear(m->devices);
	for (unsigned i = 0; i < d->n_resources; i++) {
		const struct resource *r = &d->resources[i];
		unsigned healthy = 0;

		for (unsigned k = 0; k < r->n_devices; k++)
			healthy += !device_problem(&r->devices[k]);
		metric_set(m->devices, (const char *const[]){ r->name, "healthy" }, healthy);
		metric_set(m->devices, (const char *const[]){ r->name, "unhealthy" },
			   r->n_devices - healthy);
		show_results(m, r->name);
	}
	metric_set(m->left_out, NULL, d->n_left_out);
	metric_set(m->free_vfs, NULL, d->n_free);
}
