/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters, gauges and histograms with labels, printed in Prometheus' text format.
 *
 * A program makes one registry, declares its families once and keeps the handles. Values of labels
 * may come from outside: they are escaped, bytes that are no UTF-8 and control characters are
 * replaced, long ones are cut, and a family holds at most METRIC_SERIES_MAX series; what would be
 * one more, or finds no memory, is counted and dropped. For one thread only.
 *
 * A declaration that fails for want of memory returns NULL and is reported by metrics_render(); a
 * NULL family takes updates and does nothing, so nothing needs to be checked on the way.
 */
#pragma once

#include "base/buf.h"
#include "base/macro.h"

#define METRIC_FAMILIES_MAX 128
#define METRIC_SERIES_MAX   256
#define METRIC_LABELS_MAX   4
#define METRIC_BUCKETS_MAX  24
#define METRIC_VALUE_MAX    256 /* bytes of one label's value with NUL */

struct metrics;
struct metric;

struct metrics *metrics_new(void); /* NULL: out of memory */
struct metrics *metrics_free(struct metrics *m);

/* Names, help and label names are kept, not copied: literals. A family is printed from its
 * declaration on; one without labels shows 0 until it is updated. */
struct metric *metrics_counter(struct metrics *m, const char *name, const char *help,
			       const char *const label_names[], unsigned n_labels);
struct metric *metrics_gauge(struct metrics *m, const char *name, const char *help,
			     const char *const label_names[], unsigned n_labels);
/* Buckets are upper limits, ascending, without +Inf; they are copied. */
struct metric *metrics_histogram(struct metrics *m, const char *name, const char *help,
				 const char *const label_names[], unsigned n_labels,
				 const double buckets[], unsigned n_buckets);

/* label_values in the order of the names; NULL for a family without labels. */
void metric_add(struct metric *f, const char *const label_values[],
		double v); /* counter (v >= 0), gauge */
void metric_set(struct metric *f, const char *const label_values[], double v);	   /* gauge */
void metric_observe(struct metric *f, const char *const label_values[], double v); /* histogram */

/* Drops all series, for a gauge that is about to be filled anew. */
void metric_clear(struct metric *f);

/* Updates that were dropped because their series could not be made. */
uint64_t metrics_dropped(const struct metrics *m);

/* Adds the whole page. -ENOMEM, also when a declaration failed. */
int metrics_render(const struct metrics *m, struct buf *out) _must_check_;
