/* SPDX-License-Identifier: Apache-2.0 */
#include "http/api-internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "daemon/node-metrics.h"
#include "daemon/snapshot.h"
#include "http/embed.h"
#include "model/outcome.h"

EMBED(api_openapi_text, EMBED_OPENAPI_JSON_PATH);

static void node_has_changed(struct node *n, void *userdata)
{
	struct api *api = userdata;

	(void)n;
	/* Once per turn of the loop, after what changed has settled. */
	sd_event_source_set_enabled(api->changed_source, SD_EVENT_ONESHOT);
}

void api_get_healthz(struct http_request *req, void *userdata)
{
	static const char ok[] = "{\"status\":\"ok\"}\n";

	(void)userdata;
	if (api_refuse_query(req) == 0)
		http_reply(req, 200, "application/json", ok, sizeof ok - 1);
}

void api_get_readyz(struct http_request *req, void *userdata)
{
	const struct node *n = ((struct api *)userdata)->node;
	const char *reason = node_not_ready_reason(n);

	if (api_refuse_query(req) < 0)
		return;
	if (health_store_get_state(n->health) == STORE_STATE_UNREADABLE)
		http_reply_problem(req, -E_HEALTH_STORE_UNAVAILABLE, health_store_reason(n->health),
				   NULL);
	else if (!*reason)
		http_reply_json(req, 200, json_pack("{s:s}", "status", "ready"));
	else
		http_reply_problem(req,
				   claim_store_get_state(n->store) == STORE_STATE_UNREADABLE
					   ? -E_STORE_UNAVAILABLE
					   : -E_NOT_READY,
				   reason, NULL);
}

void api_get_metrics(struct http_request *req, void *userdata)
{
	_buf_ struct buf out = BUF_INIT;

	if (api_refuse_query(req) < 0)
		return;
	if (node_metrics_render(((struct api *)userdata)->node, &out) < 0)
		http_reply_problem(req, -E_INTERNAL, "out of memory", NULL);
	else
		http_reply(req, 200, "text/plain; version=0.0.4; charset=utf-8", out.data, out.len);
}

void api_get_openapi(struct http_request *req, void *userdata)
{
	(void)userdata;
	if (api_refuse_query(req) == 0)
		http_reply(req, 200, "application/json", api_openapi_text, api_openapi_text_size);
}

void api_get_events(struct http_request *req, void *userdata)
{
	struct api *api = userdata;

	if (api_refuse_query(req) < 0)
		return;
	http_events_serve(api->node->events, req);
	/* Capacity is not rendered while nobody listens: one who comes back gets what changed
	 * meanwhile. */
	node_has_changed(api->node, api);
}

/* --- The NVML helper, by hand ------------------------------------------------------------------
 */

void api_post_driver_release(struct http_request *req, void *userdata)
{
	struct node *n = ((struct api *)userdata)->node;

	if (api_refuse_query(req) < 0)
		return;
	nvml_client_release(n->nvml);
	snapshot_driver_changed(n);
	log_notice("nvml: helper stopped by hand");
	snapshot_request(n);
	http_reply_json(req, 200, json_pack("{s:s}", "driver", "released"));
}

void api_post_driver_resume(struct http_request *req, void *userdata)
{
	struct node *n = ((struct api *)userdata)->node;

	if (api_refuse_query(req) < 0)
		return;
	nvml_client_resume(n->nvml);
	snapshot_driver_changed(n);
	log_notice("nvml: helper in use again");
	snapshot_request(n);
	http_reply_json(req, 200, json_pack("{s:s}", "driver", "in use"));
}

/* --- Routes ------------------------------------------------------------------------------------
 */

static const struct http_route routes[] = {
	{ "GET", "/", api_get_page },
	{ "GET", "/page.css", api_get_page_css },
	{ "GET", "/page.js", api_get_page_js },
	{ "GET", "/icon.svg", api_get_icon },
	{ "GET", "/resources", api_get_resources },
	{ "GET", "/gpus", api_get_gpus },
	{ "GET", "/gpus/{bdf}", api_get_gpu },
	{ "PUT", "/gpus/{bdf}/cordon", api_put_cordon },
	{ "DELETE", "/gpus/{bdf}/cordon", api_delete_cordon },
	{ "POST", "/gpus/{bdf}/recover", api_post_recover },
	{ "GET", "/vfs", api_get_vfs },
	{ "PUT", "/vfs/{bdf}/quarantine", api_put_quarantine },
	{ "DELETE", "/vfs/{bdf}/quarantine", api_delete_quarantine },
	{ "GET", "/claims", api_get_claims },
	{ "GET", "/claims/{name}", api_get_claim },
	{ "PUT", "/claims/{name}", api_put_claim },
	{ "DELETE", "/claims/{name}", api_delete_claim },
	{ "POST", "/fit", api_post_fit },
	{ "POST", "/driver/release", api_post_driver_release },
	{ "POST", "/driver/resume", api_post_driver_resume },
	{ "GET", "/status", api_get_status },
	{ "GET", "/metrics", api_get_metrics },
	{ "GET", "/healthz", api_get_healthz },
	{ "GET", "/readyz", api_get_readyz },
	{ "GET", "/openapi.json", api_get_openapi },
	{ "GET", "/events", api_get_events },
};

static int look_at_changes(sd_event_source *source, void *userdata)
{
	(void)source;
	api_host_changed(userdata);
	api_page_changed(userdata);
	return 0;
}

int api_server_new(struct node *n, struct http_tls *tls, const struct http_sockets *inherited,
		   struct http_server **ret, struct error *err)
{
	struct http_server_config config = { .event = n->event,
					     .socket_path = n->config->socket,
					     .listen = n->config->listen,
					     .tls = tls,
					     .inherited = inherited,
					     .admit = api_admit,
					     .replied = api_audit };
	struct api *api = calloc(1, sizeof *api);
	int r;

	if (!api)
		return error_set(err, ENOMEM, "out of memory");
	api_check_routes(routes, ARRAY_SIZE(routes));
	api->node = n;
	n->revision = 1;
	n->changed = node_has_changed;
	n->changed_userdata = api;
	r = sd_event_add_defer(n->event, &api->changed_source, look_at_changes, api);
	if (r >= 0)
		r = sd_event_source_set_priority(api->changed_source, SD_EVENT_PRIORITY_IDLE);
	if (r >= 0)
		r = sd_event_source_set_enabled(api->changed_source, SD_EVENT_OFF);
	if (r >= 0)
		r = api_page_new(n->event, n, &api->page);
	if (r < 0)
		return error_set_errno(err, r, "event source");
	return http_server_new(&config, routes, ARRAY_SIZE(routes), api, ret, err);
}

void api_server_done(struct node *n)
{
	struct api *api = n->changed_userdata;

	n->changed = NULL;
	n->changed_userdata = NULL;
	if (!api)
		return;
	for (unsigned i = 0; i < api->n_waiting; i++)
		http_reply_problem(api->waiting[i], -E_NOT_READY, "berthd is stopping", NULL);
	sd_event_source_disable_unref(api->changed_source);
	api_page_free(api->page);
	free(api->resources[0]);
	free(api->resources[1]);
	free(api->published);
	free(api);
}
