/* SPDX-License-Identifier: Apache-2.0 */
#include "http/route.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"

ssize_t http_percent_decode(const char *src, size_t n, bool plus_is_space, char *dst, size_t size)
{
	size_t len = 0;

	for (size_t i = 0; i < n; i++) {
		char c = src[i];

		if (c == '%') {
			int hi, lo;

			if (n - i < 3)
				return -EINVAL;
			hi = str_hex_digit(src[i + 1]);
			lo = str_hex_digit(src[i + 2]);
			if (hi < 0 || lo < 0)
				return -EINVAL;
			c = (char)(hi << 4 | lo);
			i += 2;
		} else if (c == '+' && plus_is_space) {
			c = ' ';
		}
		if ((unsigned char)c < 0x20 || c == 0x7f)
			return -EINVAL;
		if (len + 1 >= size)
			return -ENAMETOOLONG;
		dst[len++] = c;
	}
	if (!str_is_utf8(dst, len))
		return -EINVAL;
	dst[len] = '\0';
	return (ssize_t)len;
}

static bool take_param(struct http_params *params, const char *name, size_t name_len,
		       const char *value, size_t value_len)
{
	struct http_param *p = &params->at[params->n];

	if (params->n >= HTTP_PARAMS_MAX)
		return false;
	if (http_percent_decode(value, value_len, false, p->value, sizeof(p->value)) <= 0)
		return false;
	p->name = name;
	p->name_len = name_len;
	params->n++;
	return true;
}

bool http_path_match(const char *template, const char *path, struct http_params *ret)
{
	ret->n = 0;
	while (*template == '/' && *path == '/') {
		size_t t, p;

		template ++;
		path++;
		t = strcspn(template, "/");
		p = strcspn(path, "/");
		if (t >= 2 && template[0] == '{' && template[t - 1] == '}') {
			if (!take_param(ret, template + 1, t - 2, path, p))
				return false;
		} else if (t != p || memcmp(template, path, t) != 0) {
			return false;
		}
		template += t;
		path += p;
	}
	return *template == '\0' && *path == '\0';
}

/* Cut at `size` rather than failed: the list is a help, and no path has so many methods. */
static void allow_add(char *allow, size_t size, const char *method)
{
	size_t len = strlen(allow);

	snprintf(allow + len, size - len, "%s%s%s", len ? ", " : "", method,
		 strcmp(method, "GET") == 0 ? ", HEAD" : "");
}

int http_route_find(const struct http_route *routes, size_t n, const char *method, const char *path,
		    const struct http_route **ret, struct http_params *ret_params, char *ret_allow,
		    size_t allow_size)
{
	ret_allow[0] = '\0';
	for (size_t i = 0; i < n; i++) {
		if (!http_path_match(routes[i].path, path, ret_params))
			continue;
		if (strcmp(routes[i].method, method) == 0) {
			*ret = &routes[i];
			return 0;
		}
		allow_add(ret_allow, allow_size, routes[i].method);
	}
	return ret_allow[0] ? -EPERM : -ENOENT;
}

/* Decodes a NUL-terminated string into itself: decoding never makes it longer. */
static int decode_in_place(char *s)
{
	size_t n = strlen(s);
	ssize_t r = http_percent_decode(s, n, true, s, n + 1);

	return r < 0 ? (int)r : 0;
}

int http_query_parse(char *query, struct http_query *ret)
{
	char *save = NULL;
	int r;

	ret->n = 0;
	for (char *pair = strtok_r(query, "&", &save); pair; pair = strtok_r(NULL, "&", &save)) {
		char *value = strchr(pair, '=');

		if (ret->n >= HTTP_QUERY_MAX)
			return -E2BIG;
		if (value)
			*value++ = '\0';
		r = decode_in_place(pair);
		if (r == 0 && value)
			r = decode_in_place(value);
		if (r < 0)
			return r;
		ret->at[ret->n].key = pair;
		ret->at[ret->n].value = value ? value : "";
		ret->n++;
	}
	return 0;
}

bool http_host_is_safe(const char *host, const char *own)
{
	unsigned char addr[sizeof(struct in6_addr)];
	char name[HTTP_PARAM_SIZE];
	size_t len;

	if (host[0] == '[') {
		len = strcspn(++host, "]");
		if (host[len] != ']' || (host[len + 1] != '\0' && host[len + 1] != ':'))
			return false;
	} else {
		len = strcspn(host, ":");
	}
	if (len == 0 || len >= sizeof(name))
		return false;
	memcpy(name, host, len);
	name[len] = '\0';
	if (inet_pton(AF_INET, name, addr) == 1 || inet_pton(AF_INET6, name, addr) == 1)
		return true;
	return strcasecmp(name, "localhost") == 0 || (own && strcasecmp(name, own) == 0);
}

bool http_host_is_safe_on_unix(const char *host)
{
	return (*host && !strpbrk(host, ".:")) || http_host_is_safe(host, NULL);
}

bool http_origin_is_own(const char *origin, const char *host)
{
	const char *authority = strstr(origin, "://");

	return authority && authority > origin && strcasecmp(authority + 3, host) == 0;
}
