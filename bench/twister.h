/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Mersenne Twister (MT19937) with CPython's seeding and distributions: random.Random(seed) in
 * Python and twister_seed(seed) here give the same numbers. One generator for the whole program.
 */
#pragma once

#include <stdint.h>

void twister_seed(uint32_t seed);
double twister_random(void);				  /* [0, 1), 53 bits */
double twister_exponential(double rate);		  /* random.expovariate() */
double twister_log_normal(double mean, double deviation); /* random.lognormvariate() */
