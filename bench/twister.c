/* SPDX-License-Identifier: Apache-2.0 */
#include "twister.h"

#include <math.h>

#define WORDS 624U
#define SHIFT 397U

static uint32_t state[WORDS];
static unsigned next;

static uint32_t stir(unsigned i, uint32_t factor)
{
	uint32_t before = state[i - 1] ^ state[i - 1] >> 30;

	return state[i] ^ before * factor;
}

static void wrap(unsigned *i)
{
	if (++*i < WORDS)
		return;
	state[0] = state[WORDS - 1];
	*i = 1;
}

void twister_seed(uint32_t seed)
{
	unsigned i = 1;

	state[0] = 19650218;
	for (unsigned k = 1; k < WORDS; k++)
		state[k] = 1812433253U * (state[k - 1] ^ state[k - 1] >> 30) + k;
	for (unsigned k = 0; k < WORDS; k++) {
		state[i] = stir(i, 1664525) + seed;
		wrap(&i);
	}
	for (unsigned k = 1; k < WORDS; k++) {
		state[i] = stir(i, 1566083941) - i;
		wrap(&i);
	}
	state[0] = 0x80000000U;
	next = WORDS;
}

static uint32_t draw(void)
{
	uint32_t y;

	if (next == WORDS) {
		for (unsigned k = 0; k < WORDS; k++) {
			y = (state[k] & 0x80000000U) | (state[(k + 1) % WORDS] & 0x7fffffffU);
			state[k] = state[(k + SHIFT) % WORDS] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfU : 0);
		}
		next = 0;
	}
	y = state[next++];
	y ^= y >> 11;
	y ^= y << 7 & 0x9d2c5680U;
	y ^= y << 15 & 0xefc60000U;
	return y ^ y >> 18;
}

double twister_random(void)
{
	uint32_t high = draw() >> 5, low = draw() >> 6;

	return (high * 67108864.0 + low) / 9007199254740992.0;
}

double twister_exponential(double rate)
{
	return -log(1 - twister_random()) / rate;
}

/* By ratio of uniforms (Kinderman and Monahan). */
static double normal(double mean, double deviation)
{
	const double magic = 4 * exp(-0.5) / sqrt(2);

	for (;;) {
		double u = twister_random(), v = 1 - twister_random(), z = magic * (u - 0.5) / v;

		if (z * z / 4 <= -log(v))
			return mean + z * deviation;
	}
}

double twister_log_normal(double mean, double deviation)
{
	return exp(normal(mean, deviation));
}
