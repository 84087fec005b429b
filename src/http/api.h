/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What berthd answers over HTTP: the routes, and the JSON of what the node knows.
 *
 * GET handlers only look at memory; the body of /resources is rendered once per change and shared.
 * A PUT or DELETE of a claim is handed to daemon/allocate.c or release.c and answered when that
 * ends. Fields and codes are an interface (docs/openapi.json, checked against the real answers by
 * the tests).
 */
#pragma once

#include "daemon/node.h"
#include "http/server.h"

/* Listens as the node's configuration says. tls: NULL without; inherited: NULL where none are. */
int api_server_new(struct node *n, struct http_tls *tls, const struct http_sockets *inherited,
		   struct http_server **ret, struct error *err) _must_check_;
/* After http_server_free(). */
void api_server_done(struct node *n);
