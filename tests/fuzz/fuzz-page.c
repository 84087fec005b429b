/* SPDX-License-Identifier: Apache-2.0 */
/* Any JSON as the state: the page must come out, with nothing in it that a text put there. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "http/page.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct page_viewer root = { .may_change = true,
						 .may_clear = true,
						 .owns_all = true };
	json_t *state = json_loadb((const char *)data, size, 0, NULL);
	_buf_ struct buf out = BUF_INIT;
	const char *script;

	if (!state)
		return 0;
	assert(page_render(state, &root, &out) == 0);
	json_decref(state);
	script = strstr(out.data, "<script");
	assert(script && !strstr(script + 1, "<script"));
	assert(strstr(out.data, "</body></html>\n") == out.data + out.len - 15);
	return 0;
}
