/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a claim, as anybody with the socket may send it. */
#include <string.h>

#include "http/api-claim-body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const dirs[] = { "/nonexistent/console" };
	const struct claim_body_rules rules = { "/nonexistent/proc", dirs, 1 };
	json_t *body = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
	static struct allocation_request q;
	struct error err = ERROR_INIT;
	int r;

	memset(&q, 0, sizeof q);
	if (json_is_object(body)) {
		r = claim_body_read(&rules, body, &q, &err);
		/* A refusal has a sentence; what was taken ends within its field. */
		if ((r < 0 && !err.msg[0]) || (r == 0 && !q.profile[0]) ||
		    strnlen(q.profile, sizeof q.profile) == sizeof q.profile ||
		    strnlen(q.owner, sizeof q.owner) == sizeof q.owner ||
		    strnlen(q.channel, sizeof q.channel) == sizeof q.channel ||
		    strnlen(q.console_log, sizeof q.console_log) == sizeof q.console_log)
			__builtin_trap();
	}
	json_decref(body);
	return 0;
}
