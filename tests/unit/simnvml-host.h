/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the tests of the simulator's NVML: a host whose model and server run on a loop of their own
 * thread in this process, and the library loaded from the host's folder as a client would.
 */
#pragma once

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <systemd/sd-event.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/str.h"
#include "sim/fakenvml/nvml-abi.h"
#include "sim/fakenvml/wire.h"
#include "sim/simnvml.h"

#define L40S_4Q 1150
#define L40S_2Q 1148

struct host {
	char root[64];
	struct sim *sim;
	struct simnvml *server;
	sd_event *event;
	pthread_t thread;
	int jobs[2]; /* pointers to struct job, run on the loop */
	void *lib;
};

struct job {
	void (*run)(struct host *h, void *arg);
	void *arg;
	sem_t done;
};

static _unused_ void built_library(char *ret, size_t size)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	assert_true(n > 0);
	self[n] = '\0';
	for (int i = 0; i < 3; i++)
		*strrchr(self, '/') = '\0';
	assert_true(snprintf(ret, size, "%s/bin/libnvidia-ml.so.1", self) < (int)size);
}

static _unused_ int on_job(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	struct host *h = userdata;
	struct job *job;

	(void)revents;
	if (read(fd, &job, sizeof(job)) != sizeof(job))
		return 0;
	if (!job) {
		sd_event_exit(sd_event_source_get_event(source), 0);
		return 0;
	}
	job->run(h, job->arg);
	sem_post(&job->done);
	return 0;
}

/* Runs it in the loop's thread, which alone may touch the model. */
static _unused_ void in_loop(struct host *h, void (*run)(struct host *h, void *arg), void *arg)
{
	struct job job = { .run = run, .arg = arg };
	struct job *p = &job;

	sem_init(&job.done, 0, 0);
	assert_int_equal(write(h->jobs[1], &p, sizeof(p)), sizeof(p));
	while (sem_wait(&job.done) < 0)
		;
	sem_destroy(&job.done);
}

static _unused_ void *loop_main(void *arg)
{
	struct host *h = arg;

	sd_event_loop(h->event);
	return NULL;
}

static _unused_ void make_file(const char *dir, const char *name)
{
	_free_ char *path = str_printf("%s/%s", dir, name);
	_close_ int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);

	assert_true(fd >= 0);
}

static _unused_ void host_start(struct host *h, const char *driver, enum sim_mode mode)
{
	struct sim_config config = {
		.model = "l40s", .driver = driver, .cards = 2, .mode = mode, .sriov = true
	};
	char library[4096], dev[80];
	struct error err = ERROR_INIT;

	*h = (struct host){ .root = "/tmp/test-simnvml-XXXXXX" };
	assert_non_null(mkdtemp(h->root));
	config.root = h->root;
	snprintf(dev, sizeof(dev), "%s/dev", h->root);
	assert_int_equal(mkdir(dev, 0755), 0);
	make_file(dev, "nvidiactl");
	make_file(dev, "nvidia0");
	make_file(dev, "nvidia1");
	built_library(library, sizeof(library));
	assert_int_equal(sim_new(&config, &h->sim, &err), 0);
	assert_int_equal(sd_event_new(&h->event), 0);
	if (simnvml_new(h->sim, h->event, library, &h->server, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(pipe2(h->jobs, O_CLOEXEC), 0);
	assert_true(sd_event_add_io(h->event, NULL, h->jobs[0], EPOLLIN, on_job, h) >= 0);
	assert_int_equal(pthread_create(&h->thread, NULL, loop_main, h), 0);
}

static _unused_ void host_load(struct host *h)
{
	_free_ char *path = str_printf("%s/lib/libnvidia-ml.so.1", h->root);

	h->lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	assert_non_null(h->lib);
}

static _unused_ void remove_tree(const char *root)
{
	_free_ char *command = str_printf("rm -rf '%s'", root);

	assert_int_equal(system(command), 0);
}

static _unused_ void host_stop(struct host *h)
{
	struct job *end = NULL;

	assert_int_equal(write(h->jobs[1], &end, sizeof(end)), sizeof(end));
	pthread_join(h->thread, NULL);
	if (h->lib)
		dlclose(h->lib);
	simnvml_free(h->server);
	sd_event_unref(h->event);
	sim_free(h->sim);
	close(h->jobs[0]);
	close(h->jobs[1]);
	remove_tree(h->root);
}

struct fault_job {
	enum sim_fault fault;
	int64_t value;
	int card; /* -1: host and everything below */
};

static _unused_ void run_fault(struct host *h, void *arg)
{
	const struct fault_job *job = arg;

	if (job->card < 0)
		h->sim->faults.value[job->fault] = job->value;
	else
		h->sim->cards[job->card].faults.value[job->fault] = job->value;
	if (job->fault == SIM_FAULT_NVML_LATENCY_MS)
		for (uint32_t i = 0; i < h->sim->card_count; i++)
			h->sim->cards[i].faults.value[job->fault] = job->value;
	assert_int_equal(simnvml_changed(h->server, NULL), 0);
}

static _unused_ void set_fault(struct host *h, enum sim_fault fault, int64_t value, int card)
{
	struct fault_job job = { fault, value, card };

	in_loop(h, run_fault, &job);
}

struct type_job {
	unsigned vf;
	uint32_t type;
	int r;
};

static _unused_ void run_type(struct host *h, void *arg)
{
	struct type_job *job = arg;

	job->r = sim_vf_write_type(&h->sim->cards[0].vfs[job->vf], job->type);
}

static _unused_ void write_type(struct host *h, unsigned vf, uint32_t type)
{
	struct type_job job = { vf, type, -1 };

	in_loop(h, run_type, &job);
	assert_int_equal(job.r, 0);
}

/* The exported function, with the type that its prototype has. */
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a name, not an expression */
#define NVML(h, name) ((__typeof__(&name))dlsym((h)->lib, #name))

static _unused_ nvmlDevice_t card(struct host *h, unsigned i)
{
	nvmlDevice_t dev = NULL;

	assert_int_equal(NVML(h, nvmlDeviceGetHandleByIndex_v2)(i, &dev), 0);
	return dev;
}

static _unused_ void check_creatable(struct host *h, uint32_t type, const unsigned *want,
				     unsigned n)
{
	unsigned ids[64];
	nvmlVgpuPlacementList_v2_t list = {
		.version = 0x02000020, .count = 64, .placementIds = ids, .mode = 0
	};

	assert_int_equal(NVML(h, nvmlDeviceGetVgpuTypeCreatablePlacements)(card(h, 0), type, &list),
			 0);
	assert_int_equal(list.count, n);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(ids[i], want[i]);
}

#define CREATABLE(h, type, ...)                                                                    \
	do {                                                                                       \
		const unsigned want_[] = { __VA_ARGS__ };                                          \
		check_creatable(h, type, want_, sizeof(want_) / sizeof(want_[0]));                 \
	} while (0)
