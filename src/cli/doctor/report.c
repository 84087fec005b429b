/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/terminal.h"

#define FINDINGS_MAX 2000 /* a host where everything is wrong is still readable */
#define WHAT_MAX     1024
#define INDENT	     4U

void doctor_report_done(struct doctor_report *r)
{
	for (size_t i = 0; i < r->n; i++) {
		free(r->findings[i].subject);
		free(r->findings[i].what);
	}
	free(r->findings);
	for (size_t i = 0; i < DOCTOR_CHECK_COUNT; i++)
		free(r->not_made[i]);
	*r = (struct doctor_report){ 0 };
}

static int reserve(struct doctor_report *r)
{
	struct doctor_finding *more;
	size_t cap = r->cap ? r->cap * 2 : 16;

	if (r->n < r->cap)
		return 0;
	more = reallocarray(r->findings, cap, sizeof *more);
	if (!more)
		return -ENOMEM;
	r->findings = more;
	r->cap = cap;
	return 0;
}

void doctor_report_add(struct doctor_report *r, enum doctor_id id, const char *subject,
		       const char *what, ...)
{
	struct doctor_finding f = { .id = id, .subject = strdup(subject) };
	char text[WHAT_MAX];
	va_list ap;

	va_start(ap, what);
	vsnprintf(text, sizeof text, what, ap);
	va_end(ap);
	str_sanitize(text, strlen(text));
	f.what = strdup(text);
	if (f.subject)
		str_sanitize(f.subject, strlen(f.subject));
	r->worst = MAX(r->worst, doctor_kind(id)->severity);
	if (r->n == FINDINGS_MAX)
		doctor_report_not_made(r, doctor_kind(id)->check,
				       "there are more findings than the %d that are told",
				       FINDINGS_MAX);
	if (!f.subject || !f.what || reserve(r) < 0 || r->n == FINDINGS_MAX) {
		r->failed |= r->n != FINDINGS_MAX;
		free(f.subject);
		free(f.what);
		return;
	}
	r->findings[r->n++] = f;
}

bool doctor_report_has(const struct doctor_report *r, enum doctor_id id, const char *subject)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->findings[i].id == id &&
		    (!subject || strcmp(r->findings[i].subject, subject) == 0))
			return true;
	return false;
}

void doctor_report_made(struct doctor_report *r, enum doctor_check c)
{
	r->made[c] = true;
}

void doctor_report_not_made(struct doctor_report *r, enum doctor_check c, const char *why, ...)
{
	char text[WHAT_MAX];
	va_list ap;

	if (r->not_made[c])
		return;
	va_start(ap, why);
	vsnprintf(text, sizeof text, why, ap);
	va_end(ap);
	str_sanitize(text, strlen(text));
	r->not_made[c] = strdup(text);
	r->failed |= !r->not_made[c];
}

int doctor_report_exit_status(const struct doctor_report *r)
{
	return r->worst == DOCTOR_ERROR	    ? DOCTOR_EXIT_ERROR
	       : r->worst == DOCTOR_WARNING ? DOCTOR_EXIT_WARNING
					    : 0;
}

/* --- What both forms say --------------------------------------------------------------------- */

/* "ok", "finding" or "skipped"; ret_why is NULL where all was looked at. A check that was made in
 * part and found nothing is skipped, with the reason. */
static const char *check_state(const struct doctor_report *r, enum doctor_check c,
			       const char **ret_why)
{
	*ret_why = r->not_made[c];
	for (size_t i = 0; i < r->n; i++)
		if (doctor_kind(r->findings[i].id)->check == c)
			return "finding";
	if (r->not_made[c])
		return "skipped";
	if (r->made[c])
		return "ok";
	*ret_why = "it was not come to";
	return "skipped";
}

/* The steps, with the subject filled in. */
static char *fill_how(const char *how, const char *subject)
{
	_buf_ struct buf out = BUF_INIT;
	char *text;

	for (const char *gap; (gap = strstr(how, "{}")); how = gap + 2) {
		buf_add(&out, how, (size_t)(gap - how));
		buf_add_str(&out, subject);
	}
	buf_add_str(&out, how);
	return buf_take(&out, &text, NULL) < 0 ? NULL : text;
}

static unsigned count_severity(const struct doctor_report *r, enum doctor_severity s)
{
	unsigned n = 0;

	for (size_t i = 0; i < r->n; i++)
		n += doctor_kind(r->findings[i].id)->severity == s;
	return n;
}

/* --- JSON ------------------------------------------------------------------------------------ */

static json_t *finding_json(const struct doctor_finding *f)
{
	const struct doctor_kind *k = doctor_kind(f->id);
	_free_ char *how = fill_how(k->how, f->subject);

	return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s}", "id", k->id, "severity",
			 doctor_severity_name(k->severity), "check", doctor_check_id(k->check),
			 "subject", f->subject, "title", k->title, "what", f->what, "why", k->why,
			 "how", how);
}

json_t *doctor_report_json(const struct doctor_report *r)
{
	json_t *findings = json_array(), *list = json_array();
	int failed = r->failed;

	for (int s = DOCTOR_ERROR; s >= DOCTOR_INFO; s--)
		for (size_t i = 0; i < r->n; i++)
			if ((int)doctor_kind(r->findings[i].id)->severity == s)
				failed |= json_array_append_new(findings,
								finding_json(&r->findings[i]));
	for (int c = 0; c < DOCTOR_CHECK_COUNT; c++) {
		const char *why, *state = check_state(r, (enum doctor_check)c, &why);

		failed |= json_array_append_new(
			list,
			json_pack("{s:s,s:s,s:s,s:s?}", "id", doctor_check_id((enum doctor_check)c),
				  "title", doctor_check_title((enum doctor_check)c), "state", state,
				  "reason", why));
	}
	if (!failed)
		return json_pack("{s:s,s:o,s:o}", "version", BERTH_VERSION, "findings", findings,
				 "checks", list);
	json_decref(findings);
	json_decref(list);
	return NULL;
}

json_t *doctor_list_json(void)
{
	json_t *list = json_array();

	for (int i = 0; i < DOCTOR_ID_COUNT; i++) {
		const struct doctor_kind *k = doctor_kind((enum doctor_id)i);

		json_array_append_new(list, json_pack("{s:s,s:s,s:s,s:s,s:s,s:s}", "id", k->id,
						      "severity", doctor_severity_name(k->severity),
						      "check", doctor_check_id(k->check), "title",
						      k->title, "why", k->why, "how", k->how));
	}
	return json_pack("{s:o}", "findings", list);
}

/* --- Text ------------------------------------------------------------------------------------ */

static const char *colour_of(enum doctor_severity s)
{
	switch (s) {
	case DOCTOR_INFO:
		return "\033[1;34m";
	case DOCTOR_WARNING:
		return "\033[1;33m";
	case DOCTOR_ERROR:
		return "\033[1;31m";
	}
	return "";
}

static void add_styled(struct buf *out, const struct terminal *t, const char *style,
		       const char *text)
{
	if (t->colour)
		buf_add_str(out, style);
	buf_add_str(out, text);
	if (t->colour)
		buf_add_str(out, "\033[0m");
}

/* Text broken at blanks; every line but the first begins `indent` columns in. The first one stands
 * at column `at` already. */
static void add_wrapped(struct buf *out, const struct terminal *t, unsigned at, unsigned indent,
			const char *text)
{
	size_t column = at;
	bool first = true;

	while (*text) {
		size_t n = strcspn(text, " "), width;
		char word[WHAT_MAX];

		str_copy_cut(word, MIN(sizeof word, n + 1), text);
		width = terminal_width(word);
		if (!first && column + 1 + width > t->columns) {
			buf_printf(out, "\n%*s", (int)indent, "");
			column = indent;
		} else if (!first) {
			buf_add_char(out, ' ');
			column++;
		}
		buf_add_str(out, word);
		column += width;
		first = false;
		text += n;
		text += strspn(text, " ");
	}
	buf_add_char(out, '\n');
}

/* A step stays on one line, so that it can be copied. */
static void add_steps(struct buf *out, const char *how)
{
	while (*how) {
		size_t n = strcspn(how, "\n");

		buf_printf(out, "%*s", (int)INDENT * 2, "");
		buf_add(out, how, n);
		buf_add_char(out, '\n');
		how += n + (how[n] == '\n');
	}
}

static void add_paragraph(struct buf *out, const struct terminal *t, const char *label,
			  const char *text)
{
	unsigned at = INDENT + (unsigned)strlen(label) + 1;

	buf_printf(out, "%*s", (int)INDENT, "");
	add_styled(out, t, "\033[2m", label);
	buf_add_char(out, ' ');
	add_wrapped(out, t, at, at, text);
}

static void add_finding(struct buf *out, const struct terminal *t, const struct doctor_finding *f)
{
	const struct doctor_kind *k = doctor_kind(f->id);
	const char *severity = doctor_severity_name(k->severity);
	_free_ char *subject = strdup(f->subject), *what = strdup(f->what);
	_free_ char *how = fill_how(k->how, f->subject);

	if (!how || !subject || !what) {
		out->failed = true;
		return;
	}
	terminal_make_safe(subject);
	terminal_make_safe(what);
	add_styled(out, t, colour_of(k->severity), severity);
	buf_printf(out, " %s  ", k->id);
	add_styled(out, t, "\033[1m", subject);
	buf_printf(out, "\n%*s", (int)INDENT, "");
	add_wrapped(out, t, INDENT, INDENT, k->title);
	add_paragraph(out, t, "seen:", what);
	add_paragraph(out, t, "why: ", k->why);
	buf_printf(out, "%*s", (int)INDENT, "");
	add_styled(out, t, "\033[2m", "mend:");
	buf_add_char(out, '\n');
	for (char *c = how; *c; c++)
		if (((unsigned char)*c < 0x20 && *c != '\n') || *c == 0x7f)
			*c = '?';
	add_steps(out, how);
	buf_add_char(out, '\n');
}

static void add_not_made(struct buf *out, const struct terminal *t, const struct doctor_report *r)
{
	bool any = false;

	for (int c = 0; c < DOCTOR_CHECK_COUNT; c++) {
		const char *why;
		_free_ char *text = NULL;

		(void)check_state(r, (enum doctor_check)c, &why);
		if (!why)
			continue;
		if (!any)
			buf_add_str(out, "Not looked at, or not in full:\n");
		any = true;
		text = str_printf("%s: %s", doctor_check_title((enum doctor_check)c), why);
		if (!text) {
			out->failed = true;
			return;
		}
		terminal_make_safe(text);
		buf_printf(out, "  %-10s ", doctor_check_id((enum doctor_check)c));
		add_wrapped(out, t, 13, 13, text);
	}
	if (any)
		buf_add_char(out, '\n');
}

static void add_summary(struct buf *out, const struct terminal *t, const struct doctor_report *r)
{
	unsigned errors = count_severity(r, DOCTOR_ERROR),
		 warnings = count_severity(r, DOCTOR_WARNING),
		 infos = count_severity(r, DOCTOR_INFO);
	unsigned ok = 0, skipped = 0;
	_free_ char *text = NULL, *more = NULL;

	for (int c = 0; c < DOCTOR_CHECK_COUNT; c++) {
		const char *why;

		ok += strcmp(check_state(r, (enum doctor_check)c, &why), "ok") == 0;
		skipped += why != NULL;
	}
	text = str_printf("%u error%s, %u warning%s, %u info; of %d checks %u are ok", errors,
			  errors == 1 ? "" : "s", warnings, warnings == 1 ? "" : "s", infos,
			  DOCTOR_CHECK_COUNT, ok);
	if (text && skipped > 0)
		more = str_printf("%s, %u could not be made in full", text, skipped);
	if (text && (more || skipped == 0))
		add_wrapped(out, t, 0, 0, more ?: text);
	else
		out->failed = true;
}

void doctor_report_text(const struct doctor_report *r, const struct terminal *t, struct buf *out)
{
	for (int s = DOCTOR_ERROR; s >= DOCTOR_INFO; s--)
		for (size_t i = 0; i < r->n; i++)
			if ((int)doctor_kind(r->findings[i].id)->severity == s)
				add_finding(out, t, &r->findings[i]);
	add_not_made(out, t, r);
	add_summary(out, t, r);
	if (r->failed)
		out->failed = true;
}

void doctor_list_text(const struct terminal *t, struct buf *out)
{
	for (int i = 0; i < DOCTOR_ID_COUNT; i++) {
		const struct doctor_kind *k = doctor_kind((enum doctor_id)i);

		buf_printf(out, "%-26s %-8s ", k->id, doctor_severity_name(k->severity));
		add_wrapped(out, t, 36, 36, k->title);
	}
}
