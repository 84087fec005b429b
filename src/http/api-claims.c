/* SPDX-License-Identifier: Apache-2.0 */
#include "http/api-internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "daemon/agent-channel.h"
#include "daemon/allocate.h"
#include "daemon/process.h"
#include "daemon/release.h"
#include "host/console-tail.h"
#include "model/outcome.h"

#define WAIT_MS_MAX 600000 /* ten minutes */

static int bad(struct error *err, const char *field, const char *what)
{
	return error_set(err, E_BAD_REQUEST, "%.64s: %s", field, what);
}

/* --- Reading the body of a PUT --------------------------------------------------------------- */

static int take_text(const char *field, const json_t *v, char *dst, size_t size, struct error *err)
{
	const char *s = json_string_value(v);

	if (!s)
		return bad(err, field, "must be a string");
	if (strlen(s) != json_string_length(v))
		return bad(err, field, "must not contain a NUL");
	if (str_copy(dst, size, s) < 0)
		return bad(err, field, "is too long");
	return 0;
}

static int take_number(const char *field, const json_t *v, json_int_t min, json_int_t max,
		       json_int_t *ret, struct error *err)
{
	if (!json_is_integer(v))
		return bad(err, field, "must be a whole number");
	if (json_integer_value(v) < min || json_integer_value(v) > max)
		return error_set(err, E_BAD_REQUEST, "%s: must be from %lld to %lld", field,
				 (long long)min, (long long)max);
	*ret = json_integer_value(v);
	return 0;
}

static int take_profile(const json_t *v, struct allocation_request *q, struct error *err)
{
	int r = take_text("profile", v, q->profile, sizeof q->profile, err);

	return r == 0 && !q->profile[0] ? bad(err, "profile", "must not be empty") : r;
}

static int take_gpu(const json_t *v, struct allocation_request *q, struct error *err)
{
	if (!json_string_value(v) || pci_addr_parse(json_string_value(v), &q->gpu) < 0)
		return bad(err, "gpu", "must be a PCI address (like 0000:41:00.0)");
	q->has_gpu = true;
	return 0;
}

static int check_console_log(const struct node *n, const char *path, struct error *err)
{
	struct error why = ERROR_INIT;

	if (console_path_check((const char *const *)n->config->console_dirs,
			       n->config->n_console_dirs, path, &why) == 0)
		return 0;
	return bad(err, "console_log", error_text(&why));
}

static int take_channel(const json_t *v, struct allocation_request *q, struct error *err)
{
	struct error why = ERROR_INIT;
	int r = take_text("channel", v, q->channel, sizeof q->channel, err);

	return r < 0 || agent_channel_check(q->channel, &why) == 0
		       ? r
		       : bad(err, "channel", error_text(&why));
}

static int take_console_log(const struct node *n, const json_t *v, struct allocation_request *q,
			    struct error *err)
{
	int r = take_text("console_log", v, q->console_log, sizeof q->console_log, err);

	return r < 0 ? r : check_console_log(n, q->console_log, err);
}

static int take_pid(const struct node *n, const json_t *v, struct allocation_request *q,
		    struct error *err)
{
	json_int_t pid = 0;
	int r = take_number("pid", v, 1, INT32_MAX, &pid, err);

	if (r < 0)
		return r;
	q->pid = (uint32_t)pid;
	r = process_start_time(n->config->proc_root, q->pid, &q->pid_start);
	return r < 0 ? bad(err, "pid", "no such process") : 0;
}

static int take_policy(const json_t *v, struct allocation_request *q, struct error *err)
{
	if (!json_string_value(v) || policy_from_name(json_string_value(v), &q->policy) < 0)
		return bad(err, "policy", "no such policy");
	return 0;
}

static int take_field(const struct node *n, const char *field, const json_t *v,
		      struct allocation_request *q, struct error *err)
{
	json_int_t number = 0;
	int r;

	if (strcmp(field, "profile") == 0)
		return take_profile(v, q, err);
	if (strcmp(field, "owner") == 0)
		return take_text(field, v, q->owner, sizeof q->owner, err);
	if (strcmp(field, "channel") == 0)
		return take_channel(v, q, err);
	if (strcmp(field, "console_log") == 0)
		return take_console_log(n, v, q, err);
	if (strcmp(field, "gpu") == 0)
		return take_gpu(v, q, err);
	if (strcmp(field, "pid") == 0)
		return take_pid(n, v, q, err);
	if (strcmp(field, "policy") == 0)
		return take_policy(v, q, err);
	if (strcmp(field, "numa_node") == 0) {
		r = take_number(field, v, 0, 1023, &number, err);
		q->has_numa_node = r == 0;
		q->numa_node = (int)number;
		return r;
	}
	if (strcmp(field, "wait_ms") == 0) {
		r = take_number(field, v, 0, WAIT_MS_MAX, &number, err);
		q->wait_usec = (uint64_t)number * 1000;
		return r;
	}
	return bad(err, field, "unknown field");
}

static int parse_claim(const struct node *n, struct http_request *req, struct allocation_request *q,
		       struct error *err)
{
	const char *name = http_request_param(req, "name"), *field;
	json_t *body = NULL, *v;
	struct http_peer peer;
	int r;

	if (!claim_name_is_valid(name))
		return bad(err, "name", "must match [A-Za-z0-9][A-Za-z0-9._-]{0,127}");
	str_copy_cut(q->name, sizeof q->name, name);
	q->policy = n->config->placement_policy;
	if (!http_request_peer(req, &peer))
		return error_set(err, E_FORBIDDEN, "claims are made over the Unix socket");
	q->uid = peer.uid;
	r = http_request_json(req, &body, err);
	if (r < 0)
		return r;
	json_object_foreach(body, field, v) {
		r = take_field(n, field, v, q, err);
		if (r < 0)
			break;
	}
	if (r == 0 && !q->profile[0])
		r = bad(err, "profile", "is missing");
	json_decref(body);
	return r;
}

/* --- PUT ------------------------------------------------------------------------------------- */

struct claim_job {
	struct node *node;
	struct http_request *req;
	struct allocation_waiter *waiter;
	bool ended;
};

static json_t *json_refusals(const struct allocation_result *result)
{
	json_t *list = json_array();

	for (unsigned i = 0; list && i < result->n_refusals; i++)
		json_array_append_new(list, json_pack("{s:o,s:s}", "gpu",
						      api_json_address(result->refusals[i].card),
						      "reason", result->refusals[i].reason));
	return json_pack("{s:o}", "cards", list);
}

static void claim_ended(const struct allocation_result *result, void *userdata)
{
	struct claim_job *job = userdata;

	job->ended = true;
	http_request_on_hangup(job->req, NULL, NULL);
	if (result->code < 0)
		http_reply_problem(job->req, result->code, result->detail,
				   result->n_refusals ? json_refusals(result) : NULL);
	else
		http_reply_json(
			job->req, result->created ? 201 : 200,
			api_json_claim(job->node, &result->entry->claim, result->entry->problem));
	if (job->waiter)
		free(job);
}

static void client_gone(struct http_request *req, void *userdata)
{
	struct claim_job *job = userdata;

	allocate_cancel(job->node, job->waiter);
	http_reply_problem(req, -E_CLIENT_GONE, NULL, NULL);
	free(job);
}

void api_put_claim(struct http_request *req, void *userdata)
{
	struct node *n = ((struct api *)userdata)->node;
	_free_ struct allocation_request *q = calloc(1, sizeof *q);
	struct claim_job *job = calloc(1, sizeof *job);
	struct allocation_waiter *waiter = NULL;
	struct error err = ERROR_INIT;
	int r;

	if (!q || !job) {
		free(job);
		http_reply_problem(req, -E_INTERNAL, "out of memory", NULL);
		return;
	}
	r = http_request_check_query(req, NULL, 0, &err);
	if (r == 0)
		r = parse_claim(n, req, q, &err);
	if (r < 0) {
		free(job);
		http_reply_error(req, r, &err);
		return;
	}
	*job = (struct claim_job){ .node = n, .req = req };
	allocate_submit(n, q, claim_ended, job, &waiter);
	if (job->ended) {
		free(job);
		return;
	}
	job->waiter = waiter;
	http_request_on_hangup(req, client_gone, job);
}

/* --- DELETE and GET -------------------------------------------------------------------------- */

struct release_job {
	struct node *node;
	struct http_request *req;
};

static void release_ended(const struct release_result *result, void *userdata)
{
	struct release_job *job = userdata;

	switch (result->end) {
	case RELEASE_END_DONE:
		http_reply_json(job->req, 200,
				api_json_claim(job->node, result->claim, CLAIM_PROBLEM_NONE));
		break;
	case RELEASE_END_PENDING:
		http_reply_json(job->req, 202,
				api_json_claim(job->node, result->claim, CLAIM_PROBLEM_NONE));
		break;
	case RELEASE_END_NOTHING:
		http_reply(job->req, 204, NULL, NULL, 0);
		break;
	case RELEASE_END_FAILED:
		http_reply_problem(job->req, result->code, result->detail, NULL);
		break;
	}
	free(job);
}

void api_delete_claim(struct http_request *req, void *userdata)
{
	struct node *n = ((struct api *)userdata)->node;
	const char *name = http_request_param(req, "name");
	struct release_job *job;
	struct http_peer peer;

	if (api_refuse_query(req) < 0)
		return;
	if (!claim_name_is_valid(name)) {
		http_reply_problem(req, -E_BAD_REQUEST,
				   "name: must match [A-Za-z0-9][A-Za-z0-9._-]{0,127}", NULL);
		return;
	}
	if (!http_request_peer(req, &peer)) {
		http_reply_problem(req, -E_FORBIDDEN, "claims are released over the Unix socket",
				   NULL);
		return;
	}
	job = malloc(sizeof *job);
	if (!job) {
		http_reply_problem(req, -E_INTERNAL, "out of memory", NULL);
		return;
	}
	*job = (struct release_job){ n, req };
	release_submit(n, name, peer.uid, release_ended, job);
}

static int refuse_unreadable(struct http_request *req, const struct node *n)
{
	if (n->store_taken && claim_store_get_state(n->store) != STORE_STATE_UNREADABLE)
		return 0;
	http_reply_problem(req, n->store_reason[0] ? -E_STORE_UNAVAILABLE : -E_NOT_READY,
			   node_not_ready_reason(n), NULL);
	return -E_STORE_UNAVAILABLE;
}

void api_get_claims(struct http_request *req, void *userdata)
{
	const struct node *n = ((struct api *)userdata)->node;
	json_t *list;

	if (api_refuse_query(req) < 0 || refuse_unreadable(req, n) < 0)
		return;
	list = json_array();
	for (unsigned i = 0; list && i < n->n_claims; i++)
		json_array_append_new(
			list, api_json_claim(n, &n->claims[i]->claim, n->claims[i]->problem));
	http_reply_json(req, 200, json_pack("{s:o}", "claims", list));
}

void api_get_claim(struct http_request *req, void *userdata)
{
	const struct node *n = ((struct api *)userdata)->node;
	const struct claim_entry *e;

	if (api_refuse_query(req) < 0 || refuse_unreadable(req, n) < 0)
		return;
	e = node_find_claim(n, http_request_param(req, "name"));
	if (e)
		http_reply_json(req, 200, api_json_claim(n, &e->claim, e->problem));
	else
		http_reply_problem(req, -E_NOT_FOUND, "no claim of that name", NULL);
}
