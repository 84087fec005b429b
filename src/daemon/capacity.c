/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/capacity.h"

#include <sys/random.h>

unsigned capacity_free_vfs(const struct node *n, const struct card *c)
{
	unsigned count = 0;

	for (unsigned i = 0; i < c->n_vfs; i++)
		count += node_vf_is_allocatable(n, c, &c->vfs[i]);
	return count;
}

/* A VF that has, or is about to have, a vGPU. */
static bool is_taken(const struct vf *v)
{
	return v->type_id != 0 || v->hold == VF_HOLD_ALLOCATION || v->hold == VF_HOLD_UNDO;
}

static uint32_t vf_type(const struct vf *v)
{
	return v->type_id ? v->type_id : v->planned_type;
}

static const struct placement_type *last_placement_type(const struct card *c, uint32_t type_id)
{
	for (unsigned i = 0; c->nvml && i < c->nvml->n_types; i++)
		if (c->nvml->types[i].profile.type_id == type_id)
			return &c->nvml->types[i].placement;
	return NULL;
}

const struct placement_type *capacity_placement_type(const struct card *c, uint32_t type_id)
{
	return c->fallback == NVML_REASON_NONE ? last_placement_type(c, type_id) : NULL;
}

static bool is_unpinned(const struct vf *v)
{
	return v->type_id != 0 && v->span.size == 0;
}

static bool is_of_pinned_vf(const struct card *c, const struct nvml_instance *in)
{
	for (unsigned i = 0; i < c->n_vfs; i++)
		if (c->vfs[i].type_id == in->type_id && c->vfs[i].span.size > 0 &&
		    c->vfs[i].span.id == in->placement_id)
			return true;
	return false;
}

/* NVML names no VF, but of the unpinned ones of a type so many run, and their placements are in its
 * answer. */
static unsigned unpinned_running(const struct card *c, uint32_t type_id)
{
	unsigned count = 0;

	for (unsigned i = 0; c->nvml->instances_known && i < c->nvml->n_instances; i++)
		count += c->nvml->instances[i].type_id == type_id &&
			 !is_of_pinned_vf(c, &c->nvml->instances[i]);
	return count;
}

/* Before driver 570 a configured VF takes no placement until its VM boots, and nothing tells where
 * it will be unless it was pinned: it is counted where the driver's first fit would put it. */
static void overlay_first_fits(const struct card *c, struct placement_set *set)
{
	for (unsigned i = 0; i < c->n_vfs; i++) {
		const struct vf *v = &c->vfs[i];
		const struct placement_type *t = capacity_placement_type(c, v->type_id);
		struct placement_span span;
		unsigned before = 0;

		if (!is_unpinned(v) || !t)
			continue;
		for (unsigned k = 0; k < i; k++)
			before += is_unpinned(&c->vfs[k]) && c->vfs[k].type_id == v->type_id;
		if (before < unpinned_running(c, v->type_id))
			continue;
		if (placement_type_first_fit(t, placement_type_free(t, set), &span) == 0)
			placement_set_add(set, span);
	}
}

void capacity_overlay(const struct node *n, const struct card *c, struct placement_set *ret)
{
	*ret = (struct placement_set){ 0 };
	for (unsigned i = 0; i < c->n_vfs; i++) {
		const struct vf *v = &c->vfs[i];

		if (is_taken(v) && v->span.size > 0 && !v->span_counted)
			placement_set_add(ret, v->span);
	}
	if (node_is_before_570(n))
		overlay_first_fits(c, ret);
}

int capacity_free_placements(const struct card *c, uint32_t type_id,
			     const struct placement_set *overlay)
{
	const struct placement_type *t = capacity_placement_type(c, type_id);

	return t ? (int)placement_count(placement_type_free(t, overlay)) : -1;
}

bool capacity_taken(const struct card *c, struct placement_set *ret)
{
	if (!c->nvml || c->fallback != NVML_REASON_NONE || c->region == 0)
		return false;
	*ret = (struct placement_set){ 0 };
	for (unsigned i = 0; i < c->n_vfs; i++) {
		const struct vf *v = &c->vfs[i];

		if (!is_taken(v))
			continue;
		if (v->span.size == 0)
			return false;
		placement_set_add(ret, v->span);
	}
	return true;
}

bool capacity_is_doubtful(const struct node *n, const struct card *c, uint32_t type_id)
{
	const struct placement_type *t = capacity_placement_type(c, type_id);
	struct placement_set known = { 0 };

	if (!t || !c->overlapped || node_is_before_570(n) || capacity_free_vfs(n, c) == 0)
		return false;
	for (unsigned i = 0; i < c->n_vfs; i++)
		if (c->vfs[i].span.size > 0)
			placement_set_add(&known, c->vfs[i].span);
	return placement_type_clear_of(t, &known) != 0;
}

static bool vf_lists(const struct vf *v, unsigned index)
{
	return v->list_known && (v->list[index / 64] >> (index % 64) & 1);
}

static unsigned units_of(const struct profile *p)
{
	return (p->framebuffer_mb + 1023) / 1024;
}

static unsigned largest_type(const struct card *c)
{
	unsigned largest = c->region;

	for (unsigned i = 0; i < c->types.n; i++)
		largest = MAX(largest, units_of(&c->types.items[i]));
	return largest;
}

static unsigned largest_listed(const struct card *c)
{
	unsigned largest = 0;

	for (unsigned i = 0; i < c->types.n; i++)
		for (unsigned k = 0; k < c->n_vfs; k++)
			if (vf_lists(&c->vfs[k], i))
				largest = MAX(largest, units_of(&c->types.items[i]));
	return largest;
}

/* The largest type is the whole card. Lists of a card that is in use hide it, but a card of the
 * same kind may know it; and what is listed fits beside what is there. */
static unsigned estimate_region(const struct node *n, const struct card *c, unsigned used)
{
	unsigned region = largest_type(c);

	if (c->region > 0)
		return c->region;
	for (unsigned i = 0; i < n->n_cards; i++)
		if (n->cards[i]->device_id == c->device_id)
			region = MAX(region, largest_type(n->cards[i]));
	return MAX(region, used + largest_listed(c));
}

/* From the VFs' types alone: how many of this size fit into what nothing has, or are left of as
 * many as fit on an empty card. */
static unsigned bound_by_framebuffer(const struct node *n, const struct card *c, unsigned size)
{
	unsigned region, used = 0, same = 0;

	for (unsigned i = 0; i < c->n_vfs; i++) {
		const struct vf *v = &c->vfs[i];
		const struct profile *p;
		unsigned units = v->span.size;

		if (!is_taken(v))
			continue;
		p = profile_list_find_id(&c->types, vf_type(v));
		if (p)
			units = units_of(p);
		used += units;
		same += units == size;
	}
	if (size == 0)
		return 0;
	region = estimate_region(n, c, used);
	return MIN(used < region ? (region - used) / size : 0,
		   region / size > same ? region / size - same : 0);
}

/* vGPUs that are in GPU instances of the type's profile: whichever type they are, the room is gone.
 */
static unsigned in_same_instances(const struct card *c, unsigned index)
{
	unsigned count = 0;

	for (unsigned i = 0; i < c->n_vfs; i++)
		for (unsigned k = 0; is_taken(&c->vfs[i]) && k < c->types.n; k++)
			count += c->types.items[k].type_id == vf_type(&c->vfs[i]) &&
				 c->gi_profile[k] == c->gi_profile[index];
	return count;
}

static unsigned available_in_fallback(const struct node *n, const struct card *c, unsigned index)
{
	unsigned listing = 0, taken = 0, room, used;

	for (unsigned i = 0; i < c->n_vfs; i++) {
		const struct vf *v = &c->vfs[i];

		listing += node_vf_is_allocatable(n, c, v) && vf_lists(v, index);
		taken += is_taken(v);
	}
	if (c->mode == NVML_MODE_MIG) {
		room = c->gi_room[index];
		used = in_same_instances(c, index);
	} else if (c->mode == NVML_MODE_EQUAL && c->max_instances[index] > 0) {
		room = c->max_instances[index];
		used = taken;
	} else {
		room = bound_by_framebuffer(n, c, units_of(&c->types.items[index]));
		used = 0;
	}
	return MIN(listing, room > used ? room - used : 0);
}

unsigned capacity_available(const struct node *n, const struct card *c, unsigned index,
			    const struct placement_set *overlay)
{
	const struct placement_type *t;

	if (!card_is_usable(c) || c->cordoned || c->stuck)
		return 0;
	/* Until a fallback's lists are there, what NVML said last is the best that is known; claims
	 * wait for them. */
	if (!c->nvml || (c->fallback != NVML_REASON_NONE && c->lists_tried))
		return available_in_fallback(n, c, index);
	t = last_placement_type(c, c->types.items[index].type_id);
	return t ? MIN(placement_count(placement_type_free(t, overlay)), capacity_free_vfs(n, c))
		 : 0;
}

static unsigned random_below(unsigned limit)
{
	unsigned value, ceiling = UINT32_MAX - UINT32_MAX % limit;

	do {
		if (getrandom(&value, sizeof value, 0) != sizeof value)
			return 0;
	} while (value >= ceiling);
	return value % limit;
}

struct vf *capacity_pick_vf(const struct node *n, struct card *c, unsigned index,
			    bool (*skip)(const struct vf *v, const void *userdata),
			    const void *userdata)
{
	bool by_list = c->fallback != NVML_REASON_NONE || !c->nvml;
	struct vf *fit[INVENTORY_VFS_MAX];
	unsigned count = 0;

	for (unsigned i = 0; i < c->n_vfs; i++) {
		struct vf *v = &c->vfs[i];

		if (node_vf_is_allocatable(n, c, v) && (!by_list || vf_lists(v, index)) &&
		    !(skip && skip(v, userdata)))
			fit[count++] = v;
	}
	return count ? fit[random_below(count)] : NULL;
}

uint64_t capacity_used_mb(const struct card *c)
{
	uint64_t used = 0;

	for (unsigned i = 0; i < c->n_vfs; i++) {
		const struct vf *v = &c->vfs[i];
		const struct profile *p = profile_list_find_id(&c->types, vf_type(v));

		if (!is_taken(v))
			continue;
		used += p ? p->framebuffer_mb : (uint64_t)v->span.size * 1024;
	}
	return used;
}

static void add_slots(const struct node *n, const struct card *c, struct capacity_slots *s)
{
	if (!c->present)
		return;
	for (unsigned i = 0; i < c->n_vfs; i++) {
		const struct vf *v = &c->vfs[i];
		/* Of a stuck card nothing can be read: its VFs count as last known. */
		bool counts = v->usable || (c->stuck && v->listed);

		if (!counts)
			continue;
		s->total++;
		s->used += is_taken(v) || v->hold != VF_HOLD_NONE;
		s->quarantined += v->quarantined;
		s->allocatable += node_vf_is_allocatable(n, c, v);
	}
}

struct capacity_slots capacity_count_slots(const struct node *n, const struct card *c)
{
	struct capacity_slots s = { 0 };

	if (c) {
		add_slots(n, c, &s);
		return s;
	}
	for (unsigned i = 0; i < n->n_cards; i++)
		add_slots(n, n->cards[i], &s);
	return s;
}
