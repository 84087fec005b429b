/* SPDX-License-Identifier: Apache-2.0 */
#include "http/api-internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "daemon/allocate.h"
#include "daemon/recover.h"
#include "daemon/snapshot.h"
#include "model/outcome.h"

int api_refuse_query(struct http_request *req)
{
	struct error err = ERROR_INIT;
	int r = http_request_check_query(req, NULL, 0, &err);

	if (r < 0)
		http_reply_error(req, r, &err);
	return r;
}

int api_param_address(struct http_request *req, struct pci_addr *ret)
{
	if (pci_addr_parse(http_request_param(req, "bdf"), ret) == 0)
		return 0;
	http_reply_problem(req, -E_BAD_REQUEST, "not a PCI address (like 0000:41:00.0)", NULL);
	return -E_BAD_REQUEST;
}

/* --- GET /resources ------------------------------------------------------------------------- */

/* Renders again only after a change. -ENOMEM. */
static int refresh_resources(struct api *api, bool profiles)
{
	json_t *json;
	char *text;

	if (api->resources_revision[profiles] == api->node->revision)
		return 0;
	json = api_json_resources(api->node, profiles);
	text = json ? json_dumps(json, JSON_COMPACT) : NULL;
	json_decref(json);
	if (!text)
		return -ENOMEM;
	free(api->resources[profiles]);
	api->resources[profiles] = text;
	api->resources_len[profiles] = strlen(text) -
				       2; /* the age goes before the closing braces */
	api->resources_revision[profiles] = api->node->revision;
	return 0;
}

static void reply_resources(struct api *api, struct http_request *req, bool profiles)
{
	int64_t age = snapshot_age_ms(api->node);
	char tail[64];
	size_t len, tail_len;
	char *body;

	if (refresh_resources(api, profiles) < 0) {
		http_reply_problem(req, -E_INTERNAL, "out of memory", NULL);
		return;
	}
	if (age < 0)
		tail_len = (size_t)snprintf(tail, sizeof tail, ",\"placements_age_ms\":null}}\n");
	else
		tail_len = (size_t)snprintf(tail, sizeof tail, ",\"placements_age_ms\":%lld}}\n",
					    (long long)age);
	len = api->resources_len[profiles];
	body = malloc(len + tail_len);
	if (!body) {
		http_reply_problem(req, -E_INTERNAL, "out of memory", NULL);
		return;
	}
	memcpy(body, api->resources[profiles], len);
	memcpy(body + len, tail, tail_len);
	http_reply_take(req, 200, "application/json", body, len + tail_len);
}

void api_get_resources(struct http_request *req, void *userdata)
{
	static const char *const keys[] = { "profiles" };
	struct api *api = userdata;
	const char *profiles = http_request_query(req, "profiles");
	struct error err = ERROR_INIT;
	int r = http_request_check_query(req, keys, ARRAY_SIZE(keys), &err);

	if (r < 0) {
		http_reply_error(req, r, &err);
		return;
	}
	if (profiles && strcmp(profiles, "false") != 0 && strcmp(profiles, "true") != 0) {
		http_reply_problem(req, -E_BAD_REQUEST, "profiles: true or false", NULL);
		return;
	}
	if (profiles && strcmp(profiles, "false") == 0) {
		reply_resources(api, req, false);
		return;
	}
	if (api_resources_known(api->node)) {
		reply_resources(api, req, true);
		return;
	}
	/* Before the first placements are there any number would be wrong: the answer waits for
	 * them. */
	if (api->n_waiting == API_WAITING_MAX) {
		http_reply_problem(req, -E_NOT_READY, node_not_ready_reason(api->node), NULL);
		return;
	}
	api->waiting[api->n_waiting++] = req;
}

static void publish_capacity(struct api *api)
{
	json_t *json = NULL;

	if (http_events_clients(api->node->events) == 0 || !api_resources_known(api->node) ||
	    refresh_resources(api, true) < 0)
		return;
	if (api->published && strcmp(api->published, api->resources[true]) == 0)
		return;
	free(api->published);
	api->published = strdup(api->resources[true]);
	json = json_loads(api->resources[true], 0, NULL);
	if (json && http_events_publish(api->node->events, "capacity", json) < 0)
		log_debug("events: a capacity event was not published, ignoring");
}

void api_host_changed(struct api *api)
{
	if (api->n_waiting > 0 && api_resources_known(api->node)) {
		unsigned n = api->n_waiting;

		api->n_waiting = 0;
		for (unsigned i = 0; i < n; i++)
			reply_resources(api, api->waiting[i], true);
	}
	publish_capacity(api);
}

/* --- Cards and VFs -------------------------------------------------------------------------- */

void api_get_gpus(struct http_request *req, void *userdata)
{
	const struct node *n = ((struct api *)userdata)->node;
	json_t *list;

	if (api_refuse_query(req) < 0)
		return;
	list = json_array();
	for (unsigned i = 0; list && i < n->n_cards; i++)
		if (n->cards[i]->present)
			json_array_append_new(list, api_json_card(n, n->cards[i]));
	http_reply_json(req, 200, json_pack("{s:o}", "gpus", list));
}

static struct card *requested_card(struct http_request *req, const struct node *n)
{
	struct pci_addr address;
	struct card *c;

	if (api_param_address(req, &address) < 0)
		return NULL;
	c = node_find_card(n, address);
	if (c && c->present)
		return c;
	if (n->inventory_known)
		http_reply_problem(req, -E_NOT_FOUND, "no such GPU", NULL);
	else
		http_reply_problem(req, -E_NOT_READY, "the first look at the host has not ended",
				   NULL);
	return NULL;
}

void api_get_gpu(struct http_request *req, void *userdata)
{
	const struct node *n = ((struct api *)userdata)->node;
	struct card *c;

	if (api_refuse_query(req) < 0)
		return;
	c = requested_card(req, n);
	if (c)
		http_reply_json(req, 200, api_json_card(n, c));
}

void api_get_vfs(struct http_request *req, void *userdata)
{
	const struct node *n = ((struct api *)userdata)->node;
	json_t *list;

	if (api_refuse_query(req) < 0)
		return;
	list = json_array();
	for (unsigned i = 0; list && i < n->n_cards; i++)
		for (unsigned k = 0; k < n->cards[i]->n_vfs; k++)
			json_array_append_new(list,
					      api_json_vf(n, n->cards[i], &n->cards[i]->vfs[k]));
	http_reply_json(req, 200, json_pack("{s:o}", "vfs", list));
}

struct cordon_job {
	struct node *node;
	struct http_request *req;
	struct pci_addr card;
	bool cordoned;
};

static void cordon_stored(int result, const struct error *err, void *userdata)
{
	struct cordon_job *job = userdata;
	struct node *n = job->node;
	struct card *c = node_find_card(n, job->card);
	char text[PCI_ADDR_MAX];

	if (result < 0 || !c) {
		http_reply_problem(job->req, result < 0 ? -E_STORE_UNAVAILABLE : -E_NOT_FOUND,
				   error_text(err), NULL);
	} else {
		recover_cordon_changed(n, c, job->cordoned);
		log_notice("card: %s card=%s", job->cordoned ? "cordoned" : "uncordoned",
			   pci_addr_format(c->address, text));
		node_changed(n);
		http_reply_json(job->req, 200, api_json_card(n, c));
		if (!job->cordoned)
			allocate_capacity_changed(n);
	}
	free(job);
}

static void set_cordon(struct http_request *req, struct node *n, bool cordoned)
{
	struct store_op *op = NULL;
	struct cordon_job *job = NULL;
	struct card *c;
	int r = -ENOMEM;

	if (api_refuse_query(req) < 0)
		return;
	/* The first commit of a new database must be the adoption. */
	if (!node_is_ready(n)) {
		http_reply_problem(req,
				   claim_store_get_state(n->store) == STORE_STATE_UNREADABLE
					   ? -E_STORE_UNAVAILABLE
					   : -E_NOT_READY,
				   node_not_ready_reason(n), NULL);
		return;
	}
	c = requested_card(req, n);
	if (!c)
		return;
	if (recover_is_running(c)) {
		http_reply_problem(req, -E_IN_USE, "a recovery of this card is under way", NULL);
		return;
	}
	op = calloc(1, sizeof *op);
	job = malloc(sizeof *job);
	if (op && job) {
		*job = (struct cordon_job){ n, req, c->address, cordoned };
		op->kind = STORE_OP_CORDON;
		op->card = c->address;
		op->cordoned = cordoned;
		r = claim_store_submit(n->store, op, 1, cordon_stored, job);
	}
	free(op);
	if (r < 0) {
		free(job);
		http_reply_problem(req, -E_STORE_UNAVAILABLE, node_not_ready_reason(n), NULL);
	}
}

void api_put_cordon(struct http_request *req, void *userdata)
{
	set_cordon(req, ((struct api *)userdata)->node, true);
}

void api_delete_cordon(struct http_request *req, void *userdata)
{
	set_cordon(req, ((struct api *)userdata)->node, false);
}
