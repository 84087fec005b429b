/* SPDX-License-Identifier: Apache-2.0 */
/* Attribute texts of a VF, and what a helper sends: nothing is accepted that is not within limits.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "host/card-message.h"
#include "host/vf.h"
#include "model/placement.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Exactly as long as the input, so that a byte read too far is seen. */
	_free_ char *text = malloc(size ? size : 1);
	static struct card_reply reply;
	static struct card_request request;
	uint32_t type = 7;

	if (!text)
		return 0;
	if (size > 0)
		memcpy(text, data, size);
	if (vf_parse_type(text, size, &type) < 0 && type != 7)
		abort();
	if (vf_parse_placement(text, size) != PLACEMENT_NONE &&
	    vf_parse_type(text, size, &type) < 0)
		abort();
	vf_params_pin(text, size, 6);

	memset(&reply, 0, sizeof reply);
	memcpy(&reply, text, size < sizeof reply ? size : sizeof reply);
	if (card_reply_check(&reply, size) == 0) {
		if (reply.n_vfs > CARD_VFS_MAX || reply.types.n > PROFILE_TYPES_MAX ||
		    strlen(reply.text) >= sizeof reply.text || card_reply_size(&reply) != size)
			abort();
	}
	memset(&request, 0, sizeof request);
	memcpy(&request, text, size < sizeof request ? size : sizeof request);
	if (card_request_check(&request, size) == 0 && request.n_vfs > CARD_VFS_MAX)
		abort();
	return 0;
}
