/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/kmsg.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define RECORDS_AT_ONCE 1000 /* then the loop gets a turn, however fast records come */

/* "PRIORITY,...;": the priority, or -1. Sets *ret_text behind the semicolon. */
static int parse_prefix(const char *line, size_t len, const char **ret_text)
{
	const char *semicolon = memchr(line, ';', len);
	int priority = 0;
	size_t i = 0;

	if (!semicolon)
		return -1;
	for (; i < len && line[i] >= '0' && line[i] <= '9' && i < 5; i++)
		priority = priority * 10 + (line[i] - '0');
	if (i == 0 || line + i >= semicolon || line[i] != ',')
		return -1;
	*ret_text = semicolon + 1;
	return priority;
}

bool kmsg_is_init_failure(const char *line, size_t len, char ret_text[static KMSG_TEXT_MAX])
{
	static const char start[] = "NVRM:", phrase[] = "RmInitAdapter failed!";
	const char *text = NULL;
	int priority = parse_prefix(line, len, &text);
	size_t n;

	if (priority < 0 || priority >= 8) /* facility 0 is the kernel */
		return false;
	n = len - (size_t)(text - line);
	if (n < sizeof start - 1 || memcmp(text, start, sizeof start - 1) != 0 ||
	    !memmem(text, n, phrase, sizeof phrase - 1))
		return false;
	n = MIN(n, (size_t)KMSG_TEXT_MAX - 1);
	for (size_t i = 0; i < n; i++) {
		char c = text[i];

		ret_text[i] = c == '"'		      ? '\''
			      : c < 0x20 || c == 0x7f ? '?'
						      : c; /* bytes above 0x7f are negative */
	}
	ret_text[n] = '\0';
	return true;
}

int kmsg_open(struct kmsg *k)
{
	k->fd = open(k->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	if (k->fd < 0)
		return -errno;
	if (k->opened_before)
		(void)lseek(k->fd, 0, SEEK_END);
	k->opened_before = true;
	return 0;
}

void kmsg_close(struct kmsg *k)
{
	if (k->fd >= 0)
		close(k->fd);
	k->fd = -1;
}

/* A read of the device gives one record; of a pipe it may give several. */
static void look_at(const char *data, size_t len, void (*failed)(const char *text, void *userdata),
		    void *userdata)
{
	char text[KMSG_TEXT_MAX];

	while (len > 0) {
		const char *newline = memchr(data, '\n', len);
		size_t n = newline ? (size_t)(newline - data) : len;

		if (n > 0 && data[0] != ' ' && kmsg_is_init_failure(data, n, text))
			failed(text, userdata);
		n += newline != NULL;
		data += n;
		len -= n;
	}
}

int kmsg_read(struct kmsg *k, void (*failed)(const char *text, void *userdata), void *userdata)
{
	static char record[KMSG_RECORD_MAX];
	int overwritten = 0;

	for (unsigned i = 0; i < RECORDS_AT_ONCE; i++) {
		ssize_t n = read(k->fd, record, sizeof record);

		if (n > 0) {
			look_at(record, (size_t)n, failed, userdata);
			continue;
		}
		if (n == 0)
			return -EPIPE; /* the other end of a pipe is gone; the device never says so
					*/
		if (errno == EAGAIN)
			return overwritten;
		if (errno == EPIPE)
			overwritten = 1; /* the next read goes on behind the gap */
		else if (errno != EINTR &&
			 errno != EINVAL) /* EINVAL: a record above the buffer was passed over */
			return -errno;
	}
	return overwritten;
}
