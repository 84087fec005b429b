/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least HTTP client that can keep a daemon busy: one request at a time on a connection that is
 * kept, never blocking, bodies counted and thrown away. It trusts the other side.
 */
#pragma once

#include <stddef.h>

struct http {
	int fd;
	size_t len;
	char in[64 << 10];
};

/* Connects to a Unix socket. -errno. */
int http_open(struct http *h, const char *socket_path);
void http_close(struct http *h);

/* The request must fit the socket's buffer. -errno. */
int http_ask(struct http *h, const char *request, size_t len);

/* 1 and the status once the whole answer has come; 0 while it has not; -errno. */
int http_take(struct http *h, int *ret_status);
