/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include "http/route.h"

#include <cmocka.h>

static void decoding_refuses(void **state)
{
	static const struct {
		const char *text;
		size_t size;
		int error;
	} cases[] = {
		{ "%", 16, -EINVAL },		{ "%4", 16, -EINVAL },
		{ "%4g", 16, -EINVAL },		{ "%g4", 16, -EINVAL },
		{ "a%", 16, -EINVAL },		{ "%00", 16, -EINVAL },
		{ "a%0ab", 16, -EINVAL },	{ "%7f", 16, -EINVAL },
		{ "%ff", 16, -EINVAL },		{ "%c3", 16, -EINVAL },
		{ "%c3%28", 16, -EINVAL },	{ "\t", 16, -EINVAL },
		{ "%ed%a0%80", 16, -EINVAL },	{ "abcd", 4, -ENAMETOOLONG },
		{ "%41%41", 2, -ENAMETOOLONG },
	};
	char out[16];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(http_percent_decode(cases[i].text, strlen(cases[i].text), false,
						     out, cases[i].size),
				 cases[i].error);
}

static void decoding_decodes(void **state)
{
	static const struct {
		const char *text;
		bool plus;
		const char *want;
	} cases[] = {
		{ "", false, "" },
		{ "abc", false, "abc" },
		{ "%41%2f%2F", false, "A//" },
		{ "a+b", false, "a+b" },
		{ "a+b%2b", true, "a b+" },
		{ "%C3%BC", false, "ü" },
		{ "%25%34%31", false, "%41" },
	};
	char out[16];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(http_percent_decode(cases[i].text, strlen(cases[i].text),
						     cases[i].plus, out, sizeof(out)),
				 strlen(cases[i].want));
		assert_string_equal(out, cases[i].want);
	}
	/* Exactly as long as there is room. */
	assert_int_equal(http_percent_decode("abc", 3, false, out, 4), 3);
}

static void paths_that_do_not_fit(void **state)
{
	static const char *const cases[][2] = {
		{ "/a", "" },
		{ "/a", "a" },
		{ "/a", "/" },
		{ "/a", "/b" },
		{ "/a", "/a/" },
		{ "/a", "//a" },
		{ "/a", "/ab" },
		{ "/ab", "/a" },
		{ "/a", "/%61" },
		{ "/a/{n}", "/a" },
		{ "/a/{n}", "/a/" },
		{ "/a/{n}", "/a/b/c" },
		{ "/a/{n}", "/a/%zz" },
		{ "/a/{n}", "/a/%00" },
		{ "/a/{n}/c", "/a/b" },
		{ "/a/{n}/c", "/a//c" },
		{ "/a/{n}/c", "/a/b/d" },
	};
	struct http_params params;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_false(http_path_match(cases[i][0], cases[i][1], &params));
}

static void parameters_are_taken(void **state)
{
	struct http_params params;
	char path[600] = "/a/";

	(void)state;
	assert_true(http_path_match("/gpus/{bdf}/x/{n}", "/gpus/0000:41:00.0/x/a%2fb", &params));
	assert_int_equal(params.n, 2);
	assert_memory_equal(params.at[0].name, "bdf", params.at[0].name_len);
	assert_string_equal(params.at[0].value, "0000:41:00.0");
	assert_string_equal(params.at[1].value, "a/b");
	/* Both sides of the limit of one parameter. */
	memset(path + 3, 'x', HTTP_PARAM_SIZE - 1);
	assert_true(http_path_match("/a/{n}", path, &params));
	path[3 + HTTP_PARAM_SIZE - 1] = 'x';
	assert_false(http_path_match("/a/{n}", path, &params));
}

static void handler(struct http_request *req, void *userdata)
{
	(void)req;
	(void)userdata;
}

static const struct http_route routes[] = {
	{ "GET", "/claims", handler },
	{ "GET", "/claims/{name}", handler },
	{ "PUT", "/claims/{name}", handler },
	{ "POST", "/fit", handler },
};

static void routes_are_found(void **state)
{
	const struct http_route *route = NULL;
	struct http_params params;
	char allow[64], little[8];

	(void)state;
	assert_int_equal(http_route_find(routes, ARRAY_SIZE(routes), "GET", "/nope", &route,
					 &params, allow, sizeof(allow)),
			 -ENOENT);
	assert_int_equal(http_route_find(routes, ARRAY_SIZE(routes), "DELETE", "/claims/x", &route,
					 &params, allow, sizeof(allow)),
			 -EPERM);
	assert_string_equal(allow, "GET, HEAD, PUT");
	assert_int_equal(http_route_find(routes, ARRAY_SIZE(routes), "get", "/fit", &route, &params,
					 allow, sizeof(allow)),
			 -EPERM);
	assert_string_equal(allow, "POST");
	assert_int_equal(http_route_find(routes, ARRAY_SIZE(routes), "DELETE", "/claims/x", &route,
					 &params, little, sizeof(little)),
			 -EPERM);
	assert_null(route);
	assert_int_equal(http_route_find(routes, ARRAY_SIZE(routes), "PUT", "/claims/x", &route,
					 &params, allow, sizeof(allow)),
			 0);
	assert_ptr_equal(route, &routes[2]);
	assert_string_equal(params.at[0].value, "x");
}

static void queries(void **state)
{
	struct http_query q;
	char text[256] = "a=1&&b&c=x%26y+z&d=&=e";

	(void)state;
	assert_int_equal(http_query_parse(text, &q), 0);
	assert_int_equal(q.n, 5);
	assert_string_equal(q.at[0].key, "a");
	assert_string_equal(q.at[0].value, "1");
	assert_string_equal(q.at[1].key, "b");
	assert_string_equal(q.at[1].value, "");
	assert_string_equal(q.at[2].value, "x&y z");
	assert_string_equal(q.at[3].value, "");
	assert_string_equal(q.at[4].key, "");
	text[0] = '\0';
	assert_int_equal(http_query_parse(text, &q), 0);
	assert_int_equal(q.n, 0);
	strcpy(text, "a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a");
	assert_int_equal(http_query_parse(text, &q), 0);
	assert_int_equal(q.n, HTTP_QUERY_MAX);
	strcpy(text, "a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a");
	assert_int_equal(http_query_parse(text, &q), -E2BIG);
	strcpy(text, "a=%2");
	assert_int_equal(http_query_parse(text, &q), -EINVAL);
}

static void hosts(void **state)
{
	static const char *const safe[] = {
		"localhost", "LocalHost:8080", "127.0.0.1", "10.0.0.7:1",
		"[::1]",     "[fe80::1]:9",    "node7.lan", "NODE7.lan:1",
	};
	static const char *const unsafe[] = {
		"",
		"evil.example",
		"localhost.evil.example",
		"127.0.0.1.evil.example",
		"[::1",
		"[]",
		"[::1]evil",
		"::1",
		"[evil]:80",
		":80",
		"127.0.0",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(safe); i++)
		assert_true(http_host_is_safe(safe[i], "node7.lan"));
	for (size_t i = 0; i < ARRAY_SIZE(unsafe); i++)
		assert_false(http_host_is_safe(unsafe[i], "node7.lan"));
	assert_false(http_host_is_safe("node7.lan", NULL));
}

static void hosts_of_a_unix_socket(void **state)
{
	static const char *const safe[] = {
		"localhost", "localhost:8080", "unix", "berthd", "127.0.0.1:8080", "[::1]:8080",
	};
	static const char *const unsafe[] = {
		"", "evil.example", "evil.example:8080", "berthd:8080", "berthd.", "[::1", "1.2.3",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(safe); i++)
		assert_true(http_host_is_safe_on_unix(safe[i]));
	for (size_t i = 0; i < ARRAY_SIZE(unsafe); i++)
		assert_false(http_host_is_safe_on_unix(unsafe[i]));
}

static void origins(void **state)
{
	static const struct {
		const char *origin, *host;
		bool own;
	} cases[] = {
		{ "http://localhost:8080", "localhost:8080", true },
		{ "https://LOCALHOST:8080", "localhost:8080", true },
		{ "http://[::1]:80", "[::1]:80", true },
		{ "http://localhost:3000", "localhost:8080", false },
		{ "http://localhost", "localhost:8080", false },
		{ "http://127.0.0.1:8080", "localhost:8080", false },
		{ "http://evil.example", "localhost:8080", false },
		{ "http://localhost:8080.evil.example", "localhost:8080", false },
		{ "http://localhost:8080/", "localhost:8080", false },
		{ "null", "localhost:8080", false },
		{ "", "localhost:8080", false },
		{ "", "", false },
		{ "://localhost:8080", "localhost:8080", false },
		{ "localhost:8080", "localhost:8080", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(http_origin_is_own(cases[i].origin, cases[i].host), cases[i].own);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(decoding_refuses),
		cmocka_unit_test(decoding_decodes),
		cmocka_unit_test(paths_that_do_not_fit),
		cmocka_unit_test(parameters_are_taken),
		cmocka_unit_test(routes_are_found),
		cmocka_unit_test(queries),
		cmocka_unit_test(hosts),
		cmocka_unit_test(hosts_of_a_unix_socket),
		cmocka_unit_test(origins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
