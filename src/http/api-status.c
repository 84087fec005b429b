/* SPDX-License-Identifier: Apache-2.0 */
/* GET /status: how berthd itself is, for `berth doctor` and for people. From memory. */
#include "http/api-internal.h"

#include <errno.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/cleanup.h"
#include "daemon/reconcile.h"
#include "daemon/snapshot.h"
#include "model/outcome.h"

static const char *stage_name(enum node_stage s)
{
	switch (s) {
	case NODE_STARTING:
		return "starting";
	case NODE_READY:
		return "ready";
	case NODE_STOPPING:
		return "stopping";
	}
	return "starting";
}

static json_t *json_store(enum store_state state, const char *reason)
{
	const char *name = state == STORE_STATE_READY	  ? "ready"
			   : state == STORE_STATE_LOADING ? "loading"
							  : "unreadable";

	return json_pack("{s:s,s:o}", "state", name, "reason",
			 state == STORE_STATE_UNREADABLE ? api_json_text(reason) : json_null());
}

static json_t *json_nvml(const struct node *n)
{
	const char *state = !*n->config->nvml_library	       ? "off"
			    : nvml_client_is_released(n->nvml) ? "released"
			    : nvml_client_is_stuck(n->nvml)    ? "stuck"
							       : "in_use";

	return json_pack("{s:s,s:s?,s:o,s:o}", "state", state, "reason",
			 nvml_reason_name(n->host_fallback), "detail",
			 api_json_text(n->host_fallback_text), "code",
			 n->host_fallback_code ? json_integer(n->host_fallback_code) : json_null());
}

static json_t *json_reconcile(const struct node *n)
{
	struct reconcile_failure rows[RECONCILE_STAGES_MAX];
	unsigned count = reconcile_failures(n, rows);
	uint64_t now = clock_now_usec();
	json_t *list = json_array();

	for (unsigned i = 0; list && i < count; i++)
		json_array_append_new(
			list, json_pack("{s:s,s:I,s:I}", "stage", rows[i].stage, "count",
					(json_int_t)rows[i].count, "last_ms_ago",
					(json_int_t)((now - rows[i].last_usec) / USEC_PER_MSEC)));
	return json_pack("{s:I,s:o}", "interval_ms",
			 (json_int_t)(n->config->reconcile_interval_usec / USEC_PER_MSEC),
			 "failures", list);
}

static json_t *json_settings(const struct config *c)
{
	return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s}", "data_dir", c->data_dir, "socket",
			 c->socket, "sysfs_root", c->sysfs_root, "dev_root", c->dev_root,
			 "proc_root", c->proc_root, "nvml_library", c->nvml_library,
			 "unclaimed_vfs",
			 c->unclaimed_vfs == CONFIG_UNCLAIMED_RESET ? "reset" : "leave");
}

/* Asks the mount, not the driver; null where no VF is there to ask about. */
static json_t *json_read_only(const struct node *n)
{
	for (unsigned i = 0; i < n->n_cards; i++) {
		const struct card *c = n->cards[i];
		_free_ char *path = NULL;
		char text[PCI_ADDR_MAX];

		if (!c->present || c->n_vfs == 0 || !c->vfs[0].listed)
			continue;
		path = str_printf("%s/bus/pci/devices/%s/nvidia/current_vgpu_type",
				  n->config->sysfs_root, pci_addr_format(c->vfs[0].address, text));
		return path ? json_boolean(access(path, W_OK) < 0 && errno == EROFS) : json_null();
	}
	return json_null();
}

void api_get_status(struct http_request *req, void *userdata)
{
	const struct node *n = ((struct api *)userdata)->node;
	const char *reason = node_not_ready_reason(n);
	int64_t age = snapshot_age_ms(n);
	bool healthy = health_store_get_state(n->health) != STORE_STATE_UNREADABLE;

	if (api_refuse_query(req) < 0)
		return;
	http_reply_json(req, 200,
			json_pack("{s:s,s:i,s:s,s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}",
				  "version", BERTH_VERSION, "pid", (int)getpid(), "stage",
				  stage_name(n->stage), "ready", !*reason && healthy, "reason",
				  api_json_text(reason), "boot_id", api_json_text(n->boot_id),
				  "driver_version", api_json_text(n->driver_version),
				  "sysfs_read_only", json_read_only(n), "placements_age_ms",
				  age < 0 ? json_null() : json_integer(age), "claims_store",
				  json_store(claim_store_get_state(n->store), n->store_reason),
				  "health_store",
				  json_store(health_store_get_state(n->health),
					     health_store_reason(n->health)),
				  "nvml", json_nvml(n), "reconcile", json_reconcile(n), "settings",
				  json_settings(n->config)));
}
