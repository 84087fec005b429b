/* SPDX-License-Identifier: Apache-2.0 */
#include "host/card-message.h"

#include <errno.h>
#include <string.h>

size_t card_reply_size(const struct card_reply *reply)
{
	return offsetof(struct card_reply, types.items) + reply->types.n * sizeof(struct profile);
}

static bool op_is_known(enum card_op op)
{
	return op >= CARD_OP_READ && op <= CARD_OP_SCAN;
}

int card_reply_check(const struct card_reply *reply, size_t len)
{
	if (len < offsetof(struct card_reply, types.items) ||
	    reply->version != CARD_MESSAGE_VERSION || !op_is_known(reply->op) ||
	    reply->n_vfs > CARD_VFS_MAX || reply->types.n > PROFILE_TYPES_MAX ||
	    len != card_reply_size(reply))
		return -EBADMSG;
	if (!memchr(reply->text, '\0', sizeof reply->text) ||
	    !memchr(reply->holder, '\0', sizeof reply->holder))
		return -EBADMSG;
	for (unsigned i = 0; i < reply->types.n; i++)
		if (!memchr(reply->types.items[i].name, '\0', PROFILE_NAME_MAX))
			return -EBADMSG;
	return 0;
}

int card_request_check(const struct card_request *request, size_t len)
{
	if (len != sizeof *request || request->version != CARD_MESSAGE_VERSION ||
	    !op_is_known(request->op) || request->n_vfs > CARD_VFS_MAX)
		return -EBADMSG;
	if ((request->op == CARD_OP_CONFIGURE || request->op == CARD_OP_RELEASE) &&
	    request->n_vfs != 1)
		return -EBADMSG;
	if (request->op == CARD_OP_CONFIGURE && request->type_id == 0)
		return -EBADMSG;
	return 0;
}

const char *card_op_name(enum card_op op)
{
	switch (op) {
	case CARD_OP_READ:
		return "read";
	case CARD_OP_LIST:
		return "list";
	case CARD_OP_CONFIGURE:
		return "configure";
	case CARD_OP_RELEASE:
		return "release";
	case CARD_OP_SCAN:
		return "scan";
	}
	return "unknown";
}
