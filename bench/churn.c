/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench-churn SOCKET: the demand of workload.h against a real daemon. Reads lines
 * "CLIENTS CARDS MIX LOAD ARRIVALS SEED PREFIX" and prints one JSON line for each.
 *
 * Arrivals and departures come in the order of their own time, which does not pass by itself: each
 * is sent as soon as one of CLIENTS connections is idle; the departure of a vGPU whose claim is
 * still under way holds up what comes after it. With one client that is what bench-placement-churn
 * does over the model. What the first tenth of arrivals is given is not counted. A refusal is wrong
 * when some placement was free all the time from the request to the answer; who had what in between
 * is known once all claims that were under way then are answered.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "http.h"
#include "twister.h"
#include "workload.h"

#define CLIENTS_MAX 128U
#define CARDS_MAX   64U
#define CARD_VFS    32U
#define ADDRESS_MAX 24
#define LIMIT_MSEC  60000 /* without a single answer */

enum state { STATE_ASKED, STATE_HELD, STATE_LEAVING, STATE_GONE, STATE_REFUSED };

struct item {
	enum state state;
	unsigned class;
	double leaves_at;
	uint64_t sent_usec, answered_usec, freed_usec; /* 0: not yet */
	int card;				       /* -1: none */
	struct placement_span span;
};

struct client {
	struct http http;
	bool busy;
	unsigned item;
};

struct run {
	unsigned n_clients, n_cards, arrivals;
	const struct workload_mix *mix;
	double rate, now, next_arrival;
	const char *prefix;
	unsigned n_items, answered_below; /* all items below are answered */
	struct item *items;
	unsigned n_leaving; /* heap of items by leaves_at */
	unsigned *leaving;
	unsigned n_live; /* items that may have had a placement while an unjudged refusal was under
			    way */
	unsigned *live;
	unsigned n_refusals, judged;
	unsigned *refusals;
	unsigned accepted, wrong, late_releases, failed;
	unsigned long long turns,
		busy_turns; /* of the loop; the connections in use, summed over them */
	unsigned long long asked_gb, served_gb;
	uint64_t *latencies;
	unsigned n_latencies;
};

static struct client clients[CLIENTS_MAX];
static char cards[CARDS_MAX][ADDRESS_MAX];
static unsigned n_cards_seen;

static void fail(const char *what, int r)
{
	fprintf(stderr, "bench-churn: %s: %s\n", what, strerror(-r));
	exit(EXIT_FAILURE);
}

static void *allocate(unsigned n, size_t size)
{
	void *p = calloc(n, size);

	if (!p)
		fail("memory", -ENOMEM);
	return p;
}

/* --- Order of departures ------------------------------------------------------------------------
 */

static bool leaves_before(const struct run *r, unsigned a, unsigned b)
{
	return r->items[r->leaving[a]].leaves_at < r->items[r->leaving[b]].leaves_at;
}

static void swap_leaving(struct run *r, unsigned a, unsigned b)
{
	unsigned item = r->leaving[a];

	r->leaving[a] = r->leaving[b];
	r->leaving[b] = item;
}

static void push_leaving(struct run *r, unsigned item)
{
	unsigned i = r->n_leaving++;

	r->leaving[i] = item;
	for (; i > 0 && leaves_before(r, i, (i - 1) / 2); i = (i - 1) / 2)
		swap_leaving(r, i, (i - 1) / 2);
}

static unsigned pop_leaving(struct run *r)
{
	unsigned first = r->leaving[0], i = 0, child;

	swap_leaving(r, 0, --r->n_leaving);
	while ((child = 2 * i + 1) < r->n_leaving) {
		if (child + 1 < r->n_leaving && leaves_before(r, child + 1, child))
			child++;
		if (!leaves_before(r, child, i))
			break;
		swap_leaving(r, i, child);
		i = child;
	}
	return first;
}

/* --- Judging refusals ----------------------------------------------------------------------------
 */

static bool was_taken(const struct run *r, const struct item *refused, unsigned card,
		      struct placement_span span)
{
	unsigned vfs = 0;

	for (unsigned i = 0; i < r->n_live; i++) {
		const struct item *o = &r->items[r->live[i]];

		if (o->card != (int)card || o->sent_usec >= refused->answered_usec ||
		    (o->freed_usec && o->freed_usec <= refused->sent_usec))
			continue;
		vfs++;
		if (o->span.id < span.id + span.size && span.id < o->span.id + o->span.size)
			return true;
	}
	return vfs >= CARD_VFS;
}

static bool is_wrong(const struct run *r, const struct item *refused)
{
	const struct placement_type *t = &workload_types[refused->class];

	for (unsigned c = 0; c < r->n_cards; c++)
		for (unsigned i = 0; i < t->n_ids; i++)
			if (!was_taken(r, refused, c,
				       (struct placement_span){ t->ids[i], t->size }))
				return true;
	return false;
}

/* Those that nobody's unanswered claim can excuse any more; then what only they needed is
 * forgotten. */
static void judge(struct run *r)
{
	uint64_t oldest = UINT64_MAX;
	unsigned kept = 0;

	while (r->answered_below < r->n_items && r->items[r->answered_below].answered_usec)
		r->answered_below++;
	while (r->judged < r->n_refusals) {
		const struct item *refused = &r->items[r->refusals[r->judged]];

		if (r->answered_below < r->n_items &&
		    r->items[r->answered_below].sent_usec < refused->answered_usec)
			break;
		r->wrong += is_wrong(r, refused);
		r->judged++;
	}
	for (unsigned i = r->judged; i < r->n_refusals; i++)
		oldest = MIN(oldest, r->items[r->refusals[i]].sent_usec);
	for (unsigned i = r->answered_below; i < r->n_items; i++)
		oldest = MIN(oldest,
			     r->items[i].answered_usec ? UINT64_MAX : r->items[i].sent_usec);
	for (unsigned i = 0; i < r->n_live; i++)
		if (!r->items[r->live[i]].freed_usec || r->items[r->live[i]].freed_usec > oldest)
			r->live[kept++] = r->live[i];
	r->n_live = kept;
}

/* --- Requests
 * ------------------------------------------------------------------------------------- */

static void ask(struct run *r, struct client *c, unsigned item)
{
	struct item *it = &r->items[item];
	char body[64] = "", request[512];
	int e;

	if (it->state == STATE_ASKED)
		snprintf(body, sizeof body, "{\"profile\": \"L40S-%uQ\"}",
			 workload_types[it->class].size);
	snprintf(request, sizeof request,
		 "%s /claims/%s-%u HTTP/1.1\r\nHost: berth\r\nContent-Type: application/json\r\n"
		 "Content-Length: %zu\r\n\r\n%s",
		 it->state == STATE_ASKED ? "PUT" : "DELETE", r->prefix, item, strlen(body), body);
	e = http_ask(&c->http, request, strlen(request));
	if (e < 0)
		fail("request", e);
	if (it->state == STATE_ASKED)
		it->sent_usec = clock_now_usec();
	c->busy = true;
	c->item = item;
}

static int card_of(const char *answer)
{
	const char *p = strstr(answer, "\"gpu\"");
	char address[ADDRESS_MAX] = "";

	if (!p || sscanf(p, "\"gpu\": \"%23[^\"]\"", address) != 1)
		fail(answer, -EPROTO);
	for (unsigned i = 0; i < n_cards_seen; i++)
		if (strcmp(cards[i], address) == 0)
			return (int)i;
	if (n_cards_seen == CARDS_MAX)
		fail("cards", -E2BIG);
	memcpy(cards[n_cards_seen], address, sizeof address);
	return (int)n_cards_seen++;
}

static struct placement_span span_of(const char *answer, uint16_t size)
{
	const char *p = strstr(answer, "\"placement\""), *id = p ? strstr(p, "\"id\"") : NULL;
	unsigned value = 0;

	if (!id || sscanf(id, "\"id\": %u", &value) != 1)
		fail(answer, -EPROTO);
	return (struct placement_span){ (uint16_t)value, size };
}

static void claim_answered(struct run *r, unsigned item, int status, const char *answer)
{
	struct item *it = &r->items[item];
	bool counts = item >= r->arrivals / 10;
	unsigned size = workload_types[it->class].size;

	it->answered_usec = clock_now_usec();
	r->asked_gb += counts ? size : 0;
	if (status == 201) {
		it->state = STATE_HELD;
		it->card = card_of(answer);
		it->span = span_of(answer, (uint16_t)size);
		r->live[r->n_live++] = item;
		r->accepted++;
		r->served_gb += counts ? size : 0;
		r->latencies[r->n_latencies++] = it->answered_usec - it->sent_usec;
	} else {
		it->state = STATE_REFUSED;
		if (status == 409)
			r->refusals[r->n_refusals++] = item;
		else
			r->failed++;
	}
	judge(r);
}

static void answered(struct run *r, struct client *c, int status)
{
	struct item *it = &r->items[c->item];

	c->busy = false;
	if (it->state == STATE_ASKED) {
		claim_answered(r, c->item, status, c->http.in);
		return;
	}
	it->state = STATE_GONE;
	/* After 202 it is free at some time later; for judging refusals, never. */
	if (status == 200)
		it->freed_usec = clock_now_usec();
	else if (status == 202)
		r->late_releases++;
	else
		r->failed++;
}

/* --- A run
 * ------------------------------------------------------------------------------------------ */

static void arrive(struct run *r, struct client *c)
{
	unsigned item = r->n_items++;
	struct item *it = &r->items[item];

	r->now = r->next_arrival;
	it->card = -1;
	it->class = workload_draw(r->mix);
	it->leaves_at = r->now + workload_hold();
	push_leaving(r, item);
	r->next_arrival += twister_exponential(r->rate);
	ask(r, c, item);
}

static void release(struct run *r, struct client *c, unsigned item)
{
	r->items[item].state = STATE_LEAVING;
	ask(r, c, item);
}

/* The next thing in order of time; false when there is nothing for now. */
static bool proceed(struct run *r, struct client *c)
{
	for (;;) {
		bool more = r->n_items < r->arrivals;
		unsigned item;

		/* At the end everything leaves. */
		if (r->n_leaving == 0 ||
		    (more && r->items[r->leaving[0]].leaves_at > r->next_arrival))
			break;
		if (r->items[r->leaving[0]].state == STATE_ASKED)
			return false;
		item = pop_leaving(r);
		if (r->items[item].state != STATE_HELD)
			continue;
		release(r, c, item);
		return true;
	}
	if (r->n_items == r->arrivals)
		return false;
	arrive(r, c);
	return true;
}

static void work(struct run *r, int epoll_fd)
{
	struct epoll_event events[CLIENTS_MAX];
	unsigned busy;
	int n;

	r->next_arrival = twister_exponential(r->rate);
	for (;;) {
		busy = 0;
		for (unsigned i = 0; i < r->n_clients; i++)
			busy += clients[i].busy || proceed(r, &clients[i]);
		if (busy == 0)
			return;
		r->turns++;
		r->busy_turns += busy;
		n = epoll_wait(epoll_fd, events, CLIENTS_MAX, LIMIT_MSEC);
		if (n <= 0)
			fail("waiting for an answer", n < 0 ? -errno : -ETIMEDOUT);
		for (int k = 0; k < n; k++) {
			struct client *c = &clients[events[k].data.u32];
			int status = 0, e = http_take(&c->http, &status);

			if (e < 0)
				fail("answer", e);
			if (e > 0)
				answered(r, c, status);
		}
	}
}

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static uint64_t percentile(const struct run *r, unsigned p)
{
	return r->n_latencies ? r->latencies[(uint64_t)(r->n_latencies - 1) * p / 100] : 0;
}

static void print(struct run *r, uint64_t usec)
{
	qsort(r->latencies, r->n_latencies, sizeof *r->latencies, by_value);
	printf("{\"arrivals\": %u, \"accepted\": %u, \"refused\": %u, \"refused_while_free\": %u, "
	       "\"failed\": %u, "
	       "\"late_releases\": %u, \"mean_busy\": %.1f, "
	       "\"asked_gb\": %llu, \"served_gb\": %llu, \"usec\": %" PRIu64
	       ", \"claim_median_usec\": %" PRIu64 ", \"claim_p99_usec\": %" PRIu64
	       ", \"claim_max_usec\": %" PRIu64 "}\n",
	       r->arrivals, r->accepted, r->n_refusals, r->wrong, r->failed, r->late_releases,
	       r->turns ? (double)r->busy_turns / (double)r->turns : 0, r->asked_gb, r->served_gb,
	       usec, percentile(r, 50), percentile(r, 99), percentile(r, 100));
	fflush(stdout);
}

static void measure(struct run *r, const char *socket_path)
{
	int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	uint64_t begun = clock_now_usec();

	for (unsigned i = 0; i < r->n_clients; i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.u32 = i };
		int e = http_open(&clients[i].http, socket_path);

		if (e < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, clients[i].http.fd, &event) < 0)
			fail(socket_path, e < 0 ? e : -errno);
	}
	r->items = allocate(r->arrivals, sizeof *r->items);
	r->leaving = allocate(r->arrivals, sizeof *r->leaving);
	r->live = allocate(r->arrivals, sizeof *r->live);
	r->refusals = allocate(r->arrivals, sizeof *r->refusals);
	r->latencies = allocate(r->arrivals, sizeof *r->latencies);
	work(r, epoll_fd);
	judge(r);
	print(r, clock_now_usec() - begun);
	for (unsigned i = 0; i < r->n_clients; i++)
		http_close(&clients[i].http);
	close(epoll_fd);
	free(r->items);
	free(r->leaving);
	free(r->live);
	free(r->refusals);
	free(r->latencies);
}

int main(int argc, char **argv)
{
	char line[256], mix[32], prefix[32];

	if (argc != 2) {
		fputs("Usage: bench-churn SOCKET <RUNS\n", stderr);
		return 2;
	}
	workload_make();
	while (fgets(line, sizeof line, stdin)) {
		struct run r = { .prefix = prefix };
		unsigned seed;
		double load;

		if (sscanf(line, "%u %u %31s %lf %u %u %31s", &r.n_clients, &r.n_cards, mix, &load,
			   &r.arrivals, &seed, prefix) != 7 ||
		    r.n_clients < 1 || r.n_clients > CLIENTS_MAX ||
		    !(r.mix = workload_find_mix(mix)))
			fail(line, -EINVAL);
		twister_seed(seed);
		r.rate = workload_rate(r.mix, r.n_cards, load);
		measure(&r, argv[1]);
	}
	return EXIT_SUCCESS;
}
