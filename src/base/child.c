/* SPDX-License-Identifier: Apache-2.0 */
#include "base/child.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

extern char **environ;

#define EXTRA_FD (STDERR_FILENO + 1)

static int add_descriptors(const struct child_options *s, posix_spawn_file_actions_t *actions)
{
	int last = STDERR_FILENO, r;

	r = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (r == 0 && s->output_fd >= 0)
		r = posix_spawn_file_actions_adddup2(actions, s->output_fd, STDERR_FILENO);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(actions, STDERR_FILENO, STDOUT_FILENO);
	if (r == 0 && s->extra_fd >= 0)
		r = posix_spawn_file_actions_adddup2(actions, s->extra_fd, last = EXTRA_FD);
	if (r == 0)
		r = posix_spawn_file_actions_addclosefrom_np(actions, last + 1);
	return r;
}

static int set_attributes(const struct child_options *s, posix_spawnattr_t *attr)
{
	int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF, r;
	sigset_t none, all;

	sigemptyset(&none);
	sigfillset(&all);
	sigdelset(&all, SIGKILL);
	sigdelset(&all, SIGSTOP);
	r = posix_spawnattr_setsigmask(attr, &none);
	if (r == 0)
		r = posix_spawnattr_setsigdefault(attr, &all);
	if (r == 0 && s->own_group) {
		flags |= POSIX_SPAWN_SETPGROUP;
		r = posix_spawnattr_setpgroup(attr, 0);
	}
	return r == 0 ? posix_spawnattr_setflags(attr, (short)flags) : r;
}

int child_start(const struct child_options *s, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	pid_t pid = 0;
	int r;

	r = posix_spawn_file_actions_init(&actions);
	if (r != 0)
		return -r;
	r = posix_spawnattr_init(&attr);
	if (r != 0) {
		posix_spawn_file_actions_destroy(&actions);
		return -r;
	}
	r = add_descriptors(s, &actions);
	if (r == 0)
		r = set_attributes(s, &attr);
	if (r == 0)
		r = posix_spawnp(&pid, s->path, &actions, &attr, s->argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	if (r == 0)
		*ret_pid = pid;
	return -r;
}
