/* SPDX-License-Identifier: Apache-2.0 */
#include "http.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/str.h"

int http_open(struct http *h, const char *socket_path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int r = str_copy(address.sun_path, sizeof address.sun_path, socket_path);

	if (r < 0)
		return r;
	h->len = 0;
	h->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (h->fd < 0)
		return -errno;
	/* Blocking only here: a full backlog is waited for. */
	if (connect(h->fd, (struct sockaddr *)&address, sizeof address) == 0 &&
	    fcntl(h->fd, F_SETFL, O_NONBLOCK) == 0)
		return 0;
	r = -errno;
	http_close(h);
	return r;
}

void http_close(struct http *h)
{
	if (h->fd >= 0)
		close(h->fd);
	h->fd = -1;
}

int http_ask(struct http *h, const char *request, size_t len)
{
	ssize_t n = send(h->fd, request, len, MSG_NOSIGNAL);

	if (n < 0)
		return -errno;
	return (size_t)n == len ? 0 : -EMSGSIZE;
}

/* Bytes of the answer that begins in `in`; 0: its head has not wholly come. */
static size_t answer_size(const struct http *h)
{
	static const char field[] = "\r\ncontent-length:";
	const char *end = memmem(h->in, h->len, "\r\n\r\n", 4);
	size_t head;

	if (!end)
		return 0;
	head = (size_t)(end - h->in) + 4;
	for (const char *p = h->in; p < end; p++)
		if (strncasecmp(p, field, sizeof field - 1) == 0)
			return head + strtoul(p + sizeof field - 1, NULL, 10);
	return head;
}

int http_take(struct http *h, int *ret_status)
{
	size_t size;
	ssize_t n;

	n = recv(h->fd, h->in + h->len, sizeof h->in - 1 - h->len, 0);
	if (n < 0)
		return errno == EAGAIN ? 0 : -errno;
	if (n == 0)
		return -ECONNRESET;
	h->len += (size_t)n;
	h->in[h->len] = '\0';
	size = answer_size(h);
	if (size >= sizeof h->in)
		return -EMSGSIZE;
	if (size == 0 || h->len < size)
		return 0;
	*ret_status = (int)strtoul(h->in + strlen("HTTP/1.1 "), NULL, 10);
	h->len = 0;
	return 1;
}
