/* SPDX-License-Identifier: Apache-2.0 */
#include "grpc/grpc.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "grpc/server-internal.h"

#define HEADER_OVERHEAD 32 /* what RFC 9113 adds for each field */
#define OUT_KEEP	(64u << 10)
#define TIMER_ACCURACY	USEC_PER_MSEC

#define NV(n, v)                                                                                   \
	(nghttp2_nv)                                                                               \
	{                                                                                          \
		(uint8_t *)(n), (uint8_t *)(v), strlen(n), strlen(v), NGHTTP2_NV_FLAG_NONE         \
	}

struct grpc_call *grpc_call_new(struct grpc_connection *conn, int32_t stream_id)
{
	struct grpc_call *call;

	for (size_t i = 0; i < GRPC_STREAMS_MAX; i++) {
		if (conn->calls[i])
			continue;
		call = calloc(1, sizeof(*call));
		if (!call)
			return NULL;
		call->conn = conn;
		call->stream_id = stream_id;
		call->deadline_usec = UINT64_MAX;
		grpc_reader_init(&call->request, GRPC_MESSAGE_MAX);
		conn->calls[i] = call;
		conn->n_calls++;
		return call;
	}
	return NULL;
}

/* Gives back what the call holds of the server's allowance. */
static void release_bytes(struct grpc_call *call)
{
	call->conn->server->bytes -= call->request.have + call->out_len - call->out_at;
	grpc_reader_done(&call->request);
	grpc_reader_init(&call->request, GRPC_MESSAGE_MAX);
	free(TAKE(call->out));
	call->out_at = call->out_len = call->out_cap = 0;
}

void grpc_call_close(struct grpc_call *call)
{
	call->over = true;
	call->timer = sd_event_source_disable_unref(call->timer);
	release_bytes(call);
	if (!call->started)
		return;
	call->started = false;
	if (call->method->closed)
		call->method->closed(call, call->conn->server->userdata);
}

void grpc_call_free(struct grpc_call *call)
{
	struct grpc_connection *conn = call->conn;

	if (!conn->dead)
		grpc_call_close(call);
	for (size_t i = 0; i < GRPC_STREAMS_MAX; i++) {
		if (conn->calls[i] != call)
			continue;
		conn->calls[i] = NULL;
		conn->n_calls--;
		conn->idle_since_usec = clock_now_usec();
	}
	free(call->text);
	free(call);
}

static void set_status(struct grpc_call *call, enum grpc_status status, const char *text)
{
	char encoded[GRPC_ENCODED_TEXT_MAX];

	call->status = (unsigned int)status > GRPC_UNAUTHENTICATED ? GRPC_UNKNOWN : status;
	call->over = true;
	call->finished = true;
	if (str_is_empty(text) || call->text)
		return;
	grpc_text_encode(text, encoded);
	/* Without memory the status goes without its text. */
	call->text = strdup(encoded);
}

/* The one HEADERS frame of an answer without messages. */
static int submit_trailers_only(struct grpc_call *call, const char *http_status)
{
	char number[12];
	nghttp2_nv nv[5];
	size_t n = 0;

	snprintf(number, sizeof(number), "%d", (int)call->status);
	nv[n++] = NV(":status", http_status);
	nv[n++] = NV("content-type", "application/grpc");
	nv[n++] = NV("grpc-status", number);
	if (call->text)
		nv[n++] = NV("grpc-message", call->text);
	if (call->status == GRPC_UNIMPLEMENTED)
		nv[n++] = NV("grpc-accept-encoding", "identity");
	call->answering = true;
	return nghttp2_submit_response(call->conn->session, call->stream_id, nv, n, NULL);
}

static int submit_trailers(struct grpc_call *call)
{
	char number[12];
	nghttp2_nv nv[2];
	size_t n = 0;

	snprintf(number, sizeof(number), "%d", (int)call->status);
	nv[n++] = NV("grpc-status", number);
	if (call->text)
		nv[n++] = NV("grpc-message", call->text);
	return nghttp2_submit_trailer(call->conn->session, call->stream_id, nv, n);
}

/* Answers a call that was not started. What still comes of the request is passed over. */
static void refuse(struct grpc_call *call, const char *http_status, enum grpc_status status,
		   const char *text)
{
	set_status(call, status, text);
	release_bytes(call);
	if (submit_trailers_only(call, http_status) < 0)
		nghttp2_submit_rst_stream(call->conn->session, NGHTTP2_FLAG_NONE, call->stream_id,
					  NGHTTP2_INTERNAL_ERROR);
}

static int on_deadline(sd_event_source *s, uint64_t usec, void *userdata)
{
	struct grpc_call *call = userdata;

	(void)s;
	(void)usec;
	call->timer = sd_event_source_disable_unref(call->timer);
	/* Trailers where they can still be sent: of a reset clients make CANCELLED when it comes
	 * before their own clock strikes. */
	if (grpc_call_unsent(call) == 0) {
		(void)grpc_call_finish(call, GRPC_DEADLINE_EXCEEDED, "the deadline has passed");
		return 0;
	}
	call->over = true;
	nghttp2_submit_rst_stream(call->conn->session, NGHTTP2_FLAG_NONE, call->stream_id,
				  NGHTTP2_CANCEL);
	grpc_connection_wake(call->conn);
	return 0;
}

/* Request */

static const struct grpc_method *method_of(const struct grpc_server *server, const char *path,
					   size_t n)
{
	for (size_t i = 0; i < server->n_methods; i++) {
		const char *p = server->methods[i].path;

		if (strlen(p) == n && memcmp(p, path, n) == 0)
			return &server->methods[i];
	}
	return NULL;
}

static bool same(const char *text, size_t n, const char *wanted)
{
	return n == strlen(wanted) && memcmp(text, wanted, n) == 0;
}

void grpc_call_on_header(struct grpc_call *call, const char *name, size_t n_name, const char *value,
			 size_t n_value)
{
	call->headers_bytes += n_name + n_value + HEADER_OVERHEAD;
	if (call->headers_bytes > GRPC_HEADERS_MAX)
		return;
	if (same(name, n_name, ":method")) {
		call->is_post = same(value, n_value, "POST");
	} else if (same(name, n_name, ":path")) {
		call->method = method_of(call->conn->server, value, n_value);
		snprintf(call->path, sizeof(call->path), "%.*s", (int)n_value, value);
	} else if (same(name, n_name, "content-type")) {
		call->is_grpc = grpc_content_type_ok(value, n_value);
	} else if (same(name, n_name, "te")) {
		call->has_te = same(value, n_value, "trailers");
	} else if (same(name, n_name, "grpc-timeout")) {
		call->has_timeout = true;
		call->bad_timeout = grpc_timeout_parse(value, n_value, &call->timeout_usec) < 0;
	}
}

static int start_timer(struct grpc_call *call)
{
	uint64_t now = clock_now_usec();

	call->deadline_usec = now + call->timeout_usec;
	return sd_event_add_time(call->conn->server->event, &call->timer, CLOCK_MONOTONIC,
				 call->deadline_usec, TIMER_ACCURACY, on_deadline, call);
}

void grpc_call_on_headers_end(struct grpc_call *call)
{
	char text[160];

	if (call->headers_bytes > GRPC_HEADERS_MAX) {
		snprintf(text, sizeof(text), "request headers are above %u bytes",
			 GRPC_HEADERS_MAX);
		refuse(call, "200", GRPC_RESOURCE_EXHAUSTED, text);
	} else if (!call->is_post) {
		refuse(call, "405", GRPC_INTERNAL, "the HTTP method is not POST");
	} else if (!call->is_grpc) {
		refuse(call, "415", GRPC_INTERNAL, "the content-type is not application/grpc");
	} else if (!call->has_te) {
		refuse(call, "200", GRPC_INTERNAL, "the header te: trailers is missing");
	} else if (call->bad_timeout) {
		refuse(call, "200", GRPC_INTERNAL, "grpc-timeout is malformed");
	} else if (!call->method) {
		snprintf(text, sizeof(text), "unknown method %s", call->path);
		refuse(call, "200", GRPC_UNIMPLEMENTED, text);
	} else if (call->has_timeout && start_timer(call) < 0) {
		refuse(call, "200", GRPC_RESOURCE_EXHAUSTED, "out of memory");
	} else if (call->method->request_max) {
		grpc_reader_init(&call->request, call->method->request_max);
	}
}

static void refuse_body(struct grpc_call *call, int cause)
{
	char text[96];

	switch (-cause) {
	case EMSGSIZE:
		snprintf(text, sizeof(text), "the request has %u bytes, at most %u are taken",
			 call->request.size, call->request.max);
		refuse(call, "200", GRPC_RESOURCE_EXHAUSTED, text);
		break;
	case EOPNOTSUPP:
		refuse(call, "200", GRPC_UNIMPLEMENTED, "compressed messages are not supported");
		break;
	case ENODATA:
		refuse(call, "200", GRPC_INTERNAL, "the request has no message");
		break;
	case EBADMSG:
		refuse(call, "200", GRPC_INTERNAL, "the request is not exactly one message");
		break;
	default:
		refuse(call, "200", GRPC_RESOURCE_EXHAUSTED, "out of memory");
	}
}

void grpc_call_on_data(struct grpc_call *call, const uint8_t *data, size_t n)
{
	struct grpc_server *server = call->conn->server;
	uint32_t had = call->request.have;
	int r;

	if (call->over || call->half_closed)
		return;
	if (server->bytes + n > GRPC_SERVER_BYTES_MAX) {
		refuse(call, "200", GRPC_RESOURCE_EXHAUSTED, "too many requests at once");
		return;
	}
	r = grpc_reader_feed(&call->request, data, n);
	server->bytes += call->request.have - had;
	if (r < 0)
		refuse_body(call, r);
}

void grpc_call_on_request_end(struct grpc_call *call)
{
	struct grpc_server *server = call->conn->server;
	_free_ uint8_t *msg = NULL;
	size_t size;
	int r;

	call->half_closed = true;
	if (call->over)
		return;
	r = grpc_reader_finish(&call->request);
	if (r < 0) {
		refuse_body(call, r);
		return;
	}
	/* start() may free the server, and with it all that the call holds. */
	size = call->request.have;
	server->bytes -= size;
	call->request.have = 0;
	msg = TAKE(call->request.msg);
	call->started = true;
	call->method->start(call, msg ? msg : (const uint8_t *)"", size, server->userdata);
}

/* Answer */

static ssize_t on_read(nghttp2_session *session, int32_t stream_id, uint8_t *data, size_t n,
		       uint32_t *flags, nghttp2_data_source *source, void *userdata)
{
	struct grpc_call *call = source->ptr;

	(void)session;
	(void)stream_id;
	(void)userdata;
	n = MIN(n, grpc_call_unsent(call));
	if (n == 0 && !call->finished)
		return NGHTTP2_ERR_DEFERRED;
	if (n > 0)
		memcpy(data, call->out + call->out_at, n);
	call->out_at += n;
	call->conn->server->bytes -= n;
	if (call->out_at < call->out_len)
		return (ssize_t)n;
	call->out_at = call->out_len = 0;
	if (call->out_cap > OUT_KEEP) {
		free(TAKE(call->out));
		call->out_cap = 0;
	}
	if (call->finished) {
		*flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
		if (submit_trailers(call) < 0)
			return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	}
	return (ssize_t)n;
}

static int start_answer(struct grpc_call *call)
{
	nghttp2_data_provider provider = { .source.ptr = call, .read_callback = on_read };
	nghttp2_nv nv[] = { NV(":status", "200"), NV("content-type", "application/grpc") };

	if (call->answering) {
		/* Fails when it is not deferred, which is as good. */
		(void)nghttp2_session_resume_data(call->conn->session, call->stream_id);
		return 0;
	}
	if (nghttp2_submit_response(call->conn->session, call->stream_id, nv, ARRAY_SIZE(nv),
				    &provider) < 0)
		return -ENOMEM;
	call->answering = true;
	return 0;
}

static int make_room(struct grpc_call *call, size_t n)
{
	size_t unsent = grpc_call_unsent(call), cap = MAX(call->out_cap, (size_t)512);
	uint8_t *bigger;

	if (call->out_at > 0)
		memmove(call->out, call->out + call->out_at, unsent);
	call->out_at = 0;
	call->out_len = unsent;
	while (cap < unsent + n)
		cap *= 2;
	if (cap == call->out_cap)
		return 0;
	bigger = realloc(call->out, cap);
	if (!bigger)
		return -ENOMEM;
	call->out = bigger;
	call->out_cap = cap;
	return 0;
}

int grpc_call_send(struct grpc_call *call, const void *msg, size_t size)
{
	size_t framed = size + GRPC_PREFIX_SIZE;
	struct grpc_server *server;

	if (call->over)
		return -EPIPE;
	if (size > GRPC_MESSAGE_MAX)
		return -EMSGSIZE;
	if (grpc_call_unsent(call) > GRPC_UNSENT_MAX) {
		call->wants_room = true;
		return -EAGAIN;
	}
	server = call->conn->server;
	if (server->bytes + framed > GRPC_SERVER_BYTES_MAX)
		return -ENOBUFS;
	if (make_room(call, framed) < 0)
		return -ENOMEM;
	grpc_prefix_write(call->out + call->out_len, (uint32_t)size);
	if (size > 0)
		memcpy(call->out + call->out_len + GRPC_PREFIX_SIZE, msg, size);
	call->out_len += framed;
	if (start_answer(call) < 0) {
		call->out_len -= framed;
		return -ENOMEM;
	}
	server->bytes += framed;
	grpc_connection_wake(call->conn);
	return 0;
}

int grpc_call_finish(struct grpc_call *call, enum grpc_status status, const char *text)
{
	if (call->over)
		return -EPIPE;
	if (call->answering) {
		set_status(call, status, text);
		(void)start_answer(call);
	} else {
		refuse(call, "200", status, text);
	}
	grpc_connection_wake(call->conn);
	return 0;
}

int grpc_call_finishf(struct grpc_call *call, enum grpc_status status, const char *fmt, ...)
{
	char text[GRPC_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return grpc_call_finish(call, status, text);
}

int grpc_call_reply(struct grpc_call *call, const void *msg, size_t size)
{
	int r = grpc_call_send(call, msg, size);

	if (r == 0)
		return grpc_call_finish(call, GRPC_OK, NULL);
	if (r == -EMSGSIZE)
		return grpc_call_finishf(call, GRPC_RESOURCE_EXHAUSTED,
					 "the answer has %zu bytes, at most %u can be sent", size,
					 GRPC_MESSAGE_MAX);
	return grpc_call_finish(call, GRPC_RESOURCE_EXHAUSTED, "out of memory for the answer");
}

void grpc_call_run_writable(struct grpc_call *call)
{
	if (!call->wants_room || call->over || grpc_call_unsent(call) > GRPC_UNSENT_MAX)
		return;
	call->wants_room = false;
	if (call->method->writable)
		call->method->writable(call, call->conn->server->userdata);
}

size_t grpc_call_unsent(const struct grpc_call *call)
{
	return call->out_len - call->out_at;
}

bool grpc_call_is_over(const struct grpc_call *call)
{
	return call->over;
}

uint64_t grpc_call_remaining_usec(const struct grpc_call *call)
{
	uint64_t now = clock_now_usec();

	if (call->deadline_usec == UINT64_MAX)
		return UINT64_MAX;
	return call->deadline_usec > now ? call->deadline_usec - now : 0;
}

void grpc_call_set_data(struct grpc_call *call, void *data)
{
	call->data = data;
}

void *grpc_call_data(const struct grpc_call *call)
{
	return call->data;
}
