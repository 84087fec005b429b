/* SPDX-License-Identifier: Apache-2.0 */
#include "model/health.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

void health_done(struct health *h)
{
	for (unsigned i = 0; i < h->n; i++)
		free(h->records[i].failures);
	free(h->records);
	*h = (struct health){ 0 };
}

/* Index of the VF, or where it belongs. */
static unsigned find_index(const struct health *h, struct pci_addr vf, bool *ret_found)
{
	unsigned low = 0, high = h->n;

	while (low < high) {
		unsigned middle = (low + high) / 2;
		int order = pci_addr_compare(h->records[middle].vf, vf);

		if (order == 0) {
			*ret_found = true;
			return middle;
		}
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	*ret_found = false;
	return low;
}

const struct health_record *health_find(const struct health *h, struct pci_addr vf)
{
	bool found;
	unsigned i = find_index(h, vf, &found);

	return found ? &h->records[i] : NULL;
}

bool health_is_quarantined(const struct health *h, struct pci_addr vf)
{
	const struct health_record *r = health_find(h, vf);

	return r && r->quarantined_at[0];
}

unsigned health_count_quarantined(const struct health *h)
{
	unsigned n = 0;

	for (unsigned i = 0; i < h->n; i++)
		n += h->records[i].quarantined_at[0] != '\0';
	return n;
}

static bool record_equal(const struct health_record *a, const struct health_record *b)
{
	if (!pci_addr_equal(a->vf, b->vf) || a->n_failures != b->n_failures ||
	    strcmp(a->quarantined_at, b->quarantined_at) != 0)
		return false;
	for (unsigned i = 0; i < a->n_failures; i++) {
		const struct health_failure *x = &a->failures[i], *y = &b->failures[i];

		if (strcmp(x->instance_id, y->instance_id) != 0 ||
		    strcmp(x->assigned_at, y->assigned_at) != 0 ||
		    strcmp(x->reported_at, y->reported_at) != 0)
			return false;
	}
	return true;
}

bool health_equal(const struct health *a, const struct health *b)
{
	if (a->n != b->n)
		return false;
	for (unsigned i = 0; i < a->n; i++)
		if (!record_equal(&a->records[i], &b->records[i]))
			return false;
	return true;
}

static int copy_record(const struct health_record *from, struct health_record *ret)
{
	*ret = *from;
	ret->failures = NULL;
	if (from->n_failures == 0)
		return 0;
	ret->failures = calloc(from->n_failures, sizeof *ret->failures);
	if (!ret->failures)
		return -ENOMEM;
	memcpy(ret->failures, from->failures, from->n_failures * sizeof *ret->failures);
	return 0;
}

int health_copy(const struct health *from, struct health *ret)
{
	struct health copy = { 0 };

	copy.records = calloc(MAX(from->n, 1U), sizeof *copy.records);
	if (!copy.records)
		return -ENOMEM;
	for (; copy.n < from->n; copy.n++) {
		if (copy_record(&from->records[copy.n], &copy.records[copy.n]) < 0) {
			health_done(&copy);
			return -ENOMEM;
		}
	}
	*ret = copy;
	return 0;
}

/* The record of a VF, made if there is none. NULL: no memory, or too many. */
static struct health_record *get_record(struct health *h, struct pci_addr vf)
{
	struct health_record *more;
	bool found;
	unsigned at = find_index(h, vf, &found);

	if (found)
		return &h->records[at];
	if (h->n == HEALTH_RECORDS_MAX)
		return NULL;
	more = reallocarray(h->records, h->n + 1, sizeof *more);
	if (!more)
		return NULL;
	h->records = more;
	memmove(more + at + 1, more + at, (h->n - at) * sizeof *more);
	more[at] = (struct health_record){ .vf = vf };
	h->n++;
	return &more[at];
}

static void drop_record(struct health *h, const struct health_record *record)
{
	unsigned at = (unsigned)(record - h->records);

	free(h->records[at].failures);
	h->n--;
	memmove(h->records + at, h->records + at + 1, (h->n - at) * sizeof *h->records);
}

/* Distinct assignments among the failures; one whose file names none counts by itself. */
static unsigned distinct_assignments(const struct health_record *r)
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->n_failures; i++) {
		const struct health_failure *f = &r->failures[i];
		bool seen = false;

		for (unsigned k = 0; k < i && !seen; k++)
			seen = (f->instance_id[0] || f->assigned_at[0]) &&
			       strcmp(f->instance_id, r->failures[k].instance_id) == 0 &&
			       strcmp(f->assigned_at, r->failures[k].assigned_at) == 0;
		n += !seen;
	}
	return n;
}

static bool is_enough(const struct health_record *r, unsigned threshold)
{
	return r->n_failures >= HEALTH_FAILURES_MAX || distinct_assignments(r) >= threshold;
}

int health_report_failure(struct health *h, struct pci_addr vf, const char *instance_id,
			  const char *assigned_at, const char *now, unsigned threshold,
			  enum health_change *ret)
{
	struct health_record *r = get_record(h, vf);
	struct health_failure *more;

	if (!r)
		return h->n == HEALTH_RECORDS_MAX ? -E2BIG : -ENOMEM;
	*ret = HEALTH_UNCHANGED;
	if (r->quarantined_at[0])
		return 0;
	for (unsigned i = 0; i < r->n_failures; i++)
		if (strcmp(r->failures[i].instance_id, instance_id) == 0 &&
		    strcmp(r->failures[i].assigned_at, assigned_at) == 0)
			return 0;
	if (r->n_failures < HEALTH_FAILURES_MAX) {
		more = reallocarray(r->failures, r->n_failures + 1, sizeof *more);
		if (!more) {
			if (r->n_failures == 0)
				drop_record(h, r);
			return -ENOMEM;
		}
		r->failures = more;
		more += r->n_failures++;
		str_copy_cut(more->instance_id, sizeof more->instance_id, instance_id);
		str_copy_cut(more->assigned_at, sizeof more->assigned_at, assigned_at);
		str_copy_cut(more->reported_at, sizeof more->reported_at, now);
	}
	*ret = HEALTH_FAILURE;
	if (is_enough(r, threshold)) {
		str_copy_cut(r->quarantined_at, sizeof r->quarantined_at, now);
		*ret = HEALTH_QUARANTINED;
	}
	return 0;
}

enum health_change health_report_success(struct health *h, struct pci_addr vf)
{
	const struct health_record *r = health_find(h, vf);

	if (!r || r->quarantined_at[0])
		return HEALTH_UNCHANGED;
	drop_record(h, r);
	return HEALTH_CLEARED;
}

int health_quarantine(struct health *h, struct pci_addr vf, const char *now,
		      enum health_change *ret)
{
	struct health_record *r = get_record(h, vf);

	if (!r)
		return h->n == HEALTH_RECORDS_MAX ? -E2BIG : -ENOMEM;
	*ret = HEALTH_UNCHANGED;
	if (r->quarantined_at[0])
		return 0;
	str_copy_cut(r->quarantined_at, sizeof r->quarantined_at, now);
	*ret = HEALTH_QUARANTINED;
	return 0;
}

enum health_change health_clear(struct health *h, struct pci_addr vf)
{
	const struct health_record *r = health_find(h, vf);

	if (!r)
		return HEALTH_UNCHANGED;
	drop_record(h, r);
	return HEALTH_CLEARED;
}

unsigned health_apply_threshold(struct health *h, unsigned threshold, const char *now)
{
	unsigned n = 0;

	for (unsigned i = 0; i < h->n; i++) {
		struct health_record *r = &h->records[i];

		if (r->quarantined_at[0] || !is_enough(r, threshold))
			continue;
		str_copy_cut(r->quarantined_at, sizeof r->quarantined_at, now);
		n++;
	}
	return n;
}

int health_add_record(struct health *h, const struct health_record *record)
{
	struct health_record copy, *r;

	if (health_find(h, record->vf))
		return -EEXIST;
	if (record->n_failures == 0 && !record->quarantined_at[0])
		return -EINVAL;
	if (record->n_failures > HEALTH_FAILURES_MAX || h->n == HEALTH_RECORDS_MAX)
		return -E2BIG;
	if (copy_record(record, &copy) < 0)
		return -ENOMEM;
	r = get_record(h, record->vf);
	if (!r) {
		free(copy.failures);
		return -ENOMEM;
	}
	*r = copy;
	return 0;
}
