/* SPDX-License-Identifier: Apache-2.0 */
/* Records of a kernel log: what counts is of facility kern, and its text is safe to print. */
#include <stdlib.h>
#include <string.h>

#include "agent/kmsg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[KMSG_TEXT_MAX];

	if (!kmsg_is_init_failure((const char *)data, size, text))
		return 0;
	if (size < 2 || data[0] < '0' || data[0] > '9' ||
	    !memmem(data, size, "RmInitAdapter failed!", 21) || strncmp(text, "NVRM:", 5) != 0)
		abort();
	for (size_t i = 0; text[i]; i++)
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f || text[i] == '"')
			abort();
	return 0;
}
