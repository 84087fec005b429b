/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event set has a connection of its own, so that a thread which waits for events does not keep
 * the session's lock. Sets stand in a fixed table; a handle points at an element.
 */
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sim/fakenvml/lib.h"

#define EVENT_SETS_MAX 32

struct nvmlEventSet_st {
	bool used;
	bool ended;	/* freed, or the session is over, while a call on it is under way */
	unsigned users; /* calls under way */
	int sock;
	uint32_t seq;
	pthread_mutex_t turn; /* one exchange at a time */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over all but `seq` and `turn` */
static struct nvmlEventSet_st sets[EVENT_SETS_MAX];

static void release_locked(struct nvmlEventSet_st *set)
{
	close(set->sock);
	pthread_mutex_destroy(&set->turn);
	set->used = false;
	set->ended = false;
}

static void end_locked(struct nvmlEventSet_st *set)
{
	if (!set->users) {
		release_locked(set);
	} else if (!set->ended) {
		/* Wakes whoever waits; the last of them gives the place back. */
		set->ended = true;
		shutdown(set->sock, SHUT_RDWR);
	}
}

static struct nvmlEventSet_st *enter(nvmlEventSet_t handle)
{
	struct nvmlEventSet_st *set = NULL;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < EVENT_SETS_MAX; i++) {
		if (&sets[i] == handle && sets[i].used && !sets[i].ended) {
			set = &sets[i];
			set->users++;
		}
	}
	pthread_mutex_unlock(&lock);
	return set;
}

static void leave(struct nvmlEventSet_st *set)
{
	pthread_mutex_lock(&lock);
	set->users--;
	if (set->ended && !set->users)
		release_locked(set);
	pthread_mutex_unlock(&lock);
}

static int exchange(struct nvmlEventSet_st *set, struct wire_request *req, struct wire_reply *ret)
{
	int r;

	pthread_mutex_lock(&set->turn);
	r = lib_exchange(set->sock, &set->seq, req, ret);
	pthread_mutex_unlock(&set->turn);
	return r;
}

void lib_events_end(void)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < EVENT_SETS_MAX; i++)
		if (sets[i].used)
			end_locked(&sets[i]);
	pthread_mutex_unlock(&lock);
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	struct nvmlEventSet_st *free_set = NULL;
	int r, sock;

	if (!set)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_ready();
	if (r)
		return r;
	sock = lib_connect();
	if (sock < 0)
		return NVML_ERROR_UNKNOWN;
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < EVENT_SETS_MAX && !free_set; i++)
		if (!sets[i].used)
			free_set = &sets[i];
	if (free_set) {
		*free_set = (struct nvmlEventSet_st){ .used = true, .sock = sock };
		pthread_mutex_init(&free_set->turn, NULL);
		*set = free_set;
	} else {
		close(sock);
	}
	pthread_mutex_unlock(&lock);
	return free_set ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_RESOURCES;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t handle)
{
	struct nvmlEventSet_st *set;
	int r = lib_ready();

	if (r)
		return r;
	set = enter(handle);
	if (!set)
		return NVML_ERROR_INVALID_ARGUMENT;
	pthread_mutex_lock(&lock);
	end_locked(set);
	pthread_mutex_unlock(&lock);
	leave(set);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
	struct wire_request req = { .op = WIRE_EVENT_TYPES };
	struct wire_reply rep;
	int r;

	if (!types)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_call_card(device, &req, &rep);
	if (!r)
		*types = rep.num[0];
	return r;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
				      nvmlEventSet_t handle)
{
	/* The driver is asked for what the card has, and by that whether the handle is one. */
	struct wire_request req = { .op = WIRE_EVENT_TYPES };
	struct nvmlEventSet_st *set;
	struct wire_reply rep;
	int r;

	r = lib_call_card(device, &req, &rep);
	if (r)
		return r;
	if (types & ~rep.num[0])
		return NVML_ERROR_NOT_SUPPORTED;
	set = enter(handle);
	if (!set)
		return NVML_ERROR_INVALID_ARGUMENT;
	req.op = WIRE_EVENT_REGISTER;
	req.wide = types;
	r = exchange(set, &req, &rep);
	leave(set);
	return r;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t handle, nvmlEventData_t *data,
				 unsigned int timeout_msec)
{
	struct wire_request req = { .op = WIRE_EVENT_WAIT, .arg = timeout_msec };
	struct nvmlEventSet_st *set;
	struct wire_reply rep;
	int r;

	if (!data)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = lib_ready();
	if (r)
		return r;
	set = enter(handle);
	if (!set)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = exchange(set, &req, &rep);
	leave(set);
	if (r)
		return r;
	if (rep.num[0] >= WIRE_MAX_CARDS)
		return NVML_ERROR_UNKNOWN;
	data->device = &lib_cards[rep.num[0]];
	data->eventType = rep.num[1];
	data->eventData = rep.num[2];
	data->gpuInstanceId = (unsigned int)(rep.num[3] >> 32);
	data->computeInstanceId = (unsigned int)rep.num[3];
	return NVML_SUCCESS;
}
