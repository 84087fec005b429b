/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/service.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "http/server.h"
#include "plugin/kubelet.h"
#include "plugin/list.h"

#define TEXT_TYPE    "text/plain; charset=utf-8"
#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

static void reply_buf(struct http_request *req, const char *type, struct buf *b)
{
	char *text;
	size_t len;

	if (buf_take(b, &text, &len) < 0)
		http_reply(req, 500, TEXT_TYPE, "out of memory\n", strlen("out of memory\n"));
	else
		http_reply_take(req, 200, type, text, len);
}

static void get_healthz(struct http_request *req, void *userdata)
{
	(void)userdata;
	http_reply(req, 200, TEXT_TYPE, "ok\n", 3);
}

static void get_readyz(struct http_request *req, void *userdata)
{
	const struct plugin *p = userdata;
	char buf[512], text[520];
	const char *reason = plugin_not_ready(p, buf, sizeof buf);
	int n = snprintf(text, sizeof text, "%s\n", reason ? reason : "ok");

	http_reply(req, reason ? 503 : 200, TEXT_TYPE, text, MIN((size_t)n, sizeof text - 1));
}

static void get_metrics(struct http_request *req, void *userdata)
{
	struct plugin *p = userdata;
	_buf_ struct buf b = BUF_INIT;

	metric_set(p->metrics.kubelet_up, NULL, kubelet_is_there(p->kubelet));
	if (p->last_scan_usec)
		metric_set(p->metrics.last_scan, NULL,
			   (double)(clock_now_usec() - p->last_scan_usec) / (double)USEC_PER_SEC);
	if (!p->metrics.registry || metrics_render(p->metrics.registry, &b) < 0)
		b.failed = true;
	reply_buf(req, METRICS_TYPE, &b);
}

static void get_devices(struct http_request *req, void *userdata)
{
	const struct plugin *p = userdata;
	_buf_ struct buf b = BUF_INIT;

	if (!p->current)
		http_reply(req, 503, TEXT_TYPE, "not scanned yet\n", strlen("not scanned yet\n"));
	else if (list_json(p->current, &b) < 0)
		http_reply(req, 500, TEXT_TYPE, "out of memory\n", strlen("out of memory\n"));
	else
		reply_buf(req, "application/json", &b);
}

static const struct http_route routes[] = {
	{ "GET", "/healthz", get_healthz },
	{ "GET", "/readyz", get_readyz },
	{ "GET", "/metrics", get_metrics },
	{ "GET", "/devices", get_devices },
};

int service_new(struct plugin *p, struct error *err)
{
	char path[96];
	struct http_server_config config = { .event = p->event,
					     .socket_path = path,
					     .listen = p->options.listen };

	snprintf(path, sizeof path, "%s/http.sock", p->run_dir);
	return http_server_new(&config, routes, ARRAY_SIZE(routes), p, &p->http, err);
}

void service_done(struct plugin *p)
{
	p->http = http_server_free(p->http);
}
