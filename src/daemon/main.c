/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/allocate.h"
#include "daemon/cards.h"
#include "daemon/node-metrics.h"
#include "daemon/node.h"
#include "daemon/reconcile.h"
#include "daemon/reload.h"
#include "daemon/sentinel.h"
#include "daemon/service.h"
#include "daemon/settings.h"
#include "daemon/snapshot.h"
#include "daemon/start.h"
#include "http/api.h"
#include "http/server.h"

#define DEFAULT_CONFIG	"/etc/berth/berthd.yaml"
#define STOP_LIMIT_USEC (2 * USEC_PER_SEC)

static const char usage[] =
	"Usage: berthd [--config FILE] [--check]\n"
	"Hands out NVIDIA vGPUs of this host: finds the SR-IOV virtual functions, knows what "
	"fits,\n"
	"gives one to whoever asks over its socket, and takes it back.\n"
	"\n"
	"  --config FILE   settings (default " DEFAULT_CONFIG "; without that file: the defaults)\n"
	"  --check         only read the settings and the files of TLS that they name, say what "
	"is\n"
	"                  wrong with them, and exit\n"
	"  --version       print the version\n"
	"  --help          print this\n"
	"\n"
	"SIGHUP reads the settings again. "
	"BERTH_LOG_LEVEL (error, warning, notice, info, debug) sets what is logged.\n"
	"Examples:\n"
	"  berthd --config /etc/berth/berthd.yaml --check\n"
	"  berth-sim run --root /tmp/host & berthd --config /tmp/host/berthd.yaml\n"
	"See berthd(8) and berthd.yaml(5).\n";

struct options {
	const char *config;
	bool config_given;
	bool check;
};

/* -1: go on; else the exit status. */
static int parse_options(int argc, char **argv, struct options *o)
{
	static const struct option table[] = {
		{ "config", required_argument, NULL, 'c' },
		{ "check", no_argument, NULL, 'k' },
		{ "version", no_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "c:h", table, NULL)) >= 0) {
		switch (c) {
		case 'c':
			o->config = optarg;
			o->config_given = true;
			break;
		case 'k':
			o->check = true;
			break;
		case 'v':
			puts("berthd " BERTH_VERSION);
			return EXIT_SUCCESS;
		case 'h':
			fputs(usage, stdout);
			return EXIT_SUCCESS;
		default:
			fputs("Try 'berthd --help'.\n", stderr);
			return 2;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "berthd: unexpected argument: %s\nTry 'berthd --help'.\n",
			argv[optind]);
		return 2;
	}
	return -1;
}

/* Two daemons on one folder would give one VF twice. The descriptor stays open for life. */
static int lock_data_dir(const struct config *config, struct error *err)
{
	_free_ char *path = str_printf("%s/berthd.lock", config->data_dir);
	_free_ char *run = str_printf("%s/run", config->data_dir);
	_close_ int fd = -1;
	int r;

	if (!path || !run)
		return error_set(err, ENOMEM, "out of memory");
	r = file_make_dirs(config->data_dir, 0700);
	if (r == 0)
		r = file_make_dirs(run, 0700);
	if (r < 0)
		return error_set_errno(err, r, "data_dir %s", config->data_dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return error_set_errno(err, errno, "%s", path);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return error_set(err, errno, "another berthd uses data_dir %s", config->data_dir);
	return TAKE_FD(fd);
}

static int read_boot_id(struct node *n, struct error *err)
{
	char text[CLAIM_BOOT_ID_MAX];
	size_t len;
	int r;

	r = file_read_into(AT_FDCWD, n->config->boot_id_file, text, sizeof text, &len);
	if (r < 0)
		return error_set_errno(err, r, "boot_id_file %s", n->config->boot_id_file);
	text[strcspn(text, "\r\n")] = '\0';
	if (!*text)
		return error_set(err, EINVAL, "boot_id_file %s is empty", n->config->boot_id_file);
	memcpy(n->boot_id, text, sizeof n->boot_id);
	return 0;
}

static int plan_timer_fired(sd_event_source *source, uint64_t usec, void *userdata)
{
	(void)source;
	(void)usec;
	allocate_plan(userdata);
	return 0;
}

static void health_changed(struct health_store *s, enum store_state state, const struct error *err,
			   void *userdata)
{
	struct node *n = userdata;

	switch (state) {
	case STORE_STATE_LOADING:
		return;
	case STORE_STATE_UNREADABLE:
		log_error("health records: cannot be used, nothing is placed until they can: %s",
			  error_text(err));
		break;
	case STORE_STATE_READY:
		log_notice("health records: loaded quarantined=%u",
			   health_count_quarantined(health_store_get(s)));
		if (err)
			log_warning("health records: %s", error_text(err));
		/* A threshold that was lowered holds for the failures that are stored, too. */
		sentinel_apply_threshold(n);
		break;
	}
	sentinel_health_changed(n);
	start_try_finish(n);
	allocate_plan(n);
}

static int start_parts(struct node *n, struct error *err)
{
	struct claim_store_config store = { .event = n->event,
					    .data_dir = n->config->data_dir,
					    .loaded = start_store_loaded,
					    .userdata = n };
	struct nvml_client_config nvml = { .event = n->event,
					   .library = n->config->nvml_library,
					   .timeout_usec = n->config->nvml_timeout_usec };
	struct http_events_config events = { .event = n->event };
	struct health_store_config health = {
		.event = n->event,
		.worker = NULL,
		.data_dir = n->config->data_dir,
		.changed = health_changed,
		.userdata = n,
	};
	int r;

	if (node_metrics_start(n) < 0)
		return error_set(err, ENOMEM, "out of memory");
	r = http_events_new(&events, &n->events);
	if (r < 0)
		return error_set_errno(err, r, "events");
	r = sd_event_add_time(n->event, &n->plan_timer, CLOCK_MONOTONIC, UINT64_MAX, 0,
			      plan_timer_fired, n);
	if (r < 0)
		return error_set_errno(err, r, "timer");
	r = worker_new(n->event, "berth-files", &n->files);
	if (r < 0)
		return error_set_errno(err, r, "file thread");
	health.worker = n->files;
	if ((r = health_store_new(&health, &n->health, err)) < 0 ||
	    (r = sentinel_start(n, err)) < 0 || (r = claim_store_new(&store, &n->store, err)) < 0 ||
	    (r = nvml_client_new(&nvml, &n->nvml, err)) < 0 || (r = snapshot_start(n, err)) < 0 ||
	    (r = reconcile_start(n, err)) < 0 || (r = cards_start(n, err)) < 0)
		return r;
	return 0;
}

struct daemon {
	struct node *node;
	struct http_server *server;
	struct reload *reload;
};

static void stopped(void *userdata)
{
	struct daemon *d = userdata;

	sd_event_exit(d->node->event, 0);
}

static int stop_wanted(sd_event_source *source, const struct signalfd_siginfo *info, void *userdata)
{
	struct daemon *d = userdata;

	(void)source;
	if (d->node->stage == NODE_STOPPING) {
		sd_event_exit(d->node->event, 0);
		return 0;
	}
	log_notice("berthd: stopping signal=%s; claims and VFs stay as they are",
		   sigabbrev_np((int)info->ssi_signo) ?: "?");
	service_stopping();
	d->node->stage = NODE_STOPPING;
	allocate_plan(d->node);
	if (http_server_stop(d->server, STOP_LIMIT_USEC, stopped, d) < 0)
		sd_event_exit(d->node->event, 0);
	return 0;
}

/* First of all: a reload that is asked for while berthd starts must not end it. */
static void block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);  /* for daemon/reload.c */
	sigaddset(&set, SIGCHLD); /* sd-event watches children only then */
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static int add_signals(struct daemon *d)
{
	static const int ends[] = { SIGTERM, SIGINT };
	int r = 0;

	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(ends); i++)
		r = sd_event_add_signal(d->node->event, NULL, ends[i], stop_wanted, d);
	return r;
}

/* Everything that listens, and what is told of it. */
static int start_serving(struct daemon *d, const struct options *o, struct settings *settings,
			 const struct http_sockets *sockets, struct error *err)
{
	/* A file that was there at the start and is not at a reload is a mistake. */
	bool required = o->config_given || access(o->config, F_OK) == 0;
	int r;

	r = api_server_new(d->node, settings->tls, sockets, &d->server, err);
	if (r == 0)
		r = reload_start(d->node, d->server, settings->tls, o->config, required, &d->reload,
				 err);
	return r;
}

static void tell_started(const struct node *n, const struct http_tls *tls)
{
	log_notice("berthd: " BERTH_VERSION " started socket=%s data_dir=%s", n->config->socket,
		   n->config->data_dir);
	if (tls && !n->config->listen)
		log_warning("configuration: tls is set, but listen is not: nothing uses it");
	if (tls && http_tls_expires(tls) <= (int64_t)time(NULL))
		log_warning(
			"tls: the certificate has expired, clients will refuse it subject=\"%s\"",
			http_tls_subject(tls));
}

static void daemon_end(struct daemon *d)
{
	struct http_events *events = d->node->events;
	sd_event *event = d->node->event;

	reload_free(d->reload);
	http_server_free(d->server);
	api_server_done(d->node);
	node_free(d->node);
	http_events_free(events);
	sd_event_unref(event);
}

static int run(const struct options *o, struct settings *settings, struct error *err)
{
	struct daemon d = { .node = calloc(1, sizeof *d.node) };
	struct node *n = d.node;
	struct http_sockets sockets;
	_close_ int lock = -1;
	int r;

	if (!n)
		return error_set(err, ENOMEM, "out of memory");
	n->config = TAKE(settings->config);
	n->ready = service_ready;
	n->one_query_per_claim = getenv("BERTH_ONE_QUERY_PER_CLAIM") != NULL;
	r = service_take_sockets(n->config, &sockets, err);
	if (r >= 0) {
		lock = lock_data_dir(n->config, err);
		r = lock < 0 ? lock : read_boot_id(n, err);
	}
	if (r >= 0) {
		r = sd_event_default(&n->event);
		if (r < 0)
			error_set_errno(err, r, "event loop");
	}
	if (r >= 0 && (r = add_signals(&d)) < 0)
		error_set_errno(err, r, "signals");
	if (r >= 0)
		r = service_start(n, err);
	if (r >= 0)
		r = start_parts(n, err);
	if (r >= 0)
		r = start_serving(&d, o, settings, &sockets, err);
	if (r >= 0) {
		tell_started(n, settings->tls);
		r = sd_event_loop(n->event);
		if (r < 0)
			error_set_errno(err, r, "event loop");
	}
	daemon_end(&d);
	return r < 0 ? r : 0;
}

int main(int argc, char **argv)
{
	_cleanup_(settings_done) struct settings settings = { 0 };
	struct options o = { .config = DEFAULT_CONFIG };
	struct error err = ERROR_INIT;
	int status;

	file_reserve_standard();
	status = parse_options(argc, argv, &o);
	if (status >= 0)
		return status;
	if (!o.check)
		block_signals();
	log_init("berthd", LOG_LEVEL_INFO);
	if (settings_load(o.config, o.config_given, &settings, &err) < 0) {
		log_error("configuration: %s", error_text(&err));
		return EXIT_FAILURE;
	}
	if (o.check)
		return EXIT_SUCCESS;
	if (run(&o, &settings, &err) < 0) {
		log_error("berthd: %s", error_text(&err));
		return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}
