/* SPDX-License-Identifier: Apache-2.0 */
/* What berth doctor takes apart of /proc: any bytes with a NUL behind them. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/doctor/texts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Exactly as long as the input, so that a byte read too far is seen. */
	_free_ char *text = calloc(1, size + 1);
	bool may_trace = false, own_pids = false;
	char version[16];
	const char *value;

	if (!text)
		return 0;
	if (size > 0)
		memcpy(text, data, size);
	doctor_parse_proc_version(text, version, sizeof version);
	if (strlen(version) >= sizeof version || strspn(version, "0123456789.") != strlen(version))
		abort();
	if (doctor_branch(text) > 99999)
		abort();
	value = doctor_find_option(text, size, "--sysfs-root");
	if (value && (value < text || value > text + size))
		abort();
	if (doctor_parse_status(text, &may_trace, &own_pids) < 0 && (may_trace || own_pids))
		abort();
	return 0;
}
