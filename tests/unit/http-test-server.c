/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server for tests/system/test_http_server.py: the real HTTP framework with handlers that hold
 * requests back, stream and count, so that its behaviour towards odd clients can be observed.
 *
 * http-test-server SOCKET [--tcp ADDRESS:PORT [--tls FOLDER]] [--fast]; prints "ready PORT".
 * --fast: short limits. FOLDER has server.pem, server.key and ca.pem, read again at SIGHUP.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "http/events.h"
#include "http/server.h"
#include "http/tls.h"
#include "model/outcome.h"

#define HELD_MAX 256

struct test {
	sd_event *event;
	struct http_server *server;
	struct http_events *events;
	struct http_body *big;
	struct http_request *held[HELD_MAX];
	size_t n_held;
	unsigned hangups;
	const char *tls_folder;
};

static void handle_health(struct http_request *req, void *userdata _unused_)
{
	http_reply_json(req, 200, json_pack("{s:s}", "status", "ok"));
}

static void handle_big(struct http_request *req, void *userdata)
{
	struct test *t = userdata;

	http_reply_shared(req, t->big);
}

static void handle_echo(struct http_request *req, void *userdata _unused_)
{
	static const char *const allowed[] = { "a", "b" };
	struct error err = ERROR_INIT;
	struct http_peer peer = { 0 };
	const char *a = http_request_query(req, "a");
	json_t *body = NULL;
	bool has_peer;
	size_t len;
	int r = http_request_check_query(req, allowed, ARRAY_SIZE(allowed), &err);

	http_request_body(req, &len);
	if (r == 0 && len > 0)
		r = http_request_json(req, &body, &err);
	if (r < 0) {
		http_reply_error(req, r, &err);
		return;
	}
	has_peer = http_request_peer(req, &peer);
	http_request_add_header(req, "X-Test", "yes");
	http_reply_json(req, 200,
			json_pack("{s:s, s:s, s:s?, s:o*, s:b, s:b, s:i, s:i, s:s?}", "method",
				  http_request_method(req), "name", http_request_param(req, "name"),
				  "a", a, "body", body, "tcp", http_request_is_tcp(req), "has_peer",
				  has_peer, "uid", (int)peer.uid, "pid", (int)peer.pid, "peer",
				  http_request_tls_name(req)));
}

static void forget(struct test *t, struct http_request *req)
{
	for (size_t i = 0; i < t->n_held; i++) {
		if (t->held[i] != req)
			continue;
		t->held[i] = t->held[--t->n_held];
		return;
	}
}

/* One kind of handler answers in the notice, another keeps the request for later. */
static void gone_replies(struct http_request *req, void *userdata)
{
	struct test *t = userdata;

	t->hangups++;
	forget(t, req);
	http_reply_json(req, 200, json_object());
}

static void gone_waits(struct http_request *req _unused_, void *userdata)
{
	struct test *t = userdata;

	t->hangups++;
}

static void handle_hold(struct http_request *req, void *userdata)
{
	struct test *t = userdata;
	bool later = http_request_query(req, "later") != NULL;

	if (t->n_held >= HELD_MAX) {
		http_reply_problem(req, E_INSUFFICIENT_RESOURCES, NULL, NULL);
		return;
	}
	t->held[t->n_held++] = req;
	http_request_on_hangup(req, later ? gone_waits : gone_replies, t);
}

static void handle_release(struct http_request *req, void *userdata)
{
	struct test *t = userdata;
	size_t n = t->n_held;

	while (t->n_held > 0) {
		struct http_request *held = t->held[--t->n_held];

		http_reply_json(held, 200, json_pack("{s:b}", "gone", http_request_is_gone(held)));
	}
	http_reply_json(req, 200, json_pack("{s:i}", "released", (int)n));
}

static void handle_publish(struct http_request *req, void *userdata)
{
	struct test *t = userdata;
	struct error err = ERROR_INIT;
	json_t *body;
	int r = http_request_json(req, &body, &err);

	if (r == 0)
		r = http_events_publish(t->events, "test", body);
	if (r < 0)
		http_reply_error(req, r, &err);
	else
		http_reply(req, 204, NULL, NULL, 0);
}

static void handle_events(struct http_request *req, void *userdata)
{
	struct test *t = userdata;

	http_events_serve(t->events, req);
}

static void handle_stats(struct http_request *req, void *userdata)
{
	struct test *t = userdata;

	http_reply_json(req, 200,
			json_pack("{s:i, s:i, s:i, s:i}", "connections",
				  (int)http_server_connections(t->server), "streams",
				  (int)http_events_clients(t->events), "held", (int)t->n_held,
				  "hangups", (int)t->hangups));
}

static const struct http_route routes[] = {
	{ "GET", "/healthz", handle_health },	{ "GET", "/big", handle_big },
	{ "GET", "/echo/{name}", handle_echo }, { "PUT", "/echo/{name}", handle_echo },
	{ "GET", "/hold", handle_hold },	{ "PUT", "/hold", handle_hold },
	{ "POST", "/release", handle_release }, { "POST", "/publish", handle_publish },
	{ "GET", "/events", handle_events },	{ "GET", "/stats", handle_stats },
};

static void on_stopped(void *userdata)
{
	struct test *t = userdata;

	(void)sd_event_exit(t->event, 0);
}

static int on_term(sd_event_source *source _unused_, const struct signalfd_siginfo *si _unused_,
		   void *userdata)
{
	struct test *t = userdata;

	return http_server_stop(t->server, 2 * USEC_PER_SEC, on_stopped, t);
}

static int load_tls(const struct test *t, struct http_tls **ret, struct error *err)
{
	_free_ char *certificate = str_printf("%s/server.pem", t->tls_folder);
	_free_ char *key = str_printf("%s/server.key", t->tls_folder);
	_free_ char *ca = str_printf("%s/ca.pem", t->tls_folder);
	const struct http_tls_files files = { certificate, key, ca };

	if (!certificate || !key || !ca)
		return error_set(err, ENOMEM, "out of memory");
	return http_tls_load(&files, ret, err);
}

/* Says on stdout what became of it. */
static int on_hup(sd_event_source *source _unused_, const struct signalfd_siginfo *si _unused_,
		  void *userdata)
{
	_cleanup_(http_tls_unrefp) struct http_tls *tls = NULL;
	struct error err = ERROR_INIT;
	struct test *t = userdata;

	if (load_tls(t, &tls, &err) == 0)
		http_server_set_tls(t->server, tls);
	printf("reloaded %s\n", tls ? "" : error_text(&err));
	fflush(stdout);
	return 0;
}

static int make_big(struct http_body **ret)
{
	json_t *rows = json_array();
	int r;

	for (int i = 0; i < 64; i++)
		json_array_append_new(rows, json_pack("{s:s, s:i, s:i}", "name", "NVIDIA L40S-4Q",
						      "framebuffer_mb", 4096, "available", i));
	r = http_body_new_json(rows, ret);
	json_decref(rows);
	return r;
}

static int start(struct test *t, int argc, char **argv, struct error *err)
{
	struct http_events_config events = { 0 };
	struct http_server_config config = { .socket_path = argv[1] };
	_cleanup_(http_tls_unrefp) struct http_tls *tls = NULL;
	sigset_t mask;
	int r;

	sigemptyset(&mask);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGHUP);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], "--tcp") == 0 && i + 1 < argc)
			config.listen = argv[++i];
		if (strcmp(argv[i], "--tls") == 0 && i + 1 < argc)
			t->tls_folder = argv[++i];
		if (strcmp(argv[i], "--fast") != 0)
			continue;
		config.request_timeout_usec = 700 * USEC_PER_MSEC;
		config.idle_timeout_usec = 1000 * USEC_PER_MSEC;
		config.reply_timeout_usec = 1000 * USEC_PER_MSEC;
		events.keepalive_usec = 300 * USEC_PER_MSEC;
		events.stall_usec = 1000 * USEC_PER_MSEC;
	}
	r = sd_event_default(&t->event);
	if (r >= 0)
		r = sd_event_add_signal(t->event, NULL, SIGTERM, on_term, t);
	if (r >= 0)
		r = sd_event_add_signal(t->event, NULL, SIGHUP, on_hup, t);
	config.event = events.event = t->event;
	if (r >= 0)
		r = make_big(&t->big);
	if (r >= 0)
		r = http_events_new(&events, &t->events);
	if (r < 0)
		return error_set_errno(err, r, "set-up");
	if (t->tls_folder) {
		r = load_tls(t, &tls, err);
		if (r < 0)
			return r;
		config.tls = tls;
	}
	return http_server_new(&config, routes, ARRAY_SIZE(routes), t, &t->server, err);
}

int main(int argc, char **argv)
{
	struct error err = ERROR_INIT;
	struct test t = { 0 };
	int r;

	if (argc < 2)
		return EXIT_STATUS_USAGE;
	r = start(&t, argc, argv, &err);
	if (r >= 0) {
		printf("ready %u\n", http_server_port(t.server));
		fflush(stdout);
		r = sd_event_loop(t.event);
	}
	if (r < 0)
		fprintf(stderr, "http-test-server: %s\n", error_text(&err));
	http_server_free(t.server);
	/* Some are still held when the server stopped at its limit. */
	while (t.n_held > 0)
		http_reply_json(t.held[--t.n_held], 200, json_object());
	http_events_free(t.events);
	http_body_unref(t.big);
	sd_event_unref(t.event);
	return r < 0 ? EXIT_STATUS_ERROR : EXIT_STATUS_OK;
}
