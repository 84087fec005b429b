/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "daemon/allocate.h"
#include "daemon/cards.h"
#include "daemon/recover-internal.h"
#include "model/outcome.h"

/* The card is as it was before. */
static void refuse(struct recovery *r, int code, const char *detail)
{
	r->card->recovery = TAKE(r->previous);
	r->card->cordoned = r->refused_cordon;
	node_changed(r->node);
	allocate_capacity_changed(r->node);
	recovery_tell_started(r, code, detail);
	recovery_free(r);
}

/* Also claims whose VF is gone. */
static bool has_claims(const struct node *n, const struct card *c)
{
	for (unsigned i = 0; i < c->n_vfs; i++)
		if (c->vfs[i].hold != VF_HOLD_NONE)
			return true;
	for (unsigned i = 0; i < n->n_claims; i++)
		if (pci_addr_equal(n->claims[i]->claim.card, c->address))
			return true;
	return false;
}

/* The cycle takes the types off all VFs of the card: none of them may be somebody else's. */
static bool is_excluded(const struct card *c, char *detail, size_t size)
{
	struct pci_addr address = c->address;
	bool excluded = c->excluded;
	char text[PCI_ADDR_MAX];

	for (unsigned i = 0; i < c->n_vfs && !excluded; i++) {
		excluded = c->vfs[i].excluded;
		address = c->vfs[i].address;
	}
	if (excluded)
		snprintf(detail, size, "%s is in gpu.exclude: it is never written",
			 pci_addr_format(address, text));
	return excluded;
}

static void begin(struct recovery *r)
{
	char detail[NODE_TEXT_MAX];

	/* By a reload while it was looked at who has its VFs open. */
	if (is_excluded(r->card, detail, sizeof detail)) {
		refuse(r, -E_FORBIDDEN, detail);
		return;
	}
	r->previous = recovery_free(r->previous);
	recovery_advance(r);
}

static void scanned(const struct card_reply *reply, void *userdata)
{
	struct recovery *r = userdata;
	char text[PCI_ADDR_MAX], why[NODE_TEXT_MAX];

	for (unsigned i = 0; i < reply->n_vfs; i++) {
		if (reply->vfs[i].open == CARD_OPEN_NO)
			continue;
		snprintf(why, sizeof why, "%s %s: %.100s",
			 pci_addr_format(reply->vfs[i].address, text),
			 reply->vfs[i].open == CARD_OPEN_YES ? "is open" : "may be open",
			 reply->text);
		refuse(r, -E_IN_USE, why);
		return;
	}
	if (reply->result < 0) {
		refuse(r, reply->result, reply->text);
		return;
	}
	begin(r);
}

/* The second try after one that did not end well: what the card was like is what it was like before
 * that. */
static void take_over(struct recovery *r, const struct recovery *last)
{
	r->was_cordoned = last->was_cordoned;
	r->was_mixed |= last->was_mixed;
	r->expected_vfs = MAX(r->expected_vfs, last->expected_vfs);
}

void recover_submit(struct node *n, struct card *c, recover_started_fn started, void *userdata)
{
	struct card_request request = { .op = CARD_OP_SCAN };
	char detail[NODE_TEXT_MAX];
	struct recovery *r;

	if (!node_is_ready(n)) {
		started(-E_NOT_READY, node_not_ready_reason(n), userdata);
		return;
	}
	if (recover_is_running(c)) {
		started(-E_IN_USE, "a recovery of this card is under way", userdata);
		return;
	}
	if (is_excluded(c, detail, sizeof detail)) {
		started(-E_FORBIDDEN, detail, userdata);
		return;
	}
	if (has_claims(n, c)) {
		started(-E_IN_USE, "the card has claims; cordon it and let it drain", userdata);
		return;
	}
	for (unsigned i = 0; i < c->n_vfs; i++)
		request.vfs[request.n_vfs++] = c->vfs[i].address;
	r = calloc(1, sizeof *r);
	if (!r) {
		started(-E_INTERNAL, "out of memory", userdata);
		return;
	}
	r->node = n;
	r->config = config_ref(n->config);
	r->card = c;
	r->started = started;
	r->userdata = userdata;
	r->nvml_was_released = nvml_client_is_released(n->nvml);
	r->was_cordoned = r->refused_cordon = c->cordoned;
	r->was_mixed = c->mode == NVML_MODE_MIXED;
	r->expected_vfs = MAX(c->n_vfs, 1U);
	if (c->recovery && c->recovery->state != RECOVERY_DONE)
		take_over(r, c->recovery);
	clock_rfc3339_now(r->started_at);
	r->previous = c->recovery;
	c->recovery = r;
	c->cordoned = true; /* at once: no claim may come in between */
	node_changed(n);
	if (request.n_vfs == 0 || !c->client) {
		begin(r);
		return;
	}
	if (card_client_submit(c->client, &request, scanned, r) < 0)
		refuse(r, -E_DRIVER_STUCK, card_client_reason(c->client));
}
