/* SPDX-License-Identifier: Apache-2.0 */
#include "base/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/child.h"
#include "base/cleanup.h"

#ifndef BERTH_LIBEXECDIR
#define BERTH_LIBEXECDIR "/usr/libexec/berth"
#endif

int channel_spawn(const char *path, char *const argv[], pid_t *ret_pid, int *ret_pidfd, int *ret_fd)
{
	_close_ int ours = -1;
	_close_ int theirs = -1;
	_close_ int pidfd = -1;
	int fds[2];
	pid_t pid;
	int r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	ours = fds[0];
	theirs = fds[1];
	if (fcntl(ours, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	/* A descriptor below 4 would be overwritten, or (at 3) keep its close-on-exec flag. */
	if (theirs <= CHANNEL_FD) {
		int higher = fcntl(theirs, F_DUPFD_CLOEXEC, CHANNEL_FD + 1);

		if (higher < 0)
			return -errno;
		close(theirs);
		theirs = higher;
	}
	r = child_start(
		&(struct child_options){
			.path = path, .argv = argv, .output_fd = -1, .extra_fd = theirs },
		&pid);
	if (r < 0)
		return r;
	/* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): child_start() has set it. */
	pidfd = pidfd_open(pid, 0);
	if (pidfd < 0) {
		r = -errno;
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		return r;
	}
	fcntl(pidfd, F_SETFD, FD_CLOEXEC);
	*ret_pid = pid;
	*ret_pidfd = TAKE_FD(pidfd);
	*ret_fd = TAKE_FD(ours);
	return 0;
}

int channel_send(int fd, const void *msg, size_t len)
{
	ssize_t r;

	do
		r = send(fd, msg, len, MSG_NOSIGNAL);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

int channel_recv(int fd, void *buf, size_t size, size_t *ret_len)
{
	struct iovec iov = { .iov_base = buf, .iov_len = size };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t r;

	do
		r = recvmsg(fd, &msg, 0);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return errno == ECONNRESET ? 0 : -errno;
	if (r == 0)
		return 0;
	if (msg.msg_flags & MSG_TRUNC)
		return -EMSGSIZE;
	*ret_len = (size_t)r;
	return 1;
}

static int try_path(const char *folder, const char *name, char *buf, size_t size)
{
	int n = snprintf(buf, size, "%s/%s", folder, name);

	if (n < 0 || (size_t)n >= size)
		return -ENAMETOOLONG;
	return access(buf, X_OK) < 0 ? -errno : 0;
}

int channel_helper_path(const char *name, char *buf, size_t size)
{
	const char *forced = getenv("BERTH_HELPER_DIR");
	char self[PATH_MAX];
	char *slash;
	ssize_t n;

	if (forced)
		return try_path(forced, name, buf, size);
	n = readlink("/proc/self/exe", self, sizeof self - 1);
	if (n > 0) {
		self[n] = '\0';
		slash = strrchr(self, '/');
		if (slash) {
			*slash = '\0';
			if (try_path(self, name, buf, size) == 0)
				return 0;
		}
	}
	return try_path(BERTH_LIBEXECDIR, name, buf, size);
}
