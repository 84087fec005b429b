/* SPDX-License-Identifier: Apache-2.0 */
/* vf-health.json: any bytes give records that keep their promises and come back as written, or a
 * message. */
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "store/health-store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_record(const struct health *h, unsigned i)
{
	const struct health_record *r = &h->records[i];

	if (i > 0 && pci_addr_compare(h->records[i - 1].vf, r->vf) >= 0)
		abort();
	if ((r->n_failures == 0 && !r->quarantined_at[0]) || r->n_failures > HEALTH_FAILURES_MAX)
		abort();
	for (unsigned k = 0; k < r->n_failures; k++)
		if (!r->failures[k].reported_at[0])
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct health h = { 0 }, again = { 0 };
	struct error err = ERROR_INIT;
	_free_ char *text = NULL;
	size_t len;

	if (health_parse((const char *)data, size, &h, &err) < 0) {
		if (h.records || err.code != EINVAL || !str_starts_with(err.msg, "byte "))
			abort();
		return 0;
	}
	for (unsigned i = 0; i < h.n; i++)
		check_record(&h, i);
	if (health_render(&h, &text, &len) < 0 || health_parse(text, len, &again, &err) < 0 ||
	    !health_equal(&h, &again))
		abort();
	health_done(&h);
	health_done(&again);
	return 0;
}
