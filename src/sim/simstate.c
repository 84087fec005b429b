/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/simstate.h"

#include <jansson.h>

#include "base/cleanup.h"
#include "base/str.h"

static json_t *instance_json(const struct sim_vf *vf)
{
	const struct sim_instance *in = &vf->instance;

	if (!in->active)
		return json_null();
	return json_pack("{sI si ss sb}", "id", (json_int_t)in->id, "pid", (int)in->pid, "vm_uuid",
			 in->vm_uuid, "driver_loaded", in->driver_loaded);
}

static json_t *vf_json(const struct sim_vf *vf)
{
	return json_pack("{ss sI so sb sb sI sI sI so? so}", "address", vf->address, "type",
			 (json_int_t)(vf->type ? vf->type->id : 0), "placement",
			 vf->placement == SIM_PLACEMENT_NONE ? json_null()
							     : json_integer(vf->placement),
			 "open", vf->open_count > 0, "wedged", vf->wedged, "handles",
			 (json_int_t)vf->open_count, "group", (json_int_t)vf->group, "vfio",
			 (json_int_t)vf->vfio, "profile",
			 vf->type ? json_string(vf->type->name) : json_null(), "instance",
			 instance_json(vf));
}

static json_t *card_json(const struct sim_card *card)
{
	json_t *vfs = json_array(), *gis = json_array(), *ghosts = json_array();

	for (uint32_t i = 0; i < card->vf_count; i++)
		if (sim_vf_visible(&card->vfs[i]))
			json_array_append_new(vfs, vf_json(&card->vfs[i]));
	for (uint32_t i = 0; i < card->gi_count; i++)
		json_array_append_new(gis, json_pack("{sI ss}", "id", (json_int_t)card->gis[i].id,
						     "profile", card->gis[i].profile->name));
	for (uint32_t i = 0; i < card->ghost_count; i++)
		json_array_append_new(ghosts,
				      json_pack("{sI sI}", "id", (json_int_t)card->ghosts[i].id,
						"size", (json_int_t)card->ghosts[i].size));
	return json_pack("{ss ss ss ss sb sb sb sI si so so so}", "address", card->address, "model",
			 card->model->key, "name", card->model->product, "mode",
			 sim_mode_name(card->mode), "present", card->present, "sriov",
			 card->vf_count > 0, "sriov_busy", card->sriov_busy, "node_handles",
			 (json_int_t)card->node_open_count, "numa_node", card->numa_node,
			 "gpu_instances", gis, "ghosts", ghosts, "vfs", vfs);
}

char *simstate_render(const struct sim *sim)
{
	json_t *cards = json_array(), *state;
	_free_ char *text = NULL;

	for (uint32_t i = 0; i < sim->card_count; i++)
		json_array_append_new(cards, card_json(&sim->cards[i]));
	state = json_pack("{ss ss so s{sI sI sI sI}}", "driver", sim->driver, "boot_id",
			  sim->boot_id, "cards", cards, "counters", "nvml_calls",
			  (json_int_t)sim->counters.nvml_calls, "nvml_shutdowns",
			  (json_int_t)sim->counters.nvml_shutdowns, "attr_reads",
			  (json_int_t)sim->counters.attr_reads, "attr_writes",
			  (json_int_t)sim->counters.attr_writes);
	text = state ? json_dumps(state, JSON_INDENT(1)) : NULL;
	json_decref(state);
	return text ? str_printf("%s\n", text) : NULL;
}
