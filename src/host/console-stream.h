/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of one console log, taken apart into lines.
 *
 * A stream knows how far it has read and what it saw there: a fingerprint of the file's head and
 * its last bytes before the offset. So it can tell whether a file still is the one it has read, or
 * was emptied and written anew, even past the offset. It cannot tell when the new content has the
 * same first CONSOLE_HEAD_MAX bytes and the same CONSOLE_RECENT_MAX bytes before the offset; such a
 * log is read on from there.
 *
 * Lines are looked for only where the needle is, so the cost is that of a memmem over the bytes.
 * NULs are bytes like others, but at the start of a file, where a writer that was not told of a
 * truncation leaves a hole as long as its old offset, they are passed over.
 */
#pragma once

#include <sys/stat.h>

#include "base/buf.h"

#define CONSOLE_HEAD_MAX   1024
#define CONSOLE_RECENT_MAX 64
#define CONSOLE_BLOCK	   8192

/* What all streams of one reader share. */
struct console_reader {
	size_t line_max; /* longer lines are thrown away to their end */
	const char *needle;
	size_t needle_len;
	struct buf lines; /* those found: a uint32_t with the length, the bytes */
	char block[CONSOLE_BLOCK];
};

struct console_stream {
	int fd; /* -1: none; owned */
	dev_t dev;
	ino_t ino;
	uint64_t offset; /* of the next byte to read */
	uint64_t head_hash;
	size_t head_len;
	size_t recent_len;
	char recent[CONSOLE_RECENT_MAX];
	bool leading;  /* nothing but NULs so far */
	bool skipping; /* in an over-long line */
	size_t partial_len;
	char *partial; /* a line that has begun; line_max bytes */
};

#define CONSOLE_STREAM_INIT ((struct console_stream){ .fd = -1 })

void console_stream_done(struct console_stream *s);
/* Starts at the beginning of an open file; takes the descriptor. -ENOMEM, and it stays the
 * caller's. */
int console_stream_start(struct console_stream *s, int take_fd, const struct stat *st,
			 size_t line_max) _must_check_;
/* From the beginning of the same file again. */
void console_stream_restart(struct console_stream *s);

static inline bool console_stream_is_file(const struct console_stream *s, const struct stat *st)
{
	return s->fd >= 0 && s->dev == st->st_dev && s->ino == st->st_ino;
}

/* 1: what was read stands in the file of fd; 0: it does not; -errno. */
int console_stream_matches(const struct console_stream *s, int fd) _must_check_;

/* Reads up to one block, not beyond `end`, and adds the lines with the needle to r->lines. Returns
 * the bytes read, 0 at the end, -errno. */
ssize_t console_stream_read(struct console_stream *s, uint64_t end,
			    struct console_reader *r) _must_check_;
