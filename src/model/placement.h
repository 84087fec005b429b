/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The placements of one card: which spans of its framebuffer vGPUs take and which are free.
 *
 * A card's framebuffer is a region of units of 1 GiB (placement size 1 = 1 GiB, but a 2 GB type on
 * a 96 GB card takes 3). A type may start only at its supported placement ids; two vGPUs never
 * overlap. What NVML calls creatable is the truth at the time of the answer; spans that berth has
 * taken since (or, before driver 570, configured VFs that no VM runs on) are laid over it.
 *
 * Pure: nothing here reads a clock, a file or another card.
 */
#pragma once

#include "base/macro.h"
#include "model/profile.h"

#define PLACEMENT_UNITS_MAX 512
#define PLACEMENT_IDS_MAX   64	    /* NVML: 32, from 580 on 48 */
#define PLACEMENT_NONE	    0xffffU /* NVML_INVALID_VGPU_PLACEMENT_ID */

struct placement_span {
	uint16_t id;   /* first unit */
	uint16_t size; /* units; 0: no span */
};

/* One type's geometry and what NVML said of it. Bit i of a mask stands for ids[i]. */
struct placement_type {
	uint32_t type_id;
	uint16_t size;
	uint16_t n_ids;
	uint16_t ids[PLACEMENT_IDS_MAX]; /* in the driver's table order: its first fit takes the
					    first free one */
	uint64_t creatable;		 /* NVML's answer */
};

struct placement_set {
	uint64_t units[PLACEMENT_UNITS_MAX / 64];
};

/* Marks [id, id+size) as taken; parts beyond the last unit are ignored. */
void placement_set_add(struct placement_set *s, struct placement_span span);
bool placement_set_overlaps(const struct placement_set *s, struct placement_span span);

/* Mask of the ids of t whose span touches nothing in `taken`. */
uint64_t placement_type_clear_of(const struct placement_type *t, const struct placement_set *taken);

/* Free placements: NVML's creatable ones minus those that touch `overlay`. */
uint64_t placement_type_free(const struct placement_type *t, const struct placement_set *overlay);

/* The driver's own choice among the ids in mask: the first in table order. -ENOENT for 0. */
int placement_type_first_fit(const struct placement_type *t, uint64_t mask,
			     struct placement_span *ret) _must_check_;

/* Mask of the ids of t whose whole span lies in `hole`. */
uint64_t placement_type_within(const struct placement_type *t, struct placement_span hole);

/* The stretches of a region that nothing in `taken` touches, in order; at most `max` of them. A
 * hole is no promise: what fits in it is up to NVML (placement_type_free() and _within()). */
unsigned placement_find_holes(const struct placement_set *taken, uint16_t region,
			      struct placement_span ret[], unsigned max);

/* Index of id in t->ids, or -ENOENT. */
int placement_type_find(const struct placement_type *t, uint16_t id);

#define PLACEMENT_CLASSES_MAX 32

/* What is free for all types of one size: they share their ids. */
struct placement_class {
	uint16_t size;
	uint16_t n_ids;
	const uint16_t *ids;		       /* borrowed from the type */
	uint64_t free;			       /* mask over ids */
	uint8_t in_the_way[PLACEMENT_IDS_MAX]; /* known vGPUs on each id's span */
};

/* The free placements of a card by distinct size, in the driver's order of types. */
struct placement_view {
	unsigned n;
	struct placement_class classes[PLACEMENT_CLASSES_MAX];
};

/* Adds a type; one whose size is there already changes nothing. Types beyond the limit are ignored.
 */
void placement_view_add(struct placement_view *v, const struct placement_type *t,
			const struct placement_set *overlay);

/* The class of a size, or NULL. */
const struct placement_class *placement_view_find(const struct placement_view *v, uint16_t size);

/* Mask of the class's ids whose span touches [span.id, span.id + span.size). */
uint64_t placement_class_touched(const struct placement_class *c, struct placement_span span);

/* Counts a known vGPU in the way of every placement that it touches; `free` is not changed. */
void placement_view_note(struct placement_view *v, struct placement_span span);

/* The free placements that are left when a span is taken. */
void placement_view_take(struct placement_view *v, struct placement_span span);

static inline unsigned placement_count(uint64_t mask)
{
	return (unsigned)__builtin_popcountll(mask);
}
