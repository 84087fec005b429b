/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml/query.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/str.h"
#include "nvml/query-internal.h"

/* While a card fails, how old a session gets before a fresh one is asked for. */
#define STALE_USEC (60 * USEC_PER_SEC)
/* NVML_DEVICE_MIG_ENABLE */
#define MIG_ENABLED 1

int nvml_session_new(const struct nvml_api *api, struct nvml_session **ret)
{
	struct nvml_session *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->api = *api;
	s->list_version = 2;
	*ret = s;
	return 0;
}

struct nvml_session *nvml_session_free(struct nvml_session *s)
{
	if (!s)
		return NULL;
	if (s->initialised)
		s->api.shutdown();
	for (unsigned i = 0; i < s->n_tables; i++)
		free(s->tables[i]);
	free(s);
	return NULL;
}

static const char *code_text(const struct nvml_session *s, int code)
{
	const char *text = s->api.error_string(code);

	return text ? text : "unknown error";
}

static void end_fail(const struct nvml_session *s, struct nvml_end_message *end,
		     enum nvml_reason reason, int code, const char *what)
{
	end->reason = reason;
	end->nvml_error = code;
	snprintf(end->text, sizeof end->text, "%s: %s (%d)", what, code_text(s, code), code);
}

bool nvml_session_start(struct nvml_session *s, uint64_t now_usec, struct nvml_end_message *end)
{
	int code;

	s->mismatch = s->lost_init = s->card_failed = false;
	if (!s->initialised) {
		code = s->api.init();
		if (code != NVML_CODE_SUCCESS) {
			bool mismatch = code == NVML_CODE_LIB_RM_VERSION_MISMATCH;

			end_fail(s, end, mismatch ? NVML_REASON_LIBRARY : NVML_REASON_ERROR, code,
				 "nvmlInit_v2");
			/* The library mapped into this process stays the wrong one. */
			end->restart = mismatch;
			return false;
		}
		s->initialised = true;
		s->started_usec = now_usec;
		s->driver[0] = '\0';
		if (s->api.driver_version &&
		    s->api.driver_version(s->driver, sizeof s->driver) != NVML_CODE_SUCCESS)
			s->driver[0] = '\0';
		s->driver[sizeof s->driver - 1] = '\0';
	}
	str_copy_cut(end->driver, sizeof end->driver, s->driver);
	return true;
}

void nvml_session_finish(struct nvml_session *s, uint64_t now_usec, struct nvml_end_message *end)
{
	if (s->mismatch) {
		end_fail(s, end, NVML_REASON_LIBRARY, NVML_CODE_LIB_RM_VERSION_MISMATCH, "NVML");
		end->restart = true;
	} else if (s->lost_init) {
		s->api.shutdown();
		s->initialised = false;
	} else if (s->card_failed && now_usec - s->started_usec >= STALE_USEC) {
		end->restart = true;
	}
}

void card_fail(struct nvml_session *s, struct nvml_card *card, enum nvml_reason reason, int code,
	       const char *what)
{
	card->reason = reason;
	card->nvml_error = code;
	if (code != NVML_CODE_SUCCESS)
		snprintf(card->text, sizeof card->text, "%s: %s (%d)", what, code_text(s, code),
			 code);
	else
		str_copy_cut(card->text, sizeof card->text, what);
	s->card_failed |= reason == NVML_REASON_ERROR;
	s->mismatch |= code == NVML_CODE_LIB_RM_VERSION_MISMATCH;
	s->lost_init |= code == NVML_CODE_UNINITIALIZED || code == NVML_CODE_DRIVER_NOT_LOADED;
}

static bool read_device(struct nvml_session *s, struct nvml_card *card, struct nvml_device **ret)
{
	char address[PCI_ADDR_MAX];
	int code = s->api.device_by_pci(pci_addr_format(card->address, address), ret);

	if (code != NVML_CODE_SUCCESS) {
		card_fail(s, card, NVML_REASON_ERROR, code, "nvmlDeviceGetHandleByPciBusId_v2");
		return false;
	}
	if (!s->api.device_name ||
	    s->api.device_name(*ret, card->name, sizeof card->name) != NVML_CODE_SUCCESS)
		card->name[0] = '\0';
	card->name[sizeof card->name - 1] = '\0';
	return true;
}

static bool is_mig(const struct nvml_session *s, struct nvml_device *d)
{
	unsigned current = 0, pending = 0;

	return s->api.device_mig_mode &&
	       s->api.device_mig_mode(d, &current, &pending) == NVML_CODE_SUCCESS &&
	       current == MIG_ENABLED;
}

static bool read_mode(struct nvml_session *s, struct nvml_device *d, struct nvml_card *card)
{
	struct nvml_abi_mode mode = { .version = NVML_ABI_MODE_VERSION };
	int code = s->api.device_mode(d, &mode);

	if (code == NVML_CODE_SUCCESS && mode.mode == NVML_ABI_MODE_ENABLED) {
		card->mode = NVML_MODE_MIXED;
	} else if (code == NVML_CODE_SUCCESS) {
		card->mode = NVML_MODE_EQUAL;
		card_fail(s, card, NVML_REASON_EQUAL_SIZE, code, "the card is in equal-size mode");
	} else if (code == NVML_CODE_NOT_SUPPORTED && is_mig(s, d)) {
		card->mode = NVML_MODE_MIG;
		card_fail(s, card, NVML_REASON_MIG, NVML_CODE_SUCCESS, "MIG is on");
	} else if (code == NVML_CODE_NOT_SUPPORTED) {
		/* A card that cannot mix sizes can only be in the other mode. */
		card->mode = NVML_MODE_EQUAL;
		card_fail(s, card, NVML_REASON_UNSUPPORTED, code,
			  "nvmlDeviceGetVgpuHeterogeneousMode");
	} else {
		card_fail(s, card, NVML_REASON_ERROR, code, "nvmlDeviceGetVgpuHeterogeneousMode");
		return false;
	}
	return true;
}

/* A card that is in the mode already is left alone: setting it may be refused while it is in use.
 */
static bool set_mixed_mode(struct nvml_session *s, struct nvml_device *d, struct nvml_card *card)
{
	struct nvml_abi_mode mode = { .version = NVML_ABI_MODE_VERSION };
	int code = s->api.device_mode(d, &mode);

	if (code == NVML_CODE_SUCCESS && mode.mode == NVML_ABI_MODE_ENABLED)
		return true;
	mode = (struct nvml_abi_mode){ .version = NVML_ABI_MODE_VERSION,
				       .mode = NVML_ABI_MODE_ENABLED };
	code = s->api.device_set_mode ? s->api.device_set_mode(d, &mode)
				      : NVML_CODE_FUNCTION_NOT_FOUND;
	if (code == NVML_CODE_SUCCESS)
		return true;
	card_fail(s, card, NVML_REASON_ERROR, code, "nvmlDeviceSetVgpuHeterogeneousMode");
	return false;
}

/* A guest that has no driver yet is listed with one of these. */
static bool is_no_version(const char *s)
{
	return !*s || !strcasecmp(s, "Not Available") || !strcasecmp(s, "N/A");
}

/* An NVML code; NOT_FOUND when the instance is gone. */
static int read_instance(const struct nvml_session *s, uint32_t id, struct nvml_instance *ret)
{
	struct nvml_abi_placement_id placement = { .version = NVML_ABI_PLACEMENT_ID_VERSION,
						   .placement_id = PLACEMENT_NONE };
	char version[NVML_ABI_DRIVER_VERSION_MAX] = "";
	int code;

	*ret = (struct nvml_instance){ .id = id, .placement_id = PLACEMENT_NONE };
	code = s->api.instance_type(id, &ret->type_id);
	if (code != NVML_CODE_SUCCESS)
		return code;
	code = s->api.instance_placement ? s->api.instance_placement(id, &placement)
					 : NVML_CODE_NOT_SUPPORTED;
	if (code != NVML_CODE_SUCCESS && code != NVML_CODE_NOT_SUPPORTED)
		return code;
	if (code == NVML_CODE_SUCCESS && placement.placement_id < PLACEMENT_UNITS_MAX)
		ret->placement_id = (uint16_t)placement.placement_id;
	code = s->api.instance_driver_version(id, version, sizeof version);
	version[sizeof version - 1] = '\0';
	if (code == NVML_CODE_NOT_SUPPORTED || code == NVML_CODE_DRIVER_NOT_LOADED)
		return NVML_CODE_SUCCESS;
	if (code == NVML_CODE_SUCCESS)
		ret->guest_driver = !is_no_version(version);
	return code;
}

/* While a VM starts or stops the driver's counts differ for a moment and these calls fail. Unknown
 * is then the answer; it says nothing about the card. */
static void read_instances(const struct nvml_session *s, struct nvml_device *d,
			   struct nvml_card *card)
{
	uint32_t ids[NVML_LIST_MAX];
	unsigned n = 0;

	card->n_instances = 0;
	card->instances_known = false;
	if (!s->api.active_instances || !s->api.instance_type || !s->api.instance_driver_version)
		return;
	if (nvml_read_list(s->api.active_instances, d, ids, &n) != NVML_CODE_SUCCESS)
		return;
	for (unsigned i = 0; i < n; i++) {
		struct nvml_instance instance;
		int code = read_instance(s, ids[i], &instance);

		if (code == NVML_CODE_NOT_FOUND)
			continue;
		if (code != NVML_CODE_SUCCESS || card->n_instances == NVML_INSTANCES_MAX) {
			card->n_instances = 0;
			return;
		}
		card->instances[card->n_instances++] = instance;
	}
	card->instances_known = true;
}

/* The end of the last placement, or the largest type's framebuffer where no placements are known:
 * the largest type is the whole card. The device's memory is not: ECC takes some of it away. */
static uint16_t region_of(const struct nvml_card *card)
{
	unsigned end = 0, largest = 0;

	for (unsigned i = 0; i < card->n_types; i++) {
		const struct placement_type *p = &card->types[i].placement;

		for (unsigned k = 0; k < p->n_ids; k++)
			end = MAX(end, (unsigned)p->ids[k] + p->size);
		largest = MAX(largest, (card->types[i].profile.framebuffer_mb + 1023) / 1024);
	}
	return (uint16_t)MIN(end ? end : largest, (unsigned)PLACEMENT_UNITS_MAX);
}

static enum nvml_progress query_once(struct nvml_session *s, struct nvml_card *card)
{
	enum nvml_progress r;
	struct nvml_device *d = NULL;

	if (!read_device(s, card, &d) || (s->set_mixed && !set_mixed_mode(s, d, card)) ||
	    !read_mode(s, d, card) || !nvml_read_types(s, d, card))
		return NVML_PROGRESS_DONE;
	if (card->mode == NVML_MODE_MIXED) {
		r = nvml_read_creatable(s, d, card);
		if (r != NVML_PROGRESS_DONE)
			return r;
	}
	if (card->mode == NVML_MODE_MIG)
		nvml_read_gpu_instances(s, d, card);
	read_instances(s, d, card);
	card->region = region_of(card);
	return NVML_PROGRESS_DONE;
}

bool nvml_session_query_card(struct nvml_session *s, struct pci_addr address, struct nvml_card *ret)
{
	enum nvml_progress r;

	do {
		memset(ret, 0, offsetof(struct nvml_card, types));
		ret->address = address;
		r = query_once(s, ret);
	} while (r == NVML_PROGRESS_OUTDATED);
	return r == NVML_PROGRESS_DONE;
}

void nvml_session_set_mixed(struct nvml_session *s, bool set)
{
	s->set_mixed = set;
}

void nvml_session_set_interrupted(struct nvml_session *s, bool (*fn)(void))
{
	s->interrupted = fn;
}
