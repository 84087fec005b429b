/* SPDX-License-Identifier: Apache-2.0 */
#include "host/console-watch.h"

#include <stdio.h>
#include <sys/inotify.h>

#include "base/cleanup.h"
#include "host/console-path.h"

/* By descriptor, as a path might lead elsewhere by now. */
static int watch_fd(int inotify_fd, int fd, uint32_t mask)
{
	char path[32];

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return inotify_add_watch(inotify_fd, path, mask);
}

bool console_watch_file(int inotify_fd, struct console_watch *w, const struct console_log *l)
{
	if (inotify_fd < 0 || w->file >= 0 || l->current.fd < 0)
		return false;
	w->file = watch_fd(inotify_fd, l->current.fd, IN_MODIFY | IN_ONESHOT);
	return w->file >= 0;
}

bool console_watch_folder(int inotify_fd, struct console_watch *w, const struct console_log *l)
{
	_close_ int folder = -1;
	int before = w->folder;

	if (inotify_fd < 0)
		return false;
	w->folder = -1;
	if (console_open_folder(l->dirs, l->n_dirs, l->path, &folder) == 0)
		w->folder = watch_fd(inotify_fd, folder, IN_CREATE | IN_MOVED_TO | IN_ONLYDIR);
	return w->folder >= 0 && w->folder != before;
}
