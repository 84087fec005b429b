/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/pci-ids.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#define VENDOR_LINE "10de"

static bool is_hex4(const char *s)
{
	for (int i = 0; i < 4; i++)
		if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f') ||
		      (s[i] >= 'A' && s[i] <= 'F')))
			return false;
	return true;
}

/* "\t26b9  AD102GL [L40S]"; a subsystem line has two tabs. */
static bool is_device_line(const char *line, uint32_t device_id)
{
	return line[0] == '\t' && line[1] != '\t' && is_hex4(line + 1) && line[5] == ' ' &&
	       strtoul(line + 1, NULL, 16) == device_id;
}

int pci_ids_find(FILE *list, uint32_t device_id, char ret[static NAME_SOURCE_MAX])
{
	_free_ char *line = NULL;
	bool in_section = false;
	size_t size = 0;

	rewind(list);
	while (getline(&line, &size, list) >= 0) {
		const char *name;

		line[strcspn(line, "\r\n")] = '\0';
		if (line[0] == '#' || line[0] == '\0')
			continue;
		if (line[0] != '\t') {
			if (in_section)
				break;
			in_section = strncasecmp(line, VENDOR_LINE, 4) == 0 && line[4] == ' ';
			continue;
		}
		if (!in_section || !is_device_line(line, device_id))
			continue;
		name = line + 5 + strspn(line + 5, " \t");
		if (!*name)
			return -ENOENT;
		return str_copy(ret, NAME_SOURCE_MAX, name) < 0 ? -EFBIG : 0;
	}
	return -ENOENT;
}
