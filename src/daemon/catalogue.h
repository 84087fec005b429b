/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalogue of one card: which vGPU types it has, by its own lists and by NVML's answer for it.
 *
 * Types are added, never taken away while berthd runs: a list on a full card shows less than there
 * is (host-sysfs.md 1.2). The last known catalogue is stored, so names and totals survive a start
 * during which the card cannot be asked. An id is never carried over to another card.
 */
#pragma once

#include "daemon/node.h"

/* Index in c->types, added or updated; -E2BIG when there are too many. */
int catalogue_add(struct card *c, const struct profile *p);

/* Takes over NVML's supported types: complete afterwards. */
void catalogue_take_nvml(struct node *n, struct card *c, const struct nvml_card *answer);

/* Takes over the lists of the card's VFs, and marks on each VF what it lists. */
void catalogue_take_lists(struct node *n, struct card *c, const struct card_reply *reply);

/* What the store had of its recovery is over. */
void catalogue_forget_recovery(struct node *n, const struct card *c);

/* Takes over what the store has of this card, if the card has nothing yet. */
void catalogue_restore(struct node *n, struct card *c);

/* Takes over what was stored of a cordon, so that the next scan restores that. */
void catalogue_set_cordon(struct node *n, struct card *c, bool cordoned);

/* Stores the catalogue if it has changed. */
void catalogue_save(struct node *n, struct card *c);

/* Every present card with VFs knows all its types. */
bool catalogue_all_complete(const struct node *n);
