/* SPDX-License-Identifier: Apache-2.0 */
/* Cards and functions: how they are set up, found, and what events do to them. */
#include "sim/simcard.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"

#define FIRST_GROUP	 20
#define SRIOV_LATENCY_MS 200 /* the real script takes seconds; long enough to be noticed */

/* Bus numbers of the usual slots; more cards repeat them in the next PCI domain. */
static const uint8_t slot_buses[] = { 0x41, 0x81, 0xc1, 0x01, 0x21, 0x61, 0xa1, 0xe1,
				      0x11, 0x31, 0x51, 0x71, 0x91, 0xb1, 0xd1, 0xf1 };

void sim_uuid(char ret[static SIM_UUID_MAX])
{
	uint8_t b[16];

	if (getrandom(b, sizeof(b), 0) != (ssize_t)sizeof(b))
		abort();
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	snprintf(ret, SIM_UUID_MAX,
		 "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
		 b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
		 b[15]);
}

/* "0000:41:00.4", "41:00.4", upper or lower case. */
static int parse_address(const char *s, uint32_t ret[4])
{
	unsigned v[4] = { 0 };
	int end = 0;

	/* The widths leave no room for a number that does not fit. NOLINTBEGIN(cert-err34-c) */
	if (sscanf(s, "%8x:%2x:%2x.%1x%n", &v[0], &v[1], &v[2], &v[3], &end) != 4 ||
	    s[end] != '\0') {
		v[0] = 0;
		end = 0;
		if (sscanf(s, "%2x:%2x.%1x%n", &v[1], &v[2], &v[3], &end) != 3 || s[end] != '\0')
			return -EINVAL;
	}
	/* NOLINTEND(cert-err34-c) */
	if (v[1] > 0xff || v[2] > 0x1f || v[3] > 7)
		return -EINVAL;
	for (int i = 0; i < 4; i++)
		ret[i] = v[i];
	return 0;
}

static void format_address(uint32_t domain, uint32_t routing_id, char ret[SIM_ADDRESS_MAX])
{
	snprintf(ret, SIM_ADDRESS_MAX, "%04x:%02x:%02x.%x", domain, (routing_id >> 8) & 0xff,
		 (routing_id >> 3) & 0x1f, routing_id & 7);
}

/* i-th entry of a comma list. */
static bool list_entry(const char *list, uint32_t i, char *ret, size_t size)
{
	while (i > 0 && list) {
		list = strchr(list, ',');
		list = list ? list + 1 : NULL;
		i--;
	}
	if (!list)
		return false;
	snprintf(ret, size, "%.*s", (int)strcspn(list, ","), list);
	return true;
}

static void reset_vf(struct sim_vf *vf)
{
	vf->type = NULL;
	vf->placement = SIM_PLACEMENT_NONE;
	vf->wanted_placement = SIM_PLACEMENT_NONE;
	vf->gi = SIM_GI_NONE;
	vf->params[0] = '\0';
	vf->warm_update = 0;
	vf->open_count = 0;
	vf->wedged = vf->rebound = vf->dead = vf->hidden = false;
	vf->generation++;
	vf->instance = (struct sim_instance){ 0 };
}

static void reset_functions(struct sim_card *card)
{
	for (uint32_t i = 0; i < card->total_vfs; i++)
		reset_vf(&card->vfs[i]);
	card->ghost_count = 0;
	card->gi_count = 0;
}

static int setup_address(struct sim_card *card, const struct sim_config *config, struct error *err)
{
	char text[SIM_ADDRESS_MAX];
	uint32_t at[4];

	if (!config->addresses) {
		card->domain = card->index / ARRAY_SIZE(slot_buses);
		card->bus = slot_buses[card->index % ARRAY_SIZE(slot_buses)];
	} else {
		if (!list_entry(config->addresses, card->index, text, sizeof(text)))
			return error_set(err, EINVAL, "card %u has no address", card->index);
		if (parse_address(text, at) < 0 || at[3] != 0)
			return error_set(err, EINVAL, "'%s' is no address of a function 0", text);
		card->domain = at[0];
		card->bus = at[1];
		card->device = at[2];
	}
	format_address(card->domain, card->bus << 8 | card->device << 3, card->address);
	for (const struct sim_card *other = card->sim->cards; other < card; other++)
		if (strcmp(other->address, card->address) == 0)
			return error_set(err, EINVAL, "two cards at %s", card->address);
	return 0;
}

static int setup_numa_node(struct sim_card *card, const struct sim_config *config,
			   struct error *err)
{
	char text[16];
	uint32_t node;

	card->numa_node = card->index < (config->cards + 1) / 2 ? 0 : 1;
	if (!config->numa || !list_entry(config->numa, card->index, text, sizeof(text)))
		return 0;
	if (strcmp(text, "-1") == 0) {
		card->numa_node = -1;
		return 0;
	}
	if (str_to_u32(text, &node) < 0 || node > INT32_MAX)
		return error_set(err, EINVAL, "'%s' is no NUMA node", text);
	card->numa_node = (int)node;
	return 0;
}

static int setup_card(struct sim *sim, uint32_t index, const struct sim_config *config,
		      const struct sim_model *model, uint32_t *next_group, uint32_t *next_vfio,
		      struct error *err)
{
	struct sim_card *card = &sim->cards[index];
	char uuid[SIM_UUID_MAX];
	uint32_t routing_id;
	int r;

	card->sim = sim;
	card->index = index;
	card->model = model;
	card->present = true;
	card->total_vfs = config->vfs ? config->vfs : model->vfs;
	card->group = (*next_group)++;
	sim_uuid(uuid);
	snprintf(card->uuid, sizeof(card->uuid), "GPU-%s", uuid);
	r = setup_address(card, config, err);
	if (r == 0)
		r = setup_numa_node(card, config, err);
	if (r < 0)
		return r;
	routing_id = (card->bus << 8 | card->device << 3) + model->vf_offset;
	for (uint32_t i = 0; i < card->total_vfs; i++) {
		struct sim_vf *vf = &card->vfs[i];

		vf->card = card;
		vf->index = i;
		vf->group = (*next_group)++;
		vf->vfio = (*next_vfio)++;
		format_address(card->domain, routing_id + i, vf->address);
	}
	reset_functions(card);
	return 0;
}

/* As a host that was set up before: some instances of every kind where that is possible. */
static void setup_gis(struct sim_card *card)
{
	static const char *const seven[] = { "3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb" };
	static const char *const four[] = { "2g.48gb", "1g.24gb", "1g.24gb" };
	const char *const *names = card->model->compute_slices == 7 ? seven : four;
	size_t n = card->model->compute_slices == 7 ? ARRAY_SIZE(seven) : ARRAY_SIZE(four);

	if (sim_card_set_gis(card, names, n) < 0)
		abort(); /* both layouts fit */
}

static void setup_mode(struct sim_card *card, enum sim_mode mode, bool sriov)
{
	if (sriov)
		card->vf_count = card->total_vfs;
	if (mode == SIM_MODE_MIXED && !sriov)
		return; /* needs SR-IOV */
	card->mode = mode;
	if (mode == SIM_MODE_MIG)
		setup_gis(card);
}

int sim_new(const struct sim_config *config, struct sim **ret, struct error *err)
{
	const struct sim_model *model = sim_model_find(config->model, config->compute_types);
	uint32_t next_group = FIRST_GROUP, next_vfio = 0;
	struct sim *sim;
	int r = 0;

	if (!model)
		return error_set(err, EINVAL, "unknown model '%s'", config->model);
	if (config->cards > SIM_CARDS_MAX || config->vfs > SIM_VFS_MAX)
		return error_set(err, ERANGE, "at most %d cards of %d functions", SIM_CARDS_MAX,
				 SIM_VFS_MAX);
	if (config->mode == SIM_MODE_MIG && !model->mig_capable)
		return error_set(err, EINVAL, "model %s has no MIG mode", model->key);
	sim = calloc(1, sizeof(*sim));
	if (!sim)
		return error_set_errno(err, ENOMEM, "driver model");
	if (str_copy(sim->root, sizeof(sim->root), config->root) < 0 ||
	    str_copy(sim->driver, sizeof(sim->driver), config->driver) < 0)
		r = error_set(err, ENAMETOOLONG, "folder or driver version is too long");
	sim->branch = (uint32_t)strtoul(config->driver, NULL, 10);
	if (r == 0 && (sim->branch < 550 || sim->branch > 999))
		r = error_set(err, EINVAL, "driver '%s': branches from 550 on are known",
			      config->driver);
	if (config->boot_id)
		str_copy_cut(sim->boot_id, sizeof(sim->boot_id), config->boot_id);
	else
		sim_uuid(sim->boot_id);
	for (uint32_t i = 0; r == 0 && i < config->cards; i++) {
		r = setup_card(sim, i, config, model, &next_group, &next_vfio, err);
		sim->card_count = i + 1;
		if (r == 0)
			setup_mode(&sim->cards[i], config->mode, config->sriov);
	}
	if (r < 0) {
		sim_free(sim);
		return r;
	}
	sim->faults.value[SIM_FAULT_NVML_LATENCY_MS] = config->nvml_latency_ms;
	for (uint32_t i = 0; i < sim->card_count; i++) {
		sim->cards[i].faults.value[SIM_FAULT_NVML_LATENCY_MS] = config->nvml_latency_ms;
		sim->cards[i].faults.value[SIM_FAULT_SRIOV_LATENCY_MS] = SRIOV_LATENCY_MS;
	}
	*ret = sim;
	return 0;
}

struct sim *sim_free(struct sim *sim)
{
	free(sim);
	return NULL;
}

struct sim_card *sim_find_card(struct sim *sim, const char *address)
{
	uint32_t at[4];

	if (parse_address(address, at) < 0 || at[3] != 0)
		return NULL;
	for (uint32_t i = 0; i < sim->card_count; i++) {
		struct sim_card *card = &sim->cards[i];

		if (card->domain == at[0] && card->bus == at[1] && card->device == at[2])
			return card;
	}
	return NULL;
}

struct sim_vf *sim_find_vf(struct sim *sim, const char *address)
{
	char text[SIM_ADDRESS_MAX];
	uint32_t at[4];

	if (parse_address(address, at) < 0)
		return NULL;
	format_address(at[0], at[1] << 8 | at[2] << 3 | at[3], text);
	for (uint32_t i = 0; i < sim->card_count; i++)
		for (uint32_t j = 0; j < sim->cards[i].total_vfs; j++) {
			struct sim_vf *vf = &sim->cards[i].vfs[j];

			if (strcmp(vf->address, text) == 0)
				return sim_vf_visible(vf) ? vf : NULL;
		}
	return NULL;
}

struct sim_vf *sim_find_instance(struct sim *sim, uint32_t instance_id)
{
	for (uint32_t i = 0; i < sim->card_count; i++)
		for (uint32_t j = 0; j < sim->cards[i].vf_count; j++) {
			struct sim_vf *vf = &sim->cards[i].vfs[j];

			if (vf->instance.active && vf->instance.id == instance_id)
				return vf;
		}
	return NULL;
}

const struct sim_type *sim_find_type(struct sim *sim, uint32_t type_id)
{
	for (uint32_t i = 0; i < sim->card_count; i++) {
		const struct sim_type *type = sim_model_type(sim->cards[i].model, type_id);

		if (type)
			return type;
	}
	return NULL;
}

bool sim_vf_visible(const struct sim_vf *vf)
{
	return vf->card->present && vf->index < vf->card->vf_count && !vf->hidden;
}

bool sim_vf_has_attributes(const struct sim_vf *vf)
{
	return sim_vf_visible(vf) && !vf->rebound;
}

uint32_t sim_card_instances(struct sim_card *card, struct sim_vf *ret[SIM_VFS_MAX])
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < card->vf_count; i++)
		if (card->vfs[i].instance.active)
			ret[n++] = &card->vfs[i];
	return n;
}

const char *sim_card_sriov_blocked(const struct sim_card *card)
{
	static char line[64];
	bool held = card->sriov_busy || card->node_open_count > 0;

	for (uint32_t i = 0; i < card->vf_count; i++)
		held |= card->vfs[i].open_count > 0;
	if (!held)
		return NULL;
	snprintf(line, sizeof(line), "Cannot obtain unbindLock for %s", card->address);
	return line;
}

void sim_card_set_sriov(struct sim_card *card, bool on)
{
	reset_functions(card);
	card->vf_count = on ? card->total_vfs : 0;
	if (card->mode == SIM_MODE_MIXED)
		card->mode = SIM_MODE_EQUAL;
}

void sim_card_remove(struct sim_card *card)
{
	card->present = false;
	card->generation++;
	card->node_open_count = 0;
	card->vf_count = 0;
	reset_functions(card);
}

void sim_card_restore(struct sim_card *card)
{
	if (card->present)
		return;
	card->present = true;
	card->vf_count = card->total_vfs;
	reset_functions(card);
	if (card->mode == SIM_MODE_MIG)
		setup_gis(card);
}

void sim_vf_set_hidden(struct sim_vf *vf, bool hidden)
{
	reset_vf(vf);
	vf->hidden = hidden;
}

int sim_vf_rebind(struct sim_vf *vf, const char *driver)
{
	bool to_vfio = strcmp(driver, "vfio-pci") == 0;

	if (!to_vfio && strcmp(driver, "nvidia") != 0)
		return -EINVAL;
	if (vf->open_count > 0)
		return -EBUSY;
	if (to_vfio == vf->rebound)
		return 0;
	reset_vf(vf);
	vf->rebound = to_vfio;
	vf->dead = !to_vfio;
	return 0;
}

static const struct sim_gi_profile *find_gi_profile(const struct sim_model *m, const char *name)
{
	for (uint32_t i = 0; i < m->gi_profile_count; i++)
		if (strcmp(m->gi_profiles[i].name, name) == 0)
			return &m->gi_profiles[i];
	return NULL;
}

int sim_card_set_gis(struct sim_card *card, const char *const *names, size_t n)
{
	struct sim_gi gis[SIM_GIS_MAX];
	uint32_t compute = 0, memory = 0;

	if (card->mode != SIM_MODE_MIG || n > SIM_GIS_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < card->vf_count; i++)
		if (card->vfs[i].type)
			return -EBUSY;
	for (uint32_t i = 0; i < n; i++) {
		const struct sim_gi_profile *p = find_gi_profile(card->model, names[i]);
		uint32_t same = 1;

		if (!p)
			return -EINVAL;
		for (uint32_t j = 0; j < i; j++)
			same += gis[j].profile == p;
		gis[i] = (struct sim_gi){ .id = i + 1, .profile = p, .start = memory };
		compute += p->compute;
		memory += p->memory;
		if (same > p->max || compute > card->model->compute_slices ||
		    memory > card->model->memory_slices)
			return -EINVAL;
	}
	memcpy(card->gis, gis, n * sizeof(gis[0]));
	card->gi_count = (uint32_t)n;
	return 0;
}

int sim_card_set_mode(struct sim_card *card, enum sim_mode mode)
{
	for (uint32_t i = 0; i < card->vf_count; i++)
		if (card->vfs[i].type)
			return -EBUSY;
	if (mode == SIM_MODE_MIG && !card->model->mig_capable)
		return -ENOTSUP;
	if (mode == SIM_MODE_MIXED && card->vf_count == 0)
		return -ENOTSUP;
	if (mode != card->mode)
		card->gi_count = 0;
	card->mode = mode;
	if (mode == SIM_MODE_MIG && card->gi_count == 0)
		setup_gis(card);
	return 0;
}

void sim_reboot(struct sim *sim)
{
	sim_uuid(sim->boot_id);
	sim->boot++;
	sim->ctl_open_count = 0;
	for (uint32_t i = 0; i < sim->card_count; i++) {
		struct sim_card *card = &sim->cards[i];

		sim_card_set_sriov(card, false);
		card->generation++;
		card->node_open_count = 0;
		card->sriov_busy = false;
		/* Only Ampere boards keep MIG mode in their InfoROM. */
		if (card->model->arch != SIM_ARCH_AMPERE)
			card->mode = SIM_MODE_EQUAL;
	}
}

int sim_vf_start_guest(struct sim_vf *vf, pid_t pid, const char *vm_name, uint64_t init_usec)
{
	struct sim_instance *in = &vf->instance;
	uint64_t now = clock_now_usec();
	int r;

	if (!vf->type)
		return -ENODEV;
	if (in->active)
		return -EBUSY;
	r = sim_vf_place_for_guest(vf);
	if (r < 0)
		return r;
	*in = (struct sim_instance){ .active = true, .pid = pid };
	do {
		uint32_t random;

		if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
			abort();
		in->id = random | 0xc0000000;
	} while (in->id == UINT32_MAX);
	sim_uuid(in->uuid);
	sim_uuid(in->vm_uuid);
	str_copy_cut(in->vm_name, sizeof(in->vm_name), vm_name);
	in->placement_known_usec = now + MIN(init_usec / 4, 200 * USEC_PER_MSEC);
	in->init_end_usec = now + init_usec;
	return 0;
}

void sim_vf_stop_guest(struct sim_vf *vf, bool clean)
{
	if (!vf->instance.active)
		return;
	if (!clean && !vf->instance.driver_loaded && clock_now_usec() < vf->instance.init_end_usec)
		vf->wedged = true;
	vf->instance = (struct sim_instance){ 0 };
	if (!sim_places_at_configure(vf->card->sim))
		vf->placement = SIM_PLACEMENT_NONE;
}

uint32_t sim_instance_placement(const struct sim_vf *vf)
{
	if (!vf->instance.active || clock_now_usec() < vf->instance.placement_known_usec)
		return SIM_PLACEMENT_NONE;
	return vf->placement;
}

const char *sim_instance_driver(const struct sim_vf *vf)
{
	return vf->instance.driver_loaded ? vf->card->sim->driver : "Not Available";
}
