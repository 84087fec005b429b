/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator's side of its guests; the child's side is simguest-child.c. */
#include "sim/simguest.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "base/channel.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "sim/simguest-message.h"

#define GUESTS_MAX 1024

struct guest {
	struct simguests *owner;
	struct sim_vf *vf;
	uint32_t generation; /* of the VF */
	uint32_t instance;   /* 0 until registered */
	pid_t pid;
	int pidfd, fd;
	bool clean;
	uint64_t init_usec;
	simguest_started started; /* NULL once called */
	void *userdata;
	sd_event_source *fd_source, *pid_source;
};

struct simguests {
	struct sim *sim;
	sd_event *event;
	struct guest *guest[GUESTS_MAX];
	size_t count;
};

int simguests_new(struct sim *sim, sd_event *event, struct simguests **ret)
{
	struct simguests *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	g->sim = sim;
	g->event = event;
	*ret = g;
	return 0;
}

static bool still_there(const struct guest *guest)
{
	return guest->instance != 0 && guest->vf->generation == guest->generation &&
	       guest->vf->instance.active && guest->vf->instance.id == guest->instance;
}

static void report_start(struct guest *guest, int result)
{
	simguest_started started = guest->started;

	guest->started = NULL;
	if (started)
		started(guest->userdata, guest->pid, result);
}

static void guest_free(struct guest *guest)
{
	struct simguests *g = guest->owner;

	for (size_t i = 0; i < g->count; i++)
		if (g->guest[i] == guest) {
			g->guest[i] = g->guest[--g->count];
			break;
		}
	sd_event_source_disable_unref(guest->fd_source);
	sd_event_source_disable_unref(guest->pid_source);
	if (guest->fd >= 0)
		close(guest->fd);
	if (guest->pidfd >= 0)
		close(guest->pidfd);
	free(guest);
}

static void handle_message(struct guest *guest, enum simguest_message message)
{
	struct simguest_answer answer = { 0 };

	switch (message) {
	case SIMGUEST_OPENED:
		answer.result = guest->vf->generation == guest->generation
					? sim_vf_start_guest(guest->vf, guest->pid,
							     guest->vf->address, guest->init_usec)
					: -ENODEV;
		if (answer.result == 0)
			guest->instance = guest->vf->instance.id;
		report_start(guest, answer.result);
		break;
	case SIMGUEST_OPEN_FAILED:
		report_start(guest, -ENODEV);
		return;
	case SIMGUEST_INIT_OVER:
		answer.result = !still_there(guest) ? -ENODEV : 0;
		if (answer.result == 0) {
			answer.wedged = guest->vf->wedged;
			guest->vf->instance.driver_loaded = !answer.wedged;
		}
		break;
	case SIMGUEST_BYE:
		guest->clean = true;
		return;
	}
	/* A guest that is just dying does not hear it. */
	(void)!channel_send(guest->fd, &answer, sizeof(answer));
}

static void drain_messages(struct guest *guest)
{
	enum simguest_message message;
	size_t n;

	while (channel_recv(guest->fd, &message, sizeof(message), &n) > 0)
		if (n == sizeof(message))
			handle_message(guest, message);
}

static int on_message(sd_event_source *source, int fd _unused_, uint32_t revents, void *userdata)
{
	struct guest *guest = userdata;

	drain_messages(guest);
	/* The rest is told by the pidfd. */
	if (revents & (EPOLLHUP | EPOLLERR))
		return sd_event_source_set_enabled(source, SD_EVENT_OFF);
	return 0;
}

static int on_death(sd_event_source *source _unused_, int fd, uint32_t revents _unused_,
		    void *userdata)
{
	struct guest *guest = userdata;
	siginfo_t info = { 0 };

	drain_messages(guest);
	(void)!waitid(P_PIDFD, (id_t)fd, &info, WEXITED);
	if (still_there(guest)) {
		sim_vf_stop_guest(guest->vf, guest->clean);
		log_info("guest: ended vf=%s pid=%d%s%s", guest->vf->address, (int)guest->pid,
			 guest->clean ? "" : " without shutting down",
			 guest->vf->wedged ? ", the VF is wedged" : "");
	}
	report_start(guest, -ECHILD);
	guest_free(guest);
	return 0;
}

static int spawn(struct guest *guest, const struct simguest_options *options)
{
	const struct sim_vf *vf = guest->vf;
	char root[300], address[SIM_ADDRESS_MAX + 8], cdev[32], group[32], init[40], prefix[80];
	char console[4200] = "--console=";
	char *argv[] = { (char *)"berth-sim",
			 (char *)"guest",
			 root,
			 address,
			 cdev,
			 group,
			 init,
			 prefix,
			 console,
			 NULL };

	snprintf(root, sizeof(root), "--root=%s", guest->owner->sim->root);
	snprintf(address, sizeof(address), "--vf=%s", vf->address);
	snprintf(init, sizeof(init), "--init-usec=%" PRIu64, options->init_usec);
	snprintf(prefix, sizeof(prefix), "--prefix=%s", options->prefix);
	snprintf(cdev, sizeof(cdev), "--cdev=");
	snprintf(group, sizeof(group), "--group=");
	if (strcmp(options->node, "group") != 0)
		snprintf(cdev, sizeof(cdev), "--cdev=vfio%u", vf->vfio);
	if (strcmp(options->node, "cdev") != 0)
		snprintf(group, sizeof(group), "--group=%u", vf->group);
	if (options->console)
		snprintf(console, sizeof(console), "--console=%s", options->console);
	return channel_spawn("/proc/self/exe", argv, &guest->pid, &guest->pidfd, &guest->fd);
}

int simguests_boot(struct simguests *g, struct sim_vf *vf, const struct simguest_options *options,
		   simguest_started started, void *userdata, struct error *err)
{
	struct guest *guest;
	int r;

	if (!vf->type)
		return error_set(err, ENODEV, "%s: current_vgpu_type of VF not configured",
				 vf->address);
	if (vf->instance.active)
		return error_set(err, EBUSY, "%s: a guest runs on it (pid %d)", vf->address,
				 (int)vf->instance.pid);
	if (g->count >= GUESTS_MAX)
		return error_set(err, ENOSPC, "at most %d guests", GUESTS_MAX);
	guest = calloc(1, sizeof(*guest));
	if (!guest)
		return error_set_errno(err, ENOMEM, "guest");
	*guest = (struct guest){ .owner = g,
				 .vf = vf,
				 .generation = vf->generation,
				 .pidfd = -1,
				 .fd = -1,
				 .init_usec = options->init_usec,
				 .started = started,
				 .userdata = userdata };
	r = spawn(guest, options);
	if (r >= 0) {
		g->guest[g->count++] = guest;
		r = sd_event_add_io(g->event, &guest->fd_source, guest->fd, EPOLLIN, on_message,
				    guest);
		if (r >= 0)
			r = sd_event_add_io(g->event, &guest->pid_source, guest->pidfd, EPOLLIN,
					    on_death, guest);
	}
	if (r < 0) {
		guest_free(guest);
		return error_set_errno(err, r, "%s: cannot start a guest", vf->address);
	}
	return 0;
}

void simguests_forget(struct simguests *g, const void *userdata)
{
	for (size_t i = 0; i < g->count; i++)
		if (g->guest[i]->userdata == userdata)
			g->guest[i]->started = NULL;
}

void simguests_sync(struct simguests *g)
{
	for (size_t i = 0; i < g->count; i++)
		if (g->guest[i]->instance != 0 && !still_there(g->guest[i]))
			kill(g->guest[i]->pid, SIGKILL);
}

struct simguests *simguests_free(struct simguests *g)
{
	if (!g)
		return NULL;
	while (g->count > 0) {
		struct guest *guest = g->guest[0];

		kill(guest->pid, SIGKILL);
		(void)!waitid(P_PIDFD, (id_t)guest->pidfd, &(siginfo_t){ 0 }, WEXITED);
		guest->started = NULL;
		guest_free(guest);
	}
	free(g);
	return NULL;
}
