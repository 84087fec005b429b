/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gRPC on Unix sockets in an sd-event loop: servers (unary and server-streaming methods) and unary
 * calls to others. Messages are bytes here; what is in them is the caller's matter (proto/).
 *
 * One thread: everything below is called from the thread that runs the event loop, and all
 * callbacks come from that loop, never from inside a function that the caller is in, except where
 * grpc_server_free() says so. Nothing blocks, nothing logs. Several servers and calls may live
 * beside each other. It speaks HTTP/2 without TLS, uncompressed messages only, and is no proxy and
 * no client of streams.
 */
#pragma once

#include <systemd/sd-event.h>

#include "base/error.h"
#include "base/macro.h"

enum grpc_status {
	GRPC_OK = 0,
	GRPC_CANCELLED = 1,
	GRPC_UNKNOWN = 2,
	GRPC_INVALID_ARGUMENT = 3,
	GRPC_DEADLINE_EXCEEDED = 4,
	GRPC_NOT_FOUND = 5,
	GRPC_ALREADY_EXISTS = 6,
	GRPC_PERMISSION_DENIED = 7,
	GRPC_RESOURCE_EXHAUSTED = 8,
	GRPC_FAILED_PRECONDITION = 9,
	GRPC_ABORTED = 10,
	GRPC_OUT_OF_RANGE = 11,
	GRPC_UNIMPLEMENTED = 12,
	GRPC_INTERNAL = 13,
	GRPC_UNAVAILABLE = 14,
	GRPC_DATA_LOSS = 15,
	GRPC_UNAUTHENTICATED = 16,
};

/* "DEADLINE_EXCEEDED"; a number that is none of the above gives "UNKNOWN". */
const char *grpc_status_name(enum grpc_status status);

/* Limits. Each is tested from both sides. */
#define GRPC_MESSAGE_MAX     (4u << 20)	 /* bytes of one message, both ways; what kubelets take */
#define GRPC_STREAMS_MAX     256	 /* open calls of a connection; more are refused */
#define GRPC_CONNECTIONS_MAX 32		 /* of a server; then the one longest without calls goes */
#define GRPC_UNSENT_MAX	     (64u << 10) /* bytes a call may have unsent and still be sent more */
#define GRPC_SERVER_BYTES_MAX                                                                      \
	(32u << 20)		       /* requests and replies that one server holds in memory     \
					*/
#define GRPC_HEADERS_MAX   (16u << 10) /* of a request, counted as HTTP/2 does */
#define GRPC_TEXT_MAX	   1024	       /* bytes of a status text with NUL; longer ones are cut */
#define GRPC_SETTINGS_USEC 5000000u    /* a new connection must have said SETTINGS by then */
#define GRPC_RESETS_MAX	   1000	       /* cancelled or broken streams at once, then 33 a second */

/*
 * Server
 */

struct grpc_server;
struct grpc_call; /* one call being served */

/*
 * A call is started when its request is complete. From then until closed() the pointer is valid and
 * calls may be answered at any time, inside start() or later. closed() runs exactly once for each
 * call that was started, always last: after it was answered and the answer has been handed to the
 * kernel, or because the peer cancelled it or is gone, or the deadline passed and the peer was
 * told.
 */
struct grpc_method {
	const char *path; /* "/v1beta1.DevicePlugin/Allocate" */
	void (*start)(struct grpc_call *call, const void *msg, size_t size, void *userdata);
	/* May be NULL: after grpc_call_send() said -EAGAIN, once when it will take a message again.
	 */
	void (*writable)(struct grpc_call *call, void *userdata);
	void (*closed)(struct grpc_call *call, void *userdata); /* may be NULL */
	size_t request_max;					/* bytes; 0: GRPC_MESSAGE_MAX */
};

/* Listens at a path (absolute, short enough for sun_path; mode 0600), replacing in one step
 * whatever socket was there: a stale one, or an older instance's, whose open connections live on.
 * -EEXIST when the path is something else than a socket. Keeps the methods array and the event
 * loop. */
int grpc_server_new(sd_event *event, const char *path, const struct grpc_method *methods,
		    size_t n_methods, void *userdata, struct grpc_server **ret,
		    struct error *err) _must_check_;
/* Ends all calls (their closed() runs before this returns), says GOAWAY, and removes the socket
 * unless another has taken its place. Allowed inside callbacks. Returns NULL. */
struct grpc_server *grpc_server_free(struct grpc_server *server);
static inline void grpc_server_freep(struct grpc_server **server)
{
	grpc_server_free(*server);
}
#define _grpc_server_ _cleanup_(grpc_server_freep)

/* Whether the path still leads to this server: false when somebody deleted or replaced the socket
 * (a kubelet that starts deletes all of them). Asks the file system. */
bool grpc_server_is_reachable(const struct grpc_server *server);
const char *grpc_server_path(const struct grpc_server *server);
/* Peers that are connected, and calls that were started and are not closed. */
size_t grpc_server_connections(const struct grpc_server *server);
size_t grpc_server_calls(const struct grpc_server *server);

/* Sends one message (it is copied). A stream may send any number; a unary method sends one, then
 * finishes with GRPC_OK.
 * -EPIPE: the call is over (finished, cancelled, peer gone, deadline passed); closed() comes or
 * came. -EAGAIN: more than GRPC_UNSENT_MAX bytes are still unsent; nothing was queued, writable()
 * will come. A stream whose messages carry whole state then drops this one and sends the newest
 * state. -EMSGSIZE: above GRPC_MESSAGE_MAX. -ENOBUFS: the server holds GRPC_SERVER_BYTES_MAX.
 * -ENOMEM. */
int grpc_call_send(struct grpc_call *call, const void *msg, size_t size) _must_check_;
/* Ends the call after what was sent. The text is for people and may be NULL; it is sent
 * percent-encoded, cut at GRPC_TEXT_MAX. -EPIPE as above, which a caller may well ignore. */
int grpc_call_finish(struct grpc_call *call, enum grpc_status status, const char *text);
/* The same with a formatted text. */
int grpc_call_finishf(struct grpc_call *call, enum grpc_status status, const char *fmt, ...)
	_printf_(3, 4);
/* Sends and finishes with GRPC_OK; when the message cannot be sent, finishes with the reason. */
int grpc_call_reply(struct grpc_call *call, const void *msg, size_t size);

/* Bytes handed in and not yet written to the socket. */
size_t grpc_call_unsent(const struct grpc_call *call);
/* True once the call can no longer be answered (see -EPIPE). */
bool grpc_call_is_over(const struct grpc_call *call);
/* What the peer's deadline leaves, in microseconds; UINT64_MAX without one, 0 when it has passed.
 */
uint64_t grpc_call_remaining_usec(const struct grpc_call *call);
/* A place for the caller's own state of this call; NULL at start. */
void grpc_call_set_data(struct grpc_call *call, void *data);
void *grpc_call_data(const struct grpc_call *call);

/*
 * Client: one unary call on a connection of its own.
 */

struct grpc_unary;

struct grpc_reply {
	enum grpc_status status;
	const char *text; /* never NULL; cleaned of control characters */
	const void *msg;  /* NULL unless status is GRPC_OK */
	size_t size;
};

struct grpc_request {
	const char *socket; /* path of the server's socket */
	const char *path;   /* "/v1beta1.Registration/Register" */
	const void *msg;    /* copied */
	size_t size;
	uint64_t timeout_usec; /* from now to the answer; not 0 */
	size_t reply_max;      /* bytes; 0: GRPC_MESSAGE_MAX */
	/* Runs exactly once unless the call is freed before, from the loop, never from inside
	 * grpc_unary_new(). The reply is valid inside only. Connect errors, streams and connections
	 * that end without a status, and answers that are no gRPC come as GRPC_UNAVAILABLE. */
	void (*done)(struct grpc_unary *call, const struct grpc_reply *reply, void *userdata);
	void *userdata;
};

/* Starts the call. Fails only for want of memory or a bad argument; everything else is told to
 * done(). */
int grpc_unary_new(sd_event *event, const struct grpc_request *request, struct grpc_unary **ret,
		   struct error *err) _must_check_;
/* Frees the call, cancelling it when it still runs. Allowed inside done(). Returns NULL. */
struct grpc_unary *grpc_unary_free(struct grpc_unary *call);
static inline void grpc_unary_freep(struct grpc_unary **call)
{
	grpc_unary_free(*call);
}
#define _grpc_unary_ _cleanup_(grpc_unary_freep)
