/* SPDX-License-Identifier: Apache-2.0 */
#include "http/api-internal.h"

#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "model/outcome.h"

#define STRANGERS_SHOWN 60
#define STRANGERS_USEC	(60 * USEC_PER_SEC)

/* A route that is not GET: who may use it, and what the audit line says of it. */
struct change {
	const char *method;
	const char *path;
	const char *action; /* NULL: it changes nothing */
	const char *param;  /* of the path: what it is about; NULL: the host */
	const char *key;    /* ... in the audit line */
	enum api_role role;
	const char *what; /* completes "only ... may" */
};

static const struct change changes[] = {
	{ "PUT", "/claims/{name}", "claim", "name", "name", API_ROLE_CLAIMANT, "make claims" },
	{ "DELETE", "/claims/{name}", "release", "name", "name", API_ROLE_CLAIMANT,
	  "release claims" },
	{ "PUT", "/gpus/{bdf}/cordon", "cordon", "bdf", "card", API_ROLE_CLAIMANT,
	  "cordon a card" },
	{ "DELETE", "/gpus/{bdf}/cordon", "uncordon", "bdf", "card", API_ROLE_CLAIMANT,
	  "uncordon a card" },
	{ "POST", "/gpus/{bdf}/recover", "recover", "bdf", "card", API_ROLE_ADMIN,
	  "recover a card" },
	{ "PUT", "/vfs/{bdf}/quarantine", "quarantine", "bdf", "vf", API_ROLE_ADMIN,
	  "change a VF's health record" },
	{ "DELETE", "/vfs/{bdf}/quarantine", "clear", "bdf", "vf", API_ROLE_ADMIN,
	  "change a VF's health record" },
	{ "POST", "/driver/release", "driver-release", NULL, NULL, API_ROLE_ADMIN,
	  "stop and start the driver's helper" },
	{ "POST", "/driver/resume", "driver-resume", NULL, NULL, API_ROLE_ADMIN,
	  "stop and start the driver's helper" },
	{ "POST", "/fit", NULL, NULL, NULL, API_ROLE_READER, "ask what fits" },
};

static const struct change *change_of(const struct http_route *route)
{
	for (size_t i = 0; route && i < ARRAY_SIZE(changes); i++)
		if (strcmp(route->method, changes[i].method) == 0 &&
		    strcmp(route->path, changes[i].path) == 0)
			return &changes[i];
	return NULL;
}

void api_check_routes(const struct http_route *routes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		assert(strcmp(routes[i].method, "GET") == 0 || change_of(&routes[i]));
}

/* --- Who may do what ------------------------------------------------------------------------- */

static bool has_name_of(const struct http_request *req, char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (http_request_tls_has_name(req, names[i]))
			return true;
	return false;
}

enum api_role api_role(const struct http_request *req)
{
	const struct api *api = http_request_userdata(req);
	const struct config *config = api->node->config;
	struct http_peer peer;

	if (http_request_peer(req, &peer))
		return peer.uid == 0 ? API_ROLE_ADMIN : API_ROLE_CLAIMANT;
	/* A certificate with several names has the least that any of them has. */
	if (!http_request_tls_name(req) ||
	    has_name_of(req, config->tls_readers, config->n_tls_readers))
		return API_ROLE_READER;
	return has_name_of(req, config->tls_admins, config->n_tls_admins) ? API_ROLE_ADMIN
									  : API_ROLE_CLAIMANT;
}

void api_claimant(const struct http_request *req, struct claimant *ret)
{
	const char *name = http_request_tls_name(req);
	struct http_peer peer;

	*ret = (struct claimant){ .uid = CLAIM_UID_NONE,
				  .is_admin = api_role(req) == API_ROLE_ADMIN };
	if (http_request_peer(req, &peer))
		ret->uid = peer.uid;
	else
		str_copy_cut(ret->peer, sizeof ret->peer, name ? name : "");
}

bool api_admit(struct http_request *req, void *userdata)
{
	const struct change *c = change_of(http_request_route(req));
	struct error err = ERROR_INIT;

	(void)userdata;
	if (!c || api_role(req) >= c->role)
		return true;
	if (c->role == API_ROLE_ADMIN)
		error_set(&err, E_FORBIDDEN,
			  "only root on this host and certificates in tls.admins may %s", c->what);
	else
		error_set(&err, E_FORBIDDEN,
			  "only users of the Unix socket and certificates that are not in "
			  "tls.readers may %s",
			  c->what);
	http_reply_error(req, -E_FORBIDDEN, &err);
	return false;
}

/* --- What was done, and by whom -------------------------------------------------------------- */

/* Whoever reaches the TCP port could fill the log otherwise. Those who are known have a line for
 * each. */
static bool is_too_often(struct api *api, bool known)
{
	uint64_t now = clock_now_usec();

	if (known)
		return false;
	if (now >= api->strangers_usec + STRANGERS_USEC) {
		if (api->n_strangers > STRANGERS_SHOWN)
			log_notice("audit: refused requests of unknown clients were left out "
				   "count=%u",
				   api->n_strangers - STRANGERS_SHOWN);
		api->strangers_usec = now;
		api->n_strangers = 0;
	}
	if (++api->n_strangers == STRANGERS_SHOWN + 1)
		log_notice("audit: many refused requests of unknown clients, leaving out the "
			   "others of this minute");
	return api->n_strangers > STRANGERS_SHOWN;
}

/* The name that a process gives itself; a help for the reader, no proof. */
static const char *process_name(const struct node *n, pid_t pid, char *ret, size_t size)
{
	char path[PATH_MAX];
	size_t len = 0;

	snprintf(path, sizeof path, "%s/%d/comm", n->config->proc_root, (int)pid);
	if (pid <= 0 || file_read_into(AT_FDCWD, path, ret, size, &len) < 0)
		ret[0] = '\0';
	ret[strcspn(ret, "\n")] = '\0';
	return ret;
}

static void format_caller(const struct node *n, const struct http_request *req, char *ret,
			  size_t size)
{
	const char *name = http_request_tls_name(req);
	char comm[64], quoted[2 * CLAIM_PEER_MAX];
	struct http_peer peer;

	if (http_request_peer(req, &peer))
		snprintf(ret, size, "uid=%u pid=%d comm=%s", peer.uid, (int)peer.pid,
			 str_quote(process_name(n, peer.pid, comm, sizeof comm), quoted,
				   sizeof quoted));
	else
		snprintf(ret, size, "peer=%s address=%s",
			 str_quote(name ? name : "", quoted, sizeof quoted),
			 http_request_address(req));
}

/* A claim that was there already and a release of nothing change nothing. What got stuck in the
 * driver goes on by itself when it can. */
static const char *audit_result(int status, int code)
{
	if (code == 0)
		return status == 200 || status == 201 ? "ok" : status == 202 ? "accepted" : NULL;
	return code == E_FORBIDDEN || code == E_DRIVER_STUCK ? outcome_of(code)->name : NULL;
}

/* What a name or an address looks like; a request that was refused may hold anything there. */
static bool is_plain(const char *text)
{
	return text[strspn(text,
			   "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:_-")] ==
	       '\0';
}

void api_audit(struct http_request *req, int status, int code, void *userdata)
{
	struct api *api = userdata;
	const char *result = audit_result(status, code), *about;
	const struct change *c;
	char object[600] = "", quoted[520], caller[700];
	struct http_peer peer;

	if (!result || strcmp(http_request_method(req), "GET") == 0)
		return;
	c = change_of(http_request_route(req));
	if (!c || !c->action || (strcmp(c->action, "claim") == 0 && status == 200))
		return;
	if (is_too_often(api, http_request_peer(req, &peer) || http_request_tls_name(req)))
		return;
	about = c->param ? http_request_param(req, c->param) : NULL;
	if (about)
		snprintf(object, sizeof object, " %s=%s", c->key,
			 is_plain(about) ? about : str_quote(about, quoted, sizeof quoted));
	format_caller(api->node, req, caller, sizeof caller);
	log_notice("audit: %s%s result=%s %s", c->action, object, result, caller);
}
