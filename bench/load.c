/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench-load SOCKET CONNECTIONS: how many GETs a second the daemon answers. Reads "PATH MSEC"
 * lines, keeps every connection busy with that request for that time, and prints one JSON line for
 * each.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "http.h"

#define CONNECTIONS_MAX 64U
#define LIMIT_MSEC	30000 /* without a single answer */

struct load {
	int epoll_fd;
	unsigned n;
	struct http *connections;
};

static void fail(const char *what, int r)
{
	fprintf(stderr, "bench-load: %s: %s\n", what, strerror(-r));
	exit(EXIT_FAILURE);
}

static void open_all(struct load *l, const char *socket_path)
{
	for (unsigned i = 0; i < l->n; i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.u32 = i };
		int r = http_open(&l->connections[i], socket_path);

		if (r < 0)
			fail(socket_path, r);
		if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, l->connections[i].fd, &event) < 0)
			fail("epoll", -errno);
	}
}

static void ask(struct load *l, unsigned i, const char *request)
{
	int r = http_ask(&l->connections[i], request, strlen(request));

	if (r < 0)
		fail("request", r);
}

/* One answer is in, or part of it. True when it is whole. */
static int take(struct load *l, unsigned i)
{
	int status = 0;
	int r = http_take(&l->connections[i], &status);

	if (r < 0)
		fail("answer", r);
	if (r > 0 && status != 200) {
		fprintf(stderr, "bench-load: status %d\n", status);
		exit(EXIT_FAILURE);
	}
	return r;
}

static void measure(struct load *l, const char *path, unsigned msec)
{
	struct epoll_event events[CONNECTIONS_MAX];
	uint64_t begun, end, now, answered = 0;
	unsigned busy = l->n;
	char request[512];

	snprintf(request, sizeof request, "GET %.256s HTTP/1.1\r\nHost: berth\r\n\r\n", path);
	begun = now = clock_now_usec();
	end = begun + msec * USEC_PER_MSEC;
	for (unsigned i = 0; i < l->n; i++)
		ask(l, i, request);
	while (busy > 0) {
		int n = epoll_wait(l->epoll_fd, events, CONNECTIONS_MAX, LIMIT_MSEC);

		if (n <= 0)
			fail("waiting for an answer", n < 0 ? -errno : -ETIMEDOUT);
		now = clock_now_usec();
		for (int k = 0; k < n; k++) {
			if (!take(l, events[k].data.u32))
				continue;
			answered++;
			if (now < end)
				ask(l, events[k].data.u32, request);
			else
				busy--;
		}
	}
	printf("{\"requests\": %" PRIu64 ", \"usec\": %" PRIu64 "}\n", answered, now - begun);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct load l = { .epoll_fd = epoll_create1(EPOLL_CLOEXEC) };
	char line[300], *space;

	if (argc != 3 || (l.n = (unsigned)strtoul(argv[2], NULL, 10)) < 1 ||
	    l.n > CONNECTIONS_MAX) {
		fputs("Usage: bench-load SOCKET CONNECTIONS <REQUESTS\n", stderr);
		return 2;
	}
	l.connections = calloc(l.n, sizeof *l.connections);
	if (!l.connections)
		fail("connections", -ENOMEM);
	open_all(&l, argv[1]);
	while (fgets(line, sizeof line, stdin)) {
		space = strchr(line, ' ');
		if (!space)
			fail(line, -EINVAL);
		*space = '\0';
		measure(&l, line, (unsigned)strtoul(space + 1, NULL, 10));
	}
	return EXIT_SUCCESS;
}
