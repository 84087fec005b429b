/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Problem answers (RFC 9457): the JSON object that every failed request gets.
 *
 * {"type": "about:blank", "title", "status", "detail", "code", ...}; title, status and code come
 * from the table of model/outcome.h. Rendering only; sending is http_reply_problem().
 */
#pragma once

#include <jansson.h>

#include "base/macro.h"

#define HTTP_PROBLEM_TYPE "application/problem+json"

/* detail: NULL leaves it out; control characters and bytes that are no UTF-8 are replaced.
 * take_extra: an object whose members are added (standard members win), or NULL; released also on
 * failure. NULL when memory is out. */
json_t *http_problem_json(int code, const char *detail, json_t *take_extra);
/* HTTP status of a code. */
int http_problem_status(int code);
