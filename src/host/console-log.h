/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One followed console log over the files that bear its name in the course of time: created late,
 * rotated by renaming or by copying and truncating, replaced, removed. Runs in the tail thread and
 * knows no other.
 *
 * A renamed file is read to its end by its descriptor, a truncated one from the copy at "<path>.1"
 * if that is a copy of what was read; then the file that bears the name now, from 0. An older ".1"
 * is never read: it may be of an earlier assignment. Of two rotations between two looks the file in
 * the middle is lost.
 */
#pragma once

#include "base/error.h"
#include "host/console-stream.h"

struct console_file {
	dev_t dev;
	ino_t ino; /* 0: none */
};

struct console_log {
	char *path;
	const char *const *dirs; /* borrowed */
	size_t n_dirs;
	struct console_stream current; /* the file that bears the name, as seen last */
	struct console_stream
		old;	  /* the one before it, while something may still be written there */
	bool old_drained; /* read to its end once */
	uint64_t old_until_usec;
	bool begun;		   /* `spent` is known */
	struct console_file spent; /* the ".1" that may not be read (again) */
	bool look_at_path;	   /* the name may belong to another file */
	bool in_pass;
	bool handed;	   /* a line in this pass */
	uint64_t pass_end; /* size of `current` when the pass began */
	struct stat seen;  /* of `current` */
	int path_error;	   /* of the last look at the name */
	int trouble;	   /* code told last; 0: none */
};

int console_log_init(struct console_log *l, const char *const dirs[], size_t n_dirs,
		     const char *path) _must_check_; /* -ENOMEM */
void console_log_done(struct console_log *l);

enum console_turn {
	CONSOLE_TURN_QUIET, /* nothing new */
	CONSOLE_TURN_DONE,  /* all that was there when the pass began has been read */
	CONSOLE_TURN_MORE,  /* it has been read in part */
};

struct console_turn_result {
	bool pass_ended; /* one in which lines were found */
	bool opened;	 /* `current` is another file */
	bool trouble_changed;
	struct error trouble; /* code 0: over */
};

/* Reads at most `blocks` blocks, and no further once there are `lines_max` bytes in r->lines. Files
 * of which nothing came for `linger_usec` are let go. */
enum console_turn console_log_turn(struct console_log *l, struct console_reader *r, unsigned blocks,
				   size_t lines_max, uint64_t now_usec, uint64_t linger_usec,
				   struct console_turn_result *ret);
