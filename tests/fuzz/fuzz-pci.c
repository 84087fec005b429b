/* SPDX-License-Identifier: Apache-2.0 */
/* PCI addresses: what is accepted prints and parses back to itself. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "model/pci.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_free_ char *text = malloc(size + 1);
	char printed[PCI_ADDR_MAX];
	struct pci_addr a, b;

	if (!text)
		return 0;
	if (size > 0)
		memcpy(text, data, size);
	text[size] = '\0';
	if (pci_addr_parse(text, &a) < 0)
		return 0;
	if (a.device > 31 || a.function > 7)
		abort();
	if (pci_addr_parse(pci_addr_format(a, printed), &b) < 0 || !pci_addr_equal(a, b))
		abort();
	return 0;
}
