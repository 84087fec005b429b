/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the node's cards and VFs true to the host: scans of sysfs, the one-second poll of what each
 * VF is configured as, and the helpers of the cards.
 *
 * What it sees changed by others starts a refresh of the placements. It decides nothing about
 * claims; it marks those whose VF is gone or changed.
 */
#pragma once

#include "daemon/node.h"

/* Starts the scan thread, the first scan and the poll timer. */
int cards_start(struct node *n, struct error *err) _must_check_;

/* The configuration has changed: excluded devices, time-outs. */
void cards_config_changed(struct node *n);

/* Takes what was read or written on a VF into memory. */
void cards_observe_vf(struct node *n, struct card *c, struct vf *v, uint32_t type_id,
		      uint16_t placement_id);

/* Sets v->span from its type and placement id, with the sizes known now. */
void cards_update_span(const struct card *c, struct vf *v);

/* Units of a type on this card: from NVML, else from its framebuffer; 0: unknown. */
uint16_t cards_type_size(const struct card *c, uint32_t type_id);

/* A read of the card's VFs that was sent after `seq` has ended. */
bool cards_was_read_after(const struct card *c, uint64_t seq);

/* Judges the problem of every claim anew. */
void cards_judge_claims(struct node *n);

/* Marks a write on a VF as begun and ended: keeps older reads from being believed, and drift from
 * being judged on answers that overlap it. */
void cards_write_begin(struct node *n, struct card *c, struct vf *v);
void cards_write_end(struct node *n, struct card *c, struct pci_addr vf);

/* The reply says that a device is gone: look again. */
bool cards_is_gone(int result);
