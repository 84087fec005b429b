/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unix sockets by path: listening with replacement in one step, and connecting without waiting.
 */
#pragma once

#include <sys/stat.h>
#include <sys/un.h>

#include "base/error.h"
#include "base/macro.h"

/* Listens at an absolute path, replacing a socket that is there in one step, so that no client
 * finds none or one of another mode. Its name in the meantime begins with '.', which those who
 * watch the folder pass over. -EEXIST: something else is there. ret_id is what unix_socket_is_at()
 * compares with. */
int unix_socket_listen(const char *path, mode_t mode, int *ret_fd, struct stat *ret_id,
		       struct error *err) _must_check_;
/* Whether this very socket is (still) found at the path. */
bool unix_socket_is_at(const char *path, const struct stat *id);

int unix_socket_address(const char *path, struct sockaddr_un *ret) _must_check_; /* -ENAMETOOLONG */

/* A connected socket. -EAGAIN when the listener's backlog is full: a Unix socket cannot wait for
 * room. */
int unix_socket_connect(const char *path, int *ret_fd) _must_check_;
