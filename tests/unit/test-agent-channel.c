/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's channel, on a Unix socket in place of AF_VSOCK and a socket in place of the serial
 * port. */
#include "agent/channel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#define ANSWER "{\"state\":\"ok\"}\n"

static struct agent_channel channel;
static struct sockaddr_un address = { .sun_family = AF_UNIX };
static socklen_t address_len;

static size_t answer(char *ret, size_t size, void *userdata _unused_)
{
	return (size_t)snprintf(ret, size, ANSWER);
}

/* The agent's loop, until nothing is to be done. */
static void turn(void)
{
	struct pollfd fds[CHANNEL_FDS_MAX];
	unsigned n;

	do {
		n = agent_channel_poll_fds(&channel, fds);
		if (poll(fds, n, 0) <= 0)
			return;
		agent_channel_handle(&channel, fds, n);
	} while (true);
}

static int dial(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, address_len), 0);
	turn();
	return fd;
}

static void send_text(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
	turn();
}

/* "" for an end without an answer. */
static void assert_gets(int fd, const char *text)
{
	char got[256] = "";
	ssize_t n = recv(fd, got, sizeof got - 1, 0);

	assert_true(n >= 0 || errno == ECONNRESET); /* closed with something unread */
	assert_string_equal(got, text);
}

static void test_answer(void **state _unused_)
{
	static const struct {
		const char *request, *reply;
	} cases[] = {
		{ "status\n", ANSWER }, { "status\r\n", ANSWER },
		{ "statusx\n", "" },	{ "\n", "" },
		{ "STATUS\n", "" },	{ "0123456789012345678901234567890123456789", "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int fd = dial();

		send_text(fd, cases[i].request);
		assert_gets(fd, cases[i].reply);
		close(fd);
	}
}

static void test_in_pieces(void **state _unused_)
{
	int fd = dial();

	send_text(fd, "sta");
	send_text(fd, "tus");
	errno = 0;
	assert_int_equal(recv(fd, &(char){ 0 }, 1, 0), -1);
	assert_int_equal(errno, EAGAIN);
	send_text(fd, "\n");
	assert_gets(fd, ANSWER);
	close(fd);
}

/* Clients that say nothing do not keep others out, and take turns in being given up. */
static void test_silent_clients(void **state _unused_)
{
	int fds[20];

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = dial();
	for (size_t i = 0; i + CHANNEL_CLIENTS_MAX < ARRAY_SIZE(fds); i++)
		assert_gets(fds[i], "");
	for (size_t i = ARRAY_SIZE(fds) - CHANNEL_CLIENTS_MAX; i < ARRAY_SIZE(fds); i++) {
		send_text(fds[i], "status\n");
		assert_gets(fds[i], ANSWER);
	}
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	turn();
}

/* The serial port stays open over requests, nonsense and over-long lines. */
static void test_port(void **state _unused_)
{
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
	channel.port = channel.port_client.fd = ends[0];
	for (int i = 0; i < 3; i++) {
		send_text(ends[1], "status\n");
		assert_gets(ends[1], ANSWER);
		send_text(ends[1], "nonsense that is longer than any request may be\n");
		send_text(ends[1], "\n");
	}
	/* The host hangs up: not polled until told that it is back. */
	channel.port_idle = false;
	shutdown(ends[1], SHUT_RDWR);
	close(ends[1]);
	close(ends[0]);
	channel.port = channel.port_client.fd = -1;
}

static int set_up(void **state _unused_)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	channel.answer = answer;
	agent_channel_open(&channel, 0, NULL);
	if (channel.listener != -1 || channel.port != -1)
		return -1;
	/* An abstract name of the kernel's choice. */
	address_len = sizeof(sa_family_t);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, address_len) < 0 || listen(fd, 8) < 0)
		return -1;
	address_len = sizeof address;
	if (getsockname(fd, (struct sockaddr *)&address, &address_len) < 0)
		return -1;
	agent_channel_take_listener(&channel, fd);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answer),
		cmocka_unit_test(test_in_pieces),
		cmocka_unit_test(test_silent_clients),
		cmocka_unit_test(test_port),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
