/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Health of VFs: who failed on which, and when that is enough to take a VF out of use.
 *
 * A failure counts once per assignment (instance id and assigned_at). A VF is quarantined when
 * failures of `threshold` distinct assignments stand against it; a success below that clears them;
 * nothing but a person lifts a quarantine. Records are kept by address, whether the VF is there or
 * not.
 */
#pragma once

#include "model/claim.h"
#include "model/pci.h"

#define HEALTH_RECORDS_MAX  4096
#define HEALTH_FAILURES_MAX 64 /* per VF; so many are enough under any threshold */

struct health_failure {
	char instance_id[CLAIM_NAME_MAX]; /* "" where the file has none */
	char assigned_at[64];		  /* opaque; "" where the file has none */
	char reported_at[64];
};

struct health_record {
	struct pci_addr vf;
	unsigned n_failures;
	struct health_failure *failures; /* owned */
	char quarantined_at[64];	 /* "" while it is not */
};

/* Owned by whoever holds it; zeros are an empty one. */
struct health {
	unsigned n;
	struct health_record *records; /* by address */
};

void health_done(struct health *h);
int health_copy(const struct health *from, struct health *ret) _must_check_; /* -ENOMEM */
const struct health_record *health_find(const struct health *h, struct pci_addr vf);
bool health_is_quarantined(const struct health *h, struct pci_addr vf);
unsigned health_count_quarantined(const struct health *h);
bool health_equal(const struct health *a, const struct health *b);

enum health_change {
	HEALTH_UNCHANGED,   /* known already, or nothing to clear */
	HEALTH_FAILURE,	    /* one more failure, below the threshold */
	HEALTH_QUARANTINED, /* this one reached it */
	HEALTH_CLEARED,	    /* failures or a quarantine were taken away */
};

/* A failure reported under an assignment. -ENOMEM, -E2BIG; else the change. */
int health_report_failure(struct health *h, struct pci_addr vf, const char *instance_id,
			  const char *assigned_at, const char *now, unsigned threshold,
			  enum health_change *ret) _must_check_;
/* Init worked: clears failures of a VF that is not quarantined. */
enum health_change health_report_success(struct health *h, struct pci_addr vf);
/* By a person. */
int health_quarantine(struct health *h, struct pci_addr vf, const char *now,
		      enum health_change *ret) _must_check_;
enum health_change health_clear(struct health *h, struct pci_addr vf);
/* VFs whose stored failures reach a (lowered) threshold become quarantined; returns how many. */
unsigned health_apply_threshold(struct health *h, unsigned threshold, const char *now);
/* Adds a record as read from a file; -EEXIST for a second one of that VF, -EINVAL, -ENOMEM. */
int health_add_record(struct health *h, const struct health_record *record) _must_check_;
