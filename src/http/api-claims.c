/* SPDX-License-Identifier: Apache-2.0 */
#include "http/api-claim-body.h"
#include "http/api-internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "daemon/allocate.h"
#include "daemon/release.h"
#include "model/outcome.h"

/* A Unix socket is asked where the claim's owner has opened it (daemon/agent-channel.h), which can
 * be said of users alone. Better no claim than one whose agent is never asked. */
static int check_channel(const struct allocation_request *q, struct error *err)
{
	if (!q->who.peer[0] || !q->channel[0] || str_starts_with(q->channel, "vsock:"))
		return 0;
	return error_set(err, E_BAD_REQUEST,
			 "channel: over TLS only vsock:CID[:PORT] can be named, as no Unix socket "
			 "belongs to a certificate");
}

static int parse_claim(const struct node *n, struct http_request *req, struct allocation_request *q,
		       struct error *err)
{
	const struct claim_body_rules rules = {
		.proc_root = n->config->proc_root,
		.console_dirs = (const char *const *)n->config->console_dirs,
		.n_console_dirs = n->config->n_console_dirs,
	};
	const char *name = http_request_param(req, "name");
	json_t *body = NULL;
	int r;

	if (!claim_name_is_valid(name))
		return error_set(err, E_BAD_REQUEST,
				 "name: must match [A-Za-z0-9][A-Za-z0-9._-]{0,127}");
	/* A later adoption would find its name taken, by a claim of another VF. */
	if (claim_name_is_external(name) && !node_find_claim(n, name))
		return error_set(err, E_BAD_REQUEST,
				 "name: external-... is what adopted VFs are called");
	str_copy_cut(q->name, sizeof q->name, name);
	q->policy = n->config->placement_policy;
	api_claimant(req, &q->who);
	r = http_request_json(req, &body, err);
	if (r == 0)
		r = claim_body_read(&rules, body, q, err);
	json_decref(body);
	return r < 0 ? r : check_channel(q, err);
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
	struct claimant who;

	if (api_refuse_query(req) < 0)
		return;
	if (!claim_name_is_valid(name)) {
		http_reply_problem(req, -E_BAD_REQUEST,
				   "name: must match [A-Za-z0-9][A-Za-z0-9._-]{0,127}", NULL);
		return;
	}
	job = malloc(sizeof *job);
	if (!job) {
		http_reply_problem(req, -E_INTERNAL, "out of memory", NULL);
		return;
	}
	*job = (struct release_job){ n, req };
	api_claimant(req, &who);
	release_submit(n, name, &who, release_ended, job);
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
