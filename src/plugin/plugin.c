/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/plugin.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "plugin/device-plugin.h"
#include "plugin/kubelet.h"
#include "plugin/pod-resources.h"

#define TICK_USEC	  (3 * USEC_PER_SEC)
#define SCAN_RETRY_USEC	  (5 * USEC_PER_SEC) /* until the first scan went well */
#define END_LIMIT_USEC	  (2 * USEC_PER_SEC) /* for the last, empty list to go out */
#define CARD_TIMEOUT_USEC (15 * USEC_PER_SEC)
#define SCAN_WAIT_USEC	  (5 * USEC_PER_SEC)
#define NVML_TIMEOUT_USEC (5 * USEC_PER_SEC)

/* --- The set in force ------------------------------------------------------------------------ */

static struct device_plugin *find_plugin(struct plugin *p, const char *resource)
{
	for (unsigned i = 0; i < p->n_device_plugins; i++)
		if (strcmp(p->device_plugins[i]->resource, resource) == 0)
			return p->device_plugins[i];
	return NULL;
}

static void start_resource(struct plugin *p, const struct set_change *c)
{
	struct device_plugin *dp = find_plugin(p, c->resource);

	log_notice("plugin: offers a resource resource=%s devices=%u", c->resource, c->added);
	if (dp) {
		device_plugin_revive(dp);
	} else if (p->n_device_plugins == RESOURCES_MAX ||
		   device_plugin_new(p, c->resource, &dp) < 0) {
		log_error("plugin: cannot serve it resource=%s: more than %d resources, or out of "
			  "memory",
			  c->resource, RESOURCES_MAX);
		return;
	} else {
		p->device_plugins[p->n_device_plugins++] = dp;
	}
	device_plugin_list_changed(dp);
}

static void apply_change(struct plugin *p, const struct set_change *c)
{
	struct device_plugin *dp;

	switch (c->kind) {
	case SET_CHANGE_START:
		start_resource(p, c);
		return;
	case SET_CHANGE_UPDATE:
		log_info("plugin: its list changes resource=%s added=%u removed=%u", c->resource,
			 c->added, c->removed);
		dp = find_plugin(p, c->resource);
		if (dp)
			device_plugin_list_changed(dp);
		return;
	case SET_CHANGE_STOP:
		log_notice("plugin: offers a resource no longer resource=%s", c->resource);
		dp = find_plugin(p, c->resource);
		if (dp)
			device_plugin_end(dp);
		return;
	}
}

/* Frees resources whose last list has gone out. */
static void collect_ended(struct plugin *p)
{
	uint64_t now = clock_now_usec();

	for (unsigned i = p->n_device_plugins; i-- > 0;) {
		struct device_plugin *dp = p->device_plugins[i];

		if (!dp->ending || (dp->n_watches > 0 && now - dp->ended_usec < END_LIMIT_USEC))
			continue;
		p->device_plugins[i] = p->device_plugins[--p->n_device_plugins];
		device_plugin_free(dp);
	}
}

static void say_left_out(const struct discovery *before, const struct discovery *now)
{
	for (unsigned i = 0; i < now->n_left_out; i++) {
		const struct left_out *l = &now->left_out[i];
		bool said = false;

		for (unsigned k = 0; before && k < before->n_left_out && !said; k++)
			said = strcmp(before->left_out[k].id, l->id) == 0 &&
			       strcmp(before->left_out[k].reason, l->reason) == 0;
		if (!said)
			log_warning("plugin: not offered device=%s: %s", l->id, l->reason);
	}
}

static void say_health(const struct resource *r, const struct device *d)
{
	const char *problem = device_problem(d);

	if (problem)
		log_warning("plugin: unhealthy resource=%s device=%s: %s", r->name, d->id, problem);
	else
		log_notice("plugin: healthy again resource=%s device=%s", r->name, d->id);
}

/* Looks at nodes and functions; tells of lists that read otherwise then. */
static void look_at_presence(struct plugin *p)
{
	struct discovery *d = p->current;

	presence_look(&p->presence, p->options.sysfs_root, p->options.dev_root);
	for (unsigned i = 0; d && i < d->n_resources; i++) {
		struct resource *r = &d->resources[i];
		struct device_plugin *dp = find_plugin(p, r->name);
		bool changed = false;

		for (unsigned k = 0; k < r->n_devices; k++) {
			if (!presence_judge(&p->presence, &r->devices[k]))
				continue;
			changed = true;
			say_health(r, &r->devices[k]);
		}
		if (changed && dp && !dp->ending)
			device_plugin_list_changed(dp);
	}
	if (d)
		plugin_metrics_set(&p->metrics, d);
}

void plugin_refresh(struct plugin *p)
{
	struct discovery *next = NULL, *before = p->current;
	_free_ struct set_change *changes = NULL;
	unsigned n = 0;

	if (!p->scanned || p->stopping)
		return;
	if (plugin_set_compute(p->scanned, before, &p->pods, &p->quarantine, &next) < 0) {
		log_error("plugin: out of memory; the lists stay as they were");
		return;
	}
	presence_look(&p->presence, p->options.sysfs_root, p->options.dev_root);
	for (unsigned i = 0; i < next->n_resources; i++)
		for (unsigned k = 0; k < next->resources[i].n_devices; k++)
			if (presence_judge(&p->presence, &next->resources[i].devices[k]))
				say_health(&next->resources[i], &next->resources[i].devices[k]);
	if (plugin_set_diff(before, next, &changes, &n) < 0) {
		log_error("plugin: out of memory; the lists stay as they were");
		discovery_free(next);
		return;
	}
	say_left_out(before, next);
	/* From here on they can be allocated; only then is the kubelet told. */
	p->current = next;
	for (unsigned i = 0; i < n; i++)
		apply_change(p, &changes[i]);
	discovery_free(before);
	plugin_metrics_set(&p->metrics, next);
	kubelet_look(p->kubelet);
}

/* --- Scans ----------------------------------------------------------------------------------- */

static void arm_rescan(struct plugin *p)
{
	uint64_t usec = p->options.rescan.usec;

	if (!p->scanned && (usec == 0 || usec > SCAN_RETRY_USEC))
		usec = SCAN_RETRY_USEC;
	if (usec == 0)
		return;
	sd_event_source_set_time(p->rescan_timer, clock_now_usec() + usec);
	sd_event_source_set_enabled(p->rescan_timer, SD_EVENT_ONESHOT);
}

static void scan_failed(struct plugin *p, const struct error *err)
{
	p->scan_failures++;
	if (p->scan_failures == 1)
		log_error("plugin: the host cannot be scanned; the lists stay as they are, "
			  "retrying: %s",
			  error_text(err));
}

static void scan_done(struct discovery *take, const struct scan_stats *stats,
		      const struct error *err, void *userdata)
{
	struct plugin *p = userdata;

	plugin_metrics_scanned(&p->metrics, take != NULL, stats->took_usec, stats->nvml_cards);
	if (!take) {
		scan_failed(p, err);
		arm_rescan(p);
		return;
	}
	if (p->scan_failures > 0)
		log_notice("plugin: the host can be scanned again");
	p->scan_failures = 0;
	p->last_scan_usec = clock_now_usec();
	if (stats->nvml_text[0] && !p->nvml_complained)
		log_warning("plugin: NVML could not name types, leaving out VFs that only it can "
			    "name: %s",
			    stats->nvml_text);
	p->nvml_complained = stats->nvml_text[0] != '\0';
	log_debug("plugin: scanned usec=%" PRIu64 " nvml_cards=%u", stats->took_usec,
		  stats->nvml_cards);
	discovery_free(p->scanned);
	p->scanned = take;
	arm_rescan(p);
	if (p->pod_client)
		pod_client_ask(p->pod_client); /* the set is computed when it has answered */
	else
		plugin_refresh(p);
}

static void pods_done(struct pod_devices *take, const struct error *err, void *userdata)
{
	struct plugin *p = userdata;

	metric_set(p->metrics.pods_known, NULL, take != NULL);
	if (take) {
		pod_devices_done(&p->pods);
		p->pods = *take;
		if (p->pods_complained)
			log_notice("plugin: pod-resources answers again");
	} else if (!p->pods_complained) {
		log_warning("plugin: pod-resources does not answer; what pods have counts as "
			    "before, retrying: %s",
			    error_text(err));
	}
	p->pods_complained = take == NULL;
	plugin_refresh(p);
}

static int rescan_due(sd_event_source *source, uint64_t usec, void *userdata)
{
	(void)source;
	(void)usec;
	plugin_rescan(userdata);
	return 0;
}

void plugin_rescan(struct plugin *p)
{
	if (!p->stopping)
		scan_request(p->scan);
}

void plugin_suspect(struct plugin *p)
{
	if (p->options.rescan.usec > 0 && !scan_is_running(p->scan))
		plugin_rescan(p);
}

/* --- The tick -------------------------------------------------------------------------------- */

static void look_at_health_file(struct plugin *p)
{
	struct error err = ERROR_INIT;
	bool was_unreadable = p->quarantine.unreadable;
	int r = quarantine_load(p->options.health_file, &p->quarantine, &err);

	metric_set(p->metrics.quarantine_unreadable, NULL, p->quarantine.unreadable);
	if (r < 0 && !p->health_complained)
		log_error("plugin: berthd's health file cannot be read, so %s: %s",
			  p->quarantine.loaded ? "the quarantines known last stay in force"
					       : "no VF counts as healthy",
			  error_text(&err));
	p->health_complained = r < 0;
	if (r > 0 || was_unreadable != p->quarantine.unreadable)
		plugin_refresh(p);
}

static int tick(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct plugin *p = userdata;

	(void)usec;
	sd_event_source_set_time(source, clock_now_usec() + TICK_USEC);
	sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
	look_at_health_file(p);
	look_at_presence(p);
	/* What pods have is needed once, even where nothing is scanned again. */
	if (p->pod_client && p->scanned && !p->pods.known)
		pod_client_ask(p->pod_client);
	kubelet_look(p->kubelet);
	collect_ended(p);
	return 0;
}

const char *plugin_not_ready(const struct plugin *p, char *buf, size_t size)
{
	if (!p->current)
		return "the host has not been scanned yet";
	if (!kubelet_is_there(p->kubelet))
		return "the kubelet's socket is not there";
	for (unsigned i = 0; i < p->n_device_plugins; i++) {
		const struct device_plugin *dp = p->device_plugins[i];

		if (dp->ending || dp->registered)
			continue;
		snprintf(buf, size, "%s is not registered%s%s", dp->resource,
			 dp->complained ? ": " : "", dp->complained ? dp->last_problem : "");
		return buf;
	}
	return NULL;
}

/* --- Life ------------------------------------------------------------------------------------ */

static int start_timers(struct plugin *p)
{
	int r = sd_event_add_time(p->event, &p->tick_timer, CLOCK_MONOTONIC,
				  clock_now_usec() + TICK_USEC, 0, tick, p);

	if (r >= 0)
		r = sd_event_add_time(p->event, &p->rescan_timer, CLOCK_MONOTONIC, UINT64_MAX, 0,
				      rescan_due, p);
	if (r >= 0)
		r = sd_event_source_set_enabled(p->rescan_timer, SD_EVENT_OFF);
	return r;
}

int plugin_start(struct plugin *p, struct error *err)
{
	struct scan_config scan = { .event = p->event,
				    .sysfs_root = p->options.sysfs_root,
				    .dev_root = p->options.dev_root,
				    .nvml_library = p->options.nvml_library,
				    .run_dir = p->run_dir,
				    .pci_ids = p->options.pci_ids,
				    .names = p->names,
				    .card_timeout_usec = CARD_TIMEOUT_USEC,
				    .wait_usec = SCAN_WAIT_USEC,
				    .nvml_timeout_usec = NVML_TIMEOUT_USEC,
				    .done = scan_done,
				    .userdata = p };
	int r;

	r = kubelet_new(p, &p->kubelet, err);
	if (r < 0)
		return r;
	p->pods.asked = p->options.pod_resources != NULL;
	if (p->pods.asked &&
	    pod_client_new(p->event, p->options.pod_resources, pods_done, p, &p->pod_client) < 0)
		return error_set(err, ENOMEM, "out of memory");
	r = start_timers(p);
	if (r < 0)
		return error_set_errno(err, r, "timers");
	r = scan_new(&scan, &p->scan, err);
	if (r < 0)
		return r;
	look_at_health_file(p);
	scan_request(p->scan);
	return 0;
}

void plugin_done(struct plugin *p)
{
	p->stopping = true;
	for (unsigned i = 0; i < p->n_device_plugins; i++)
		device_plugin_free(p->device_plugins[i]);
	p->n_device_plugins = 0;
	p->kubelet = kubelet_free(p->kubelet);
	p->pod_client = pod_client_free(p->pod_client);
	sd_event_source_disable_unref(p->rescan_timer);
	sd_event_source_disable_unref(p->tick_timer);
	p->scan = scan_free(p->scan);
	discovery_free(p->current);
	discovery_free(p->scanned);
	pod_devices_done(&p->pods);
	quarantine_done(&p->quarantine);
	presence_done(&p->presence);
	plugin_metrics_done(&p->metrics);
	p->names = name_map_free(p->names);
}
