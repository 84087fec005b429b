/* SPDX-License-Identifier: Apache-2.0 */
#include "http/events.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "model/outcome.h"

#define EVENT_BYTES_MAX (size_t)(64 * 1024)

struct event {
	char *text;
	size_t len;
};

struct client {
	struct http_events *events;
	struct http_stream *stream; /* NULL: slot is free */
	uint64_t next;		    /* id of the event that it gets next */
	size_t offset;		    /* bytes of that event which it already has */
	const char *preamble;	    /* goes first; NULL: sent */
	bool waiting;		    /* everything it could have was taken */
	bool comment_due;
	uint64_t active_usec; /* when it last took something */
};

struct http_events {
	struct http_events_config config;
	struct event ring[HTTP_EVENTS_RING_EVENTS]; /* id modulo its size */
	uint64_t first;				    /* oldest id in the ring */
	uint64_t next;				    /* id of the event to come */
	size_t bytes;
	struct client clients[HTTP_EVENTS_CLIENTS_MAX];
	unsigned n_clients;
	sd_event_source *tick;
};

static const char comment[] = ": keep-alive\n\n";
/* retry: how long a browser waits before it comes back. */
static const char hello[] = "retry: 2000\n\n";
static const char reset[] = "retry: 2000\n\nevent: reset\ndata: {}\n\n";

static uint64_t events_now(const struct http_events *events)
{
	uint64_t now;

	return sd_event_now(events->config.event, CLOCK_MONOTONIC, &now) >= 0 ? now
									      : clock_now_usec();
}

static void tick_arm(struct http_events *events)
{
	(void)sd_event_source_set_time_relative(events->tick, events->config.keepalive_usec);
	(void)sd_event_source_set_enabled(events->tick, SD_EVENT_ONESHOT);
}

static int on_tick(sd_event_source *source _unused_, uint64_t usec _unused_, void *userdata)
{
	struct http_events *events = userdata;
	uint64_t now = events_now(events);

	for (size_t i = 0; i < HTTP_EVENTS_CLIENTS_MAX; i++) {
		struct client *c = &events->clients[i];

		if (!c->stream)
			continue;
		if (c->waiting) {
			c->comment_due = true;
			http_stream_wake(c->stream);
		} else if (now - c->active_usec > events->config.stall_usec) {
			http_stream_cut(c->stream);
		}
	}
	if (events->n_clients > 0)
		tick_arm(events);
	return 0;
}

int http_events_new(const struct http_events_config *config, struct http_events **ret)
{
	struct http_events *events = calloc(1, sizeof(*events));
	struct timespec now;
	int r;

	if (!events)
		return -ENOMEM;
	events->config = *config;
	if (events->config.keepalive_usec == 0)
		events->config.keepalive_usec = 15 * USEC_PER_SEC;
	if (events->config.stall_usec == 0)
		events->config.stall_usec = 60 * USEC_PER_SEC;
	/* Above every id that an earlier run gave out, and below 2^53 for JavaScript. */
	clock_gettime(CLOCK_REALTIME, &now);
	events->next = (uint64_t)now.tv_sec * USEC_PER_SEC + (uint64_t)now.tv_nsec / 1000;
	events->first = events->next;
	r = sd_event_add_time_relative(config->event, &events->tick, CLOCK_MONOTONIC,
				       events->config.keepalive_usec, 100 * USEC_PER_MSEC, on_tick,
				       events);
	if (r < 0) {
		free(events);
		return r;
	}
	(void)sd_event_source_set_enabled(events->tick, SD_EVENT_OFF);
	events->config.event = sd_event_ref(config->event);
	*ret = events;
	return 0;
}

static struct event *ring_at(struct http_events *events, uint64_t id)
{
	return &events->ring[id % HTTP_EVENTS_RING_EVENTS];
}

static void ring_drop_first(struct http_events *events)
{
	struct event *oldest = ring_at(events, events->first);

	events->bytes -= oldest->len;
	free(oldest->text);
	*oldest = (struct event){ 0 };
	events->first++;
}

struct http_events *http_events_free(struct http_events *events)
{
	if (!events)
		return NULL;
	assert(events->n_clients == 0);
	while (events->first < events->next)
		ring_drop_first(events);
	sd_event_source_disable_unref(events->tick);
	sd_event_unref(events->config.event);
	free(events);
	return NULL;
}

static int render(uint64_t id, const char *type, const json_t *data, struct event *ret)
{
	/* Compact JSON has no newline, so it is one data line. */
	_free_ char *json = json_dumps(data, JSON_COMPACT);
	_buf_ struct buf b = BUF_INIT;

	if (!json)
		return -ENOMEM;
	buf_printf(&b, "event: %s\nid: %llu\ndata: ", type, (unsigned long long)id);
	buf_add_str(&b, json);
	buf_add_str(&b, "\n\n");
	if (b.len > EVENT_BYTES_MAX)
		return -EMSGSIZE;
	return buf_take(&b, &ret->text, &ret->len);
}

int http_events_publish(struct http_events *events, const char *type, json_t *take_data)
{
	struct event event;
	int r = take_data ? render(events->next, type, take_data, &event) : -ENOMEM;

	json_decref(take_data);
	if (r < 0)
		return r;
	while (events->next - events->first >= HTTP_EVENTS_RING_EVENTS ||
	       (events->first < events->next && events->bytes + event.len > HTTP_EVENTS_RING_BYTES))
		ring_drop_first(events);
	*ring_at(events, events->next) = event;
	events->bytes += event.len;
	events->next++;
	for (size_t i = 0; i < HTTP_EVENTS_CLIENTS_MAX; i++) {
		struct client *c = &events->clients[i];

		if (!c->stream)
			continue;
		if (c->next < events->first)
			http_stream_cut(c->stream);
		else
			http_stream_wake(c->stream);
	}
	return 0;
}

/* A whole text or as much of it as fits; *offset counts what was sent of it. */
static size_t copy_part(const char *text, size_t len, size_t *offset, char *buf, size_t size)
{
	size_t n = MIN(len - *offset, size);

	memcpy(buf, text + *offset, n);
	*offset += n;
	return n;
}

static ssize_t client_read(void *userdata, char *buf, size_t size)
{
	struct client *c = userdata;
	struct http_events *events = c->events;
	size_t n = 0;

	if (c->next < events->first)
		return -1;
	c->active_usec = events_now(events);
	if (c->preamble) {
		n += copy_part(c->preamble, strlen(c->preamble), &c->offset, buf, size);
		if (c->preamble[c->offset])
			return (ssize_t)n;
		c->preamble = NULL;
		c->offset = 0;
	}
	while (c->next < events->next && n < size) {
		const struct event *e = ring_at(events, c->next);

		n += copy_part(e->text, e->len, &c->offset, buf + n, size - n);
		if (c->offset < e->len)
			break;
		c->next++;
		c->offset = 0;
	}
	/* A comment must not land inside an event; and where there was one it is not needed. */
	if (n == 0 && c->comment_due && size >= sizeof(comment) - 1) {
		memcpy(buf, comment, sizeof(comment) - 1);
		n = sizeof(comment) - 1;
	}
	c->comment_due = false;
	c->waiting = n == 0;
	return (ssize_t)n;
}

static void client_gone(void *userdata)
{
	struct client *c = userdata;
	struct http_events *events = c->events;

	events->n_clients--;
	*c = (struct client){ 0 };
}

static const struct http_stream_ops client_ops = { .read = client_read, .gone = client_gone };

/* Where does a client begin that says which event it saw last? */
static void client_place(struct client *c, const char *last_event_id)
{
	struct http_events *events = c->events;
	uint64_t last;

	c->next = events->next;
	c->preamble = hello;
	if (!last_event_id)
		return;
	if (str_to_u64(last_event_id, &last) == 0 && last + 1 >= events->first &&
	    last < events->next)
		c->next = last + 1;
	else
		c->preamble = reset;
}

void http_events_serve(struct http_events *events, struct http_request *req)
{
	struct client *c = NULL;

	for (size_t i = 0; i < HTTP_EVENTS_CLIENTS_MAX && !c; i++)
		if (!events->clients[i].events)
			c = &events->clients[i];
	if (!c) {
		http_request_add_header(req, "Retry-After", "15");
		http_reply_problem(req, E_NOT_READY, "too many clients read events already", NULL);
		return;
	}
	c->events = events;
	c->active_usec = events_now(events);
	client_place(c, http_request_header(req, "Last-Event-ID"));
	if (http_reply_stream(req, "text/event-stream", &client_ops, c, &c->stream) < 0 ||
	    !c->stream) {
		*c = (struct client){ 0 };
		return;
	}
	if (events->n_clients++ == 0)
		tick_arm(events);
}

unsigned http_events_clients(const struct http_events *events)
{
	return events->n_clients;
}
