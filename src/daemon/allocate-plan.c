/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/allocate-internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "daemon/capacity.h"
#include "daemon/cards.h"
#include "daemon/catalogue.h"
#include "daemon/snapshot.h"
#include "model/outcome.h"
#include "store/health-store.h"

/* A claim does not wait longer than this for the lists of a card in a fallback when others can be
 * decided: a card whose driver hangs must hold up nobody else. */
#define LISTS_PATIENCE_USEC USEC_PER_SEC

/* A claim is not refused by a doubtful answer before this time is over: other claims may go on and
 * on being written, or hang. */
#define DOUBT_PATIENCE_USEC (2 * USEC_PER_SEC)

/* Why one card cannot take a claim, in the order in which they are looked at. */
enum obstacle {
	OBSTACLE_NONE,
	OBSTACLE_NOT_ASKED_FOR, /* the claim requires another card or NUMA node: not mentioned */
	OBSTACLE_NOT_VGPU,	/* no vendor VFIO VFs */
	OBSTACLE_EXCLUDED,
	OBSTACLE_NO_PROFILE,
	OBSTACLE_CORDONED,
	OBSTACLE_STUCK,
	OBSTACLE_MIG,
	OBSTACLE_TRIED, /* the driver refused there */
	OBSTACLE_LISTS_PENDING,
	OBSTACLE_NO_VF,
	OBSTACLE_NO_PLACEMENT,
};

static bool is_tried(const struct pci_addr *tried, unsigned n, struct pci_addr address)
{
	for (unsigned i = 0; i < n; i++)
		if (pci_addr_equal(tried[i], address))
			return true;
	return false;
}

static bool vf_was_tried(const struct vf *v, const void *userdata)
{
	const struct allocation *a = userdata;

	return is_tried(a->tried_vfs, a->n_tried_vfs, v->address);
}

static const struct profile *card_profile(const struct card *c, const char *name)
{
	return profile_list_find_name(&c->types, name);
}

/* What stands in the way regardless of free placements. */
static enum obstacle standing_obstacle(const struct allocation *a, const struct card *c)
{
	const struct allocation_request *q = &a->request;

	if (!c->present || (q->has_gpu && !pci_addr_equal(q->gpu, c->address)) ||
	    (q->has_numa_node && q->numa_node != c->numa_node))
		return OBSTACLE_NOT_ASKED_FOR;
	if (!c->has_vfs || c->n_vfs == 0)
		return OBSTACLE_NOT_VGPU;
	if (c->excluded)
		return OBSTACLE_EXCLUDED;
	if (c->cordoned)
		return OBSTACLE_CORDONED;
	if (c->stuck)
		return OBSTACLE_STUCK;
	if (c->mode == NVML_MODE_MIG)
		return OBSTACLE_MIG;
	return OBSTACLE_NONE;
}

static enum obstacle card_obstacle(const struct allocation *a, struct card *c)
{
	enum obstacle o = standing_obstacle(a, c);
	const struct profile *p = card_profile(c, a->request.profile);
	struct placement_set overlay;

	if (o != OBSTACLE_NONE)
		return o;
	if (!snapshot_lists_are_newer(c, a->arrived_seq))
		return OBSTACLE_LISTS_PENDING;
	if (!p)
		return OBSTACLE_NO_PROFILE;
	if (profile_name_is_mig(p->name))
		return OBSTACLE_MIG; /* also where NVML cannot say in which mode the card is */
	if (is_tried(a->tried_cards, a->n_tried_cards, c->address))
		return OBSTACLE_TRIED;
	if (capacity_free_vfs(a->node, c) == 0)
		return OBSTACLE_NO_VF;
	capacity_overlay(a->node, c, &overlay);
	if (capacity_available(a->node, c, (unsigned)(p - c->types.items), &overlay) == 0)
		return OBSTACLE_NO_PLACEMENT;
	if (!capacity_pick_vf(a->node, c, (unsigned)(p - c->types.items), vf_was_tried, a))
		return OBSTACLE_TRIED;
	return OBSTACLE_NONE;
}

static void describe(const struct allocation *a, const struct card *c, enum obstacle o, char *text,
		     size_t size)
{
	switch (o) {
	case OBSTACLE_NONE:
	case OBSTACLE_NOT_ASKED_FOR:
		str_copy_cut(text, size, "");
		break;
	case OBSTACLE_NOT_VGPU:
		snprintf(text, size, "no usable VFs%s%.80s", c->n_vfs ? ": " : " (SR-IOV is off)",
			 c->n_vfs ? c->vfs[0].reason : "");
		break;
	case OBSTACLE_EXCLUDED:
		str_copy_cut(text, size, "excluded by the configuration");
		break;
	case OBSTACLE_NO_PROFILE:
		str_copy_cut(text, size, "does not have this profile");
		break;
	case OBSTACLE_CORDONED:
		str_copy_cut(text, size, "cordoned");
		break;
	case OBSTACLE_STUCK:
		snprintf(text, size, "stuck in the driver: %.80s", card_client_reason(c->client));
		break;
	case OBSTACLE_MIG:
		str_copy_cut(text, size, "in MIG mode, which berth does not claim");
		break;
	case OBSTACLE_TRIED:
		snprintf(text, size, "the driver refused: %.90s", a->refusal);
		break;
	case OBSTACLE_LISTS_PENDING:
		str_copy_cut(text, size, "its lists could not be read in time");
		break;
	case OBSTACLE_NO_VF:
		str_copy_cut(text, size, "no free VF");
		break;
	case OBSTACLE_NO_PLACEMENT:
		str_copy_cut(text, size,
			     c->fallback == NVML_REASON_NONE
				     ? "no free placement"
				     : "its VFs offer no more of this profile");
		break;
	}
}

/* The code for "no card can", from what stood in the way of each. */
static int refusal_code(const struct node *n, const unsigned counts[], const char **ret_detail)
{
	unsigned matching = 0;

	for (enum obstacle o = OBSTACLE_NOT_VGPU; o <= OBSTACLE_NO_PLACEMENT; o++)
		matching += counts[o];
	if (n->framework == FRAMEWORK_MDEV) {
		*ret_detail =
			"this host uses the mdev framework; berth claims vendor VFIO VFs only";
		return -E_NOT_SUPPORTED;
	}
	if (matching > 0 && counts[OBSTACLE_NO_PROFILE] == matching && catalogue_all_complete(n)) {
		*ret_detail = "no card of this host has that profile";
		return -E_UNKNOWN_PROFILE;
	}
	if (matching > 0 && counts[OBSTACLE_MIG] + counts[OBSTACLE_NO_PROFILE] == matching &&
	    counts[OBSTACLE_MIG]) {
		*ret_detail = "the cards are in MIG mode, which berth does not claim";
		return -E_NOT_SUPPORTED;
	}
	if (counts[OBSTACLE_TRIED] > 0 &&
	    counts[OBSTACLE_NO_VF] + counts[OBSTACLE_NO_PLACEMENT] == 0) {
		*ret_detail = "the driver refused on every card that could take it";
		return -E_DRIVER_REFUSED;
	}
	if (counts[OBSTACLE_CORDONED] > 0 &&
	    counts[OBSTACLE_CORDONED] + counts[OBSTACLE_NO_PROFILE] == matching) {
		*ret_detail = "every card that has this profile is cordoned";
		return -E_CORDONED;
	}
	if (counts[OBSTACLE_STUCK] > 0 &&
	    counts[OBSTACLE_STUCK] + counts[OBSTACLE_NO_PROFILE] == matching) {
		*ret_detail = "every card that has this profile is stuck in the driver";
		return -E_DRIVER_STUCK;
	}
	*ret_detail = matching ? "no card can take this profile now"
			       : "no card of this host matches the claim";
	return -E_INSUFFICIENT_RESOURCES;
}

static bool host_is_passthrough(const struct node *n)
{
	for (unsigned i = 0; i < n->n_cards; i++)
		if (n->cards[i]->present &&
		    (n->cards[i]->has_vfs || strcmp(n->cards[i]->driver, "nvidia") == 0))
			return false;
	return n->n_cards > 0;
}

static int refuse(struct allocation *a, const enum obstacle *obstacles, char *detail,
		  struct allocation_refusal *refusals, unsigned *ret_n_refusals)
{
	unsigned counts[OBSTACLE_NO_PLACEMENT + 1] = { 0 }, count = 0;
	struct node *n = a->node;
	const char *why;
	int code;

	for (unsigned i = 0; i < n->n_cards; i++) {
		counts[obstacles[i]]++;
		if (obstacles[i] == OBSTACLE_NOT_ASKED_FOR || obstacles[i] == OBSTACLE_NONE)
			continue;
		refusals[count].card = n->cards[i]->address;
		describe(a, n->cards[i], obstacles[i], refusals[count].reason,
			 sizeof refusals[count].reason);
		count++;
	}
	if (host_is_passthrough(n)) {
		code = -E_NOT_SUPPORTED;
		why = "this host hands out whole GPUs (passthrough); berth claims vendor VFIO VFs "
		      "only";
	} else {
		code = refusal_code(n, counts, &why);
	}
	str_copy_cut(detail, NODE_TEXT_MAX, why);
	*ret_n_refusals = count;
	return code;
}

/* Without the records every VF might be a quarantined one. */
static bool is_health_unknown(const struct allocation *a, char detail[static NODE_TEXT_MAX],
			      unsigned *ret_n_refusals)
{
	if (health_store_get_state(a->node->health) != STORE_STATE_UNREADABLE)
		return false;
	str_copy_cut(detail, NODE_TEXT_MAX, health_store_reason(a->node->health));
	*ret_n_refusals = 0;
	return true;
}

int allocation_precheck(struct allocation *a, char detail[static NODE_TEXT_MAX],
			struct allocation_refusal *refusals, unsigned *ret_n_refusals)
{
	enum obstacle obstacles[INVENTORY_CARDS_MAX];
	struct node *n = a->node;
	bool possible = false;

	if (is_health_unknown(a, detail, ret_n_refusals))
		return -E_HEALTH_STORE_UNAVAILABLE;
	for (unsigned i = 0; i < n->n_cards; i++) {
		struct card *c = n->cards[i];
		enum obstacle o = standing_obstacle(a, c);

		if (o == OBSTACLE_NONE && c->catalogue_complete &&
		    !card_profile(c, a->request.profile))
			o = OBSTACLE_NO_PROFILE;
		if (o == OBSTACLE_NONE && capacity_free_vfs(n, c) == 0)
			o = OBSTACLE_NO_VF;
		obstacles[i] = o;
		possible |= o == OBSTACLE_NONE;
	}
	return possible ? 0 : refuse(a, obstacles, detail, refusals, ret_n_refusals);
}

static void hold(struct allocation *a, struct card *c, const struct profile *p,
		 struct placement_span span)
{
	struct vf *v = capacity_pick_vf(a->node, c, (unsigned)(p - c->types.items), vf_was_tried,
					a);
	uint16_t size = cards_type_size(c, p->type_id);

	a->card = c;
	a->span = span.size ? span : (struct placement_span){ PLACEMENT_NONE, size };
	a->claim = (struct claim){
		.state = CLAIM_STATE_INTENT,
		.type_id = p->type_id,
		.vf = v->address,
		.card = c->address,
		.placement_id = span.size ? span.id : -1,
		.placement_size = size,
		.uid = a->request.who.uid,
		.pid = a->request.pid,
		.pid_start = a->request.pid_start,
	};
	memcpy(a->claim.name, a->request.name, sizeof a->claim.name);
	memcpy(a->claim.profile, p->name, sizeof a->claim.profile);
	memcpy(a->claim.peer, a->request.who.peer, sizeof a->claim.peer);
	memcpy(a->claim.owner, a->request.owner, sizeof a->claim.owner);
	memcpy(a->claim.console_log, a->request.console_log, sizeof a->claim.console_log);
	memcpy(a->claim.channel, a->request.channel, sizeof a->claim.channel);
	memcpy(a->claim.boot_id, a->node->boot_id, sizeof a->claim.boot_id);
	v->hold = VF_HOLD_ALLOCATION;
	v->planned_type = p->type_id;
	v->span = a->span;
	v->span_counted = false;
	node_changed(a->node);
}

void allocation_unhold(struct allocation *a)
{
	struct vf *v = a->card ? node_find_vf(a->node, a->claim.vf, NULL) : NULL;

	if (v && v->hold == VF_HOLD_ALLOCATION) {
		v->hold = VF_HOLD_NONE;
		v->planned_type = 0;
		cards_update_span(a->card, v);
	}
	a->card = NULL;
	node_changed(a->node);
}

/* At that time at the latest, everything that waits is planned once more. */
static void plan_at(struct node *n, uint64_t usec)
{
	uint64_t armed;
	int enabled = 0;

	if (sd_event_source_get_enabled(n->plan_timer, &enabled) > 0 &&
	    sd_event_source_get_time(n->plan_timer, &armed) >= 0 && armed <= usec)
		return;
	sd_event_source_set_time(n->plan_timer, usec);
	sd_event_source_set_enabled(n->plan_timer, SD_EVENT_ONESHOT);
}

/* Lists that were asked for so recently that it is worth to wait; arms the timer for when it is
 * not. */
static bool lists_are_worth_waiting(struct allocation *a, const enum obstacle *obstacles)
{
	uint64_t now = clock_now_usec();
	struct node *n = a->node;

	for (unsigned i = 0; i < n->n_cards; i++) {
		struct card *c = n->cards[i];

		if (obstacles[i] != OBSTACLE_LISTS_PENDING || !c->listing ||
		    now >= c->listing_since_usec + LISTS_PATIENCE_USEC)
			continue;
		plan_at(n, c->listing_since_usec + LISTS_PATIENCE_USEC);
		return true;
	}
	return false;
}

/* Whether a newer answer has to come before the claim may be refused. Each write asks for one when
 * it has ended. */
static bool is_in_doubt(const struct allocation *a, const enum obstacle *obstacles)
{
	uint64_t limit = a->arrived_usec + DOUBT_PATIENCE_USEC;
	struct node *n = a->node;
	bool doubtful = false, written = false;

	for (unsigned i = 0; i < n->n_cards; i++) {
		const struct card *c = n->cards[i];
		const struct profile *p = card_profile(c, a->request.profile);

		if (obstacles[i] != OBSTACLE_NO_PLACEMENT || !p ||
		    !capacity_is_doubtful(n, c, p->type_id))
			continue;
		doubtful = true;
		written |= c->writes > 0;
	}
	if (!doubtful || clock_now_usec() >= limit)
		return false;
	if (!written)
		snapshot_request(n);
	plan_at(n, limit);
	return true;
}

static unsigned quarantined_vfs(const struct card *c)
{
	unsigned count = 0;

	for (unsigned i = 0; i < c->n_vfs; i++)
		count += c->vfs[i].quarantined;
	return count;
}

/* The expected mix in this card's sizes; false when none is configured or none of it is this
 * card's. */
static bool card_mix(const struct node *n, const struct card *c, struct policy_mix *ret)
{
	*ret = (struct policy_mix){ .only = true };
	for (size_t i = 0; i < n->config->n_expected_mix && ret->n < PLACEMENT_CLASSES_MAX; i++) {
		char name[PROFILE_NAME_MAX];
		const struct profile *p;
		uint32_t weight;

		if (config_mix_item(n->config->expected_mix[i], name, sizeof name, &weight, NULL) <
		    0)
			continue;
		p = profile_list_find_name(&c->types, name);
		if (!p)
			continue;
		ret->items[ret->n].size = cards_type_size(c, p->type_id);
		ret->items[ret->n++].weight = weight;
	}
	return ret->n > 0;
}

/* The driver's own choice stands where nothing can ask for another one: placement_id exists from
 * 570 on, and before that a claim is pinned through vgpu_params. */
struct plan_space {
	struct placement_view view;
	struct policy_mix mix;
};

/* The vGPUs whose places are known, wherever that knowledge comes from. */
static void note_vgpus(const struct card *c, struct placement_view *view)
{
	for (unsigned i = 0; i < c->n_vfs; i++)
		if (c->vfs[i].span.size > 0)
			placement_view_note(view, c->vfs[i].span);
}

/* What the policy weighs sizes by: the mix that is configured, or what has been claimed of late. */
static const struct policy_mix *choose_mix(const struct allocation *a, const struct card *c,
					   struct plan_space *space)
{
	if (card_mix(a->node, c, &space->mix))
		return &space->mix;
	if (a->request.policy != POLICY_FORESIGHT)
		return NULL;
	policy_demand_mix(&a->node->demand, &space->view, &space->mix);
	return &space->mix;
}

static void describe_card(const struct allocation *a, const struct card *c, const struct profile *p,
			  struct plan_space *space, struct policy_card *ret)
{
	const struct node *n = a->node;
	struct placement_view *view = &space->view;
	const struct placement_type *t = capacity_placement_type(c, p->type_id);
	struct placement_set overlay;

	*view = (struct placement_view){ 0 };
	capacity_overlay(a->node, c, &overlay);
	for (unsigned i = 0; t && i < c->nvml->n_types; i++)
		placement_view_add(view, &c->nvml->types[i].placement, &overlay);
	note_vgpus(c, view);
	*ret = (struct policy_card){
		.address = c->address,
		.quarantined_vfs = quarantined_vfs(c),
		.used_mb = capacity_used_mb(c),
		.type = t,
		.free = t ? placement_type_free(t, &overlay) : 0,
		.view = view,
		.mix = choose_mix(a, c, space),
		.first_fit_only = node_is_before_570(n) &&
				  n->config->pin_placements == CONFIG_PINS_NEVER,
	};
}

int allocation_choose(struct allocation *a, char detail[static NODE_TEXT_MAX],
		      struct allocation_refusal *refusals, unsigned *ret_n_refusals)
{
	enum obstacle obstacles[INVENTORY_CARDS_MAX] = { 0 };
	struct policy_card candidates[INVENTORY_CARDS_MAX];
	struct card *cards[INVENTORY_CARDS_MAX];
	const struct profile *profiles[INVENTORY_CARDS_MAX];
	struct plan_space spaces[INVENTORY_CARDS_MAX];
	struct policy_choice choice;
	struct node *n = a->node;
	unsigned count = 0;

	if (n->answered_seq <= a->arrived_seq)
		return -EAGAIN;
	if (is_health_unknown(a, detail, ret_n_refusals))
		return -E_HEALTH_STORE_UNAVAILABLE;
	for (unsigned i = 0; i < n->n_cards; i++) {
		struct card *c = n->cards[i];

		obstacles[i] = card_obstacle(a, c);
		if (obstacles[i] != OBSTACLE_NONE)
			continue;
		profiles[count] = card_profile(c, a->request.profile);
		describe_card(a, c, profiles[count], &spaces[count], &candidates[count]);
		cards[count++] = c;
	}
	if (lists_are_worth_waiting(a, obstacles))
		return -EAGAIN;
	if (policy_choose(a->request.policy, candidates, count, &choice) < 0) {
		if (is_in_doubt(a, obstacles))
			return -EAGAIN;
		return refuse(a, obstacles, detail, refusals, ret_n_refusals);
	}
	hold(a, cards[choice.card], profiles[choice.card], choice.span);
	return 0;
}

static bool is_queued_on(const struct allocation *a, const struct card *c)
{
	return a->stage == ALLOCATION_QUEUED && a->card == c;
}

void allocation_replan_card(struct node *n, struct card *c)
{
	for (unsigned i = 0; i < n->n_allocations; i++) {
		struct vf *v = is_queued_on(n->allocations[i], c)
				       ? node_find_vf(n, n->allocations[i]->claim.vf, NULL)
				       : NULL;

		if (v)
			v->span = (struct placement_span){ 0 };
	}
	/* Dropping ends later: the array does not change below this loop. */
	for (unsigned i = 0; i < n->n_allocations; i++) {
		struct allocation *a = n->allocations[i];
		const struct profile *p = profile_list_find_id(&c->types, a->claim.type_id);
		struct vf *v = is_queued_on(a, c) ? node_find_vf(n, a->claim.vf, NULL) : NULL;
		struct plan_space space;
		struct policy_choice choice;
		struct policy_card card;

		if (!v || !p || !capacity_placement_type(c, a->claim.type_id))
			continue;
		describe_card(a, c, p, &space, &card);
		if (policy_choose(a->request.policy, &card, 1, &choice) < 0) {
			a->arrived_seq = node_next_seq(n);
			allocation_drop(a, 0, "");
			continue;
		}
		a->span = choice.span;
		v->span = a->span;
		a->claim.placement_id = a->span.id;
	}
}
