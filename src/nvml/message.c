/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml/message.h"

#include <errno.h>
#include <string.h>

const char *nvml_reason_name(enum nvml_reason r)
{
	switch (r) {
	case NVML_REASON_NONE:
		return NULL;
	case NVML_REASON_EQUAL_SIZE:
		return "equal_size";
	case NVML_REASON_MIG:
		return "mig";
	case NVML_REASON_UNSUPPORTED:
		return "unsupported";
	case NVML_REASON_LIBRARY:
		return "library";
	case NVML_REASON_TIMEOUT:
		return "timeout";
	case NVML_REASON_ERROR:
		return "error";
	}
	return NULL;
}

const char *nvml_mode_name(enum nvml_mode m)
{
	switch (m) {
	case NVML_MODE_UNKNOWN:
		return "unknown";
	case NVML_MODE_MIXED:
		return "mixed";
	case NVML_MODE_EQUAL:
		return "equal";
	case NVML_MODE_MIG:
		return "mig";
	}
	return "unknown";
}

size_t nvml_card_message_size(const struct nvml_card_message *m)
{
	return offsetof(struct nvml_card_message, card.types) +
	       m->card.n_types * sizeof m->card.types[0];
}

/* A bool that holds neither 0 nor 1 must not be read as one. */
static bool is_bool(const bool *b)
{
	unsigned char byte;

	memcpy(&byte, b, 1);
	return byte <= 1;
}

static bool is_string(const char *s, size_t size)
{
	return memchr(s, '\0', size) != NULL;
}

static bool is_reason(enum nvml_reason r)
{
	return (unsigned)r <= NVML_REASON_ERROR;
}

static bool is_type(const struct nvml_type *t)
{
	const struct placement_type *p = &t->placement;

	if (t->profile.type_id == 0 || p->type_id != t->profile.type_id ||
	    !is_string(t->profile.name, sizeof t->profile.name))
		return false;
	if (p->n_ids > PLACEMENT_IDS_MAX || p->size > PLACEMENT_UNITS_MAX ||
	    (p->size == 0) != (p->n_ids == 0))
		return false;
	if (p->n_ids < 64 && p->creatable >> p->n_ids)
		return false;
	for (unsigned i = 0; i < p->n_ids; i++)
		if (p->ids[i] > PLACEMENT_UNITS_MAX - p->size)
			return false;
	return true;
}

static bool is_instance(const struct nvml_instance *i)
{
	return is_bool(&i->guest_driver) &&
	       (i->placement_id < PLACEMENT_UNITS_MAX || i->placement_id == PLACEMENT_NONE);
}

static bool is_card(const struct nvml_card_message *m, size_t len)
{
	const struct nvml_card *c = &m->card;

	if (len < offsetof(struct nvml_card_message, card.types) ||
	    c->n_types > PROFILE_TYPES_MAX || len != nvml_card_message_size(m))
		return false;
	if (!is_reason(c->reason) || (unsigned)c->mode > NVML_MODE_MIG ||
	    !is_bool(&c->instances_known) || !is_string(c->text, sizeof c->text) ||
	    !is_string(c->name, sizeof c->name) || c->region > PLACEMENT_UNITS_MAX ||
	    c->n_instances > NVML_INSTANCES_MAX)
		return false;
	for (unsigned i = 0; i < c->n_instances; i++)
		if (!is_instance(&c->instances[i]))
			return false;
	for (unsigned i = 0; i < c->n_types; i++)
		if (!is_type(&c->types[i]))
			return false;
	return true;
}

static bool is_end(const struct nvml_end_message *m, size_t len)
{
	return len == sizeof *m && is_reason(m->reason) && is_bool(&m->restart) &&
	       is_string(m->text, sizeof m->text) && is_string(m->driver, sizeof m->driver);
}

int nvml_message_check(const void *msg, size_t len)
{
	uint32_t kind;

	if (len < sizeof kind)
		return -EBADMSG;
	memcpy(&kind, msg, sizeof kind);
	if (kind == NVML_MESSAGE_CARD && is_card(msg, len))
		return NVML_MESSAGE_CARD;
	if (kind == NVML_MESSAGE_END && is_end(msg, len))
		return NVML_MESSAGE_END;
	return -EBADMSG;
}
