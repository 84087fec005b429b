/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "http/server-internal.h"

/* Bytes that libmicrohttpd asks for at a time. */
#define BLOCK_SIZE 4096

struct http_stream {
	struct http_conn *conn; /* NULL before it is queued and after the connection is gone */
	const struct http_stream_ops *ops;
	void *userdata;
	bool ended;
	bool broken; /* the client is gone: no proper end */
};

static ssize_t stream_read(void *cls, uint64_t pos _unused_, char *buf, size_t size)
{
	struct http_stream *stream = cls;
	ssize_t n = -1;

	if (stream->broken)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	if (!stream->ended)
		n = stream->ops->read(stream->userdata, buf, size);
	if (n < 0)
		return MHD_CONTENT_READER_END_OF_STREAM;
	if (n == 0 && stream->conn)
		http_conn_suspend(stream->conn);
	return n;
}

static void stream_free(void *cls)
{
	struct http_stream *stream = cls;

	stream->ops->gone(stream->userdata);
	free(stream);
}

int http_reply_stream(struct http_request *req, const char *content_type,
		      const struct http_stream_ops *ops, void *userdata, struct http_stream **ret)
{
	struct MHD_Response *response;
	struct http_stream *stream;

	/* libmicrohttpd 0.9.75 would put an end-of-chunks mark behind the headers. */
	if (req->is_head) {
		*ret = NULL;
		http_reply(req, 200, content_type, NULL, 0);
		return 0;
	}
	stream = calloc(1, sizeof(*stream));
	if (!stream) {
		http_request_set_response(req, 500, NULL);
		return -ENOMEM;
	}
	stream->ops = ops;
	stream->userdata = userdata;
	response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_SIZE, stream_read,
						     stream, stream_free);
	if (!response) {
		free(stream);
		http_request_set_response(req, 500, NULL);
		return -ENOMEM;
	}
	/* A stream without its headers is of little use, but not wrong. */
	(void)http_response_set_headers(response, content_type);
	req->stream = stream;
	*ret = stream;
	http_request_set_response(req, 200, response);
	return 0;
}

void http_stream_attach(struct http_stream *stream, struct http_conn *conn)
{
	stream->conn = conn;
	conn->stream = stream;
}

void http_stream_detach(struct http_stream *stream)
{
	stream->conn = NULL;
}

void http_stream_wake(struct http_stream *stream)
{
	if (stream->conn)
		http_conn_resume(stream->conn);
}

void http_stream_end(struct http_stream *stream)
{
	stream->ended = true;
	http_stream_wake(stream);
}

void http_stream_cut(struct http_stream *stream)
{
	stream->broken = true;
	if (stream->conn)
		http_conn_cut(stream->conn);
	http_stream_wake(stream);
}
