/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "http/problem.h"
#include "http/server-internal.h"
#include "model/outcome.h"

void http_request_set_response(struct http_request *req, int status, struct MHD_Response *take)
{
	assert(!req->replied);
	if (req->tell_replied)
		req->tell_replied(req, status, req->problem, req->userdata);
	req->replied = true;
	req->status = status;
	req->response = take;
	if (req->conn)
		http_conn_resume(req->conn);
	else
		http_request_free(req);
}

int http_response_set_headers(struct MHD_Response *response, const char *content_type)
{
	if (content_type &&
	    (MHD_add_response_header(response, "Content-Type", content_type) != MHD_YES ||
	     MHD_add_response_header(response, "X-Content-Type-Options", "nosniff") != MHD_YES))
		return -ENOMEM;
	return MHD_add_response_header(response, "Cache-Control", "no-store") == MHD_YES ? 0
											 : -ENOMEM;
}

static int set_header(struct MHD_Response *response, const char *name, const char *value)
{
	const char *old = MHD_get_response_header(response, name);

	if (old)
		(void)MHD_del_response_header(response, name, old);
	return MHD_add_response_header(response, name, value) == MHD_YES ? 0 : -ENOMEM;
}

void http_request_add_header(struct http_request *req, const char *name, const char *value)
{
	if (!req->extra)
		req->extra = calloc(HTTP_EXTRA_HEADERS_MAX, sizeof(*req->extra));
	if (!req->extra || req->n_extra >= HTTP_EXTRA_HEADERS_MAX)
		return;
	str_copy_cut(req->extra[req->n_extra].name, sizeof(req->extra->name), name);
	str_copy_cut(req->extra[req->n_extra].value, sizeof(req->extra->value), value);
	req->n_extra++;
}

/* response may be NULL: memory was out. */
static void finish(struct http_request *req, int status, const char *content_type,
		   struct MHD_Response *response)
{
	bool ok = response && http_response_set_headers(response, content_type) == 0;

	for (size_t i = 0; i < req->n_extra && ok; i++)
		ok = set_header(response, req->extra[i].name, req->extra[i].value) == 0;
	if (ok && req->conn && req->conn->listener->server->stopping)
		ok = MHD_add_response_header(response, "Connection", "close") == MHD_YES;
	if (!ok && response) {
		MHD_destroy_response(response);
		response = NULL;
	}
	http_request_set_response(req, status, response);
}

void http_reply(struct http_request *req, int status, const char *content_type, const void *body,
		size_t len)
{
	finish(req, status, content_type,
	       MHD_create_response_from_buffer(len, len ? (void *)body : (void *)"",
					       MHD_RESPMEM_MUST_COPY));
}

void http_reply_take(struct http_request *req, int status, const char *content_type,
		     char *take_body, size_t len)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(len, take_body,
									MHD_RESPMEM_MUST_FREE);

	if (!response)
		free(take_body);
	finish(req, status, content_type, response);
}

/* Compact, and with a newline at the end for those who look at it with curl. */
static char *json_text(const json_t *json, size_t *ret_len)
{
	_free_ char *text = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY);
	size_t n = text ? strlen(text) : 0;
	char *longer = text ? realloc(text, n + 2) : NULL;

	if (!longer)
		return NULL;
	text = NULL;
	memcpy(longer + n, "\n", 2);
	*ret_len = n + 1;
	return longer;
}

static void reply_json_as(struct http_request *req, int status, const char *content_type,
			  json_t *take)
{
	_free_ char *text = NULL;
	size_t len = 0;

	if (take)
		text = json_text(take, &len);
	json_decref(take);
	if (text)
		http_reply_take(req, status, content_type, TAKE(text), len);
	else
		finish(req, 500, NULL, NULL);
}

void http_reply_json(struct http_request *req, int status, json_t *take)
{
	if (take)
		reply_json_as(req, status, "application/json", take);
	else
		http_reply_problem(req, E_INTERNAL, "the answer could not be put together", NULL);
}

void http_reply_problem(struct http_request *req, int code, const char *detail, json_t *take_extra)
{
	req->problem = abs(code);
	reply_json_as(req, http_problem_status(code), HTTP_PROBLEM_TYPE,
		      http_problem_json(code, detail, take_extra));
}

void http_reply_error(struct http_request *req, int code, const struct error *err)
{
	http_reply_problem(req, code, error_text(err), NULL);
}

static int body_wrap(const char *content_type, struct MHD_Response *take, struct http_body **ret)
{
	struct http_body *body = take ? calloc(1, sizeof(*body)) : NULL;

	if (!body || http_response_set_headers(take, content_type) < 0) {
		if (take)
			MHD_destroy_response(take);
		free(body);
		return -ENOMEM;
	}
	body->refs = 1;
	body->response = take;
	*ret = body;
	return 0;
}

int http_body_new(const char *content_type, const void *data, size_t len, struct http_body **ret)
{
	return body_wrap(content_type,
			 MHD_create_response_from_buffer(len, len ? (void *)data : (void *)"",
							 MHD_RESPMEM_MUST_COPY),
			 ret);
}

int http_body_new_json(const json_t *json, struct http_body **ret)
{
	size_t len;
	char *text = json_text(json, &len);
	struct MHD_Response *response;

	if (!text)
		return -ENOMEM;
	response = MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
	if (!response)
		free(text);
	return body_wrap("application/json", response, ret);
}

int http_body_set_header(struct http_body *body, const char *name, const char *value)
{
	return set_header(body->response, name, value);
}

struct http_body *http_body_ref(struct http_body *body)
{
	if (body)
		body->refs++;
	return body;
}

struct http_body *http_body_unref(struct http_body *body)
{
	if (!body || --body->refs > 0)
		return NULL;
	/* An answer that is still being sent holds the response by itself. */
	MHD_destroy_response(body->response);
	free(body);
	return NULL;
}

void http_reply_shared(struct http_request *req, struct http_body *body)
{
	req->shared = http_body_ref(body);
	http_request_set_response(req, 200, NULL);
}
