/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines to stderr: one write(2) each, so lines of several threads or processes never mix.
 *
 * Under the journal (JOURNAL_STREAM names stderr) a line starts with "<N>", elsewhere with a UTC
 * time stamp and the level's name. Control characters and bytes that are no UTF-8 are replaced, so
 * text from outside cannot forge a line. Form: "subject: what happened key=value: cause".
 * Only programs (daemon, helper, plugin, cli, agent, sim) log; libraries return errors.
 */
#pragma once

#include "base/macro.h"

enum log_level {
	LOG_LEVEL_ERROR = 3,
	LOG_LEVEL_WARNING = 4,
	LOG_LEVEL_NOTICE = 5,
	LOG_LEVEL_INFO = 6,
	LOG_LEVEL_DEBUG = 7,
};

/* Call once at start, before threads. The program's name goes in front of each line, unless NULL.
 * BERTH_LOG_LEVEL (error ... debug) in the environment overrides the level. */
void log_init(const char *program, enum log_level max_level);
bool log_enabled(enum log_level level);
void log_line(enum log_level level, const char *fmt, ...) _printf_(2, 3);

#define log_error(...)	 log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_notice(...)	 log_line(LOG_LEVEL_NOTICE, __VA_ARGS__)
#define log_info(...)	 log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)	 log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)
