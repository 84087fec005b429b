/* SPDX-License-Identifier: Apache-2.0 */
/* Request targets and the Host header: what is decoded is clean text within its limits. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "http/route.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_clean(const char *text, size_t limit)
{
	if (strlen(text) >= limit || !str_is_utf8(text, strlen(text)))
		abort();
	for (const char *c = text; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const templates[] = { "/claims", "/claims/{name}", "/gpus/{bdf}/cordon",
						 "/a/{x}/{y}" };
	_free_ char *text = malloc(size + 1);
	struct http_params params;
	struct http_query query;
	char *q;

	if (!text)
		return 0;
	if (size > 0)
		memcpy(text, data, size);
	text[size] = '\0';
	(void)http_host_is_safe(text, "node7");
	(void)http_host_is_safe_on_unix(text);
	(void)http_origin_is_own(text, "node7:80");
	q = strchr(text, '?');
	if (q)
		*q++ = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(templates); i++) {
		if (!http_path_match(templates[i], text, &params))
			continue;
		for (size_t n = 0; n < params.n; n++)
			check_clean(params.at[n].value, HTTP_PARAM_SIZE);
	}
	if (!q || http_query_parse(q, &query) < 0)
		return 0;
	for (size_t i = 0; i < query.n; i++) {
		check_clean(query.at[i].key, size + 1);
		check_clean(query.at[i].value, size + 1);
	}
	return 0;
}
