/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/simnvmlcall.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

/* NVML's numbers that simcard.h does not name. */
#define NVML_DRIVER_NOT_LOADED 9
#define NVML_GPU_IS_LOST       15
#define NVML_VERSION_MISMATCH  25

#define VENDOR_NVIDIA	       0x10deU
#define MIB		       UINT64_C(1048576)

/* Single- and double-bit ECC errors, Xids, clock changes. */
#define EVENT_TYPES	     UINT64_C(0x1b)

#define FIRST_BRANCH_LIST_V2 565

enum target { TARGET_NONE, TARGET_CARD, TARGET_TYPE, TARGET_INSTANCE };

static enum target target_of(uint16_t op)
{
	if (op >= WIRE_INSTANCE_TYPE && op <= WIRE_INSTANCE_GI)
		return TARGET_INSTANCE;
	if (op >= WIRE_TYPE_NAME && op <= WIRE_TYPE_CAP)
		return TARGET_TYPE;
	if (op == WIRE_DRIVER_CAP || op < WIRE_CARD_INDEX || op == WIRE_EVENT_WAIT)
		return TARGET_NONE;
	return TARGET_CARD;
}

struct sim_card *simnvml_call_card(struct sim *sim, const struct wire_request *req)
{
	struct sim_vf *vf;

	switch (target_of(req->op)) {
	case TARGET_CARD:
		return req->card < sim->card_count ? &sim->cards[req->card] : NULL;
	case TARGET_INSTANCE:
		vf = req->instance ? sim_find_instance(sim, req->instance) : NULL;
		return vf ? vf->card : NULL;
	case TARGET_NONE:
	case TARGET_TYPE:
		break;
	}
	return NULL;
}

static bool has_fault(struct sim *sim, const struct wire_request *req, enum sim_fault fault)
{
	const struct sim_card *card = simnvml_call_card(sim, req);

	return sim->faults.value[fault] || (card && card->faults.value[fault]);
}

bool simnvml_call_hangs(struct sim *sim, const struct wire_request *req)
{
	return has_fault(sim, req, SIM_FAULT_NVML_HANG);
}

static void put_text(struct wire_reply *rep, const char *text)
{
	str_copy_cut(rep->text, sizeof(rep->text), text);
}

/* --- finding cards --------------------------------------------------------------------------- */

static int give_handle(const struct sim_card *card, struct wire_reply *rep)
{
	/* Attaching a GPU finds out that it is lost; other errors show in what is asked of it. */
	if (card->faults.value[SIM_FAULT_NVML_ERROR] == NVML_GPU_IS_LOST)
		return NVML_GPU_IS_LOST;
	rep->num[0] = card->index;
	return 0;
}

static int answer_by_index(struct sim *sim, uint32_t index, struct wire_reply *rep)
{
	for (uint32_t i = 0; i < sim->card_count; i++)
		if (sim->cards[i].present && !index--)
			return give_handle(&sim->cards[i], rep);
	return SIM_NVML_INVALID_ARGUMENT;
}

static int answer_by_bus(struct sim *sim, uint64_t bus_id, struct wire_reply *rep)
{
	for (uint32_t i = 0; i < sim->card_count; i++) {
		const struct sim_card *c = &sim->cards[i];

		/* Function 0 only: virtual functions are no NVML devices. */
		if (c->present &&
		    bus_id == ((uint64_t)c->domain << 16 | c->bus << 8 | c->device << 3))
			return give_handle(c, rep);
	}
	return SIM_NVML_NOT_FOUND;
}

static uint64_t count_cards(const struct sim *sim, uint32_t before)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < sim->card_count && i < before; i++)
		n += sim->cards[i].present;
	return n;
}

/* --- about one card -------------------------------------------------------------------------- */

static void put_memory(const struct sim_card *card, struct wire_reply *rep)
{
	/* What the driver keeps for itself: of the right order, no client plans by it. */
	uint64_t total = card->model->memory_mib, reserved = total / 64;
	uint64_t used = MIN(sim_card_used_mib(card), total - reserved);

	rep->num[0] = total * MIB;
	rep->num[1] = reserved * MIB;
	rep->num[2] = (total - reserved - used) * MIB;
	rep->num[3] = used * MIB;
}

/* Number of capabilities that a branch knows. */
static uint32_t known_capabilities(uint32_t branch)
{
	if (branch >= 575)
		return 12;
	if (branch >= 565)
		return 10;
	if (branch >= 560)
		return 9;
	return branch >= 550 ? 8 : 5;
}

static int get_capability(const struct sim_card *card, uint32_t cap, struct wire_reply *rep)
{
	uint32_t branch = card->sim->branch;

	if (cap >= known_capabilities(branch))
		return SIM_NVML_INVALID_ARGUMENT;
	switch (cap) {
	case 0: /* several fractional vGPUs in a VM */
	case 1: /* types of several series on one card */
	case 8: /* warm update */
		rep->num[0] = 1;
		break;
	case 2: /* mixed-size mode */
		rep->num[0] = branch >= 550 && card->mode != SIM_MODE_MIG &&
			      sim_card_is_sriov(card);
		break;
	case 9: /* placements in equal-size mode */
		rep->num[0] = sim_card_has_equal_placements(card);
		break;
	case 10:
		rep->num[0] = card->model->mig_timeslicing;
		break;
	case 11:
		rep->num[0] = card->model->mig_timeslicing && card->mode == SIM_MODE_MIG;
		break;
	default: /* bandwidths, streaming, special GPU layouts: not on these boards */
		rep->num[0] = 0;
	}
	return 0;
}

static int set_capability(const struct sim_card *card, const struct wire_request *req)
{
	if (req->arg >= known_capabilities(card->sim->branch) || req->arg2 > 1)
		return SIM_NVML_INVALID_ARGUMENT;
	if (req->arg != 6 && req->arg != 7 && req->arg != 11)
		return SIM_NVML_INVALID_ARGUMENT;
	return req->wide ? SIM_NVML_NOT_SUPPORTED : SIM_NVML_NO_PERMISSION;
}

static int put_types(const struct sim_card *card, bool creatable, struct wire_reply *rep)
{
	const struct sim_type *types[SIM_TYPES_MAX];
	uint32_t n;

	n = creatable ? sim_card_creatable_types(card, types)
		      : sim_card_supported_types(card, types);
	for (uint32_t i = 0; i < n; i++)
		rep->ids[i] = types[i]->id;
	rep->n_ids = n;
	return 0;
}

static int put_instances(struct sim_card *card, struct wire_reply *rep)
{
	struct sim_vf *vfs[SIM_VFS_MAX];

	if (card->faults.value[SIM_FAULT_NVML_ACTIVE_ERROR])
		return (int)card->faults.value[SIM_FAULT_NVML_ACTIVE_ERROR];
	rep->n_ids = sim_card_instances(card, vfs);
	for (uint32_t i = 0; i < rep->n_ids; i++)
		rep->ids[i] = vfs[i]->instance.id;
	return 0;
}

static bool takes_list(const struct sim_card *card, uint32_t version)
{
	if (card->sim->branch < FIRST_BRANCH_LIST_V2)
		return version == 1;
	return version == 2 || !card->faults.value[SIM_FAULT_NVML_LIST_V1_REFUSED];
}

static int put_placements(const struct sim_card *card, const struct wire_request *req,
			  struct wire_reply *rep)
{
	const struct sim_type *type = sim_model_type(card->model, req->type);
	struct sim_placements list = { 0 };
	int r;

	if (!takes_list(card, req->arg2))
		return NVML_VERSION_MISMATCH;
	if (!type || req->arg > 1)
		return SIM_NVML_INVALID_ARGUMENT;
	/* The driver's creatable call knows no mode: it answers for the one the card is in. */
	if (req->op == WIRE_CARD_PLACEABLE) {
		rep->cost_nsec = sim_nvml_call_delay_usec(card) * 1000;
		r = sim_card_creatable_placements(card, type, &list);
	} else {
		r = sim_card_supported_placements(card, type, req->arg == 0, &list);
	}
	if (r)
		return r;
	for (uint32_t i = 0; i < list.count; i++)
		rep->ids[i] = list.id[i];
	rep->n_ids = list.count;
	rep->num[0] = type->size;
	return 0;
}

static int set_mode(struct sim_card *card, const struct wire_request *req)
{
	if (req->arg > 1)
		return SIM_NVML_INVALID_ARGUMENT;
	if (!req->wide)
		return SIM_NVML_NO_PERMISSION;
	return sim_card_set_mixed(card, req->arg == 1);
}

static int get_mode(const struct sim_card *card, struct wire_reply *rep)
{
	bool mixed = false;
	int r = sim_card_get_mixed(card, &mixed);

	rep->num[0] = mixed;
	return r;
}

static int get_max_instances(const struct sim_card *card, uint32_t id, struct wire_reply *rep)
{
	const struct sim_type *type = sim_model_type(card->model, id);

	if (!type)
		return SIM_NVML_INVALID_ARGUMENT;
	rep->num[0] = type->max_instances;
	return 0;
}

static int put_gpu_instances(const struct sim_card *card, uint32_t profile, struct wire_reply *rep)
{
	if (card->mode != SIM_MODE_MIG)
		return SIM_NVML_NOT_SUPPORTED;
	for (uint32_t i = 0; i < card->gi_count; i++)
		if (card->gis[i].profile->id == profile)
			rep->ids[rep->n_ids++] = card->gis[i].id;
	return 0;
}

static int answer_card(struct sim_card *card, const struct wire_request *req,
		       struct wire_reply *rep)
{
	switch (req->op) {
	case WIRE_CARD_INDEX:
		rep->num[0] = count_cards(card->sim, card->index);
		return 0;
	case WIRE_CARD_MINOR:
		rep->num[0] = card->index;
		return 0;
	case WIRE_CARD_NAME:
		put_text(rep, card->model->product);
		return 0;
	case WIRE_CARD_UUID:
		put_text(rep, card->uuid);
		return 0;
	case WIRE_CARD_PCI:
		rep->num[0] = card->domain;
		rep->num[1] = card->bus << 8 | card->device;
		rep->num[2] = (uint32_t)card->model->device << 16 | VENDOR_NVIDIA;
		rep->num[3] = (uint32_t)card->model->subsystem_device << 16 | VENDOR_NVIDIA;
		return 0;
	case WIRE_CARD_MEMORY:
		put_memory(card, rep);
		return 0;
	case WIRE_CARD_VIRT_MODE:
		rep->num[0] = 3; /* a host of vGPUs */
		return 0;
	case WIRE_CARD_HOST_MODE:
		rep->num[0] = sim_card_is_sriov(card);
		return 0;
	case WIRE_CARD_MIG_MODE:
		if (!card->model->mig_capable)
			return SIM_NVML_NOT_SUPPORTED;
		rep->num[0] = rep->num[1] = card->mode == SIM_MODE_MIG;
		return 0;
	case WIRE_CARD_GET_CAP:
		return get_capability(card, req->arg, rep);
	case WIRE_CARD_SET_CAP:
		return set_capability(card, req);
	case WIRE_CARD_SUPPORTED:
		return put_types(card, false, rep);
	case WIRE_CARD_CREATABLE:
		return put_types(card, true, rep);
	case WIRE_CARD_ACTIVE:
		return put_instances(card, rep);
	case WIRE_CARD_GET_MODE:
		return get_mode(card, rep);
	case WIRE_CARD_SET_MODE:
		return set_mode(card, req);
	case WIRE_CARD_PLACEABLE:
		if (card->faults.value[SIM_FAULT_NVML_PLACEMENT_ERROR])
			return (int)card->faults.value[SIM_FAULT_NVML_PLACEMENT_ERROR];
		return put_placements(card, req, rep);
	case WIRE_CARD_PLACEMENTS:
		return put_placements(card, req, rep);
	case WIRE_CARD_MAX_INSTANCES:
		return get_max_instances(card, req->type, rep);
	case WIRE_CARD_GIS:
		return put_gpu_instances(card, req->arg, rep);
	case WIRE_EVENT_TYPES:
		rep->num[0] = EVENT_TYPES;
		return 0;
	case WIRE_EVENT_REGISTER:
		return req->wide & ~EVENT_TYPES ? SIM_NVML_NOT_SUPPORTED : 0;
	default:
		return SIM_NVML_NOT_SUPPORTED;
	}
}

/* --- about a type ---------------------------------------------------------------------------- */

static const struct sim_model *model_of(const struct sim *sim, const struct sim_type *type)
{
	for (uint32_t i = 0; i < sim->card_count; i++)
		if (sim_model_type(sim->cards[i].model, type->id) == type)
			return sim->cards[i].model;
	return sim->cards[0].model;
}

/* Frame rate, BAR1, GSP heap and reserved framebuffer are of the right order, not measured. */
static int type_number(const struct sim *sim, const struct sim_type *type,
		       const struct wire_request *req, struct wire_reply *rep)
{
	switch ((enum wire_type_number)req->arg) {
	case WIRE_TYPE_FRAMEBUFFER:
		rep->num[0] = type->fb_mib * MIB;
		return 0;
	case WIRE_TYPE_PER_VM:
		rep->num[0] = type->max_per_vm;
		return 0;
	case WIRE_TYPE_PER_GI:
		rep->num[0] = type->max_per_gi;
		return type->mig ? 0 : SIM_NVML_NOT_SUPPORTED;
	case WIRE_TYPE_PCI_IDS:
		rep->num[0] = (uint32_t)model_of(sim, type)->device << 16 | VENDOR_NVIDIA;
		rep->num[1] = type->id << 16 | VENDOR_NVIDIA;
		return 0;
	case WIRE_TYPE_RATE:
		rep->num[0] = type->series == 'B' ? 45 : 60;
		return 0;
	case WIRE_TYPE_HEADS:
		rep->num[0] = type->heads;
		return 0;
	case WIRE_TYPE_RESOLUTION:
		if (req->arg2 >= type->heads)
			return SIM_NVML_INVALID_ARGUMENT;
		rep->num[0] = type->max_x;
		rep->num[1] = type->max_y;
		return 0;
	case WIRE_TYPE_GI_PROFILE:
		rep->num[0] = type->mig ? type->gi_profile : SIM_GI_NONE;
		return 0;
	case WIRE_TYPE_BAR1_MB:
		rep->num[0] = 256;
		return 0;
	case WIRE_TYPE_GSP_HEAP:
		rep->num[0] = 64 * MIB;
		return 0;
	case WIRE_TYPE_FB_RESERVED:
		rep->num[0] = type->fb_mib * MIB / 16;
		return 0;
	}
	return SIM_NVML_INVALID_ARGUMENT;
}

static int answer_type(struct sim *sim, const struct wire_request *req, struct wire_reply *rep)
{
	const struct sim_type *type = sim_find_type(sim, req->type);

	if (!type)
		return SIM_NVML_INVALID_ARGUMENT;
	switch (req->op) {
	case WIRE_TYPE_NAME:
		put_text(rep, type->name);
		return 0;
	case WIRE_TYPE_CLASS:
		put_text(rep, type->class_name);
		return 0;
	case WIRE_TYPE_LICENSE:
		put_text(rep, type->license);
		return 0;
	case WIRE_TYPE_NUMBER:
		return type_number(sim, type, req, rep);
	case WIRE_TYPE_CAP: /* peer to peer, GPUDirect, exclusive ...: none of these types */
		return req->arg > 4 ? SIM_NVML_INVALID_ARGUMENT : 0;
	default:
		return SIM_NVML_NOT_SUPPORTED;
	}
}

/* --- about an instance ----------------------------------------------------------------------- */

static int instance_license(const struct sim_instance *inst, struct wire_reply *rep)
{
	if (!inst->driver_loaded)
		return NVML_DRIVER_NOT_LOADED;
	rep->num[0] = 0;
	rep->num[1] = 2; /* unlicensed, not yet restricted */
	return 0;
}

static int answer_instance(struct sim *sim, const struct wire_request *req, struct wire_reply *rep)
{
	struct sim_vf *vf = sim_find_instance(sim, req->instance);
	const struct sim_instance *inst = &vf->instance;

	switch (req->op) {
	case WIRE_INSTANCE_TYPE:
		rep->num[0] = vf->type->id;
		return 0;
	case WIRE_INSTANCE_VM_ID:
		put_text(rep, inst->vm_uuid);
		rep->num[0] = 1; /* a UUID */
		return 0;
	case WIRE_INSTANCE_UUID:
		put_text(rep, inst->uuid);
		return 0;
	case WIRE_INSTANCE_MDEV: /* no mediated devices with the vendor's VFIO framework */
		return SIM_NVML_NOT_SUPPORTED;
	case WIRE_INSTANCE_FB_USED:
		rep->num[0] = (128 + (inst->driver_loaded ? vf->type->fb_mib / 8 : 0)) * MIB;
		return 0;
	case WIRE_INSTANCE_PCI: /* in the guest's eyes; nothing names the VF */
		put_text(rep, inst->driver_loaded ? "00000000:00:05.0" : "00000000:00:00.0");
		return 0;
	case WIRE_INSTANCE_DRIVER:
		put_text(rep, sim_instance_driver(vf));
		return 0;
	case WIRE_INSTANCE_LICENSE:
		return instance_license(inst, rep);
	case WIRE_INSTANCE_PLACEMENT:
		rep->num[0] = sim_instance_placement(vf);
		return 0;
	case WIRE_INSTANCE_STATE_SIZE:
		rep->num[0] = 64 * MIB;
		return 0;
	case WIRE_INSTANCE_RATE:
		rep->num[0] = vf->type->series == 'B' ? 45 : 60;
		return 0;
	case WIRE_INSTANCE_ECC:
		rep->num[0] = 0;
		return 0;
	case WIRE_INSTANCE_GI:
		rep->num[0] = vf->gi;
		return 0;
	default:
		return SIM_NVML_NOT_SUPPORTED;
	}
}

/* --- the driver as a whole ------------------------------------------------------------------- */

static int answer_host(struct sim *sim, const struct wire_request *req, struct wire_reply *rep)
{
	switch (req->op) {
	case WIRE_INIT:
		rep->num[0] = sim->card_count;
		return (int)sim->faults.value[SIM_FAULT_NVML_ERROR];
	case WIRE_SHUTDOWN:
		return 0;
	case WIRE_DRIVER_VERSION:
		put_text(rep, sim->driver);
		return 0;
	case WIRE_DRIVER_BRANCH:
		snprintf(rep->text, sizeof(rep->text), "r%u_00", sim->branch);
		return 0;
	case WIRE_COUNT:
		rep->num[0] = count_cards(sim, UINT32_MAX);
		return 0;
	case WIRE_CARD_BY_INDEX:
		return answer_by_index(sim, req->arg, rep);
	case WIRE_CARD_BY_BUS:
		return answer_by_bus(sim, req->wide, rep);
	case WIRE_DRIVER_CAP: /* several types in one VM; warm update since 560 */
		if (req->arg > (sim->branch >= 560 ? 1U : 0U))
			return SIM_NVML_INVALID_ARGUMENT;
		rep->num[0] = 1;
		return 0;
	default:
		return SIM_NVML_NOT_SUPPORTED;
	}
}

static int answer(struct sim *sim, const struct wire_request *req, struct wire_reply *rep)
{
	enum target target = target_of(req->op);
	struct sim_card *card = simnvml_call_card(sim, req);

	if (target == TARGET_NONE)
		return answer_host(sim, req, rep);
	if (target == TARGET_TYPE)
		return answer_type(sim, req, rep);
	if (!card && target == TARGET_INSTANCE)
		return req->instance ? SIM_NVML_NOT_FOUND : SIM_NVML_INVALID_ARGUMENT;
	if (!card)
		return SIM_NVML_INVALID_ARGUMENT;
	if (!card->present)
		return NVML_GPU_IS_LOST;
	if (card->faults.value[SIM_FAULT_NVML_ERROR])
		return (int)card->faults.value[SIM_FAULT_NVML_ERROR];
	return target == TARGET_CARD ? answer_card(card, req, rep) : answer_instance(sim, req, rep);
}

void simnvml_call_answer(struct sim *sim, const struct wire_request *req, struct wire_reply *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (has_fault(sim, req, SIM_FAULT_NVML_CRASH))
		ret->flags |= WIRE_FLAG_CRASH;
	ret->ret = answer(sim, req, ret);
}
