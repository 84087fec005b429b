/* SPDX-License-Identifier: Apache-2.0 */
/* vf-health.json: what is read, what is refused and where, and what is written. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "store/health-store.h"

#define NOW  "2026-11-29T16:38:00.123456789Z"
#define REC4 "{\"vf_address\":\"0000:41:00.4\",\"quarantined_at\":\"" NOW "\"}"
#define REC5                                                                                       \
	"{\"vf_address\":\"0000:41:00.5\",\"failures\":[{\"instance_id\":\"a\",\"assigned_at\":"   \
	"\"x\",\"reported_at\":\"" NOW "\"}]}"
#define FILE_OF(records) "{\"version\":1,\"records\":[" records "]}"

/* Indented as hypeman's encoder does it. */
static const char whole[] = "{\n"
			    "  \"version\": 1,\n"
			    "  \"records\": [\n"
			    "    {\n"
			    "      \"vf_address\": \"0000:41:00.4\",\n"
			    "      \"failures\": [\n"
			    "        {\n"
			    "          \"instance_id\": \"vm-1\",\n"
			    "          \"assigned_at\": \"2026-11-29T16:37:50Z\",\n"
			    "          \"reported_at\": \"2026-11-29T16:38:00.123456789Z\"\n"
			    "        },\n"
			    "        {\n"
			    "          \"reported_at\": \"2026-11-29T16:48:00+01:00\"\n"
			    "        }\n"
			    "      ],\n"
			    "      \"quarantined_at\": \"2026-11-29T16:48:00Z\"\n"
			    "    },\n"
			    "    {\n"
			    "      \"vf_address\": \"10000:c1:1f.7\",\n"
			    "      \"quarantined_at\": \"2026-11-29T16:48:00Z\"\n"
			    "    }\n"
			    "  ]\n"
			    "}";

/* On the heap without a byte behind it, so that reading too far is noticed. */
static int parse_n(const char *text, size_t n, struct health *ret, struct error *err)
{
	_free_ char *copy = malloc(n ? n : 1);

	assert_non_null(copy);
	memcpy(copy, text, n);
	return health_parse(copy, n, ret, err);
}

static void assert_refused_n(const char *text, size_t n, const char *message)
{
	struct health h = { .n = 77 };
	struct error err = ERROR_INIT;

	if (parse_n(text, n, &h, &err) != -EINVAL)
		fail_msg("not refused: %.*s", (int)n, text);
	assert_int_equal(h.n, 77); /* untouched */
	if (!str_starts_with(err.msg, "byte "))
		fail_msg("no offset: %s", err.msg);
	if (message && !strstr(err.msg, message))
		fail_msg("expected '%s', got '%s'", message, err.msg);
}

static void assert_refused(const char *text, const char *message)
{
	assert_refused_n(text, strlen(text), message);
}

static void assert_accepted(const char *text, unsigned n)
{
	struct health h = { 0 };
	struct error err = ERROR_INIT;

	if (parse_n(text, strlen(text), &h, &err) < 0)
		fail_msg("%s: refused: %s", text, err.msg);
	assert_int_equal(h.n, n);
	health_done(&h);
}

static void test_as_hypeman_writes(void **state _unused_)
{
	const struct health_record *r;
	struct error err = ERROR_INIT;
	struct health h = { 0 };
	_free_ char *text = NULL;
	size_t len;

	assert_int_equal(parse_n(whole, sizeof whole - 1, &h, &err), 0);
	assert_int_equal(h.n, 2);
	r = &h.records[0];
	assert_int_equal(r->n_failures, 2);
	assert_string_equal(r->failures[0].instance_id, "vm-1");
	assert_string_equal(r->failures[0].assigned_at, "2026-11-29T16:37:50Z");
	assert_string_equal(r->failures[0].reported_at, "2026-11-29T16:38:00.123456789Z");
	assert_string_equal(r->failures[1].instance_id, "");
	assert_string_equal(r->failures[1].assigned_at, "");
	assert_string_equal(r->quarantined_at, "2026-11-29T16:48:00Z");
	assert_int_equal(h.records[1].vf.domain, 0x10000);
	assert_int_equal(h.records[1].n_failures, 0);
	/* And byte for byte the same again. */
	assert_int_equal(health_render(&h, &text, &len), 0);
	assert_int_equal(len, sizeof whole - 1);
	assert_string_equal(text, whole);
	health_done(&h);
}

static void test_empty_list(void **state _unused_)
{
	struct health h = { 0 };
	_free_ char *text = NULL;
	size_t len;

	assert_accepted("{\"version\":1,\"records\":[]}", 0);
	assert_accepted(" {\t\"records\" : [ ] ,\r\n \"version\" : 1 }\n", 0);
	assert_int_equal(health_render(&h, &text, &len), 0);
	assert_string_equal(text, "{\n  \"version\": 1,\n  \"records\": []\n}");
}

/* F60: cut anywhere, empty, NULs. */
static void test_cut_anywhere(void **state _unused_)
{
	char nuls[4096] = { 0 };
	char with_nuls[sizeof whole + 16] = { 0 };

	for (size_t n = 0; n < sizeof whole - 1; n++)
		assert_refused_n(whole, n, NULL);
	assert_refused("", "byte 0: the file is empty");
	assert_refused_n(nuls, sizeof nuls, "byte 0: a NUL byte");
	memcpy(with_nuls, whole, sizeof whole - 1);
	for (size_t n = sizeof whole; n < sizeof with_nuls; n++)
		assert_refused_n(with_nuls, n, "a NUL byte");
	for (size_t n = 1; n < sizeof whole - 1; n++) {
		memcpy(with_nuls, whole, sizeof whole - 1);
		with_nuls[n] = '\0';
		assert_refused_n(with_nuls, sizeof whole - 1, "a NUL byte");
	}
}

/* F62 */
static void test_not_quite_json(void **state _unused_)
{
	assert_refused("{\"version\":1,\"records\":[]}\"}", "byte 2");
	assert_refused("{\"version\":1,\"records\":[]}{\"version\":1,\"records\":[]}", "byte 2");
	assert_refused("{\"version\":1,\"records\":[]}]", "byte 2");
	assert_refused("\xef\xbb\xbf{\"version\":1,\"records\":[]}", "byte 0: a byte order mark");
	assert_refused("\xff\xfe{", "byte ");
	assert_refused("{\"version\":NaN,\"records\":[]}", "byte ");
	assert_refused("{\"version\":1,\"records\":[],}", "byte ");
	assert_refused("{\"version\":1,\"records\":[],\"records\":[]}", "byte ");
	assert_refused("{\"version\":1,\"version\":1,\"records\":[]}", "byte ");
	assert_refused("{'version':1,'records':[]}", "byte ");
	assert_refused("# comment\n{\"version\":1,\"records\":[]}", "byte ");
	assert_refused(
		FILE_OF("{\"vf_address\":\"0000:41:00.4\",\"quarantined_at\":\"" NOW "\\u0000\"}"),
		"byte ");
	assert_refused(
		FILE_OF("{\"vf_address\":\"0000:41:00.4\xff\",\"quarantined_at\":\"" NOW "\"}"),
		"byte ");
	assert_refused(FILE_OF("{\"vf_address\":\"0000:41:00.4\",\"vf_address\":\"0000:41:00.5\","
			       "\"quarantined_at\":\"" NOW "\"}"),
		       "byte ");
}

/* F62 */
static void test_envelope(void **state _unused_)
{
	assert_refused("[]", "no object");
	assert_refused("{}", "\"version\" is missing");
	assert_refused("{\"records\":[]}", "\"version\" is missing");
	assert_refused("{\"version\":2,\"records\":[]}", "version 2, known is 1");
	assert_refused("{\"version\":0,\"records\":[]}", "version 0");
	assert_refused("{\"version\":-1,\"records\":[]}", "version -1");
	assert_refused("{\"version\":1.0,\"records\":[]}", "\"version\"");
	assert_refused("{\"version\":\"1\",\"records\":[]}", "\"version\"");
	assert_refused("{\"version\":null,\"records\":[]}", "\"version\"");
	assert_refused("{\"version\":true,\"records\":[]}", "\"version\"");
	assert_refused("{\"version\":1}", "\"records\" is missing");
	assert_refused("{\"version\":1,\"records\":null}", "\"records\"");
	assert_refused("{\"version\":1,\"records\":{}}", "\"records\"");
	assert_refused("{\"version\":1,\"Records\":[" REC4 "]}",
		       "\"records\" is written in other letters");
}

/* F62 */
static void test_records(void **state _unused_)
{
	assert_accepted(FILE_OF(REC4), 1);
	assert_accepted(FILE_OF(REC4 "," REC5), 2);
	assert_refused(FILE_OF("1"), "record 0: is no object");
	assert_refused(FILE_OF(REC4 ",[]"), "record 1: is no object");
	assert_refused(FILE_OF("{}"), "\"vf_address\"");
	assert_refused(FILE_OF("{\"quarantined_at\":\"" NOW "\"}"), "\"vf_address\"");
	assert_refused(FILE_OF("{\"vf_address\":\"0000:41:00.8\",\"quarantined_at\":\"" NOW "\"}"),
		       "\"vf_address\"");
	assert_refused(FILE_OF("{\"vf_address\":\"\",\"quarantined_at\":\"" NOW "\"}"),
		       "\"vf_address\"");
	assert_refused(FILE_OF("{\"vf_address\":4,\"quarantined_at\":\"" NOW "\"}"),
		       "\"vf_address\" is no string");
	/* Neither of the two. */
	assert_refused(FILE_OF("{\"vf_address\":\"0000:41:00.4\"}"), "neither");
	assert_refused(FILE_OF("{\"vf_address\":\"0000:41:00.4\",\"failures\":[]}"), "neither");
	assert_refused(FILE_OF("{\"vf_address\":\"0000:41:00.4\",\"failures\":null,\"quarantined_"
			       "at\":null}"),
		       "neither");
	assert_accepted(FILE_OF("{\"vf_address\":\"0000:41:00.4\",\"failures\":null,\"quarantined_"
				"at\":\"" NOW "\"}"),
			1);
	assert_accepted(
		FILE_OF("{\"vf_address\":\"0000:41:00.4\",\"failures\":[],\"quarantined_at\":\"" NOW
			"\"}"),
		1);
	/* Times. */
	assert_refused(FILE_OF("{\"vf_address\":\"0000:41:00.4\",\"quarantined_at\":\"\"}"),
		       "\"quarantined_at\"");
	assert_refused(
		FILE_OF("{\"vf_address\":\"0000:41:00.4\",\"quarantined_at\":\"yesterday\"}"),
		"RFC 3339");
	assert_refused(FILE_OF("{\"vf_address\":\"0000:41:00.4\",\"quarantined_at\":true}"),
		       "\"quarantined_at\"");
	assert_refused(FILE_OF("{\"vf_address\":\"0000:41:00.4\",\"quarantined_at\":\"0001-01-"
			       "01T00:00:00Z\"}"),
		       "RFC 3339");
	assert_refused(FILE_OF("{\"vf_address\":\"0000:41:00.4\",\"quarantined_at\":\"2026-02-"
			       "29T00:00:00Z\"}"),
		       "RFC 3339");
	/* The same VF in other spellings. */
	assert_refused(FILE_OF(REC4 "," REC5 "," REC4), "record 2: a second record of this VF");
	assert_refused(FILE_OF(REC4 ",{\"vf_address\":\"41:0.4\",\"quarantined_at\":\"" NOW "\"}"),
		       "a second record");
	assert_refused(FILE_OF("{\"vf_address\":\"0000:C1:00.4\",\"quarantined_at\":\"" NOW "\"},"
			       "{\"vf_address\":\"00000000:c1:00.4\",\"quarantined_at\":\"" NOW
			       "\"}"),
		       "a second record");
}

#define WITH_FAILURES(list) FILE_OF("{\"vf_address\":\"0000:41:00.4\",\"failures\":" list "}")

static void test_failures(void **state _unused_)
{
	_free_ char *many = malloc(HEALTH_FAILURES_MAX * 64 + 256);
	int n = sprintf(
		many,
		"{\"version\":1,\"records\":[{\"vf_address\":\"0000:41:00.4\",\"failures\":[");

	assert_accepted(WITH_FAILURES("[{\"reported_at\":\"" NOW "\"}]"), 1);
	assert_accepted(
		WITH_FAILURES("[{\"instance_id\":null,\"assigned_at\":null,\"reported_at\":\"" NOW
			      "\"}]"),
		1);
	assert_accepted(
		WITH_FAILURES("[{\"assigned_at\":\"whatever it is\",\"reported_at\":\"" NOW "\"}]"),
		1);
	/* Two without a name may well be two; of one assignment there is one. */
	assert_accepted(
		WITH_FAILURES("[{\"reported_at\":\"" NOW "\"},{\"reported_at\":\"" NOW "\"}]"), 1);
	assert_accepted(
		WITH_FAILURES("[{\"instance_id\":\"a\",\"assigned_at\":\"1\",\"reported_at\":\"" NOW
			      "\"},"
			      "{\"instance_id\":\"a\",\"assigned_at\":\"2\",\"reported_at\":\"" NOW
			      "\"}]"),
		1);
	assert_refused(WITH_FAILURES("[{\"instance_id\":\"a\",\"reported_at\":\"" NOW "\"},"
				     "{\"instance_id\":\"a\",\"reported_at\":\"" NOW "\"}]"),
		       "two failures of one assignment");
	assert_refused(WITH_FAILURES("{}"), "\"failures\" is no array");
	assert_refused(WITH_FAILURES("3"), "\"failures\" is no array");
	assert_refused(WITH_FAILURES("[1]"), "a failure is no object");
	assert_refused(WITH_FAILURES("[{}]"), "\"reported_at\" is missing");
	assert_refused(WITH_FAILURES("[{\"instance_id\":\"a\"}]"), "\"reported_at\" is missing");
	assert_refused(WITH_FAILURES("[{\"reported_at\":null}]"), "\"reported_at\" is missing");
	assert_refused(WITH_FAILURES("[{\"reported_at\":\"x\"}]"),
		       "\"reported_at\" is no RFC 3339 time");
	assert_refused(WITH_FAILURES("[{\"reported_at\":1}]"), "\"reported_at\" is no string");
	assert_refused(WITH_FAILURES("[{\"instance_id\":5,\"reported_at\":\"" NOW "\"}]"),
		       "\"instance_id\" is no string");
	assert_refused(WITH_FAILURES("[{\"assigned_at\":5,\"reported_at\":\"" NOW "\"}]"),
		       "\"assigned_at\" is no string");
	assert_non_null(many);
	for (int i = 0; i <= HEALTH_FAILURES_MAX; i++)
		n += sprintf(many + n, "%s{\"reported_at\":\"2026-11-29T16:38:00Z\"}",
			     i ? "," : "");
	sprintf(many + n, "]}]}");
	assert_refused(many, "\"failures\" are too many");
}

static void test_other_fields(void **state _unused_)
{
	/* Of a later hypeman, or of somebody's notes: passed over. */
	assert_accepted("{\"version\":1,\"recovery\":{\"records\":[1,2]},\"note\":\"records\","
			"\"records\":[" REC4 "]}",
			1);
	assert_accepted(FILE_OF("{\"vf_address\":\"0000:41:00.4\",\"wedge_count\":3,\"quarantined_"
				"at\":\"" NOW "\"}"),
			1);
	assert_accepted(WITH_FAILURES("[{\"reported_at\":\"" NOW "\",\"line\":\"NVRM\"}]"), 1);
	/* A slip of the hand that would lift a quarantine. */
	assert_refused(
		FILE_OF("{\"vf_address\":\"0000:41:00.4\",\"failures\":[{\"reported_at\":\"" NOW
			"\"}],"
			"\"Quarantined_At\":\"" NOW "\"}"),
		"\"quarantined_at\" is written in other letters");
	assert_refused(WITH_FAILURES("[{\"Reported_at\":\"" NOW "\"}]"),
		       "\"reported_at\" is written in other letters");
}

/* F62: the offset is that of the record's first byte. */
static void test_offset(void **state _unused_)
{
	static const char text[] =
		"{\"a\": [[{}], \"records\", {\"records\": [{},{}]}], \"b\": \"\\\"records\\\\\",\n"
		" \"records\": [ " REC4 ",\t" REC5 " ,\n"
		"{\"vf_address\": 7}], \"version\": 1}";
	char expected[64];

	snprintf(expected, sizeof expected,
		 "byte %zu: record 2: ", (size_t)(strstr(text, "{\"vf_address\": 7}") - text));
	assert_refused(text, expected);
	/* A name in escapes is the same name, and its place cannot be told. */
	assert_refused("{\"version\":1,\"record\\u0073\":[{}]}", "byte 0: record 0:");
}

static void test_too_long(void **state _unused_)
{
	char text[1024];
	struct health h = { 0 };

	for (int n = 128; n <= 129; n++) {
		struct error err = ERROR_INIT;

		snprintf(text, sizeof text,
			 WITH_FAILURES("[{\"instance_id\":\"%0*d\",\"reported_at\":\"" NOW "\"}]"),
			 n, 7);
		assert_int_equal(parse_n(text, strlen(text), &h, &err), n == 128 ? 0 : -EINVAL);
		health_done(&h);
	}
	for (int n = 63; n <= 64; n++) {
		struct error err = ERROR_INIT;

		snprintf(text, sizeof text,
			 WITH_FAILURES("[{\"assigned_at\":\"%0*d\",\"reported_at\":\"" NOW "\"}]"),
			 n, 7);
		assert_int_equal(parse_n(text, strlen(text), &h, &err), n == 63 ? 0 : -EINVAL);
		health_done(&h);
	}
}

/* What is odd in strings comes back as it was. */
static void test_render_strings(void **state _unused_)
{
	static const char text[] = WITH_FAILURES(
		"[{\"instance_id\":\"a\\\"\\\\\\u001b\\n\\u00e9\\ud83d\\ude00/"
		"\",\"reported_at\":\"" NOW "\"}]");
	struct health h = { 0 }, again = { 0 };
	struct error err = ERROR_INIT;
	_free_ char *out = NULL;
	size_t len;

	assert_int_equal(parse_n(text, sizeof text - 1, &h, &err), 0);
	assert_string_equal(h.records[0].failures[0].instance_id,
			    "a\"\\\x1b\n\xc3\xa9\xf0\x9f\x98\x80/");
	assert_int_equal(health_render(&h, &out, &len), 0);
	assert_int_equal(parse_n(out, len, &again, &err), 0);
	assert_true(health_equal(&h, &again));
	health_done(&h);
	health_done(&again);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_as_hypeman_writes),
		cmocka_unit_test(test_empty_list),
		cmocka_unit_test(test_cut_anywhere),
		cmocka_unit_test(test_not_quite_json),
		cmocka_unit_test(test_envelope),
		cmocka_unit_test(test_records),
		cmocka_unit_test(test_failures),
		cmocka_unit_test(test_other_fields),
		cmocka_unit_test(test_offset),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_render_strings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
