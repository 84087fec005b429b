/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/simnvml.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-event.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "sim/fakenvml/wire.h"
#include "sim/simnvmlcall.h"

#define EVENT_XID	  UINT64_C(8)
#define EVENTS_QUEUED_MAX 16
#define NVML_TIMEOUT	  10
#define LIBRARY_PATH_MAX  4096
#define BACKLOG		  64

_Static_assert(SIM_TYPES_MAX <= WIRE_MAX_IDS, "a reply holds all types of a card");
_Static_assert(SIM_PLACEMENTS_MAX <= WIRE_MAX_IDS && SIM_VFS_MAX <= WIRE_MAX_IDS,
	       "and other lists");
_Static_assert(SIM_CARDS_MAX <= WIRE_MAX_CARDS, "every card has a handle");

enum client_state {
	CLIENT_IDLE,	/* between two calls */
	CLIENT_HUNG,	/* its call is kept back until the hang is lifted */
	CLIENT_WAITING, /* its call waits for an event or the timer */
};

struct event {
	uint32_t card;
	uint64_t xid;
};

struct client {
	struct simnvml *server;
	unsigned slot;
	int fd;
	enum client_state state;
	struct wire_request request; /* the call under way unless idle */
	sd_event_source *io;
	sd_event_source *timer;		    /* end of an event wait */
	uint64_t registered[SIM_CARDS_MAX]; /* event types by card */
	unsigned n_events;
	struct event events[EVENTS_QUEUED_MAX]; /* not yet fetched; what comes beyond is lost */
};

struct simnvml {
	struct sim *sim;
	sd_event *event;
	int dir; /* sim->root */
	int fd;
	sd_event_source *io;
	char library[LIBRARY_PATH_MAX]; /* as built */
	uint32_t installed_count;	/* sim->symbols_missing when DIR/lib was last written */
	char installed_missing[SIM_SYMBOLS_MAX][sizeof(((struct sim *)0)->symbols_missing[0])];
	struct client *clients[SIMNVML_CLIENTS_MAX];
};

static struct client *client_free(struct client *c)
{
	if (!c)
		return NULL;
	c->server->clients[c->slot] = NULL;
	sd_event_source_disable_unref(c->timer);
	sd_event_source_disable_unref(c->io);
	if (c->fd >= 0)
		close(c->fd);
	free(c);
	return NULL;
}

/* While a call is under way the socket is not read: what else is sent waits in the kernel, and the
 * end of the connection is reported all the same. */
static void client_set_state(struct client *c, enum client_state state)
{
	c->state = state;
	sd_event_source_set_io_events(c->io, state == CLIENT_IDLE ? EPOLLIN : 0);
}

/* False when the client is gone: it did not take its reply, which nobody with one call does. */
static bool client_reply(struct client *c, struct wire_reply *rep)
{
	ssize_t n;

	rep->magic = WIRE_MAGIC;
	rep->version = WIRE_VERSION;
	rep->seq = c->request.seq;
	n = send(c->fd, rep, sizeof(*rep), MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n != (ssize_t)sizeof(*rep)) {
		client_free(c);
		return false;
	}
	client_set_state(c, CLIENT_IDLE);
	return true;
}

static void reply_event(struct client *c)
{
	struct wire_reply rep = { 0 };

	if (!c->n_events) {
		rep.ret = NVML_TIMEOUT;
	} else {
		rep.num[0] = c->events[0].card;
		rep.num[1] = EVENT_XID;
		rep.num[2] = c->events[0].xid;
		rep.num[3] = UINT64_MAX; /* of no GPU instance, no compute instance */
		c->n_events--;
		memmove(c->events, c->events + 1, c->n_events * sizeof(c->events[0]));
	}
	client_reply(c, &rep);
}

static void client_answer(struct client *c);

static int on_wait_end(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct client *c = userdata;

	(void)source;
	(void)usec;
	c->request.arg = 0;
	client_answer(c);
	return 0;
}

static void wait_event(struct client *c)
{
	uint64_t end = clock_now_usec() + c->request.arg * USEC_PER_MSEC;
	int r;

	c->timer = sd_event_source_disable_unref(c->timer);
	if (c->n_events || !c->request.arg) {
		reply_event(c);
		return;
	}
	r = sd_event_add_time(c->server->event, &c->timer, CLOCK_MONOTONIC, end, 1, on_wait_end, c);
	if (r < 0) {
		client_free(c);
		return;
	}
	client_set_state(c, CLIENT_WAITING);
}

/* Answers the call under way, or keeps it back. The client may be gone afterwards. */
static void client_answer(struct client *c)
{
	struct sim *sim = c->server->sim;
	struct wire_reply rep;

	if (simnvml_call_hangs(sim, &c->request)) {
		c->timer = sd_event_source_disable_unref(c->timer);
		client_set_state(c, CLIENT_HUNG);
		return;
	}
	simnvml_call_answer(sim, &c->request, &rep);
	if (c->request.op == WIRE_EVENT_WAIT && !rep.flags) {
		wait_event(c);
		return;
	}
	if (c->request.op == WIRE_EVENT_REGISTER && !rep.ret)
		c->registered[c->request.card] |= c->request.wide;
	client_reply(c, &rep);
}

static int on_client(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	struct client *c = userdata;
	struct wire_request req;
	ssize_t n;

	(void)source;
	if (c->state != CLIENT_IDLE) {
		/* Not read now, so this is the end of the connection. */
		client_free(c);
		return 0;
	}
	n = recv(fd, &req, sizeof(req), MSG_DONTWAIT | MSG_TRUNC);
	if (n < 0 && (errno == EAGAIN || errno == EINTR) && !(revents & (EPOLLHUP | EPOLLERR)))
		return 0;
	if (n <= 0 || !wire_request_valid(&req, (size_t)n)) {
		if (n > 0)
			log_debug("nvml: client disconnected bytes=%zd: not a request", n);
		client_free(c);
		return 0;
	}
	c->request = req;
	c->server->sim->counters.nvml_calls++;
	c->server->sim->counters.nvml_shutdowns += req.op == WIRE_SHUTDOWN;
	client_answer(c);
	return 0;
}

static int client_new(struct simnvml *n, int fd_take)
{
	_close_ int fd = fd_take;
	struct client *c;
	unsigned slot = 0;
	int r;

	while (slot < SIMNVML_CLIENTS_MAX && n->clients[slot])
		slot++;
	if (slot == SIMNVML_CLIENTS_MAX)
		return -EMFILE;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->server = n;
	c->slot = slot;
	c->fd = TAKE_FD(fd);
	n->clients[slot] = c;
	r = sd_event_add_io(n->event, &c->io, c->fd, EPOLLIN, on_client, c);
	if (r < 0)
		client_free(c);
	return r;
}

static int on_accept(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	struct simnvml *n = userdata;
	int client, r;

	(void)source;
	(void)revents;
	client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (client < 0)
		return 0; /* it went away, or no descriptor is left: it waits in the backlog */
	r = client_new(n, client);
	if (r < 0)
		log_warning("nvml: client refused: %s", strerror(-r));
	return 0;
}

static int listen_on(struct simnvml *n, struct error *err)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int r;

	n->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (n->fd < 0)
		return error_set_errno(err, errno, "cannot make a socket");
	/* By way of the folder's descriptor: the path may be too long for a socket address. */
	snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/" WIRE_SOCKET_NAME,
		 n->dir);
	if (unlinkat(n->dir, WIRE_SOCKET_NAME, 0) < 0 && errno != ENOENT)
		return error_set_errno(err, errno, "cannot remove the old " WIRE_SOCKET_NAME);
	if (bind(n->fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(n->fd, BACKLOG) < 0)
		return error_set_errno(err, errno, "cannot listen on %s/" WIRE_SOCKET_NAME,
				       n->sim->root);
	/* As the nodes of a driver are: open to every user of the machine. */
	if (fchmodat(n->dir, WIRE_SOCKET_NAME, 0666, 0) < 0)
		return error_set_errno(err, errno, "cannot open " WIRE_SOCKET_NAME " to all users");
	r = sd_event_add_io(n->event, &n->io, n->fd, EPOLLIN, on_accept, n);
	if (r < 0)
		return error_set_errno(err, r, "cannot watch " WIRE_SOCKET_NAME);
	return 0;
}

static int install(struct simnvml *n, struct error *err)
{
	const char *missing[64 + SIM_SYMBOLS_MAX];
	const struct sim *sim = n->sim;
	char path[sizeof(sim->root) + 8];
	const char *name, *unknown;
	size_t count = 0;
	int r;

	for (size_t i = 0; i < 64 && (name = simnvml_branch_lacks(sim->branch, i)); i++)
		missing[count++] = name;
	for (uint32_t i = 0; i < sim->symbol_count; i++)
		missing[count++] = sim->symbols_missing[i];
	snprintf(path, sizeof(path), "%s/lib", sim->root);
	r = file_make_dirs(path, 0755);
	if (r < 0)
		return error_set_errno(err, r, "cannot make %s", path);
	r = simnvml_install_library(n->library, path, sim->driver, missing, count, &unknown, err);
	if (r < 0)
		return r;
	if (unknown)
		log_warning("nvml: the library never had the symbol name=\"%s\"", unknown);
	n->installed_count = sim->symbol_count;
	memcpy(n->installed_missing, sim->symbols_missing, sizeof(n->installed_missing));
	return 0;
}

static bool symbols_changed(const struct simnvml *n)
{
	const struct sim *sim = n->sim;

	if (n->installed_count != sim->symbol_count)
		return true;
	for (uint32_t i = 0; i < sim->symbol_count; i++)
		if (strcmp(n->installed_missing[i], sim->symbols_missing[i]) != 0)
			return true;
	return false;
}

int simnvml_changed(struct simnvml *n, struct error *err)
{
	for (unsigned i = 0; i < SIMNVML_CLIENTS_MAX; i++)
		if (n->clients[i] && n->clients[i]->state == CLIENT_HUNG)
			client_answer(n->clients[i]);
	return symbols_changed(n) ? install(n, err) : 0;
}

void simnvml_raise_xid(struct simnvml *n, const struct sim_card *card, uint64_t xid)
{
	for (unsigned i = 0; i < SIMNVML_CLIENTS_MAX; i++) {
		struct client *c = n->clients[i];

		if (!c || !(c->registered[card->index] & EVENT_XID) ||
		    c->n_events == EVENTS_QUEUED_MAX)
			continue;
		c->events[c->n_events++] = (struct event){ .card = card->index, .xid = xid };
		if (c->state == CLIENT_WAITING)
			client_answer(c);
	}
}

/* Beside the program, as in a build folder, else where it is installed. */
static int find_library(char *ret, size_t size)
{
	static const char name[] = "libnvidia-ml.so.1";
	char self[LIBRARY_PATH_MAX];
	char *slash;
	ssize_t n;

	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	self[MAX(n, 0)] = '\0';
	slash = strrchr(self, '/');
	if (slash) {
		*slash = '\0';
		if (snprintf(ret, size, "%s/%s", self, name) < (int)size && access(ret, R_OK) == 0)
			return 0;
	}
	snprintf(ret, size, "%s/%s", BERTH_LIBEXECDIR, name);
	return access(ret, R_OK) < 0 ? -errno : 0;
}

int simnvml_new(struct sim *sim, struct sd_event *event, const char *library, struct simnvml **ret,
		struct error *err)
{
	struct simnvml *n = calloc(1, sizeof(*n));
	int r;

	if (!n)
		return error_set(err, ENOMEM, "out of memory");
	n->sim = sim;
	n->event = sd_event_ref(event);
	n->fd = -1;
	n->dir = open(sim->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (n->dir < 0)
		r = error_set_errno(err, errno, "cannot open %s", sim->root);
	else if (library)
		r = str_copy(n->library, sizeof(n->library), library);
	else
		r = find_library(n->library, sizeof(n->library));
	if (r < 0 && n->dir >= 0)
		r = error_set_errno(err, r, "cannot find the library libnvidia-ml.so.1");
	if (!r)
		r = install(n, err);
	if (!r)
		r = listen_on(n, err);
	if (r < 0) {
		simnvml_free(n);
		return r;
	}
	*ret = n;
	return 0;
}

struct simnvml *simnvml_free(struct simnvml *n)
{
	if (!n)
		return NULL;
	for (unsigned i = 0; i < SIMNVML_CLIENTS_MAX; i++)
		client_free(n->clients[i]);
	sd_event_source_disable_unref(n->io);
	if (n->fd >= 0) {
		close(n->fd);
		(void)unlinkat(n->dir, WIRE_SOCKET_NAME, 0);
	}
	if (n->dir >= 0)
		close(n->dir);
	sd_event_unref(n->event);
	free(n);
	return NULL;
}
