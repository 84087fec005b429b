/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "config/schema.h"

/* The listener speaks TLS from its beginning or never. While it does, the roles of its clients
 * hold, whatever file is there without a word of TLS. */
static bool needs_restart(const struct config_setting *s, const struct config *a,
			  const struct config *b)
{
	bool switched = !a->tls_certificate != !b->tls_certificate;

	return config_setting_is_fixed(s) ||
	       (switched && strncmp(config_setting_path(s), "tls.", 4) == 0);
}

int config_compare(const struct config *from, const struct config *to,
		   void (*fn)(const struct config_change *change, void *userdata), void *userdata)
{
	const struct config_setting *s;

	for (size_t i = 0; (s = config_setting_at(i)); i++) {
		_buf_ struct buf a = BUF_INIT, b = BUF_INIT;
		struct config_change change = { .path = config_setting_path(s) };

		config_setting_format(s, from, &a);
		config_setting_format(s, to, &b);
		if (buf_finish(&a) < 0 || buf_finish(&b) < 0)
			return -ENOMEM;
		change.from = a.data;
		change.to = b.data;
		change.needs_restart = needs_restart(s, from, to);
		if (strcmp(change.from, change.to) != 0)
			fn(&change, userdata);
	}
	return 0;
}

int config_keep_fixed(struct config *c, const struct config *running)
{
	const struct config_setting *s;
	bool wanted[CONFIG_SETTINGS_MAX] = { false };
	int r = 0;

	/* First all questions: copying changes what the answers rest on. */
	for (size_t i = 0; (s = config_setting_at(i)); i++)
		wanted[i] = needs_restart(s, c, running);
	for (size_t i = 0; r == 0 && (s = config_setting_at(i)); i++)
		if (wanted[i])
			r = config_setting_copy(s, c, running);
	return r;
}
