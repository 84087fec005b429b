/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metrics of berthd (names are an interface). Gauges are filled from memory when a page is
 * asked for; nothing here asks the driver.
 */
#pragma once

#include "base/buf.h"
#include "daemon/node.h"

int node_metrics_start(struct node *n) _must_check_; /* -ENOMEM */

void node_metrics_count_fallback(struct node *n, const char *reason);
void node_metrics_observe_query(struct node *n, const struct nvml_answer *answer);
void node_metrics_count_init_failure(struct node *n);
void node_metrics_count_quarantine(struct node *n);
void node_metrics_count_ignored_marker(struct node *n, const char *reason);
/* When the certificate of the TLS listener ends, seconds since 1970. */
void node_metrics_set_certificate_end(struct node *n, int64_t seconds);
void node_metrics_count_drift(struct node *n);
void node_metrics_count_steer_failure(struct node *n);
/* result: "ok", "released", or the name of an outcome. took_usec 0: not observed. */
void node_metrics_count_claim(struct node *n, const char *result, uint64_t took_usec);
void node_metrics_count_reconcile_failure(struct node *n, const char *stage);

int node_metrics_render(struct node *n, struct buf *out) _must_check_;
