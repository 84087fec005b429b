/* SPDX-License-Identifier: Apache-2.0 */
#include "model/pci.h"

#include <errno.h>
#include <stdio.h>

#include "base/str.h"

/* One field up to the first character that is no digit; *s then stands there. */
static int parse_field(const char **s, uint32_t *ret)
{
	const char *p = *s;
	uint32_t v = 0;

	for (int digit; (digit = str_hex_digit(*p)) >= 0; p++) {
		if (v > UINT32_MAX >> 4)
			return -EINVAL;
		v = v << 4 | (uint32_t)digit;
	}
	if (p == *s)
		return -EINVAL;
	*s = p;
	*ret = v;
	return 0;
}

int pci_addr_parse(const char *s, struct pci_addr *ret)
{
	/* Fields from the left; which is which is known only when the '.' has been met. */
	uint32_t field[3];
	unsigned n = 0;
	uint32_t domain = 0, bus, device, function;

	for (;;) {
		if (n == ARRAY_SIZE(field) || parse_field(&s, &field[n]) < 0)
			return -EINVAL;
		n++;
		if (*s == '.')
			break;
		if (*s != ':')
			return -EINVAL;
		s++;
	}
	s++;
	if (n < 2 || parse_field(&s, &function) < 0 || *s != '\0')
		return -EINVAL;
	if (n == 3)
		domain = field[0];
	bus = field[n - 2];
	device = field[n - 1];
	if (bus > 0xff || device > 31 || function > 7)
		return -EINVAL;
	*ret = (struct pci_addr){
		.domain = domain,
		.bus = (uint8_t)bus,
		.device = (uint8_t)device,
		.function = (uint8_t)function,
	};
	return 0;
}

const char *pci_addr_format(struct pci_addr a, char buf[static PCI_ADDR_MAX])
{
	snprintf(buf, PCI_ADDR_MAX, "%04x:%02x:%02x.%x", a.domain, a.bus, a.device & 31U,
		 a.function & 7U);
	return buf;
}

int pci_addr_compare(struct pci_addr a, struct pci_addr b)
{
	if (a.domain != b.domain)
		return a.domain < b.domain ? -1 : 1;
	if (a.bus != b.bus)
		return a.bus - b.bus;
	if (a.device != b.device)
		return a.device - b.device;
	return a.function - b.function;
}

bool pci_addr_equal(struct pci_addr a, struct pci_addr b)
{
	return pci_addr_compare(a, b) == 0;
}
