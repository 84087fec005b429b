/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int positive(int code)
{
	return code < 0 ? -code : code;
}

int error_set(struct error *e, int code, const char *fmt, ...)
{
	if (e) {
		va_list ap;

		e->code = positive(code);
		va_start(ap, fmt);
		vsnprintf(e->msg, sizeof e->msg, fmt, ap);
		va_end(ap);
	}
	return -positive(code);
}

int error_set_errno(struct error *e, int code, const char *fmt, ...)
{
	if (e) {
		char text[160];
		va_list ap;

		e->code = positive(code);
		va_start(ap, fmt);
		vsnprintf(text, sizeof text, fmt, ap);
		va_end(ap);
		snprintf(e->msg, sizeof e->msg, "%s: %s", text,
			 strerrordesc_np(positive(code)) ?: "unknown error");
	}
	return -positive(code);
}

int error_wrap(struct error *e, const char *fmt, ...)
{
	char text[sizeof e->msg];
	char old[sizeof e->msg];
	va_list ap;

	if (!e)
		return -ENOTRECOVERABLE;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	memcpy(old, e->msg, sizeof old);
	/* Cutting a sentence that is too long is what a fixed carrier is for. */
	if (snprintf(e->msg, sizeof e->msg, "%.110s: %.120s", text, old) < 0)
		e->msg[0] = '\0';
	return -e->code;
}

const char *error_text(const struct error *e)
{
	if (!e || !e->msg[0])
		return "no further explanation";
	return e->msg;
}
