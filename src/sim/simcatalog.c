/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/simcatalog.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#define VGPUS_PER_CARD_MAX 32U /* of one type outside MIG, in every branch */
#define VGPUS_PER_GI_MAX   12U

/* Types with consecutive numbers: suffixes behind the board's name, in order. */
struct run {
	uint32_t first;
	const char *suffixes;
	bool optional;
};

struct board {
	struct sim_model model; /* types are filled in when it is first asked for */
	const char *prefix;	/* of a type's name */
	struct run runs[8];
};

/* Order of the suffixes is the driver's numbering, see the captures of the real boards. The MIG
 * profile numbers are those of nvidia-smi. */
static const struct sim_gi_profile h100_gi[] = {
	{ 19, "1g.10gb", 10, 1, 1, 7 }, { 20, "1g.10gb+me", 10, 1, 1, 1 },
	{ 15, "1g.20gb", 20, 1, 2, 4 }, { 14, "2g.20gb", 20, 2, 2, 3 },
	{ 9, "3g.40gb", 40, 3, 4, 2 },	{ 5, "4g.40gb", 40, 4, 4, 1 },
	{ 0, "7g.80gb", 80, 7, 8, 1 },
};

static const struct sim_gi_profile rtx_gi[] = {
	{ 47, "1g.24gb", 24, 1, 1, 4 },
	{ 35, "2g.48gb", 48, 2, 2, 2 },
	{ 32, "4g.96gb", 96, 4, 4, 1 },
};

#define Q48 "1Q 2Q 3Q 4Q 6Q 8Q 12Q 16Q 24Q 48Q"
#define A48 "1A 2A 3A 4A 6A 8A 12A 16A 24A 48A"
#define C48 "4C 6C 8C 12C 16C 24C 48C"

static const struct board boards[] = {
	{
		.model = { .key = "l40s",
			   .product = "NVIDIA L40S",
			   .arch = SIM_ARCH_ADA,
			   .region = 48,
			   .memory_mib = 46068,
			   .device = 0x26b9,
			   .subsystem_device = 0x1851,
			   .class_code = 0x030200,
			   .vfs = 32,
			   .vf_offset = 4 },
		.prefix = "L40S",
		.runs = { { 1145, "1B 2B " Q48 " " A48, false },
			  { 1179, C48, true },
			  { 2164, "3B", false } },
	},
	{
		.model = { .key = "l4",
			   .product = "NVIDIA L4",
			   .arch = SIM_ARCH_ADA,
			   .region = 24,
			   .memory_mib = 23034,
			   .device = 0x27b8,
			   .subsystem_device = 0x16ca,
			   .class_code = 0x030200,
			   .vfs = 32,
			   .vf_offset = 4 },
		.prefix = "L4",
		.runs = { { 908, "1B 2B 1Q 2Q 3Q 4Q 6Q 8Q 12Q 24Q 1A 2A 3A 4A 6A 8A 12A 24A",
			    false },
			  { 934, "4C 6C 8C 12C 24C", true } },
	},
	{
		.model = { .key = "a16",
			   .product = "NVIDIA A16",
			   .arch = SIM_ARCH_AMPERE,
			   .region = 16,
			   .memory_mib = 15356,
			   .device = 0x25b6,
			   .subsystem_device = 0x14a9,
			   .class_code = 0x030200,
			   .vfs = 16,
			   .vf_offset = 4 },
		.prefix = "A16",
		.runs = { { 709, "1B 2B 1Q 2Q 4Q 8Q 16Q 1A 2A 4A 8A 16A", false },
			  { 721, "4C 8C 16C", true } },
	},
	{
		.model = { .key = "a40",
			   .product = "NVIDIA A40",
			   .arch = SIM_ARCH_AMPERE,
			   .region = 48,
			   .memory_mib = 46068,
			   .device = 0x2235,
			   .subsystem_device = 0x145a,
			   .class_code = 0x030200,
			   .vfs = 32,
			   .vf_offset = 4 },
		.prefix = "A40",
		.runs = { { 555, "1B 2B " Q48 " " A48, false }, { 581, C48, true } },
	},
	{
		/* 1060 for 5C is a guess: the gap beside 1-20C, which was added at the same time.
		 */
		.model = { .key = "h100-80",
			   .product = "NVIDIA H100 PCIe",
			   .arch = SIM_ARCH_HOPPER,
			   .region = 80,
			   .memory_mib = 81559,
			   .device = 0x2331,
			   .subsystem_device = 0x1626,
			   .class_code = 0x030200,
			   .vfs = 20,
			   .vf_offset = 4,
			   .mig_capable = true,
			   .compute_slices = 7,
			   .memory_slices = 8,
			   .gi_profile_count = ARRAY_SIZE(h100_gi),
			   .gi_profiles = h100_gi },
		.prefix = "H100",
		.runs = { { 821, "1-10C 2-20C 3-40C 4-40C 7-80C 4C 8C 10C 16C 20C 40C 80C", false },
			  { 993, "1-10CME", false },
			  { 1059, "1-20C 5C", false } },
	},
	{
		.model = { .key = "rtx-pro-6000",
			   .product = "NVIDIA RTX PRO 6000 Blackwell Server Edition",
			   .arch = SIM_ARCH_BLACKWELL,
			   .region = 96,
			   .memory_mib = 97887,
			   .device = 0x2bb5,
			   .subsystem_device = 0x204e,
			   .class_code = 0x030200,
			   .vfs = 48,
			   .vf_offset = 2,
			   .mig_capable = true,
			   .mig_timeslicing = true,
			   .compute_slices = 4,
			   .memory_slices = 4,
			   .gi_profile_count = ARRAY_SIZE(rtx_gi),
			   .gi_profiles = rtx_gi },
		.prefix = "RTX Pro 6000 Blackwell DC",
		.runs = { { 1518,
			    "2B 3Q 3A 4Q 4A 6Q 6A 8Q 8A 8C 12Q 12A 12C 16Q 16A 16C 24Q 24A 24C "
			    "32Q 32A 32C 48Q 48A 48C 96Q 96A 96C",
			    false },
			  { 1546,
			    "1-2Q 1-2A 1-2B 1-3Q 1-3A 1-4Q 1-4A 1-6Q 1-6A 1-8Q 1-8A 1-8C 1-12Q "
			    "1-12A "
			    "1-12C 1-24Q 1-24A 1-24C "
			    "2-12Q 2-12A 2-12C 2-16Q 2-16A 2-16C 2-24Q 2-24A 2-24C 2-48Q 2-48A "
			    "2-48C "
			    "4-24Q 4-24A 4-24C 4-32Q 4-32A 4-32C 4-48Q 4-48A 4-48C 4-96Q 4-96A "
			    "4-96C",
			    false },
			  { 2158, "1-3B", false } },
	},
};

/* Types of 1 GiB on 48 GB boards may not start here: they would collide with the padding of 8Q. */
static const uint32_t deny_gsp[] = { 2, 3, 8, 9, 14, 15, 20, 21, 26, 27, 32, 33, 38, 39, 44, 45 };
static const uint32_t deny_ampere[] = { 8, 32 };

static void placements_add(struct sim_placements *p, uint32_t id)
{
	if (p->count < SIM_PLACEMENTS_MAX)
		p->id[p->count++] = id;
}

struct halving {
	uint32_t size, max, half; /* half: largest power of two not above max */
	const uint32_t *deny;
	size_t n_deny;
	struct sim_placements *out;
};

static void halving_emit(const struct halving *h, uint32_t id)
{
	for (size_t i = 0; i < h->n_deny; i++)
		if (h->deny[i] == id)
			return;
	placements_add(h->out, id);
}

/* One node [lo, hi) of the driver's recursion: the region is cut in halves down to sixteenths, and
 * a type sits at the left end, the right end or both ends of the nodes of its depth. */
static void halving_node(const struct halving *h, uint32_t lo, uint32_t hi, uint32_t parts,
			 bool is_left)
{
	bool left = false, right = false;
	uint32_t middle = (lo + hi) / 2;

	if (parts > 16)
		return;
	if (2 * parts == h->max) {
		left = right = true;
	} else if ((h->half < h->max && h->half == parts) || (parts == 1 && h->max == 1)) {
		left = is_left;
		right = !is_left;
	}
	if (left)
		halving_emit(h, lo);
	if (right)
		halving_emit(h, hi - h->size);
	halving_node(h, lo, middle, parts * 2, true);
	halving_node(h, middle, hi, parts * 2, false);
}

void sim_geometry_mixed(uint32_t region, uint32_t size, uint32_t max_instances,
			const uint32_t *deny, size_t n_deny, struct sim_placements *ret)
{
	struct halving h = { .size = size,
			     .max = max_instances,
			     .half = 1,
			     .deny = deny,
			     .n_deny = n_deny,
			     .out = ret };

	ret->count = 0;
	if (size == 0 || max_instances == 0 || size > region)
		return;
	while (h.half * 2 <= max_instances)
		h.half *= 2;
	halving_node(&h, 0, region, 1, true);
}

void sim_geometry_blackwell(uint32_t region, uint32_t max_instances, struct sim_placements *ret)
{
	ret->count = 0;
	for (uint32_t j = 0; j < max_instances; j++)
		placements_add(ret, region * j / max_instances);
}

void sim_geometry_equal(uint32_t region, uint32_t size, uint32_t max_instances,
			struct sim_placements *ret)
{
	ret->count = 0;
	if (size == 0)
		return;
	for (uint32_t j = 0; j < max_instances && (j + 1) * size <= region; j++)
		placements_add(ret, j * size);
}

static void fill_series(struct sim_type *t)
{
	bool large = t->fb_mib > 1024;

	switch (t->series) {
	case 'Q':
		str_copy_cut(t->class_name, sizeof(t->class_name), "Quadro");
		str_copy_cut(t->license, sizeof(t->license), "NVIDIA RTX Virtual Workstation,5.0");
		t->heads = 4;
		t->max_x = large ? 7680 : 5120;
		t->max_y = large ? 4320 : 2880;
		t->max_per_vm = 16;
		break;
	case 'C':
		str_copy_cut(t->class_name, sizeof(t->class_name), "Compute");
		str_copy_cut(t->license, sizeof(t->license), "NVIDIA Virtual Compute Server,9.0");
		t->heads = 1;
		t->max_x = 4096;
		t->max_y = 2160;
		t->max_per_vm = 16;
		break;
	case 'B':
		str_copy_cut(t->class_name, sizeof(t->class_name), "NVS");
		str_copy_cut(t->license, sizeof(t->license), "NVIDIA Virtual PC,5.0");
		t->heads = 4;
		t->max_x = 5120;
		t->max_y = 2880;
		t->max_per_vm = 1;
		break;
	default:
		str_copy_cut(t->class_name, sizeof(t->class_name), "NVS");
		str_copy_cut(t->license, sizeof(t->license), "NVIDIA Virtual Applications,3.0");
		t->heads = 1;
		t->max_x = 1280;
		t->max_y = 1024;
		t->max_per_vm = 1;
		break;
	}
}

/* A MIG-backed type fits the GPU instance with its slices and memory ("1-10CME": the "+me" one). */
static const struct sim_gi_profile *find_gi_profile(const struct sim_model *m, uint32_t slices,
						    uint32_t gib, bool media)
{
	for (uint32_t i = 0; i < m->gi_profile_count; i++) {
		const struct sim_gi_profile *p = &m->gi_profiles[i];

		if (p->compute == slices && (m->mig_timeslicing || p->gib == gib) &&
		    str_ends_with(p->name, "+me") == media)
			return p;
	}
	return NULL;
}

static void fill_geometry(const struct sim_model *m, struct sim_type *t, uint32_t gib)
{
	if (m->arch == SIM_ARCH_BLACKWELL) {
		/* On 96 GB boards the driver counts a 2 GB type as 3 units. */
		t->size = m->region == 96 && gib == 2 ? 3 : gib;
		sim_geometry_blackwell(m->region, t->max_instances, &t->mixed);
		t->equal = t->mixed;
		return;
	}
	t->size = gib;
	if (gib == 1 && m->region == 48 && m->arch == SIM_ARCH_AMPERE)
		sim_geometry_mixed(m->region, gib, t->max_instances, deny_ampere,
				   ARRAY_SIZE(deny_ampere), &t->mixed);
	else if (gib == 1 && m->region == 48)
		sim_geometry_mixed(m->region, gib, t->max_instances, deny_gsp, ARRAY_SIZE(deny_gsp),
				   &t->mixed);
	else
		sim_geometry_mixed(m->region, gib, t->max_instances, NULL, 0, &t->mixed);
	if (m->arch != SIM_ARCH_AMPERE)
		sim_geometry_equal(m->region, gib, t->max_instances, &t->equal);
}

/* suffix: "4Q", or "1-10C", "1-10CME" of a MIG-backed type. */
static void fill_type(const struct sim_model *m, const char *prefix, uint32_t id,
		      const char *suffix, struct sim_type *t)
{
	const char *number = strchr(suffix, '-');
	char *end;
	uint32_t gib;

	*t = (struct sim_type){ .id = id, .gi_profile = SIM_GI_NONE };
	snprintf(t->name, sizeof(t->name), "NVIDIA %s-%s", prefix, suffix);
	t->mig = number;
	gib = (uint32_t)strtoul(number ? number + 1 : suffix, &end, 10);
	t->series = *end;
	t->fb_mib = gib * 1024;
	fill_series(t);
	if (t->mig) {
		uint32_t slices = (uint32_t)strtoul(suffix, NULL, 10);
		const struct sim_gi_profile *p = find_gi_profile(m, slices, gib,
								 str_ends_with(end, "ME"));

		assert(p); /* the tables of types and of GPU instance profiles agree */
		t->gi_profile = p->id;
		t->max_per_gi = m->mig_timeslicing ? MIN(p->gib / gib, VGPUS_PER_GI_MAX) : 1;
		t->max_instances = t->max_per_gi * p->max;
		t->size = m->mig_timeslicing ? gib : 0;
		return;
	}
	t->max_instances = MIN(m->region / gib, VGPUS_PER_CARD_MAX);
	fill_geometry(m, t, gib);
}

static int compare_types(const void *a, const void *b)
{
	const struct sim_type *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

static void fill_model(const struct board *board, bool compute_types, struct sim_model *m)
{
	*m = board->model;
	for (size_t r = 0; r < ARRAY_SIZE(board->runs) && board->runs[r].suffixes; r++) {
		const struct run *run = &board->runs[r];
		const char *at = run->suffixes;

		for (uint32_t i = 0; *at; i++) {
			size_t n = strcspn(at, " ");
			char suffix[16];

			snprintf(suffix, sizeof(suffix), "%.*s", (int)n, at);
			at += n + (at[n] == ' ');
			if (run->optional && !compute_types)
				continue;
			fill_type(m, board->prefix, run->first + i, suffix,
				  &m->types[m->type_count]);
			m->types[m->type_count++].optional = run->optional;
		}
	}
	qsort(m->types, m->type_count, sizeof(m->types[0]), compare_types);
}

const struct sim_model *sim_model_find(const char *key, bool compute_types)
{
	static struct sim_model built[ARRAY_SIZE(boards)][2];

	for (size_t i = 0; i < ARRAY_SIZE(boards); i++) {
		struct sim_model *m = &built[i][compute_types];

		if (strcmp(boards[i].model.key, key) != 0)
			continue;
		if (m->type_count == 0)
			fill_model(&boards[i], compute_types, m);
		return m;
	}
	return NULL;
}

const char *sim_model_key(unsigned i)
{
	return i < ARRAY_SIZE(boards) ? boards[i].model.key : NULL;
}

const struct sim_type *sim_model_type(const struct sim_model *model, uint32_t id)
{
	for (uint32_t i = 0; i < model->type_count; i++)
		if (model->types[i].id == id)
			return &model->types[i];
	return NULL;
}

const struct sim_type *sim_model_type_by_name(const struct sim_model *model, const char *name)
{
	for (uint32_t i = 0; i < model->type_count; i++) {
		const char *full = model->types[i].name;

		if (strcmp(full, name) == 0 || strcmp(full + strlen("NVIDIA "), name) == 0)
			return &model->types[i];
	}
	return NULL;
}

static const char *const mode_names[] = {
	[SIM_MODE_EQUAL] = "equal",
	[SIM_MODE_MIXED] = "mixed",
	[SIM_MODE_MIG] = "mig",
};

const char *sim_mode_name(enum sim_mode mode)
{
	return mode_names[mode];
}

int sim_mode_parse(const char *name, enum sim_mode *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(mode_names); i++)
		if (strcmp(mode_names[i], name) == 0) {
			*ret = (enum sim_mode)i;
			return 0;
		}
	return -EINVAL;
}
