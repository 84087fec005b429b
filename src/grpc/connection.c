/* SPDX-License-Identifier: Apache-2.0 */
#include "grpc/server-internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

/* Read in one turn of the loop, so that one busy peer cannot keep others waiting. */
#define READ_SIZE 16384
/* Frames (RST_STREAM, SETTINGS and PING answers, replies) that may wait for a peer that does not
 * read, before we stop reading what it asks. */
#define QUEUE_MAX	  512
#define RESETS_PER_SECOND 33.0
#define TIMER_ACCURACY	  USEC_PER_MSEC

static ssize_t on_send(nghttp2_session *session, const uint8_t *data, size_t n, int flags,
		       void *userdata)
{
	struct grpc_connection *conn = userdata;
	ssize_t sent = send(conn->fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);

	(void)session;
	(void)flags;
	if (sent >= 0)
		return sent;
	if (errno != EAGAIN && errno != EINTR)
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	conn->blocked = true;
	return NGHTTP2_ERR_WOULDBLOCK;
}

/* Every callback ends with this: a callback of the user may have freed the server, and then nghttp2
 * must stop where it is. */
static int alive(const struct grpc_connection *conn)
{
	return conn->dead ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static struct grpc_call *call_of(nghttp2_session *session, int32_t stream_id)
{
	return stream_id > 0 ? nghttp2_session_get_stream_user_data(session, stream_id) : NULL;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *userdata)
{
	struct grpc_connection *conn = userdata;
	struct grpc_call *call;

	if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return alive(conn);
	call = grpc_call_new(conn, frame->hd.stream_id);
	if (!call) {
		nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
					  NGHTTP2_REFUSED_STREAM);
		return alive(conn);
	}
	if (nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call) < 0) {
		grpc_call_free(call);
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	}
	return alive(conn);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t n_name, const uint8_t *value, size_t n_value, uint8_t flags,
		     void *userdata)
{
	struct grpc_call *call = call_of(session, frame->hd.stream_id);

	(void)flags;
	if (call && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
		grpc_call_on_header(call, (const char *)name, n_name, (const char *)value, n_value);
	return alive(userdata);
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t stream_id,
			 const uint8_t *data, size_t n, void *userdata)
{
	struct grpc_call *call = call_of(session, stream_id);

	(void)flags;
	if (call)
		grpc_call_on_data(call, data, n);
	return alive(userdata);
}

/* A stream that is opened and taken back costs the peer next to nothing and us a call. */
static void count_reset(struct grpc_connection *conn)
{
	uint64_t now = clock_now_usec();

	conn->reset_tokens += (double)(now - conn->reset_refill_usec) * RESETS_PER_SECOND / 1e6;
	conn->reset_tokens = MIN(conn->reset_tokens, (double)GRPC_RESETS_MAX);
	conn->reset_refill_usec = now;
	conn->reset_tokens -= 1;
	if (conn->reset_tokens < 0)
		nghttp2_session_terminate_session(conn->session, NGHTTP2_ENHANCE_YOUR_CALM);
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *userdata)
{
	struct grpc_connection *conn = userdata;
	struct grpc_call *call;

	if (frame->hd.type == NGHTTP2_SETTINGS) {
		conn->settings_timer = sd_event_source_disable_unref(conn->settings_timer);
		return 0;
	}
	if (frame->hd.type == NGHTTP2_RST_STREAM) {
		count_reset(conn);
		return 0;
	}
	if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
		return 0;
	call = call_of(session, frame->hd.stream_id);
	if (!call)
		return 0;
	if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
		grpc_call_on_headers_end(call);
	if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
		grpc_call_on_request_end(call);
	return alive(conn);
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int code,
			    void *userdata)
{
	(void)session;
	(void)frame;
	(void)code;
	count_reset(userdata);
	return 0;
}

/* Answered before the request was complete: the rest is not wanted. */
static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *userdata)
{
	struct grpc_call *call;

	(void)userdata;
	if (frame->hd.type != NGHTTP2_HEADERS || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
		return 0;
	call = call_of(session, frame->hd.stream_id);
	if (!call || call->half_closed)
		return 0;
	return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
					 NGHTTP2_NO_ERROR);
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t code,
			   void *userdata)
{
	struct grpc_connection *conn = userdata;
	struct grpc_call *call = call_of(session, stream_id);

	(void)code;
	if (!call)
		return alive(conn);
	nghttp2_session_set_stream_user_data(session, stream_id, NULL);
	grpc_call_close(call);
	/* Dead: the calls go with the connection. */
	if (!conn->dead)
		grpc_call_free(call);
	return alive(conn);
}

static int session_new(struct grpc_connection *conn)
{
	static const nghttp2_settings_entry settings[] = {
		{ NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, GRPC_STREAMS_MAX },
		{ NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, GRPC_HEADERS_MAX },
	};
	nghttp2_session_callbacks *callbacks = NULL;
	nghttp2_option *option = NULL;
	int r = -ENOMEM;

	if (nghttp2_session_callbacks_new(&callbacks) < 0 || nghttp2_option_new(&option) < 0)
		goto done;
	nghttp2_session_callbacks_set_send_callback(callbacks, on_send);
	nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data_chunk);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
	nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
	nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_send);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
	/* Kubelets before 1.26 put the socket's path into :authority, which nghttp2 would refuse as
	 * no host. What it checks beyond that and matters here is checked in call.c. */
	nghttp2_option_set_no_http_messaging(option, 1);
	nghttp2_option_set_no_closed_streams(option, 1);
	if (nghttp2_session_server_new2(&conn->session, callbacks, conn, option) == 0 &&
	    nghttp2_submit_settings(conn->session, NGHTTP2_FLAG_NONE, settings,
				    ARRAY_SIZE(settings)) == 0)
		r = 0;
done:
	nghttp2_option_del(option);
	nghttp2_session_callbacks_del(callbacks);
	return r;
}

static void watch(struct grpc_connection *conn)
{
	uint32_t events = 0;

	/* Frames of ours pile up at a peer that does not read: then it need not be listened to. */
	if (!conn->blocked || nghttp2_session_get_outbound_queue_size(conn->session) < QUEUE_MAX)
		events |= EPOLLIN;
	if (nghttp2_session_want_write(conn->session))
		events |= EPOLLOUT;
	(void)sd_event_source_set_io_events(conn->io, events);
}

static int receive(struct grpc_connection *conn)
{
	uint8_t data[READ_SIZE];
	ssize_t n = recv(conn->fd, data, sizeof(data), MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0)
		return -EPIPE;
	return nghttp2_session_mem_recv(conn->session, data, (size_t)n) < 0 ? -EPROTO : 0;
}

static int flush(struct grpc_connection *conn)
{
	conn->blocked = false;
	return nghttp2_session_send(conn->session) < 0 ? -EPIPE : 0;
}

static void run_writable(struct grpc_connection *conn)
{
	for (size_t i = 0; i < GRPC_STREAMS_MAX && !conn->dead; i++)
		if (conn->calls[i])
			grpc_call_run_writable(conn->calls[i]);
}

static int on_io(sd_event_source *s, int fd, uint32_t revents, void *userdata)
{
	struct grpc_connection *conn = userdata;
	int r = 0;

	(void)s;
	(void)fd;
	conn->busy = true;
	if (revents & ~(uint32_t)EPOLLOUT)
		r = receive(conn);
	if (r == 0 && !conn->dead)
		r = flush(conn);
	if (r == 0 && !conn->dead)
		run_writable(conn);
	conn->busy = false;
	if (conn->dead || r < 0 ||
	    (!nghttp2_session_want_read(conn->session) &&
	     !nghttp2_session_want_write(conn->session)))
		grpc_connection_close(conn);
	else
		watch(conn);
	return 0;
}

static int on_settings_timeout(sd_event_source *s, uint64_t usec, void *userdata)
{
	(void)s;
	(void)usec;
	grpc_connection_close(userdata);
	return 0;
}

int grpc_connection_new(struct grpc_server *server, int fd, struct grpc_connection **ret)
{
	struct grpc_connection *conn = calloc(1, sizeof(*conn));
	int r;

	if (!conn) {
		close(fd);
		return -ENOMEM;
	}
	conn->server = server;
	conn->fd = fd;
	conn->idle_since_usec = conn->reset_refill_usec = clock_now_usec();
	conn->reset_tokens = GRPC_RESETS_MAX;
	r = session_new(conn);
	if (r == 0)
		r = sd_event_add_io(server->event, &conn->io, fd, EPOLLIN | EPOLLOUT, on_io, conn);
	if (r >= 0)
		r = sd_event_add_time_relative(server->event, &conn->settings_timer,
					       CLOCK_MONOTONIC, GRPC_SETTINGS_USEC, TIMER_ACCURACY,
					       on_settings_timeout, conn);
	if (r < 0) {
		grpc_connection_close(conn);
		return r;
	}
	*ret = conn;
	return 0;
}

static void close_calls(struct grpc_connection *conn)
{
	conn->dead = true;
	/* closed() is still told about the server's data, so the link to it is cut afterwards. */
	for (size_t i = 0; i < GRPC_STREAMS_MAX; i++)
		if (conn->calls[i])
			grpc_call_close(conn->calls[i]);
	conn->settings_timer = sd_event_source_disable_unref(conn->settings_timer);
	conn->io = sd_event_source_disable_unref(conn->io);
	grpc_server_forget(conn->server, conn);
}

void grpc_connection_close(struct grpc_connection *conn)
{
	if (!conn->dead)
		close_calls(conn);
	/* In a callback of nghttp2: on_io() comes here again. */
	if (conn->busy)
		return;
	for (size_t i = 0; i < GRPC_STREAMS_MAX; i++)
		if (conn->calls[i])
			grpc_call_free(conn->calls[i]);
	nghttp2_session_del(conn->session);
	close(conn->fd);
	free(conn);
}

void grpc_connection_say_goodbye(struct grpc_connection *conn)
{
	if (conn->busy || conn->dead)
		return;
	conn->busy = true;
	/* First what is ready: the status of calls that were finished a moment ago. */
	if (flush(conn) == 0 && !conn->blocked &&
	    nghttp2_session_terminate_session(conn->session, NGHTTP2_NO_ERROR) == 0)
		(void)flush(conn);
	conn->busy = false;
}

void grpc_connection_wake(struct grpc_connection *conn)
{
	if (!conn->busy && !conn->dead)
		watch(conn);
}
