/* SPDX-License-Identifier: Apache-2.0 */
#include "model/fit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/policy.h"

#define STEPS_BETWEEN_LOOKS 1024
#define MEMORY_SLOTS	    (1U << 15) /* failed states remembered; a slot is overwritten, never wrong */

/* Profiles that take the same size on every card are one kind: 4Q and 4A are interchangeable here.
 */
struct kind {
	uint16_t sizes[FIT_CARDS_MAX];
	uint16_t largest;
	unsigned count;
	unsigned n_profiles;
	unsigned profiles[FIT_PROFILES_MAX];
};

struct card_state {
	unsigned free_vfs;
	uint64_t free[PLACEMENT_CLASSES_MAX];
};

struct search {
	const struct fit_card *cards;
	unsigned n_cards, n_kinds;
	struct kind kinds[FIT_PROFILES_MAX];
	struct card_state state[FIT_CARDS_MAX];
	bool (*stop)(void *userdata);
	void *userdata;
	unsigned steps;
	bool cut;
	uint64_t *failed; /* hashes of states from which nothing works */
	unsigned depth, best;
	struct {
		unsigned kind, card;
		struct placement_span span;
	} path[FIT_ITEMS_MAX], best_path[FIT_ITEMS_MAX];
};

void fit_card_set_view(struct fit_card *card, const struct placement_view *view)
{
	card->view = *view;
	for (unsigned i = 0; i < view->n; i++) {
		memcpy(card->ids[i], view->classes[i].ids,
		       view->classes[i].n_ids * sizeof card->ids[i][0]);
		card->view.classes[i].ids = card->ids[i];
	}
}

/* --- State ------------------------------------------------------------------------------------ */

static int class_of(const struct fit_card *card, uint16_t size)
{
	for (unsigned i = 0; size > 0 && i < card->view.n; i++)
		if (card->view.classes[i].size == size)
			return (int)i;
	return -1;
}

static void take(struct search *s, unsigned kind, unsigned card, struct placement_span span)
{
	const struct placement_view *v = &s->cards[card].view;

	for (unsigned i = 0; i < v->n; i++)
		s->state[card].free[i] &= ~placement_class_touched(&v->classes[i], span);
	s->state[card].free_vfs--;
	s->path[s->depth].kind = kind;
	s->path[s->depth].card = card;
	s->path[s->depth].span = span;
	s->depth++;
	if (s->depth > s->best) {
		s->best = s->depth;
		memcpy(s->best_path, s->path, s->depth * sizeof s->path[0]);
	}
}

/* Placements of a kind that are free now, over all cards: an upper bound of how many of it fit. */
static unsigned room_for(const struct search *s, const struct kind *k)
{
	unsigned room = 0;

	for (unsigned c = 0; c < s->n_cards; c++) {
		int class = class_of(&s->cards[c], k->sizes[c]);

		if (class >= 0)
			room += MIN(placement_count(s->state[c].free[class]), s->state[c].free_vfs);
	}
	return room;
}

/* Units that free placements of the remaining kinds cover, and VFs: no packing gets more out of
 * them. */
static bool bounds_hold(const struct search *s, unsigned kind, unsigned left)
{
	unsigned long long needed = 0, units = 0;
	unsigned vfs = 0, items = 0;

	for (unsigned k = kind; k < s->n_kinds; k++) {
		unsigned count = k == kind ? left : s->kinds[k].count;
		uint16_t smallest = UINT16_MAX;

		if (room_for(s, &s->kinds[k]) < count)
			return false;
		for (unsigned c = 0; c < s->n_cards; c++)
			if (s->kinds[k].sizes[c] > 0 && s->kinds[k].sizes[c] < smallest)
				smallest = s->kinds[k].sizes[c];
		needed += (unsigned long long)count * smallest;
		items += count;
	}
	for (unsigned c = 0; c < s->n_cards; c++) {
		struct placement_set covered = { 0 };

		vfs += s->state[c].free_vfs;
		for (unsigned k = kind; k < s->n_kinds; k++) {
			int class = class_of(&s->cards[c], s->kinds[k].sizes[c]);
			const struct placement_class *p =
				class < 0 ? NULL : &s->cards[c].view.classes[class];

			for (unsigned i = 0; p && i < p->n_ids; i++)
				if (s->state[c].free[class] >> i & 1)
					placement_set_add(&covered, (struct placement_span){
									    p->ids[i], p->size });
		}
		for (size_t i = 0; i < ARRAY_SIZE(covered.units); i++)
			units += placement_count(covered.units[i]);
	}
	return needed <= units && items <= vfs;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
	h ^= v + 0x9e3779b97f4a7c15ULL + (h << 6) + (h >> 2);
	h ^= h >> 31;
	return h * 0xbf58476d1ce4e5b9ULL;
}

static uint64_t hash_state(const struct search *s, unsigned kind, unsigned left, unsigned card,
			   unsigned id)
{
	uint64_t h = mix(mix(mix(mix(1, kind), left), card), id);

	for (unsigned c = 0; c < s->n_cards; c++) {
		h = mix(h, s->state[c].free_vfs);
		for (unsigned i = 0; i < s->cards[c].view.n; i++)
			h = mix(h, s->state[c].free[i]);
	}
	return h ? h : 1;
}

/* --- Exact search -------------------------------------------------------------------------------
 */

static bool is_cut(struct search *s)
{
	if (!s->cut && ++s->steps % STEPS_BETWEEN_LOOKS == 0 && s->stop && s->stop(s->userdata))
		s->cut = true;
	return s->cut;
}

/* An earlier card in the very same state was tried at this point: this one would end the same way.
 */
static bool has_twin(const struct search *s, unsigned kind, unsigned first, unsigned card)
{
	const struct placement_view *v = &s->cards[card].view;

	for (unsigned c = first; c < card; c++) {
		const struct placement_view *w = &s->cards[c].view;
		bool same = v->n == w->n && s->state[c].free_vfs == s->state[card].free_vfs &&
			    memcmp(s->state[c].free, s->state[card].free,
				   v->n * sizeof(uint64_t)) == 0;

		for (unsigned k = kind; same && k < s->n_kinds; k++)
			same = s->kinds[k].sizes[c] == s->kinds[k].sizes[card];
		for (unsigned i = 0; same && i < v->n; i++)
			same = v->classes[i].size == w->classes[i].size &&
			       v->classes[i].n_ids == w->classes[i].n_ids &&
			       memcmp(v->classes[i].ids, w->classes[i].ids,
				      v->classes[i].n_ids * sizeof(uint16_t)) == 0;
		if (same)
			return true;
	}
	return false;
}

/* Places `left` more of a kind at or behind (card, id), then the kinds after it. The vGPUs of one
 * kind are alike, so their places are tried in ascending order only. */
static bool place(struct search *s, unsigned kind, unsigned left, unsigned card, unsigned id)
{
	uint64_t hash;

	while (left == 0) {
		if (++kind == s->n_kinds)
			return true;
		left = s->kinds[kind].count;
		card = id = 0;
	}
	if (is_cut(s) || !bounds_hold(s, kind, left))
		return false;
	hash = hash_state(s, kind, left, card, id);
	if (s->failed[hash % MEMORY_SLOTS] == hash)
		return false;
	for (unsigned c = card; c < s->n_cards; c++) {
		int class = class_of(&s->cards[c], s->kinds[kind].sizes[c]);
		const struct placement_class *p = class < 0 ? NULL
							    : &s->cards[c].view.classes[class];
		unsigned from = c == card ? id : 0;

		if (!p || s->state[c].free_vfs == 0 || (c > card && has_twin(s, kind, card + 1, c)))
			continue;
		for (unsigned i = from; i < p->n_ids; i++) {
			struct card_state before = s->state[c];

			if (!(before.free[class] >> i & 1))
				continue;
			take(s, kind, c, (struct placement_span){ p->ids[i], p->size });
			if (place(s, kind, left - 1, c, i + 1))
				return true;
			s->state[c] = before;
			s->depth--;
			if (s->cut)
				return false;
		}
	}
	s->failed[hash % MEMORY_SLOTS] = hash;
	return false;
}

/* --- Greedy: by least waste, the largest first
 * ----------------------------------------------------- */

static bool place_greedily(struct search *s)
{
	for (unsigned k = 0; k < s->n_kinds; k++) {
		for (unsigned left = s->kinds[k].count; left > 0; left--) {
			uint64_t best_loss = UINT64_MAX;
			struct placement_span best = { 0 };
			unsigned best_card = 0;

			for (unsigned c = 0; c < s->n_cards; c++) {
				struct placement_view v = s->cards[c].view;
				int class = class_of(&s->cards[c], s->kinds[k].sizes[c]);

				for (unsigned i = 0; i < v.n; i++)
					v.classes[i].free = s->state[c].free[i];
				for (unsigned i = 0; class >= 0 && s->state[c].free_vfs &&
						     i < v.classes[class].n_ids;
				     i++) {
					struct placement_span span = { v.classes[class].ids[i],
								       v.classes[class].size };
					uint64_t loss;

					if (!(v.classes[class].free >> i & 1))
						continue;
					loss = policy_loss(&v, NULL, span);
					if (loss >= best_loss)
						continue;
					best_loss = loss;
					best = span;
					best_card = c;
				}
			}
			if (best_loss == UINT64_MAX)
				break; /* go on with smaller ones: a better lower bound */
			take(s, k, best_card, best);
		}
	}
	return true;
}

/* --- The question
 * ------------------------------------------------------------------------------------ */

static int by_size_descending(const void *a, const void *b)
{
	const struct kind *x = a, *y = b;

	return (int)y->largest - (int)x->largest;
}

static void make_kinds(struct search *s, const unsigned counts[], unsigned n_profiles)
{
	for (unsigned p = 0; p < n_profiles; p++) {
		struct kind k = { .count = counts[p], .n_profiles = 1, .profiles = { p } };
		unsigned at = 0;

		if (counts[p] == 0)
			continue;
		for (unsigned c = 0; c < s->n_cards; c++) {
			k.sizes[c] = s->cards[c].sizes[p];
			if (k.sizes[c] > k.largest)
				k.largest = k.sizes[c];
		}
		while (at < s->n_kinds && memcmp(s->kinds[at].sizes, k.sizes, sizeof k.sizes) != 0)
			at++;
		if (at == s->n_kinds) {
			s->kinds[s->n_kinds++] = k;
			continue;
		}
		s->kinds[at].count += k.count;
		s->kinds[at].profiles[s->kinds[at].n_profiles++] = p;
	}
	qsort(s->kinds, s->n_kinds, sizeof s->kinds[0], by_size_descending);
}

static void reset(struct search *s)
{
	s->depth = 0;
	for (unsigned c = 0; c < s->n_cards; c++) {
		s->state[c].free_vfs = s->cards[c].free_vfs;
		for (unsigned i = 0; i < s->cards[c].view.n; i++)
			s->state[c].free[i] = s->cards[c].view.classes[i].free;
	}
}

/* Hands the places of each kind to its profiles in turn. */
static void write_steps(const struct search *s, const unsigned counts[], struct fit_result *ret)
{
	for (unsigned i = 0; i < s->best; i++) {
		const struct kind *k = &s->kinds[s->best_path[i].kind];
		unsigned p = 0;

		while (p + 1 < k->n_profiles &&
		       ret->placed[k->profiles[p]] == counts[k->profiles[p]])
			p++;
		ret->placed[k->profiles[p]]++;
		ret->steps[ret->n_steps++] = (struct fit_step){ k->profiles[p],
								s->best_path[i].card,
								s->best_path[i].span };
	}
}

int fit_search(const struct fit_card *cards, unsigned n_cards, const unsigned counts[],
	       unsigned n_profiles, bool (*stop)(void *userdata), void *userdata,
	       struct fit_result *ret)
{
	unsigned long long total = 0;
	struct search *s;
	bool found;

	for (unsigned p = 0; p < n_profiles; p++)
		total += counts[p];
	if (total > FIT_ITEMS_MAX || n_profiles > FIT_PROFILES_MAX || n_cards > FIT_CARDS_MAX)
		return -E2BIG;
	s = calloc(1, sizeof *s);
	if (!s)
		return -ENOMEM;
	s->failed = calloc(MEMORY_SLOTS, sizeof *s->failed);
	if (!s->failed) {
		free(s);
		return -ENOMEM;
	}
	s->cards = cards;
	s->n_cards = n_cards;
	s->stop = stop;
	s->userdata = userdata;
	make_kinds(s, counts, n_profiles);
	reset(s);
	place_greedily(s);
	found = s->depth == total;
	if (!found) {
		reset(s);
		found = place(s, 0, s->kinds[0].count, 0, 0);
	}
	memset(ret, 0, sizeof *ret);
	ret->answer = found ? FIT_YES : s->cut ? FIT_CUT : FIT_NO;
	write_steps(s, counts, ret);
	free(s->failed);
	free(s);
	return 0;
}

int fit_max(const struct fit_card *cards, unsigned n_cards, const unsigned counts[],
	    unsigned n_profiles, unsigned more, bool (*stop)(void *userdata), void *userdata,
	    unsigned *ret_count, bool *ret_exact)
{
	struct fit_result *result = malloc(sizeof *result);
	unsigned wanted[FIT_PROFILES_MAX] = { 0 };
	int r = 0;

	if (!result)
		return -ENOMEM;
	memcpy(wanted, counts, MIN(n_profiles, (unsigned)FIT_PROFILES_MAX) * sizeof wanted[0]);
	for (;;) {
		r = fit_search(cards, n_cards, wanted, n_profiles, stop, userdata, result);
		if (r < 0 || result->answer != FIT_YES)
			break;
		wanted[more]++;
	}
	if (r == 0 || (r == -E2BIG && wanted[more] > counts[more])) {
		*ret_exact = r == 0 && result->answer == FIT_NO;
		r = 0;
		if (wanted[more] == counts[more])
			r = -ENOENT;
		else
			*ret_count = wanted[more] - 1 - counts[more];
	}
	free(result);
	return r;
}
