/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/metrics.h"
#include "base/str.h"

#include <cmocka.h>

#define LABELS(...) ((const char *const[]){ __VA_ARGS__ })

static void expect_page(const struct metrics *m, const char *page)
{
	_buf_ struct buf b = BUF_INIT;

	assert_int_equal(metrics_render(m, &b), 0);
	assert_string_equal(b.data, page);
}

static void declared_families_show_without_an_update(void **state)
{
	struct metrics *m = metrics_new();

	(void)state;
	metrics_counter(m, "a_total", "Things.", NULL, 0);
	metrics_gauge(m, "b", "Line\nand \\ and \"quote\".", NULL, 0);
	metrics_counter(m, "c_total", "By reason.", LABELS("reason"), 1);
	metrics_histogram(m, "d_seconds", "Time.", NULL, 0, (const double[]){ 0.5, 1 }, 2);
	expect_page(m, "# HELP a_total Things.\n"
		       "# TYPE a_total counter\n"
		       "a_total 0\n"
		       "# HELP b Line\\nand \\\\ and \"quote\".\n"
		       "# TYPE b gauge\n"
		       "b 0\n"
		       "# HELP c_total By reason.\n"
		       "# TYPE c_total counter\n"
		       "# HELP d_seconds Time.\n"
		       "# TYPE d_seconds histogram\n"
		       "d_seconds_bucket{le=\"0.5\"} 0\n"
		       "d_seconds_bucket{le=\"1\"} 0\n"
		       "d_seconds_bucket{le=\"+Inf\"} 0\n"
		       "d_seconds_sum 0\n"
		       "d_seconds_count 0\n");
	assert_null(metrics_free(m));
	assert_null(metrics_free(NULL));
}

static void adds_and_sets_by_label_values(void **state)
{
	struct metrics *m = metrics_new();
	struct metric *c = metrics_counter(m, "c_total", "C.", LABELS("x"), 1);
	struct metric *g = metrics_gauge(m, "g", "G.", LABELS("x", "y"), 2);

	(void)state;
	metric_add(c, LABELS("one"), 1);
	metric_add(c, LABELS("two"), 0);
	metric_add(c, LABELS("one"), 2.5);
	metric_set(g, LABELS("a", "b"), -3);
	metric_set(g, LABELS("a", ""), 1);
	metric_set(g, LABELS("", "a"), 2);
	metric_add(g, LABELS("a", "b"), 1);
	expect_page(m, "# HELP c_total C.\n# TYPE c_total counter\n"
		       "c_total{x=\"one\"} 3.5\n"
		       "c_total{x=\"two\"} 0\n"
		       "# HELP g G.\n# TYPE g gauge\n"
		       "g{x=\"a\",y=\"b\"} -2\n"
		       "g{x=\"a\",y=\"\"} 1\n"
		       "g{x=\"\",y=\"a\"} 2\n");
	metric_clear(g);
	metric_set(g, LABELS("n", "n"), 7);
	metric_clear(c);
	expect_page(m, "# HELP c_total C.\n# TYPE c_total counter\n"
		       "# HELP g G.\n# TYPE g gauge\n"
		       "g{x=\"n\",y=\"n\"} 7\n");
	metrics_free(m);
}

static void histograms_add_up(void **state)
{
	static const double buckets[] = { 0.1, 1, 10 };
	static const double seen[] = { 0.1, 0.10001, 1, 9.5, 10, 10.5, 1e9, 0 };
	struct metrics *m = metrics_new();
	struct metric *h = metrics_histogram(m, "h", "H.", LABELS("op"), 1, buckets,
					     ARRAY_SIZE(buckets));

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(seen); i++)
		metric_observe(h, LABELS("w"), seen[i]);
	expect_page(m, "# HELP h H.\n# TYPE h histogram\n"
		       "h_bucket{op=\"w\",le=\"0.1\"} 2\n"
		       "h_bucket{op=\"w\",le=\"1\"} 4\n"
		       "h_bucket{op=\"w\",le=\"10\"} 6\n"
		       "h_bucket{op=\"w\",le=\"+Inf\"} 8\n"
		       "h_sum{op=\"w\"} 1000000031.20001\n"
		       "h_count{op=\"w\"} 8\n");
	metrics_free(m);
}

/* F57 */
static void values_from_outside_cannot_spoil_the_page(void **state)
{
	static const struct {
		const char *value, *printed;
	} cases[] = {
		{ "say \"hi\"", "say \\\"hi\\\"" },
		{ "C:\\temp", "C:\\\\temp" },
		{ "two\nlines\n", "two\\nlines\\n" },
		{ "\\n", "\\\\n" },
		{ "caf\xe9", "caf?" },
		{ "caf\xc3\xa9", "caf\xc3\xa9" },
		{ "\xff\xfe", "??" },
		{ "a\rb\x01\x7f", "a?b??" },
		{ "x\"} 1\ny 2", "x\\\"} 1\\ny 2" },
		{ "\xed\xa0\x80", "???" },
		{ "\n\xff\n", "\\n?\\n" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct metrics *m = metrics_new();
		struct metric *g = metrics_gauge(m, "g", "G.", LABELS("x"), 1);
		_buf_ struct buf b = BUF_INIT;

		metric_set(g, LABELS(cases[i].value), 1);
		buf_printf(&b, "# HELP g G.\n# TYPE g gauge\ng{x=\"%s\"} 1\n", cases[i].printed);
		expect_page(m, b.data);
		metrics_free(m);
	}
}

static void what_looks_alike_is_one_series(void **state)
{
	struct metrics *m = metrics_new();
	struct metric *c = metrics_counter(m, "c_total", "C.", LABELS("x"), 1);
	char long_a[600], long_b[600];

	(void)state;
	metric_add(c, LABELS("a\xff"), 1);
	metric_add(c, LABELS("a\xfe"), 1);
	metric_add(c, LABELS("a?"), 1);
	expect_page(m, "# HELP c_total C.\n# TYPE c_total counter\nc_total{x=\"a?\"} 3\n");
	metric_clear(c);

	memset(long_a, 'x', sizeof long_a);
	long_a[sizeof long_a - 1] = '\0';
	strcpy(long_b, long_a);
	long_b[METRIC_VALUE_MAX - 1] = 'y'; /* the first byte that is cut off */
	metric_add(c, LABELS(long_a), 1);
	metric_add(c, LABELS(long_b), 1);
	long_b[METRIC_VALUE_MAX - 2] = 'y'; /* the last that is not */
	metric_add(c, LABELS(long_b), 1);
	{
		_buf_ struct buf b = BUF_INIT;

		assert_int_equal(metrics_render(m, &b), 0);
		assert_non_null(strstr(b.data, "x\"} 2\n"));
		assert_non_null(strstr(b.data, "y\"} 1\n"));
	}
	metrics_free(m);
}

static void a_family_has_room_for_so_many_and_no_more(void **state)
{
	struct metrics *m = metrics_new();
	struct metric *c = metrics_counter(m, "c_total", "C.", LABELS("x"), 1);
	_buf_ struct buf b = BUF_INIT;
	char value[16];

	(void)state;
	for (unsigned i = 0; i < METRIC_SERIES_MAX; i++) {
		snprintf(value, sizeof value, "%u", i);
		metric_add(c, LABELS(value), 1);
	}
	assert_int_equal(metrics_dropped(m), 0);
	metric_add(c, LABELS("one more"), 1);
	metric_add(c, LABELS("one more"), 1);
	metric_add(c, LABELS("0"), 1);
	assert_int_equal(metrics_dropped(m), 2);
	assert_int_equal(metrics_render(m, &b), 0);
	assert_null(strstr(b.data, "one more"));
	assert_non_null(strstr(b.data, "c_total{x=\"0\"} 2\n"));
	assert_non_null(strstr(b.data, "c_total{x=\"255\"} 1\n"));
	metric_clear(c);
	metric_add(c, LABELS("one more"), 1);
	expect_page(m, "# HELP c_total C.\n# TYPE c_total counter\nc_total{x=\"one more\"} 1\n");
	metrics_free(m);
}

static void numbers_read_back_as_they_were(void **state)
{
	static const struct {
		double v;
		const char *text;
	} cases[] = {
		{ 0, "0" },
		{ 1, "1" },
		{ -1.5, "-1.5" },
		{ 0.1, "0.1" },
		{ 123456789, "123456789" },
		{ 4294967296.0, "4294967296" },
		{ 0.1 + 0.2, "0.30000000000000004" },
		{ 1e300, "1e+300" },
		{ (double)INFINITY, "+Inf" },
		{ (double)-INFINITY, "-Inf" },
		{ (double)NAN, "NaN" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct metrics *m = metrics_new();
		_buf_ struct buf b = BUF_INIT;

		metric_set(metrics_gauge(m, "g", "G.", NULL, 0), NULL, cases[i].v);
		buf_printf(&b, "# HELP g G.\n# TYPE g gauge\ng %s\n", cases[i].text);
		expect_page(m, b.data);
		metrics_free(m);
	}
}

static void a_missing_family_takes_updates(void **state)
{
	(void)state;
	metric_add(NULL, NULL, 1);
	metric_set(NULL, NULL, 1);
	metric_observe(NULL, NULL, 1);
	metric_clear(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(declared_families_show_without_an_update),
		cmocka_unit_test(adds_and_sets_by_label_values),
		cmocka_unit_test(histograms_add_up),
		cmocka_unit_test(values_from_outside_cannot_spoil_the_page),
		cmocka_unit_test(what_looks_alike_is_one_series),
		cmocka_unit_test(a_family_has_room_for_so_many_and_no_more),
		cmocka_unit_test(numbers_read_back_as_they_were),
		cmocka_unit_test(a_missing_family_takes_updates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
