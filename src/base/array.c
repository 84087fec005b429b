/* SPDX-License-Identifier: Apache-2.0 */
#include "base/array.h"

#include <stdint.h>
#include <stdlib.h>

#define FIRST_ITEMS 16

void *array_grow(void *items, size_t n, size_t *cap, size_t item_size)
{
	size_t bigger = *cap > 0 ? *cap * 2 : FIRST_ITEMS;
	void *p;

	if (n < *cap)
		return items;
	p = reallocarray(items, bigger, item_size);
	if (p)
		*cap = bigger;
	return p;
}
