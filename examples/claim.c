/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims a vGPU, prints the path that QEMU wants, waits for Enter, and gives the vGPU back.
 *
 *   cc claim.c -o claim $(pkg-config --cflags --libs libcurl jansson)
 *   ./claim vm1 L40S-4Q
 */
#define _GNU_SOURCE
#include <curl/curl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* One request. True: *ret_answer is the JSON that came, NULL for none. False: it was said why. */
static bool ask(CURL *curl, const char *method, const char *body, json_t **ret_answer)
{
	char *text = NULL, *title = "no answer that can be read", *detail = "", *code = "";
	size_t len = 0;
	long status = 0;
	FILE *out = open_memstream(&text, &len);

	curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
	curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, out);
	CURLcode failed = curl_easy_perform(curl);
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	fclose(out);
	*ret_answer = json_loads(text, 0, NULL);
	free(text);
	if (!failed && status < 300)
		return true;
	json_unpack(*ret_answer, "{s:s, s?s, s:s}", "title", &title, "detail", &detail, "code",
		    &code);
	if (failed)
		fprintf(stderr, "berthd cannot be reached: %s\n", curl_easy_strerror(failed));
	else
		fprintf(stderr, "%ld %s: %s: %s\n", status, code, title, detail);
	json_decref(*ret_answer);
	return false;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: claim NAME PROFILE\n");
		return 2;
	}
	CURL *curl = curl_easy_init();
	const char *socket = getenv("BERTH_SOCKET");
	char *name = curl_easy_escape(curl, argv[1], 0), *url, *body;
	json_t *wanted = json_pack("{s:s}", "profile", argv[2]), *claim;
	bool ok = name && wanted && (body = json_dumps(wanted, 0)) &&
		  asprintf(&url, "http://localhost/claims/%s", name) > 0;

	if (!ok)
		return 1;
	curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH,
			 socket ? socket : "/run/berth/berthd.sock");
	curl_easy_setopt(curl, CURLOPT_URL, url);
	ok = ask(curl, "PUT", body, &claim);
	if (ok) {
		printf("%s\n", json_string_value(json_object_get(claim, "sysfs_path")));
		fflush(stdout);
		json_decref(claim);
		getchar(); /* the VM runs here */
		ok = ask(curl, "DELETE", "", &claim);
		if (ok)
			json_decref(claim);
	}
	json_decref(wanted);
	free(body);
	free(url);
	curl_free(name);
	curl_easy_cleanup(curl);
	return ok ? 0 : 1;
}
