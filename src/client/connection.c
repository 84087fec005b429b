/* SPDX-License-Identifier: Apache-2.0 */
#include "client/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "client/http-client.h"
#include "model/outcome.h"

#define TICK_MSEC UINT64_C(1000)
#define WAIT_MSEC UINT64_C(60000)

void connection_done(struct connection *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	http_parse_done(&c->parse);
}

static int unreachable(struct error *err, const char *path, int cause)
{
	if (cause == ENOENT || cause == ECONNREFUSED)
		return error_set(err, E_UNREACHABLE, "no daemon at socket %s (is berthd running?)",
				 path);
	return error_set(err, E_UNREACHABLE, "cannot connect to socket %s: %s", path,
			 strerror(cause));
}

static uint64_t left_usec(uint64_t deadline_usec)
{
	uint64_t now = clock_now_usec();

	return now >= deadline_usec ? 0 : deadline_usec - now;
}

static int connect_unix(struct connection *c, const char *path, uint64_t deadline_usec,
			struct error *err)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	uint64_t left = MAX(left_usec(deadline_usec), UINT64_C(1));
	struct timeval limit = { .tv_sec = (time_t)(left / USEC_PER_SEC),
				 .tv_usec = (suseconds_t)(left % USEC_PER_SEC) };
	int flags;

	if (str_is_empty(path) || str_copy(addr.sun_path, sizeof(addr.sun_path), path) < 0)
		return unreachable(err, path, ENAMETOOLONG);
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/* A blocking connect with a limit: where the backlog is full a non-blocking one has nothing
	 * that could be polled for. */
	if (c->fd < 0 || setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0)
		return error_set_errno(err, errno, "cannot make a socket");
	if (connect(c->fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		return unreachable(err, path, errno == EAGAIN ? ETIMEDOUT : errno);
	flags = fcntl(c->fd, F_GETFL);
	if (flags < 0 || fcntl(c->fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return error_set_errno(err, errno, "cannot set up the socket");
	return 0;
}

/* 0 when ready, -ETIMEDOUT, -EINTR (the tick's stop_fd), -errno. */
static int wait_for(int fd, short events, uint64_t deadline_usec, const struct http_tick *tick)
{
	struct pollfd p[] = { { .fd = fd, .events = events },
			      { .fd = tick ? tick->stop_fd : -1, .events = POLLIN } };
	uint64_t most_msec = tick && tick->fn ? TICK_MSEC : WAIT_MSEC;

	for (;;) {
		uint64_t left = left_usec(deadline_usec);
		int n = poll(p, ARRAY_SIZE(p), (int)MIN((left + 999) / USEC_PER_MSEC, most_msec));

		if (n > 0)
			return p[1].revents ? -EINTR : 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0 && left_usec(deadline_usec) == 0)
			return -ETIMEDOUT;
		if (n == 0 && tick && tick->fn)
			tick->fn(tick->userdata);
	}
}

static int send_all(struct connection *c, const char *data, size_t n, uint64_t deadline_usec,
		    struct error *err)
{
	while (n > 0) {
		ssize_t sent = send(c->fd, data, n, MSG_NOSIGNAL);
		int r;

		if (sent >= 0) {
			data += sent;
			n -= (size_t)sent;
			continue;
		}
		/* It refused the request before its end; the reason is there to be read. */
		if (errno == EPIPE || errno == ECONNRESET)
			return 0;
		if (errno != EAGAIN && errno != EINTR)
			return error_set_errno(err, errno, "cannot send the request");
		r = wait_for(c->fd, POLLOUT, deadline_usec, NULL);
		if (r < 0)
			return error_set_errno(err, r, "the daemon does not take the request");
	}
	return 0;
}

static int send_request(struct connection *c, const char *method, const char *path,
			const json_t *body, uint64_t deadline_usec, struct error *err)
{
	_free_ char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	_buf_ struct buf b = BUF_INIT;

	if (body && !text)
		return error_set_errno(err, ENOMEM, "cannot render the request");
	buf_printf(&b, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", method, path);
	if (text)
		buf_printf(&b, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
			   strlen(text));
	buf_add_str(&b, "\r\n");
	if (text)
		buf_add_str(&b, text);
	if (buf_finish(&b) < 0)
		return error_set_errno(err, ENOMEM, "cannot render the request");
	return send_all(c, b.data, b.len, deadline_usec, err);
}

int connection_open(struct connection *c, const char *socket_path, const char *method,
		    const char *path, const json_t *body, uint64_t deadline_usec, struct error *err)
{
	int r;

	c->fd = -1;
	c->tick = NULL;
	http_parse_init(&c->parse, HTTP_CLIENT_BODY_MAX);
	c->parse.no_body = strcmp(method, "HEAD") == 0;
	r = connect_unix(c, socket_path, deadline_usec, err);
	return r < 0 ? r : send_request(c, method, path, body, deadline_usec, err);
}

static int explain(struct error *err, int r)
{
	if (r == -EBADMSG)
		return error_set(err, EBADMSG,
				 "what answers at the socket does not speak HTTP properly");
	if (r == -EMSGSIZE)
		return error_set(err, EMSGSIZE, "the daemon's answer is too large");
	return error_set_errno(err, r, "cannot read the answer");
}

int connection_read(struct connection *c, uint64_t deadline_usec, struct error *err)
{
	char data[16384];

	for (;;) {
		ssize_t n = recv(c->fd, data, sizeof(data), 0);
		int r;

		if (n > 0) {
			r = http_parse_feed(&c->parse, data, (size_t)n);
			return r < 0 ? explain(err, r) : r;
		}
		if (n == 0 || errno == ECONNRESET) {
			if (http_parse_eof(&c->parse) > 0)
				return 1;
			return error_set(err, EBADMSG,
					 "the daemon closed the connection without a whole answer");
		}
		if (errno != EAGAIN && errno != EINTR)
			return error_set_errno(err, errno, "cannot read the answer");
		r = wait_for(c->fd, POLLIN, deadline_usec, c->tick);
		if (r == -ETIMEDOUT)
			return error_set(err, ETIMEDOUT, "the daemon does not answer in time");
		if (r < 0)
			return error_set_errno(err, r, "cannot wait for the answer");
	}
}
