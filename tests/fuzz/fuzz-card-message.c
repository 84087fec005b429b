/* SPDX-License-Identifier: Apache-2.0 */
/* What a berth-card that has gone mad may send, and what it may be sent. */
#include <stdlib.h>
#include <string.h>

#include "host/card-message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t walk_reply(const struct card_reply *r)
{
	size_t sum = strlen(r->text) + strlen(r->holder) + strlen(card_op_name(r->op));

	for (uint32_t i = 0; i < r->n_vfs; i++)
		sum += r->vfs[i].type_id + (size_t)r->vfs[i].open;
	for (unsigned i = 0; r->op == CARD_OP_LIST && i < r->types.n; i++)
		sum += strlen(r->types.items[i].name);
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Exactly as long as the message, so that a read behind its end is seen. */
	void *msg = malloc(size ? size : 1);
	static volatile size_t sink;

	if (!msg)
		return 0;
	memcpy(msg, data, size);
	if (card_request_check(msg, size) == 0)
		sink += ((struct card_request *)msg)->n_vfs;
	if (card_reply_check(msg, size) == 0)
		sink += walk_reply(msg);
	(void)sink;
	free(msg);
	return 0;
}
