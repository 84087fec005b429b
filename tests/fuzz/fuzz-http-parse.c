/* SPDX-License-Identifier: Apache-2.0 */
/* The client's answer parser: the same result however the bytes are cut, and within its limits. */
#include <stdlib.h>
#include <string.h>

#include "client/http-parse.h"

#define BODY_LIMIT 1000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int parse(struct http_parse *p, const uint8_t *data, size_t size, size_t step)
{
	int r = 0;

	http_parse_init(p, BODY_LIMIT);
	for (size_t at = 0; at < size && r == 0; at += step)
		r = http_parse_feed(p, data + at, MIN(step, size - at));
	if (p->body.len > BODY_LIMIT)
		abort();
	return r == 0 ? http_parse_eof(p) : r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct http_parse a, b;
	int ra = parse(&a, data, size, size ? size : 1), rb = parse(&b, data, size, 1);

	if (ra != rb || a.status != b.status || (ra > 0 && a.body.len != b.body.len) ||
	    (ra > 0 && a.body.len > 0 && memcmp(a.body.data, b.body.data, a.body.len) != 0))
		abort();
	http_parse_done(&a);
	http_parse_done(&b);
	return 0;
}
