/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the listening sockets of the HTTP server. What is done with them is server.c's matter.
 */
#pragma once

#include <sys/stat.h>

#include "base/error.h"
#include "base/macro.h"

/* Listens at a path with mode 0660. Its folder is made; a socket that nobody answers at is
 * replaced, in one step, so that no client finds it missing or with the wrong mode. -EADDRINUSE
 * when somebody does, -EEXIST when the path is something else. ret_id: for http_unlink_unix(). */
int http_listen_unix(const char *path, int *ret_fd, struct stat *ret_id,
		     struct error *err) _must_check_;

/* Removes the socket unless another one has taken its place. */
void http_unlink_unix(const char *path, const struct stat *id);

/* Is an inherited descriptor a Unix socket that listens at this path? */
int http_listen_check_unix(int fd, const char *path, struct error *err) _must_check_;

/* "ADDRESS:PORT" or "[ADDRESS]:PORT", numeric or "localhost". Puts the host part into ret_host. */
int http_listen_tcp(const char *listen, int *ret_fd, char *ret_host, size_t host_size,
		    struct error *err) _must_check_;

/* Is an inherited descriptor a TCP socket that listens there? Port 0 stands for any. */
int http_listen_check_tcp(int fd, const char *listen, char *ret_host, size_t host_size,
			  struct error *err) _must_check_;

/* "ADDRESS:PORT" of the other end, "" where it cannot be told. */
void http_listen_peer_address(int fd, char *ret, size_t size);
