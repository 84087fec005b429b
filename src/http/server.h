/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server of berthd: libmicrohttpd driven from the sd-event loop, one thread, no blocking.
 *
 * It listens on a Unix socket (everything) and, where asked, on TCP: with TLS and client
 * certificates (everything), or without (GET and HEAD only). It finds the route, reads the body and
 * calls the route's handler. It knows nothing of what is served. Everything here runs in the loop's
 * thread and may be called from handlers.
 *
 * The one rule for handlers: every request gets exactly one http_reply*() call. It may come before
 * the handler returns or at any time later (the connection is suspended meanwhile), also after the
 * client hung up: then it sends nothing and merely releases the request. After that call the
 * request must not be touched. A reply never fails towards the caller: where memory is out the
 * connection is closed.
 */
#pragma once

#include <jansson.h>
#include <systemd/sd-event.h>

#include "base/error.h"
#include "base/macro.h"

struct http_server;
struct http_request;
struct http_body;
struct http_stream;
struct http_tls;

struct http_route {
	const char *method; /* "GET" (answers HEAD too), "PUT", "POST", "DELETE" */
	const char *path;   /* "/claims/{name}": a name in braces stands for one whole segment */
	void (*handle)(struct http_request *req, void *userdata);
};

/* Listening sockets that somebody made for us; -1: none. */
struct http_sockets {
	int unix_fd; /* bound to socket_path; stays there when the server ends */
	int tcp_fd;  /* bound to `listen` */
};

/* A zero in any limit stands for the default. */
struct http_server_config {
	sd_event *event;
	const char *socket_path; /* Unix, mode 0660; its folder is made, a dead socket replaced */
	const char *listen;   /* "ADDRESS:PORT", "[ADDRESS]:PORT", or NULL: no TCP. Port 0: any */
	struct http_tls *tls; /* NULL: TCP is without TLS. A reference is taken */
	const struct http_sockets *inherited; /* NULL: none. The server owns them from now on */

	/* Called before a route's handler: false when it has replied itself. May be NULL. */
	bool (*admit)(struct http_request *req, void *userdata);
	/* Called once with each reply, before it is sent; code: of the problem, positive, else 0.
	 * Also for what was refused before there was a handler, and for handlers that reply when
	 * the server is gone. May be NULL. */
	void (*replied)(struct http_request *req, int status, int code, void *userdata);

	unsigned unix_connections;   /* 160 */
	unsigned tcp_connections;    /* 96 */
	unsigned per_ip_connections; /* 64 */
	uint64_t
		request_timeout_usec; /* 5 s: for the headers of a new connection, and for a body */
	uint64_t idle_timeout_usec;   /* 15 s: between two requests */
	uint64_t reply_timeout_usec;  /* 30 s: for a client to take an answer (streams: never) */
	size_t header_limit;	      /* 16 KiB; above: 431 */
	size_t body_limit;	      /* 64 KiB; above: 413 */
};

/* `routes` must outlive the server. -EADDRINUSE when a live server answers at socket_path. */
int http_server_new(const struct http_server_config *config, const struct http_route *routes,
		    size_t n_routes, void *userdata, struct http_server **ret,
		    struct error *err) _must_check_;
/* Closes everything at once. Requests that handlers still hold stay valid until replied to. */
struct http_server *http_server_free(struct http_server *server);

/* Stops accepting, ends streams and idle connections, waits for the answers that are still owed,
 * at most limit_usec; then calls done once (from the loop). */
int http_server_stop(struct http_server *server, uint64_t limit_usec, void (*done)(void *userdata),
		     void *userdata) _must_check_;

/* Connections that begin from now on use this set; the others go on, but for those whose client
 * would be refused now. Only for a server that was made with TLS. A reference is taken. */
void http_server_set_tls(struct http_server *server, struct http_tls *tls);

/* Port of the TCP listener, 0 without one. */
unsigned http_server_port(const struct http_server *server);
/* Connections open now, on both listeners. */
unsigned http_server_connections(const struct http_server *server);

/* --- The request ---------------------------------------------------------------------------- */

struct http_peer {
	uid_t uid;
	gid_t gid;
	pid_t pid;
};

void *http_request_userdata(const struct http_request *req);	 /* the server's */
const char *http_request_method(const struct http_request *req); /* "GET" for a HEAD too */
bool http_request_is_head(const struct http_request *req);
const char *http_request_path(const struct http_request *req); /* as sent, still percent-encoded */
/* Value of "{name}" in the route, decoded, never empty, without NUL and control characters, at most
 * 255 bytes of UTF-8 (anything else was answered 404 before the handler). NULL: no such name. */
const char *http_request_param(const struct http_request *req, const char *name);
/* Decoded query value; "" for a key without value, NULL when absent. */
const char *http_request_query(const struct http_request *req, const char *key);
size_t http_request_n_query(const struct http_request *req);
void http_request_query_at(const struct http_request *req, size_t i, const char **ret_key,
			   const char **ret_value);
/* 0 if every query key is one of the n allowed ones and none comes twice, else -E_BAD_REQUEST with
 * a sentence that names the key. */
int http_request_check_query(const struct http_request *req, const char *const allowed[], size_t n,
			     struct error *err) _must_check_;
const char *http_request_header(const struct http_request *req, const char *name); /* or NULL */
/* The body, NUL behind it (not counted); never NULL. */
const char *http_request_body(const struct http_request *req, size_t *ret_len);
/* The body as JSON object, duplicates refused. -E_BAD_REQUEST with line and column. */
int http_request_json(const struct http_request *req, json_t **ret, struct error *err) _must_check_;
/* Credentials of the process at the other end; false over TCP. */
bool http_request_peer(const struct http_request *req, struct http_peer *ret);
bool http_request_is_tcp(const struct http_request *req); /* with TLS or without */
/* "ADDRESS:PORT" of a TCP client, else "". */
const char *http_request_address(const struct http_request *req);
/* The client's name by its certificate; NULL unless it came over TLS and was found good. */
const char *http_request_tls_name(const struct http_request *req);
bool http_request_tls_has_name(const struct http_request *req, const char *name);
/* The route of method and path, NULL where there is none. Parameters are set then. */
const struct http_route *http_request_route(struct http_request *req);

/* Has fn called (once, from the loop) when the client goes away before the reply. The request is
 * still valid then and still wants its one reply, inside fn or later. Replaces an earlier fn; NULL
 * clears. A client that shut its sending side down while it waits counts as gone; one
 * that did so behind its request is answered if the handler replies at once. */
void http_request_on_hangup(struct http_request *req,
			    void (*fn)(struct http_request *req, void *userdata), void *userdata);
bool http_request_is_gone(const struct http_request *req);

/* --- The reply ------------------------------------------------------------------------------ */

/* One more header for the reply to come, in place of a standard one of that name (at most 4; not
 * with http_reply_shared). */
void http_request_add_header(struct http_request *req, const char *name, const char *value);

/* body may be NULL with len 0; it is copied. content_type NULL: none. */
void http_reply(struct http_request *req, int status, const char *content_type, const void *body,
		size_t len);
/* Takes the malloc'ed body over. */
void http_reply_take(struct http_request *req, int status, const char *content_type,
		     char *take_body, size_t len);
/* Takes the reference to `take`. NULL: memory was out, answered as internal error. */
void http_reply_json(struct http_request *req, int status, json_t *take);
/* code: one of model/outcome.h, either sign. detail may be NULL. take_extra: an object whose
 * members are put beside the standard ones, or NULL. */
void http_reply_problem(struct http_request *req, int code, const char *detail, json_t *take_extra);
/* From a failed call: its code and its sentence. */
void http_reply_error(struct http_request *req, int code, const struct error *err);

/* A body that is rendered once and sent many times without a copy. Status 200. */
int http_body_new(const char *content_type, const void *data, size_t len,
		  struct http_body **ret) _must_check_;
int http_body_new_json(const json_t *json,
		       struct http_body **ret) _must_check_; /* application/json */
/* One more header for every reply with it, in place of one of that name. */
int http_body_set_header(struct http_body *body, const char *name, const char *value) _must_check_;
struct http_body *http_body_ref(struct http_body *body);
struct http_body *http_body_unref(struct http_body *body);
/* Does not take the caller's reference. */
void http_reply_shared(struct http_request *req, struct http_body *body);

/* An answer without end (see http/events.h). */
struct http_stream_ops {
	/* Fills buf; returns the bytes, 0 for "nothing at present, wake me", -1 to end it. */
	ssize_t (*read)(void *userdata, char *buf, size_t size);
	/* The connection is gone; the stream is not valid any more. Called exactly once, unless
	 * http_reply_stream() failed. */
	void (*gone)(void *userdata);
};

/* Counts as the reply. -ENOMEM where it could not begin; the connection is closed then. A HEAD gets
 * the headers: 0, *ret is NULL and gone is not called. */
int http_reply_stream(struct http_request *req, const char *content_type,
		      const struct http_stream_ops *ops, void *userdata,
		      struct http_stream **ret) _must_check_;
/* There is something to read again. */
void http_stream_wake(struct http_stream *stream);
/* Cuts the connection; gone comes later, from the loop. */
void http_stream_cut(struct http_stream *stream);
