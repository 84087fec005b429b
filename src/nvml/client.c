/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml/client.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

#include "base/channel.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#define HELPER "berth-nvml"
/* What a helper gets for shutting NVML down after end of file. */
#define CLOSING_USEC	    (5 * USEC_PER_SEC)
#define TIMER_ACCURACY_USEC (5 * USEC_PER_MSEC)

enum helper_state {
	HELPER_NONE,
	HELPER_RUNNING,
	HELPER_CLOSING, /* has been sent end of file, or has sent it; not reaped */
	HELPER_KILLED,	/* not reaped */
};

struct nvml_client {
	sd_event *event;
	char *library;
	uint64_t timeout_usec;
	uint64_t sequence;
	bool released;
	bool stuck; /* killed after a time-out and not reaped */

	enum helper_state state;
	pid_t pid;
	int pidfd;
	int fd;
	sd_event_source *pidfd_source;
	sd_event_source *fd_source;
	sd_event_source *closing_timer;

	/* The query that is out. */
	bool busy;
	bool sent;     /* to the helper that runs now */
	bool resent;   /* the first helper had gone while it was idle */
	bool answered; /* the answer stands and waits for `deferred` */
	struct nvml_query query;
	nvml_done_fn done;
	void *userdata;
	struct nvml_answer answer;
	sd_event_source *deadline;
	sd_event_source *deferred;
	struct nvml_card_message *message; /* receive buffer, for either kind */
};

static_assert(sizeof(struct nvml_card_message) > sizeof(struct nvml_end_message),
	      "one buffer serves");

static void helper_advance(struct nvml_client *c);

static void nvml_client_freep(struct nvml_client **c)
{
	nvml_client_free(*c);
}

/* Calls the query's function. Nothing of `c` may be touched afterwards: it may have been freed. */
static void query_finish(struct nvml_client *c)
{
	struct nvml_answer answer = c->answer;
	nvml_done_fn done = c->done;
	void *userdata = c->userdata;

	c->busy = c->sent = c->answered = false;
	c->answer = (struct nvml_answer){ 0 };
	sd_event_source_set_enabled(c->deadline, SD_EVENT_OFF);
	sd_event_source_set_enabled(c->deferred, SD_EVENT_OFF);
	if (!answer.answered_usec)
		answer.answered_usec = clock_now_usec();
	done(&answer, userdata);
	free(answer.cards);
}

/* Lays down an answer without cards; query_finish() or `deferred` delivers it. */
static void _printf_(3, 4)
	answer_set(struct nvml_client *c, enum nvml_reason reason, const char *fmt, ...)
{
	va_list ap;

	c->answer.reason = reason;
	va_start(ap, fmt);
	vsnprintf(c->answer.text, sizeof c->answer.text, fmt, ap);
	va_end(ap);
	c->answer.n_cards = 0;
	c->answer.query_usec = 0;
	c->answered = true;
}

static void answer_defer(struct nvml_client *c)
{
	c->answer.answered_usec = clock_now_usec();
	sd_event_source_set_enabled(c->deadline, SD_EVENT_OFF);
	sd_event_source_set_enabled(c->deferred, SD_EVENT_ONESHOT);
}

static void channel_shut(struct nvml_client *c)
{
	c->fd_source = sd_event_source_disable_unref(c->fd_source);
	cleanup_close(&c->fd);
	c->fd = -1;
	c->sent = false;
}

static void helper_kill(struct nvml_client *c)
{
	channel_shut(c);
	sd_event_source_set_enabled(c->closing_timer, SD_EVENT_OFF);
	/* By pidfd: never another process that got the number. */
	pidfd_send_signal(c->pidfd, SIGKILL, NULL, 0);
	c->state = HELPER_KILLED;
}

/* Gives the helper its time to exit by itself. */
static void helper_await(struct nvml_client *c)
{
	c->state = HELPER_CLOSING;
	sd_event_source_set_time(c->closing_timer, clock_now_usec() + CLOSING_USEC);
	sd_event_source_set_enabled(c->closing_timer, SD_EVENT_ONESHOT);
}

/* End of file: the helper shuts NVML down and exits. */
static void helper_close(struct nvml_client *c)
{
	if (c->state != HELPER_RUNNING)
		return;
	channel_shut(c);
	helper_await(c);
}

/* After it has been reaped. */
static void helper_forget(struct nvml_client *c)
{
	channel_shut(c);
	sd_event_source_set_enabled(c->closing_timer, SD_EVENT_OFF);
	c->pidfd_source = sd_event_source_disable_unref(c->pidfd_source);
	cleanup_close(&c->pidfd);
	c->pidfd = -1;
	c->pid = 0;
	c->state = HELPER_NONE;
	c->stuck = false;
}

static void describe_end(const siginfo_t *info, char *buf, size_t size)
{
	if (info->si_code == CLD_EXITED)
		snprintf(buf, size, HELPER " ended in the middle of a query: exit status %d",
			 info->si_status);
	else
		snprintf(buf, size, HELPER " ended in the middle of a query: signal %d (%s)",
			 info->si_status, strsignal(info->si_status));
}

static void copy_card(struct nvml_card *to, const struct nvml_card *from)
{
	memcpy(to, from, offsetof(struct nvml_card, types) + from->n_types * sizeof from->types[0]);
	str_sanitize(to->text, strlen(to->text));
	str_sanitize(to->name, strlen(to->name));
	for (unsigned i = 0; i < to->n_types; i++)
		str_sanitize(to->types[i].profile.name, strlen(to->types[i].profile.name));
}

static int take_card(struct nvml_client *c, const struct nvml_card_message *m)
{
	struct nvml_answer *a = &c->answer;

	if (m->sequence != c->query.sequence)
		return 0;
	if (a->n_cards == c->query.n_cards ||
	    !pci_addr_equal(m->card.address, c->query.cards[a->n_cards]))
		return -EBADMSG;
	copy_card(&a->cards[a->n_cards++], &m->card);
	return 0;
}

/* 1 when the answer is complete. */
static int take_end(struct nvml_client *c, const struct nvml_end_message *m)
{
	struct nvml_answer *a = &c->answer;

	if (m->sequence != c->query.sequence)
		return 0;
	if (m->reason == NVML_REASON_NONE && a->n_cards != c->query.n_cards)
		return -EBADMSG;
	if (m->reason != NVML_REASON_NONE)
		a->n_cards = 0;
	a->reason = m->reason;
	a->nvml_error = m->nvml_error;
	a->query_usec = m->query_usec;
	str_copy_cut(a->text, sizeof a->text, m->text);
	str_sanitize(a->text, strlen(a->text));
	str_copy_cut(a->driver, sizeof a->driver, m->driver);
	str_sanitize(a->driver, strlen(a->driver));
	c->answered = true;
	if (m->restart)
		helper_close(c);
	return 1;
}

/* Reads what the helper has sent. 1: the answer stands; 0: not yet; -EBADMSG; -EPIPE at the end. */
static int channel_read(struct nvml_client *c)
{
	while (c->fd >= 0 && !c->answered) {
		size_t len = 0;
		int r = channel_recv(c->fd, c->message, sizeof *c->message, &len);

		if (r == -EAGAIN)
			return 0;
		if (r == 0)
			return -EPIPE;
		if (r < 0)
			return -EBADMSG;
		r = nvml_message_check(c->message, len);
		/* Nobody has asked for anything. */
		if (r < 0 || !c->sent)
			return -EBADMSG;
		if (r == NVML_MESSAGE_CARD)
			r = take_card(c, c->message);
		else
			r = take_end(c, (const struct nvml_end_message *)(const void *)c->message);
		if (r < 0)
			return r;
	}
	return c->answered;
}

static int on_channel(sd_event_source *source _unused_, int fd _unused_, uint32_t events _unused_,
		      void *userdata)
{
	struct nvml_client *c = userdata;
	int r = channel_read(c);

	if (r > 0) {
		query_finish(c);
	} else if (r == -EPIPE) {
		/* How it ended is known when it is reaped; until then the query's deadline runs. */
		sd_event_source_set_enabled(c->fd_source, SD_EVENT_OFF);
		helper_await(c);
	} else if (r < 0) {
		bool busy = c->busy && c->sent;

		helper_kill(c);
		if (busy) {
			answer_set(c, NVML_REASON_ERROR,
				   HELPER " sent a message that makes no sense");
			query_finish(c);
		}
	}
	return 0;
}

static int on_helper_exit(sd_event_source *source _unused_, int fd _unused_,
			  uint32_t events _unused_, void *userdata)
{
	struct nvml_client *c = userdata;
	siginfo_t info = { 0 };
	bool waiting = c->busy && !c->answered;
	bool was_asked = waiting && c->sent;

	if (waitid(P_PIDFD, (id_t)c->pidfd, &info, WEXITED | WNOHANG) < 0) {
		/* Reaped by somebody else: gone in any case. */
		info.si_code = CLD_EXITED;
		info.si_status = 0;
	} else if (info.si_pid == 0) {
		return 0;
	}
	/* The answer may still lie in the socket. */
	(void)!channel_read(c);
	helper_forget(c);
	if (!waiting)
		return 0;
	if (was_asked && !c->answered) {
		char text[NVML_TEXT_MAX];

		describe_end(&info, text, sizeof text);
		answer_set(c, NVML_REASON_ERROR, "%s", text);
	}
	if (c->answered)
		query_finish(c);
	else
		helper_advance(c);
	return 0;
}

static int on_closing(sd_event_source *source _unused_, uint64_t usec _unused_, void *userdata)
{
	struct nvml_client *c = userdata;

	if (c->state == HELPER_CLOSING) {
		helper_kill(c);
		c->stuck = true;
	}
	return 0;
}

static int on_deadline(sd_event_source *source _unused_, uint64_t usec _unused_, void *userdata)
{
	struct nvml_client *c = userdata;
	int r = channel_read(c);

	if (r <= 0) {
		if (c->state != HELPER_NONE) {
			helper_kill(c);
			c->stuck = true;
		}
		answer_set(c, NVML_REASON_TIMEOUT, "NVML did not answer within %g s",
			   (double)c->timeout_usec / (double)USEC_PER_SEC);
	}
	query_finish(c);
	return 0;
}

static int on_deferred(sd_event_source *source _unused_, void *userdata)
{
	query_finish(userdata);
	return 0;
}

static int helper_start(struct nvml_client *c, struct error *err)
{
	char path[PATH_MAX];
	char *argv[] = { (char[]){ HELPER }, (char[]){ "--library" }, c->library, NULL };
	int r;

	r = channel_helper_path(HELPER, path, sizeof path);
	if (r < 0)
		return error_set_errno(err, r, "cannot find " HELPER);
	r = channel_spawn(path, argv, &c->pid, &c->pidfd, &c->fd);
	if (r < 0)
		return error_set_errno(err, r, "cannot start %s", path);
	c->state = HELPER_RUNNING;
	r = sd_event_add_io(c->event, &c->pidfd_source, c->pidfd, EPOLLIN, on_helper_exit, c);
	if (r >= 0)
		r = sd_event_add_io(c->event, &c->fd_source, c->fd, EPOLLIN, on_channel, c);
	if (r < 0) {
		helper_kill(c);
		/* It has not been asked anything, so it cannot hang. */
		waitid(P_PIDFD, (id_t)c->pidfd, &(siginfo_t){ 0 }, WEXITED);
		helper_forget(c);
		return error_set_errno(err, r, "cannot watch " HELPER);
	}
	return 0;
}

/* Carries the outstanding query as far as it goes at present: to a helper, or to its answer. */
static void helper_advance(struct nvml_client *c)
{
	struct error err = ERROR_INIT;
	int r;

	if (c->state == HELPER_CLOSING || c->state == HELPER_KILLED)
		return; /* on_helper_exit() goes on */
	if (c->state == HELPER_NONE && helper_start(c, &err) < 0) {
		answer_set(c, NVML_REASON_ERROR, "%s", error_text(&err));
		answer_defer(c);
		return;
	}
	c->answer.asked_usec = clock_now_usec();
	r = channel_send(c->fd, &c->query, sizeof c->query);
	if (r >= 0) {
		c->sent = true;
	} else if ((r == -EPIPE || r == -ECONNRESET) && !c->resent) {
		/* It ended while it was idle, which costs no query: another one starts when it is
		 * reaped. */
		c->resent = true;
		helper_close(c);
	} else {
		helper_kill(c);
		answer_set(c, NVML_REASON_ERROR, "cannot ask " HELPER ": %s", strerror(-r));
		answer_defer(c);
	}
}

int nvml_client_new(const struct nvml_client_config *config, struct nvml_client **ret,
		    struct error *err)
{
	_cleanup_(nvml_client_freep) struct nvml_client *c = calloc(1, sizeof *c);
	int r;

	if (!c)
		return error_set_errno(err, ENOMEM, "NVML client");
	c->pidfd = c->fd = -1;
	c->event = sd_event_ref(config->event);
	c->timeout_usec = config->timeout_usec;
	c->library = strdup(config->library);
	c->message = calloc(1, sizeof *c->message);
	if (!c->library || !c->message)
		return error_set_errno(err, ENOMEM, "NVML client");
	r = sd_event_add_time(c->event, &c->deadline, CLOCK_MONOTONIC, 0, TIMER_ACCURACY_USEC,
			      on_deadline, c);
	if (r >= 0)
		r = sd_event_add_time(c->event, &c->closing_timer, CLOCK_MONOTONIC, 0,
				      TIMER_ACCURACY_USEC, on_closing, c);
	if (r >= 0)
		r = sd_event_add_defer(c->event, &c->deferred, on_deferred, c);
	if (r < 0)
		return error_set_errno(err, r, "NVML client: cannot add to the loop");
	sd_event_source_set_enabled(c->deadline, SD_EVENT_OFF);
	sd_event_source_set_enabled(c->closing_timer, SD_EVENT_OFF);
	sd_event_source_set_enabled(c->deferred, SD_EVENT_OFF);
	*ret = TAKE(c);
	return 0;
}

struct nvml_client *nvml_client_free(struct nvml_client *c)
{
	if (!c)
		return NULL;
	channel_shut(c);
	sd_event_source_disable_unref(c->pidfd_source);
	sd_event_source_disable_unref(c->deadline);
	sd_event_source_disable_unref(c->closing_timer);
	sd_event_source_disable_unref(c->deferred);
	if (c->pidfd >= 0)
		waitid(P_PIDFD, (id_t)c->pidfd, &(siginfo_t){ 0 }, WEXITED | WNOHANG);
	cleanup_close(&c->pidfd);
	sd_event_unref(c->event);
	free(c->answer.cards);
	free(c->message);
	free(c->library);
	free(c);
	return NULL;
}

static int start_query(struct nvml_client *c, const struct pci_addr *cards, unsigned n,
		       bool set_mixed, nvml_done_fn done, void *userdata)
{
	uint64_t now = clock_now_usec();
	struct nvml_card *space;

	if (c->busy)
		return -EBUSY;
	if (n > NVML_CARDS_MAX)
		return -EINVAL;
	space = calloc(n ? n : 1, sizeof *space);
	if (!space)
		return -ENOMEM;
	c->answer = (struct nvml_answer){ .asked_usec = now, .cards = space };
	memset(&c->query, 0, sizeof c->query);
	c->query.kind = NVML_MESSAGE_QUERY;
	c->query.version = NVML_MESSAGE_VERSION;
	c->query.sequence = ++c->sequence;
	c->query.n_cards = n;
	c->query.set_mixed = set_mixed;
	if (n)
		memcpy(c->query.cards, cards, n * sizeof *cards);
	c->done = done;
	c->userdata = userdata;
	c->busy = true;
	c->sent = c->resent = c->answered = false;
	sd_event_source_set_time(c->deadline, now + c->timeout_usec);
	sd_event_source_set_enabled(c->deadline, SD_EVENT_ONESHOT);
	c->answer.skipped = true;
	if (!*c->library)
		answer_set(c, NVML_REASON_LIBRARY, "NVML is switched off in the configuration");
	else if (c->released)
		answer_set(c, NVML_REASON_LIBRARY, "NVML was stopped by hand");
	else if (c->stuck)
		answer_set(c, NVML_REASON_TIMEOUT,
			   "an earlier NVML query still hangs in the driver");
	else
		c->answer.skipped = false;
	if (c->answer.skipped)
		answer_defer(c);
	else
		helper_advance(c);
	return 0;
}

int nvml_client_query(struct nvml_client *c, const struct pci_addr *cards, unsigned n,
		      nvml_done_fn done, void *userdata)
{
	return start_query(c, cards, n, false, done, userdata);
}

int nvml_client_set_mixed(struct nvml_client *c, struct pci_addr card, nvml_done_fn done,
			  void *userdata)
{
	return start_query(c, &card, 1, true, done, userdata);
}

int nvml_client_restart(struct nvml_client *c, bool renew)
{
	if (!c->busy || c->answered)
		return -EALREADY;
	c->query.sequence = ++c->sequence;
	c->answer.n_cards = 0;
	if (renew)
		sd_event_source_set_time(c->deadline, clock_now_usec() + c->timeout_usec);
	/* Where no helper has it yet, it is sent when one is there. */
	if (c->sent)
		helper_advance(c);
	return 0;
}

void nvml_client_set_timeout(struct nvml_client *c, uint64_t timeout_usec)
{
	c->timeout_usec = timeout_usec;
}

bool nvml_client_is_busy(const struct nvml_client *c)
{
	return c->busy;
}

bool nvml_client_is_stuck(const struct nvml_client *c)
{
	return c->stuck;
}

void nvml_client_release(struct nvml_client *c)
{
	c->released = true;
	helper_close(c);
	if (c->busy && !c->answered) {
		answer_set(c, NVML_REASON_LIBRARY, "NVML was stopped by hand");
		c->answer.skipped = true;
		answer_defer(c);
	}
}

void nvml_client_resume(struct nvml_client *c)
{
	c->released = false;
}

bool nvml_client_is_released(const struct nvml_client *c)
{
	return c->released;
}

pid_t nvml_client_pid(const struct nvml_client *c)
{
	return c->pid;
}
