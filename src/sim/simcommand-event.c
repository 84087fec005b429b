/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that play what happens to a host: SR-IOV switched, functions gone and back, a reboot. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "sim/simcommand-internal.h"
#include "sim/simfuse.h"
#include "sim/simguest.h"

static int on_sriov_done(sd_event_source *source _unused_, uint64_t usec _unused_, void *userdata)
{
	struct job *job = userdata;

	job->timer = sd_event_source_disable_unref(job->timer);
	job->card->sriov_busy = false;
	sim_card_set_sriov(job->card, job->sriov_on);
	simfuse_changed(job->owner->parts.sys);
	if (job->answer) {
		char text[64];

		snprintf(text, sizeof(text), "%s VFs on %s\n",
			 job->sriov_on ? "Enabling" : "Disabling", job->card->address);
		job->answer(job->userdata, 0, text, "");
	}
	job->used = false;
	return 0;
}

void simcommand_sriov(const struct request *q)
{
	struct sim_card *card = simcommand_card(q, q->argv[1]);
	const char *blocked;
	uint64_t delay_usec;
	struct job *job;

	if (!card)
		return;
	if (q->enable == q->disable) {
		simcommand_refuse(q, 2, "sriov: either -e or -d");
		return;
	}
	blocked = sim_card_sriov_blocked(card);
	if (!card->present || blocked) {
		simcommand_refuse(q, 1, "%s", blocked ?: "the GPU is not there");
		return;
	}
	if (q->enable && card->vf_count > 0) {
		char text[64];

		snprintf(text, sizeof(text), "VFs are already enabled on %s\n", card->address);
		simcommand_done(q, text);
		return;
	}
	job = simcommand_job(q);
	if (!job)
		return;
	job->card = card;
	job->sriov_on = q->enable;
	/* Unbound from the driver for the whole run: functions and their files are gone at once. */
	sim_card_set_sriov(card, false);
	card->sriov_busy = true;
	delay_usec = (uint64_t)card->faults.value[SIM_FAULT_SRIOV_LATENCY_MS] * USEC_PER_MSEC;
	if (sd_event_add_time_relative(q->c->parts.event, &job->timer, CLOCK_MONOTONIC, delay_usec,
				       1, on_sriov_done, job) < 0)
		on_sriov_done(NULL, 0, job);
}

/* A VF alone can go, too: as when its driver unbinds. */
static void move_vf(const struct request *q, bool back)
{
	struct sim *sim = q->c->sim;

	for (uint32_t i = 0; i < sim->card_count; i++)
		for (uint32_t j = 0; j < sim->cards[i].vf_count; j++)
			if (strcasecmp(sim->cards[i].vfs[j].address, q->argv[1]) == 0) {
				sim_vf_set_hidden(&sim->cards[i].vfs[j], !back);
				simguests_sync(q->c->parts.guests);
				simcommand_done(q, "");
				return;
			}
	simcommand_refuse(q, 1, "no GPU or VF %s", q->argv[1]);
}

void simcommand_remove(const struct request *q)
{
	struct sim_card *card = sim_find_card(q->c->sim, q->argv[1]);

	if (!card) {
		move_vf(q, false);
		return;
	}
	sim_card_remove(card);
	simguests_sync(q->c->parts.guests);
	simcommand_done(q, "");
}

void simcommand_restore(const struct request *q)
{
	struct sim_card *card = sim_find_card(q->c->sim, q->argv[1]);

	if (!card) {
		move_vf(q, true);
		return;
	}
	sim_card_restore(card);
	simcommand_done(q, "");
}

static void flap_vfs(struct sim_card *card, bool hide)
{
	for (uint32_t i = 0; i < card->vf_count; i++) {
		struct sim_vf *vf = &card->vfs[i];

		if (!vf->type && vf->open_count == 0 && vf->hidden != hide)
			sim_vf_set_hidden(vf, hide);
	}
}

static int on_flap(sd_event_source *source, uint64_t usec _unused_, void *userdata)
{
	struct job *job = userdata;

	if (clock_now_usec() < job->end_usec) {
		job->hidden = !job->hidden;
		flap_vfs(job->card, job->hidden);
		if (sd_event_source_set_time_relative(source, job->period_usec) >= 0 &&
		    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT) >= 0)
			return 0;
	}
	flap_vfs(job->card, false);
	job->timer = sd_event_source_disable_unref(job->timer);
	if (job->answer)
		job->answer(job->userdata, 0, "", "");
	job->used = false;
	return 0;
}

void simcommand_flap(const struct request *q)
{
	struct sim_card *card = simcommand_card(q, q->argv[1]);
	uint64_t for_usec = USEC_PER_SEC;
	uint32_t hz = 100;
	struct job *job;

	if (!card)
		return;
	if ((q->hz && (str_to_u32(q->hz, &hz) < 0 || hz < 1 || hz > 10000)) ||
	    (q->for_seconds && simcommand_seconds(q->for_seconds, &for_usec) < 0)) {
		simcommand_refuse(q, 2, "flap: --hz is 1 to 10000, --for a number of seconds");
		return;
	}
	job = simcommand_job(q);
	if (!job)
		return;
	job->card = card;
	job->period_usec = USEC_PER_SEC / hz;
	job->end_usec = clock_now_usec() + for_usec;
	if (sd_event_add_time_relative(q->c->parts.event, &job->timer, CLOCK_MONOTONIC,
				       job->period_usec, 1, on_flap, job) < 0) {
		job->used = false;
		simcommand_refuse(q, 1, "event loop: no timer");
	}
}

/* What was under way on the host ends with it. */
static void drop_jobs(struct simcommand *c)
{
	for (size_t i = 0; i < SIMCOMMAND_JOBS_MAX; i++) {
		struct job *job = &c->jobs[i];

		if (!job->used || !job->timer)
			continue;
		job->timer = sd_event_source_disable_unref(job->timer);
		job->used = false;
		if (job->answer)
			job->answer(job->userdata, 1, "", "the host was rebooted\n");
	}
}

void simcommand_reboot(const struct request *q)
{
	struct sim *sim = q->c->sim;
	_free_ char *path = str_printf("%s/boot_id", sim->root);
	_free_ char *text = NULL;
	int r = -ENOMEM;

	drop_jobs(q->c);
	sim_reboot(sim);
	simguests_sync(q->c->parts.guests);
	simfuse_changed(q->c->parts.sys);
	text = str_printf("%s\n", sim->boot_id);
	if (path && text)
		r = file_replace(path, text, strlen(text), 0644);
	if (r < 0)
		simcommand_refuse(q, 1, "boot_id: %s", strerror(-r));
	else
		simcommand_done(q, "");
}
