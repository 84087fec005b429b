/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The request target: path templates, percent-decoding, the query, and the rules about the headers
 * Host and Origin.
 *
 * Works on strings only and knows neither connections nor libmicrohttpd, so that it can be tested
 * and fuzzed by itself.
 */
#pragma once

#include "base/macro.h"
#include "http/server.h"

#define HTTP_PARAM_SIZE 256 /* bytes of one decoded path parameter, with NUL */
#define HTTP_PARAMS_MAX 2
#define HTTP_QUERY_MAX	16

struct http_param {
	const char *name; /* inside the route's template, name_len bytes, not terminated */
	size_t name_len;
	char value[HTTP_PARAM_SIZE];
};

struct http_params {
	size_t n;
	struct http_param at[HTTP_PARAMS_MAX];
};

/* Decodes "%41" in n bytes of src; plus_is_space: as in a query. Returns the length, -EINVAL on a
 * broken escape, a control character, a NUL or bytes that are no UTF-8, -ENAMETOOLONG. */
ssize_t http_percent_decode(const char *src, size_t n, bool plus_is_space, char *dst,
			    size_t size) _must_check_;

/* Does a path, still encoded, fit the template? Fills ret with the parameters, decoded. An empty
 * or undecodable parameter does not fit. */
bool http_path_match(const char *template, const char *path, struct http_params *ret);

/* The first route that fits method ("GET" for HEAD) and path. -ENOENT: no such path. -EPERM: the
 * path is there, the method is not; ret_allow then has the list for the Allow header. */
int http_route_find(const struct http_route *routes, size_t n, const char *method, const char *path,
		    const struct http_route **ret, struct http_params *ret_params, char *ret_allow,
		    size_t allow_size) _must_check_;

struct http_query {
	size_t n;
	struct {
		const char *key;
		const char *value;
	} at[HTTP_QUERY_MAX];
};

/* Splits and decodes "a=1&b" in place; ret points into it. -EINVAL, -E2BIG above HTTP_QUERY_MAX. */
int http_query_parse(char *query, struct http_query *ret) _must_check_;

/* Is a Host header's value one that a browser cannot be tricked into by a foreign name's DNS: an IP
 * literal, "localhost", or `own` (the host part of the listen address), each with or without port?
 */
bool http_host_is_safe(const char *host, const char *own);

/* Can no foreign name's DNS be behind a Host header that a Unix socket gets? What
 * http_host_is_safe() allows, and a bare word as clients of such sockets make one up ("unix",
 * "berthd"): neither a dot nor a port, so no browser that came to a forwarded port or by a domain
 * sends it. */
bool http_host_is_safe_on_unix(const char *host);

/* Does an Origin header ("http://localhost:8080") name the same host and port as the Host header?
 */
bool http_origin_is_own(const char *origin, const char *host);
