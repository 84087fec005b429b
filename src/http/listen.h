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

/* "ADDRESS:PORT" or "[ADDRESS]:PORT", numeric or "localhost". Puts the host part into ret_host. */
int http_listen_tcp(const char *listen, int *ret_fd, char *ret_host, size_t host_size,
		    struct error *err) _must_check_;
