/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What berth-card does for each request. Called by its workers, several at a time.
 */
#pragma once

#include "helper/card-scan.h"
#include "host/vf.h"

struct card_ops {
	const char *sysfs_root;
	struct card_scan scan;
	pthread_mutex_t readers_lock; /* over what follows; held while the driver is read */
	unsigned n_readers;
	struct pci_addr reader_vfs[CARD_VFS_MAX];
	struct vf_reader readers[CARD_VFS_MAX];
};

/* The strings are borrowed for good. */
void card_ops_init(struct card_ops *o, const struct holders_roots *roots, int canary_fd);

/* Fills in a zeroed reply, but for version, op and id. */
void card_ops_run(struct card_ops *o, const struct card_request *request, struct card_reply *reply);
