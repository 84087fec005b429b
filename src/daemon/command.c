/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/str.h"

#define WORDS_MAX 64

struct command {
	pid_t pid;
	int fd;
	sd_event_source *io, *child, *timer;
	bool killed;
	char output[COMMAND_OUTPUT_MAX];
	size_t len;
	command_done_fn done;
	void *userdata;
};

struct command *command_free(struct command *c)
{
	if (!c)
		return NULL;
	if (c->pid > 0) {
		kill(-c->pid, SIGKILL);
		waitpid(c->pid, NULL, 0);
	}
	sd_event_source_disable_unref(c->io);
	sd_event_source_disable_unref(c->child);
	sd_event_source_disable_unref(c->timer);
	if (c->fd >= 0)
		close(c->fd);
	free(c);
	return NULL;
}

void command_describe(int status, char *ret, size_t size)
{
	if (status == -ETIMEDOUT)
		str_copy_cut(ret, size, "did not end within the time limit");
	else if (WIFSIGNALED(status))
		snprintf(ret, size, "killed by SIG%s", sigabbrev_np(WTERMSIG(status)) ?: "?");
	else if (WEXITSTATUS(status) != 0)
		snprintf(ret, size, "exit status %d", WEXITSTATUS(status));
	else
		ret[0] = '\0';
}

/* Keeps the last bytes: what a failing command says last is what explains it. */
static void read_output(struct command *c)
{
	char chunk[COMMAND_OUTPUT_MAX];
	ssize_t n;

	while ((n = read(c->fd, chunk, sizeof chunk)) > 0) {
		size_t more = (size_t)n, room = sizeof c->output - 1;

		if (c->len + more > room) {
			size_t drop = MIN(c->len, c->len + more - room);

			memmove(c->output, c->output + drop, c->len - drop);
			c->len -= drop;
		}
		memcpy(c->output + c->len, chunk, more);
		c->len += more;
	}
}

static int on_output(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
	(void)fd;
	read_output(userdata);
	if (events & EPOLLHUP)
		sd_event_source_set_enabled(source, SD_EVENT_OFF);
	return 0;
}

static int on_child(sd_event_source *source, const siginfo_t *si, void *userdata)
{
	struct command *c = userdata;
	command_done_fn done = c->done;
	void *data = c->userdata;
	char output[COMMAND_OUTPUT_MAX];
	int status;

	(void)source;
	status = si->si_code == CLD_EXITED ? si->si_status << 8 : si->si_status;
	if (c->killed)
		status = -ETIMEDOUT;
	read_output(c);
	while (c->len > 0 && (c->output[c->len - 1] == '\n' || c->output[c->len - 1] == ' '))
		c->len--;
	str_sanitize(c->output, c->len);
	memcpy(output, c->output, c->len);
	output[c->len] = '\0';
	c->pid = 0; /* reaped by the loop */
	command_free(c);
	done(status, output, data);
	return 0;
}

static int on_timeout(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct command *c = userdata;

	(void)source;
	(void)usec;
	c->killed = true;
	kill(-c->pid, SIGKILL);
	return 0;
}

static char *replace(const char *word, const struct command_word words[], size_t n_words)
{
	struct buf out = BUF_INIT;
	char *text = NULL;

	while (*word) {
		bool found = false;

		for (size_t i = 0; i < n_words && !found && *word == '{'; i++) {
			size_t n = strlen(words[i].name);

			if (strncmp(word + 1, words[i].name, n) != 0 || word[n + 1] != '}')
				continue;
			buf_add_str(&out, words[i].value);
			word += n + 2;
			found = true;
		}
		if (!found)
			buf_add_char(&out, *word++);
	}
	if (buf_take(&out, &text, NULL) < 0)
		buf_done(&out);
	return text;
}

static int split(const char *line, const struct command_word words[], size_t n_words,
		 char *argv[WORDS_MAX + 1])
{
	_free_ char *copy = strdup(line);
	char *save = NULL;
	size_t n = 0;

	if (!copy)
		return -ENOMEM;
	for (char *w = strtok_r(copy, " \t", &save); w; w = strtok_r(NULL, " \t", &save)) {
		if (n == WORDS_MAX)
			return -E2BIG;
		argv[n] = replace(w, words, n_words);
		if (!argv[n])
			return -ENOMEM;
		n++;
	}
	return n > 0 ? 0 : -EINVAL;
}

int command_start(sd_event *event, const char *line, const struct command_word words[],
		  size_t n_words, uint64_t limit_usec, command_done_fn done, void *userdata,
		  struct command **ret, struct error *err)
{
	char *argv[WORDS_MAX + 1] = { NULL };
	struct command *c = calloc(1, sizeof *c);
	_close_ int write_end = -1;
	int fds[2], r;

	if (!c)
		return error_set(err, ENOMEM, "out of memory");
	c->fd = -1;
	c->done = done;
	c->userdata = userdata;
	r = split(line, words, n_words, argv);
	if (r == 0 && pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		r = -errno;
	if (r == 0) {
		c->fd = fds[0];
		write_end = fds[1];
		fcntl(write_end, F_SETFL, 0); /* the child's end blocks, as programs expect */
		r = child_start(&(struct child_options){ .path = argv[0],
							 .argv = argv,
							 .output_fd = write_end,
							 .extra_fd = -1,
							 .own_group = true },
				&c->pid);
	}
	for (size_t i = 0; argv[i]; i++)
		free(argv[i]);
	if (r == 0 &&
	    ((r = sd_event_add_io(event, &c->io, c->fd, EPOLLIN, on_output, c)) < 0 ||
	     (r = sd_event_add_child(event, &c->child, c->pid, WEXITED, on_child, c)) < 0 ||
	     (r = sd_event_add_time(event, &c->timer, CLOCK_MONOTONIC,
				    clock_now_usec() + limit_usec, 0, on_timeout, c)) < 0))
		r = MIN(r, -1);
	if (r < 0) {
		error_set_errno(err, r, "%.100s", line);
		command_free(c);
		return r;
	}
	*ret = c;
	return 0;
}
