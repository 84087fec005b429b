/* SPDX-License-Identifier: Apache-2.0 */
#include "host/console-stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FNV_START  UINT64_C(0xcbf29ce484222325)
#define FNV_FACTOR UINT64_C(0x100000001b3)

void console_stream_done(struct console_stream *s)
{
	if (s->fd >= 0)
		close(s->fd);
	free(s->partial);
	*s = CONSOLE_STREAM_INIT;
}

void console_stream_restart(struct console_stream *s)
{
	s->offset = 0;
	s->head_hash = FNV_START;
	s->head_len = 0;
	s->recent_len = 0;
	s->leading = true;
	s->skipping = false;
	s->partial_len = 0;
}

int console_stream_start(struct console_stream *s, int take_fd, const struct stat *st,
			 size_t line_max)
{
	char *partial = malloc(line_max);

	if (!partial)
		return -ENOMEM;
	*s = (struct console_stream){
		.fd = take_fd, .dev = st->st_dev, .ino = st->st_ino, .partial = partial
	};
	console_stream_restart(s);
	return 0;
}

/* --- Which file it is ------------------------------------------------------------- */

static uint64_t hash_more(uint64_t hash, const char *data, size_t n)
{
	for (size_t i = 0; i < n; i++)
		hash = (hash ^ (unsigned char)data[i]) * FNV_FACTOR;
	return hash;
}

static ssize_t read_at(int fd, void *buf, size_t n, uint64_t offset)
{
	ssize_t r;

	do
		r = pread(fd, buf, n, (off_t)offset);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r;
}

int console_stream_matches(const struct console_stream *s, int fd)
{
	char buf[CONSOLE_HEAD_MAX];
	ssize_t r = read_at(fd, buf, s->head_len, 0);

	if (r < 0)
		return (int)r;
	if ((size_t)r != s->head_len || hash_more(FNV_START, buf, s->head_len) != s->head_hash)
		return 0;
	r = read_at(fd, buf, s->recent_len, s->offset - s->recent_len);
	if (r < 0)
		return (int)r;
	return (size_t)r == s->recent_len && memcmp(buf, s->recent, s->recent_len) == 0;
}

static void advance(struct console_stream *s, const char *data, size_t n)
{
	if (s->head_len < CONSOLE_HEAD_MAX) {
		size_t more = MIN(n, CONSOLE_HEAD_MAX - s->head_len);

		s->head_hash = hash_more(s->head_hash, data, more);
		s->head_len += more;
	}
	if (n >= CONSOLE_RECENT_MAX) {
		memcpy(s->recent, data + n - CONSOLE_RECENT_MAX, CONSOLE_RECENT_MAX);
		s->recent_len = CONSOLE_RECENT_MAX;
	} else {
		size_t keep = MIN(s->recent_len, CONSOLE_RECENT_MAX - n);

		memmove(s->recent, s->recent + s->recent_len - keep, keep);
		memcpy(s->recent + keep, data, n);
		s->recent_len = keep + n;
	}
	s->offset += n;
}

/* --- Lines ------------------------------------------------------------------------ */

static void add_line(struct console_reader *r, const char *line, size_t n)
{
	uint32_t len = (uint32_t)n;

	buf_add(&r->lines, &len, sizeof len);
	buf_add(&r->lines, line, n);
}

static void add_partial(struct console_stream *s, const struct console_reader *r, const char *data,
			size_t n)
{
	if (s->skipping)
		return;
	if (n > r->line_max - s->partial_len) {
		s->skipping = true;
		s->partial_len = 0;
		return;
	}
	memcpy(s->partial + s->partial_len, data, n);
	s->partial_len += n;
}

/* The end of a line that began in an earlier block. */
static void end_partial(struct console_stream *s, struct console_reader *r, const char *data,
			size_t n)
{
	add_partial(s, r, data, n);
	if (!s->skipping && memmem(s->partial, s->partial_len, r->needle, r->needle_len))
		add_line(r, s->partial, s->partial_len);
	s->skipping = false;
	s->partial_len = 0;
}

/* Whole lines, the last newline included. */
static void find_lines(struct console_reader *r, const char *data, size_t n)
{
	const char *end = data + n;

	while (data < end) {
		const char *hit = memmem(data, (size_t)(end - data), r->needle, r->needle_len);
		const char *start, *stop;

		if (!hit)
			return;
		start = memrchr(data, '\n', (size_t)(hit - data));
		start = start ? start + 1 : data;
		stop = memchr(hit, '\n', (size_t)(end - hit));
		if ((size_t)(stop - start) <= r->line_max)
			add_line(r, start, (size_t)(stop - start));
		data = stop + 1;
	}
}

static void split(struct console_stream *s, struct console_reader *r, const char *data, size_t n)
{
	const char *last;

	if (s->skipping || s->partial_len > 0) {
		const char *newline = memchr(data, '\n', n);

		if (!newline) {
			add_partial(s, r, data, n);
			return;
		}
		end_partial(s, r, data, (size_t)(newline - data));
		n -= (size_t)(newline + 1 - data);
		data = newline + 1;
	}
	last = memrchr(data, '\n', n);
	if (last) {
		find_lines(r, data, (size_t)(last + 1 - data));
		n -= (size_t)(last + 1 - data);
		data = last + 1;
	}
	add_partial(s, r, data, n);
}

ssize_t console_stream_read(struct console_stream *s, uint64_t end, struct console_reader *r)
{
	uint64_t left = end > s->offset ? end - s->offset : 0;
	const char *data = r->block;
	size_t n;
	ssize_t got = read_at(s->fd, r->block, (size_t)MIN(left, (uint64_t)sizeof r->block),
			      s->offset);

	if (got <= 0)
		return got;
	advance(s, data, (size_t)got);
	n = (size_t)got;
	if (s->leading) {
		while (n > 0 && *data == '\0') {
			data++;
			n--;
		}
		s->leading = n == 0;
	}
	split(s, r, data, n);
	return got;
}
