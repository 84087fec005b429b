/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/agent-channel.h"

#include <errno.h>
#include <jansson.h>
#include <linux/vm_sockets.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#define ANSWER_MAX 1024

enum channel_kind { CHANNEL_VSOCK, CHANNEL_UNIX, CHANNEL_HVSOCK };

struct channel {
	enum channel_kind kind;
	uint32_t cid, port;
	char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
};

struct agent_query {
	int fd;
	sd_event_source *io, *timer;
	bool connecting; /* hvsock: its "OK" line has not come yet */
	char request[64];
	size_t sent;
	char answer[ANSWER_MAX];
	size_t len;
	agent_done_fn done;
	void *userdata;
};

/* --- The name of a channel
 * ------------------------------------------------------------------------ */

static int parse_port(const char *s, uint32_t *ret)
{
	uint32_t port;
	int r = str_to_u32(s, &port);

	if (r < 0 || port == 0)
		return -EINVAL;
	*ret = port;
	return 0;
}

static int parse_vsock(const char *s, struct channel *ret)
{
	char cid[16];
	const char *colon = strchr(s, ':');
	size_t n = colon ? (size_t)(colon - s) : strlen(s);

	ret->port = AGENT_PORT_DEFAULT;
	if (n >= sizeof cid)
		return -EINVAL;
	memcpy(cid, s, n);
	cid[n] = '\0';
	/* 0 to 2 are the hypervisor, the loopback and the host itself. */
	if (str_to_u32(cid, &ret->cid) < 0 || ret->cid < 3 || ret->cid == UINT32_MAX)
		return -EINVAL;
	return colon ? parse_port(colon + 1, &ret->port) : 0;
}

static int parse_path(const char *s, size_t n, struct channel *ret)
{
	if (s[0] != '/' || n >= sizeof ret->path)
		return -EINVAL;
	memcpy(ret->path, s, n);
	ret->path[n] = '\0';
	return 0;
}

static int parse_channel(const char *s, struct channel *ret)
{
	*ret = (struct channel){ 0 };
	if (str_starts_with(s, "vsock:")) {
		ret->kind = CHANNEL_VSOCK;
		return parse_vsock(s + 6, ret);
	}
	if (str_starts_with(s, "unix:")) {
		ret->kind = CHANNEL_UNIX;
		return parse_path(s + 5, strlen(s + 5), ret);
	}
	if (str_starts_with(s, "hvsock:")) {
		const char *path = s + 7, *colon = strrchr(path, ':');

		ret->kind = CHANNEL_HVSOCK;
		if (!colon || parse_port(colon + 1, &ret->port) < 0)
			return -EINVAL;
		return parse_path(path, (size_t)(colon - path), ret);
	}
	return -EINVAL;
}

int agent_channel_check(const char *channel, struct error *err)
{
	struct channel c;

	if (parse_channel(channel, &c) == 0)
		return 0;
	return error_set(err, EINVAL, "must be vsock:CID[:PORT], unix:PATH or hvsock:PATH:PORT");
}

/* --- The conversation
 * ------------------------------------------------------------------------------ */

struct agent_query *agent_query_free(struct agent_query *q)
{
	if (!q)
		return NULL;
	sd_event_source_disable_unref(q->io);
	sd_event_source_disable_unref(q->timer);
	if (q->fd >= 0)
		close(q->fd);
	free(q);
	return NULL;
}

static void finish(struct agent_query *q, enum agent_state state)
{
	agent_done_fn done = q->done;
	void *userdata = q->userdata;

	agent_query_free(q);
	done(state, userdata);
}

static enum agent_state parse_answer(const char *line, size_t len)
{
	json_t *json = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
	const char *text = json_string_value(json_object_get(json, "state"));
	enum agent_state state = AGENT_UNKNOWN;

	if (text && strcmp(text, "ok") == 0)
		state = AGENT_OK;
	else if (text && strcmp(text, "failed") == 0)
		state = AGENT_FAILED;
	else if (text && json_is_true(json_object_get(json, "watching")))
		state = AGENT_NEITHER;
	json_decref(json);
	return state;
}

/* What has come so far: true when the query has ended. */
static bool look_at_lines(struct agent_query *q)
{
	char *newline;

	while ((newline = memchr(q->answer, '\n', q->len)) != NULL) {
		size_t n = (size_t)(newline - q->answer);

		if (!q->connecting) {
			finish(q, parse_answer(q->answer, n));
			return true;
		}
		if (n < 2 || memcmp(q->answer, "OK", 2) != 0)
			break;
		q->connecting = false;
		str_copy_cut(q->request, sizeof q->request, "status\n");
		q->sent = 0;
		q->len -= n + 1;
		memmove(q->answer, newline + 1, q->len);
		sd_event_source_set_io_events(q->io, EPOLLIN | EPOLLOUT);
	}
	if (newline || q->len == sizeof q->answer) {
		finish(q, AGENT_UNKNOWN);
		return true;
	}
	return false;
}

static int on_io(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
	struct agent_query *q = userdata;

	if (events & EPOLLOUT) {
		size_t left = strlen(q->request) - q->sent;
		ssize_t n = send(fd, q->request + q->sent, left, MSG_NOSIGNAL);

		if (n < 0 && errno != EAGAIN && errno != EINTR) {
			finish(q, AGENT_UNKNOWN);
			return 0;
		}
		q->sent += n > 0 ? (size_t)n : 0;
		if (q->sent == strlen(q->request))
			sd_event_source_set_io_events(source, EPOLLIN);
	}
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
		ssize_t n = recv(fd, q->answer + q->len, sizeof q->answer - q->len, 0);

		if (n <= 0 && !(n < 0 && (errno == EAGAIN || errno == EINTR))) {
			finish(q, AGENT_UNKNOWN);
			return 0;
		}
		q->len += n > 0 ? (size_t)n : 0;
		look_at_lines(q);
	}
	return 0;
}

static int on_timeout(sd_event_source *source, uint64_t usec, void *userdata)
{
	(void)source;
	(void)usec;
	finish(userdata, AGENT_UNKNOWN);
	return 0;
}

/* Who listens at the other end of a Unix socket? -EACCES: not the owner. */
static int check_listener(int fd, uid_t owner)
{
	struct ucred cred;
	socklen_t size = sizeof cred;

	if (owner == 0)
		return 0;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
		return -errno;
	return cred.uid == owner ? 0 : -EACCES;
}

static int connect_channel(const struct channel *c, uid_t owner)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct sockaddr_vm vm = { .svm_family = AF_VSOCK, .svm_cid = c->cid, .svm_port = c->port };
	bool vsock = c->kind == CHANNEL_VSOCK;
	_close_ int fd = -1;
	int r;

	fd = socket(vsock ? AF_VSOCK : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	memcpy(un.sun_path, c->path, sizeof un.sun_path);
	if (vsock)
		r = connect(fd, (struct sockaddr *)&vm, sizeof vm);
	else
		r = connect(fd, (struct sockaddr *)&un, sizeof un);
	if (r < 0 && errno != EINPROGRESS)
		return -errno;
	if (!vsock && (r = check_listener(fd, owner)) < 0)
		return r;
	return TAKE_FD(fd);
}

int agent_query_new(sd_event *event, const char *channel, uid_t owner, uint64_t timeout_usec,
		    agent_done_fn done, void *userdata, struct agent_query **ret)
{
	struct agent_query *q;
	struct channel c;
	int r = parse_channel(channel, &c);

	if (r < 0)
		return r;
	q = calloc(1, sizeof *q);
	if (!q)
		return -ENOMEM;
	q->done = done;
	q->userdata = userdata;
	q->connecting = c.kind == CHANNEL_HVSOCK;
	if (q->connecting)
		snprintf(q->request, sizeof q->request, "CONNECT %u\n", c.port);
	else
		str_copy_cut(q->request, sizeof q->request, "status\n");
	r = q->fd = connect_channel(&c, owner);
	if (r >= 0)
		r = sd_event_add_io(event, &q->io, q->fd, EPOLLIN | EPOLLOUT, on_io, q);
	if (r >= 0)
		r = sd_event_add_time(event, &q->timer, CLOCK_MONOTONIC,
				      clock_now_usec() + timeout_usec, 0, on_timeout, q);
	if (r < 0) {
		agent_query_free(q);
		return r;
	}
	*ret = q;
	return 0;
}
