/* SPDX-License-Identifier: Apache-2.0 */
/* The helper is this program itself, started again with a word that says what to do. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/channel.h"
#include "base/cleanup.h"

#include <cmocka.h>

#define DEADLINE_MSEC 20000

static const char self[] = "/proc/self/exe";

struct helper {
	pid_t pid;
	int pidfd;
	int fd;
};

static struct helper start(const char *what)
{
	char *argv[] = { (char *)(uintptr_t) "helper", (char *)(uintptr_t)what, NULL };
	struct helper h;

	assert_int_equal(channel_spawn(self, argv, &h.pid, &h.pidfd, &h.fd), 0);
	return h;
}

static bool wait_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, DEADLINE_MSEC) == 1;
}

/* Closes the channel, which ends the helper; returns its wait status. */
static int finish(struct helper *h)
{
	int status;

	close(h->fd);
	assert_true(wait_readable(h->pidfd));
	close(h->pidfd);
	assert_int_equal(waitpid(h->pid, &status, 0), h->pid);
	return status;
}

static void ask(const struct helper *h, char *buf, size_t size)
{
	size_t len = 0;

	assert_true(wait_readable(h->fd));
	assert_int_equal(channel_recv(h->fd, buf, size - 1, &len), 1);
	buf[len] = '\0';
}

static void messages_keep_their_bounds(void **state)
{
	struct helper h = start("echo");
	char buf[64];
	int status;

	(void)state;
	assert_int_equal(channel_send(h.fd, "one", 3), 0);
	assert_int_equal(channel_send(h.fd, "three3", 6), 0);
	ask(&h, buf, sizeof buf);
	assert_string_equal(buf, "one");
	ask(&h, buf, sizeof buf);
	assert_string_equal(buf, "three3");
	assert_int_equal(channel_recv(h.fd, buf, sizeof buf, &(size_t){ 0 }), -EAGAIN);
	status = finish(&h);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void the_parents_end_is_private_and_never_blocks(void **state)
{
	struct helper h = start("echo");

	(void)state;
	assert_true(fcntl(h.fd, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(h.fd, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(h.pidfd, F_GETFD) & FD_CLOEXEC);
	finish(&h);
}

static void a_helper_inherits_four_descriptors_and_no_signal_settings(void **state)
{
	char report[512], expected[512];
	struct sigaction ignore = { .sa_handler = SIG_IGN }, old;
	sigset_t block, old_mask;
	struct helper h;
	int leaky = open("/dev/null", O_RDONLY); /* without close-on-exec, at some number... */
	int high = dup2(leaky, 200);		 /* ...and at a high one */

	(void)state;
	assert_true(leaky >= 0 && high == 200);
	sigemptyset(&block);
	sigaddset(&block, SIGTERM);
	sigprocmask(SIG_BLOCK, &block, &old_mask);
	sigaction(SIGPIPE, &ignore, &old);
	h = start("report");
	sigprocmask(SIG_SETMASK, &old_mask, NULL);
	sigaction(SIGPIPE, &old, NULL);
	close(leaky);
	close(high);
	ask(&h, report, sizeof report);
	snprintf(expected, sizeof expected,
		 "fds=0,1,2,3 stdin=/dev/null stdout=stderr blocked=0 pipe=0");
	assert_string_equal(report, expected);
	finish(&h);
}

/* A daemon may be started with its first descriptors closed; the helper's must be right even so. */
static void low_descriptors_do_not_collide(void **state)
{
	int saved[4];
	char report[512];
	struct helper h;

	(void)state;
	for (int fd = 0; fd < 4; fd++)
		saved[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 50);
	/* One more free number each time: the pair lands on 0+3, 0+1... */
	for (int closed = 0; closed < 2; closed++) {
		close(0);
		close(3);
		if (closed)
			close(1);
		h = start("report");
		ask(&h, report, sizeof report);
		if (h.fd < 4) {
			int moved = fcntl(h.fd, F_DUPFD_CLOEXEC, 60);

			close(h.fd);
			h.fd = moved;
		}
		if (h.pidfd < 4) {
			int moved = fcntl(h.pidfd, F_DUPFD_CLOEXEC, 60);

			close(h.pidfd);
			h.pidfd = moved;
		}
		for (int fd = 0; fd < 4; fd++)
			if (saved[fd] >= 0)
				dup2(saved[fd], fd);
		assert_non_null(strstr(report, "fds=0,1,2,3 stdin=/dev/null stdout=stderr"));
		finish(&h);
	}
	for (int fd = 0; fd < 4; fd++)
		if (saved[fd] >= 0)
			close(saved[fd]);
}

static void a_program_that_is_not_there_is_told(void **state)
{
	char *argv[] = { (char *)(uintptr_t) "x", NULL };
	int pidfd = -7, fd = -7;
	pid_t pid = -7;

	(void)state;
	assert_int_equal(channel_spawn("/nonexistent/helper", argv, &pid, &pidfd, &fd), -ENOENT);
	assert_int_equal(channel_spawn("/etc/passwd", argv, &pid, &pidfd, &fd), -EACCES);
	assert_int_equal(pid + pidfd + fd, -21);
}

static void the_end_of_a_helper_is_seen(void **state)
{
	struct helper h = start("echo");
	char buf[8];
	size_t len;
	int status;

	(void)state;
	kill(h.pid, SIGKILL);
	assert_true(wait_readable(h.pidfd));
	assert_true(wait_readable(h.fd));
	assert_int_equal(channel_recv(h.fd, buf, sizeof buf, &len), 0);
	assert_int_equal(channel_send(h.fd, "x", 1), -EPIPE);
	status = finish(&h);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void a_message_that_is_too_long_is_lost_and_told(void **state)
{
	char buf[5];
	size_t len = 99;
	int fds[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds), 0);
	assert_int_equal(channel_send(fds[0], "123456", 6), 0);
	assert_int_equal(channel_send(fds[0], "12345", 5), 0);
	assert_int_equal(channel_recv(fds[1], buf, sizeof buf, &len), -EMSGSIZE);
	assert_int_equal(len, 99);
	assert_int_equal(channel_recv(fds[1], buf, sizeof buf, &len), 1);
	assert_int_equal(len, 5);
	close(fds[0]);
	close(fds[1]);
}

static void a_peer_that_does_not_read_is_told(void **state)
{
	static const char message[4096];
	unsigned n = 0;
	int fds[2], r;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds), 0);
	while ((r = channel_send(fds[0], message, sizeof message)) == 0)
		assert_true(n++ < 100000);
	assert_int_equal(r, -EAGAIN);
	close(fds[0]);
	close(fds[1]);
}

static void helpers_are_looked_for_in_order(void **state)
{
	char folder[] = "/tmp/berth-test-channel-XXXXXX";
	char path[300], wanted[300];
	int fd;

	(void)state;
	/* Beside the program: this test is there. */
	unsetenv("BERTH_HELPER_DIR");
	assert_int_equal(channel_helper_path("test-channel", path, sizeof path), 0);
	assert_int_equal(path[0], '/');
	assert_int_equal(channel_helper_path("no-such-helper", path, sizeof path), -ENOENT);

	/* A folder that is named is the only one. */
	assert_non_null(mkdtemp(folder));
	setenv("BERTH_HELPER_DIR", folder, 1);
	assert_int_equal(channel_helper_path("test-channel", path, sizeof path), -ENOENT);
	snprintf(wanted, sizeof wanted, "%s/test-channel", folder);
	fd = open(wanted, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	close(fd);
	assert_int_equal(channel_helper_path("test-channel", path, sizeof path), -EACCES);
	chmod(wanted, 0700);
	assert_int_equal(channel_helper_path("test-channel", path, sizeof path), 0);
	assert_string_equal(path, wanted);
	assert_int_equal(channel_helper_path("test-channel", path, strlen(wanted) + 1), 0);
	assert_int_equal(channel_helper_path("test-channel", path, strlen(wanted)), -ENAMETOOLONG);
	unsetenv("BERTH_HELPER_DIR");
	unlink(wanted);
	rmdir(folder);
}

static void wait_for_message(void)
{
	struct pollfd p = { .fd = CHANNEL_FD, .events = POLLIN };

	poll(&p, 1, DEADLINE_MSEC);
}

static int helper_echo(void)
{
	char buf[64];
	size_t len;
	int r;

	for (;;) {
		wait_for_message();
		r = channel_recv(CHANNEL_FD, buf, sizeof buf, &len);
		if (r <= 0)
			return r == 0 ? 0 : 1;
		if (channel_send(CHANNEL_FD, buf, len) < 0)
			return 1;
	}
}

static int helper_report(void)
{
	char text[512] = "fds=", stdin_path[64] = "";
	struct sigaction pipe_action;
	struct stat out, err;
	sigset_t mask;
	size_t n = strlen(text);
	bool first = true;

	/* Numbers only: the folder that is being listed would be one more descriptor. */
	for (int fd = 0; fd < 1024; fd++) {
		if (fcntl(fd, F_GETFD) < 0)
			continue;
		n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", first ? "" : ",", fd);
		first = false;
	}
	if (readlink("/proc/self/fd/0", stdin_path, sizeof stdin_path - 1) < 0)
		return 1;
	sigprocmask(SIG_SETMASK, NULL, &mask);
	sigaction(SIGPIPE, NULL, &pipe_action);
	fstat(STDOUT_FILENO, &out);
	fstat(STDERR_FILENO, &err);
	n += (size_t)snprintf(
		text + n, sizeof text - n, " stdin=%s stdout=%s blocked=%d pipe=%d", stdin_path,
		out.st_dev == err.st_dev && out.st_ino == err.st_ino ? "stderr" : "other",
		sigismember(&mask, SIGTERM), pipe_action.sa_handler != SIG_DFL);
	if (channel_send(CHANNEL_FD, text, n) < 0)
		return 1;
	wait_for_message();
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_keep_their_bounds),
		cmocka_unit_test(the_parents_end_is_private_and_never_blocks),
		cmocka_unit_test(a_helper_inherits_four_descriptors_and_no_signal_settings),
		cmocka_unit_test(low_descriptors_do_not_collide),
		cmocka_unit_test(a_program_that_is_not_there_is_told),
		cmocka_unit_test(the_end_of_a_helper_is_seen),
		cmocka_unit_test(a_message_that_is_too_long_is_lost_and_told),
		cmocka_unit_test(a_peer_that_does_not_read_is_told),
		cmocka_unit_test(helpers_are_looked_for_in_order),
	};

	if (argc == 2 && strcmp(argv[1], "echo") == 0)
		return helper_echo();
	if (argc == 2 && strcmp(argv[1], "report") == 0)
		return helper_report();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
