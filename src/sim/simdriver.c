/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver answers: writes of a VF's attributes, its lists, and NVML's view of a card. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "sim/simcard.h"

#define VGPUS_PER_CARD_MAX 32

static uint32_t configured_count(const struct sim_card *card)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < card->vf_count; i++)
		n += card->vfs[i].type != NULL;
	return n;
}

static const struct sim_type *any_configured(const struct sim_card *card)
{
	for (uint32_t i = 0; i < card->vf_count; i++)
		if (card->vfs[i].type)
			return card->vfs[i].type;
	return NULL;
}

static bool overlaps(uint32_t a, uint32_t a_size, uint32_t b, uint32_t b_size)
{
	return a < b + b_size && b < a + a_size;
}

/* Is [id, id + size) clear of every placement on the card, ghosts included? In equal-size mode a
 * placement of another size makes all ids of this size unavailable. */
static bool placement_free(const struct sim_card *card, const struct sim_type *type, uint32_t id)
{
	bool equal = card->mode == SIM_MODE_EQUAL;

	for (uint32_t i = 0; i < card->vf_count; i++) {
		const struct sim_vf *vf = &card->vfs[i];

		if (!vf->type || vf->placement == SIM_PLACEMENT_NONE)
			continue;
		if ((equal && vf->type->size != type->size) ||
		    overlaps(id, type->size, vf->placement, vf->type->size))
			return false;
	}
	for (uint32_t i = 0; i < card->ghost_count; i++)
		if (overlaps(id, type->size, card->ghosts[i].id, card->ghosts[i].size))
			return false;
	return true;
}

bool sim_card_has_equal_placements(const struct sim_card *card)
{
	return card->model->arch != SIM_ARCH_AMPERE && sim_places_at_configure(card->sim);
}

/* The list of ids in force for a type in the card's mode; NULL where there are no placements. */
static const struct sim_placements *geometry(const struct sim_card *card,
					     const struct sim_type *type)
{
	if (type->mig || card->mode == SIM_MODE_MIG)
		return NULL;
	if (card->mode == SIM_MODE_MIXED)
		return &type->mixed;
	return sim_card_has_equal_placements(card) ? &type->equal : NULL;
}

int sim_card_supported_placements(const struct sim_card *card, const struct sim_type *type,
				  bool mixed, struct sim_placements *ret)
{
	if (type->mig || card->mode == SIM_MODE_MIG || card->vf_count == 0)
		return SIM_NVML_NOT_SUPPORTED;
	if (!mixed && !sim_card_has_equal_placements(card))
		return SIM_NVML_NOT_SUPPORTED;
	*ret = mixed ? type->mixed : type->equal;
	return SIM_NVML_SUCCESS;
}

int sim_card_creatable_placements(const struct sim_card *card, const struct sim_type *type,
				  struct sim_placements *ret)
{
	const struct sim_placements *all = card->vf_count ? geometry(card, type) : NULL;

	if (!all)
		return SIM_NVML_NOT_SUPPORTED;
	ret->count = 0;
	for (uint32_t i = 0; i < all->count; i++)
		if (placement_free(card, type, all->id[i]))
			ret->id[ret->count++] = all->id[i];
	return SIM_NVML_SUCCESS;
}

/* The GPU instance that a MIG-backed type would go to: the lowest one of its kind with room, or
 * only `wanted`. Within one instance all vGPUs have the same size. */
static const struct sim_gi *find_gi(const struct sim_card *card, const struct sim_type *type,
				    uint32_t wanted)
{
	for (uint32_t i = 0; i < card->gi_count; i++) {
		const struct sim_gi *gi = &card->gis[i];
		uint32_t used = 0;
		bool same = true;

		if (gi->profile->id != type->gi_profile ||
		    (wanted != SIM_GI_NONE && gi->id != wanted))
			continue;
		for (uint32_t j = 0; j < card->vf_count; j++) {
			const struct sim_vf *vf = &card->vfs[j];

			if (!vf->type || vf->gi != gi->id)
				continue;
			used++;
			same &= vf->type->fb_mib == type->fb_mib;
		}
		if (same && used < type->max_per_gi)
			return gi;
	}
	return NULL;
}

/* Inside a GPU instance placements count from 0; only boards that time-slice one have them. */
static uint32_t first_fit_in_gi(const struct sim_card *card, const struct sim_type *type,
				const struct sim_gi *gi)
{
	if (!card->model->mig_timeslicing)
		return SIM_PLACEMENT_NONE;
	for (uint32_t j = 0; j < type->max_per_gi; j++) {
		uint32_t id = gi->profile->gib * j / type->max_per_gi;
		bool free_id = true;

		for (uint32_t k = 0; k < card->vf_count; k++)
			free_id &= !(card->vfs[k].type && card->vfs[k].gi == gi->id &&
				     card->vfs[k].placement == id);
		if (free_id)
			return id;
	}
	return SIM_PLACEMENT_NONE;
}

static bool type_creatable(const struct sim_card *card, const struct sim_type *type)
{
	const struct sim_type *present = any_configured(card);
	struct sim_placements ids;

	if (type->mig != (card->mode == SIM_MODE_MIG))
		return false;
	if (type->mig)
		return find_gi(card, type, SIM_GI_NONE) != NULL;
	if (configured_count(card) >= VGPUS_PER_CARD_MAX)
		return false;
	if (card->mode == SIM_MODE_EQUAL && present &&
	    (present->fb_mib != type->fb_mib || configured_count(card) >= type->max_instances))
		return false;
	return sim_card_creatable_placements(card, type, &ids) != SIM_NVML_SUCCESS || ids.count > 0;
}

uint32_t sim_card_supported_types(const struct sim_card *card,
				  const struct sim_type *ret[SIM_TYPES_MAX])
{
	for (uint32_t i = 0; i < card->model->type_count; i++)
		ret[i] = &card->model->types[i];
	return card->model->type_count;
}

uint32_t sim_card_creatable_types(const struct sim_card *card,
				  const struct sim_type *ret[SIM_TYPES_MAX])
{
	uint32_t n = 0;

	for (uint32_t i = 0; card->vf_count > 0 && i < card->model->type_count; i++)
		if (type_creatable(card, &card->model->types[i]))
			ret[n++] = &card->model->types[i];
	return n;
}

/* The list in sysfs asks "fewer vGPUs on the card than the type's equal-size limit?" whatever the
 * mode: the creation path and NVML do not. So in mixed-size mode it hides types that still fit. */
uint32_t sim_vf_listed_types(const struct sim_vf *vf, const struct sim_type *ret[SIM_TYPES_MAX])
{
	const struct sim_card *card = vf->card;
	uint32_t count = configured_count(card), n, kept = 0;

	if (vf->type)
		return 0;
	n = sim_card_creatable_types(card, ret);
	if (card->faults.value[SIM_FAULT_CREATABLE_GUARD_OFF])
		return n;
	for (uint32_t i = 0; i < n; i++)
		if (count < ret[i]->max_instances)
			ret[kept++] = ret[i];
	return kept;
}

static void add_ghost(struct sim_card *card, const struct sim_vf *vf)
{
	if (vf->placement == SIM_PLACEMENT_NONE || card->ghost_count >= SIM_VFS_MAX)
		return;
	card->ghosts[card->ghost_count++] = (struct sim_ghost){ .id = vf->placement,
								.size = vf->type->size };
}

static void release(struct sim_vf *vf)
{
	if (vf->faults.value[SIM_FAULT_NVML_GHOST])
		add_ghost(vf->card, vf);
	vf->type = NULL;
	vf->placement = SIM_PLACEMENT_NONE;
	vf->wanted_placement = SIM_PLACEMENT_NONE;
	vf->gi = SIM_GI_NONE;
	vf->params[0] = '\0';
	vf->warm_update = 0;
}

int sim_vf_write_type(struct sim_vf *vf, uint32_t type_id)
{
	struct sim_card *card = vf->card;
	const struct sim_type *type;
	struct sim_placements ids;

	if (vf->dead)
		return -EINVAL;
	if (type_id == 0) {
		if (!vf->type || vf->open_count > 0)
			return -EPERM;
		release(vf);
		return 0;
	}
	if (vf->type)
		return -EPERM;
	type = sim_model_type(card->model, type_id);
	if (!type || !type_creatable(card, type))
		return -EIO;
	if (type->mig) {
		const struct sim_gi *gi = find_gi(card, type, SIM_GI_NONE);

		vf->placement = first_fit_in_gi(card, type, gi);
		vf->gi = gi->id;
	} else if (sim_places_at_configure(card->sim) &&
		   sim_card_creatable_placements(card, type, &ids) == SIM_NVML_SUCCESS) {
		vf->placement = ids.id[0];
	}
	vf->type = type;
	vf->configured_seq = ++card->next_seq;
	return 0;
}

/* The driver reserves the new placement before it gives the old one up: a move onto a range that
 * overlaps the vGPU's own is refused. */
int sim_vf_write_placement(struct sim_vf *vf, uint32_t placement)
{
	struct sim_placements ids;

	if (vf->dead)
		return -EINVAL;
	if (!vf->type)
		return -ENXIO;
	if (vf->open_count > 0)
		return -EPERM;
	if (sim_card_creatable_placements(vf->card, vf->type, &ids) != SIM_NVML_SUCCESS)
		return -EIO;
	if (placement == vf->placement)
		return 0;
	for (uint32_t i = 0; i < ids.count; i++)
		if (ids.id[i] == placement) {
			vf->placement = placement;
			return 0;
		}
	return -EIO;
}

int sim_vf_write_gi(struct sim_vf *vf, uint32_t gi_id)
{
	const struct sim_gi *gi;

	if (vf->dead)
		return -EINVAL;
	if (!vf->type)
		return -ENXIO;
	if (vf->open_count > 0)
		return -EPERM;
	if (!vf->type->mig)
		return -EIO;
	if (gi_id == vf->gi)
		return 0;
	gi = find_gi(vf->card, vf->type, gi_id);
	if (!gi)
		return -EIO;
	vf->placement = first_fit_in_gi(vf->card, vf->type, gi);
	vf->gi = gi->id;
	return 0;
}

/* "a=1,vgpu-placement-id=6": R550 takes the placement from here when the VM boots. */
static uint32_t wanted_placement(const char *params)
{
	static const char key[] = "vgpu-placement-id=";
	const char *at = strstr(params, key);

	return at ? (uint32_t)strtoul(at + strlen(key), NULL, 10) : SIM_PLACEMENT_NONE;
}

int sim_vf_write_params(struct sim_vf *vf, const char *text, size_t n)
{
	while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
		n--;
	while (n > 0 && *text == ' ') {
		text++;
		n--;
	}
	if (vf->dead)
		return -EINVAL;
	if (!vf->type)
		return -ENXIO;
	if (vf->open_count > 0)
		return -EPERM;
	if (n > SIM_PARAMS_MAX)
		return -E2BIG;
	memcpy(vf->params, text, n);
	vf->params[n] = '\0';
	vf->wanted_placement = wanted_placement(vf->params);
	return 0;
}

int sim_vf_place_for_guest(struct sim_vf *vf)
{
	struct sim_placements ids;

	if (sim_places_at_configure(vf->card->sim) || vf->card->mode != SIM_MODE_MIXED)
		return 0;
	if (sim_card_creatable_placements(vf->card, vf->type, &ids) != SIM_NVML_SUCCESS)
		return -EINVAL;
	for (uint32_t i = 0; i < ids.count; i++)
		if (vf->wanted_placement == SIM_PLACEMENT_NONE ||
		    ids.id[i] == vf->wanted_placement) {
			vf->placement = ids.id[i];
			return 0;
		}
	return -EINVAL;
}

bool sim_card_is_sriov(const struct sim_card *card)
{
	return card->present && card->vf_count > 0;
}

int sim_card_get_mixed(const struct sim_card *card, bool *ret)
{
	if (card->mode == SIM_MODE_MIG || card->vf_count == 0)
		return SIM_NVML_NOT_SUPPORTED;
	*ret = card->mode == SIM_MODE_MIXED;
	return SIM_NVML_SUCCESS;
}

int sim_card_set_mixed(struct sim_card *card, bool mixed)
{
	if (card->mode == SIM_MODE_MIG || card->vf_count == 0)
		return SIM_NVML_NOT_SUPPORTED;
	for (uint32_t i = 0; i < card->vf_count; i++) {
		const struct sim_vf *vf = &card->vfs[i];

		if (sim_places_at_configure(card->sim) ? vf->type != NULL : vf->instance.active)
			return SIM_NVML_IN_USE;
	}
	card->mode = mixed ? SIM_MODE_MIXED : SIM_MODE_EQUAL;
	return SIM_NVML_SUCCESS;
}

uint64_t sim_card_used_mib(const struct sim_card *card)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < card->vf_count; i++)
		sum += card->vfs[i].type ? card->vfs[i].type->fb_mib : 0;
	return sum;
}

uint64_t sim_nvml_call_delay_usec(const struct sim_card *card)
{
	uint64_t total_usec = (uint64_t)card->faults.value[SIM_FAULT_NVML_LATENCY_MS] *
			      USEC_PER_MSEC;
	uint64_t calls = 0;

	for (uint32_t i = 0; i < card->sim->card_count; i++) {
		const struct sim_card *other = &card->sim->cards[i];

		for (uint32_t j = 0; other->present && j < other->model->type_count; j++)
			calls += !other->model->types[j].mig;
	}
	return calls ? total_usec / calls : 0;
}
