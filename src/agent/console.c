/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/console.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COPIES	    3
#define PATIENCE_MS 5000

void console_timestamp(char ret[static 32])
{
	time_t now = time(NULL);
	struct tm tm;

	gmtime_r(&now, &tm);
	strftime(ret, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static int write_line(int fd, const char *line, size_t n)
{
	while (n > 0) {
		ssize_t r = write(fd, line, n);

		if (r > 0) {
			line += r;
			n -= (size_t)r;
		} else if (r < 0 && errno == EAGAIN) {
			struct pollfd p = { .fd = fd, .events = POLLOUT };

			if (poll(&p, 1, PATIENCE_MS) == 0)
				return -ETIMEDOUT;
		} else if (r < 0 && errno != EINTR) {
			return -errno;
		}
	}
	return 0;
}

static int print(const struct console *c, unsigned copies, const char *text)
{
	char line[1024], when[32];
	time_t now = time(NULL);
	struct tm tm;
	int fd, n, r = 0;

	gmtime_r(&now, &tm);
	strftime(when, sizeof when, "%Y/%m/%d %H:%M:%S", &tm);
	n = snprintf(line, sizeof line, "%s [guest-agent] %s\n", when, text);
	if (n < 0 || (size_t)n >= sizeof line)
		return -ENAMETOOLONG;
	/* Opened for each report: nothing is held open, and a console that was replaced is found.
	 */
	fd = open(c->path, O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	for (unsigned i = 0; r == 0 && i < copies; i++)
		r = write_line(fd, line, (size_t)n);
	close(fd);
	return r;
}

int console_failed_marker(const struct console *c, const char *nvrm)
{
	char text[800], when[32];

	console_timestamp(when);
	snprintf(text, sizeof text, "%s-GPU-INIT-FAILED ts=%s nvrm=\"%s\"", c->prefix, when, nvrm);
	return print(c, COPIES, text);
}

int console_ok_marker(const struct console *c)
{
	char text[128], when[32];

	console_timestamp(when);
	snprintf(text, sizeof text, "%s-GPU-INIT-OK ts=%s", c->prefix, when);
	return print(c, COPIES, text);
}

int console_note(const struct console *c, const char *text)
{
	return print(c, 1, text);
}
