/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PCI addresses: parsed from any spelling, compared as numbers, printed as sysfs does.
 *
 * NVML prints "00000000:41:00.0", sysfs "0000:41:00.0", people leave the domain out or use
 * capitals; strings are never compared. Domains are up to 32 bits wide (VMD and the like use more
 * than four digits).
 */
#pragma once

#include "base/macro.h"

#define PCI_ADDR_MAX 20 /* bytes of the printed form with NUL */

struct pci_addr {
	uint32_t domain;
	uint8_t bus;
	uint8_t device;	  /* 0 to 31 */
	uint8_t function; /* 0 to 7 */
};

/* "[DOMAIN:]BUS:DEVICE.FUNCTION" in hexadecimal of either case and of any width that fits; a
 * missing domain is 0. -EINVAL on anything else; the output is untouched then. */
int pci_addr_parse(const char *s, struct pci_addr *ret) _must_check_;

/* "0000:41:00.4": lower case, domain of at least four digits. Returns buf. */
const char *pci_addr_format(struct pci_addr a, char buf[static PCI_ADDR_MAX]);

/* Order by domain, bus, device, function: <0, 0, >0. */
int pci_addr_compare(struct pci_addr a, struct pci_addr b);
bool pci_addr_equal(struct pci_addr a, struct pci_addr b);
