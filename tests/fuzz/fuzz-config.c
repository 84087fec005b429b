/* SPDX-License-Identifier: Apache-2.0 */
/* berthd.yaml: any bytes give settings that keep their promises, or a message. */
#include <stdlib.h>

#include "base/str.h"
#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(config_freep) struct config *c = NULL;
	struct error err = ERROR_INIT;

	if (config_parse((const char *)data, size, "berthd.yaml", &c, &err) < 0) {
		if (c || err.code == 0 || !str_starts_with(err.msg, "berthd.yaml:"))
			abort();
		return 0;
	}
	if (c->data_dir[0] != '/' || c->socket[0] != '/' || c->vf_quarantine_threshold == 0 ||
	    c->nvml_timeout_usec == 0 || c->n_marker_prefixes == 0 ||
	    c->n_exclude > CONFIG_ITEMS_MAX)
		abort();
	if (!c->tls_certificate != !c->tls_key || !c->tls_key != !c->tls_client_ca)
		abort();
	return 0;
}
