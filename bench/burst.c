/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench-burst SOCKET: so many claims or releases at the same time, each on a connection of its own,
 * as that many VM managers would do. Reads "PUT COUNT PREFIX PROFILE" and "DELETE COUNT PREFIX"
 * lines; claims are named PREFIX-0, PREFIX-1... Prints one JSON line for each: the time from the
 * first connect to each answer.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "http.h"

#define COUNT_MAX  128U
#define LIMIT_MSEC 60000 /* without a single answer */

struct one {
	struct http http;
	int status;
	uint64_t answered_usec;
};

struct order {
	const char *method;
	unsigned count;
	const char *prefix;
	const char *profile; /* NULL: no body */
};

static struct one all[COUNT_MAX];

static void fail(const char *what, int r)
{
	fprintf(stderr, "bench-burst: %s: %s\n", what, strerror(-r));
	exit(EXIT_FAILURE);
}

static void begin(const char *socket_path, const struct order *o, unsigned i)
{
	char body[128] = "", request[512];
	int r;

	if (o->profile)
		snprintf(body, sizeof body, "{\"profile\": \"%s\"}", o->profile);
	snprintf(request, sizeof request,
		 "%s /claims/%s-%u HTTP/1.1\r\nHost: berth\r\nContent-Type: application/json\r\n"
		 "Content-Length: %zu\r\n\r\n%s",
		 o->method, o->prefix, i, strlen(body), body);
	r = http_open(&all[i].http, socket_path);
	if (r == 0)
		r = http_ask(&all[i].http, request, strlen(request));
	if (r < 0)
		fail("request", r);
	all[i].status = 0;
}

static void wait_for_all(unsigned count)
{
	struct pollfd fds[COUNT_MAX];
	unsigned missing = count;

	for (unsigned i = 0; i < count; i++)
		fds[i] = (struct pollfd){ .fd = all[i].http.fd, .events = POLLIN };
	while (missing > 0) {
		int n = poll(fds, count, LIMIT_MSEC);
		uint64_t now = clock_now_usec();

		if (n <= 0)
			fail("waiting for an answer", n < 0 ? -errno : -ETIMEDOUT);
		for (unsigned i = 0; i < count; i++) {
			int r = fds[i].revents ? http_take(&all[i].http, &all[i].status) : 0;

			if (r < 0)
				fail("answer", r);
			if (r == 0)
				continue;
			all[i].answered_usec = now;
			http_close(&all[i].http);
			fds[i].fd = -1; /* poll() looks away */
			missing--;
		}
	}
}

static void print(unsigned count, uint64_t begun)
{
	uint64_t last = begun;

	printf("{\"each_usec\": [");
	for (unsigned i = 0; i < count; i++) {
		printf("%s%" PRIu64, i ? ", " : "", all[i].answered_usec - begun);
		if (all[i].answered_usec > last)
			last = all[i].answered_usec;
	}
	printf("], \"statuses\": [");
	for (unsigned i = 0; i < count; i++)
		printf("%s%d", i ? ", " : "", all[i].status);
	printf("], \"usec\": %" PRIu64 "}\n", last - begun);
	fflush(stdout);
}

static struct order parse(char *line)
{
	char *rest = NULL;
	struct order o = { .method = strtok_r(line, " \n", &rest) };
	const char *count = strtok_r(NULL, " \n", &rest);

	o.count = count ? (unsigned)strtoul(count, NULL, 10) : 0;
	o.prefix = strtok_r(NULL, " \n", &rest);
	o.profile = strtok_r(NULL, " \n", &rest);
	if (!o.prefix || o.count > COUNT_MAX)
		fail("order", -EINVAL);
	return o;
}

int main(int argc, char **argv)
{
	char line[256];

	if (argc != 2) {
		fputs("Usage: bench-burst SOCKET <ORDERS\n", stderr);
		return 2;
	}
	while (fgets(line, sizeof line, stdin)) {
		struct order o = parse(line);
		uint64_t begun = clock_now_usec();

		for (unsigned i = 0; i < o.count; i++)
			begin(argv[1], &o, i);
		wait_for_all(o.count);
		print(o.count, begun);
	}
	return EXIT_SUCCESS;
}
