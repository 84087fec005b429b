/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that berthd is told from outside: berthd.yaml, and the TLS files that it names.
 *
 * Read together at the start, by --check and at a reload, so that the three judge alike.
 */
#pragma once

#include "config/config.h"
#include "http/tls.h"

struct settings {
	struct config *config;
	struct http_tls *tls; /* NULL: the settings have no TLS */
};

/* required: a file that is not there is an error; else it stands for the defaults. Blocks on the
 * disk. */
int settings_load(const char *path, bool required, struct settings *ret,
		  struct error *err) _must_check_;
void settings_done(struct settings *s);
