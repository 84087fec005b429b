/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the api-*.c files: their state, the JSON of each thing, and the handlers.
 */
#pragma once

#include <jansson.h>

#include "http/api.h"

#define API_WAITING_MAX 256

struct api {
	struct node *node;
	/* /resources without the last two braces (behind them goes the age), with and without
	 * profiles. */
	char *resources[2];
	size_t resources_len[2];
	uint64_t resources_revision[2]; /* node->revision it shows; 0: none */
	char *published;		/* what the last `capacity` event was made from */
	sd_event_source *changed_source;
	unsigned n_strangers; /* refused since strangers_usec, without a name or user */
	uint64_t strangers_usec;
	struct api_page *page;
	unsigned n_waiting; /* GET /resources before the first placements are there */
	struct http_request *waiting[API_WAITING_MAX];
};

/* api-json.c; NULL when memory is out */
json_t *api_json_address(struct pci_addr a);
json_t *api_json_text(const char *s);	      /* null for "" */
json_t *api_json_placement(int id, int size); /* null while unknown */
json_t *api_json_claim(const struct node *n, const struct claim *c, enum claim_problem problem);
json_t *api_json_vf(const struct node *n, const struct card *c, const struct vf *v);
json_t *api_json_failures(const struct health_record *r); /* [] for NULL */
json_t *api_json_card(const struct node *n, const struct card *c);
json_t *api_json_resources(const struct node *n, bool profiles); /* without placements_age_ms */
bool api_resources_known(const struct node *n);

/* api-host.c */
void api_get_resources(struct http_request *req, void *userdata);
void api_get_gpus(struct http_request *req, void *userdata);
void api_get_gpu(struct http_request *req, void *userdata);
void api_get_vfs(struct http_request *req, void *userdata);
void api_put_cordon(struct http_request *req, void *userdata);
void api_delete_cordon(struct http_request *req, void *userdata);
void api_host_changed(struct api *api);

/* api-claims.c */
void api_get_claims(struct http_request *req, void *userdata);
void api_get_claim(struct http_request *req, void *userdata);
void api_put_claim(struct http_request *req, void *userdata);
void api_delete_claim(struct http_request *req, void *userdata);

/* api-fit.c */
void api_post_fit(struct http_request *req, void *userdata);

/* api-health.c */
void api_put_quarantine(struct http_request *req, void *userdata);
void api_delete_quarantine(struct http_request *req, void *userdata);
void api_post_recover(struct http_request *req, void *userdata);

/* api-status.c */
void api_get_status(struct http_request *req, void *userdata);

/* api-service.c */
void api_get_healthz(struct http_request *req, void *userdata);
void api_get_readyz(struct http_request *req, void *userdata);
void api_get_metrics(struct http_request *req, void *userdata);
void api_get_openapi(struct http_request *req, void *userdata);
void api_get_events(struct http_request *req, void *userdata);
void api_post_driver_release(struct http_request *req, void *userdata);
void api_post_driver_resume(struct http_request *req, void *userdata);

/* api-page.c */
void api_get_page(struct http_request *req, void *userdata);
void api_get_page_css(struct http_request *req, void *userdata);
void api_get_page_js(struct http_request *req, void *userdata);
void api_get_icon(struct http_request *req, void *userdata);
/* Publishes `changed`, at most four times a second. */
void api_page_changed(struct api *api);
int api_page_new(sd_event *event, struct node *n, struct api_page **ret) _must_check_;
struct api_page *api_page_free(struct api_page *page);

/* api-change.c: requests that are not GET. */
/* What whoever is at the other end may do; each also what those before it may. */
enum api_role {
	API_ROLE_READER,   /* looks */
	API_ROLE_CLAIMANT, /* ... claims, releases and cordons */
	API_ROLE_ADMIN, /* ... recovers cards, changes health records, stops the driver's helper */
};
enum api_role api_role(const struct http_request *req);
void api_claimant(const struct http_request *req, struct claimant *ret);
/* Each route that is not GET must be known here. */
void api_check_routes(const struct http_route *routes, size_t n);
/* The two functions that the server calls: refuse those whose role is too low, and write one audit
 * line for each request that changed something or was refused. */
bool api_admit(struct http_request *req, void *userdata);
void api_audit(struct http_request *req, int status, int code, void *userdata);

/* 0, or the request was answered with a problem: it has query keys and wants none. */
int api_refuse_query(struct http_request *req);
/* Address in "{bdf}": 0, or answered. */
int api_param_address(struct http_request *req, struct pci_addr *ret);
