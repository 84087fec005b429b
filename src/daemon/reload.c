/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/reload.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/allocate.h"
#include "daemon/cards.h"
#include "daemon/node-metrics.h"
#include "daemon/reconcile.h"
#include "daemon/sentinel.h"
#include "daemon/service.h"
#include "daemon/settings.h"

#define VALUE_SHOWN_MAX 200

struct reload {
	struct node *node;
	struct http_server *server;
	struct http_tls *tls;
	const char *path;
	bool required;
	sd_event_source *signal;
	bool busy;
	bool again; /* asked for while busy: the file may have changed behind the read */
};

struct reload_job {
	struct reload *reload;
	const char *path;
	bool required;
	struct settings settings;
	struct error err;
	int result;
};

static void log_change(const struct config_change *change, void *userdata)
{
	char from[VALUE_SHOWN_MAX], to[VALUE_SHOWN_MAX];
	unsigned *count = userdata;

	str_quote(change->from, from, sizeof from);
	str_quote(change->to, to, sizeof to);
	if (change->needs_restart) {
		log_warning("configuration: needs a restart, keeps its value until then key=%s "
			    "value=%s wanted=%s",
			    change->path, from, to);
		return;
	}
	log_notice("configuration: changed key=%s from=%s to=%s", change->path, from, to);
	(*count)++;
}

static void use_tls(struct reload *r, struct http_tls *tls)
{
	if (!tls || !r->tls || http_tls_equal(tls, r->tls))
		return;
	http_tls_unref(r->tls);
	r->tls = http_tls_ref(tls);
	http_server_set_tls(r->server, tls);
	node_metrics_set_certificate_end(r->node, http_tls_expires(tls));
	log_notice("tls: new files in use subject=\"%s\"", http_tls_subject(tls));
}

/* Nothing below keeps a pointer into the former config beyond this step. */
static void use_config(struct node *n, struct config *take_config)
{
	struct config *before = n->config;

	n->config = take_config;
	nvml_client_set_timeout(n->nvml, n->config->nvml_timeout_usec);
	cards_config_changed(n);
	sentinel_config_changed(n);
	reconcile_config_changed(n, before);
	node_changed(n);
	allocate_capacity_changed(n);
	config_free(before);
}

static int apply(struct reload *r, struct settings *s, struct error *err)
{
	struct node *n = r->node;
	unsigned count = 0;

	/* Torn off by a full disk, or while it is being written: not a wish for all defaults. */
	if (s->config->is_empty && !n->config->is_empty)
		return error_set(err, EINVAL,
				 "%s: nothing is set there any more; restart berthd if all the "
				 "defaults are wanted",
				 r->path);
	if (config_compare(n->config, s->config, log_change, &count) < 0 ||
	    config_keep_fixed(s->config, n->config) < 0)
		return error_set(err, ENOMEM, "out of memory");
	use_tls(r, s->tls);
	use_config(n, TAKE(s->config));
	log_notice("configuration: reloaded changes=%u", count);
	return 0;
}

static void job_run(void *userdata)
{
	struct reload_job *job = userdata;

	job->result = settings_load(job->path, job->required, &job->settings, &job->err);
}

static void job_drop(void *userdata)
{
	struct reload_job *job = userdata;

	settings_done(&job->settings);
	free(job);
}

static void begin(struct reload *r);

static void job_done(void *userdata)
{
	struct reload_job *job = userdata;
	struct reload *r = job->reload;
	int result = job->result;

	r->busy = false;
	if (r->node->stage == NODE_STOPPING) {
		job_drop(job);
		return;
	}
	if (result == 0)
		result = apply(r, &job->settings, &job->err);
	if (result < 0)
		log_error("configuration: not reloaded, everything stays as it was: %s",
			  error_text(&job->err));
	job_drop(job);
	if (!r->again) {
		service_reloaded(r->node);
		return;
	}
	r->again = false;
	begin(r);
}

static void begin(struct reload *r)
{
	struct reload_job *job = calloc(1, sizeof *job);

	if (job)
		*job = (struct reload_job){ .reload = r, .path = r->path, .required = r->required };
	if (!job || worker_submit(r->node->files, job_run, job_done, job_drop, job) < 0) {
		free(job);
		log_error("configuration: not reloaded: out of memory");
		service_reloaded(r->node);
		return;
	}
	r->busy = true;
}

static int hup(sd_event_source *source, const struct signalfd_siginfo *info, void *userdata)
{
	struct reload *r = userdata;

	(void)source;
	(void)info;
	if (r->node->stage == NODE_STOPPING)
		return 0;
	service_reloading(r->node);
	if (r->busy)
		r->again = true;
	else
		begin(r);
	return 0;
}

int reload_start(struct node *n, struct http_server *server, struct http_tls *tls, const char *path,
		 bool required, struct reload **ret, struct error *err)
{
	struct reload *r = calloc(1, sizeof *r);
	int result;

	if (!r)
		return error_set(err, ENOMEM, "out of memory");
	*r = (struct reload){ .node = n,
			      .server = server,
			      .tls = http_tls_ref(tls),
			      .path = path,
			      .required = required };
	if (tls)
		node_metrics_set_certificate_end(n, http_tls_expires(tls));
	result = sd_event_add_signal(n->event, &r->signal, SIGHUP, hup, r);
	if (result < 0) {
		reload_free(r);
		return error_set_errno(err, result, "signals");
	}
	*ret = r;
	return 0;
}

struct reload *reload_free(struct reload *r)
{
	if (!r)
		return NULL;
	sd_event_source_disable_unref(r->signal);
	http_tls_unref(r->tls);
	free(r);
	return NULL;
}
