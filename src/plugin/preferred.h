/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of the available devices a container should get: one NUMA node first, then one card. Pure.
 */
#pragma once

#include "plugin/device.h"

#define PREFERRED_MAX 1024

/* Chooses `size` of the available IDs into ret (indexes into available, at most PREFERRED_MAX),
 * those that must be included first. Must-include IDs count even if they are not among the
 * available ones: then -EINVAL. Fewer than `size` where there are not that many. Returns how many.
 */
int preferred_choose(const struct resource *r, const char *const *available, unsigned n_available,
		     const char *const *must, unsigned n_must, unsigned size,
		     unsigned ret[static PREFERRED_MAX]) _must_check_;
