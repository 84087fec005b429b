/* SPDX-License-Identifier: Apache-2.0 */
#include "http/api-internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "daemon/fit-query.h"
#include "model/outcome.h"

static int take_count(struct fit_query *q, const char *name, const json_t *v, struct error *err)
{
	unsigned total = 0;

	for (unsigned i = 0; i < q->n_profiles; i++)
		if (profile_name_equal(q->names[i], name))
			return error_set(err, E_BAD_REQUEST, "profiles: %.64s is named twice",
					 name);
	if (q->n_profiles == FIT_PROFILES_MAX)
		return error_set(err, E_BAD_REQUEST, "profiles: at most %d", FIT_PROFILES_MAX);
	if (!json_is_integer(v) || json_integer_value(v) < 0 ||
	    json_integer_value(v) > FIT_ITEMS_MAX)
		return error_set(err, E_BAD_REQUEST,
				 "profiles: %.64s: must be a whole number from 0 to %d", name,
				 FIT_ITEMS_MAX);
	if (str_copy(q->names[q->n_profiles], PROFILE_NAME_MAX, name) < 0)
		return error_set(err, E_BAD_REQUEST, "profiles: %.64s: too long", name);
	q->counts[q->n_profiles++] = (unsigned)json_integer_value(v);
	for (unsigned i = 0; i < q->n_profiles; i++)
		total += q->counts[i];
	if (total > FIT_ITEMS_MAX)
		return error_set(err, E_BAD_REQUEST, "profiles: more than %d vGPUs", FIT_ITEMS_MAX);
	return 0;
}

static int take_max_of(struct fit_query *q, const json_t *v, struct error *err)
{
	const char *name = json_string_value(v);
	json_t *zero;
	int r;

	if (!name)
		return error_set(err, E_BAD_REQUEST, "max_of: must be a profile's name");
	for (unsigned i = 0; i < q->n_profiles; i++) {
		if (!profile_name_equal(q->names[i], name))
			continue;
		q->max_of = (int)i;
		return 0;
	}
	zero = json_integer(0);
	r = take_count(q, name, zero, err);
	json_decref(zero);
	q->max_of = (int)q->n_profiles - 1;
	return r;
}

static int parse(struct http_request *req, struct fit_query *q, struct error *err)
{
	json_t *body = NULL, *profiles, *v;
	const char *name;
	int r;

	*q = (struct fit_query){ .max_of = -1 };
	r = http_request_json(req, &body, err);
	if (r < 0)
		return r;
	profiles = json_object_get(body, "profiles");
	if (!json_is_object(profiles))
		r = error_set(err, E_BAD_REQUEST,
			      "profiles: must be an object of counts by profile");
	json_object_foreach(body, name, v)
		if (r == 0 && strcmp(name, "profiles") != 0 && strcmp(name, "max_of") != 0)
			r = error_set(err, E_BAD_REQUEST, "%.64s: unknown field", name);
	if (r == 0)
		json_object_foreach(profiles, name, v)
			if (r == 0)
				r = take_count(q, name, v, err);
	if (r == 0 && json_object_get(body, "max_of"))
		r = take_max_of(q, json_object_get(body, "max_of"), err);
	json_decref(body);
	return r;
}

static json_t *json_plan(const struct fit_query *q, const struct fit_query_result *r)
{
	json_t *list = json_array();

	for (unsigned i = 0; list && i < r->fit.n_steps; i++) {
		const struct fit_step *s = &r->fit.steps[i];

		json_array_append_new(
			list, json_pack("{s:s,s:o,s:o}", "profile", q->names[s->profile], "gpu",
					api_json_address(r->cards[s->card]), "placement",
					api_json_placement(s->span.id, s->span.size)));
	}
	return list;
}

static json_t *json_counts(const struct fit_query *q, const unsigned *counts)
{
	json_t *o = json_object();

	for (unsigned i = 0; o && i < q->n_profiles; i++)
		json_object_set_new(o, q->names[i], json_integer(counts[i]));
	return o;
}

static void answered(const struct fit_query *q, const struct fit_query_result *r, void *userdata)
{
	struct http_request *req = userdata;
	bool cut = r->fit.answer == FIT_CUT;
	json_t *o, *ignored;

	if (r->code < 0) {
		http_reply_problem(req, r->code, r->detail, NULL);
		return;
	}
	ignored = json_array();
	for (unsigned i = 0; ignored && i < r->n_ignored; i++)
		json_array_append_new(ignored, api_json_address(r->ignored[i]));
	/* A cut search knows neither yes nor no, only what it placed. */
	o = json_pack("{s:o,s:b,s:o,s:o,s:o}", "fits",
		      cut ? json_null() : json_boolean(r->fit.answer == FIT_YES), "exact", !cut,
		      "plan", r->fit.answer == FIT_YES ? json_plan(q, r) : json_array(),
		      "lower_bound", json_counts(q, r->fit.placed), "ignored", ignored);
	if (o && r->has_max)
		json_object_set_new(o, "max",
				    json_pack("{s:s,s:i,s:b}", "profile", q->names[q->max_of],
					      "more", (int)r->max, "exact", r->max_exact));
	http_reply_json(req, 200, o);
}

void api_post_fit(struct http_request *req, void *userdata)
{
	struct node *n = ((struct api *)userdata)->node;
	struct error err = ERROR_INIT;
	struct fit_query *q;
	int r;

	if (api_refuse_query(req) < 0)
		return;
	q = malloc(sizeof *q);
	if (!q) {
		http_reply_problem(req, -E_INTERNAL, "out of memory", NULL);
		return;
	}
	r = parse(req, q, &err);
	if (r < 0)
		http_reply_error(req, r, &err);
	else
		fit_query_submit(n, q, answered, req);
	free(q);
}
