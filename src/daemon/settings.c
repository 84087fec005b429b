/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings.h"

#include <errno.h>
#include <unistd.h>

int settings_load(const char *path, bool required, struct settings *ret, struct error *err)
{
	_cleanup_(settings_done) struct settings s = { 0 };
	struct http_tls_files files;
	int r;

	if (!required && access(path, F_OK) < 0 && errno == ENOENT)
		r = config_default(&s.config);
	else
		r = config_load(path, &s.config, err);
	if (r < 0)
		return r;
	if (s.config->tls_certificate) {
		files = (struct http_tls_files){ s.config->tls_certificate, s.config->tls_key,
						 s.config->tls_client_ca };
		r = http_tls_load(&files, &s.tls, err);
		if (r < 0)
			return r;
	}
	*ret = (struct settings){ TAKE(s.config), TAKE(s.tls) };
	return 0;
}

void settings_done(struct settings *s)
{
	config_free(s->config);
	http_tls_unref(s->tls);
	*s = (struct settings){ 0 };
}
