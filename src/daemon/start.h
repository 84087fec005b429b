/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From nothing known to ready: the claims database, the first look at the host, and what follows.
 *
 * berthd is ready when the database was read, the first scan and the first reads of all cards have
 * ended (well or badly) and placements were asked for once. Then what the database says is taken
 * over: intents become undos, claims of an earlier boot go, releases go on. On a first start (no
 * database) every configured VF is adopted as an `external` claim instead; a VF that cannot be read
 * then is adopted when it can. Nothing is offered, undone or reset before that.
 */
#pragma once

#include "daemon/node.h"

/* The function for struct claim_store_config; userdata is the node. */
void start_store_loaded(struct claim_store *s, enum store_state state,
			const struct store_content *content, const struct error *err,
			void *userdata);

/* One part of the first look has ended. */
void start_try_finish(struct node *n);

/* VFs were read: adopts what could not be read at the first start; also a part of the first look.
 */
void start_vfs_read(struct node *n);
