/* SPDX-License-Identifier: Apache-2.0 */
#include "http/problem.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "model/outcome.h"

int http_problem_status(int code)
{
	return outcome_of(code)->http_status;
}

json_t *http_problem_json(int code, const char *detail, json_t *take_extra)
{
	const struct outcome *o = outcome_of(code);
	json_t *problem = json_pack("{s:s, s:s, s:i}", "type", "about:blank", "title", o->title,
				    "status", o->http_status);
	int r = problem ? 0 : -1;

	if (r == 0 && detail) {
		_free_ char *text = strdup(detail);

		if (text)
			str_sanitize(text, strlen(text));
		r = text ? json_object_set_new(problem, "detail", json_string(text)) : -1;
	}
	if (r == 0)
		r = json_object_set_new(problem, "code", json_string(o->name));
	if (r == 0 && take_extra)
		r = json_object_update_missing(problem, take_extra);
	json_decref(take_extra);
	if (r == 0)
		return problem;
	json_decref(problem);
	return NULL;
}
