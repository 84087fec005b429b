/* SPDX-License-Identifier: Apache-2.0 */
#include "model/placement.h"

#include <errno.h>

/* First unit behind the span, cut at the end of the set. */
static unsigned span_end(struct placement_span span)
{
	return MIN((unsigned)span.id + span.size, (unsigned)PLACEMENT_UNITS_MAX);
}

void placement_set_add(struct placement_set *s, struct placement_span span)
{
	for (unsigned u = span.id; u < span_end(span); u++)
		s->units[u / 64] |= UINT64_C(1) << u % 64;
}

bool placement_set_overlaps(const struct placement_set *s, struct placement_span span)
{
	for (unsigned u = span.id; u < span_end(span); u++)
		if (s->units[u / 64] >> u % 64 & 1)
			return true;
	return false;
}

uint64_t placement_type_clear_of(const struct placement_type *t, const struct placement_set *taken)
{
	uint64_t mask = 0;

	for (unsigned i = 0; i < t->n_ids; i++) {
		struct placement_span span = { .id = t->ids[i], .size = t->size };

		if (!placement_set_overlaps(taken, span))
			mask |= UINT64_C(1) << i;
	}
	return mask;
}

uint64_t placement_type_free(const struct placement_type *t, const struct placement_set *overlay)
{
	return t->creatable & placement_type_clear_of(t, overlay);
}

int placement_type_first_fit(const struct placement_type *t, uint64_t mask,
			     struct placement_span *ret)
{
	for (unsigned i = 0; i < t->n_ids; i++) {
		if (!(mask >> i & 1))
			continue;
		*ret = (struct placement_span){ .id = t->ids[i], .size = t->size };
		return 0;
	}
	return -ENOENT;
}

int placement_type_find(const struct placement_type *t, uint16_t id)
{
	for (unsigned i = 0; i < t->n_ids; i++)
		if (t->ids[i] == id)
			return (int)i;
	return -ENOENT;
}

uint64_t placement_type_within(const struct placement_type *t, struct placement_span hole)
{
	uint64_t mask = 0;

	for (unsigned i = 0; i < t->n_ids; i++)
		if (t->ids[i] >= hole.id && t->ids[i] + t->size <= hole.id + hole.size)
			mask |= UINT64_C(1) << i;
	return mask;
}

unsigned placement_find_holes(const struct placement_set *taken, uint16_t region,
			      struct placement_span ret[], unsigned max)
{
	unsigned end = MIN((unsigned)region, (unsigned)PLACEMENT_UNITS_MAX), n = 0;

	for (unsigned u = 0; u < end && n < max; u++) {
		unsigned first = u;

		while (u < end && !(taken->units[u / 64] >> u % 64 & 1))
			u++;
		if (u > first)
			ret[n++] = (struct placement_span){ (uint16_t)first,
							    (uint16_t)(u - first) };
	}
	return n;
}

const struct placement_class *placement_view_find(const struct placement_view *v, uint16_t size)
{
	for (unsigned i = 0; i < v->n; i++)
		if (v->classes[i].size == size)
			return &v->classes[i];
	return NULL;
}

void placement_view_add(struct placement_view *v, const struct placement_type *t,
			const struct placement_set *overlay)
{
	if (t->size == 0 || t->n_ids == 0 || v->n == PLACEMENT_CLASSES_MAX ||
	    placement_view_find(v, t->size))
		return;
	v->classes[v->n++] = (struct placement_class){
		.size = t->size,
		.n_ids = t->n_ids,
		.ids = t->ids,
		.free = placement_type_free(t, overlay),
	};
}

uint64_t placement_class_touched(const struct placement_class *c, struct placement_span span)
{
	uint64_t touched = 0;

	for (unsigned i = 0; i < c->n_ids; i++)
		touched |=
			(uint64_t)(c->ids[i] < span.id + span.size && span.id < c->ids[i] + c->size)
			<< i;
	return touched;
}

void placement_view_note(struct placement_view *v, struct placement_span span)
{
	for (unsigned i = 0; i < v->n; i++) {
		struct placement_class *c = &v->classes[i];
		uint64_t touched = placement_class_touched(c, span);

		for (unsigned k = 0; k < c->n_ids; k++)
			if (touched >> k & 1 && c->in_the_way[k] < UINT8_MAX)
				c->in_the_way[k]++;
	}
}

void placement_view_take(struct placement_view *v, struct placement_span span)
{
	for (unsigned i = 0; i < v->n; i++)
		v->classes[i].free &= ~placement_class_touched(&v->classes[i], span);
}
