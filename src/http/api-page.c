/* SPDX-License-Identifier: Apache-2.0 */
#include "http/api-internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/snapshot.h"
#include "http/embed.h"
#include "http/page.h"
#include "model/outcome.h"

/* The page as its files: what a browser may do with it is to load these, and to talk to berthd. */
#define POLICY                                                                                     \
	"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "    \
	"'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
#define CHANGED_USEC (250 * USEC_PER_MSEC)
#define VARIANTS_MAX 4
/* Changes with any of its files, so that a page that is open notices an upgrade. */
#define PAGE_HASH EMBED_PAGE_CSS_HASH EMBED_PAGE_JS_HASH

EMBED(page_css, EMBED_PAGE_CSS_PATH);
EMBED(page_js, EMBED_PAGE_JS_PATH);
EMBED(page_icon, EMBED_ICON_SVG_PATH);

/* The page as one kind of viewer sees it. */
struct variant {
	struct page_viewer viewer;
	uint64_t revision; /* of the node when it was rendered; 0: never */
	char etag[24];
	struct http_body *body;
};

struct api_page {
	struct node *node;
	struct http_body *css, *js, *icon;
	struct variant variants[VARIANTS_MAX];
	unsigned next;		/* the variant that gives way */
	sd_event_source *pause; /* armed: `changed` was published just now */
	bool changed;		/* ... and something has changed since */
};

/* --- The state, as the API shows it ----------------------------------------------------------- */

static json_t *json_placements_at(const struct node *n)
{
	int64_t age = snapshot_age_ms(n);
	char text[CLOCK_RFC3339_MAX];
	time_t at = time(NULL) - (time_t)(age / 1000);
	struct tm tm;

	if (age < 0 || !gmtime_r(&at, &tm) ||
	    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
		return json_null();
	return json_string(text);
}

static json_t *json_fallback(const struct node *n)
{
	if (n->host_fallback == NVML_REASON_NONE)
		return json_null();
	return json_pack("{s:s,s:o}", "reason", nvml_reason_name(n->host_fallback), "detail",
			 api_json_text(n->host_fallback_text));
}

static json_t *json_gpus(const struct node *n)
{
	json_t *list = n->inventory_known ? json_array() : json_null();

	for (unsigned i = 0; json_is_array(list) && i < n->n_cards; i++)
		if (n->cards[i]->present)
			json_array_append_new(list, api_json_card(n, n->cards[i]));
	return list;
}

static json_t *json_claims(const struct node *n)
{
	bool known = n->store_taken && claim_store_get_state(n->store) != STORE_STATE_UNREADABLE;
	json_t *list = known ? json_array() : json_null();

	for (unsigned i = 0; json_is_array(list) && i < n->n_claims; i++)
		json_array_append_new(
			list, api_json_claim(n, &n->claims[i]->claim, n->claims[i]->problem));
	return list;
}

/* Health records of VFs that are not there: the cards' own JSON has the others. */
static json_t *json_absent_records(const struct node *n)
{
	const struct health *h = health_store_get(n->health);
	json_t *list = json_array();

	for (unsigned i = 0; list && i < h->n; i++)
		if (!node_find_vf(n, h->records[i].vf, NULL))
			json_array_append_new(
				list, json_pack("{s:o,s:o,s:o}", "address",
						api_json_address(h->records[i].vf), "failures",
						api_json_failures(&h->records[i]), "quarantined_at",
						api_json_text(h->records[i].quarantined_at)));
	return list;
}

static json_t *json_state(const struct node *n)
{
	bool bad = claim_store_get_state(n->store) == STORE_STATE_UNREADABLE;
	char host[256] = "";
	json_t *gpu = NULL,
	       *resources = api_resources_known(n) ? api_json_resources(n, true) : NULL;

	if (gethostname(host, sizeof host - 1) < 0)
		host[0] = '\0';
	if (resources)
		gpu = json_incref(json_object_get(resources, "gpu"));
	json_decref(resources);
	return json_pack("{s:o,s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "host",
			 api_json_text(host), "version", BERTH_VERSION, "page", PAGE_HASH,
			 "not_ready", api_json_text(node_not_ready_reason(n)), "claims_store",
			 bad ? api_json_text(n->store_reason) : json_null(), "health_store",
			 api_json_text(health_store_get_state(n->health) == STORE_STATE_UNREADABLE
					       ? health_store_reason(n->health)
					       : ""),
			 "fallback", json_fallback(n), "placements_at", json_placements_at(n),
			 "gpu", gpu ? gpu : json_null(), "gpus", json_gpus(n), "claims",
			 json_claims(n), "records", json_absent_records(n));
}

/* --- Rendering, once per change and kind of viewer -------------------------------------------- */

static struct page_viewer viewer_of(const struct node *n, const struct http_request *req)
{
	enum api_role role = api_role(req);
	struct page_viewer viewer = { .may_change = role >= API_ROLE_CLAIMANT,
				      .may_clear = role >= API_ROLE_ADMIN };

	viewer.owns_all = viewer.may_clear ||
			  (viewer.may_change && n->config->claims == CONFIG_CLAIMS_SHARED);
	/* Where it makes no difference who it is, one page does for all. */
	if (viewer.may_change && !viewer.owns_all)
		api_claimant(req, &viewer.who);
	return viewer;
}

static bool same_viewer(const struct page_viewer *a, const struct page_viewer *b)
{
	return a->may_change == b->may_change && a->may_clear == b->may_clear &&
	       a->owns_all == b->owns_all && a->who.uid == b->who.uid &&
	       strcmp(a->who.peer, b->who.peer) == 0;
}

static struct variant *find_variant(struct api_page *page, const struct page_viewer *viewer)
{
	struct variant *v;

	for (unsigned i = 0; i < VARIANTS_MAX; i++)
		if (page->variants[i].body && same_viewer(&page->variants[i].viewer, viewer))
			return &page->variants[i];
	v = &page->variants[page->next++ % VARIANTS_MAX];
	http_body_unref(v->body);
	*v = (struct variant){ .viewer = *viewer };
	return v;
}

/* Tells texts apart, not attackers: the page is nobody's but the viewer's own. */
static uint64_t hash(const char *data, size_t len)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < len; i++)
		h = (h ^ (unsigned char)data[i]) * UINT64_C(0x100000001b3);
	return h;
}

static int set_page_headers(struct http_body *body, const char *etag)
{
	int r = http_body_set_header(body, "ETag", etag);

	if (r == 0)
		r = http_body_set_header(body, "Cache-Control", "private, no-cache");
	if (r == 0)
		r = http_body_set_header(body, "Content-Security-Policy", POLICY);
	if (r == 0)
		r = http_body_set_header(body, "Referrer-Policy", "no-referrer");
	return r == 0 ? http_body_set_header(body, "Cross-Origin-Resource-Policy", "same-origin")
		      : r;
}

static int render(struct node *n, struct variant *v)
{
	json_t *state = json_state(n);
	_buf_ struct buf out = BUF_INIT;
	struct http_body *body = NULL;
	int r = state ? page_render(state, &v->viewer, &out) : -ENOMEM;

	json_decref(state);
	if (r == 0)
		r = http_body_new("text/html; charset=utf-8", out.data, out.len, &body);
	if (r < 0)
		return r;
	snprintf(v->etag, sizeof v->etag, "\"%016" PRIx64 "\"", hash(out.data, out.len));
	r = set_page_headers(body, v->etag);
	if (r < 0) {
		http_body_unref(body);
		return r;
	}
	http_body_unref(v->body);
	v->body = body;
	v->revision = n->revision;
	return 0;
}

/* --- Answers ---------------------------------------------------------------------------------- */

static void reply_unless_known(struct http_request *req, struct http_body *body, const char *etag)
{
	const char *known = http_request_header(req, "If-None-Match");

	/* A list, or marked as weak by a proxy: ours is found in it all the same. */
	if (!known || !strstr(known, etag)) {
		http_reply_shared(req, body);
		return;
	}
	http_request_add_header(req, "ETag", etag);
	http_request_add_header(req, "Cache-Control", "private, no-cache");
	http_reply(req, 304, NULL, NULL, 0);
}

void api_get_page(struct http_request *req, void *userdata)
{
	struct api *api = userdata;
	struct page_viewer viewer = viewer_of(api->node, req);
	struct variant *v;

	if (api_refuse_query(req) < 0)
		return;
	v = find_variant(api->page, &viewer);
	if (v->revision != api->node->revision && render(api->node, v) < 0)
		http_reply_problem(req, -E_INTERNAL, "out of memory", NULL);
	else
		reply_unless_known(req, v->body, v->etag);
}

static void reply_file(struct http_request *req, struct http_body **body, const char *type,
		       const char *data, size_t len, const char *etag)
{
	if (api_refuse_query(req) < 0)
		return;
	if (!*body && http_body_new(type, data, len, body) == 0 &&
	    set_page_headers(*body, etag) < 0)
		*body = http_body_unref(*body);
	if (*body)
		reply_unless_known(req, *body, etag);
	else
		http_reply_problem(req, -E_INTERNAL, "out of memory", NULL);
}

void api_get_page_css(struct http_request *req, void *userdata)
{
	reply_file(req, &((struct api *)userdata)->page->css, "text/css; charset=utf-8", page_css,
		   page_css_size, "\"" EMBED_PAGE_CSS_HASH "\"");
}

void api_get_page_js(struct http_request *req, void *userdata)
{
	reply_file(req, &((struct api *)userdata)->page->js, "text/javascript; charset=utf-8",
		   page_js, page_js_size, "\"" EMBED_PAGE_JS_HASH "\"");
}

void api_get_icon(struct http_request *req, void *userdata)
{
	reply_file(req, &((struct api *)userdata)->page->icon, "image/svg+xml", page_icon,
		   page_icon_size, "\"" EMBED_ICON_SVG_HASH "\"");
}

/* --- The event `changed` ---------------------------------------------------------------------- */

static void publish(struct api_page *page)
{
	struct node *n = page->node;
	json_t *data;

	page->changed = false;
	if (http_events_clients(n->events) == 0)
		return;
	data = json_pack("{s:I}", "revision", (json_int_t)n->revision);
	if (data && http_events_publish(n->events, "changed", data) < 0)
		log_debug("events: a change was not published, ignoring");
	(void)sd_event_source_set_time_relative(page->pause, CHANGED_USEC);
	(void)sd_event_source_set_enabled(page->pause, SD_EVENT_ONESHOT);
}

static int pause_over(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct api_page *page = userdata;

	(void)source;
	(void)usec;
	if (page->changed)
		publish(page);
	return 0;
}

void api_page_changed(struct api *api)
{
	struct api_page *page = api->page;
	int armed = SD_EVENT_OFF;

	(void)sd_event_source_get_enabled(page->pause, &armed);
	if (armed == SD_EVENT_OFF)
		publish(page);
	else
		page->changed = true;
}

int api_page_new(sd_event *event, struct node *n, struct api_page **ret)
{
	struct api_page *page = calloc(1, sizeof *page);
	int r;

	if (!page)
		return -ENOMEM;
	page->node = n;
	r = sd_event_add_time_relative(event, &page->pause, CLOCK_MONOTONIC, CHANGED_USEC, 0,
				       pause_over, page);
	if (r >= 0)
		r = sd_event_source_set_enabled(page->pause, SD_EVENT_OFF);
	if (r < 0) {
		api_page_free(page);
		return r;
	}
	*ret = page;
	return 0;
}

struct api_page *api_page_free(struct api_page *page)
{
	if (!page)
		return NULL;
	for (unsigned i = 0; i < VARIANTS_MAX; i++)
		http_body_unref(page->variants[i].body);
	http_body_unref(page->css);
	http_body_unref(page->js);
	http_body_unref(page->icon);
	sd_event_source_disable_unref(page->pause);
	free(page);
	return NULL;
}
