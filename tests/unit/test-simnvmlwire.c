/* SPDX-License-Identifier: Apache-2.0 */
/* The connection: hostile clients, hangs, time, crashes, events. */
#include "simnvml-host.h"

static void test_wire_limits(void **state)
{
	struct wire_request req = { .magic = WIRE_MAGIC, .version = WIRE_VERSION, .op = WIRE_INIT };
	struct wire_reply rep = { .magic = WIRE_MAGIC, .version = WIRE_VERSION, .seq = 7 };

	(void)state;
	assert_true(wire_request_valid(&req, sizeof(req)));
	assert_false(wire_request_valid(&req, sizeof(req) - 1));
	assert_false(wire_request_valid(&req, sizeof(req) + 1));
	req.op = WIRE_OP_END;
	assert_false(wire_request_valid(&req, sizeof(req)));
	req.op = 0;
	assert_false(wire_request_valid(&req, sizeof(req)));
	req.op = WIRE_INIT;
	req.version++;
	assert_false(wire_request_valid(&req, sizeof(req)));

	assert_true(wire_reply_valid(&rep, sizeof(rep), 7));
	assert_false(wire_reply_valid(&rep, sizeof(rep), 8));
	assert_false(wire_reply_valid(&rep, sizeof(rep) - 1, 7));
	rep.n_ids = WIRE_MAX_IDS + 1;
	assert_false(wire_reply_valid(&rep, sizeof(rep), 7));
	rep.n_ids = WIRE_MAX_IDS;
	rep.text[WIRE_MAX_TEXT - 1] = 'x';
	assert_true(wire_reply_valid(&rep, sizeof(rep), 7));
	rep.n_ids = 0;
	assert_false(wire_reply_valid(&rep, sizeof(rep), 7));
}

static int raw_connect(struct host *h)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/nvml.sock", h->root);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	return fd;
}

static bool raw_is_closed(int fd)
{
	struct wire_reply rep;

	return recv(fd, &rep, sizeof(rep), 0) <= 0;
}

static void test_garbage(void **state)
{
	struct host h;
	struct wire_request req = { .magic = WIRE_MAGIC, .version = WIRE_VERSION };
	struct wire_reply rep;
	static const char huge[65536];
	unsigned short seed[3] = { 1, 2, 3 };

	(void)state;
	host_start(&h, "580.178.05", SIM_MODE_MIXED);
	for (size_t n = 1; n < 300; n += 7) {
		_close_ int fd = raw_connect(&h);
		char junk[300];

		for (size_t i = 0; i < n; i++)
			junk[i] = (char)nrand48(seed);
		assert_int_equal(send(fd, junk, n, MSG_NOSIGNAL), n);
		assert_true(raw_is_closed(fd));
	}
	{
		_close_ int fd = raw_connect(&h);

		assert_int_equal(send(fd, huge, sizeof(huge), MSG_NOSIGNAL), sizeof(huge));
		assert_true(raw_is_closed(fd));
	}
	/* Right in form, nonsense in content: each is answered. */
	{
		_close_ int fd = raw_connect(&h);

		for (unsigned i = 0; i < 20000; i++) {
			bool wild = i % 2;

			req.op = (uint16_t)(1 + (unsigned)nrand48(seed) % (WIRE_OP_END - 1));
			req.seq = i;
			req.card = wild ? (uint32_t)mrand48() : (uint32_t)nrand48(seed) % 3;
			req.type = wild ? (uint32_t)mrand48() : 1144 + (uint32_t)nrand48(seed) % 24;
			req.instance = (uint32_t)mrand48();
			req.arg = req.op == WIRE_EVENT_WAIT ? 0 : (uint32_t)nrand48(seed) % 14;
			req.arg2 = (uint32_t)nrand48(seed) % 4;
			req.wide = 0;
			assert_int_equal(send(fd, &req, sizeof(req), MSG_NOSIGNAL), sizeof(req));
			assert_int_equal(recv(fd, &rep, sizeof(rep), MSG_TRUNC), sizeof(rep));
			assert_true(wire_reply_valid(&rep, sizeof(rep), i));
		}
	}
	host_stop(&h);
}

/* Clients that leave while their calls are kept back, that flood, that never read. */
static void test_bad_clients(void **state)
{
	struct wire_request req = { .magic = WIRE_MAGIC,
				    .version = WIRE_VERSION,
				    .op = WIRE_COUNT };
	int fds[SIMNVML_CLIENTS_MAX], extra;
	struct wire_reply rep;
	struct host h;

	(void)state;
	host_start(&h, "580.178.05", SIM_MODE_MIXED);
	set_fault(&h, SIM_FAULT_NVML_HANG, 1, -1);
	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = raw_connect(&h);
		assert_int_equal(send(fds[i], &req, sizeof(req), 0), sizeof(req));
	}
	extra = raw_connect(&h);
	assert_true(raw_is_closed(extra));
	close(extra);
	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	set_fault(&h, SIM_FAULT_NVML_HANG, 0, -1);

	/* The places of those that left are free again. */
	fds[0] = raw_connect(&h);
	assert_int_equal(send(fds[0], &req, sizeof(req), 0), sizeof(req));
	assert_int_equal(recv(fds[0], &rep, sizeof(rep), 0), sizeof(rep));
	assert_int_equal(rep.num[0], 2);
	/* Never reads, only writes: ends when its socket is full. */
	while (send(fds[0], &req, sizeof(req), MSG_NOSIGNAL) > 0)
		;
	close(fds[0]);
	host_stop(&h);
}

/* --- time ------------------------------------------------------------------------------------ */

static void *sweep(void *arg)
{
	struct host *h = arg;
	unsigned n;

	return (void *)(intptr_t)NVML(h, nvmlDeviceGetCount_v2)(&n);
}

static void test_hang(void **state)
{
	struct timespec soon;
	pthread_t thread;
	struct host h;
	void *r;

	(void)state;
	host_start(&h, "580.178.05", SIM_MODE_MIXED);
	host_load(&h);
	assert_int_equal(NVML(&h, nvmlInit_v2)(), 0);
	set_fault(&h, SIM_FAULT_NVML_HANG, 1, -1);
	assert_int_equal(pthread_create(&thread, NULL, sweep, &h), 0);
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_nsec += 50000000;
	soon.tv_sec += soon.tv_nsec / 1000000000;
	soon.tv_nsec %= 1000000000;
	assert_int_equal(pthread_timedjoin_np(thread, &r, &soon), ETIMEDOUT);
	set_fault(&h, SIM_FAULT_NVML_HANG, 0, -1);
	assert_int_equal(pthread_join(thread, &r), 0);
	assert_int_equal((intptr_t)r, 0);
	assert_int_equal(NVML(&h, nvmlShutdown)(), 0);
	host_stop(&h);
}

static void test_latency(void **state)
{
	unsigned ids[64], types[128], n_types = 128;
	uint64_t start, usec, best = UINT64_MAX;
	nvmlVgpuPlacementList_v2_t list = { .version = 0x02000020, .placementIds = ids };
	struct host h;

	(void)state;
	host_start(&h, "580.178.05", SIM_MODE_MIXED);
	host_load(&h);
	assert_int_equal(NVML(&h, nvmlInit_v2)(), 0);
	assert_int_equal(NVML(&h, nvmlDeviceGetSupportedVgpus)(card(&h, 0), &n_types, types), 0);
	set_fault(&h, SIM_FAULT_NVML_LATENCY_MS, 20, -1);
	/* Never shorter; in the best of some runs as long as told, for the machine may be busy. */
	for (unsigned run = 0; run < 20; run++) {
		start = clock_now_usec();
		for (unsigned c = 0; c < 2; c++)
			for (unsigned t = 0; t < n_types; t++) {
				list.count = 64;
				assert_int_equal(NVML(&h, nvmlDeviceGetVgpuTypeCreatablePlacements)(
							 card(&h, c), types[t], &list),
						 0);
			}
		usec = clock_now_usec() - start;
		assert_true(usec > 19500);
		best = MIN(best, usec);
	}
	print_message("# a sweep of 20 ms took %.2f ms at best\n", (double)best / 1000);
	assert_true(best < 26000);
	assert_int_equal(NVML(&h, nvmlShutdown)(), 0);
	host_stop(&h);
}

static void test_crash(void **state)
{
	struct host h;
	int status;
	pid_t pid;

	(void)state;
	host_start(&h, "580.178.05", SIM_MODE_MIXED);
	host_load(&h);
	assert_int_equal(NVML(&h, nvmlInit_v2)(), 0);
	set_fault(&h, SIM_FAULT_NVML_CRASH, 1, -1);
	pid = fork();
	if (!pid) {
		struct rlimit none = { 0, 0 };
		unsigned n;

		setrlimit(RLIMIT_CORE, &none);
		signal(SIGABRT, SIG_DFL);
		NVML(&h, nvmlDeviceGetCount_v2)
		(&n); /* the child reconnects: it is a process of its own */
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	set_fault(&h, SIM_FAULT_NVML_CRASH, 0, -1);
	assert_int_equal(NVML(&h, nvmlShutdown)(), 0);
	host_stop(&h);
}

static void run_xid(struct host *h, void *arg)
{
	simnvml_raise_xid(h->server, &h->sim->cards[0], *(uint64_t *)arg);
}

struct waiter {
	struct host *h;
	nvmlEventSet_t set;
	nvmlEventData_t data;
};

static void *wait_event(void *arg)
{
	struct waiter *w = arg;

	return (void *)(intptr_t)NVML(w->h, nvmlEventSetWait_v2)(w->set, &w->data, 30000);
}

static void test_events(void **state)
{
	uint64_t xid = 31;
	unsigned long long types;
	struct waiter w = { 0 };
	pthread_t thread;
	struct host h;
	unsigned n;
	void *r;

	(void)state;
	host_start(&h, "580.178.05", SIM_MODE_MIXED);
	host_load(&h);
	w.h = &h;
	assert_int_equal(NVML(&h, nvmlInit_v2)(), 0);
	assert_int_equal(NVML(&h, nvmlEventSetCreate)(&w.set), 0);
	assert_int_equal(NVML(&h, nvmlDeviceGetSupportedEventTypes)(card(&h, 0), &types), 0);
	assert_int_equal(types & 8, 8);
	assert_int_equal(NVML(&h, nvmlDeviceRegisterEvents)(card(&h, 0), 8 | 1 << 20, w.set), 3);
	assert_int_equal(NVML(&h, nvmlDeviceRegisterEvents)(card(&h, 0), 8, (nvmlEventSet_t)&w), 2);
	/* Before the registration nothing is recorded. */
	in_loop(&h, run_xid, &xid);
	assert_int_equal(NVML(&h, nvmlDeviceRegisterEvents)(card(&h, 0), 8, w.set), 0);
	assert_int_equal(NVML(&h, nvmlEventSetWait_v2)(w.set, &w.data, 5), 10);
	xid = 79;
	in_loop(&h, run_xid, &xid);
	assert_int_equal(NVML(&h, nvmlEventSetWait_v2)(w.set, &w.data, 0), 0);
	assert_int_equal(w.data.eventType, 8);
	assert_int_equal(w.data.eventData, 79);
	assert_int_equal(w.data.gpuInstanceId, 0xffffffff);
	assert_ptr_equal(w.data.device, card(&h, 0));

	/* A waiting thread keeps nobody from calling, and is woken by the event. */
	assert_int_equal(pthread_create(&thread, NULL, wait_event, &w), 0);
	assert_int_equal(NVML(&h, nvmlDeviceGetCount_v2)(&n), 0);
	in_loop(&h, run_xid, &xid);
	assert_int_equal(pthread_join(thread, &r), 0);
	assert_int_equal((intptr_t)r, 0);

	/* The end of the session wakes it too, and ends the set. */
	assert_int_equal(pthread_create(&thread, NULL, wait_event, &w), 0);
	assert_int_equal(NVML(&h, nvmlShutdown)(), 0);
	assert_int_equal(pthread_join(thread, &r), 0);
	assert_true((intptr_t)r == 999 || (intptr_t)r == 2 || (intptr_t)r == 1);
	assert_int_equal(NVML(&h, nvmlInit_v2)(), 0);
	assert_int_equal(NVML(&h, nvmlEventSetFree)(w.set), 2);
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(NVML(&h, nvmlEventSetCreate)(&w.set), 0);
		assert_int_equal(NVML(&h, nvmlEventSetFree)(w.set), 0);
	}
	assert_int_equal(NVML(&h, nvmlShutdown)(), 0);
	host_stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wire_limits), cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_bad_clients), cmocka_unit_test(test_hang),
		cmocka_unit_test(test_latency),	    cmocka_unit_test(test_crash),
		cmocka_unit_test(test_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
