/* SPDX-License-Identifier: Apache-2.0 */
#include "store/health-store.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/str.h"

#define HEALTH_FILE_VERSION 1

static void cleanup_json(json_t **json)
{
	json_decref(*json);
}

#define _json_ _cleanup_(cleanup_json)

/* --- Where in the text ------------------------------------------------------------ */

/* jansson keeps no positions of values, so that of a bad record is looked up in the text, which is
 * known to be valid JSON by then. The text is followed token by token, no deeper than the records.
 */
struct scan {
	const char *text;
	size_t len;
	size_t at;
	unsigned depth;
	bool in_records; /* the last key of the outermost object was "records" */
	bool expects;	 /* a value comes next, by '[' or ',' */
};

static void scan_string(struct scan *s)
{
	static const char key[] = "records";
	size_t start = ++s->at;

	while (s->at < s->len && s->text[s->at] != '"')
		s->at += s->text[s->at] == '\\' ? 2 : 1;
	/* Values of the outermost object that read "records" do no harm: the next key replaces
	 * them. */
	if (s->depth == 1)
		s->in_records = s->at - start == sizeof key - 1 &&
				memcmp(s->text + start, key, sizeof key - 1) == 0;
}

static void scan_token(struct scan *s)
{
	char c = s->text[s->at];

	if (c == '"')
		scan_string(s);
	else if (c == '{' || c == '[')
		s->depth++;
	else if (c == '}' || c == ']')
		s->depth--;
	s->expects = c == '[' || c == ',';
	s->at++;
}

/* Offset of the record's first byte; 0 when it cannot be told. */
static size_t record_offset(const char *text, size_t len, size_t index)
{
	struct scan s = { .text = text, .len = len };
	size_t n = 0;

	while (s.at < s.len) {
		if (strchr(" \t\r\n", text[s.at])) {
			s.at++;
			continue;
		}
		if (s.depth == 2 && s.in_records && s.expects && n++ == index)
			return s.at;
		scan_token(&s);
	}
	return 0;
}

/* --- Reading ---------------------------------------------------------------------- */

struct parse {
	const char *text;
	size_t len;
	size_t record; /* under way */
	struct error *err;
};

/* Sentence about the record under way, with its offset. */
static int bad_record(const struct parse *p, const char *what)
{
	return error_set(p->err, EINVAL, "byte %zu: record %zu: %s",
			 record_offset(p->text, p->len, p->record), p->record, what);
}

static int bad_field(const struct parse *p, const char *name, const char *what)
{
	char text[160];

	snprintf(text, sizeof text, "\"%s\" %s", name, what);
	return bad_record(p, text);
}

/* Other programs' fields are passed over, as hypeman does with fields of a later version of itself.
 * A known name in other letters is a slip of somebody's hand, and might be the quarantine. */
static const char *misspelt(json_t *object, const char *const known[], size_t n)
{
	const char *name;
	json_t *value;

	json_object_foreach(object, name, value) {
		for (size_t i = 0; i < n; i++)
			if (strcmp(name, known[i]) != 0 && strcasecmp(name, known[i]) == 0)
				return known[i];
	}
	return NULL;
}

static int check_names(const struct parse *p, json_t *object, const char *const known[], size_t n)
{
	const char *name = misspelt(object, known, n);

	return name ? bad_field(p, name, "is written in other letters") : 0;
}

/* An optional string. null is as good as absent. */
static int get_string(const struct parse *p, json_t *object, const char *name, char *ret,
		      size_t size)
{
	json_t *value = json_object_get(object, name);

	ret[0] = '\0';
	if (!value || json_is_null(value))
		return 0;
	if (!json_is_string(value))
		return bad_field(p, name, "is no string");
	if (str_copy(ret, size, json_string_value(value)) < 0)
		return bad_field(p, name, "is too long");
	return 0;
}

static int get_time(const struct parse *p, json_t *object, const char *name, char *ret, size_t size)
{
	json_t *value = json_object_get(object, name);
	int r = get_string(p, object, name, ret, size);

	if (r < 0 || !value || json_is_null(value))
		return r;
	/* The zero of Go's clock is what a missing time looks like there. */
	if (!str_is_rfc3339(ret, strlen(ret)) || strcmp(ret, "0001-01-01T00:00:00Z") == 0)
		return bad_field(p, name, "is no RFC 3339 time");
	return 0;
}

static int parse_failure(const struct parse *p, json_t *object, struct health_failure *ret)
{
	static const char *const names[] = { "instance_id", "assigned_at", "reported_at" };
	int r;

	if (!json_is_object(object))
		return bad_record(p, "a failure is no object");
	r = check_names(p, object, names, ARRAY_SIZE(names));
	if (r == 0)
		r = get_string(p, object, "instance_id", ret->instance_id, sizeof ret->instance_id);
	if (r == 0)
		r = get_string(p, object, "assigned_at", ret->assigned_at, sizeof ret->assigned_at);
	if (r == 0)
		r = get_time(p, object, "reported_at", ret->reported_at, sizeof ret->reported_at);
	if (r == 0 && !ret->reported_at[0])
		r = bad_field(p, "reported_at", "is missing");
	return r;
}

/* One failure counts per assignment, so nobody writes two; of one without a name nothing can be
 * said. */
static bool is_repeated(const struct health_record *r, unsigned i)
{
	const struct health_failure *f = &r->failures[i];

	if (!f->instance_id[0] && !f->assigned_at[0])
		return false;
	for (unsigned k = 0; k < i; k++)
		if (strcmp(f->instance_id, r->failures[k].instance_id) == 0 &&
		    strcmp(f->assigned_at, r->failures[k].assigned_at) == 0)
			return true;
	return false;
}

static int parse_failures(const struct parse *p, json_t *record, struct health_record *ret)
{
	json_t *list = json_object_get(record, "failures");
	size_t n = json_array_size(list);

	if (!list || json_is_null(list))
		return 0;
	if (!json_is_array(list))
		return bad_field(p, "failures", "is no array");
	if (n > HEALTH_FAILURES_MAX)
		return bad_field(p, "failures", "are too many");
	for (; ret->n_failures < n; ret->n_failures++) {
		int r = parse_failure(p, json_array_get(list, ret->n_failures),
				      &ret->failures[ret->n_failures]);

		if (r < 0)
			return r;
		if (is_repeated(ret, ret->n_failures))
			return bad_record(p, "two failures of one assignment");
	}
	return 0;
}

/* `failures` of the record have room for HEALTH_FAILURES_MAX. */
static int parse_record(const struct parse *p, json_t *object, struct health_record *ret)
{
	static const char *const names[] = { "vf_address", "failures", "quarantined_at" };
	char address[64];
	int r;

	if (!json_is_object(object))
		return bad_record(p, "is no object");
	r = check_names(p, object, names, ARRAY_SIZE(names));
	if (r == 0)
		r = get_string(p, object, "vf_address", address, sizeof address);
	if (r == 0 && pci_addr_parse(address, &ret->vf) < 0)
		r = bad_field(p, "vf_address", "is missing or no PCI address");
	if (r == 0)
		r = parse_failures(p, object, ret);
	if (r == 0)
		r = get_time(p, object, "quarantined_at", ret->quarantined_at,
			     sizeof ret->quarantined_at);
	if (r == 0 && ret->n_failures == 0 && !ret->quarantined_at[0])
		r = bad_record(p, "neither failures nor \"quarantined_at\"");
	return r;
}

static int add_record(const struct parse *p, json_t *object, struct health *h)
{
	_free_ struct health_failure *failures = calloc(HEALTH_FAILURES_MAX, sizeof *failures);
	struct health_record record = { .failures = failures };
	int r;

	if (!failures)
		return error_set(p->err, ENOMEM, "out of memory");
	r = parse_record(p, object, &record);
	if (r < 0)
		return r;
	r = health_add_record(h, &record);
	if (r == -EEXIST)
		return bad_record(p, "a second record of this VF");
	if (r == -E2BIG)
		return bad_record(p, "too many records");
	return r < 0 ? error_set_errno(p->err, r, "record %zu", p->record) : 0;
}

/* What jansson would refuse too, but not in words that help. */
static int check_bytes(const char *text, size_t len, struct error *err)
{
	const char *nul = memchr(text, '\0', len);

	if (len == 0)
		return error_set(err, EINVAL, "byte 0: the file is empty");
	if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
		return error_set(err, EINVAL, "byte 0: a byte order mark");
	if (nul)
		return error_set(err, EINVAL, "byte %zu: a NUL byte", (size_t)(nul - text));
	return 0;
}

static int parse_root(json_t *root, json_t **ret_records, struct error *err)
{
	static const char *const names[] = { "version", "records" };
	json_t *version = json_object_get(root, "version");
	json_t *records = json_object_get(root, "records");
	const char *name = misspelt(root, names, ARRAY_SIZE(names));

	if (!json_is_object(root))
		return error_set(err, EINVAL, "byte 0: no object");
	if (name)
		return error_set(err, EINVAL, "byte 0: \"%s\" is written in other letters", name);
	if (!json_is_integer(version))
		return error_set(err, EINVAL, "byte 0: \"version\" is missing or no whole number");
	if (json_integer_value(version) != HEALTH_FILE_VERSION)
		return error_set(err, EINVAL, "byte 0: version %lld, known is %d",
				 (long long)json_integer_value(version), HEALTH_FILE_VERSION);
	if (!json_is_array(records))
		return error_set(err, EINVAL, "byte 0: \"records\" is missing or no array");
	*ret_records = records;
	return 0;
}

int health_parse(const char *text, size_t len, struct health *ret, struct error *err)
{
	struct parse p = { .text = text, .len = len, .err = err };
	struct health h = { 0 };
	json_error_t problem;
	_json_ json_t *root = NULL;
	json_t *records = NULL;
	int r = check_bytes(text, len, err);

	if (r < 0)
		return r;
	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &problem);
	if (!root)
		return error_set(err, EINVAL, "byte %d: %s", MAX(problem.position, 0),
				 problem.text);
	r = parse_root(root, &records, err);
	for (; r == 0 && p.record < json_array_size(records); p.record++)
		r = add_record(&p, json_array_get(records, p.record), &h);
	if (r < 0) {
		health_done(&h);
		return r;
	}
	*ret = h;
	return 0;
}

/* --- Writing ---------------------------------------------------------------------- */

/* Takes `value`, which may be NULL after a failed allocation. */
static bool put(json_t *object, const char *name, json_t *value)
{
	return value && json_object_set_new(object, name, value) == 0;
}

static bool put_string(json_t *object, const char *name, const char *text)
{
	return !text[0] || put(object, name, json_string(text));
}

static json_t *render_failure(const struct health_failure *f)
{
	_json_ json_t *object = json_object();

	if (!object || !put_string(object, "instance_id", f->instance_id) ||
	    !put_string(object, "assigned_at", f->assigned_at) ||
	    !put_string(object, "reported_at", f->reported_at))
		return NULL;
	return TAKE(object);
}

static json_t *render_record(const struct health_record *r)
{
	_json_ json_t *object = json_object();
	_json_ json_t *failures = json_array();
	char address[PCI_ADDR_MAX];

	if (!object || !failures)
		return NULL;
	for (unsigned i = 0; i < r->n_failures; i++)
		if (json_array_append_new(failures, render_failure(&r->failures[i])) < 0)
			return NULL;
	if (!put_string(object, "vf_address", pci_addr_format(r->vf, address)))
		return NULL;
	if (r->n_failures > 0 && !put(object, "failures", json_incref(failures)))
		return NULL;
	if (!put_string(object, "quarantined_at", r->quarantined_at))
		return NULL;
	return TAKE(object);
}

int health_render(const struct health *h, char **ret, size_t *ret_len)
{
	_json_ json_t *root = json_object();
	_json_ json_t *records = json_array();
	char *text;

	if (!root || !records)
		return -ENOMEM;
	for (unsigned i = 0; i < h->n; i++)
		if (json_array_append_new(records, render_record(&h->records[i])) < 0)
			return -ENOMEM;
	if (!put(root, "version", json_integer(HEALTH_FILE_VERSION)) ||
	    !put(root, "records", json_incref(records)))
		return -ENOMEM;
	/* No newline at the end: so a file cut anywhere is no valid file. */
	text = json_dumps(root, JSON_INDENT(2));
	if (!text)
		return -ENOMEM;
	*ret = text;
	*ret_len = strlen(text);
	return 0;
}
