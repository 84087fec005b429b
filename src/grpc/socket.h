/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unix sockets by path: listening with replacement in one step, and connecting without waiting.
 */
#pragma once

#include <sys/stat.h>

#include "base/error.h"
#include "base/macro.h"

/* Listens at a path with mode 0600, replacing a socket that is there. Its name in the meantime
 * begins with '.', which kubelets that watch the folder pass over. -EEXIST: something else is
 * there. ret_id is what grpc_socket_is_at() compares with. */
int grpc_socket_listen(const char *path, int *ret_fd, struct stat *ret_id,
		       struct error *err) _must_check_;
/* Whether this very socket is (still) found at the path. */
bool grpc_socket_is_at(const char *path, const struct stat *id);

/* A connected socket. -EAGAIN when the listener's backlog is full: a Unix socket cannot wait for
 * room. */
int grpc_socket_connect(const char *path, int *ret_fd) _must_check_;
