/* SPDX-License-Identifier: Apache-2.0 */
/* Names in client certificates: what is accepted can be printed, and one of them is the peer's. */
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "http/tls.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	gnutls_datum_t der = { .data = (unsigned char *)(uintptr_t)data, .size = (unsigned)size };
	struct http_tls_peer *peer = NULL;
	struct error err = ERROR_INIT;
	gnutls_x509_crt_t crt;

	if (gnutls_x509_crt_init(&crt) < 0)
		return 0;
	if (gnutls_x509_crt_import(crt, &der, GNUTLS_X509_FMT_DER) >= 0 &&
	    http_tls_peer_new(crt, &peer, &err) == 0) {
		const char *name = http_tls_peer_name(peer);
		size_t n = strlen(name);

		if (n == 0 || n >= HTTP_TLS_NAME_MAX || !str_is_utf8(name, n) ||
		    !http_tls_peer_has_name(peer, name))
			abort();
		for (size_t i = 0; i < n; i++)
			if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
				abort();
	} else if (err.code && !err.msg[0]) {
		abort();
	}
	http_tls_peer_unref(peer);
	gnutls_x509_crt_deinit(crt);
	return 0;
}
