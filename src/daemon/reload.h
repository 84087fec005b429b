/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGHUP: the settings are read again and take effect in one step of the loop, or not at all.
 *
 * Reading is done in the file thread. A file that is wrong in any way, also one of TLS, changes
 * nothing. What cannot change while berthd runs keeps its value and is named in a warning. Whoever
 * works on with the former settings (a recovery, a log that is moved away) holds them by reference.
 */
#pragma once

#include "daemon/node.h"
#include "http/server.h"

struct reload;

/* required: as in settings_load(). tls: what the server uses; NULL without. Watches SIGHUP, which
 * must be blocked. */
int reload_start(struct node *n, struct http_server *server, struct http_tls *tls, const char *path,
		 bool required, struct reload **ret, struct error *err) _must_check_;
/* Before the node and the server. */
struct reload *reload_free(struct reload *r);
