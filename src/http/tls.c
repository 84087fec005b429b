/* SPDX-License-Identifier: Apache-2.0 */
#include "http/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "model/outcome.h"

#define FILE_BYTES_MAX ((size_t)1024 * 1024)
#define CHAIN_MAX      16
#define NAMES_MAX      16
#define DIGEST_BYTES   32
#define TLS_FILES      3
/* Kinds of text in a name, by their tags in ASN.1. */
#define ASN1_UTF8      12
#define ASN1_PRINTABLE 19
#define ASN1_IA5       22

struct http_tls {
	unsigned refs;
	gnutls_certificate_credentials_t credentials;
	gnutls_x509_trust_list_t cas;
	char subject[HTTP_TLS_NAME_MAX];
	int64_t expires;
	unsigned char digests[TLS_FILES][DIGEST_BYTES];
};

/* --- Reading the files ---------------------------------------------------------------------- */

static void text_wipe(gnutls_datum_t *text)
{
	if (text->data)
		explicit_bzero(text->data, text->size);
	free(text->data);
}

/* The key is looked at through the open file, so that it is the one that is read. */
static int read_file(const char *setting, const char *path, bool secret, gnutls_datum_t *ret,
		     unsigned char digest[static DIGEST_BYTES], struct error *err)
{
	_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;
	char *text;
	size_t len;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return error_set_errno(err, errno, "%s: %.120s cannot be read", setting, path);
	if (!S_ISREG(st.st_mode))
		return error_set(err, EINVAL, "%s: %.120s is not a file", setting, path);
	if (secret && (st.st_mode & 077) != 0)
		return error_set(err, EPERM,
				 "%s: %.120s can be read by others than its owner (mode %04o): "
				 "chmod 600 it",
				 setting, path, st.st_mode & 07777);
	r = file_read_fd(fd, FILE_BYTES_MAX, &text, &len);
	if (r < 0)
		return error_set_errno(err, r, "%s: %.120s cannot be read", setting, path);
	gnutls_hash_fast(GNUTLS_DIG_SHA256, text, len, digest);
	*ret = (gnutls_datum_t){ .data = (unsigned char *)text, .size = (unsigned)len };
	return 0;
}

static int refuse_file(const char *setting, const char *path, int code, struct error *err)
{
	if (code == GNUTLS_E_MEMORY_ERROR)
		return error_set(err, ENOMEM, "%s: out of memory", setting);
	if (code == GNUTLS_E_NO_CERTIFICATE_FOUND ||
	    code == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE ||
	    code == GNUTLS_E_BASE64_UNEXPECTED_HEADER_ERROR)
		return error_set(err, EINVAL, "%s: %.120s holds no %s in PEM", setting, path,
				 strcmp(setting, "tls.key") == 0 ? "key" : "certificate");
	return error_set(err, EINVAL, "%s: %.120s: %.80s", setting, path, gnutls_strerror(code));
}

struct certificates {
	gnutls_x509_crt_t *at;
	unsigned n;
};

static void certificates_done(struct certificates *list)
{
	for (unsigned i = 0; i < list->n; i++)
		gnutls_x509_crt_deinit(list->at[i]);
	gnutls_free(list->at);
	*list = (struct certificates){ 0 };
}

static int import_certificates(const char *setting, const char *path, const gnutls_datum_t *text,
			       struct certificates *ret, struct error *err)
{
	static const char begin[] = "-----BEGIN CERTIFICATE-----";
	int r = gnutls_x509_crt_list_import2(&ret->at, &ret->n, text, GNUTLS_X509_FMT_PEM, 0);

	/* gnutls says of these that there is none at all, whatever good ones stand before. */
	if (r < 0 && r != GNUTLS_E_MEMORY_ERROR && text->data &&
	    memmem(text->data, text->size, begin, sizeof begin - 1))
		return error_set(err, EINVAL,
				 "%s: %.120s holds a certificate that is damaged or cut off",
				 setting, path);
	return r < 0 ? refuse_file(setting, path, r, err) : 0;
}

static void describe(struct http_tls *tls, gnutls_x509_crt_t leaf)
{
	size_t size = sizeof tls->subject;

	if (gnutls_x509_crt_get_dn(leaf, tls->subject, &size) < 0)
		tls->subject[0] = '\0';
	tls->expires = gnutls_x509_crt_get_expiration_time(leaf);
}

static int take_certificate(struct http_tls *tls, const struct http_tls_files *files,
			    struct error *err)
{
	_cleanup_(text_wipe) gnutls_datum_t chain_text = { 0 }, key_text = { 0 };
	_cleanup_(certificates_done) struct certificates chain = { 0 };
	gnutls_x509_privkey_t key;
	int r;

	if ((r = read_file("tls.certificate", files->certificate, false, &chain_text,
			   tls->digests[0], err)) < 0 ||
	    (r = import_certificates("tls.certificate", files->certificate, &chain_text, &chain,
				     err)) < 0 ||
	    (r = read_file("tls.key", files->key, true, &key_text, tls->digests[1], err)) < 0)
		return r;
	r = gnutls_x509_privkey_init(&key);
	if (r < 0)
		return refuse_file("tls.key", files->key, r, err);
	r = gnutls_x509_privkey_import2(key, &key_text, GNUTLS_X509_FMT_PEM, NULL, 0);
	if (r >= 0)
		r = gnutls_certificate_set_x509_key(tls->credentials, chain.at, (int)chain.n, key);
	gnutls_x509_privkey_deinit(key);
	if (r == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
		return error_set(err, EINVAL, "tls.key: %.90s does not belong to %.90s", files->key,
				 files->certificate);
	if (r < 0)
		return refuse_file("tls.key", files->key, r, err);
	describe(tls, chain.at[0]);
	return 0;
}

static int take_cas(struct http_tls *tls, const char *path, struct error *err)
{
	_cleanup_(certificates_done) struct certificates list = { 0 };
	_cleanup_(text_wipe) gnutls_datum_t text = { 0 };
	int r;

	if ((r = read_file("tls.client_ca", path, false, &text, tls->digests[2], err)) < 0 ||
	    (r = import_certificates("tls.client_ca", path, &text, &list, err)) < 0)
		return r;
	/* A certificate that is none would let exactly itself in, which nobody expects. */
	for (unsigned i = 0; i < list.n; i++)
		if (gnutls_x509_crt_get_ca_status(list.at[i], NULL) <= 0)
			return error_set(err, EINVAL,
					 "tls.client_ca: certificate %u of %.120s is not a CA's",
					 i + 1, path);
	/* The names of these are sent to clients, which choose their certificate by them. */
	r = gnutls_certificate_set_x509_trust(tls->credentials, list.at, (int)list.n);
	if (r >= 0)
		r = gnutls_x509_trust_list_init(&tls->cas, 0);
	if (r < 0)
		return refuse_file("tls.client_ca", path, r, err);
	r = gnutls_x509_trust_list_add_cas(tls->cas, list.at, list.n, 0);
	if (r < (int)list.n)
		return refuse_file("tls.client_ca", path, r < 0 ? r : GNUTLS_E_MEMORY_ERROR, err);
	/* The certificates are the list's now. */
	list.n = 0;
	return 0;
}

int http_tls_load(const struct http_tls_files *files, struct http_tls **ret, struct error *err)
{
	_cleanup_(http_tls_unrefp) struct http_tls *tls = calloc(1, sizeof *tls);
	int r;

	if (!tls)
		return error_set(err, ENOMEM, "tls: out of memory");
	tls->refs = 1;
	if (gnutls_certificate_allocate_credentials(&tls->credentials) < 0)
		return error_set(err, ENOMEM, "tls: out of memory");
	r = take_certificate(tls, files, err);
	if (r == 0)
		r = take_cas(tls, files->client_ca, err);
	if (r < 0)
		return r;
	*ret = TAKE(tls);
	return 0;
}

struct http_tls *http_tls_ref(struct http_tls *tls)
{
	if (tls)
		tls->refs++;
	return tls;
}

struct http_tls *http_tls_unref(struct http_tls *tls)
{
	if (!tls || --tls->refs > 0)
		return NULL;
	if (tls->credentials)
		gnutls_certificate_free_credentials(tls->credentials);
	if (tls->cas)
		gnutls_x509_trust_list_deinit(tls->cas, 1);
	free(tls);
	return NULL;
}

const char *http_tls_subject(const struct http_tls *tls)
{
	return tls->subject;
}

int64_t http_tls_expires(const struct http_tls *tls)
{
	return tls->expires;
}

bool http_tls_equal(const struct http_tls *a, const struct http_tls *b)
{
	return memcmp(a->digests, b->digests, sizeof a->digests) == 0;
}

int http_tls_begin(struct http_tls *tls, gnutls_session_t session)
{
	if (gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, tls->credentials) < 0)
		return -ENOMEM;
	/* Asked for, not demanded: see the header. */
	gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUEST);
	return 0;
}

/* --- Names ---------------------------------------------------------------------------------- */

enum name_kind {
	NAME_COMMON,
	NAME_DNS,
	NAME_URI,
};

struct peer_name {
	enum name_kind kind;
	char text[HTTP_TLS_NAME_MAX];
};

struct http_tls_peer {
	unsigned refs;
	unsigned n_names;
	struct peer_name names[NAMES_MAX]; /* the first stands for the peer */
};

/* A CA vouches for what is in a certificate, not for its being fit to be printed or compared: a NUL
 * in the middle once made "root\0.example" pass for root. */
static bool name_is_sane(const char *text, size_t n)
{
	char shown[HTTP_TLS_NAME_MAX];

	if (n == 0 || n >= sizeof shown)
		return false;
	memcpy(shown, text, n);
	/* Two names that would be shown alike could not be told apart in a log. */
	str_sanitize(shown, n);
	return memcmp(shown, text, n) == 0;
}

static int add_name(struct http_tls_peer *peer, enum name_kind kind, const char *text, size_t n,
		    struct error *err)
{
	struct peer_name *name = &peer->names[peer->n_names];

	if (!name_is_sane(text, n))
		return error_set(err, E_FORBIDDEN,
				 "the client certificate holds a name that is empty, too long or "
				 "not printable");
	if (peer->n_names == NAMES_MAX)
		return error_set(err, E_FORBIDDEN, "the client certificate has more than %d names",
				 NAMES_MAX);
	name->kind = kind;
	memcpy(name->text, text, n);
	name->text[n] = '\0';
	peer->n_names++;
	return 0;
}

static bool is_common_name(const gnutls_x509_ava_st *part)
{
	static const char oid[] = GNUTLS_OID_X520_COMMON_NAME;
	size_t n = sizeof oid - 1;

	return part->oid.size >= n && memcmp(part->oid.data, oid, n) == 0 &&
	       (part->oid.size == n || part->oid.data[n] == '\0');
}

static int take_name_part(struct http_tls_peer *peer, const gnutls_x509_ava_st *part,
			  struct error *err)
{
	bool is_text = part->value_tag == ASN1_UTF8 || part->value_tag == ASN1_PRINTABLE ||
		       part->value_tag == ASN1_IA5;

	if (!is_common_name(part))
		return 0;
	if (peer->n_names > 0)
		return error_set(err, E_FORBIDDEN, "the client certificate has two common names");
	return add_name(peer, NAME_COMMON, (const char *)part->value.data,
			is_text ? part->value.size : 0, err);
}

/* Part by part, since gnutls' text of a name is escaped, and hexadecimal where it holds a NUL. */
static int add_common_name(struct http_tls_peer *peer, gnutls_x509_crt_t crt, struct error *err)
{
	gnutls_x509_dn_t dn;
	int r = 0;

	if (gnutls_x509_crt_get_subject(crt, &dn) < 0)
		return error_set(err, E_FORBIDDEN, "the client certificate's name cannot be read");
	for (int i = 0; r == 0; i++) {
		int k = 0;

		for (; r == 0; k++) {
			gnutls_x509_ava_st part;

			if (gnutls_x509_dn_get_rdn_ava(dn, i, k, &part) < 0)
				break;
			r = take_name_part(peer, &part, err);
		}
		if (k == 0)
			break;
	}
	return r;
}

static int add_alternative_names(struct http_tls_peer *peer, gnutls_x509_crt_t crt, unsigned wanted,
				 enum name_kind kind, struct error *err)
{
	for (unsigned i = 0;; i++) {
		char text[HTTP_TLS_NAME_MAX];
		size_t size = sizeof text;
		unsigned type;
		int r;

		r = gnutls_x509_crt_get_subject_alt_name2(crt, i, text, &size, &type, NULL);
		if (r == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE)
			return 0;
		if (r < 0 && r != GNUTLS_E_SHORT_MEMORY_BUFFER)
			return error_set(err, E_FORBIDDEN,
					 "the client certificate's names cannot be read");
		if (type != wanted)
			continue;
		r = add_name(peer, kind, text, r < 0 ? 0 : size, err);
		if (r < 0)
			return r;
	}
}

static int read_names(struct http_tls_peer *peer, gnutls_x509_crt_t crt, struct error *err)
{
	int r;

	if ((r = add_common_name(peer, crt, err)) < 0 ||
	    (r = add_alternative_names(peer, crt, GNUTLS_SAN_DNSNAME, NAME_DNS, err)) < 0 ||
	    (r = add_alternative_names(peer, crt, GNUTLS_SAN_URI, NAME_URI, err)) < 0)
		return r;
	if (peer->n_names == 0)
		return error_set(err, E_FORBIDDEN,
				 "the client certificate has no name (a common name, DNS name or "
				 "URI)");
	return 0;
}

int http_tls_peer_new(gnutls_x509_crt_t crt, struct http_tls_peer **ret, struct error *err)
{
	struct http_tls_peer *peer = calloc(1, sizeof *peer);
	int r;

	if (!peer)
		return error_set(err, ENOMEM, "out of memory");
	peer->refs = 1;
	r = read_names(peer, crt, err);
	if (r < 0)
		http_tls_peer_unref(peer);
	else
		*ret = peer;
	return r;
}

struct http_tls_peer *http_tls_peer_ref(struct http_tls_peer *peer)
{
	if (peer)
		peer->refs++;
	return peer;
}

struct http_tls_peer *http_tls_peer_unref(struct http_tls_peer *peer)
{
	if (peer && --peer->refs == 0)
		free(peer);
	return NULL;
}

const char *http_tls_peer_name(const struct http_tls_peer *peer)
{
	return peer->names[0].text;
}

bool http_tls_peer_has_name(const struct http_tls_peer *peer, const char *name)
{
	for (unsigned i = 0; i < peer->n_names; i++) {
		const struct peer_name *p = &peer->names[i];

		if (strcmp(p->text, name) == 0 ||
		    (p->kind == NAME_DNS && strcasecmp(p->text, name) == 0))
			return true;
	}
	return false;
}

/* --- Judging -------------------------------------------------------------------------------- */

static int import_chain(gnutls_session_t session, struct certificates *ret, struct error *err)
{
	const gnutls_datum_t *raw;
	unsigned n = 0;

	raw = gnutls_certificate_get_peers(session, &n);
	if (!raw || n == 0)
		return error_set(err, E_FORBIDDEN,
				 "a client certificate by a CA of tls.client_ca is needed, and "
				 "none was sent");
	if (n > CHAIN_MAX)
		return error_set(err, E_FORBIDDEN, "more than %d certificates were sent",
				 CHAIN_MAX);
	ret->at = gnutls_calloc(n, sizeof *ret->at);
	if (!ret->at)
		return error_set(err, ENOMEM, "out of memory");
	for (; ret->n < n; ret->n++) {
		if (gnutls_x509_crt_init(&ret->at[ret->n]) < 0)
			break;
		if (gnutls_x509_crt_import(ret->at[ret->n], &raw[ret->n], GNUTLS_X509_FMT_DER) <
		    0) {
			gnutls_x509_crt_deinit(ret->at[ret->n]);
			break;
		}
	}
	if (ret->n < n)
		return error_set(err, E_FORBIDDEN, "the client certificate cannot be read");
	return 0;
}

static const char *why_not(unsigned status)
{
	/* The first that holds says it best. */
	static const struct {
		unsigned flag;
		const char *text;
	} reasons[] = {
		{ GNUTLS_CERT_SIGNER_NOT_FOUND, "no CA of tls.client_ca has signed it" },
		{ GNUTLS_CERT_SIGNER_NOT_CA, "it is signed by a certificate that is not a CA's" },
		{ GNUTLS_CERT_SIGNATURE_FAILURE, "its signature is wrong" },
		{ GNUTLS_CERT_EXPIRED, "it, or its CA, has expired" },
		{ GNUTLS_CERT_NOT_ACTIVATED, "it, or its CA, is not valid yet" },
		{ GNUTLS_CERT_PURPOSE_MISMATCH, "it is not meant for clients" },
		{ GNUTLS_CERT_INSECURE_ALGORITHM, "its key or signature is too weak" },
		{ GNUTLS_CERT_SIGNER_CONSTRAINTS_FAILURE,
		  "its CA may not sign such a certificate" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		if (status & reasons[i].flag)
			return reasons[i].text;
	return "it is not valid";
}

int http_tls_verify(const struct http_tls *tls, gnutls_session_t session,
		    struct http_tls_peer **ret, struct error *err)
{
	_cleanup_(certificates_done) struct certificates chain = { 0 };
	gnutls_typed_vdata_st purpose = {
		.type = GNUTLS_DT_KEY_PURPOSE_OID,
		.data = (unsigned char *)(uintptr_t)GNUTLS_KP_TLS_WWW_CLIENT,
	};
	unsigned status = 0;
	int r;

	r = import_chain(session, &chain, err);
	if (r < 0)
		return r;
	r = gnutls_x509_trust_list_verify_crt2(tls->cas, chain.at, chain.n, &purpose, 1,
					       GNUTLS_PROFILE_TO_VFLAGS(GNUTLS_PROFILE_MEDIUM),
					       &status, NULL);
	if (r < 0)
		return error_set(err, E_FORBIDDEN, "the client certificate cannot be judged: %.80s",
				 gnutls_strerror(r));
	if (status != 0)
		return error_set(err, E_FORBIDDEN, "the client certificate is refused: %s",
				 why_not(status));
	/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): there is one, or r is negative. */
	return http_tls_peer_new(chain.at[0], ret, err);
}
