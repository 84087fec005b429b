/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "nvml/query-internal.h"

#define LIST_TRIES 4
/* Behind the last number written; no placement has it. */
#define ID_UNUSED UINT32_MAX

struct placements {
	uint32_t size;
	unsigned n;
	uint32_t ids[PLACEMENT_IDS_MAX];
};

/* "Not for this type": it costs the type, not the card. */
static bool is_about_type(int code)
{
	return code == NVML_CODE_INVALID_ARGUMENT || code == NVML_CODE_NOT_SUPPORTED ||
	       code == NVML_CODE_NOT_FOUND;
}

int nvml_read_list(int (*call)(struct nvml_device *d, unsigned *count, uint32_t *ids),
		   struct nvml_device *d, uint32_t ids[static NVML_LIST_MAX], unsigned *ret_n)
{
	int code = NVML_CODE_INSUFFICIENT_SIZE;

	for (int i = 0; i < LIST_TRIES && code == NVML_CODE_INSUFFICIENT_SIZE; i++) {
		unsigned n = NVML_LIST_MAX;

		code = call(d, &n, ids);
		if (code == NVML_CODE_SUCCESS)
			*ret_n = MIN(n, NVML_LIST_MAX);
	}
	return code;
}

/* The kernel side leaves the count as it was for a type that it does not know, so numbers are taken
 * only where one was written. */
static int read_placements(struct nvml_session *s,
			   int (*call)(struct nvml_device *, uint32_t, void *),
			   struct nvml_device *d, uint32_t type, struct placements *ret)
{
	uint32_t ids[PLACEMENT_IDS_MAX];
	struct nvml_abi_placements_v2 v2 = { .version = NVML_ABI_PLACEMENTS_V2_VERSION,
					     .count = PLACEMENT_IDS_MAX,
					     .ids = ids,
					     .mode = NVML_ABI_PLACEMENTS_MIXED };
	struct nvml_abi_placements_v1 v1 = { .version = NVML_ABI_PLACEMENTS_V1_VERSION,
					     .ids = ids };
	int code = NVML_CODE_ARGUMENT_VERSION_MISMATCH;
	uint32_t count;

	memset(ids, 0xff, sizeof ids);
	if (s->list_version == 2)
		code = call(d, type, &v2);
	if (code == NVML_CODE_ARGUMENT_VERSION_MISMATCH) {
		/* v1 cannot say how long the buffer is; no driver writes more than 48. */
		code = call(d, type, &v1);
		s->list_version = code == NVML_CODE_ARGUMENT_VERSION_MISMATCH ? 2 : 1;
	}
	if (code != NVML_CODE_SUCCESS)
		return code;
	ret->size = s->list_version == 2 ? v2.placement_size : v1.placement_size;
	count = MIN(s->list_version == 2 ? v2.count : v1.count, (uint32_t)PLACEMENT_IDS_MAX);
	ret->n = 0;
	for (uint32_t i = 0; i < count; i++)
		if (ids[i] != ID_UNUSED)
			ret->ids[ret->n++] = ids[i];
	return NVML_CODE_SUCCESS;
}

static int read_supported(struct nvml_session *s, struct nvml_device *d, struct placement_type *t)
{
	struct placements p;
	int code = read_placements(s, s->api.supported_placements, d, t->type_id, &p);

	if (code != NVML_CODE_SUCCESS || p.size == 0 || p.size > PLACEMENT_UNITS_MAX)
		return code;
	t->size = (uint16_t)p.size;
	for (unsigned i = 0; i < p.n; i++)
		if (p.ids[i] <= PLACEMENT_UNITS_MAX - p.size)
			t->ids[t->n_ids++] = (uint16_t)p.ids[i];
	if (t->n_ids == 0)
		t->size = 0;
	return NVML_CODE_SUCCESS;
}

/* Name and sizes. An NVML code; `ret_complete` is cleared when something has to be asked again. */
static int read_description(const struct nvml_session *s, struct nvml_device *d,
			    struct nvml_type *t, bool *ret_complete)
{
	uint32_t id = t->profile.type_id;
	unsigned size = sizeof t->profile.name;
	unsigned long long bytes = 0;
	unsigned instances = 0;
	int code;

	static_assert(sizeof t->profile.name >= NVML_ABI_TYPE_NAME_MAX, "a type's name fits");
	code = s->api.type_name(id, t->profile.name, &size);
	t->profile.name[sizeof t->profile.name - 1] = '\0';
	if (code == NVML_CODE_SUCCESS)
		code = s->api.type_framebuffer(id, &bytes);
	else
		t->profile.name[0] = '\0';
	if (code == NVML_CODE_SUCCESS)
		code = s->api.type_max_instances(d, id, &instances);
	if (code != NVML_CODE_SUCCESS)
		*ret_complete = false;
	bytes >>= 20;
	t->profile.framebuffer_mb = bytes > UINT32_MAX ? 0 : (uint32_t)bytes;
	t->max_instances = instances;
	return is_about_type(code) ? NVML_CODE_SUCCESS : code;
}

/* Behind which GPU instances a type is. Only for show: it costs nothing where it cannot be read. */
static void read_gi_profile(const struct nvml_session *s, struct nvml_type *t)
{
	struct nvml_abi_max_per_gi max = { .version = NVML_ABI_MAX_PER_GI_VERSION,
					   .type = t->profile.type_id };
	unsigned profile = NVML_GI_NONE;

	if (s->api.type_gi_profile &&
	    s->api.type_gi_profile(t->profile.type_id, &profile) == NVML_CODE_SUCCESS)
		t->gi_profile = profile;
	/* One where the driver is too old to share an instance. */
	t->gi_vgpus = 1;
	if (s->api.type_per_gi && s->api.type_per_gi(&max) == NVML_CODE_SUCCESS && max.max > 0)
		t->gi_vgpus = max.max;
}

void nvml_read_gpu_instances(const struct nvml_session *s, struct nvml_device *d,
			     struct nvml_card *card)
{
	struct nvml_gpu_instance *instances[NVML_LIST_MAX];

	for (unsigned i = 0; s->api.gpu_instances && i < card->n_types; i++) {
		struct nvml_type *t = &card->types[i];
		unsigned count = 0, k = 0;

		if (t->gi_profile == NVML_GI_NONE)
			continue;
		while (k < i && card->types[k].gi_profile != t->gi_profile)
			k++;
		if (k < i)
			t->gi_count = card->types[k].gi_count;
		else if (s->api.gpu_instances(d, t->gi_profile, instances, &count) ==
			 NVML_CODE_SUCCESS)
			t->gi_count = MIN(count, NVML_LIST_MAX);
	}
}

static struct nvml_type_table *find_table(struct nvml_session *s, struct pci_addr address)
{
	struct nvml_type_table *t;

	for (unsigned i = 0; i < s->n_tables; i++)
		if (pci_addr_equal(s->tables[i]->address, address))
			return s->tables[i];
	if (s->n_tables < NVML_CARDS_MAX) {
		t = calloc(1, sizeof *t);
		if (!t)
			return NULL;
		s->tables[s->n_tables++] = t;
	} else {
		/* Only after cards have come and gone; the first is as good to drop as another. */
		t = s->tables[0];
		t->valid = false;
	}
	t->address = address;
	return t;
}

static bool table_matches(const struct nvml_type_table *t, enum nvml_mode mode, const uint32_t *ids,
			  unsigned n)
{
	if (!t->valid || t->mode != mode || t->n_types != n)
		return false;
	for (unsigned i = 0; i < n; i++)
		if (t->types[i].profile.type_id != ids[i])
			return false;
	return true;
}

/* False: the card has failed. */
static bool fill_table(struct nvml_session *s, struct nvml_device *d, struct nvml_card *card,
		       struct nvml_type_table *t, const uint32_t *ids, unsigned n)
{
	bool complete = true;

	t->valid = false;
	t->odd = false;
	t->fresh = true;
	t->mode = card->mode;
	t->n_types = n;
	memset(t->types, 0, n * sizeof t->types[0]);
	for (unsigned i = 0; i < n; i++) {
		struct nvml_type *type = &t->types[i];
		int code;

		type->profile.type_id = type->placement.type_id = ids[i];
		type->gi_profile = type->gi_count = NVML_GI_NONE;
		if (card->mode == NVML_MODE_MIG)
			read_gi_profile(s, type);
		code = read_description(s, d, type, &complete);
		if (code != NVML_CODE_SUCCESS) {
			card_fail(s, card, NVML_REASON_ERROR, code, "describing a vGPU type");
			return false;
		}
		if (card->mode != NVML_MODE_MIXED)
			continue;
		code = read_supported(s, d, &type->placement);
		if (code != NVML_CODE_SUCCESS && !is_about_type(code)) {
			card_fail(s, card, NVML_REASON_ERROR, code,
				  "nvmlDeviceGetVgpuTypeSupportedPlacements");
			return false;
		}
	}
	t->valid = complete;
	return true;
}

/* Numbers that cannot be a type are left out. */
static unsigned clean_ids(uint32_t *ids, unsigned n)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < n && kept < PROFILE_TYPES_MAX; i++)
		if (ids[i] != 0)
			ids[kept++] = ids[i];
	return kept;
}

bool nvml_read_types(struct nvml_session *s, struct nvml_device *d, struct nvml_card *card)
{
	struct nvml_type_table *t = find_table(s, card->address);
	uint32_t ids[NVML_LIST_MAX];
	unsigned n = 0;
	int code = nvml_read_list(s->api.supported_types, d, ids, &n);

	if (code != NVML_CODE_SUCCESS) {
		bool no_host = code == NVML_CODE_NOT_SUPPORTED;

		card_fail(s, card, no_host ? NVML_REASON_UNSUPPORTED : NVML_REASON_ERROR, code,
			  "nvmlDeviceGetSupportedVgpus");
		if (no_host)
			card->mode = NVML_MODE_UNKNOWN;
		return false;
	}
	if (!t) {
		card_fail(s, card, NVML_REASON_ERROR, NVML_CODE_SUCCESS, "out of memory");
		return false;
	}
	n = clean_ids(ids, n);
	t->fresh = false;
	if (!table_matches(t, card->mode, ids, n) && !fill_table(s, d, card, t, ids, n))
		return false;
	/* nvidia-vgpud tells the driver its types some time after boot. */
	if (n == 0 && card->mode == NVML_MODE_MIXED) {
		t->valid = false;
		card_fail(s, card, NVML_REASON_ERROR, NVML_CODE_SUCCESS,
			  "the driver lists no vGPU types yet");
		return false;
	}
	card->n_types = n;
	memcpy(card->types, t->types, n * sizeof t->types[0]);
	return true;
}

/* Marks what is creatable. False: a placement was not among the supported ones; it is added. */
static bool apply_creatable(struct placement_type *t, const struct placements *p)
{
	bool known = true;

	for (unsigned i = 0; i < p->n; i++) {
		int k;

		if (p->ids[i] > PLACEMENT_UNITS_MAX - (unsigned)t->size)
			continue;
		k = placement_type_find(t, (uint16_t)p->ids[i]);
		if (k < 0) {
			known = false;
			if (t->n_ids == PLACEMENT_IDS_MAX)
				continue;
			k = t->n_ids++;
			t->ids[k] = (uint16_t)p->ids[i];
		}
		t->creatable |= UINT64_C(1) << k;
	}
	return known;
}

enum nvml_progress nvml_read_creatable(struct nvml_session *s, struct nvml_device *d,
				       struct nvml_card *card)
{
	struct nvml_type_table *table = find_table(s, card->address);
	int refusal = NVML_CODE_NOT_SUPPORTED;
	unsigned answered = 0;
	bool odd = false;

	assert(table); /* made by nvml_read_types() */
	for (unsigned i = 0; i < card->n_types; i++) {
		struct placement_type *t = &card->types[i].placement;
		struct placements p;
		int code;

		if (t->n_ids == 0)
			continue;
		if (s->interrupted && s->interrupted())
			return NVML_PROGRESS_GIVEN_UP;
		code = read_placements(s, s->api.creatable_placements, d, t->type_id, &p);
		if (code == NVML_CODE_SUCCESS) {
			answered++;
			odd |= !apply_creatable(t, &p);
		} else if (is_about_type(code)) {
			*t = (struct placement_type){ .type_id = t->type_id };
			refusal = code;
			odd = true;
		} else {
			card_fail(s, card, NVML_REASON_ERROR, code,
				  "nvmlDeviceGetVgpuTypeCreatablePlacements");
			return NVML_PROGRESS_DONE;
		}
	}
	/* Types or mode may have changed under the query. */
	if (odd && !table->fresh && !table->odd) {
		table->valid = false;
		return NVML_PROGRESS_OUTDATED;
	}
	table->odd |= odd;
	if (answered == 0)
		card_fail(s, card,
			  refusal == NVML_CODE_NOT_SUPPORTED ? NVML_REASON_UNSUPPORTED
							     : NVML_REASON_ERROR,
			  refusal, "nvmlDeviceGetVgpuTypeCreatablePlacements");
	return NVML_PROGRESS_DONE;
}
