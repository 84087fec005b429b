/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scan of the host: inventory in a worker, types by berth-card, names by berth-nvml where the
 * cards do not tell, then a discovery.
 *
 * What the cards say is kept between scans: one that does not answer keeps its devices. NVML is
 * asked at most once per scan, only for cards with a type that their own lists do not name, and its
 * helper is stopped afterwards, so that /dev/nvidia* is not held open.
 */
#pragma once

#include <systemd/sd-event.h>

#include "host/card-client.h"
#include "plugin/device.h"

struct scan;

struct scan_stats {
	uint64_t started_usec; /* monotonic */
	uint64_t took_usec;
	unsigned nvml_cards; /* cards that NVML was asked about */
	char nvml_text[160]; /* why NVML did not answer; "" */
};

struct scan_config {
	sd_event *event;
	const char *sysfs_root;
	const char *dev_root;
	const char *nvml_library; /* "": none */
	const char *run_dir;	  /* for the lock files of the helpers */
	const char *pci_ids;	  /* NULL: the usual places */
	const struct name_map *names;
	uint64_t card_timeout_usec;
	uint64_t wait_usec; /* how long a scan waits for the cards; then it goes on with those it
			       has */
	uint64_t nvml_timeout_usec;
	/* From the loop, once for each scan: the discovery is the caller's; NULL when it failed. */
	void (*done)(struct discovery *take, const struct scan_stats *stats,
		     const struct error *err, void *userdata);
	void *userdata;
};

/* The strings and the map must outlive the scan. */
int scan_new(const struct scan_config *config, struct scan **ret, struct error *err) _must_check_;
struct scan *scan_free(struct scan *s);

/* Starts one; while one runs, another follows it. */
void scan_request(struct scan *s);
bool scan_is_running(const struct scan *s);

/* The client of the card's helper, or NULL when the card is not known. */
struct card_client *scan_card_client(struct scan *s, struct pci_addr card);
