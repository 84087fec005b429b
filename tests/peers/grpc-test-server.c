/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program around src/grpc for the peers in this folder.
 *
 *   grpc-test-server SOCKET...     one server a socket, all in one process
 *
 * Methods: those of /berth.Test/ below, and a device plugin's (device-methods.c). Orders come as
 * lines on stdin, what happened goes as lines to stdout: update BYTES                   sends a
 * message of so many bytes to every open Watch register SOCKET MS [SIZE]      calls
 * Registration/Register there: "register STATUS TEXT" cancel                         frees that
 * call again stats SOCKET                   "stats CONNECTIONS CALLS REACHABLE MAXRSS_KB" free
 * SOCKET                    frees that server: "freed SOCKET"
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "device-methods.h"
#include "grpc/grpc.h"

#define SERVERS_MAX  8
#define WATCHERS_MAX 300

struct fixture {
	sd_event *event;
	struct grpc_server *servers[SERVERS_MAX];
	size_t n_servers;
	struct grpc_call *watchers[WATCHERS_MAX];
	uint32_t state_bytes; /* of the newest update */
	uint32_t skipped;
	struct grpc_unary *registration;
	char line[1024];
	size_t n_line;
};

static void say(const char *fmt, ...) _printf_(1, 2);

static void say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

static uint32_t number(const void *msg, size_t size)
{
	uint32_t value = 0;

	return str_to_u32_n(msg, size, &value) < 0 ? 0 : value;
}

/* Answers with the request. */
static void echo_start(struct grpc_call *call, const void *msg, size_t size, void *userdata)
{
	(void)userdata;
	(void)grpc_call_reply(call, msg, size);
}

/* "STATUS TEXT" */
static void fail_start(struct grpc_call *call, const void *msg, size_t size, void *userdata)
{
	_free_ char *text = strndup(msg, size);
	char *blank = text ? strchr(text, ' ') : NULL;

	(void)userdata;
	if (!blank) {
		(void)grpc_call_finish(call, GRPC_INVALID_ARGUMENT, "STATUS TEXT");
		return;
	}
	*blank = '\0';
	(void)grpc_call_finish(call, (enum grpc_status)number(text, strlen(text)), blank + 1);
}

/* Sends as many bytes as the request says. */
static int send_bytes(struct grpc_call *call, uint32_t n, bool reply)
{
	_free_ char *bytes = malloc(n + 1);

	if (!bytes)
		return -ENOMEM;
	memset(bytes, 'x', n);
	return reply ? grpc_call_reply(call, bytes, n) : grpc_call_send(call, bytes, n);
}

static void fill_start(struct grpc_call *call, const void *msg, size_t size, void *userdata)
{
	(void)userdata;
	(void)send_bytes(call, number(msg, size), true);
}

/* Never answers. */
static void hold_start(struct grpc_call *call, const void *msg, size_t size, void *userdata)
{
	(void)msg;
	(void)size;
	(void)userdata;
	say("held %llu", (unsigned long long)grpc_call_remaining_usec(call));
}

static void hold_closed(struct grpc_call *call, void *userdata)
{
	(void)userdata;
	say("closed hold %d", grpc_call_send(call, "late", 4));
}

/* As many messages as the request says, then the end. */
static void count_start(struct grpc_call *call, const void *msg, size_t size, void *userdata)
{
	uint32_t n = number(msg, size);

	(void)userdata;
	for (uint32_t i = 0; i < n; i++) {
		char text[16];
		int len = snprintf(text, sizeof(text), "%u", i);

		if (grpc_call_send(call, text, (size_t)len) < 0)
			break;
	}
	(void)grpc_call_finish(call, GRPC_OK, NULL);
}

/* Keeps state of a size up to date: the newest is sent, what cannot be sent is skipped. */
static void watch_send(struct fixture *f, struct grpc_call *call)
{
	if (send_bytes(call, f->state_bytes, false) == -EAGAIN)
		f->skipped++;
}

static void watch_start(struct grpc_call *call, const void *msg, size_t size, void *userdata)
{
	struct fixture *f = userdata;

	(void)msg;
	(void)size;
	for (size_t i = 0; i < WATCHERS_MAX; i++) {
		if (f->watchers[i])
			continue;
		f->watchers[i] = call;
		watch_send(f, call);
		return;
	}
	(void)grpc_call_finish(call, GRPC_RESOURCE_EXHAUSTED, "too many watchers");
}

static void watch_writable(struct grpc_call *call, void *userdata)
{
	struct fixture *f = userdata;

	say("writable skipped=%u", f->skipped);
	watch_send(f, call);
}

static void watch_closed(struct grpc_call *call, void *userdata)
{
	struct fixture *f = userdata;

	for (size_t i = 0; i < WATCHERS_MAX; i++)
		if (f->watchers[i] == call)
			f->watchers[i] = NULL;
	say("closed watch");
}

/* Frees the server that it is served by. */
static void suicide_start(struct grpc_call *call, const void *msg, size_t size, void *userdata)
{
	struct fixture *f = userdata;
	_free_ char *path = strndup(msg, size);

	for (size_t i = 0; i < f->n_servers; i++)
		if (path && f->servers[i] && strcmp(grpc_server_path(f->servers[i]), path) == 0)
			f->servers[i] = grpc_server_free(f->servers[i]);
	say("freed %d", grpc_call_reply(call, msg, size));
}

static void suicide_closed(struct grpc_call *call, void *userdata)
{
	(void)call;
	(void)userdata;
	say("closed suicide");
}

static const struct grpc_method methods[] = {
	{ .path = "/berth.Test/Echo", .start = echo_start },
	{ .path = "/berth.Test/Small", .start = echo_start, .request_max = 10 },
	{ .path = "/berth.Test/Fail", .start = fail_start },
	{ .path = "/berth.Test/Fill", .start = fill_start },
	{ .path = "/berth.Test/Hold", .start = hold_start, .closed = hold_closed },
	{ .path = "/berth.Test/Count", .start = count_start },
	{ .path = "/berth.Test/Watch",
	  .start = watch_start,
	  .writable = watch_writable,
	  .closed = watch_closed },
	{ .path = "/berth.Test/Suicide", .start = suicide_start, .closed = suicide_closed },
	{ .path = "/v1beta1.DevicePlugin/GetDevicePluginOptions", .start = device_options },
	{ .path = "/v1beta1.DevicePlugin/ListAndWatch", .start = device_list },
	{ .path = "/v1beta1.DevicePlugin/GetPreferredAllocation", .start = device_preferred },
	{ .path = "/v1beta1.DevicePlugin/Allocate", .start = device_allocate },
	{ .path = "/v1beta1.DevicePlugin/PreStartContainer", .start = device_pre_start },
};

static void registered(struct grpc_unary *call, const struct grpc_reply *reply, void *userdata)
{
	struct fixture *f = userdata;

	say("register %s %zu %s", grpc_status_name(reply->status), reply->size, reply->text);
	f->registration = grpc_unary_free(call);
}

static void order_register(struct fixture *f, const char *socket, uint32_t msec, uint32_t size)
{
	_free_ uint8_t *msg = NULL;
	size_t n = 0;
	struct grpc_request request = { .socket = socket,
					.path = "/v1beta1.Registration/Register",
					.timeout_usec = msec * UINT64_C(1000),
					.done = registered,
					.userdata = f };
	struct error err = ERROR_INIT;

	msg = size ? calloc(1, size) : device_register_request(&n);
	request.msg = msg;
	request.size = size ? size : n;
	if (!msg || f->registration ||
	    grpc_unary_new(f->event, &request, &f->registration, &err) < 0)
		say("register failed: %s", error_text(&err));
}

static struct grpc_server **find(struct fixture *f, const char *path)
{
	for (size_t i = 0; i < f->n_servers; i++)
		if (f->servers[i] && strcmp(grpc_server_path(f->servers[i]), path) == 0)
			return &f->servers[i];
	return NULL;
}

static void order_stats(struct grpc_server **server)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	if (server)
		say("stats %zu %zu %d %ld", grpc_server_connections(*server),
		    grpc_server_calls(*server), grpc_server_is_reachable(*server), usage.ru_maxrss);
	else
		say("stats none");
}

static void finish_watchers(struct fixture *f)
{
	for (size_t i = 0; i < WATCHERS_MAX; i++)
		if (f->watchers[i])
			(void)grpc_call_finish(f->watchers[i], GRPC_UNAVAILABLE, "the plugin ends");
}

static void obey(struct fixture *f, char *line)
{
	char word[16] = "", path[128] = "";
	uint32_t a = 0, b = 0;

	/* NOLINTBEGIN(cert-err34-c): orders come from the test beside it */
	if (sscanf(line, "update %u", &a) == 1) {
		f->state_bytes = a;
		for (size_t i = 0; i < WATCHERS_MAX; i++)
			if (f->watchers[i])
				watch_send(f, f->watchers[i]);
		say("updated skipped=%u", f->skipped);
	} else if (sscanf(line, "register %127s %u %u", path, &a, &b) >= 2) {
		/* NOLINTEND(cert-err34-c) */
		order_register(f, path, a, b);
	} else if (strcmp(line, "cancel") == 0) {
		f->registration = grpc_unary_free(f->registration);
		say("cancelled");
	} else if (sscanf(line, "%15s %127s", word, path) == 2 && strcmp(word, "stats") == 0) {
		order_stats(find(f, path));
	} else if ((strcmp(word, "free") == 0 || strcmp(word, "end") == 0) && find(f, path)) {
		if (word[0] == 'e')
			finish_watchers(f);
		*find(f, path) = grpc_server_free(*find(f, path));
		say("freed %s", path);
	} else {
		say("what? %s", line);
	}
}

static int on_stdin(sd_event_source *s, int fd, uint32_t revents, void *userdata)
{
	struct fixture *f = userdata;
	ssize_t n = read(fd, f->line + f->n_line, sizeof(f->line) - 1 - f->n_line);
	char *end;

	(void)s;
	(void)revents;
	if (n <= 0)
		return sd_event_exit(f->event, 0);
	f->n_line += (size_t)n;
	f->line[f->n_line] = '\0';
	while ((end = strchr(f->line, '\n'))) {
		*end = '\0';
		obey(f, f->line);
		f->n_line -= (size_t)(end + 1 - f->line);
		memmove(f->line, end + 1, f->n_line + 1);
	}
	return 0;
}

int main(int argc, char **argv)
{
	static struct fixture f;
	struct error err = ERROR_INIT;

	if (argc < 2 || argc > SERVERS_MAX + 1 || sd_event_default(&f.event) < 0)
		return 2;
	for (int i = 1; i < argc; i++) {
		if (grpc_server_new(f.event, argv[i], methods, ARRAY_SIZE(methods), &f,
				    &f.servers[f.n_servers], &err) < 0) {
			fprintf(stderr, "%s\n", error_text(&err));
			return 1;
		}
		f.n_servers++;
	}
	if (sd_event_add_io(f.event, NULL, STDIN_FILENO, EPOLLIN, on_stdin, &f) < 0)
		return 1;
	say("ready");
	sd_event_loop(f.event);
	f.registration = grpc_unary_free(f.registration);
	for (size_t i = 0; i < f.n_servers; i++)
		f.servers[i] = grpc_server_free(f.servers[i]);
	sd_event_unref(f.event);
	return 0;
}
