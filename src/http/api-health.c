/* SPDX-License-Identifier: Apache-2.0 */
#include "http/api-internal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/recover.h"
#include "daemon/sentinel.h"
#include "model/outcome.h"

/* --- Quarantine by a person
 * ------------------------------------------------------------------------ */

struct quarantine_job {
	struct node *node;
	struct http_request *req;
	struct pci_addr vf;
	bool quarantine;
	enum health_change change;
};

static int change_record(struct health *h, void *userdata)
{
	struct quarantine_job *job = userdata;
	char now[CLOCK_RFC3339_MAX];

	if (!job->quarantine) {
		job->change = health_clear(h, job->vf);
		return 0;
	}
	clock_rfc3339_now(now);
	return health_quarantine(h, job->vf, now, &job->change);
}

/* A VF that is not there at present may have a record all the same. */
static json_t *json_vf(const struct node *n, struct pci_addr address)
{
	struct card *c = NULL;
	const struct vf *v = node_find_vf(n, address, &c);

	if (v)
		return api_json_vf(n, c, v);
	return json_pack("{s:o,s:s,s:b}", "address", api_json_address(address), "state", "absent",
			 "quarantined",
			 health_is_quarantined(health_store_get(n->health), address));
}

static void record_changed(int result, const struct error *err, void *userdata)
{
	struct quarantine_job *job = userdata;
	char text[PCI_ADDR_MAX];

	pci_addr_format(job->vf, text);
	if (result < 0) {
		http_reply_problem(job->req,
				   result == -E_HEALTH_STORE_UNAVAILABLE
					   ? result
					   : -E_HEALTH_STORE_UNAVAILABLE,
				   error_text(err), NULL);
	} else if (!job->quarantine && job->change == HEALTH_UNCHANGED) {
		http_reply_problem(job->req, -E_NOT_FOUND, "nothing is recorded against that VF",
				   NULL);
	} else {
		if (job->change != HEALTH_UNCHANGED)
			log_notice("vf: %s by hand vf=%s",
				   job->quarantine ? "quarantined" : "record cleared", text);
		sentinel_health_changed(job->node);
		http_reply_json(job->req, 200, json_vf(job->node, job->vf));
	}
	free(job);
}

static void set_quarantine(struct http_request *req, struct node *n, bool quarantine)
{
	struct quarantine_job *job;
	struct pci_addr vf;

	if (api_refuse_query(req) < 0 || api_param_address(req, &vf) < 0)
		return;
	if (quarantine && !node_find_vf(n, vf, NULL)) {
		http_reply_problem(req, -E_NOT_FOUND, "no such VF", NULL);
		return;
	}
	job = malloc(sizeof *job);
	if (!job) {
		http_reply_problem(req, -E_INTERNAL, "out of memory", NULL);
		return;
	}
	*job = (struct quarantine_job){ n, req, vf, quarantine, HEALTH_UNCHANGED };
	if (health_store_change(n->health, change_record, record_changed, job) < 0) {
		http_reply_problem(req, -E_HEALTH_STORE_UNAVAILABLE, health_store_reason(n->health),
				   NULL);
		free(job);
	}
}

void api_put_quarantine(struct http_request *req, void *userdata)
{
	set_quarantine(req, ((struct api *)userdata)->node, true);
}

void api_delete_quarantine(struct http_request *req, void *userdata)
{
	set_quarantine(req, ((struct api *)userdata)->node, false);
}

/* --- Recovery of a card
 * ------------------------------------------------------------------------------- */

struct recover_job {
	struct http_request *req;
	struct card *card;
};

static void recover_started(int code, const char *detail, void *userdata)
{
	struct recover_job *job = userdata;

	if (code < 0)
		http_reply_problem(job->req, code, detail, NULL);
	else
		http_reply_json(job->req, 202, recover_json(job->card));
	free(job);
}

void api_post_recover(struct http_request *req, void *userdata)
{
	struct node *n = ((struct api *)userdata)->node;
	struct recover_job *job;
	struct pci_addr address;
	struct card *c;

	if (api_refuse_query(req) < 0 || api_param_address(req, &address) < 0)
		return;
	c = node_find_card(n, address);
	if (!c || (!c->present && !c->recovery)) {
		http_reply_problem(req, -E_NOT_FOUND, "no such GPU", NULL);
		return;
	}
	job = malloc(sizeof *job);
	if (!job) {
		http_reply_problem(req, -E_INTERNAL, "out of memory", NULL);
		return;
	}
	*job = (struct recover_job){ req, c };
	recover_submit(n, c, recover_started, job);
}
