/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <gnutls/abstract.h>

#include "base/clock.h"
#include "http/server-internal.h"
#include "model/outcome.h"

/* A certificate that ends while its connection is kept alive counts for so long at most. */
#define JUDGE_AGAIN_USEC (60 * USEC_PER_SEC)

/* A session that http_conn_begin_tls() has not seen to cannot shake hands. */
static int no_certificate(gnutls_session_t session _unused_, const gnutls_datum_t *cas _unused_,
			  int n_cas _unused_, const gnutls_pk_algorithm_t *algorithms _unused_,
			  int n_algorithms _unused_, gnutls_pcert_st **ret_certificate _unused_,
			  unsigned *ret_n _unused_, gnutls_privkey_t *ret_key _unused_)
{
	return -1;
}

const struct MHD_OptionItem *http_conn_tls_options(void)
{
	static const struct MHD_OptionItem options[] = {
		{ MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)HTTP_TLS_PRIORITIES },
		{ MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)no_certificate },
		{ MHD_OPTION_END, 0, NULL },
	};

	return options;
}

static gnutls_session_t session_of(const struct http_conn *conn)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		conn->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);

	return info ? info->tls_session : NULL;
}

int http_conn_begin_tls(struct http_conn *conn)
{
	gnutls_session_t session = session_of(conn);

	if (!session)
		return -ENOTSUP;
	/* The session does not hold its credentials by itself. */
	conn->tls = http_tls_ref(conn->listener->server->tls);
	return http_tls_begin(conn->tls, session);
}

int http_conn_judge(struct http_conn *conn, struct error *err)
{
	const struct http_server *server = conn->listener->server;
	uint64_t now = clock_now_usec();
	gnutls_session_t session = session_of(conn);
	struct http_tls_peer *peer = NULL;
	int r;

	if (conn->tls_peer && conn->judged_by == server->tls_generation &&
	    now < conn->judged_usec + JUDGE_AGAIN_USEC)
		return 0;
	conn->tls_peer = http_tls_peer_unref(conn->tls_peer);
	if (!session)
		return error_set(err, E_FORBIDDEN, "the connection has no TLS session");
	r = http_tls_verify(server->tls, session, &peer, err);
	if (r < 0)
		return r;
	conn->tls_peer = peer;
	conn->judged_by = server->tls_generation;
	conn->judged_usec = now;
	return 0;
}

void http_conn_end_tls(struct http_conn *conn)
{
	conn->tls_peer = http_tls_peer_unref(conn->tls_peer);
	conn->tls = http_tls_unref(conn->tls);
}

bool http_conn_only_handshakes(const struct http_listener *listener)
{
	const struct http_server *server = listener->server;
	bool any = false;

	if (!listener->is_tls || listener->progressed)
		return false;
	for (unsigned i = 0; i < server->n_conns; i++) {
		const struct http_conn *conn = server->conns[i];

		if (conn->listener != listener)
			continue;
		/* An answer that is on its way has no call back for each piece. */
		if (conn->state == HTTP_CONN_REPLYING || conn->state == HTTP_CONN_STREAMING)
			return false;
		any = any || !conn->has_spoken;
	}
	return any;
}

void http_server_set_tls(struct http_server *server, struct http_tls *tls)
{
	struct http_tls *old = server->tls;

	server->tls = http_tls_ref(tls);
	http_tls_unref(old);
	server->tls_generation++;
	/* Others are judged anew at their next request; a stream has none. */
	for (unsigned i = 0; i < server->n_conns; i++) {
		struct http_conn *conn = server->conns[i];

		if (conn->listener->is_tls && conn->stream && http_conn_judge(conn, NULL) < 0)
			http_conn_cut(conn);
	}
}
