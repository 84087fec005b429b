/* SPDX-License-Identifier: Apache-2.0 */
#include "client/http-client.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "client/connection.h"

void http_answer_done(struct http_answer *answer)
{
	free(answer->body);
	answer->body = NULL;
}

static int take_answer(struct http_parse *parse, struct http_answer *ret, struct error *err)
{
	struct http_answer answer = { .status = parse->status };

	memcpy(answer.content_type, parse->content_type, sizeof(answer.content_type));
	if (buf_take(&parse->body, &answer.body, &answer.len) < 0)
		return error_set_errno(err, ENOMEM, "cannot read the answer");
	*ret = answer;
	return 0;
}

int http_client_request_ticking(const char *socket_path, const char *method, const char *path,
				const json_t *body, uint64_t timeout_usec,
				const struct http_tick *tick, struct http_answer *ret,
				struct error *err)
{
	uint64_t deadline = clock_now_usec() + timeout_usec;
	_cleanup_(connection_done) struct connection c;
	int r = connection_open(&c, socket_path, method, path, body, deadline, err);

	c.tick = tick;
	while (r == 0)
		r = connection_read(&c, deadline, err);
	return r < 0 ? r : take_answer(&c.parse, ret, err);
}

int http_client_request(const char *socket_path, const char *method, const char *path,
			const json_t *body, uint64_t timeout_usec, struct http_answer *ret,
			struct error *err)
{
	return http_client_request_ticking(socket_path, method, path, body, timeout_usec, NULL, ret,
					   err);
}

int http_client_encode(const char *segment, char *ret, size_t size)
{
	static const char hex[] = "0123456789ABCDEF";
	size_t n = 0;

	for (const char *s = segment; *s; s++) {
		unsigned char c = (unsigned char)*s;
		bool plain = (c < 0x80 && isalnum(c)) || strchr("._~-", c);

		if (n + (plain ? 1 : 3) >= size)
			return -ENAMETOOLONG;
		if (plain) {
			ret[n++] = (char)c;
			continue;
		}
		ret[n++] = '%';
		ret[n++] = hex[c >> 4];
		ret[n++] = hex[c & 15];
	}
	if (size == 0)
		return -ENAMETOOLONG;
	ret[n] = '\0';
	return 0;
}
