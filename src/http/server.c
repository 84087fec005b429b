/* SPDX-License-Identifier: Apache-2.0 */
#include "http/server.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "http/listen.h"
#include "http/server-internal.h"

/* libmicrohttpd's pool of one connection holds the headers, an index of them and the answer's
 * headers; so it is larger than the limit on the first. */
#define POOL_OVERHEAD (size_t)(8 * 1024)
/* So many rounds at once before other sources of the loop get their turn. */
#define RUNS_AT_ONCE 8
/* How often a handshake that waits is looked at although nothing came. */
#define HANDSHAKE_MSEC 20
#define TCP_PRIORITY   (SD_EVENT_PRIORITY_NORMAL + 10)

static uint64_t server_now(const struct http_server *server)
{
	uint64_t now;

	return sd_event_now(server->config.event, CLOCK_MONOTONIC, &now) >= 0 ? now
									      : clock_now_usec();
}

/* --- Connections and their deadlines -------------------------------------------------------- */

static void deadline_at_latest(struct http_server *server, uint64_t usec)
{
	if (usec >= server->deadlines_usec)
		return;
	if (sd_event_source_set_time(server->deadlines, usec) >= 0 &&
	    sd_event_source_set_enabled(server->deadlines, SD_EVENT_ONESHOT) >= 0)
		server->deadlines_usec = usec;
}

/* A connection that moves on leaves the timer alone, so that a busy server does not set timers all
 * the time; the timer finds out when it fires. */
static int on_deadlines(sd_event_source *source _unused_, uint64_t usec _unused_, void *userdata)
{
	struct http_server *server = userdata;
	uint64_t now = server_now(server), next = UINT64_MAX;

	server->deadlines_usec = UINT64_MAX;
	for (unsigned i = 0; i < server->n_conns; i++) {
		struct http_conn *conn = server->conns[i];

		if (conn->deadline_usec <= now)
			http_conn_cut(conn);
		next = MIN(next, conn->deadline_usec);
	}
	deadline_at_latest(server, next);
	return 0;
}

void http_conn_set_state(struct http_conn *conn, enum http_conn_state state)
{
	struct http_server *server = conn->listener->server;
	const struct http_server_config *config = &server->config;
	uint64_t timeout = UINT64_MAX;

	switch (state) {
	case HTTP_CONN_IDLE:
		timeout = config->idle_timeout_usec;
		break;
	case HTTP_CONN_READING:
		timeout = config->request_timeout_usec;
		break;
	case HTTP_CONN_REPLYING:
		timeout = config->reply_timeout_usec;
		break;
	case HTTP_CONN_HANDLING:
	case HTTP_CONN_STREAMING:
		break;
	}
	conn->state = state;
	conn->deadline_usec = timeout == UINT64_MAX ? UINT64_MAX : server_now(server) + timeout;
	deadline_at_latest(server, conn->deadline_usec);
}

void http_conn_cut(struct http_conn *conn)
{
	conn->deadline_usec = UINT64_MAX;
	(void)shutdown(conn->fd, SHUT_RDWR);
}

static int on_hangup(sd_event_source *source _unused_, int fd _unused_, uint32_t events _unused_,
		     void *userdata)
{
	struct http_conn *conn = userdata;

	(void)sd_event_source_set_enabled(conn->hangup, SD_EVENT_OFF);
	if (conn->stream)
		http_stream_cut(conn->stream);
	else if (conn->req)
		http_request_hung_up(conn->req);
	return 0;
}

/* libmicrohttpd does not look at a suspended connection, so its end is watched for here. A client
 * that shut only its sending side down counts as gone too: libmicrohttpd reads before it answers,
 * finds the end and closes. And over TCP that is all there is to be seen of one that is gone. */
static void watch_hangup(struct http_conn *conn)
{
	if (!conn->hangup && sd_event_add_io(conn->listener->server->config.event, &conn->hangup,
					     conn->fd, EPOLLRDHUP, on_hangup, conn) < 0)
		return;
	(void)sd_event_source_set_enabled(conn->hangup, SD_EVENT_ON);
}

void http_conn_suspend(struct http_conn *conn)
{
	if (conn->suspended)
		return;
	conn->suspended = true;
	MHD_suspend_connection(conn->mhd);
	watch_hangup(conn);
}

static void listener_run_later(struct http_listener *listener, uint64_t usec);

void http_conn_resume(struct http_conn *conn)
{
	if (!conn->suspended)
		return;
	conn->suspended = false;
	if (conn->hangup)
		(void)sd_event_source_set_enabled(conn->hangup, SD_EVENT_OFF);
	MHD_resume_connection(conn->mhd);
	/* That alone does not make its epoll descriptor readable. */
	conn->listener->resumed = true;
	if (!conn->listener->running)
		listener_run_later(conn->listener, 0);
}

static void check_stopped(struct http_server *server);

static struct http_conn *conn_new(struct http_listener *listener, struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct http_server *server = listener->server;
	struct ucred cred;
	socklen_t size = sizeof(cred);
	struct http_conn *conn;

	if (!info || server->n_conns >= server->max_conns)
		return NULL;
	conn = calloc(1, sizeof(*conn));
	if (!conn)
		return NULL;
	conn->listener = listener;
	conn->mhd = mhd;
	conn->fd = info->connect_fd;
	if (listener->is_tcp)
		http_listen_peer_address(conn->fd, conn->address, sizeof(conn->address));
	if (listener->is_tls && http_conn_begin_tls(conn) < 0) {
		http_conn_end_tls(conn);
		free(conn);
		return NULL;
	}
	if (!listener->is_tcp && getsockopt(conn->fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) == 0 &&
	    size == sizeof(cred)) {
		conn->has_peer = true;
		conn->peer = (struct http_peer){ .uid = cred.uid,
						 .gid = cred.gid,
						 .pid = cred.pid };
	}
	server->conns[server->n_conns++] = conn;
	http_conn_set_state(conn, HTTP_CONN_IDLE);
	/* A new connection has a request to make: it gets the shorter time. */
	conn->deadline_usec = server_now(server) + server->config.request_timeout_usec;
	deadline_at_latest(server, conn->deadline_usec);
	return conn;
}

static void conn_free(struct http_conn *conn)
{
	struct http_server *server = conn->listener->server;

	for (unsigned i = 0; i < server->n_conns; i++) {
		if (server->conns[i] != conn)
			continue;
		server->conns[i] = server->conns[--server->n_conns];
		break;
	}
	sd_event_source_disable_unref(conn->hangup);
	http_conn_end_tls(conn);
	free(conn);
	check_stopped(server);
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **socket_context,
			  enum MHD_ConnectionNotificationCode code)
{
	struct http_listener *listener = cls;

	listener->progressed = true;
	if (code == MHD_CONNECTION_NOTIFY_STARTED)
		*socket_context = conn_new(listener, mhd);
	else if (*socket_context)
		conn_free(TAKE(*(struct http_conn **)socket_context));
}

/* --- Requests, as libmicrohttpd reports them ------------------------------------------------ */

static struct http_conn *conn_of(struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

/* The request line is there: a request begins. */
static void *on_request_line(void *cls _unused_, const char *uri, struct MHD_Connection *mhd)
{
	struct http_conn *conn = conn_of(mhd);
	struct http_request *req;

	if (!conn)
		return NULL;
	conn->has_spoken = conn->listener->progressed = true;
	req = http_request_new(uri);
	if (!req)
		return NULL;
	req->conn = conn;
	req->tell_replied = conn->listener->server->config.replied;
	req->userdata = conn->listener->server->userdata;
	conn->req = req;
	if (conn->state == HTTP_CONN_IDLE)
		http_conn_set_state(conn, HTTP_CONN_READING);
	return req;
}

static enum MHD_Result on_request(void *cls _unused_, struct MHD_Connection *mhd,
				  const char *url _unused_, const char *method, const char *version,
				  const char *data, size_t *data_len, void **con_cls)
{
	struct http_conn *conn = conn_of(mhd);

	if (!conn || !*con_cls)
		return MHD_NO;
	conn->listener->progressed = true;
	return http_request_step(*con_cls, conn, method, version, data, data_len);
}

static void on_completed(void *cls _unused_, struct MHD_Connection *mhd, void **con_cls,
			 enum MHD_RequestTerminationCode code _unused_)
{
	struct http_conn *conn = conn_of(mhd);
	struct http_request *req = TAKE(*(struct http_request **)con_cls);

	if (conn) {
		conn->req = NULL;
		if (conn->stream)
			http_stream_detach(TAKE(conn->stream));
		http_conn_set_state(conn, HTTP_CONN_IDLE);
		if (conn->listener->server->stopping)
			http_conn_cut(conn);
	}
	if (req)
		http_request_completed(req, true);
}

/* Paths and queries are decoded in route.c, after they have been split. */
static size_t keep_escapes(void *cls _unused_, struct MHD_Connection *mhd _unused_, char *text)
{
	return strlen(text);
}

/* --- The loop ------------------------------------------------------------------------------- */

static void listener_run_later(struct http_listener *listener, uint64_t usec)
{
	(void)sd_event_source_set_time_relative(listener->timer, usec);
	(void)sd_event_source_set_enabled(listener->timer, SD_EVENT_ONESHOT);
}

static void listener_run(struct http_listener *listener)
{
	MHD_UNSIGNED_LONG_LONG timeout_msec = 0;

	listener->running = true;
	for (unsigned i = 0; i < RUNS_AT_ONCE; i++) {
		listener->resumed = listener->progressed = false;
		MHD_run(listener->daemon);
		if (listener->resumed)
			continue;
		/* Its epoll is edge-triggered: what it did not finish must be asked for. */
		if (MHD_get_timeout(listener->daemon, &timeout_msec) != MHD_YES)
			timeout_msec = UINT64_MAX;
		if (timeout_msec == 0 && http_conn_only_handshakes(listener))
			timeout_msec = HANDSHAKE_MSEC;
		if (timeout_msec > 0)
			break;
	}
	listener->running = false;
	if (timeout_msec == UINT64_MAX)
		(void)sd_event_source_set_enabled(listener->timer, SD_EVENT_OFF);
	else
		listener_run_later(listener, timeout_msec * USEC_PER_MSEC);
}

static int on_listener_io(sd_event_source *source _unused_, int fd _unused_,
			  uint32_t events _unused_, void *userdata)
{
	listener_run(userdata);
	return 0;
}

static int on_listener_timer(sd_event_source *source _unused_, uint64_t usec _unused_,
			     void *userdata)
{
	listener_run(userdata);
	return 0;
}

static int listener_start(struct http_listener *listener, unsigned connections, unsigned per_ip,
			  struct error *err)
{
	struct http_server *server = listener->server;
	const union MHD_DaemonInfo *info;
	const struct MHD_OptionItem plain[] = { { MHD_OPTION_END, 0, NULL } };
	unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME |
			 (listener->is_tls ? MHD_USE_TLS : 0U);
	int r;

	listener->daemon = MHD_start_daemon(
		flags, 0, NULL, NULL, on_request, listener, MHD_OPTION_ARRAY,
		listener->is_tls ? http_conn_tls_options() : plain, MHD_OPTION_LISTEN_SOCKET,
		listener->fd, MHD_OPTION_CONNECTION_LIMIT, connections,
		MHD_OPTION_PER_IP_CONNECTION_LIMIT, per_ip, MHD_OPTION_CONNECTION_TIMEOUT, 0U,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, server->config.header_limit + POOL_OVERHEAD,
		MHD_OPTION_NOTIFY_CONNECTION, on_connection, listener, MHD_OPTION_NOTIFY_COMPLETED,
		on_completed, listener, MHD_OPTION_URI_LOG_CALLBACK, on_request_line, listener,
		MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_END);
	if (!listener->daemon)
		return error_set_errno(err, errno ? errno : ENOMEM, "cannot start the HTTP server");
	info = MHD_get_daemon_info(listener->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	if (!info)
		return error_set(err, ENOTSUP, "the HTTP library has no epoll descriptor");
	r = sd_event_add_io(server->config.event, &listener->io, info->epoll_fd, EPOLLIN,
			    on_listener_io, listener);
	if (r >= 0)
		r = sd_event_add_time_relative(server->config.event, &listener->timer,
					       CLOCK_MONOTONIC, 0, 1, on_listener_timer, listener);
	/* A handshake costs a millisecond or more of computing: many at once must not hold up those
	 * on the host itself. */
	if (r >= 0 && listener->is_tcp)
		r = sd_event_source_set_priority(listener->io, TCP_PRIORITY);
	if (r >= 0 && listener->is_tcp)
		r = sd_event_source_set_priority(listener->timer, TCP_PRIORITY);
	return r < 0 ? error_set_errno(err, r, "cannot add the HTTP server to the loop") : 0;
}

static void listener_close_socket(struct http_listener *listener)
{
	if (listener->fd >= 0)
		close(listener->fd);
	listener->fd = -1;
}

static void listener_done(struct http_listener *listener)
{
	sd_event_source_disable_unref(listener->io);
	sd_event_source_disable_unref(listener->timer);
	if (listener->daemon) {
		/* Without this it would close the socket itself, whose number we keep. */
		if (listener->fd >= 0)
			(void)MHD_quiesce_daemon(listener->daemon);
		MHD_stop_daemon(listener->daemon);
	}
	listener_close_socket(listener);
}

/* --- The server ----------------------------------------------------------------------------- */

static void set_defaults(struct http_server_config *c)
{
	c->unix_connections = c->unix_connections ? c->unix_connections : 160;
	c->tcp_connections = c->tcp_connections ? c->tcp_connections : 96;
	c->per_ip_connections = c->per_ip_connections ? c->per_ip_connections : 64;
	c->request_timeout_usec = c->request_timeout_usec ? c->request_timeout_usec
							  : 5 * USEC_PER_SEC;
	c->idle_timeout_usec = c->idle_timeout_usec ? c->idle_timeout_usec : 15 * USEC_PER_SEC;
	c->reply_timeout_usec = c->reply_timeout_usec ? c->reply_timeout_usec : 30 * USEC_PER_SEC;
	c->header_limit = c->header_limit ? c->header_limit : (size_t)16 * 1024;
	c->body_limit = c->body_limit ? c->body_limit : (size_t)64 * 1024;
}

static int listen_tcp(struct http_server *server, struct error *err)
{
	struct http_listener *l = &server->tcp_listener;
	const char *at = server->config.listen;

	if (l->is_inherited)
		return http_listen_check_tcp(l->fd, at, l->host, sizeof(l->host), err);
	return http_listen_tcp(at, &l->fd, l->host, sizeof(l->host), err);
}

static int listen_unix(struct http_server *server, struct error *err)
{
	struct http_listener *l = &server->unix_listener;

	if (l->is_inherited)
		return http_listen_check_unix(l->fd, server->socket_path, err);
	return http_listen_unix(server->socket_path, &l->fd, &server->socket_id, err);
}

/* One that was made for us stays for whoever made it. */
static void unlink_socket(const struct http_server *server)
{
	if (server->socket_path && !server->unix_listener.is_inherited)
		http_unlink_unix(server->socket_path, &server->socket_id);
}

static int server_start(struct http_server *server, struct error *err)
{
	const struct http_server_config *config = &server->config;
	int r;

	server->conns = calloc(server->max_conns, sizeof(*server->conns));
	server->socket_path = strdup(config->socket_path);
	if (!server->conns || !server->socket_path)
		return error_set_errno(err, ENOMEM, "HTTP server");
	r = sd_event_add_time(config->event, &server->deadlines, CLOCK_MONOTONIC, UINT64_MAX,
			      100 * USEC_PER_MSEC, on_deadlines, server);
	if (r < 0)
		return error_set_errno(err, r, "HTTP server's timer");
	(void)sd_event_source_set_enabled(server->deadlines, SD_EVENT_OFF);
	/* TCP first: the Unix socket appears when everything else is known to work. */
	if (config->listen) {
		r = listen_tcp(server, err);
		if (r >= 0)
			r = listener_start(&server->tcp_listener, config->tcp_connections,
					   config->per_ip_connections, err);
		if (r < 0)
			return r;
	}
	r = listen_unix(server, err);
	if (r < 0)
		return r;
	return listener_start(&server->unix_listener, config->unix_connections, 0, err);
}

static void take_sockets(struct http_server *server, const struct http_sockets *sockets)
{
	server->unix_listener.fd = sockets->unix_fd;
	server->unix_listener.is_inherited = sockets->unix_fd >= 0;
	server->tcp_listener.fd = sockets->tcp_fd;
	server->tcp_listener.is_inherited = sockets->tcp_fd >= 0;
}

int http_server_new(const struct http_server_config *config, const struct http_route *routes,
		    size_t n_routes, void *userdata, struct http_server **ret, struct error *err)
{
	struct http_server *server = calloc(1, sizeof(*server));
	int r;

	if (!server)
		return error_set_errno(err, ENOMEM, "HTTP server");
	server->config = *config;
	set_defaults(&server->config);
	server->config.event = sd_event_ref(config->event);
	server->routes = routes;
	server->n_routes = n_routes;
	server->userdata = userdata;
	server->max_conns = server->config.unix_connections + server->config.tcp_connections;
	server->deadlines_usec = UINT64_MAX;
	server->unix_listener = (struct http_listener){ .server = server, .fd = -1 };
	server->tcp_listener = (struct http_listener){
		.server = server, .fd = -1, .is_tcp = true, .is_tls = config->tls != NULL
	};
	server->tls = http_tls_ref(config->tls);
	server->config.tls = NULL; /* the server's own is the one that counts */
	if (config->inherited)
		take_sockets(server, config->inherited);
	server->config.inherited = NULL;
	r = server_start(server, err);
	if (r < 0) {
		http_server_free(server);
		return r;
	}
	*ret = server;
	return 0;
}

/* libmicrohttpd aborts when it is stopped with suspended connections. */
static void let_go_of_all(struct http_server *server)
{
	for (unsigned i = 0; i < server->n_conns; i++) {
		struct http_conn *conn = server->conns[i];

		/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): n_conns counts those set. */
		if (conn->req && !conn->req->replied) {
			conn->req->on_hangup = NULL;
			conn->req->gone = true;
		}
		http_conn_resume(conn);
	}
}

struct http_server *http_server_free(struct http_server *server)
{
	if (!server)
		return NULL;
	server->stopped = NULL;
	let_go_of_all(server);
	listener_done(&server->unix_listener);
	listener_done(&server->tcp_listener);
	unlink_socket(server);
	http_tls_unref(server->tls);
	sd_event_source_disable_unref(server->deadlines);
	sd_event_source_disable_unref(server->stop_timer);
	sd_event_unref(server->config.event);
	free(server->socket_path);
	free(server->conns);
	free(server);
	return NULL;
}

static int on_stop_limit(sd_event_source *source _unused_, uint64_t usec _unused_, void *userdata)
{
	struct http_server *server = userdata;
	void (*stopped)(void *userdata) = TAKE(server->stopped);

	if (stopped)
		stopped(server->stopped_userdata);
	return 0;
}

/* From the loop, not from here: the callee will free the server, and we may be deep inside it. */
static void check_stopped(struct http_server *server)
{
	if (!server->stopping || !server->stopped || server->n_conns > 0)
		return;
	(void)sd_event_source_set_time(server->stop_timer, 0);
}

int http_server_stop(struct http_server *server, uint64_t limit_usec, void (*done)(void *userdata),
		     void *userdata)
{
	struct http_listener *listeners[] = { &server->unix_listener, &server->tcp_listener };
	int r;

	if (server->stopping)
		return -EALREADY;
	r = sd_event_add_time_relative(server->config.event, &server->stop_timer, CLOCK_MONOTONIC,
				       limit_usec, 1, on_stop_limit, server);
	if (r < 0)
		return r;
	server->stopping = true;
	server->stopped = done;
	server->stopped_userdata = userdata;
	for (size_t i = 0; i < ARRAY_SIZE(listeners); i++) {
		if (!listeners[i]->daemon)
			continue;
		(void)MHD_quiesce_daemon(listeners[i]->daemon);
		listener_close_socket(listeners[i]);
	}
	unlink_socket(server);
	for (unsigned i = 0; i < server->n_conns; i++) {
		if (server->conns[i]->state == HTTP_CONN_IDLE)
			http_conn_cut(server->conns[i]);
		else if (server->conns[i]->stream)
			http_stream_end(server->conns[i]->stream);
	}
	check_stopped(server);
	return 0;
}

unsigned http_server_port(const struct http_server *server)
{
	const union MHD_DaemonInfo *info;

	if (!server->tcp_listener.daemon)
		return 0;
	info = MHD_get_daemon_info(server->tcp_listener.daemon, MHD_DAEMON_INFO_BIND_PORT);
	return info ? info->port : 0;
}

unsigned http_server_connections(const struct http_server *server)
{
	return server->n_conns;
}
