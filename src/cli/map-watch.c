/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/map-watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/map-text.h"
#include "client/http-client.h"

#define ANSWER_USEC    (5 * USEC_PER_SEC)
#define TRY_AGAIN_USEC USEC_PER_SEC
/* The map shows some things that no event tells (a mode, a fallback's reason). */
#define LOOK_USEC (2 * USEC_PER_SEC)
/* Events come in bursts: one look serves all of this time. */
#define BURST_USEC (50 * USEC_PER_MSEC)
/* Taken at once: whoever sends them without end is not listened to without end. */
#define EVENTS_MAX 1000
/* What a terminal that takes nothing gets to take the end of the screen in. */
#define FAREWELL_USEC (500 * USEC_PER_MSEC)

/* Alternate screen, no cursor, no line wrap; and back. */
static const char screen_begin[] = "\033[?1049h\033[?25l\033[?7l";
static const char screen_end[] = "\033[?7h\033[?25h\033[?1049l";

struct watch {
	const struct cli *cli;
	struct terminal terminal;
	int output; /* does not block, where that can be had */
	int signals;
	sigset_t old_mask;
	struct http_event_stream *stream; /* NULL: not connected */
	json_t *answer;			  /* the last good one */
	char *shown;			  /* what was printed last, where that is not a screen */
	char time[16];			  /* of the last good answer */
	char lost[CLI_FIELD_SIZE];	  /* why there is none now; "" when there is */
	char said[CLI_FIELD_SIZE];	  /* the loss that standard error was told of */
	uint64_t look_usec;		  /* when to ask next */
	int end_signal;			  /* 0: go on */
	bool pause, redraw;		  /* asked for by a signal */
	bool gone;			  /* nobody reads the output any more */
	int write_error;		  /* -errno of the output, for another reason */
};

/* --- Output ---------------------------------------------------------------------------------- */

/* A description of its own for what may block and lasts (a terminal, a pipe), since O_NONBLOCK on
 * the one that is shared with the shell would be the shell's, too. */
static void open_output(struct watch *w)
{
	struct stat st;

	w->output = STDOUT_FILENO;
	if (fstat(STDOUT_FILENO, &st) == 0 && (S_ISFIFO(st.st_mode) || isatty(STDOUT_FILENO))) {
		int fd = open("/proc/self/fd/1", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

		w->output = fd < 0 ? STDOUT_FILENO : fd;
	}
}

static void take_signal(struct watch *w)
{
	struct signalfd_siginfo info;

	if (read(w->signals, &info, sizeof info) != sizeof info)
		return;
	switch (info.ssi_signo) {
	case SIGWINCH:
	case SIGCONT:
		w->redraw = true;
		break;
	case SIGTSTP:
		w->pause = true;
		break;
	default:
		w->end_signal = (int)info.ssi_signo;
	}
}

/* Until the output takes more. False when it is not to be waited for any longer. */
static bool wait_for_output(struct watch *w, uint64_t *farewell_usec)
{
	struct pollfd fds[] = { { .fd = w->output, .events = POLLOUT },
				{ .fd = w->signals, .events = POLLIN } };
	uint64_t now = clock_now_usec();

	if (w->end_signal && *farewell_usec == 0)
		*farewell_usec = now + FAREWELL_USEC;
	if (w->end_signal && now >= *farewell_usec)
		return false;
	(void)poll(fds, ARRAY_SIZE(fds), w->end_signal ? (int)(FAREWELL_USEC / USEC_PER_MSEC) : -1);
	if (fds[1].revents)
		take_signal(w);
	return true;
}

static void write_all(struct watch *w, const char *text, size_t n)
{
	uint64_t farewell_usec = 0;

	while (n > 0) {
		ssize_t r = write(w->output, text, n);

		if (r >= 0) {
			text += r;
			n -= (size_t)r;
		} else if (errno == EAGAIN) {
			if (!wait_for_output(w, &farewell_usec))
				return;
		} else if (errno != EINTR) {
			w->gone = true;
			w->write_error = errno == EPIPE || errno == EIO ? 0 : -errno;
			return;
		}
	}
}

/* A frame is one write, line over line, so that nothing flickers. */
static void add_line(struct buf *frame, const char *text, size_t n)
{
	buf_add_str(frame, "\r\n");
	buf_add(frame, text, n);
	buf_add_str(frame, "\033[K");
}

static void add_status(struct watch *w, struct buf *frame)
{
	char line[2 * CLI_FIELD_SIZE];

	if (w->lost[0])
		snprintf(line, sizeof line, " berthd is lost, trying again: %s (map of %s)",
			 w->lost, w->time);
	else
		snprintf(line, sizeof line, " berth map  %s  Ctrl-C ends", w->time);
	terminal_make_safe(line);
	if (w->terminal.colour)
		buf_add_str(frame, w->lost[0] ? "\033[1;37;41m" : "\033[7m");
	buf_add_str(frame, line);
	/* In this colour to the line's end. */
	buf_add_str(frame, w->terminal.colour ? "\033[K\033[0m" : "\033[K");
}

static int draw_screen(struct watch *w)
{
	_buf_ struct buf map = BUF_INIT, frame = BUF_INIT;
	unsigned row = 1, hidden = 0;

	if (map_text(cli_field_array(w->answer, "gpus"), &w->terminal, &map) < 0)
		return -ENOMEM;
	buf_add_str(&frame, "\033[?2026h\033[H");
	add_status(w, &frame);
	for (const char *line = map.data; *line;) {
		size_t n = strcspn(line, "\n");

		if (row + 2 < w->terminal.rows) {
			add_line(&frame, line, n);
			row++;
		} else {
			hidden++;
		}
		line += n + (line[n] == '\n');
	}
	if (hidden == 0)
		buf_add_str(&frame, "\r\n\033[J");
	else if (w->terminal.rows > 1) /* one line would scroll */
		buf_printf(&frame, "\r\n... %u more line%s; a taller terminal shows them\033[J",
			   hidden, hidden == 1 ? "" : "s");
	buf_add_str(&frame, "\033[?2026l");
	if (buf_finish(&frame) < 0)
		return -ENOMEM;
	write_all(w, frame.data, frame.len);
	return 0;
}

static void say_loss(struct watch *w)
{
	if (strcmp(w->said, w->lost) == 0)
		return;
	if (w->lost[0])
		cli_error(0, "berthd is lost, trying again: %s", w->lost);
	else
		cli_error(0, "berthd is back");
	memcpy(w->said, w->lost, sizeof w->said);
}

/* Nothing where nothing changed. */
static int print_below(struct watch *w)
{
	_buf_ struct buf out = BUF_INIT;
	_free_ char *text = NULL;

	say_loss(w);
	if (w->cli->json) {
		text = json_dumps(w->answer, JSON_COMPACT);
	} else if (map_text(cli_field_array(w->answer, "gpus"), &w->terminal, &out) < 0 ||
		   buf_take(&out, &text, NULL) < 0) {
		return -ENOMEM;
	}
	if (!text)
		return -ENOMEM;
	if (w->shown && strcmp(w->shown, text) == 0)
		return 0;
	if (w->shown && !w->cli->json)
		buf_printf(&out, "--- %s\n", w->time);
	buf_add_str(&out, text);
	if (w->cli->json)
		buf_add_char(&out, '\n');
	if (buf_finish(&out) < 0)
		return -ENOMEM;
	write_all(w, out.data, out.len);
	free(w->shown);
	w->shown = TAKE(text);
	return 0;
}

static bool has_screen(const struct watch *w)
{
	return w->terminal.screen && !w->cli->json;
}

static int draw(struct watch *w)
{
	return has_screen(w) ? draw_screen(w) : print_below(w);
}

static void screen(struct watch *w, bool begin)
{
	if (has_screen(w))
		write_all(w, begin ? screen_begin : screen_end,
			  begin ? sizeof screen_begin - 1 : sizeof screen_end - 1);
}

/* --- The daemon ------------------------------------------------------------------------------ */

static void note_time(struct watch *w)
{
	time_t now = time(NULL);
	struct tm tm;

	localtime_r(&now, &tm);
	strftime(w->time, sizeof w->time, "%H:%M:%S", &tm);
}

/* 0 with a new answer, or negative and the reason. */
static int ask(struct watch *w, struct error *err)
{
	_answer_ struct http_answer answer = { 0 };
	json_t *json;
	const struct http_tick tick = { .stop_fd = w->signals };
	int r = http_client_request_ticking(w->cli->socket, "GET", "/gpus", NULL, ANSWER_USEC,
					    &tick, &answer, err);

	if (r < 0)
		return r;
	json = json_loadb(answer.body, answer.len, JSON_REJECT_DUPLICATES, NULL);
	if (answer.status != 200 || !json_is_object(json)) {
		json_decref(json);
		return error_set(err, EBADMSG, "it answers with status %d", answer.status);
	}
	json_decref(w->answer);
	w->answer = json;
	note_time(w);
	return 0;
}

/* Connects before it asks: what changes in between is told by the stream. */
static int look(struct watch *w)
{
	const struct http_tick tick = { .stop_fd = w->signals };
	struct error err = ERROR_INIT;
	int r = 0;

	w->look_usec = clock_now_usec() + LOOK_USEC;
	if (!w->stream)
		r = http_event_stream_open(w->cli->socket, "/events", ANSWER_USEC, &tick,
					   &w->stream, &err);
	if (r >= 0)
		r = ask(w, &err);
	if (r == -EINTR) {
		/* A signal comes first. */
		w->look_usec = clock_now_usec();
	} else if (r < 0) {
		w->stream = http_event_stream_free(w->stream);
		w->look_usec = clock_now_usec() + TRY_AGAIN_USEC;
		str_copy_cut(w->lost, sizeof w->lost, error_text(&err));
	} else {
		w->lost[0] = '\0';
	}
	return r;
}

/* Takes what has come. What an event says does not matter: the daemon is asked. */
static void take_events(struct watch *w)
{
	const char *type, *data;
	int r = 0;

	for (unsigned n = 0; n < EVENTS_MAX && w->stream &&
			     (r = http_event_stream_next(w->stream, 0, &type, &data, NULL)) > 0;
	     n++)
		w->look_usec = MIN(w->look_usec, clock_now_usec() + BURST_USEC);
	if (r >= 0)
		return;
	w->stream = http_event_stream_free(w->stream);
	w->look_usec = clock_now_usec();
}

/* --- The loop -------------------------------------------------------------------------------- */

/* The shell gets its screen back, and takes it again when we go on. */
static void pause_here(struct watch *w)
{
	screen(w, false);
	raise(SIGSTOP);
	screen(w, true);
}

/* What signals asked for. True when the map has to be drawn anew. */
static bool obey(struct watch *w)
{
	bool wanted = w->pause || w->redraw;

	if (w->pause && !w->end_signal)
		pause_here(w);
	w->pause = w->redraw = false;
	if (wanted)
		w->terminal = terminal_probe();
	return wanted;
}

static int wait_and_take(struct watch *w, bool *ret_draw)
{
	struct pollfd fds[] = {
		{ .fd = w->signals, .events = POLLIN },
		{ .fd = w->stream ? http_event_stream_fd(w->stream) : -1, .events = POLLIN },
		{ .fd = STDOUT_FILENO }, /* an error shows in any case: nobody reads any more */
	};
	uint64_t now = clock_now_usec();
	/* A signal may have been taken while the output was waited for. */
	bool at_once = w->pause || w->redraw || now >= w->look_usec;
	uint64_t left = at_once ? 0 : w->look_usec - now;

	if (poll(fds, ARRAY_SIZE(fds), (int)((left + 999) / USEC_PER_MSEC)) < 0)
		return errno == EINTR ? 0 : -errno;
	if (fds[0].revents)
		take_signal(w);
	if (w->end_signal)
		return 0;
	*ret_draw |= obey(w);
	if (fds[1].revents)
		take_events(w);
	w->gone |= (fds[2].revents & (POLLERR | POLLNVAL)) != 0;
	if (clock_now_usec() >= w->look_usec)
		*ret_draw |= look(w) != -EINTR;
	return 0;
}

static int catch_signals(struct watch *w)
{
	static const int caught[] = {
		SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP, SIGCONT
	};
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(caught); i++)
		sigaddset(&set, caught[i]);
	signal(SIGPIPE, SIG_IGN);
	sigprocmask(SIG_BLOCK, &set, &w->old_mask);
	w->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return w->signals < 0 ? -errno : 0;
}

static int watch(struct watch *w)
{
	int r = draw(w);

	take_events(w);
	while (r >= 0 && !w->end_signal && !w->gone) {
		bool wanted = false;

		r = wait_and_take(w, &wanted);
		if (r >= 0 && wanted && !w->end_signal)
			r = draw(w);
	}
	return r;
}

int map_watch(const struct cli *cli)
{
	struct watch w = { .cli = cli, .terminal = terminal_probe(), .signals = -1 };
	int r = look(&w);

	if (r < 0)
		return cli_error(outcome_of(r)->exit_status, "%s", w.lost);
	r = catch_signals(&w);
	if (r >= 0) {
		open_output(&w);
		screen(&w, true);
		r = watch(&w);
		screen(&w, false);
	}
	http_event_stream_free(w.stream);
	json_decref(w.answer);
	free(w.shown);
	cleanup_close(&w.signals);
	if (w.output != STDOUT_FILENO)
		cleanup_close(&w.output);
	if (w.end_signal) {
		/* The shell is to see what ended us. */
		signal(w.end_signal, SIG_DFL);
		sigprocmask(SIG_SETMASK, &w.old_mask, NULL);
		raise(w.end_signal);
	}
	if (w.write_error < 0)
		return cli_error(EXIT_STATUS_ERROR, "cannot write the result: %s",
				 strerrordesc_np(-w.write_error));
	return r < 0 ? cli_error(EXIT_STATUS_ERROR, "%s", strerrordesc_np(-r)) : EXIT_STATUS_OK;
}
