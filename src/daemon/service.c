/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/service.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"

/* The line is told at most so often; a burst of claims is one change. */
#define STATUS_USEC	(200 * USEC_PER_MSEC)
#define STATUS_TEXT_MAX 400

struct service {
	sd_event_source *timer;
	bool armed;
	bool told_ready;
	char status[STATUS_TEXT_MAX]; /* as told last */
};

/* --- Sockets --------------------------------------------------------------------------------- */

static int take_socket(int fd, const struct config *config, struct http_sockets *ret,
		       struct error *err)
{
	bool is_unix = sd_is_socket(fd, AF_UNIX, SOCK_STREAM, 1) > 0;
	bool is_tcp = sd_is_socket(fd, AF_INET, SOCK_STREAM, 1) > 0 ||
		      sd_is_socket(fd, AF_INET6, SOCK_STREAM, 1) > 0;
	int *slot = is_unix ? &ret->unix_fd : &ret->tcp_fd;

	if (!is_unix && !is_tcp)
		return error_set(err, EINVAL,
				 "inherited descriptor %d is no listening Unix or TCP stream "
				 "socket",
				 fd);
	if (*slot >= 0)
		return error_set(err, EINVAL, "two %s sockets were handed over",
				 is_unix ? "Unix" : "TCP");
	if (is_tcp && !config->listen)
		return error_set(err, EINVAL,
				 "a TCP socket was handed over, but `listen` is not set");
	*slot = fd;
	return 0;
}

int service_take_sockets(const struct config *config, struct http_sockets *ret, struct error *err)
{
	/* Helpers and commands must not take the variables for theirs; the descriptors are closed
	 * when they start. */
	int n = sd_listen_fds(1);
	int r = 0;

	*ret = (struct http_sockets){ -1, -1 };
	if (n < 0)
		return error_set_errno(err, n, "LISTEN_FDS cannot be understood");
	for (int i = 0; r == 0 && i < n; i++)
		r = take_socket(SD_LISTEN_FDS_START + i, config, ret, err);
	return r;
}

/* --- The status line ------------------------------------------------------------------------- */

static void add_fallback(const struct node *n, char *text, size_t size)
{
	const char *reason = n->host_fallback != NVML_REASON_NONE ? n->host_fallback_text : "";
	size_t len = strlen(text);

	for (unsigned i = 0; i < n->n_cards && !*reason; i++)
		if (n->cards[i]->present && n->cards[i]->fallback != NVML_REASON_NONE)
			reason = n->cards[i]->fallback_text;
	if (*reason)
		snprintf(text + len, size - len, "; fallback: %.100s", reason);
}

static void add_count(char *text, size_t size, unsigned count, const char *what)
{
	size_t len = strlen(text);

	if (count > 0)
		snprintf(text + len, size - len, "; %u %s", count, what);
}

static void compose(const struct node *n, char *text, size_t size)
{
	unsigned cards = 0, vfs = 0, stuck = 0, cordoned = 0, quarantined = 0;
	const char *reason = node_not_ready_reason(n);

	for (unsigned i = 0; i < n->n_cards; i++) {
		const struct card *c = n->cards[i];

		if (!c->present)
			continue;
		cards++;
		stuck += c->stuck;
		cordoned += c->cordoned;
		for (unsigned k = 0; k < c->n_vfs; k++) {
			vfs += c->vfs[k].usable;
			quarantined += c->vfs[k].quarantined;
		}
	}
	snprintf(text, size, "%u card%s, %u VF%s, %u claim%s", cards, cards == 1 ? "" : "s", vfs,
		 vfs == 1 ? "" : "s", n->n_claims, n->n_claims == 1 ? "" : "s");
	add_count(text, size, stuck,
		  stuck == 1 ? "card stuck in the driver" : "cards stuck in the driver");
	add_count(text, size, cordoned, "cordoned");
	add_count(text, size, quarantined, "quarantined");
	add_fallback(n, text, size);
	if (*reason) {
		size_t len = strlen(text);

		snprintf(text + len, size - len, "; not ready: %.150s", reason);
	}
	str_sanitize(text, strlen(text));
}

static void tell_status(struct node *n)
{
	struct service *s = n->service;
	char text[STATUS_TEXT_MAX];

	compose(n, text, sizeof text);
	if (strcmp(text, s->status) == 0)
		return;
	memcpy(s->status, text, sizeof s->status);
	sd_notifyf(0, "STATUS=%s", text);
}

static int timer_fired(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct node *n = userdata;

	(void)source;
	(void)usec;
	n->service->armed = false;
	if (n->stage != NODE_STOPPING)
		tell_status(n);
	return 0;
}

void service_changed(struct node *n)
{
	struct service *s = n->service;

	if (!s || !s->timer || s->armed)
		return;
	s->armed = sd_event_source_set_time_relative(s->timer, STATUS_USEC) >= 0 &&
		   sd_event_source_set_enabled(s->timer, SD_EVENT_ONESHOT) >= 0;
}

/* --- Life ------------------------------------------------------------------------------------ */

int service_start(struct node *n, struct error *err)
{
	struct service *s = calloc(1, sizeof *s);
	int r;

	if (!s)
		return error_set(err, ENOMEM, "out of memory");
	n->service = s;
	/* Pings from the loop, so that a loop that is stuck is found out. */
	r = sd_event_set_watchdog(n->event, true);
	if (r < 0)
		return error_set_errno(err, r, "watchdog");
	/* Where nobody listens there is nothing to keep true. */
	if (!getenv("NOTIFY_SOCKET"))
		return 0;
	r = sd_event_add_time(n->event, &s->timer, CLOCK_MONOTONIC, UINT64_MAX, 0, timer_fired, n);
	if (r < 0)
		return error_set_errno(err, r, "status timer");
	return 0;
}

struct service *service_free(struct service *s)
{
	if (!s)
		return NULL;
	sd_event_source_disable_unref(s->timer);
	free(s);
	return NULL;
}

void service_ready(struct node *n)
{
	sd_notify(0, "READY=1");
	n->service->told_ready = true;
	if (n->service->timer)
		tell_status(n);
}

/* READY=1 would end a start that has not ended. */
void service_reloading(struct node *n)
{
	if (n->service->told_ready)
		sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, clock_now_usec());
}

void service_reloaded(struct node *n)
{
	if (n->service->told_ready)
		sd_notify(0, "READY=1");
}

void service_stopping(void)
{
	sd_notify(0, "STOPPING=1");
}
