/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/fakenvml/lib.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define NSEC_PER_SEC	   INT64_C(1000000000)
#define OVERSLEPT_MAX_NSEC INT64_C(300000)

static struct {
	pthread_mutex_t lock;
	unsigned refs;
	int sock;
	uint32_t seq;
	int nodes[1 + WIRE_MAX_CARDS]; /* nvidiactl, nvidia0... */
	unsigned n_nodes;
	/* How much longer than told the last call took: a sleep ends late by some 60 us, which over
	 * the many short calls of a sweep would add up. The next call is that much shorter. */
	int64_t overslept_nsec;
	char root[PATH_MAX]; /* folder of the simulated host; empty: not loaded from one */
} session = { .lock = PTHREAD_MUTEX_INITIALIZER, .sock = -1 };

struct nvmlDevice_st lib_cards[WIRE_MAX_CARDS];

/* The simulator's installer writes the simulated driver's version over what follows the mark. */
#define VERSION_MARK "fakenvml version: "
static volatile const char version_text[sizeof(VERSION_MARK) - 1 + 80] = VERSION_MARK "unknown";

static void forget_in_child(void)
{
	/* The parent goes on using the connection; the nodes' descriptors are the child's too. */
	pthread_mutex_init(&session.lock, NULL);
	if (session.sock >= 0)
		close(session.sock);
	session.sock = -1;
}

/* The host is found from where this file lies: DIR/lib/libnvidia-ml.so.1. Looked up when loaded, as
 * a relative path means another file once the process has changed its folder. */
__attribute__((constructor)) static void find_root(void)
{
	Dl_info info;
	char *slash;

	pthread_atfork(NULL, NULL, forget_in_child);
	if (!dladdr(&session, &info) || !info.dli_fname ||
	    !realpath(info.dli_fname, session.root)) {
		session.root[0] = '\0';
		return;
	}
	for (int i = 0; i < 2; i++) {
		slash = strrchr(session.root, '/');
		if (slash)
			*slash = '\0';
	}
}

int lib_connect(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int dir, sock, r;

	if (!session.root[0])
		return -1;
	/* By way of the folder's descriptor: the path may be too long for a socket address. */
	dir = open(session.root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -1;
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (sock < 0) {
		close(dir);
		return -1;
	}
	snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/" WIRE_SOCKET_NAME, dir);
	do
		r = connect(sock, (struct sockaddr *)&addr, sizeof(addr));
	while (r < 0 && errno == EINTR);
	close(dir);
	if (r < 0) {
		close(sock);
		return -1;
	}
	return sock;
}

int lib_exchange(int sock, uint32_t *seq, struct wire_request *req, struct wire_reply *ret)
{
	ssize_t n;

	req->magic = WIRE_MAGIC;
	req->version = WIRE_VERSION;
	req->seq = ++*seq;
	do
		n = send(sock, req, sizeof(*req), MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(*req))
		return NVML_ERROR_UNKNOWN;
	/* A hung driver does not answer; a signal does not get the caller out of it. */
	do
		n = recv(sock, ret, sizeof(*ret), MSG_TRUNC);
	while (n < 0 && errno == EINTR);
	if (n < 0 || !wire_reply_valid(ret, (size_t)n, req->seq))
		return NVML_ERROR_UNKNOWN;
	if (ret->flags & WIRE_FLAG_CRASH)
		abort();
	return ret->ret;
}

static int64_t now_nsec(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static void spend(int64_t start_nsec, uint64_t cost_nsec)
{
	int64_t end = start_nsec + (int64_t)cost_nsec - session.overslept_nsec, late;
	struct timespec ts = { .tv_sec = end / NSEC_PER_SEC, .tv_nsec = end % NSEC_PER_SEC };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
	late = now_nsec() - end;
	session.overslept_nsec = late > OVERSLEPT_MAX_NSEC ? OVERSLEPT_MAX_NSEC : late;
}

static void end_session(void)
{
	if (session.sock >= 0)
		close(session.sock);
	session.sock = -1;
	for (unsigned i = 0; i < session.n_nodes; i++)
		close(session.nodes[i]);
	session.n_nodes = 0;
}

static int hold_node(const char *name)
{
	char path[PATH_MAX + 32];
	int fd;

	snprintf(path, sizeof(path), "%s/dev/%s", session.root, name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	session.nodes[session.n_nodes++] = fd;
	return 0;
}

/* As the real library, which opens every GPU's node and keeps it: what stands in the way of an
 * SR-IOV cycle. A GPU that is gone has no node. */
static int hold_nodes(uint64_t n_cards)
{
	char name[16];
	int r;

	r = hold_node("nvidiactl");
	for (unsigned i = 0; !r && i < n_cards && i < WIRE_MAX_CARDS; i++) {
		snprintf(name, sizeof(name), "nvidia%u", i);
		r = hold_node(name);
		if (r == -ENOENT || r == -ENODEV || r == -ENXIO)
			r = 0;
	}
	if (r == -EACCES || r == -EPERM)
		return NVML_ERROR_NO_PERMISSION;
	return r ? NVML_ERROR_DRIVER_NOT_LOADED : NVML_SUCCESS;
}

static int start_session(unsigned int flags)
{
	struct wire_request req = { .op = WIRE_INIT, .arg = flags };
	struct wire_reply rep;
	int r;

	session.sock = lib_connect();
	if (session.sock < 0)
		return NVML_ERROR_DRIVER_NOT_LOADED;
	r = lib_exchange(session.sock, &session.seq, &req, &rep);
	if (!r)
		r = hold_nodes(rep.num[0]);
	if (r)
		end_session();
	return r;
}

static int init(unsigned int flags)
{
	const unsigned int known = NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH |
				   NVML_INIT_FLAG_FORCE_INIT;
	int r = NVML_SUCCESS;

	if (flags & ~known)
		return NVML_ERROR_INVALID_ARGUMENT;
	pthread_mutex_lock(&session.lock);
	if (!session.refs)
		r = start_session(flags);
	if (!r)
		session.refs++;
	pthread_mutex_unlock(&session.lock);
	return r;
}

nvmlReturn_t nvmlInit(void)
{
	return init(0);
}

nvmlReturn_t nvmlInit_v2(void)
{
	return init(0);
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	return init(flags);
}

nvmlReturn_t nvmlShutdown(void)
{
	struct wire_request req = { .op = WIRE_SHUTDOWN };
	struct wire_reply rep;
	int r = NVML_SUCCESS;

	pthread_mutex_lock(&session.lock);
	if (!session.refs) {
		r = NVML_ERROR_UNINITIALIZED;
	} else if (!--session.refs) {
		/* Whatever the driver says to it, the session is over. */
		if (session.sock >= 0)
			(void)lib_exchange(session.sock, &session.seq, &req, &rep);
		lib_events_end();
		end_session();
	}
	pthread_mutex_unlock(&session.lock);
	return r;
}

int lib_ready(void)
{
	bool ready;

	pthread_mutex_lock(&session.lock);
	ready = session.refs > 0;
	pthread_mutex_unlock(&session.lock);
	return ready ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

static int call_locked(struct wire_request *req, struct wire_reply *ret)
{
	int64_t start = now_nsec();
	int r;

	if (!session.refs)
		return NVML_ERROR_UNINITIALIZED;
	if (session.sock < 0) /* the child of a fork */
		session.sock = lib_connect();
	if (session.sock < 0)
		return NVML_ERROR_UNKNOWN;
	r = lib_exchange(session.sock, &session.seq, req, ret);
	if (ret->cost_nsec)
		spend(start, ret->cost_nsec);
	return r;
}

int lib_call(struct wire_request *req, struct wire_reply *ret)
{
	int r;

	ret->cost_nsec = 0;
	pthread_mutex_lock(&session.lock);
	r = call_locked(req, ret);
	pthread_mutex_unlock(&session.lock);
	return r;
}

int lib_call_card(nvmlDevice_t device, struct wire_request *req, struct wire_reply *ret)
{
	uintptr_t at = (uintptr_t)device, first = (uintptr_t)lib_cards;
	int r = lib_ready();

	if (r)
		return r;
	if (at < first || at >= first + sizeof(lib_cards))
		return NVML_ERROR_INVALID_ARGUMENT;
	req->card = (uint32_t)(at - first);
	return lib_call(req, ret);
}

int lib_get_number(struct wire_request *req, unsigned int *ret)
{
	struct wire_reply rep;
	int r = lib_call(req, &rep);

	if (!r)
		*ret = (unsigned int)rep.num[0];
	return r;
}

int lib_get_number64(struct wire_request *req, unsigned long long *ret)
{
	struct wire_reply rep;
	int r = lib_call(req, &rep);

	if (!r)
		*ret = rep.num[0];
	return r;
}

int lib_get_card_number(nvmlDevice_t device, struct wire_request *req, unsigned int *ret)
{
	struct wire_reply rep;
	int r = lib_call_card(device, req, &rep);

	if (!r)
		*ret = (unsigned int)rep.num[0];
	return r;
}

int lib_put_text(const struct wire_reply *rep, char *buf, unsigned int size)
{
	size_t n = strlen(rep->text) + 1;

	if (n > size)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(buf, rep->text, n);
	return NVML_SUCCESS;
}

int lib_put_ids(const struct wire_reply *rep, unsigned int *count, unsigned int *ids)
{
	unsigned int room = ids ? *count : 0;

	*count = rep->n_ids;
	if (rep->n_ids > room)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	if (rep->n_ids)
		memcpy(ids, rep->ids, rep->n_ids * sizeof(*ids));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	char text[sizeof(version_text)];
	const char *number = text + sizeof(VERSION_MARK) - 1;

	if (!version)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = version_text[i];
	text[sizeof(text) - 1] = '\0';
	if (strlen(number) >= length)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(version, number, strlen(number) + 1);
	return NVML_SUCCESS;
}
