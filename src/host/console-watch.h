/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Word from the kernel that a console log has grown or that its name has gone to another file
 * (inotify).
 *
 * Saves looking, and nothing more: what cannot be watched, or what the file system does not tell,
 * is found at the next scan. A file's watch fires once and is armed again when the file is quiet,
 * so that a log that grows all the time costs no events. Belongs to the tail thread.
 */
#pragma once

#include "host/console-log.h"

struct console_watch {
	int file; /* watch descriptors, or -1 */
	int folder;
};

#define CONSOLE_WATCH_INIT ((struct console_watch){ -1, -1 })

/* Both return whether a watch was set that was not there before: look once more, then sleep. */
bool console_watch_file(int inotify_fd, struct console_watch *w, const struct console_log *l);
bool console_watch_folder(int inotify_fd, struct console_watch *w, const struct console_log *l);
