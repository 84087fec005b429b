/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "http/server-internal.h"
#include "model/outcome.h"

/* A body above the limit is read to its end and refused, so that the client sees the answer; one
 * above this is not worth it. */
#define BODY_DISCARD_MAX (size_t)(1024 * 1024)

struct http_request *http_request_new(const char *uri)
{
	size_t n = strlen(uri) + 1;
	struct http_request *req = calloc(1, sizeof(*req) + n);

	if (!req)
		return NULL;
	memcpy(req->uri, uri, n);
	req->path = req->uri;
	req->query_text = strchr(req->uri, '?');
	if (req->query_text)
		*req->query_text++ = '\0';
	return req;
}

void http_request_free(struct http_request *req)
{
	if (req->response)
		MHD_destroy_response(req->response);
	http_body_unref(req->shared);
	http_tls_peer_unref(req->tls_peer);
	free(req->body);
	free(req->extra);
	free(req);
}

/* --- Reading it ----------------------------------------------------------------------------- */

/* Headers that say where a request ends and who it is from. Of two, a proxy in front may have taken
 * the other one. */
static const char *const single_headers[] = { "Content-Length", "Transfer-Encoding", "Host",
					      "Origin", "Sec-Fetch-Site" };
enum {
	SEEN_LENGTH = 1 << 0,
	SEEN_CODING = 1 << 1,
};

struct header_check {
	unsigned seen; /* bits, in the order of single_headers */
	const char *fault;
};

static bool is_token(const char *text, size_t n)
{
	static const char others[] = "!#$%&'*+-.^_`|~";

	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)text[i];

		if (!(c >= '0' && c <= '9') && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z') &&
		    (c == '\0' || !strchr(others, c)))
			return false;
	}
	return n > 0;
}

static enum MHD_Result check_header(void *cls, enum MHD_ValueKind kind _unused_, const char *name,
				    size_t name_len, const char *value, size_t value_len _unused_)
{
	struct header_check *check = cls;

	/* "Transfer-Encoding : chunked" is such a header to some, and none to others. */
	if (!is_token(name, name_len))
		check->fault = "a header's name is malformed";
	for (size_t i = 0; i < ARRAY_SIZE(single_headers); i++) {
		if (strcasecmp(name, single_headers[i]) != 0)
			continue;
		if (check->seen & 1U << i)
			check->fault = "a header comes twice that may come once";
		check->seen |= 1U << i;
		if (1U << i == SEEN_CODING && (!value || strcasecmp(value, "chunked") != 0))
			check->fault = "the Transfer-Encoding header must be chunked";
	}
	return check->fault ? MHD_NO : MHD_YES;
}

/* NULL: there is only one way to understand the headers; else what is wrong with them. */
static const char *ambiguous_headers(const struct http_request *req)
{
	struct header_check check = { 0 };

	(void)MHD_get_connection_values_n(req->conn->mhd, MHD_HEADER_KIND, check_header, &check);
	if (!check.fault && (check.seen & SEEN_LENGTH) && (check.seen & SEEN_CODING))
		return "the headers Content-Length and Transfer-Encoding exclude each other";
	return check.fault;
}

static bool declares_body(const struct http_request *req, uint64_t *ret_length)
{
	const char *length = http_request_header(req, "Content-Length");

	*ret_length = 0;
	/* libmicrohttpd has refused what is no number; one too large for us is large. */
	if (length && str_to_u64(length, ret_length) < 0)
		*ret_length = UINT64_MAX;
	return *ret_length > 0 || http_request_header(req, "Transfer-Encoding");
}

static bool host_is_allowed(const struct http_request *req, const char *version)
{
	const char *host = http_request_header(req, "Host");

	if (!host)
		return strcmp(version, "HTTP/1.0") == 0;
	if (!req->is_tcp && http_host_is_safe_on_unix(host))
		return true;
	return http_host_is_safe(host, req->conn->listener->host);
}

/* A Unix socket that was made a port (ssh -L) can be reached by every page that a browser shows.
 * What such a page sends says so, in headers that no script can take away. */
static bool comes_from_a_foreign_page(const struct http_request *req)
{
	const char *origin = http_request_header(req, "Origin");
	const char *site = http_request_header(req, "Sec-Fetch-Site");
	const char *host = http_request_header(req, "Host");

	if (site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0)
		return true;
	return origin && !(host && http_origin_is_own(origin, host));
}

/* The headers are there. What can be refused by them alone is refused now; libmicrohttpd closes the
 * connection after such an answer, so the body need not be read. */
static void request_begin(struct http_request *req, const char *method, const char *version)
{
	struct http_conn *conn = req->conn;
	bool is_plain = conn->listener->is_tcp && !conn->listener->is_tls;
	const char *ambiguous = ambiguous_headers(req);
	struct error err = ERROR_INIT;
	uint64_t length;
	int judged = 0;

	req->started = true;
	req->is_tcp = conn->listener->is_tcp;
	req->has_peer = conn->has_peer;
	req->peer = conn->peer;
	memcpy(req->address, conn->address, sizeof(req->address));
	req->is_head = strcmp(method, "HEAD") == 0;
	str_copy_cut(req->method, sizeof(req->method), req->is_head ? "GET" : method);

	if (conn->listener->is_tls)
		judged = http_conn_judge(conn, &err);
	req->tls_peer = http_tls_peer_ref(conn->tls_peer);
	/* Over TLS a page under a foreign name fails at our certificate, so any Host will do. */
	if (judged < 0)
		http_reply_error(req, E_FORBIDDEN, &err);
	else if (ambiguous)
		http_reply_problem(req, E_BAD_REQUEST, ambiguous, NULL);
	else if (!conn->listener->is_tls && !host_is_allowed(req, version))
		http_reply_problem(req, E_FORBIDDEN,
				   "the Host header must be an IP address or localhost", NULL);
	else if (is_plain && strcmp(req->method, "GET") != 0)
		http_reply_problem(req, E_FORBIDDEN,
				   "TCP without TLS serves reading only; use the Unix socket, or "
				   "TLS with a client certificate",
				   NULL);
	else if (strcmp(req->method, "GET") != 0 && comes_from_a_foreign_page(req))
		http_reply_problem(req, E_FORBIDDEN, "a page of another origin may change nothing",
				   NULL);
	else if (!declares_body(req, &length))
		return;
	else if (strcmp(req->method, "GET") == 0)
		http_reply_problem(req, E_BAD_REQUEST, "a GET or HEAD request has no body", NULL);
	else if (length > conn->listener->server->config.body_limit)
		http_reply_problem(req, E_TOO_LARGE, "the body is too large", NULL);
}

static enum MHD_Result take_body(struct http_request *req, const char *data, size_t n)
{
	size_t limit = req->conn->listener->server->config.body_limit;

	req->body_seen += n;
	if (req->body_seen > limit)
		return req->body_seen > limit + BODY_DISCARD_MAX ? MHD_NO : MHD_YES;
	if (req->body_len + n + 1 > req->body_cap) {
		size_t cap = MAX(req->body_cap * 2, req->body_len + n + 1);
		char *grown = realloc(req->body, cap);

		if (!grown)
			return MHD_NO;
		req->body = grown;
		req->body_cap = cap;
	}
	memcpy(req->body + req->body_len, data, n);
	req->body_len += n;
	req->body[req->body_len] = '\0';
	return MHD_YES;
}

static void request_dispatch(struct http_request *req)
{
	struct http_server *server = req->conn->listener->server;
	char allow[64];
	int r;

	if (req->body_seen > server->config.body_limit) {
		http_reply_problem(req, E_TOO_LARGE, "the body is too large", NULL);
		return;
	}
	if (req->query_text && http_query_parse(req->query_text, &req->query) < 0) {
		http_reply_problem(req, E_BAD_REQUEST, "the query cannot be decoded", NULL);
		return;
	}
	r = http_route_find(server->routes, server->n_routes, req->method, req->path, &req->route,
			    &req->params, allow, sizeof(allow));
	if (r == -EPERM) {
		http_request_add_header(req, "Allow", allow);
		http_reply_problem(req, E_METHOD_NOT_ALLOWED, NULL, NULL);
	} else if (r < 0) {
		http_reply_problem(req, E_NOT_FOUND, "no such path", NULL);
	} else if (!server->config.admit || server->config.admit(req, server->userdata)) {
		req->route->handle(req, server->userdata);
	}
}

static enum MHD_Result request_queue(struct http_request *req)
{
	struct http_conn *conn = req->conn;
	struct MHD_Response *response = req->shared ? req->shared->response : TAKE(req->response);
	enum MHD_Result r;

	if (!response)
		return MHD_NO;
	if (req->stream)
		http_stream_attach(TAKE(req->stream), conn);
	http_conn_set_state(conn, conn->stream ? HTTP_CONN_STREAMING : HTTP_CONN_REPLYING);
	r = MHD_queue_response(conn->mhd, (unsigned)req->status, response);
	/* From here on libmicrohttpd holds it. */
	if (req->shared)
		req->shared = http_body_unref(req->shared);
	else
		MHD_destroy_response(response);
	return r;
}

enum MHD_Result http_request_step(struct http_request *req, struct http_conn *conn,
				  const char *method, const char *version, const char *data,
				  size_t *data_len)
{
	if (!req->started) {
		request_begin(req, method, version);
		return req->replied ? request_queue(req) : MHD_YES;
	}
	if (*data_len > 0) {
		size_t n = *data_len;

		*data_len = 0;
		return take_body(req, data, n);
	}
	if (!req->dispatched && !req->replied) {
		req->dispatched = true;
		http_conn_set_state(conn, HTTP_CONN_HANDLING);
		request_dispatch(req);
	}
	if (req->replied)
		return request_queue(req);
	if (req->gone)
		return MHD_NO;
	http_conn_suspend(conn);
	return MHD_YES;
}

static void report_hangup(struct http_request *req)
{
	void (*fn)(struct http_request * req, void *userdata) = TAKE(req->on_hangup);

	req->gone = true;
	if (fn)
		fn(req, req->hangup_userdata);
}

void http_request_hung_up(struct http_request *req)
{
	if (req->gone || req->replied)
		return;
	/* libmicrohttpd calls again and is told to close, whatever the handler does. */
	req->gone = true;
	http_conn_resume(req->conn);
	report_hangup(req);
}

void http_request_completed(struct http_request *req, bool report)
{
	req->conn = NULL;
	if (req->replied || !req->dispatched)
		http_request_free(req);
	else if (report && !req->gone)
		report_hangup(req);
	else
		req->gone = true;
}

/* --- Accessors ------------------------------------------------------------------------------ */

void *http_request_userdata(const struct http_request *req)
{
	return req->userdata;
}

const char *http_request_method(const struct http_request *req)
{
	return req->method;
}

bool http_request_is_head(const struct http_request *req)
{
	return req->is_head;
}

const char *http_request_path(const struct http_request *req)
{
	return req->path;
}

const char *http_request_param(const struct http_request *req, const char *name)
{
	for (size_t i = 0; i < req->params.n; i++) {
		const struct http_param *p = &req->params.at[i];

		if (strlen(name) == p->name_len && memcmp(name, p->name, p->name_len) == 0)
			return p->value;
	}
	return NULL;
}

const char *http_request_query(const struct http_request *req, const char *key)
{
	for (size_t i = 0; i < req->query.n; i++)
		if (strcmp(req->query.at[i].key, key) == 0)
			return req->query.at[i].value;
	return NULL;
}

size_t http_request_n_query(const struct http_request *req)
{
	return req->query.n;
}

void http_request_query_at(const struct http_request *req, size_t i, const char **ret_key,
			   const char **ret_value)
{
	*ret_key = req->query.at[i].key;
	*ret_value = req->query.at[i].value;
}

int http_request_check_query(const struct http_request *req, const char *const allowed[], size_t n,
			     struct error *err)
{
	for (size_t i = 0; i < req->query.n; i++) {
		const char *key = req->query.at[i].key;
		bool known = false;

		for (size_t j = 0; j < n && !known; j++)
			known = strcmp(key, allowed[j]) == 0;
		if (!known)
			return error_set(err, E_BAD_REQUEST, "unknown query parameter \"%.64s\"",
					 key);
		for (size_t j = 0; j < i; j++)
			if (strcmp(key, req->query.at[j].key) == 0)
				return error_set(err, E_BAD_REQUEST,
						 "query parameter \"%.64s\" comes twice", key);
	}
	return 0;
}

const char *http_request_header(const struct http_request *req, const char *name)
{
	return req->conn ? MHD_lookup_connection_value(req->conn->mhd, MHD_HEADER_KIND, name)
			 : NULL;
}

const char *http_request_body(const struct http_request *req, size_t *ret_len)
{
	if (ret_len)
		*ret_len = req->body_len;
	return req->body ? req->body : "";
}

int http_request_json(const struct http_request *req, json_t **ret, struct error *err)
{
	json_error_t bad;
	json_t *json;

	if (req->body_len == 0)
		return error_set(err, E_BAD_REQUEST,
				 "the body must be a JSON object, but it is empty");
	json = json_loadb(req->body, req->body_len, JSON_REJECT_DUPLICATES, &bad);
	if (!json)
		return error_set(err, E_BAD_REQUEST, "the body is no JSON: line %d, column %d: %s",
				 bad.line, bad.column, bad.text);
	if (!json_is_object(json)) {
		json_decref(json);
		return error_set(err, E_BAD_REQUEST, "the body must be a JSON object");
	}
	*ret = json;
	return 0;
}

bool http_request_peer(const struct http_request *req, struct http_peer *ret)
{
	if (req->has_peer)
		*ret = req->peer;
	return req->has_peer;
}

bool http_request_is_tcp(const struct http_request *req)
{
	return req->is_tcp;
}

const char *http_request_address(const struct http_request *req)
{
	return req->address;
}

const char *http_request_tls_name(const struct http_request *req)
{
	return req->tls_peer ? http_tls_peer_name(req->tls_peer) : NULL;
}

bool http_request_tls_has_name(const struct http_request *req, const char *name)
{
	return req->tls_peer && http_tls_peer_has_name(req->tls_peer, name);
}

const struct http_route *http_request_route(struct http_request *req)
{
	const struct http_server *server;
	char allow[64];

	/* A request that was refused by its headers was not routed. */
	if (req->route || !req->conn)
		return req->route;
	server = req->conn->listener->server;
	if (http_route_find(server->routes, server->n_routes, req->method, req->path, &req->route,
			    &req->params, allow, sizeof(allow)) < 0)
		req->route = NULL;
	return req->route;
}

void http_request_on_hangup(struct http_request *req,
			    void (*fn)(struct http_request *req, void *userdata), void *userdata)
{
	req->on_hangup = fn;
	req->hangup_userdata = userdata;
}

bool http_request_is_gone(const struct http_request *req)
{
	return req->gone;
}
