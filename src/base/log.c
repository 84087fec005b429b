/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/str.h"

static const char *log_program;
static enum log_level log_max = LOG_LEVEL_INFO;
static bool log_journal;

static const char *const level_names[] = {
	[LOG_LEVEL_ERROR] = "error", [LOG_LEVEL_WARNING] = "warning", [LOG_LEVEL_NOTICE] = "notice",
	[LOG_LEVEL_INFO] = "info",   [LOG_LEVEL_DEBUG] = "debug",
};

static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	/* NOLINTNEXTLINE(cert-err34-c): a number too large is not that of standard error either. */
	if (!stream || sscanf(stream, "%llu:%llu", &dev, &ino) != 2)
		return false;
	return fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

void log_init(const char *program, enum log_level max_level)
{
	const char *wanted = getenv("BERTH_LOG_LEVEL");

	log_program = program;
	log_max = max_level;
	for (enum log_level l = LOG_LEVEL_ERROR; wanted && l <= LOG_LEVEL_DEBUG; l++)
		if (strcmp(wanted, level_names[l]) == 0)
			log_max = l;
	log_journal = stderr_is_journal();
}

bool log_enabled(enum log_level level)
{
	return level <= log_max;
}

static size_t prefix(char *line, size_t size, enum log_level level)
{
	struct timespec now;
	struct tm tm;
	int n;

	if (log_journal) {
		n = snprintf(line, size, "<%d>", (int)level);
	} else {
		clock_gettime(CLOCK_REALTIME, &now);
		gmtime_r(&now.tv_sec, &tm);
		n = snprintf(line, size,
			     "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %s%s%s: ", tm.tm_year + 1900,
			     tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
			     now.tv_nsec / 1000000, log_program ? log_program : "",
			     log_program ? " " : "", level_names[level]);
	}
	return n < 0 ? 0 : MIN((size_t)n, size - 1);
}

void log_line(enum log_level level, const char *fmt, ...)
{
	int saved = errno;
	char line[1024];
	size_t start, end;
	va_list ap;
	int n;

	if (!log_enabled(level))
		return;
	start = prefix(line, sizeof line - 1, level);
	va_start(ap, fmt);
	n = vsnprintf(line + start, sizeof line - 1 - start, fmt, ap);
	va_end(ap);
	end = start + (n < 0 ? 0 : MIN((size_t)n, sizeof line - 2 - start));
	str_sanitize(line + start, end - start);
	line[end++] = '\n';
	/* A log that cannot be written has nowhere to be reported. */
	(void)!write(STDERR_FILENO, line, end);
	errno = saved;
}
