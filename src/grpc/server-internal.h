/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the server share: server.c (listening, the set of connections), connection.c
 * (socket and HTTP/2 session), call.c (one stream as a call). For src/grpc and its tests only.
 *
 * Nothing is freed below its caller. The session is worked with in connection.c's event handlers
 * alone; grpc_call_*() only queue and ask for EPOLLOUT. When a callback frees the server, the
 * connection it came from is marked dead and goes when its handler returns.
 */
#pragma once

#include <nghttp2/nghttp2.h>
#include <sys/stat.h>

#include "grpc/grpc.h"
#include "grpc/wire.h"

struct grpc_connection {
	struct grpc_server *server; /* NULL when dead */
	nghttp2_session *session;
	sd_event_source *io;
	sd_event_source *settings_timer; /* until the peer's first SETTINGS */
	int fd;
	struct grpc_call *calls[GRPC_STREAMS_MAX];
	size_t n_calls;
	uint64_t idle_since_usec; /* of a connection without calls */
	double reset_tokens;
	uint64_t reset_refill_usec;
	bool busy;    /* inside an event handler */
	bool dead;    /* calls are closed, only memory is left */
	bool blocked; /* the socket took no more */
};

struct grpc_server {
	sd_event *event;
	sd_event_source *accept;
	int fd;
	struct stat id; /* of the socket in the file system */
	char *path;
	const struct grpc_method *methods;
	size_t n_methods;
	void *userdata;
	struct grpc_connection *connections[GRPC_CONNECTIONS_MAX];
	size_t bytes; /* held for calls, against GRPC_SERVER_BYTES_MAX */
};

struct grpc_call {
	struct grpc_connection *conn;
	const struct grpc_method *method; /* NULL: no such path */
	void *data;
	int32_t stream_id;
	size_t headers_bytes;
	char path[120]; /* as asked for, cut */
	bool is_post, is_grpc, has_te, has_timeout, bad_timeout;
	uint64_t timeout_usec;
	bool half_closed; /* the request is complete */
	bool started;	  /* start() ran and closed() did not */
	bool over;	  /* cannot be answered any more */
	bool answering;	  /* response headers are submitted */
	bool finished;	  /* trailers come after the last byte of out */
	bool wants_room;  /* writable() is owed */
	enum grpc_status status;
	char *text; /* percent-encoded; of status */
	struct grpc_reader request;
	uint64_t deadline_usec; /* UINT64_MAX: none */
	sd_event_source *timer;
	uint8_t *out; /* framed messages */
	size_t out_at, out_len, out_cap;
};

/* connection.c */

/* Takes the descriptor over, also on failure. */
int grpc_connection_new(struct grpc_server *server, int fd,
			struct grpc_connection **ret) _must_check_;
/* Closes calls and socket. While busy, the memory goes later. */
void grpc_connection_close(struct grpc_connection *conn);
/* Says GOAWAY, as far as the socket takes it. */
void grpc_connection_say_goodbye(struct grpc_connection *conn);
/* Something was submitted: write it when the loop comes round. */
void grpc_connection_wake(struct grpc_connection *conn);

/* server.c */

/* The connection is no longer one of the server's. */
void grpc_server_forget(struct grpc_server *server, const struct grpc_connection *conn);

/* call.c */

struct grpc_call *grpc_call_new(struct grpc_connection *conn, int32_t stream_id);
/* Runs closed() if it is owed, then frees. */
void grpc_call_free(struct grpc_call *call);
/* Runs closed() if it is owed. */
void grpc_call_close(struct grpc_call *call);
void grpc_call_on_header(struct grpc_call *call, const char *name, size_t n_name, const char *value,
			 size_t n_value);
void grpc_call_on_headers_end(struct grpc_call *call);
void grpc_call_on_data(struct grpc_call *call, const uint8_t *data, size_t n);
/* The peer has said all: starts the call, or says why not. */
void grpc_call_on_request_end(struct grpc_call *call);
/* Runs writable() if it is owed and there is room. */
void grpc_call_run_writable(struct grpc_call *call);
