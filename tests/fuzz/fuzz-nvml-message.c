/* SPDX-License-Identifier: Apache-2.0 */
/* What a helper that has gone mad may send: whatever passes the check must be safe to walk. */
#include <stdlib.h>
#include <string.h>

#include "nvml/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t walk_card(const struct nvml_card *c)
{
	size_t sum = strlen(c->text) + strlen(c->name) + c->instances_known;

	for (unsigned i = 0; i < c->n_instances; i++)
		sum += c->instances[i].guest_driver;
	for (unsigned i = 0; i < c->n_types; i++) {
		const struct placement_type *p = &c->types[i].placement;
		struct placement_set taken = { 0 };
		struct placement_span span;

		sum += strlen(c->types[i].profile.name);
		for (unsigned k = 0; k < p->n_ids; k++)
			sum += p->ids[k];
		if (placement_type_first_fit(p, p->creatable, &span) == 0)
			placement_set_add(&taken, span);
		sum += placement_count(placement_type_free(p, &taken));
	}
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Exactly as long as the message, so that a read behind its end is seen. */
	void *msg = malloc(size ? size : 1);
	static volatile size_t sink;

	if (!msg)
		return 0;
	memcpy(msg, data, size);
	switch (nvml_message_check(msg, size)) {
	case NVML_MESSAGE_CARD:
		sink = walk_card(&((const struct nvml_card_message *)msg)->card);
		break;
	case NVML_MESSAGE_END:
		sink = strlen(((const struct nvml_end_message *)msg)->text) +
		       strlen(((const struct nvml_end_message *)msg)->driver) +
		       ((const struct nvml_end_message *)msg)->restart;
		break;
	default:
		break;
	}
	(void)sink;
	free(msg);
	return 0;
}
