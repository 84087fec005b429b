/* SPDX-License-Identifier: Apache-2.0 */
#include "host/card-client.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/channel.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "host/card-process.h"
#include "model/outcome.h"
#include "model/placement.h"

#define LOCK_RETRY_USEC USEC_PER_SEC
/* A helper whose berthd was just killed sees end of file and lets go of the lock within moments, on
 * a host that is busy a little later. */
#define LOCK_GRACE_USEC	      (1500 * USEC_PER_MSEC)
#define LOCK_GRACE_RETRY_USEC (50 * USEC_PER_MSEC)
#define RESTART_MIN_USEC      (100 * USEC_PER_MSEC)
#define RESTART_MAX_USEC      (10 * USEC_PER_SEC)
#define STEADY_USEC	      (10 * USEC_PER_SEC) /* a helper that lived longer starts the back-off anew */
#define FAILURES_MAX	      3 /* ends in a row after which the card counts as stuck */
#define TIMER_ACCURACY_USEC   (5 * USEC_PER_MSEC)
#define MESSAGES_PER_WAKEUP   64

struct op {
	struct card_request request; /* with the id */
	bool sent;
	uint64_t deadline_usec;
	card_done_fn done;
	void *userdata;
};

struct card_client {
	sd_event *event;
	struct pci_addr card;
	struct card_process_paths paths;
	uint64_t timeout_usec;
	void (*state_changed)(struct card_client *c, enum card_client_state state, void *userdata);
	void *userdata;

	enum card_client_state state;
	char reason[256];
	unsigned calls; /* callbacks of the owner that are running; it may free us in one */
	bool freed;

	struct card_process helper;
	bool has_lock;	   /* it said hello */
	int lock_error;	   /* it said why it has no lock */
	bool timed_out;	   /* killed because an operation was not answered */
	unsigned failures; /* helpers that ended by themselves, in a row */
	uint64_t busy_since_usec;
	uint64_t ready_since_usec;
	sd_event_source *channel_source, *child_source, *restart_source, *deadline_source;

	uint64_t last_id;
	unsigned n_ops;
	struct op ops[CARD_OUTSTANDING_MAX]; /* in the order they were submitted */
	struct card_reply reply;
};

/* --- Callbacks of the owner ----------------------------------------------------------------- */

static void release_memory(struct card_client *c)
{
	sd_event_unref(c->event);
	free(c->paths.sysfs_root);
	free(c->paths.dev_root);
	free(c->paths.proc_root);
	free(c->paths.lock);
	free(c);
}

static void enter(struct card_client *c)
{
	c->calls++;
}

/* False when the client is gone. */
static bool leave(struct card_client *c)
{
	c->calls--;
	if (c->calls == 0 && c->freed) {
		release_memory(c);
		return false;
	}
	return !c->freed;
}

static void set_state(struct card_client *c, enum card_client_state state, const char *fmt, ...)
	_printf_(3, 4);

/* Callers hold an enter(). */
static void set_state(struct card_client *c, enum card_client_state state, const char *fmt, ...)
{
	bool changed = c->state != state;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(c->reason, sizeof c->reason, fmt, ap);
	va_end(ap);
	c->state = state;
	if (changed && !c->freed && c->state_changed)
		c->state_changed(c, state, c->userdata);
}

static void remove_op(struct card_client *c, unsigned i)
{
	c->n_ops--;
	memmove(&c->ops[i], &c->ops[i + 1], (c->n_ops - i) * sizeof c->ops[0]);
}

/* Ends operations without an answer: all, or those that a helper had in hand. */
static void end_ops(struct card_client *c, bool only_sent, int result, const char *text)
{
	unsigned i = 0;

	while (!c->freed && i < c->n_ops) {
		struct op op = c->ops[i];

		if (only_sent && !op.sent) {
			i++;
			continue;
		}
		remove_op(c, i);
		memset(&c->reply, 0, sizeof c->reply);
		c->reply.version = CARD_MESSAGE_VERSION;
		c->reply.op = op.request.op;
		c->reply.id = op.request.id;
		c->reply.result = result;
		c->reply.step = op.sent ? CARD_STEP_WRITE : CARD_STEP_BEFORE;
		c->reply.n_vfs = op.request.n_vfs;
		for (unsigned v = 0; v < op.request.n_vfs; v++) {
			c->reply.vfs[v].address = op.request.vfs[v];
			c->reply.vfs[v].error = result;
			c->reply.vfs[v].placement_id = PLACEMENT_NONE;
			c->reply.list_errors[v] = result;
		}
		str_copy_cut(c->reply.text, sizeof c->reply.text, text);
		op.done(&c->reply, op.userdata);
	}
}

/* --- Deadlines ------------------------------------------------------------------------------ */

static void arm_deadline(struct card_client *c)
{
	uint64_t first = UINT64_MAX;

	for (unsigned i = 0; i < c->n_ops; i++)
		first = MIN(first, c->ops[i].deadline_usec);
	if (first == UINT64_MAX) {
		sd_event_source_set_enabled(c->deadline_source, SD_EVENT_OFF);
		return;
	}
	sd_event_source_set_time(c->deadline_source, first);
	sd_event_source_set_enabled(c->deadline_source, SD_EVENT_ONESHOT);
}

static void kill_helper(struct card_client *c)
{
	c->channel_source = sd_event_source_disable_unref(c->channel_source);
	card_process_kill(&c->helper);
}

static int deadline_passed(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct card_client *c = userdata;
	uint64_t now = clock_now_usec();
	const struct op *late = NULL;
	char vf[PCI_ADDR_MAX] = "-";
	char waiting[64] = "";

	(void)source;
	(void)usec;
	for (unsigned i = 0; i < c->n_ops && !late; i++)
		if (c->ops[i].deadline_usec <= now)
			late = &c->ops[i];
	if (!late) {
		arm_deadline(c);
		return 0;
	}
	if (late->request.n_vfs > 0)
		pci_addr_format(late->request.vfs[0], vf);
	if (c->helper.pid > 0) {
		c->timed_out = true;
		snprintf(waiting, sizeof waiting, "; waiting for helper process %d to end",
			 (int)c->helper.pid);
	}
	kill_helper(c);
	enter(c);
	/* The owner hears of the state first: it must not plan anything new on this card. */
	set_state(c, CARD_CLIENT_STUCK, "no answer to %s of %s within %" PRIu64 " ms%s",
		  card_op_name(late->request.op), vf, c->timeout_usec / USEC_PER_MSEC, waiting);
	end_ops(c, false, -E_DRIVER_STUCK, c->reason);
	leave(c);
	return 0;
}

/* --- Messages ------------------------------------------------------------------------------- */

static void flush(struct card_client *c)
{
	uint32_t events = EPOLLIN;

	if (!c->has_lock || c->helper.fd < 0)
		return;
	for (unsigned i = 0; i < c->n_ops; i++) {
		int r;

		if (c->ops[i].sent)
			continue;
		r = channel_send(c->helper.fd, &c->ops[i].request, sizeof c->ops[i].request);
		if (r == -EAGAIN)
			events |= EPOLLOUT;
		if (r < 0)
			break; /* its end, if that is it, is noticed at the descriptor */
		c->ops[i].sent = true;
	}
	sd_event_source_set_io_events(c->channel_source, events);
}

static void take_hello(struct card_client *c, const struct card_hello *hello)
{
	c->lock_error = hello->lock_error;
	if (c->lock_error != 0)
		return; /* it ends now */
	c->has_lock = true;
	c->busy_since_usec = 0;
	c->ready_since_usec = clock_now_usec();
	set_state(c, CARD_CLIENT_READY, "%s", "");
	if (!c->freed)
		flush(c);
}

static void take_reply(struct card_client *c)
{
	uint64_t fresh = clock_now_usec() + c->timeout_usec;
	struct op op;
	unsigned i;

	for (i = 0; i < c->n_ops; i++)
		if (c->ops[i].request.id == c->reply.id)
			break;
	if (i == c->n_ops)
		return;
	op = c->ops[i];
	remove_op(c, i);
	/* Configures wait for one another: the time of the next one begins now, or a long queue at
	 * a slow driver would look like a hang. */
	for (i = 0; op.request.op == CARD_OP_CONFIGURE && i < c->n_ops; i++)
		if (c->ops[i].request.op == CARD_OP_CONFIGURE)
			c->ops[i].deadline_usec = fresh;
	arm_deadline(c);
	op.done(&c->reply, op.userdata);
}

/* One message. False when there is none, or none that can be understood. */
static bool receive(struct card_client *c)
{
	size_t len;
	int r;

	if (c->helper.fd < 0)
		return false;
	r = channel_recv(c->helper.fd, &c->reply, sizeof c->reply, &len);
	if (r == -EAGAIN)
		return false;
	if (r == 1 && !c->has_lock && c->lock_error == 0) {
		struct card_hello hello;

		memcpy(&hello, &c->reply, sizeof hello);
		if (len == sizeof hello && hello.version == CARD_MESSAGE_VERSION) {
			take_hello(c, &hello);
			return true;
		}
	} else if (r == 1 && card_reply_check(&c->reply, len) == 0) {
		take_reply(c);
		return true;
	}
	/* End of file, or nonsense. What it had in hand ends when it is dead, not before. */
	kill_helper(c);
	return false;
}

static int channel_event(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	struct card_client *c = userdata;

	(void)source;
	(void)fd;
	enter(c);
	if (revents & EPOLLOUT)
		flush(c);
	for (unsigned i = 0; i < MESSAGES_PER_WAKEUP && !c->freed; i++)
		if (!receive(c))
			break;
	leave(c);
	return 0;
}

/* --- The helper's life ---------------------------------------------------------------------- */

static void start_helper(struct card_client *c);

static int restart_due(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct card_client *c = userdata;

	(void)source;
	(void)usec;
	enter(c);
	start_helper(c);
	leave(c);
	return 0;
}

static void restart_in(struct card_client *c, uint64_t delay_usec)
{
	if (c->freed)
		return;
	sd_event_source_set_time(c->restart_source, clock_now_usec() + delay_usec);
	sd_event_source_set_enabled(c->restart_source, SD_EVENT_ONESHOT);
}

static void lock_is_taken(struct card_client *c)
{
	char text[32], *end;
	long pid = 0;
	size_t len;
	uint64_t now = clock_now_usec();

	if (c->busy_since_usec == 0)
		c->busy_since_usec = now;
	if (c->state == CARD_CLIENT_STARTING && now - c->busy_since_usec < LOCK_GRACE_USEC) {
		restart_in(c, LOCK_GRACE_RETRY_USEC);
		return;
	}
	if (file_read_into(AT_FDCWD, c->paths.lock, text, sizeof text, &len) == 0)
		pid = strtol(text, &end, 10);
	restart_in(c, LOCK_RETRY_USEC);
	set_state(c, CARD_CLIENT_STUCK,
		  "helper process %ld of an earlier start still hangs in the driver (it holds %s)",
		  pid, c->paths.lock);
	if (!c->freed)
		end_ops(c, false, -E_DRIVER_STUCK, c->reason);
}

static void lock_failed(struct card_client *c)
{
	restart_in(c, LOCK_RETRY_USEC);
	set_state(c, CARD_CLIENT_STUCK, "%s: %s", c->paths.lock, strerror(-c->lock_error));
	if (!c->freed)
		end_ops(c, false, -E_DRIVER_STUCK, c->reason);
}

/* The helper ended by itself, or could not be started. */
static void helper_failed(struct card_client *c, const char *what)
{
	uint64_t delay;

	if (c->ready_since_usec != 0 && clock_now_usec() - c->ready_since_usec > STEADY_USEC)
		c->failures = 0;
	c->ready_since_usec = 0;
	delay = RESTART_MIN_USEC << MIN(c->failures, 10U);
	delay = MIN(delay, RESTART_MAX_USEC);
	c->failures++;
	restart_in(c, delay);
	set_state(c,
		  c->failures >= FAILURES_MAX || c->state == CARD_CLIENT_STUCK
			  ? CARD_CLIENT_STUCK
			  : CARD_CLIENT_STARTING,
		  "%s; starting it again in %" PRIu64 " ms", what, delay / USEC_PER_MSEC);
	if (!c->freed)
		end_ops(c, true, -ECONNRESET, what);
	if (!c->freed && c->state == CARD_CLIENT_STUCK)
		end_ops(c, false, -E_DRIVER_STUCK, what);
	if (!c->freed)
		arm_deadline(c);
}

static void helper_ended(struct card_client *c, const siginfo_t *info)
{
	bool timed_out = c->timed_out;
	char what[96];

	c->has_lock = c->timed_out = false;
	if (timed_out) {
		/* Its memory and descriptors are gone, so the lock is free, unless somebody else
		 * took it. */
		start_helper(c);
		return;
	}
	if (c->lock_error == -EWOULDBLOCK) {
		lock_is_taken(c);
		return;
	}
	if (c->lock_error != 0) {
		lock_failed(c);
		return;
	}
	if (info->si_code == CLD_EXITED)
		snprintf(what, sizeof what, "berth-card ended with status %d", info->si_status);
	else
		snprintf(what, sizeof what, "berth-card was ended by signal %d", info->si_status);
	helper_failed(c, what);
}

static void drop_sources(struct card_client *c)
{
	c->channel_source = sd_event_source_disable_unref(c->channel_source);
	c->child_source = sd_event_source_disable_unref(c->child_source);
}

static int child_event(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	struct card_client *c = userdata;
	siginfo_t info;

	(void)source;
	(void)fd;
	(void)revents;
	enter(c);
	/* What it said before it ended still counts. */
	while (!c->freed && receive(c))
		;
	if (!c->freed && card_process_collect(&c->helper, &info)) {
		drop_sources(c);
		helper_ended(c, &info);
	}
	leave(c);
	return 0;
}

static void start_helper(struct card_client *c)
{
	char what[160];
	int r;

	if (c->freed || c->helper.pid > 0)
		return;
	c->lock_error = 0;
	r = card_process_start(&c->helper, c->card, &c->paths);
	if (r == 0) {
		r = sd_event_add_io(c->event, &c->child_source, c->helper.pidfd, EPOLLIN,
				    child_event, c);
		if (r >= 0)
			r = sd_event_add_io(c->event, &c->channel_source, c->helper.fd, EPOLLIN,
					    channel_event, c);
		if (r >= 0)
			return;
		/* It has been asked nothing yet, so it ends at once and leaves the lock. */
		drop_sources(c);
		card_process_abandon(&c->helper, c->event);
	}
	snprintf(what, sizeof what, "berth-card does not start: %s", strerror(-r));
	helper_failed(c, what);
}

/* --- Interface ------------------------------------------------------------------------------ */

static int copy_config(struct card_client *c, const struct card_client_config *config)
{
	char card[PCI_ADDR_MAX];

	c->event = sd_event_ref(config->event);
	c->card = config->card;
	c->timeout_usec = config->timeout_usec;
	c->state_changed = config->state_changed;
	c->userdata = config->userdata;
	c->paths.sysfs_root = strdup(config->sysfs_root);
	c->paths.dev_root = strdup(config->dev_root);
	c->paths.proc_root = strdup(config->proc_root);
	c->paths.lock = str_printf("%s/card-%s.lock", config->lock_dir,
				   pci_addr_format(c->card, card));
	return c->paths.sysfs_root && c->paths.dev_root && c->paths.proc_root && c->paths.lock
		       ? 0
		       : -ENOMEM;
}

static int add_timer(struct card_client *c, sd_event_source **ret, sd_event_time_handler_t handler)
{
	int r = sd_event_add_time(c->event, ret, CLOCK_MONOTONIC, 0, TIMER_ACCURACY_USEC, handler,
				  c);

	return r < 0 ? r : sd_event_source_set_enabled(*ret, SD_EVENT_OFF);
}

int card_client_new(const struct card_client_config *config, struct card_client **ret,
		    struct error *err)
{
	struct card_client *c;
	int r;

	r = file_make_dirs(config->lock_dir, 0700);
	if (r < 0)
		return error_set_errno(err, r, "%s", config->lock_dir);
	c = calloc(1, sizeof *c);
	if (!c)
		return error_set_errno(err, ENOMEM, "card helper");
	c->helper = CARD_PROCESS_INIT;
	str_copy_cut(c->reason, sizeof c->reason, "the card's helper is starting");
	r = copy_config(c, config);
	if (r == 0)
		r = add_timer(c, &c->deadline_source, deadline_passed);
	if (r >= 0)
		r = add_timer(c, &c->restart_source, restart_due);
	if (r >= 0)
		r = sd_event_source_set_enabled(c->restart_source,
						SD_EVENT_ONESHOT); /* at once, in the loop */
	if (r < 0) {
		card_client_free(c);
		return error_set_errno(err, r, "card helper");
	}
	*ret = c;
	return 0;
}

struct card_client *card_client_free(struct card_client *c)
{
	if (!c)
		return NULL;
	drop_sources(c);
	card_process_abandon(&c->helper, c->event);
	c->deadline_source = sd_event_source_disable_unref(c->deadline_source);
	c->restart_source = sd_event_source_disable_unref(c->restart_source);
	c->freed = true;
	if (c->calls == 0)
		release_memory(c);
	return NULL;
}

enum card_client_state card_client_get_state(const struct card_client *c)
{
	return c->state;
}

const char *card_client_reason(const struct card_client *c)
{
	return c->reason;
}

pid_t card_client_pid(const struct card_client *c)
{
	return c->helper.pid;
}

void card_client_set_timeout(struct card_client *c, uint64_t timeout_usec)
{
	c->timeout_usec = timeout_usec;
}

int card_client_submit(struct card_client *c, const struct card_request *request, card_done_fn done,
		       void *userdata)
{
	struct op *op;
	int r;

	if (c->state == CARD_CLIENT_STUCK)
		return -E_DRIVER_STUCK;
	if (c->n_ops == CARD_OUTSTANDING_MAX)
		return -EAGAIN;
	op = &c->ops[c->n_ops];
	op->request = *request;
	op->request.version = CARD_MESSAGE_VERSION;
	op->request.id = c->last_id + 1;
	r = card_request_check(&op->request, sizeof op->request);
	if (r < 0)
		return r;
	op->sent = false;
	op->deadline_usec = clock_now_usec() + c->timeout_usec;
	op->done = done;
	op->userdata = userdata;
	c->last_id++;
	c->n_ops++;
	arm_deadline(c);
	flush(c);
	return 0;
}
