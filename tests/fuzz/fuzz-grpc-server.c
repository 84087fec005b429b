/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection of the gRPC server, fed with bytes: whatever comes, each call that was started is
 * closed exactly once, and when the peer is gone nothing is held any more. The first byte says how
 * the rest is cut, and whether preface and SETTINGS are put in front.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "grpc/server-internal.h"

#define TURNS_MAX 10000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
	sd_event *event;
	struct grpc_server *server;
	struct grpc_call *held; /* answered when the input is at its end */
	size_t started, closed;
} f;

static void echo_start(struct grpc_call *call, const void *msg, size_t size, void *userdata)
{
	(void)userdata;
	f.started++;
	(void)grpc_call_reply(call, msg, size);
}

static void fail_start(struct grpc_call *call, const void *msg, size_t size, void *userdata)
{
	char text[64];

	(void)userdata;
	f.started++;
	snprintf(text, sizeof(text), "%.*s", (int)MIN(size, sizeof(text) - 1), (const char *)msg);
	(void)grpc_call_finish(call, (enum grpc_status)(size % 20), text);
}

static void hold_start(struct grpc_call *call, const void *msg, size_t size, void *userdata)
{
	(void)msg;
	(void)size;
	(void)userdata;
	f.started++;
	f.held = call;
}

static void stream_start(struct grpc_call *call, const void *msg, size_t size, void *userdata)
{
	static const char bytes[70000];

	(void)msg;
	(void)userdata;
	f.started++;
	for (size_t i = 0; i < 3; i++)
		if (grpc_call_send(call, bytes, MIN(size * 1000, sizeof(bytes))) < 0)
			break;
	if (size % 2)
		(void)grpc_call_finish(call, GRPC_OK, NULL);
}

static void stream_writable(struct grpc_call *call, void *userdata)
{
	(void)userdata;
	(void)grpc_call_send(call, "more", 4);
}

static void on_closed(struct grpc_call *call, void *userdata)
{
	(void)userdata;
	f.closed++;
	if (!grpc_call_is_over(call) || grpc_call_send(call, "x", 1) != -EPIPE)
		abort();
	if (f.held == call)
		f.held = NULL;
}

static const struct grpc_method methods[] = {
	{ .path = "/t/E", .start = echo_start, .closed = on_closed },
	{ .path = "/t/F", .start = fail_start, .closed = on_closed, .request_max = 20 },
	{ .path = "/t/H", .start = hold_start, .closed = on_closed },
	{ .path = "/t/S", .start = stream_start, .writable = stream_writable, .closed = on_closed },
};

static void set_up(void)
{
	char folder[] = "/tmp/berth-fuzz-XXXXXX", path[64];
	struct error err = ERROR_INIT;

	if (!mkdtemp(folder) || sd_event_new(&f.event) < 0)
		abort();
	snprintf(path, sizeof(path), "%s/s", folder);
	if (grpc_server_new(f.event, path, methods, ARRAY_SIZE(methods), NULL, &f.server, &err) < 0)
		abort();
	(void)unlink(path);
	(void)rmdir(folder);
}

static void turn(int peer)
{
	char answer[4096];

	for (int i = 0; sd_event_run(f.event, 0) > 0; i++) {
		if (i > TURNS_MAX)
			abort();
		while (peer >= 0 && recv(peer, answer, sizeof(answer), MSG_DONTWAIT) > 0)
			;
	}
}

static void feed(int peer, const uint8_t *data, size_t size, size_t step)
{
	for (size_t at = 0; at < size; at += step) {
		if (send(peer, data + at, MIN(step, size - at), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			return;
		turn(peer);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t start[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
	int pair[2];

	if (!f.event)
		set_up();
	if (size == 0)
		return 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0 ||
	    grpc_connection_new(f.server, pair[0], &f.server->connections[0]) < 0)
		abort();
	f.started = f.closed = 0;
	if (!(data[0] & 0x80))
		feed(pair[1], start, sizeof(start) - 1, sizeof(start));
	feed(pair[1], data + 1, size - 1, data[0] & 0x40 ? (data[0] & 0x3f) + 1u : size);
	if (f.held)
		(void)grpc_call_reply(f.held, "late", 4);
	turn(pair[1]);
	/* Not by close() alone: whoever looks at /proc/PID/fd just then delays what that does. */
	shutdown(pair[1], SHUT_RDWR);
	close(pair[1]);
	turn(-1);
	if (grpc_server_connections(f.server) != 0 || f.server->bytes != 0 ||
	    f.started != f.closed) {
		fprintf(stderr, "left: connections=%zu bytes=%zu started=%zu closed=%zu\n",
			grpc_server_connections(f.server), f.server->bytes, f.started, f.closed);
		abort();
	}
	return 0;
}
