/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metrics.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

enum metric_kind {
	METRIC_COUNTER,
	METRIC_GAUGE,
	METRIC_HISTOGRAM,
};

struct series {
	char *values[METRIC_LABELS_MAX];
	double value;	  /* of a histogram: the sum */
	uint64_t n;	  /* histogram: number of observations */
	uint64_t *counts; /* histogram: per bucket, not added up; NULL otherwise */
};

struct metric {
	struct metrics *registry;
	enum metric_kind kind;
	const char *name;
	const char *help;
	const char *label_names[METRIC_LABELS_MAX];
	unsigned n_labels;
	double buckets[METRIC_BUCKETS_MAX];
	unsigned n_buckets;
	struct series *series;
	unsigned n_series;
};

struct metrics {
	struct metric *families[METRIC_FAMILIES_MAX];
	unsigned n_families;
	uint64_t dropped;
	bool failed;
};

struct metrics *metrics_new(void)
{
	return calloc(1, sizeof(struct metrics));
}

static void series_done(struct series *s)
{
	for (unsigned i = 0; i < METRIC_LABELS_MAX; i++)
		free(s->values[i]);
	free(s->counts);
}

void metric_clear(struct metric *f)
{
	if (!f)
		return;
	for (unsigned i = 0; i < f->n_series; i++)
		series_done(&f->series[i]);
	free(f->series);
	f->series = NULL;
	f->n_series = 0;
}

struct metrics *metrics_free(struct metrics *m)
{
	if (!m)
		return NULL;
	for (unsigned i = 0; i < m->n_families; i++) {
		metric_clear(m->families[i]);
		free(m->families[i]);
	}
	free(m);
	return NULL;
}

static struct metric *declare(struct metrics *m, enum metric_kind kind, const char *name,
			      const char *help, const char *const label_names[], unsigned n_labels)
{
	struct metric *f;

	assert(n_labels <= METRIC_LABELS_MAX);
	assert(m->n_families < METRIC_FAMILIES_MAX);
	/* A name that is there twice makes the whole page unreadable. */
	for (unsigned i = 0; i < m->n_families; i++)
		assert(strcmp(m->families[i]->name, name) != 0);
	f = calloc(1, sizeof *f);
	if (!f) {
		m->failed = true;
		return NULL;
	}
	f->registry = m;
	f->kind = kind;
	f->name = name;
	f->help = help;
	f->n_labels = n_labels;
	for (unsigned i = 0; i < n_labels; i++)
		f->label_names[i] = label_names[i];
	m->families[m->n_families++] = f;
	return f;
}

struct metric *metrics_counter(struct metrics *m, const char *name, const char *help,
			       const char *const label_names[], unsigned n_labels)
{
	return declare(m, METRIC_COUNTER, name, help, label_names, n_labels);
}

struct metric *metrics_gauge(struct metrics *m, const char *name, const char *help,
			     const char *const label_names[], unsigned n_labels)
{
	return declare(m, METRIC_GAUGE, name, help, label_names, n_labels);
}

struct metric *metrics_histogram(struct metrics *m, const char *name, const char *help,
				 const char *const label_names[], unsigned n_labels,
				 const double buckets[], unsigned n_buckets)
{
	struct metric *f;

	assert(n_buckets <= METRIC_BUCKETS_MAX);
	for (unsigned i = 1; i < n_buckets; i++)
		assert(buckets[i - 1] < buckets[i]);
	f = declare(m, METRIC_HISTOGRAM, name, help, label_names, n_labels);
	if (!f)
		return NULL;
	memcpy(f->buckets, buckets, n_buckets * sizeof *buckets);
	f->n_buckets = n_buckets;
	return f;
}

/* The form in which a value is stored, compared and printed (but for escapes). Two values that
 * differ only in what is replaced are one series: the same line twice would spoil the page. */
static void clean_value(const char *value, char ret[static METRIC_VALUE_MAX])
{
	size_t len;

	str_copy_cut(ret, METRIC_VALUE_MAX, value);
	len = strlen(ret);
	for (size_t start = 0; start < len;) {
		size_t n = strcspn(ret + start, "\n");

		str_sanitize(ret + start, n);
		start += n + 1;
	}
}

static bool series_matches(const struct metric *f, const struct series *s,
			   char values[METRIC_LABELS_MAX][METRIC_VALUE_MAX])
{
	for (unsigned i = 0; i < f->n_labels; i++)
		if (strcmp(s->values[i], values[i]) != 0)
			return false;
	return true;
}

static struct series *add_series(struct metric *f, char values[METRIC_LABELS_MAX][METRIC_VALUE_MAX])
{
	struct series fresh = { 0 };
	struct series *grown;

	grown = reallocarray(f->series, f->n_series + 1, sizeof *grown);
	if (!grown)
		return NULL;
	f->series = grown;
	for (unsigned i = 0; i < f->n_labels; i++) {
		fresh.values[i] = strdup(values[i]);
		if (!fresh.values[i])
			goto fail;
	}
	if (f->kind == METRIC_HISTOGRAM) {
		fresh.counts = calloc(METRIC_BUCKETS_MAX, sizeof *fresh.counts);
		if (!fresh.counts)
			goto fail;
	}
	f->series[f->n_series] = fresh;
	return &f->series[f->n_series++];
fail:
	series_done(&fresh);
	return NULL;
}

/* The series of these values, made if need be; NULL when there is no room for it. */
static struct series *find_series(struct metric *f, const char *const label_values[])
{
	char values[METRIC_LABELS_MAX][METRIC_VALUE_MAX];
	struct series *s = NULL;

	for (unsigned i = 0; i < f->n_labels; i++)
		clean_value(label_values[i], values[i]);
	for (unsigned i = 0; i < f->n_series; i++)
		if (series_matches(f, &f->series[i], values))
			return &f->series[i];
	if (f->n_series < METRIC_SERIES_MAX)
		s = add_series(f, values);
	if (!s)
		f->registry->dropped++;
	return s;
}

void metric_add(struct metric *f, const char *const label_values[], double v)
{
	struct series *s;

	if (!f)
		return;
	assert(f->kind == METRIC_GAUGE || (f->kind == METRIC_COUNTER && v >= 0));
	s = find_series(f, label_values);
	if (s)
		s->value += v;
}

void metric_set(struct metric *f, const char *const label_values[], double v)
{
	struct series *s;

	if (!f)
		return;
	assert(f->kind == METRIC_GAUGE);
	s = find_series(f, label_values);
	if (s)
		s->value = v;
}

void metric_observe(struct metric *f, const char *const label_values[], double v)
{
	struct series *s;

	if (!f)
		return;
	assert(f->kind == METRIC_HISTOGRAM);
	s = find_series(f, label_values);
	if (!s)
		return;
	for (unsigned i = 0; i < f->n_buckets; i++) {
		if (v <= f->buckets[i]) {
			s->counts[i]++;
			break;
		}
	}
	s->n++;
	s->value += v;
}

uint64_t metrics_dropped(const struct metrics *m)
{
	return m->dropped;
}

static void render_number(struct buf *out, double v)
{
	char text[32];

	if (isnan(v)) {
		buf_add_str(out, "NaN");
		return;
	}
	if (isinf(v)) {
		buf_add_str(out, v < 0 ? "-Inf" : "+Inf");
		return;
	}
	/* The shortest form that reads back as the same number. */
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(text, sizeof text, "%.*g", digits, v);
		if (strtod(text, NULL) == v)
			break;
	}
	buf_add_str(out, text);
}

static void render_escaped(struct buf *out, const char *text, const char *quote)
{
	for (const char *p = text; *p; p++) {
		if (*p == '\n') {
			buf_add_str(out, "\\n");
			continue;
		}
		if (*p == '\\' || *p == *quote)
			buf_add_char(out, '\\');
		buf_add_char(out, *p);
	}
}

/* NAME<suffix>{labels,le="..."} and a blank. `le` is NULL where there is none. */
static void render_name(struct buf *out, const struct metric *f, const struct series *s,
			const char *suffix, const double *le)
{
	const char *separator = "{";

	buf_add_str(out, f->name);
	buf_add_str(out, suffix);
	for (unsigned i = 0; i < f->n_labels; i++) {
		buf_printf(out, "%s%s=\"", separator, f->label_names[i]);
		render_escaped(out, s->values[i], "\"");
		buf_add_char(out, '"');
		separator = ",";
	}
	if (le) {
		buf_printf(out, "%sle=\"", separator);
		render_number(out, *le);
		buf_add_char(out, '"');
		separator = ",";
	}
	buf_add_str(out, *separator == '{' ? " " : "} ");
}

static void render_histogram(struct buf *out, const struct metric *f, const struct series *s)
{
	const double infinity = INFINITY;
	uint64_t sum = 0;

	for (unsigned i = 0; i < f->n_buckets; i++) {
		sum += s->counts ? s->counts[i] : 0;
		render_name(out, f, s, "_bucket", &f->buckets[i]);
		buf_printf(out, "%ju\n", (uintmax_t)sum);
	}
	render_name(out, f, s, "_bucket", &infinity);
	buf_printf(out, "%ju\n", (uintmax_t)s->n);
	render_name(out, f, s, "_sum", NULL);
	render_number(out, s->value);
	buf_add_char(out, '\n');
	render_name(out, f, s, "_count", NULL);
	buf_printf(out, "%ju\n", (uintmax_t)s->n);
}

static void render_series(struct buf *out, const struct metric *f, const struct series *s)
{
	if (f->kind == METRIC_HISTOGRAM) {
		render_histogram(out, f, s);
		return;
	}
	render_name(out, f, s, "", NULL);
	render_number(out, s->value);
	buf_add_char(out, '\n');
}

static void render_family(struct buf *out, const struct metric *f)
{
	static const char *const types[] = {
		[METRIC_COUNTER] = "counter",
		[METRIC_GAUGE] = "gauge",
		[METRIC_HISTOGRAM] = "histogram",
	};

	buf_printf(out, "# HELP %s ", f->name);
	render_escaped(out, f->help, "");
	buf_printf(out, "\n# TYPE %s %s\n", f->name, types[f->kind]);
	for (unsigned i = 0; i < f->n_series; i++)
		render_series(out, f, &f->series[i]);
	if (f->n_series == 0 && f->n_labels == 0)
		render_series(out, f, &(struct series){ 0 });
}

int metrics_render(const struct metrics *m, struct buf *out)
{
	if (m->failed)
		return -ENOMEM;
	for (unsigned i = 0; i < m->n_families; i++)
		render_family(out, m->families[i]);
	return buf_finish(out);
}
