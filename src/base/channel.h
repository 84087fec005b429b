/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helper processes and the SOCK_SEQPACKET pair over which one is spoken to.
 *
 * A helper finds its end at descriptor CHANNEL_FD, /dev/null as standard input, the parent's
 * standard error, and nothing else: no other descriptor is inherited. Its signal mask and handlers
 * are the defaults. It ends when its channel reports end of file.
 */
#pragma once

#include "base/macro.h"

#define CHANNEL_FD 3

/* Starts path with argv (argv[0] included). Returns 0 and the pid, a pidfd and the parent's end
 * (non-blocking, close-on-exec), all owned by the caller; else -errno. */
int channel_spawn(const char *path, char *const argv[], pid_t *ret_pid, int *ret_pidfd,
		  int *ret_fd) _must_check_;

/* One message. 0, -EAGAIN when the peer does not read, -EPIPE when it is gone, -EMSGSIZE. */
int channel_send(int fd, const void *msg, size_t len) _must_check_;

/* One message into buf. 1 with its length, 0 at end of file, -EAGAIN, -EMSGSIZE when it was longer
 * than the buffer (and is lost), -errno. */
int channel_recv(int fd, void *buf, size_t size, size_t *ret_len) _must_check_;

/* Folder in which the running program's helpers are found: BERTH_HELPER_DIR, else the folder of
 * the executable, else the installed one. Fills buf with "<folder>/<name>"; -ENOENT, -errno. */
int channel_helper_path(const char *name, char *buf, size_t size) _must_check_;
