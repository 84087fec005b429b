/* SPDX-License-Identifier: Apache-2.0 */
#include "http/api-claim-body.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "daemon/agent-channel.h"
#include "daemon/process.h"
#include "host/console-tail.h"
#include "model/outcome.h"

#define WAIT_MS_MAX 600000 /* ten minutes */

static int bad(struct error *err, const char *field, const char *what)
{
	return error_set(err, E_BAD_REQUEST, "%.64s: %s", field, what);
}

static int take_text(const char *field, const json_t *v, char *dst, size_t size, struct error *err)
{
	const char *s = json_string_value(v);

	if (!s)
		return bad(err, field, "must be a string");
	if (strlen(s) != json_string_length(v))
		return bad(err, field, "must not contain a NUL");
	if (str_copy(dst, size, s) < 0)
		return bad(err, field, "is too long");
	return 0;
}

static int take_number(const char *field, const json_t *v, json_int_t min, json_int_t max,
		       json_int_t *ret, struct error *err)
{
	if (!json_is_integer(v))
		return bad(err, field, "must be a whole number");
	if (json_integer_value(v) < min || json_integer_value(v) > max)
		return error_set(err, E_BAD_REQUEST, "%s: must be from %lld to %lld", field,
				 (long long)min, (long long)max);
	*ret = json_integer_value(v);
	return 0;
}

static int take_profile(const json_t *v, struct allocation_request *q, struct error *err)
{
	int r = take_text("profile", v, q->profile, sizeof q->profile, err);

	return r == 0 && !q->profile[0] ? bad(err, "profile", "must not be empty") : r;
}

static int take_gpu(const json_t *v, struct allocation_request *q, struct error *err)
{
	if (!json_string_value(v) || pci_addr_parse(json_string_value(v), &q->gpu) < 0)
		return bad(err, "gpu", "must be a PCI address (like 0000:41:00.0)");
	q->has_gpu = true;
	return 0;
}

static int check_console_log(const struct claim_body_rules *rules, const char *path,
			     struct error *err)
{
	struct error why = ERROR_INIT;

	if (console_path_check(rules->console_dirs, rules->n_console_dirs, path, &why) == 0)
		return 0;
	return bad(err, "console_log", error_text(&why));
}

static int take_channel(const json_t *v, struct allocation_request *q, struct error *err)
{
	struct error why = ERROR_INIT;
	int r = take_text("channel", v, q->channel, sizeof q->channel, err);

	return r < 0 || agent_channel_check(q->channel, &why) == 0
		       ? r
		       : bad(err, "channel", error_text(&why));
}

static int take_console_log(const struct claim_body_rules *rules, const json_t *v,
			    struct allocation_request *q, struct error *err)
{
	int r = take_text("console_log", v, q->console_log, sizeof q->console_log, err);

	return r < 0 ? r : check_console_log(rules, q->console_log, err);
}

static int take_pid(const struct claim_body_rules *rules, const json_t *v,
		    struct allocation_request *q, struct error *err)
{
	json_int_t pid = 0;
	int r = take_number("pid", v, 1, INT32_MAX, &pid, err);

	if (r < 0)
		return r;
	q->pid = (uint32_t)pid;
	r = process_start_time(rules->proc_root, q->pid, &q->pid_start);
	return r < 0 ? bad(err, "pid", "no such process") : 0;
}

static int take_policy(const json_t *v, struct allocation_request *q, struct error *err)
{
	if (!json_string_value(v) || policy_from_name(json_string_value(v), &q->policy) < 0)
		return bad(err, "policy", "no such policy");
	return 0;
}

static int take_field(const struct claim_body_rules *rules, const char *field, const json_t *v,
		      struct allocation_request *q, struct error *err)
{
	json_int_t number = 0;
	int r;

	if (strcmp(field, "profile") == 0)
		return take_profile(v, q, err);
	if (strcmp(field, "owner") == 0)
		return take_text(field, v, q->owner, sizeof q->owner, err);
	if (strcmp(field, "channel") == 0)
		return take_channel(v, q, err);
	if (strcmp(field, "console_log") == 0)
		return take_console_log(rules, v, q, err);
	if (strcmp(field, "gpu") == 0)
		return take_gpu(v, q, err);
	if (strcmp(field, "pid") == 0)
		return take_pid(rules, v, q, err);
	if (strcmp(field, "policy") == 0)
		return take_policy(v, q, err);
	if (strcmp(field, "numa_node") == 0) {
		r = take_number(field, v, 0, 1023, &number, err);
		q->has_numa_node = r == 0;
		q->numa_node = (int)number;
		return r;
	}
	if (strcmp(field, "wait_ms") == 0) {
		r = take_number(field, v, 0, WAIT_MS_MAX, &number, err);
		q->wait_usec = (uint64_t)number * 1000;
		return r;
	}
	return bad(err, field, "unknown field");
}

int claim_body_read(const struct claim_body_rules *rules, json_t *body,
		    struct allocation_request *q, struct error *err)
{
	const char *field;
	json_t *v;

	json_object_foreach(body, field, v) {
		int r = take_field(rules, field, v, q, err);

		if (r < 0)
			return r;
	}
	return q->profile[0] ? 0 : bad(err, "profile", "is missing");
}
