/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/terminal.h"

#define QUIET_USEC USEC_PER_SEC

void progress_begin(struct progress *p, const char *fmt, ...)
{
	va_list ap;

	*p = (struct progress){ .on = isatty(STDERR_FILENO) && terminal_is_smart(),
				.begun_usec = clock_now_usec() };
	va_start(ap, fmt);
	vsnprintf(p->text, sizeof p->text, fmt, ap);
	va_end(ap);
	terminal_make_safe(p->text);
}

void progress_tick(void *progress)
{
	struct progress *p = progress;
	uint64_t passed = clock_now_usec() - p->begun_usec;
	struct winsize size;

	if (!p->on || passed < QUIET_USEC)
		return;
	/* A line that wraps could not be written over. */
	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
		size.ws_col = 80;
	if (terminal_width(p->text) + 12 > size.ws_col)
		return;
	fprintf(stderr, "\r\033[K%s, %llu s", p->text, (unsigned long long)(passed / USEC_PER_SEC));
	p->shown = true;
}

void progress_clear(struct progress *p)
{
	if (p->shown)
		fputs("\r\033[K", stderr);
	p->shown = false;
}
