/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/drift.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "daemon/cards.h"
#include "daemon/node-metrics.h"
#include "daemon/snapshot.h"

/* How long NVML and the VFs have to disagree for drift. */
#define DRIFT_USEC (500 * USEC_PER_MSEC)

/* Every configured VF's span and every active instance is known, so free placements can be
 * computed. */
static bool known_spans(const struct card *c, struct placement_set *ret)
{
	*ret = (struct placement_set){ 0 };
	for (unsigned i = 0; i < c->n_vfs; i++) {
		const struct vf *v = &c->vfs[i];

		if (v->listed && !v->known)
			return false;
		if (v->type_id == 0)
			continue;
		if (v->span.size == 0)
			return false;
		placement_set_add(ret, v->span);
	}
	for (unsigned i = 0; c->nvml->instances_known && i < c->nvml->n_instances; i++) {
		const struct nvml_instance *in = &c->nvml->instances[i];

		if (in->placement_id == PLACEMENT_NONE)
			return false;
		placement_set_add(ret, (struct placement_span){ in->placement_id,
								cards_type_size(c, in->type_id) });
	}
	return true;
}

static bool has_drift(const struct card *c, char *text, size_t size)
{
	struct placement_set taken;

	if (!known_spans(c, &taken))
		return false;
	for (unsigned i = 0; i < c->nvml->n_types; i++) {
		const struct placement_type *t = &c->nvml->types[i].placement;
		uint64_t expected = placement_type_clear_of(t, &taken);

		if (expected == t->creatable)
			continue;
		snprintf(text, size, "%s: NVML has %u free placements, the VFs leave %u",
			 c->nvml->types[i].profile.name, placement_count(t->creatable),
			 placement_count(expected));
		return true;
	}
	return false;
}

static bool is_lasting(const struct card *c)
{
	return clock_now_usec() - c->suspected_usec >= DRIFT_USEC;
}

static void suspect_drift(struct node *n, struct card *c, const char *text)
{
	c->suspected_seq = node_next_seq(n);
	c->suspected_usec = clock_now_usec();
	c->suspected_changes = c->changes;
	str_copy_cut(c->suspected_text, sizeof c->suspected_text, text);
}

void drift_vfs_were_read(struct node *n, const struct card *c)
{
	if (c->suspected_seq > 0 && c->read_seq > c->suspected_seq && is_lasting(c))
		snapshot_request(n);
}

/* What another program writes reaches the VFs' state up to a second later, and what it writes and
 * takes back may never. So one difference is only a suspicion; it is drift when the VFs, read a
 * while after it, are as they were, and NVML's answer then differs in the same way. */
void drift_judge(struct node *n, struct card *c)
{
	char text[NODE_TEXT_MAX] = "", address[PCI_ADDR_MAX];

	if (c->overlapped || c->changes != c->asked_changes || n->driver_branch < 570)
		return;
	pci_addr_format(c->address, address);
	if (!has_drift(c, text, sizeof text)) {
		if (c->drift)
			log_notice("placements: NVML and the VFs agree again card=%s", address);
		c->drift = false;
		c->suspected_seq = 0;
		return;
	}
	if (!c->drift && (c->suspected_seq == 0 || c->changes != c->suspected_changes ||
			  strcmp(text, c->suspected_text) != 0))
		suspect_drift(n, c, text);
	if (!c->drift && (!cards_was_read_after(c, c->suspected_seq) || !is_lasting(c)))
		return;
	node_metrics_count_drift(n);
	if (!c->drift)
		log_warning("placements: NVML and the VFs disagree, NVML counts card=%s: %s",
			    address, text);
	c->drift = true;
	c->suspected_seq = 0;
}
