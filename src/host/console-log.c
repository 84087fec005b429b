/* SPDX-License-Identifier: Apache-2.0 */
#include "host/console-log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "host/console-path.h"

int console_log_init(struct console_log *l, const char *const dirs[], size_t n_dirs,
		     const char *path)
{
	*l = (struct console_log){
		.dirs = dirs,
		.n_dirs = n_dirs,
		.current = CONSOLE_STREAM_INIT,
		.old = CONSOLE_STREAM_INIT,
		.look_at_path = true,
	};
	l->path = strdup(path);
	return l->path ? 0 : -ENOMEM;
}

void console_log_done(struct console_log *l)
{
	console_stream_done(&l->current);
	console_stream_done(&l->old);
	free(l->path);
	l->path = NULL;
}

static void tell_trouble(struct console_log *l, int r, struct console_turn_result *ret)
{
	int code = r < 0 ? -r : -l->path_error;

	if (code == l->trouble)
		return;
	l->trouble = code;
	ret->trouble_changed = true;
	ret->trouble = ERROR_INIT;
	if (code)
		(void)error_set_errno(&ret->trouble, code, "console log '%s'", l->path);
}

/* What is read from now on comes from `next`; the file before it lingers. */
static void make_old(struct console_log *l, struct console_stream *next, uint64_t until_usec)
{
	console_stream_done(&l->old);
	l->old = l->current;
	if (l->old.fd >= 0)
		l->spent = (struct console_file){ l->old.dev, l->old.ino };
	l->old_drained = false;
	l->old_until_usec = until_usec;
	l->current = *next;
	*next = CONSOLE_STREAM_INIT;
	memset(&l->seen, 0, sizeof l->seen);
}

/* A descriptor of the ".1", -ENOENT when there is none. */
static int open_first(const struct console_log *l, struct stat *ret_st)
{
	_free_ char *name = str_printf("%s.1", l->path);
	int fd, r;

	if (!name)
		return -ENOMEM;
	r = console_open(l->dirs, l->n_dirs, name, ret_st, &fd);
	return r < 0 ? r : fd;
}

static int begin(struct console_log *l)
{
	struct stat st;
	_close_ int fd = open_first(l, &st);

	if (fd == -ENOMEM)
		return fd;
	if (fd >= 0)
		l->spent = (struct console_file){ st.st_dev, st.st_ino };
	l->begun = true;
	return 0;
}

/* The file that bears the name is known by what fstat says of the open descriptor, never by a stat
 * of the name: between the two it may have been replaced. */
static int look_at_path(struct console_log *l, size_t line_max, uint64_t until_usec,
			bool *ret_opened)
{
	struct console_stream next = CONSOLE_STREAM_INIT;
	_close_ int fd = -1;
	struct stat st;
	int r = console_open(l->dirs, l->n_dirs, l->path, &st, &fd);

	/* Not there yet, or between two rotations: no error, and what is open is read on. */
	if (r == -ENOENT)
		return 0;
	if (r < 0 || console_stream_is_file(&l->current, &st))
		return r;
	r = console_stream_start(&next, fd, &st, line_max);
	if (r < 0)
		return r;
	(void)TAKE_FD(fd);
	make_old(l, &next, until_usec);
	*ret_opened = true;
	return 0;
}

/* The current file was emptied: it is read from 0, but first the rest from the copy that rotation
 * made. */
static int start_over(struct console_log *l, size_t line_max, uint64_t until_usec)
{
	struct console_stream next = CONSOLE_STREAM_INIT;
	struct stat st;
	_close_ int copy = open_first(l, &st);
	int r;

	if (copy < 0 || (st.st_dev == l->spent.dev && st.st_ino == l->spent.ino) ||
	    console_stream_matches(&l->current, copy) != 1) {
		console_stream_restart(&l->current);
		return 0;
	}
	r = console_stream_start(&next, l->current.fd, &l->seen, line_max);
	if (r < 0)
		return r;
	make_old(l, &next, until_usec);
	l->old.fd = TAKE_FD(copy);
	l->old.dev = st.st_dev;
	l->old.ino = st.st_ino;
	l->spent = (struct console_file){ st.st_dev, st.st_ino };
	return 0;
}

static bool is_touched(const struct stat *a, const struct stat *b)
{
	return a->st_size != b->st_size || a->st_mtim.tv_sec != b->st_mtim.tv_sec ||
	       a->st_mtim.tv_nsec != b->st_mtim.tv_nsec;
}

/* Whether the current file still is what was read of it, and how far there is to read. -EBUSY: not
 * before the old one has been read. */
static int look_at_current(struct console_log *l, size_t line_max, uint64_t until_usec,
			   bool old_waits)
{
	struct stat st;
	bool touched;
	int r;

	if (fstat(l->current.fd, &st) < 0)
		return -errno;
	touched = is_touched(&st, &l->seen);
	l->seen = st;
	if (!touched)
		return 0;
	/* A shorter file cannot match. */
	r = console_stream_matches(&l->current, l->current.fd);
	if (r == 0 && old_waits)
		r = -EBUSY;
	if (r == 0)
		r = start_over(l, line_max, until_usec);
	l->seen = st;
	if (r < 0)
		l->seen.st_size = -1; /* looked at again next time */
	return MIN(r, 0);
}

static bool has_more(const struct console_stream *s)
{
	struct stat st;

	return s->fd >= 0 && fstat(s->fd, &st) == 0 && (uint64_t)st.st_size > s->offset;
}

static int begin_pass(struct console_log *l, size_t line_max, uint64_t now_usec,
		      uint64_t linger_usec, struct console_turn_result *ret)
{
	uint64_t until_usec = now_usec + linger_usec;
	/* Only one file waits behind the current one, so it is read before another takes its place.
	 */
	bool old_waits = !l->old_drained && has_more(&l->old);
	int r = 0;

	if (!l->begun)
		r = begin(l);
	if (r < 0)
		return r;
	if (l->look_at_path && !old_waits) {
		l->path_error = look_at_path(l, line_max, until_usec, &ret->opened);
		l->look_at_path = false;
	}
	if (l->current.fd >= 0)
		r = look_at_current(l, line_max, until_usec, old_waits);
	l->pass_end = l->current.fd >= 0 && r == 0 ? (uint64_t)l->seen.st_size : 0;
	l->in_pass = has_more(&l->old) || l->current.offset < l->pass_end;
	if (!l->in_pass && now_usec >= l->old_until_usec)
		console_stream_done(&l->old);
	return r == -EBUSY ? 0 : r;
}

/* Bytes read; 0 when the pass is at its end. */
static ssize_t read_block(struct console_log *l, struct console_reader *r, uint64_t until_usec)
{
	ssize_t n = 0;

	if (l->old.fd >= 0) {
		n = console_stream_read(&l->old, UINT64_MAX, r);
		if (n > 0) {
			l->old_until_usec = until_usec;
			return n;
		}
		l->old_drained = true;
		if (n < 0)
			console_stream_done(&l->old);
	}
	return l->current.fd >= 0 ? console_stream_read(&l->current, l->pass_end, r) : 0;
}

enum console_turn console_log_turn(struct console_log *l, struct console_reader *r, unsigned blocks,
				   size_t lines_max, uint64_t now_usec, uint64_t linger_usec,
				   struct console_turn_result *ret)
{
	ssize_t n = 1;

	*ret = (struct console_turn_result){ 0 };
	if (!l->in_pass) {
		int begun = begin_pass(l, r->line_max, now_usec, linger_usec, ret);

		if (!l->in_pass) {
			tell_trouble(l, begun, ret);
			return CONSOLE_TURN_QUIET;
		}
	}
	while (n > 0 && blocks-- > 0 && r->lines.len < lines_max)
		n = read_block(l, r, now_usec + linger_usec);
	l->handed = l->handed || r->lines.len > 0;
	if (n > 0)
		return CONSOLE_TURN_MORE;
	tell_trouble(l, (int)n, ret);
	ret->pass_ended = l->handed;
	l->handed = false;
	l->in_pass = false;
	/* A log that cannot be read is not tried again before something happens. */
	return n < 0 ? CONSOLE_TURN_QUIET : CONSOLE_TURN_DONE;
}
