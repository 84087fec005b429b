/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that the plugin reads from outside: names, durations, pci.ids, berthd's health file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/go-duration.h"
#include "plugin/pci-ids.h"
#include "plugin/quarantine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_string(const char *text)
{
	char resource[RESOURCE_NAME_MAX];
	struct rescan_interval interval;

	if (rescan_interval_parse("fuzz", text, &interval, NULL) == 0 && interval.usec > 0 &&
	    interval.usec < RESCAN_FLOOR_NSEC / 1000)
		abort();
	if (names_from_profile(text, resource, NULL) == 0 && names_check(resource, NULL) < 0)
		abort();
	if (names_from_pci_ids(text, resource, NULL) == 0 && names_check(resource, NULL) < 0)
		abort();
	(void)!names_check(text, NULL);
}

static void try_pci_ids(const uint8_t *data, size_t size)
{
	char name[NAME_SOURCE_MAX];
	FILE *f = size ? fmemopen((void *)data, size, "r") : NULL;

	if (!f)
		return;
	(void)!pci_ids_find(f, 0x26b9, name);
	fclose(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pci_addr *vfs = NULL;
	struct name_map *map = NULL;
	struct error err = ERROR_INIT;
	unsigned n;
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (strlen(text) < 4096)
		try_string(text);
	if (name_map_parse(text, size, &map, &err) == 0)
		name_map_free(map);
	if (quarantine_parse(text, size, &vfs, &n, &err) == 0)
		free(vfs);
	try_pci_ids(data, size);
	free(text);
	return 0;
}
