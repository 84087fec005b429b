/* SPDX-License-Identifier: Apache-2.0 */
#include "http/api-internal.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "daemon/capacity.h"
#include "daemon/cards.h"
#include "daemon/recover.h"
#include "daemon/sentinel.h"
#include "daemon/snapshot.h"

json_t *api_json_address(struct pci_addr a)
{
	char text[PCI_ADDR_MAX];

	return json_string(pci_addr_format(a, text));
}

/* Text from the driver or from sysfs may be anything: what is no UTF-8 would make no JSON. */
json_t *api_json_text(const char *s)
{
	char copy[1024];

	if (!*s)
		return json_null();
	str_copy_cut(copy, sizeof copy, s);
	str_sanitize(copy, strlen(copy));
	return json_string(copy);
}

json_t *api_json_placement(int id, int size)
{
	if (id < 0 || size <= 0)
		return json_null();
	return json_pack("{s:i,s:i}", "id", id, "size", size);
}

static json_t *device_path(const struct node *n, const char *format_tail)
{
	char path[512];

	snprintf(path, sizeof path, "%s/%s", n->config->dev_root, format_tail);
	return json_string(path);
}

static void set_vfio(const struct node *n, json_t *o, const struct vf *v)
{
	char group[40], device[48];

	if (!v) {
		json_object_set_new(o, "vfio_group", json_null());
		json_object_set_new(o, "vfio_device", json_null());
		json_object_set_new(o, "iommufd", json_false());
		return;
	}
	snprintf(group, sizeof group, "vfio/%d", v->vfio_group);
	snprintf(device, sizeof device, "vfio/devices/%s", v->vfio_device);
	json_object_set_new(o, "vfio_group",
			    v->vfio_group >= 0 ? device_path(n, group) : json_null());
	json_object_set_new(o, "vfio_device", v->vfio_node ? device_path(n, device) : json_null());
	json_object_set_new(o, "iommufd", json_boolean(v->vfio_node && n->inventory->iommufd));
}

json_t *api_json_claim(const struct node *n, const struct claim *c, enum claim_problem problem)
{
	const struct vf *v = node_find_vf(n, c->vf, NULL);
	const char *problem_name = claim_problem_name(problem);
	char address[PCI_ADDR_MAX], path[512];
	json_t *o;

	snprintf(path, sizeof path, "%s/bus/pci/devices/%s", n->config->sysfs_root,
		 pci_addr_format(c->vf, address));
	o = json_pack("{s:s,s:s,s:s?,s:o,s:I,s:o,s:o,s:o,s:s}", "name", c->name, "state",
		      claim_state_name(c->state), "problem", problem_name, "profile",
		      api_json_text(c->profile), "type_id", (json_int_t)c->type_id, "vf",
		      api_json_address(c->vf), "gpu", api_json_address(c->card), "placement",
		      api_json_placement(c->placement_id, c->placement_size), "sysfs_path", path);
	if (!o)
		return NULL;
	set_vfio(n, o, v);
	json_object_set_new(o, "assigned_at", api_json_text(c->assigned_at));
	json_object_set_new(o, "owner", api_json_text(c->owner));
	json_object_set_new(o, "console_log", api_json_text(c->console_log));
	json_object_set_new(o, "console_problem", api_json_text(sentinel_trouble(n, c->name)));
	json_object_set_new(o, "channel", api_json_text(c->channel));
	json_object_set_new(o, "pid", c->pid ? json_integer(c->pid) : json_null());
	json_object_set_new(o, "uid",
			    c->uid == CLAIM_UID_NONE ? json_null() : json_integer(c->uid));
	json_object_set_new(o, "peer", api_json_text(c->peer));
	json_object_set_new(o, "boot_id", api_json_text(c->boot_id));
	return o;
}

static const char *vf_state(const struct node *n, const struct card *c, const struct vf *v)
{
	if (!v->usable && !(c->stuck && v->listed))
		return "unusable";
	switch (v->hold) {
	case VF_HOLD_ALLOCATION:
		return "claiming";
	case VF_HOLD_CLAIM:
		return claim_state_name(v->claim->claim.state);
	case VF_HOLD_UNDO:
		return "undoing";
	case VF_HOLD_RESET:
		return "resetting";
	case VF_HOLD_NONE:
		break;
	}
	if (!v->known)
		return "unknown";
	if (v->type_id != 0)
		return "unclaimed";
	if (v->excluded)
		return "excluded";
	return node_vf_is_blocked(n, v) ? "blocked" : "free";
}

static json_t *vf_reason(const struct node *n, const struct vf *v)
{
	char text[128] = "";

	if (!v->usable)
		return api_json_text(v->reason);
	if (node_vf_is_blocked(n, v))
		snprintf(text, sizeof text,
			 "IOMMU group %d has several devices and goes to one VM only",
			 v->vfio_group);
	return api_json_text(text);
}

json_t *api_json_failures(const struct health_record *r)
{
	json_t *list = json_array();

	for (unsigned i = 0; r && list && i < r->n_failures; i++)
		json_array_append_new(
			list, json_pack("{s:o,s:o,s:o}", "claim",
					api_json_text(r->failures[i].instance_id), "assigned_at",
					api_json_text(r->failures[i].assigned_at), "reported_at",
					api_json_text(r->failures[i].reported_at)));
	return list;
}

/* What stands against a VF: the failures of distinct assignments, and since when it is quarantined.
 */
static void set_health(const struct node *n, json_t *o, struct pci_addr vf)
{
	const struct health_record *r = health_find(health_store_get(n->health), vf);

	json_object_set_new(o, "failures", api_json_failures(r));
	json_object_set_new(o, "quarantined_at", api_json_text(r ? r->quarantined_at : ""));
}

json_t *api_json_vf(const struct node *n, const struct card *c, const struct vf *v)
{
	const struct profile *p = profile_list_find_id(&c->types, v->type_id);
	json_t *o;

	o = json_pack("{s:o,s:o,s:i,s:s,s:b,s:o,s:o,s:o,s:o,s:o,s:s?,s:b,s:b,s:b}", "address",
		      api_json_address(v->address), "gpu", api_json_address(c->address), "number",
		      (int)v->number, "state", vf_state(n, c, v), "usable", v->usable, "reason",
		      vf_reason(n, v), "driver", api_json_text(v->driver), "type_id",
		      json_integer(v->type_id), "profile", api_json_text(p ? p->name : ""),
		      "placement",
		      v->type_id ? api_json_placement(v->span.size ? v->span.id : -1, v->span.size)
				 : json_null(),
		      "claim", v->claim ? v->claim->claim.name : NULL, "quarantined",
		      v->quarantined, "excluded", v->excluded, "unclaimed_open", v->unclaimed_open);
	if (o)
		set_health(n, o, v->address);
	if (o)
		set_vfio(n, o, v);
	return o;
}

static json_t *json_slots(struct capacity_slots s)
{
	return json_pack("{s:i,s:i,s:i,s:i}", "total", (int)s.total, "used", (int)s.used,
			 "allocatable", (int)s.allocatable, "quarantined", (int)s.quarantined);
}

static json_t *json_placed(const struct card *c)
{
	json_t *list = json_array();

	for (unsigned i = 0; list && i < c->n_vfs; i++) {
		const struct vf *v = &c->vfs[i];
		const struct profile *p = profile_list_find_id(&c->types, v->type_id);
		uint16_t size = v->span.size ? v->span.size : cards_type_size(c, v->type_id);

		if (v->type_id == 0)
			continue;
		json_array_append_new(
			list,
			json_pack("{s:o,s:i,s:o,s:o,s:s?}", "id",
				  v->span.size ? json_integer(v->span.id) : json_null(), "size",
				  (int)size, "profile", api_json_text(p ? p->name : ""), "vf",
				  api_json_address(v->address), "claim",
				  v->claim ? v->claim->claim.name : NULL));
	}
	return list;
}

/* The placed vGPUs that stand where this type could: with no free placement, what it waits for. */
static json_t *json_blocked_by(const struct card *c, uint32_t type_id)
{
	const struct placement_type *t = capacity_placement_type(c, type_id);
	json_t *list = json_array();

	for (unsigned i = 0; t && i < c->n_vfs; i++) {
		const struct vf *v = &c->vfs[i];
		bool blocks = false;

		if (v->span.size == 0)
			continue;
		for (unsigned k = 0; k < t->n_ids; k++)
			blocks |= t->ids[k] < v->span.id + v->span.size &&
				  v->span.id < t->ids[k] + t->size;
		if (blocks)
			json_array_append_new(list,
					      json_pack("{s:i,s:i,s:s?}", "id", (int)v->span.id,
							"size", (int)v->span.size, "claim",
							v->claim ? v->claim->claim.name : NULL));
	}
	return list;
}

static json_t *json_card_profiles(const struct node *n, const struct card *c)
{
	struct placement_set overlay;
	json_t *list = json_array();

	capacity_overlay(n, c, &overlay);
	for (unsigned i = 0; list && i < c->types.n; i++) {
		const struct profile *p = &c->types.items[i];
		int free_placements = capacity_free_placements(c, p->type_id, &overlay);

		json_array_append_new(
			list,
			json_pack("{s:o,s:I,s:I,s:i,s:o,s:i,s:o}", "name", api_json_text(p->name),
				  "type_id", (json_int_t)p->type_id, "framebuffer_mb",
				  (json_int_t)p->framebuffer_mb, "size",
				  (int)cards_type_size(c, p->type_id), "free_placements",
				  free_placements < 0 ? json_null() : json_integer(free_placements),
				  "available", (int)capacity_available(n, c, i, &overlay),
				  "blocked_by",
				  free_placements == 0 ? json_blocked_by(c, p->type_id)
						       : json_array()));
	}
	return list;
}

/* What each of the card's types has room for in a hole, as far as NVML goes. */
static json_t *json_fits(const struct card *c, const struct placement_set *overlay,
			 struct placement_span hole)
{
	json_t *list = json_array();

	for (unsigned i = 0; list && i < c->types.n; i++) {
		const struct profile *p = &c->types.items[i];
		const struct placement_type *t = capacity_placement_type(c, p->type_id);
		unsigned count = t ? placement_count(placement_type_free(t, overlay) &
						     placement_type_within(t, hole))
				   : 0;

		if (count > 0)
			json_array_append_new(list, json_pack("{s:o,s:i}", "profile",
							      api_json_text(p->name), "placements",
							      (int)count));
	}
	return list;
}

static json_t *json_holes(const struct node *n, const struct card *c)
{
	struct placement_span holes[PLACEMENT_UNITS_MAX / 2];
	struct placement_set taken, overlay;
	json_t *list;
	unsigned count;

	if (!capacity_taken(c, &taken))
		return json_null();
	capacity_overlay(n, c, &overlay);
	count = placement_find_holes(&taken, c->region, holes, ARRAY_SIZE(holes));
	list = json_array();
	for (unsigned i = 0; list && i < count; i++)
		json_array_append_new(list, json_pack("{s:i,s:i,s:o}", "id", (int)holes[i].id,
						      "size", (int)holes[i].size, "fits",
						      json_fits(c, &overlay, holes[i])));
	return list;
}

json_t *api_json_card(const struct node *n, const struct card *c)
{
	const char *fallback = nvml_reason_name(c->fallback);
	json_t *vfs = json_array(), *o;

	for (unsigned i = 0; vfs && i < c->n_vfs; i++)
		json_array_append_new(vfs, api_json_vf(n, c, &c->vfs[i]));
	o = json_pack("{s:o,s:o,s:o,s:s,s:o,s:s,s:s?,s:o,s:b,s:o,s:b,s:b,s:o,s:b,s:o,s:o,s:o,s:o}",
		      "address", api_json_address(c->address), "name", api_json_text(c->name),
		      "numa_node", c->numa_node < 0 ? json_null() : json_integer(c->numa_node),
		      "mode", nvml_mode_name(c->mode), "driver", api_json_text(c->driver), "source",
		      c->nvml && c->fallback == NVML_REASON_NONE ? "nvml" : "sysfs", "fallback",
		      fallback, "fallback_detail", api_json_text(c->fallback_text), "stuck",
		      c->stuck, "stuck_reason",
		      c->stuck ? api_json_text(card_client_reason(c->client)) : json_null(),
		      "cordoned", c->cordoned, "excluded", c->excluded, "region",
		      c->region ? json_integer(c->region) : json_null(), "drift", c->drift, "slots",
		      json_slots(capacity_count_slots(n, c)), "placed", json_placed(c), "profiles",
		      json_card_profiles(n, c), "vfs", vfs);
	if (o)
		json_object_set_new(o, "holes", json_holes(n, c));
	if (o)
		json_object_set_new(o, "recovery", recover_json(c));
	if (o)
		json_object_set_new(o, "seen_mixed", json_boolean(c->seen_mixed));
	if (o)
		json_object_set_new(o, "driver_version",
				    api_json_text(c->has_vfs ? n->driver_version : ""));
	return o;
}

/* --- /resources ----------------------------------------------------------------------------- */

enum host_mode { HOST_NONE, HOST_PASSTHROUGH, HOST_VGPU };

/* A card with SR-IOV under the host's vGPU driver counts although its VFs may appear only later. */
static enum host_mode host_mode(const struct node *n)
{
	enum host_mode mode = HOST_NONE;

	for (unsigned i = 0; i < n->n_cards; i++) {
		const struct card *c = n->cards[i];

		if (!c->present)
			continue;
		if (c->n_vfs > 0 || c->has_vfs ||
		    (c->total_vfs > 0 && strcmp(c->driver, "nvidia") == 0))
			return HOST_VGPU;
		mode = HOST_PASSTHROUGH;
	}
	return mode;
}

static bool vfs_were_read(const struct node *n)
{
	for (unsigned i = 0; i < n->n_cards; i++)
		if (n->cards[i]->present && n->cards[i]->has_vfs && !n->cards[i]->read_once)
			return false;
	return true;
}

bool api_resources_known(const struct node *n)
{
	return n->inventory_known && (n->snapshot_loaded || host_mode(n) != HOST_VGPU) &&
	       !snapshot_waits_for_lists(n) && vfs_were_read(n) &&
	       (n->stage != NODE_STARTING ||
		claim_store_get_state(n->store) == STORE_STATE_UNREADABLE);
}

struct profile_sum {
	const struct profile *profile;
	unsigned available, free_placements;
	bool placements_known; /* on every card that has it */
};

static void add_placements(struct profile_sum *sum, const struct card *c, uint32_t type_id,
			   const struct placement_set *overlay)
{
	int free_placements = capacity_free_placements(c, type_id, overlay);

	if (free_placements < 0)
		sum->placements_known = false;
	else
		sum->free_placements += (unsigned)free_placements;
}

static json_t *json_profiles(const struct node *n)
{
	struct profile_sum sums[PROFILE_TYPES_MAX];
	json_t *list = json_array();
	unsigned count = 0;

	for (unsigned i = 0; i < n->n_cards; i++) {
		const struct card *c = n->cards[i];
		struct placement_set overlay;

		if (!c->present)
			continue;
		capacity_overlay(n, c, &overlay);
		for (unsigned k = 0; k < c->types.n; k++) {
			const struct profile *p = &c->types.items[k];
			unsigned at = 0;

			while (at < count && strcmp(sums[at].profile->name, p->name) != 0)
				at++;
			if (at == PROFILE_TYPES_MAX)
				continue;
			if (at == count)
				sums[count++] = (struct profile_sum){ .profile = p,
								      .placements_known = true };
			sums[at].available += capacity_available(n, c, k, &overlay);
			add_placements(&sums[at], c, p->type_id, &overlay);
		}
	}
	for (unsigned i = 0; list && i < count; i++)
		json_array_append_new(
			list,
			json_pack("{s:o,s:I,s:i,s:o}", "name", api_json_text(sums[i].profile->name),
				  "framebuffer_mb", (json_int_t)sums[i].profile->framebuffer_mb,
				  "available", (int)sums[i].available, "free_placements",
				  sums[i].placements_known ? json_integer(sums[i].free_placements)
							   : json_null()));
	return list;
}

static json_t *json_fallbacks(const struct node *n)
{
	json_t *list = json_array();

	for (unsigned i = 0; list && i < n->n_cards; i++) {
		const struct card *c = n->cards[i];

		if (c->present && c->has_vfs && c->fallback != NVML_REASON_NONE)
			json_array_append_new(list,
					      json_pack("{s:o,s:s,s:o}", "gpu",
							api_json_address(c->address), "reason",
							nvml_reason_name(c->fallback), "detail",
							api_json_text(c->fallback_text)));
	}
	return list;
}

static json_t *json_devices(const struct node *n)
{
	json_t *list = json_array();

	for (unsigned i = 0; list && i < n->n_cards; i++) {
		const struct card *c = n->cards[i];

		if (c->present)
			json_array_append_new(
				list, json_pack("{s:o,s:o,s:b}", "name", api_json_text(c->name),
						"address", api_json_address(c->address),
						"available", strcmp(c->driver, "vfio-pci") == 0));
	}
	return list;
}

json_t *api_json_resources(const struct node *n, bool profiles)
{
	static const char *const names[] = { "none", "passthrough", "vgpu" };
	struct capacity_slots s = capacity_count_slots(n, NULL);
	enum host_mode mode = host_mode(n);
	json_t *gpu;

	gpu = json_pack("{s:s,s:s,s:i,s:i,s:i,s:i}", "mode", names[mode], "framework",
			inventory_framework_name(n->framework), "total_slots", (int)s.total,
			"used_slots", (int)s.used, "allocatable_slots", (int)s.allocatable,
			"quarantined_slots", (int)s.quarantined);
	if (!gpu)
		return NULL;
	if (profiles)
		json_object_set_new(gpu, "profiles", json_profiles(n));
	if (mode == HOST_PASSTHROUGH)
		json_object_set_new(gpu, "devices", json_devices(n));
	json_object_set_new(gpu, "fallbacks", json_fallbacks(n));
	return json_pack("{s:o}", "gpu", gpu);
}
