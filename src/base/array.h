/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays on the heap that grow by doubling.
 */
#pragma once

#include <errno.h>
#include <stddef.h>

#include "base/macro.h"

/* Makes room for one more item behind the first n. `items` is a pointer, `cap` an integer of any
 * type (items there is room for), both zero at first. 0, or -ENOMEM: then neither has changed. */
#define array_reserve(items, n, cap)                                                               \
	({                                                                                         \
		size_t array_cap_ = (size_t)(cap);                                                 \
		void *array_ = array_grow((items), (n), &array_cap_, sizeof *(items));             \
		if (array_) {                                                                      \
			(items) = array_;                                                          \
			(cap) = (typeof(cap))array_cap_;                                           \
		}                                                                                  \
		array_ ? 0 : -ENOMEM;                                                              \
	})

/* Private to array_reserve(): `items` itself where there is room. */
void *array_grow(void *items, size_t n, size_t *cap, size_t item_size) _must_check_;
