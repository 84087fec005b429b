/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a console log: whatever a guest writes, a marker has its whole shape and its text is
 * safe to print. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "model/marker.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const prefixes[] = { "BERTH", "HYPEMAN" };
	const char *line = (const char *)data;
	enum marker_kind kind = marker_parse(line, size, prefixes, ARRAY_SIZE(prefixes));
	char text[96];

	marker_nvrm_text(line, size, text, sizeof text);
	for (size_t i = 0; text[i]; i++)
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			abort();
	if (kind == MARKER_NONE)
		return 0;
	if (size > MARKER_LINE_MAX || !memmem(line, size, "[guest-agent] ", 14) ||
	    memchr(line, '\n', size) || memchr(line, '\0', size))
		abort();
	if (kind == MARKER_FAILED && !memmem(line, size, "RmInitAdapter failed!", 21))
		abort();
	/* Torn at either end it is none. */
	if (marker_parse(line + 1, size - 1, prefixes, ARRAY_SIZE(prefixes)) != MARKER_NONE)
		abort();
	return 0;
}
