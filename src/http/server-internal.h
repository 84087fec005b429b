/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What server.c (listeners, connections, deadlines), request.c and reply.c (reading and answering
 * one request), stream.c (answers without end) and conn-tls.c share. Nobody else includes it.
 *
 * Who owns what: a connection lives from libmicrohttpd's "started" to its "closed" notice. A
 * request lives until it is both replied to (by the handler) and completed (by libmicrohttpd);
 * whichever comes second frees it.
 */
#pragma once

#include <microhttpd.h>
#include <sys/stat.h>

#include "http/route.h"
#include "http/server.h"
#include "http/tls.h"

#define HTTP_EXTRA_HEADERS_MAX 4
#define HTTP_ADDRESS_MAX       56 /* "[IPv6]:PORT" */

struct http_listener {
	struct http_server *server;
	bool is_tcp;
	bool is_tls; /* of TCP */
	bool is_inherited;
	struct MHD_Daemon *daemon;
	int fd; /* the listening socket; -1 once closed */
	sd_event_source *io;
	sd_event_source *timer; /* libmicrohttpd's own wishes, and "run me again" */
	bool running;		/* in listener_run() */
	bool resumed;		/* a connection was resumed since libmicrohttpd ran last */
	bool progressed;	/* it called back in the run under way */
	char host[HTTP_PARAM_SIZE];
};

enum http_conn_state {
	HTTP_CONN_IDLE,	    /* waiting for a request line */
	HTTP_CONN_READING,  /* headers and body */
	HTTP_CONN_HANDLING, /* the handler has not replied yet */
	HTTP_CONN_REPLYING,
	HTTP_CONN_STREAMING,
};

struct http_conn {
	struct http_listener *listener;
	struct MHD_Connection *mhd;
	int fd;
	enum http_conn_state state;
	uint64_t deadline_usec; /* UINT64_MAX: none */
	bool has_spoken;	/* a request line came */
	bool suspended;
	sd_event_source *hangup; /* enabled only while suspended */
	bool has_peer;
	struct http_peer peer;
	char address[HTTP_ADDRESS_MAX]; /* of TCP clients */
	struct http_tls *tls;		/* what its session uses */
	struct http_tls_peer *tls_peer; /* NULL until judged good */
	uint64_t judged_usec;
	unsigned judged_by; /* server->tls_generation then */
	struct http_request *req;
	struct http_stream *stream;
};

struct http_server {
	struct http_server_config config;
	char *socket_path;
	struct stat socket_id;
	const struct http_route *routes;
	size_t n_routes;
	void *userdata;
	struct http_listener unix_listener;
	struct http_listener tcp_listener;
	struct http_tls *tls;	 /* for new connections; NULL: no TLS */
	unsigned tls_generation; /* counts what `tls` was */

	struct http_conn **conns;
	unsigned n_conns;
	unsigned max_conns;
	sd_event_source *deadlines;
	uint64_t deadlines_usec; /* when it is set to fire; UINT64_MAX: not at all */

	bool stopping;
	void (*stopped)(void *userdata);
	void *stopped_userdata;
	sd_event_source *stop_timer;
};

struct http_body {
	unsigned refs;
	struct MHD_Response *response;
};

struct http_request {
	struct http_conn *conn; /* NULL once the connection is gone */
	bool started;		/* the headers have been looked at */
	bool dispatched;	/* the handler has been called */
	bool replied;
	bool gone;
	bool is_head;
	bool is_tcp;
	bool has_peer;
	struct http_peer peer;
	char address[HTTP_ADDRESS_MAX];
	struct http_tls_peer *tls_peer;
	const struct http_route *route; /* NULL: not looked for, or there is none */
	char method[16];		/* cut; no route has a longer one */
	struct http_params params;
	struct http_query query;
	char *body;
	size_t body_len;
	size_t body_cap;
	size_t body_seen; /* also what was thrown away */
	void (*on_hangup)(struct http_request *req, void *userdata);
	void *hangup_userdata;
	/* The server's; a reply may come when the server is gone. */
	void (*tell_replied)(struct http_request *req, int status, int code, void *userdata);
	void *userdata;
	struct {
		char name[32];
		char value[HTTP_PARAM_SIZE];
	} * extra; /* HTTP_EXTRA_HEADERS_MAX of them, made when first needed */
	size_t n_extra;
	int status;
	int problem;		       /* the code of a problem answer, positive; else 0 */
	struct http_body *shared;      /* the reply, or else ... */
	struct MHD_Response *response; /* ... this; both NULL after a reply: out of memory, close */
	struct http_stream *stream;
	char *path; /* uri up to its '?' */
	char *query_text;
	char uri[];
};

/* server.c */
void http_conn_set_state(struct http_conn *conn, enum http_conn_state state);
void http_conn_suspend(struct http_conn *conn);
void http_conn_resume(struct http_conn *conn);
/* Makes libmicrohttpd see an end of file, whatever the connection is doing. */
void http_conn_cut(struct http_conn *conn);

/* conn-tls.c. What libmicrohttpd is told of TLS; the rest is done for each session, as it cannot
 * exchange a certificate or CA. */
const struct MHD_OptionItem *http_conn_tls_options(void);
/* Before the handshake: 0, or the connection cannot be served. */
int http_conn_begin_tls(struct http_conn *conn);
/* Is whoever is at the other end to be served now? Sets conn->tls_peer; -E_FORBIDDEN. */
int http_conn_judge(struct http_conn *conn, struct error *err);
void http_conn_end_tls(struct http_conn *conn);
/* libmicrohttpd forgets to note that a handshake waits for its client: it asks to be run again at
 * once, for as long as that takes. Is that all there is to do? New data wakes its epoll descriptor
 * all the same. (0.9.75) */
bool http_conn_only_handshakes(const struct http_listener *listener);

/* request.c: reading it */
struct http_request *http_request_new(const char *uri);
enum MHD_Result http_request_step(struct http_request *req, struct http_conn *conn,
				  const char *method, const char *version, const char *data,
				  size_t *data_len);
/* libmicrohttpd is through with it. report: tell a handler that still holds it. */
void http_request_completed(struct http_request *req, bool report);
void http_request_hung_up(struct http_request *req);
void http_request_free(struct http_request *req);

/* reply.c: answering it. take may be NULL: the connection is closed. */
void http_request_set_response(struct http_request *req, int status, struct MHD_Response *take);
/* Headers that every answer has. 0 or -ENOMEM. */
int http_response_set_headers(struct MHD_Response *response, const char *content_type);

/* stream.c */
void http_stream_end(struct http_stream *stream);
void http_stream_attach(struct http_stream *stream, struct http_conn *conn);
/* The connection is going; the stream itself goes a little later. */
void http_stream_detach(struct http_stream *stream);
