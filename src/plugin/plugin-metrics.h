/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin's metrics: berth_plugin_*. All functions do nothing where memory was out at start.
 */
#pragma once

#include "base/metrics.h"
#include "plugin/device.h"

struct plugin_metrics {
	struct metrics *registry;
	struct metric *build_info, *devices, *left_out, *free_vfs, *registrations, *lists,
		*allocations, *allocation_seconds, *scans, *scan_seconds, *nvml_queries,
		*kubelet_up, *quarantine_unreadable, *pods_known, *last_scan;
};

void plugin_metrics_init(struct plugin_metrics *m);
void plugin_metrics_done(struct plugin_metrics *m);

void plugin_metrics_list_sent(struct plugin_metrics *m, const char *resource);
void plugin_metrics_registered(struct plugin_metrics *m, const char *resource, bool ok);
void plugin_metrics_allocated(struct plugin_metrics *m, const char *resource, bool pre_start,
			      bool ok, uint64_t usec);
void plugin_metrics_scanned(struct plugin_metrics *m, bool ok, uint64_t usec, unsigned nvml_cards);
/* Devices, and what is left out. */
void plugin_metrics_set(struct plugin_metrics *m, const struct discovery *d);
