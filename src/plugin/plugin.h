/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin as a whole: what it was told on the command line, the set in force, and its parts.
 *
 * One thread, one sd-event loop; what can block runs in the scan's worker and in berth-card and
 * berth-nvml. The order of things is: a scan ends, the next set is computed, it is put in force
 * (from then on its devices can be allocated), and only then is it told to the kubelet.
 */
#pragma once

#include <systemd/sd-event.h>

#include "plugin/go-duration.h"
#include "plugin/plugin-metrics.h"
#include "plugin/presence.h"
#include "plugin/quarantine.h"
#include "plugin/scan.h"

#define RESOURCES_MAX	    256
#define ALLOCATE_LIMIT_USEC UINT64_C(20000000)

struct options {
	const char *kubelet_dir;
	const char *sysfs_root;
	const char *dev_root;
	const char *nvml_library;
	const char *pod_resources; /* NULL: not asked */
	const char *listen;	   /* NULL: no HTTP */
	const char *names_file;	   /* NULL: none */
	const char *pci_ids;	   /* NULL: usual places */
	const char *health_file;
	struct rescan_interval rescan;
};

struct device_plugin;
struct kubelet;
struct pod_client;
struct http_server;

struct plugin {
	struct options options;
	sd_event *event;
	char run_dir[64];
	struct name_map *names;
	struct scan *scan;
	struct discovery *scanned; /* the last good scan; NULL before the first */
	struct discovery *current; /* the set in force; NULL before the first scan */
	struct pod_devices pods;
	struct pod_client *pod_client;
	struct quarantine quarantine;
	struct presence presence;
	struct kubelet *kubelet;
	unsigned n_device_plugins;
	struct device_plugin *device_plugins[RESOURCES_MAX];
	struct plugin_metrics metrics;
	struct http_server *http;
	sd_event_source *rescan_timer, *tick_timer;
	unsigned scan_failures; /* in a row */
	bool nvml_complained, health_complained, pods_complained, stopping;
	uint64_t last_scan_usec; /* when the last good one ended */
};

/* Starts scanning and serving. */
int plugin_start(struct plugin *p, struct error *err) _must_check_;
void plugin_done(struct plugin *p);

/* Scan now (SIGHUP, a first scan that failed). */
void plugin_rescan(struct plugin *p);
/* Computes the set anew from what is known, and tells what changed. */
void plugin_refresh(struct plugin *p);
/* A device is another's than it was a moment ago: look soon, if rescans are on. */
void plugin_suspect(struct plugin *p);

/* One word on why it is not ready, or NULL. */
const char *plugin_not_ready(const struct plugin *p, char *buf, size_t size);
