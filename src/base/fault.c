/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

static pthread_once_t fault_once = PTHREAD_ONCE_INIT;
static char fault_name[64]; /* empty: no fault wanted */
static atomic_uint fault_left = 1;

static void fault_read_environment(void)
{
	const char *wanted = getenv("BERTH_FAULT");
	char *colon;
	uint32_t n;

	if (!wanted || str_copy(fault_name, sizeof fault_name, wanted) < 0)
		return;
	colon = strchr(fault_name, ':');
	if (colon) {
		*colon = '\0';
		if (str_to_u32(colon + 1, &n) == 0 && n > 0)
			fault_left = n;
	}
}

void fault_point(const char *name)
{
	pthread_once(&fault_once, fault_read_environment);
	if (!fault_name[0] || strcmp(fault_name, name) != 0)
		return;
	if (atomic_fetch_sub(&fault_left, 1) == 1)
		raise(SIGKILL);
}
