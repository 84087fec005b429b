/* SPDX-License-Identifier: Apache-2.0 */
#include "grpc/grpc.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/unix-socket.h"
#include "grpc/wire.h"

#define READ_SIZE      65536
#define HEADERS_MAX    (64u << 10)
#define TIMER_ACCURACY USEC_PER_MSEC
#define NO_STATUS      (-1)

struct grpc_unary {
	sd_event *event;
	nghttp2_session *session;
	sd_event_source *io, *deadline, *failed; /* failed: tells of an end that came at once */
	int fd;
	void (*done)(struct grpc_unary *call, const struct grpc_reply *reply, void *userdata);
	void *userdata;
	char *path;
	uint64_t timeout_usec;
	uint8_t *out; /* framed request */
	size_t out_at, out_len;
	struct grpc_reader reader;
	int reader_error;
	size_t headers_bytes;
	uint32_t http_status;
	bool is_grpc;
	int status;	      /* of the trailers, or NO_STATUS */
	enum grpc_status end; /* what done() will be told */
	bool ended;
	bool busy;  /* in an event handler */
	bool freed; /* while busy */
	char text[GRPC_TEXT_MAX];
};

static void unary_destroy(struct grpc_unary *call)
{
	sd_event_source_disable_unref(call->io);
	sd_event_source_disable_unref(call->deadline);
	sd_event_source_disable_unref(call->failed);
	nghttp2_session_del(call->session);
	if (call->fd >= 0)
		close(call->fd);
	grpc_reader_done(&call->reader);
	sd_event_unref(call->event);
	free(call->out);
	free(call->path);
	free(call);
}

/* Tells the peer that nobody waits any more, as far as the socket takes it. */
static void say_cancel(struct grpc_unary *call)
{
	if (!call->session || call->ended)
		return;
	nghttp2_submit_rst_stream(call->session, NGHTTP2_FLAG_NONE, 1, NGHTTP2_CANCEL);
	(void)nghttp2_session_send(call->session);
}

struct grpc_unary *grpc_unary_free(struct grpc_unary *call)
{
	if (!call)
		return NULL;
	if (call->busy) {
		call->freed = true;
		return NULL;
	}
	call->busy = true;
	say_cancel(call);
	unary_destroy(call);
	return NULL;
}

/* The first reason stays. */
static void end_with(struct grpc_unary *call, enum grpc_status status, const char *text)
{
	if (call->ended)
		return;
	call->ended = true;
	call->end = status;
	str_copy_cut(call->text, sizeof(call->text), text);
	str_sanitize(call->text, strlen(call->text));
}

/* The stream has ended properly: what does the answer say? */
static void end_of_answer(struct grpc_unary *call)
{
	char text[96];

	if (call->ended)
		return;
	if (call->http_status != 200 || !call->is_grpc) {
		snprintf(text, sizeof(text), "the answer is no gRPC (HTTP status %u)",
			 call->http_status);
		end_with(call, GRPC_UNAVAILABLE, text);
	} else if (call->status == NO_STATUS) {
		end_with(call, GRPC_UNAVAILABLE, "the answer ended without a status");
	} else if (call->status != GRPC_OK) {
		/* The text came with the trailers. */
		call->ended = true;
		call->end = (enum grpc_status)call->status;
	} else if (grpc_reader_finish(&call->reader) < 0) {
		end_with(call, GRPC_INTERNAL, "the answer is not exactly one message");
	} else {
		end_with(call, GRPC_OK, "");
	}
}

static void end_of_body(struct grpc_unary *call, int cause)
{
	char text[96];

	if (cause == -EMSGSIZE) {
		snprintf(text, sizeof(text), "the answer has %u bytes, at most %u are taken",
			 call->reader.size, call->reader.max);
		end_with(call, GRPC_RESOURCE_EXHAUSTED, text);
	} else if (cause == -EOPNOTSUPP) {
		end_with(call, GRPC_INTERNAL, "the answer is compressed, which was not offered");
	} else if (cause == -ENOMEM) {
		end_with(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
	} else {
		end_with(call, GRPC_INTERNAL, "the answer is not exactly one message");
	}
}

static bool same(const uint8_t *text, size_t n, const char *wanted)
{
	return n == strlen(wanted) && memcmp(text, wanted, n) == 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t n_name, const uint8_t *value, size_t n_value, uint8_t flags,
		     void *userdata)
{
	struct grpc_unary *call = userdata;
	const char *text = (const char *)value;

	(void)session;
	(void)flags;
	call->headers_bytes += n_name + n_value;
	if (frame->hd.stream_id != 1 || call->ended)
		return 0;
	if (call->headers_bytes > HEADERS_MAX)
		end_with(call, GRPC_RESOURCE_EXHAUSTED, "the answer's headers are too long");
	else if (same(name, n_name, ":status") &&
		 str_to_u32_n(text, n_value, &call->http_status) < 0)
		call->http_status = 0;
	else if (same(name, n_name, "content-type"))
		call->is_grpc = grpc_content_type_ok(text, n_value);
	else if (same(name, n_name, "grpc-status"))
		call->status = (int)grpc_status_parse(text, n_value);
	else if (same(name, n_name, "grpc-message"))
		grpc_text_decode(text, n_value, call->text);
	return 0;
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t stream_id,
			 const uint8_t *data, size_t n, void *userdata)
{
	struct grpc_unary *call = userdata;
	int r;

	(void)session;
	(void)flags;
	if (stream_id != 1 || call->ended)
		return 0;
	r = grpc_reader_feed(&call->reader, data, n);
	if (r < 0)
		end_of_body(call, r);
	return 0;
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *userdata)
{
	struct grpc_unary *call = userdata;

	(void)session;
	if (frame->hd.stream_id == 1 && frame->hd.flags & NGHTTP2_FLAG_END_STREAM &&
	    (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA))
		end_of_answer(call);
	return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t code,
			   void *userdata)
{
	char text[96];

	(void)session;
	if (stream_id != 1)
		return 0;
	snprintf(text, sizeof(text), "the call was reset (%s)", nghttp2_http2_strerror(code));
	end_with(userdata, GRPC_UNAVAILABLE, text);
	return 0;
}

static ssize_t on_send(nghttp2_session *session, const uint8_t *data, size_t n, int flags,
		       void *userdata)
{
	struct grpc_unary *call = userdata;
	ssize_t sent = send(call->fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);

	(void)session;
	(void)flags;
	if (sent >= 0)
		return sent;
	return errno == EAGAIN || errno == EINTR ? NGHTTP2_ERR_WOULDBLOCK
						 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static ssize_t on_read(nghttp2_session *session, int32_t stream_id, uint8_t *data, size_t n,
		       uint32_t *flags, nghttp2_data_source *source, void *userdata)
{
	struct grpc_unary *call = source->ptr;

	(void)session;
	(void)stream_id;
	(void)userdata;
	n = MIN(n, call->out_len - call->out_at);
	memcpy(data, call->out + call->out_at, n);
	call->out_at += n;
	if (call->out_at == call->out_len)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)n;
}

/* Tells the caller. May free the call. */
static void finish(struct grpc_unary *call)
{
	struct grpc_reply reply = { .status = call->end, .text = call->text };

	call->io = sd_event_source_disable_unref(call->io);
	call->deadline = sd_event_source_disable_unref(call->deadline);
	if (reply.status == GRPC_OK) {
		reply.msg = call->reader.msg ? (const void *)call->reader.msg : "";
		reply.size = call->reader.have;
	}
	if (call->fd >= 0)
		close(TAKE_FD(call->fd));
	call->busy = true;
	call->done(call, &reply, call->userdata);
	call->busy = false;
	if (call->freed)
		unary_destroy(call);
}

static int receive(struct grpc_unary *call)
{
	uint8_t data[READ_SIZE];
	ssize_t n = recv(call->fd, data, sizeof(data), MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0)
		return -EPIPE;
	return nghttp2_session_mem_recv(call->session, data, (size_t)n) < 0 ? -EPROTO : 0;
}

/* Whether to go on. sent: what nghttp2 said when it wrote. */
static void judge(struct grpc_unary *call, int received, int sent, uint32_t revents)
{
	/* When writing fails there may still be an answer to read. */
	bool is_closed = received < 0 || (sent < 0 && !(revents & EPOLLIN));

	if (is_closed && received != -EPROTO)
		end_with(call, GRPC_UNAVAILABLE, "the connection was closed");
	else if (is_closed || (!nghttp2_session_want_read(call->session) &&
			       !nghttp2_session_want_write(call->session)))
		end_with(call, GRPC_UNAVAILABLE, "the answer is no valid HTTP/2");
}

static int on_io(sd_event_source *s, int fd, uint32_t revents, void *userdata)
{
	struct grpc_unary *call = userdata;
	uint32_t events = EPOLLIN;
	int received = 0, sent = 0;

	(void)fd;
	if (revents & ~(uint32_t)EPOLLOUT)
		received = receive(call);
	if (received == 0 && !call->ended)
		sent = nghttp2_session_send(call->session);
	judge(call, received, sent, revents);
	if (call->ended) {
		finish(call);
		return 0;
	}
	if (sent == 0 && nghttp2_session_want_write(call->session))
		events |= EPOLLOUT;
	(void)sd_event_source_set_io_events(s, events);
	return 0;
}

static int on_deadline(sd_event_source *s, uint64_t usec, void *userdata)
{
	struct grpc_unary *call = userdata;

	(void)s;
	(void)usec;
	say_cancel(call);
	end_with(call, GRPC_DEADLINE_EXCEEDED, "no answer in time");
	/* The cancel may have closed the stream with a reason of its own. */
	call->end = GRPC_DEADLINE_EXCEEDED;
	str_copy_cut(call->text, sizeof(call->text), "no answer in time");
	finish(call);
	return 0;
}

static int on_failed(sd_event_source *s, void *userdata)
{
	(void)s;
	finish(userdata);
	return 0;
}

static int submit_request(struct grpc_unary *call)
{
	nghttp2_data_provider provider = { .source.ptr = call, .read_callback = on_read };
	char timeout[GRPC_TIMEOUT_TEXT_MAX];

	grpc_timeout_format(call->timeout_usec, timeout);
	const char *const headers[][2] = {
		{ ":method", "POST" },
		{ ":scheme", "http" },
		{ ":path", call->path },
		/* What gRPC sends for a Unix socket; a path here is refused by many. */
		{ ":authority", "localhost" },
		{ "te", "trailers" },
		{ "content-type", "application/grpc" },
		{ "user-agent", "berth/" BERTH_VERSION },
		{ "grpc-timeout", timeout },
	};
	nghttp2_nv nv[ARRAY_SIZE(headers)];

	for (size_t i = 0; i < ARRAY_SIZE(headers); i++)
		nv[i] = (nghttp2_nv){ (uint8_t *)headers[i][0], (uint8_t *)headers[i][1],
				      strlen(headers[i][0]), strlen(headers[i][1]),
				      NGHTTP2_NV_FLAG_NONE };
	return nghttp2_submit_request(call->session, NULL, nv, ARRAY_SIZE(nv), &provider, NULL) < 0
		       ? -ENOMEM
		       : 0;
}

static int session_new(struct grpc_unary *call)
{
	static const nghttp2_settings_entry settings[] = {
		{ NGHTTP2_SETTINGS_ENABLE_PUSH, 0 },
		{ NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEADERS_MAX },
	};
	nghttp2_session_callbacks *callbacks = NULL;
	nghttp2_option *option = NULL;
	int r = -ENOMEM;

	if (nghttp2_session_callbacks_new(&callbacks) < 0 || nghttp2_option_new(&option) < 0)
		goto done;
	nghttp2_session_callbacks_set_send_callback(callbacks, on_send);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data_chunk);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
	nghttp2_option_set_no_http_messaging(option, 1);
	if (nghttp2_session_client_new2(&call->session, callbacks, call, option) == 0 &&
	    nghttp2_submit_settings(call->session, NGHTTP2_FLAG_NONE, settings,
				    ARRAY_SIZE(settings)) == 0)
		r = submit_request(call);
done:
	nghttp2_option_del(option);
	nghttp2_session_callbacks_del(callbacks);
	return r;
}

static int unary_connect(struct grpc_unary *call, const char *socket)
{
	char text[GRPC_TEXT_MAX];
	int r = unix_socket_connect(socket, &call->fd);

	if (r < 0) {
		snprintf(text, sizeof(text), "cannot connect to %s: %s", socket, strerror(-r));
		end_with(call, GRPC_UNAVAILABLE, text);
		return sd_event_add_defer(call->event, &call->failed, on_failed, call);
	}
	r = session_new(call);
	if (r < 0)
		return r;
	r = sd_event_add_io(call->event, &call->io, call->fd, EPOLLIN | EPOLLOUT, on_io, call);
	if (r < 0)
		return r;
	return sd_event_add_time_relative(call->event, &call->deadline, CLOCK_MONOTONIC,
					  call->timeout_usec, TIMER_ACCURACY, on_deadline, call);
}

int grpc_unary_new(sd_event *event, const struct grpc_request *request, struct grpc_unary **ret,
		   struct error *err)
{
	_grpc_unary_ struct grpc_unary *call = NULL;
	int r;

	if (request->size > GRPC_MESSAGE_MAX)
		return error_set(err, EMSGSIZE, "the request has %zu bytes, at most %u can be sent",
				 request->size, GRPC_MESSAGE_MAX);
	if (request->timeout_usec == 0)
		return error_set(err, EINVAL, "a call needs a deadline");
	call = calloc(1, sizeof(*call));
	if (!call)
		return error_set_errno(err, ENOMEM, "gRPC call");
	call->fd = -1;
	call->status = NO_STATUS;
	call->event = sd_event_ref(event);
	call->done = request->done;
	call->userdata = request->userdata;
	call->timeout_usec = request->timeout_usec;
	call->out_len = request->size + GRPC_PREFIX_SIZE;
	grpc_reader_init(&call->reader, request->reply_max ? request->reply_max : GRPC_MESSAGE_MAX);
	call->path = strdup(request->path);
	call->out = malloc(call->out_len);
	if (!call->path || !call->out)
		return error_set_errno(err, ENOMEM, "gRPC call");
	grpc_prefix_write(call->out, (uint32_t)request->size);
	if (request->size > 0)
		memcpy(call->out + GRPC_PREFIX_SIZE, request->msg, request->size);
	r = unary_connect(call, request->socket);
	if (r < 0)
		return error_set_errno(err, r, "gRPC call");
	*ret = TAKE(call);
	return 0;
}
