/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS for the HTTP server: one set of certificate, key and client CA, and the judging of clients.
 *
 * A set is read whole from its three files, never changes, and is counted; a server exchanges it
 * for a new one while connections that began with the old one go on. Clients are asked for a
 * certificate. Whether they have a good one is judged here at their requests and not in the
 * handshake, so that one who is refused can be told why. There is no revocation: neither lists nor
 * OCSP are looked at. Only gnutls is known here, neither connections nor libmicrohttpd.
 */
#pragma once

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

#include "base/error.h"
#include "base/macro.h"

#define HTTP_TLS_NAME_MAX 256 /* with NUL */
/* TLS 1.2 and 1.3, forward secrecy and authenticated encryption only. */
#define HTTP_TLS_PRIORITIES                                                                        \
	"SECURE128:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-RSA:-AES-256-CBC:-AES-128-CBC:"            \
	"-GROUP-ALL:+GROUP-X25519:+GROUP-SECP256R1:+GROUP-SECP384R1:%SERVER_PRECEDENCE"

struct http_tls;

struct http_tls_files {
	const char *certificate; /* PEM: the server's, its intermediates behind it */
	const char *key;	 /* PEM, not encrypted, readable by its owner alone */
	const char *client_ca;	 /* PEM: one CA or several */
};

/* Reads and checks the files: each may be read, the key belongs to the certificate, every
 * certificate of client_ca is a CA. The message begins with "tls.certificate", "tls.key" or
 * "tls.client_ca". Blocks on the disk; may be called from any thread. */
int http_tls_load(const struct http_tls_files *files, struct http_tls **ret,
		  struct error *err) _must_check_;
struct http_tls *http_tls_ref(struct http_tls *tls);
struct http_tls *http_tls_unref(struct http_tls *tls);

/* Subject of the server's certificate, for people. */
const char *http_tls_subject(const struct http_tls *tls);
/* When that certificate ends, in seconds since 1970. */
int64_t http_tls_expires(const struct http_tls *tls);
/* Were both read from files of the same content? */
bool http_tls_equal(const struct http_tls *a, const struct http_tls *b);

/* Before the handshake: the session uses this set, of which the caller keeps a reference. */
int http_tls_begin(struct http_tls *tls, gnutls_session_t session) _must_check_;

/* Who is at the other end; counted, never changes. */
struct http_tls_peer;

/* Judges the certificate of a session whose handshake is over by this set's CAs: chain, dates,
 * purpose, strength, and that it has a name. -E_FORBIDDEN with a sentence. */
int http_tls_verify(const struct http_tls *tls, gnutls_session_t session,
		    struct http_tls_peer **ret, struct error *err) _must_check_;
/* Who a certificate names, whoever signed it. */
int http_tls_peer_new(gnutls_x509_crt_t crt, struct http_tls_peer **ret,
		      struct error *err) _must_check_;
struct http_tls_peer *http_tls_peer_ref(struct http_tls_peer *peer);
struct http_tls_peer *http_tls_peer_unref(struct http_tls_peer *peer);
/* The one name that stands for the peer: its subject's common name, else its first DNS name, else
 * its first URI. Printable UTF-8. */
const char *http_tls_peer_name(const struct http_tls_peer *peer);
/* Is one of its names this? Bytes are compared, DNS names without regard to case. */
bool http_tls_peer_has_name(const struct http_tls_peer *peer, const char *name);

static inline void http_tls_unrefp(struct http_tls **tls)
{
	http_tls_unref(*tls);
}
