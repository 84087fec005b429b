/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/simfault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-event.h>

#include "base/error.h"
#include "base/str.h"

enum value_kind {
	VALUE_NUMBER,
	VALUE_BOOL,
	VALUE_ERRNO,
	VALUE_CREATABLE,
	VALUE_GUARD,  /* 1 is the driver's behaviour; kept the other way round */
	VALUE_MODE,   /* not a fault: sim_card_set_mode() */
	VALUE_SYMBOL, /* a list of names */
};

static const struct key {
	const char *name;
	enum value_kind kind;
	enum sim_fault fault;
	bool per_vf;
	const char *help;
} keys[] = {
	{ "nvml.latency_ms", VALUE_NUMBER, SIM_FAULT_NVML_LATENCY_MS, false,
	  "time of one whole-host sweep of creatable placements" },
	{ "nvml.hang", VALUE_BOOL, SIM_FAULT_NVML_HANG, false,
	  "calls are not answered until 0 again" },
	{ "nvml.error", VALUE_NUMBER, SIM_FAULT_NVML_ERROR, false,
	  "NVML code of a card's calls; without --gpu what Init returns" },
	{ "nvml.active_error", VALUE_NUMBER, SIM_FAULT_NVML_ACTIVE_ERROR, false,
	  "NVML code of the list of active vGPUs alone (29, 999 while a VM starts or stops)" },
	{ "nvml.placement_error", VALUE_NUMBER, SIM_FAULT_NVML_PLACEMENT_ERROR, false,
	  "NVML code of the creatable placements alone; the card's other calls work" },
	{ "nvml.list_v1_refused", VALUE_BOOL, SIM_FAULT_NVML_LIST_V1_REFUSED, false,
	  "drivers from R565 on take the old placement list no more" },
	{ "nvml.crash", VALUE_BOOL, SIM_FAULT_NVML_CRASH, false, "the calling process dies" },
	{ "nvml.symbol_missing", VALUE_SYMBOL, SIM_FAULT_COUNT, false,
	  "name of a function that the library lacks (libraries loaded afterwards); 0 brings all "
	  "back" },
	{ "nvml.ghost", VALUE_BOOL, SIM_FAULT_NVML_GHOST, true,
	  "a released placement stays taken" },
	{ "sysfs.read_latency_ms", VALUE_NUMBER, SIM_FAULT_READ_LATENCY_MS, true,
	  "of files under nvidia/" },
	{ "sysfs.write_latency_ms", VALUE_NUMBER, SIM_FAULT_WRITE_LATENCY_MS, true,
	  "of files under nvidia/" },
	{ "sysfs.read_errno", VALUE_ERRNO, SIM_FAULT_READ_ERRNO, true, "by name, EIO; 0 clears" },
	{ "sysfs.write_errno", VALUE_ERRNO, SIM_FAULT_WRITE_ERRNO, true, "by name; 0 clears" },
	{ "sysfs.release_errno", VALUE_ERRNO, SIM_FAULT_RELEASE_ERRNO, true,
	  "of writes of 0 to current_vgpu_type" },
	{ "sysfs.placement_errno", VALUE_ERRNO, SIM_FAULT_PLACEMENT_ERRNO, true,
	  "of writes to placement_id" },
	{ "sysfs.read_hang", VALUE_BOOL, SIM_FAULT_READ_HANG, true,
	  "reads are answered when it is 0 again" },
	{ "sysfs.write_hang", VALUE_BOOL, SIM_FAULT_WRITE_HANG, true,
	  "writes take effect when it is 0 again, even if the caller is dead" },
	{ "sysfs.creatable", VALUE_CREATABLE, SIM_FAULT_CREATABLE, true,
	  "creatable_vgpu_types: normal, header (only the header line), empty (0 bytes)" },
	{ "sysfs.physfn_missing", VALUE_BOOL, SIM_FAULT_PHYSFN_MISSING, true,
	  "the VF has no physfn link" },
	{ "sriov.latency_ms", VALUE_NUMBER, SIM_FAULT_SRIOV_LATENCY_MS, false,
	  "of a sriov-manage run" },
	{ "mode", VALUE_MODE, SIM_FAULT_COUNT, false,
	  "mixed, equal or mig; only while nothing is configured" },
	{ "creatable_guard", VALUE_GUARD, SIM_FAULT_CREATABLE_GUARD_OFF, false,
	  "1: sysfs hides a type once the card holds its equal-size maximum (as the driver does)" },
};

static const char *const creatable_texts[] = {
	[SIM_CREATABLE_NORMAL] = "normal",
	[SIM_CREATABLE_HEADER] = "header",
	[SIM_CREATABLE_EMPTY] = "empty",
};

/* What is to come back when a --for is over. */
struct revert {
	struct simfault *owner;
	bool used;
	const struct key *key;
	struct sim_card *card;
	struct sim_vf *vf;
	int64_t value; /* fault value, or mode */
	sd_event_source *timer;
};

struct simfault {
	struct sim *sim;
	sd_event *event;
	void (*changed)(void *userdata);
	void *userdata;
	struct revert reverts[SIMFAULT_REVERTS_MAX];
};

int simfault_new(struct sim *sim, sd_event *event, void (*changed)(void *userdata), void *userdata,
		 struct simfault **ret)
{
	struct simfault *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	*s = (struct simfault){
		.sim = sim, .event = event, .changed = changed, .userdata = userdata
	};
	*ret = s;
	return 0;
}

struct simfault *simfault_free(struct simfault *s)
{
	if (!s)
		return NULL;
	for (size_t i = 0; i < SIMFAULT_REVERTS_MAX; i++)
		sd_event_source_disable_unref(s->reverts[i].timer);
	free(s);
	return NULL;
}

const char *simfault_key(size_t i, const char **ret_help)
{
	if (i >= ARRAY_SIZE(keys))
		return NULL;
	*ret_help = keys[i].help;
	return keys[i].name;
}

static const struct key *find_key(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (strcmp(keys[i].name, name) == 0)
			return &keys[i];
	return NULL;
}

static int parse_errno(const char *value, int64_t *ret)
{
	uint32_t number;

	if (str_to_u32(value, &number) == 0 && number < 4096) {
		*ret = number;
		return 0;
	}
	for (int i = 1; i < 134; i++) {
		const char *name = strerrorname_np(i);

		if (name && strcmp(name, value) == 0) {
			*ret = i;
			return 0;
		}
	}
	return -EINVAL;
}

static int parse_value(const struct key *key, const char *value, int64_t *ret)
{
	enum sim_mode mode;
	uint32_t number;

	switch (key->kind) {
	case VALUE_ERRNO:
		return parse_errno(value, ret);
	case VALUE_CREATABLE:
		for (size_t i = 0; i < ARRAY_SIZE(creatable_texts); i++)
			if (strcmp(creatable_texts[i], value) == 0) {
				*ret = (int64_t)i;
				return 0;
			}
		return -EINVAL;
	case VALUE_MODE:
		if (sim_mode_parse(value, &mode) < 0)
			return -EINVAL;
		*ret = (int64_t)mode;
		return 0;
	case VALUE_NUMBER:
	case VALUE_BOOL:
	case VALUE_GUARD:
		if (str_to_u32(value, &number) < 0 || (key->kind != VALUE_NUMBER && number > 1))
			return -EINVAL;
		*ret = key->kind == VALUE_GUARD ? !number : (int64_t)number;
		return 0;
	case VALUE_SYMBOL:
		return 0;
	}
	return -EINVAL;
}

static void write_card(struct sim_card *card, enum sim_fault fault, int64_t value)
{
	card->faults.value[fault] = value;
	for (uint32_t i = 0; i < card->total_vfs; i++)
		card->vfs[i].faults.value[fault] = value;
}

static int set_mode(struct simfault *s, struct sim_card *card, enum sim_mode mode,
		    struct error *err)
{
	for (uint32_t i = 0; i < s->sim->card_count; i++) {
		struct sim_card *each = &s->sim->cards[i];
		int r;

		if (card && each != card)
			continue;
		r = sim_card_set_mode(each, mode);
		if (r == -EBUSY)
			return error_set(err, EBUSY, "%s: In use by another client", each->address);
		if (r < 0)
			return error_set(err, r, "%s: mode %s is not supported", each->address,
					 sim_mode_name(mode));
	}
	return 0;
}

static int set_symbol(struct sim *sim, const char *name, struct error *err)
{
	if (strcmp(name, "0") == 0) {
		sim->symbol_count = 0;
		return 0;
	}
	if (sim->symbol_count >= SIM_SYMBOLS_MAX)
		return error_set(err, ENOSPC, "at most %d missing symbols", SIM_SYMBOLS_MAX);
	if (str_copy(sim->symbols_missing[sim->symbol_count], sizeof(sim->symbols_missing[0]),
		     name) < 0)
		return error_set(err, EINVAL, "'%s' is no name of a function", name);
	sim->symbol_count++;
	return 0;
}

static int64_t present_value(const struct simfault *s, const struct key *key,
			     const struct sim_card *card, const struct sim_vf *vf)
{
	if (key->kind == VALUE_MODE)
		return (int64_t)(card ? card : &s->sim->cards[0])->mode;
	if (key->kind == VALUE_SYMBOL)
		return 0;
	return (vf ? &vf->faults : card ? &card->faults : &s->sim->faults)->value[key->fault];
}

static int write_value(struct simfault *s, const struct key *key, int64_t value,
		       struct sim_card *card, struct sim_vf *vf, struct error *err)
{
	if (key->kind == VALUE_MODE)
		return set_mode(s, card, (enum sim_mode)value, err);
	if (vf) {
		vf->faults.value[key->fault] = value;
		return 0;
	}
	if (card) {
		write_card(card, key->fault, value);
		return 0;
	}
	s->sim->faults.value[key->fault] = value;
	for (uint32_t i = 0; key->fault != SIM_FAULT_NVML_ERROR && i < s->sim->card_count; i++)
		write_card(&s->sim->cards[i], key->fault, value);
	return 0;
}

/* A ghost lasts as long as its key is set. */
static void lay_ghosts(struct sim *sim)
{
	for (uint32_t i = 0; i < sim->card_count; i++) {
		bool haunted = sim->cards[i].faults.value[SIM_FAULT_NVML_GHOST];

		for (uint32_t j = 0; j < sim->cards[i].total_vfs; j++)
			haunted |= sim->cards[i].vfs[j].faults.value[SIM_FAULT_NVML_GHOST];
		if (!haunted)
			sim->cards[i].ghost_count = 0;
	}
}

static int on_revert(sd_event_source *source _unused_, uint64_t usec _unused_, void *userdata)
{
	struct revert *r = userdata;
	struct simfault *s = r->owner;

	r->timer = sd_event_source_disable_unref(r->timer);
	r->used = false;
	if (r->key->kind == VALUE_SYMBOL)
		s->sim->symbol_count = 0;
	else
		/* A mode that cannot come back because vGPUs are there stays. */
		(void)!write_value(s, r->key, r->value, r->card, r->vf, NULL);
	lay_ghosts(s->sim);
	s->changed(s->userdata);
	return 0;
}

/* Takes back the ends planned by earlier commands for this place and for all below it. Returns the
 * value that was to come back here: it outlives a command with an end of its own. */
static int64_t drop_reverts(struct simfault *s, const struct key *key, const struct sim_card *card,
			    const struct sim_vf *vf)
{
	int64_t former = present_value(s, key, card, vf);

	for (size_t i = 0; i < SIMFAULT_REVERTS_MAX; i++) {
		struct revert *r = &s->reverts[i];
		bool same = r->card == card && r->vf == vf;
		bool below = !vf && (!card || r->card == card || (r->vf && r->vf->card == card));

		if (!r->used || r->key != key || (!same && !below))
			continue;
		if (same)
			former = r->value;
		r->timer = sd_event_source_disable_unref(r->timer);
		r->used = false;
	}
	return former;
}

static int plan_revert(struct simfault *s, const struct revert *plan, uint64_t for_usec)
{
	for (size_t i = 0; i < SIMFAULT_REVERTS_MAX; i++) {
		struct revert *r = &s->reverts[i];

		if (r->used)
			continue;
		*r = *plan;
		return sd_event_add_time_relative(s->event, &r->timer, CLOCK_MONOTONIC, for_usec, 1,
						  on_revert, r);
	}
	return -ENOSPC;
}

int simfault_set(struct simfault *s, const char *name, const char *value, struct sim_card *card,
		 struct sim_vf *vf, uint64_t for_usec, struct error *err)
{
	const struct key *key = find_key(name);
	struct revert plan = { .owner = s, .used = true, .key = key, .card = card, .vf = vf };
	int64_t parsed = 0;
	int r;

	if (!key)
		return error_set(err, EINVAL, "unknown key '%s'", name);
	if (vf && !key->per_vf)
		return error_set(err, EINVAL, "%s is not set per VF", name);
	r = parse_value(key, value, &parsed);
	if (r < 0)
		return error_set(err, EINVAL, "'%s' is no value of %s", value, name);
	plan.value = drop_reverts(s, key, card, vf);
	if (for_usec > 0) {
		r = plan_revert(s, &plan, for_usec);
		if (r < 0)
			return error_set_errno(err, r, "too many values with an end");
	}
	r = key->kind == VALUE_SYMBOL ? set_symbol(s->sim, value, err)
				      : write_value(s, key, parsed, card, vf, err);
	if (r < 0) {
		drop_reverts(s, key, card, vf);
		return r;
	}
	lay_ghosts(s->sim);
	s->changed(s->userdata);
	return 0;
}
