/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/simtree.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/str.h"

/* attr 8 bits, fn 8, card 8, kind 8, generation 16 (it may wrap: 65536 re-appearances of a
 * function while one file stays open do not happen). */
uint64_t sim_node_pack(const struct sim_node *node)
{
	return (uint64_t)(node->generation & 0xffff) << 32 | (uint64_t)node->kind << 24 |
	       (uint64_t)node->card << 16 | (uint64_t)node->fn << 8 | node->attr;
}

struct sim_node sim_node_unpack(uint64_t ino)
{
	return (struct sim_node){
		.kind = (enum sim_kind)(ino >> 24 & 0xff),
		.card = ino >> 16 & 0xff,
		.fn = ino >> 8 & 0xff,
		.attr = ino & 0xff,
		.generation = ino >> 32 & 0xffff,
	};
}

void sim_listing_done(struct sim_listing *l)
{
	free(l->entries);
	*l = (struct sim_listing){ 0 };
}

void sim_listing_add(struct sim_listing *l, const char *name, const struct sim_node *node)
{
	struct sim_entry *e;

	if (l->wanted) {
		if (l->found || strcmp(l->wanted, name) != 0)
			return;
		l->found = true;
		e = &l->match;
	} else {
		if (array_reserve(l->entries, l->count, l->cap) < 0) {
			l->failed = true;
			return;
		}
		e = &l->entries[l->count++];
	}
	e->ino = sim_node_pack(node);
	str_copy_cut(e->name, sizeof(e->name), name);
}

struct sim_node sim_function_node(const struct sim_card *card, uint32_t fn, enum sim_kind kind,
				  uint32_t attr)
{
	return (struct sim_node){
		.kind = kind,
		.card = card->index,
		.fn = fn,
		.attr = attr,
		.generation = fn == SIM_FUNCTION_PF ? card->generation : card->vfs[fn].generation,
	};
}

bool sim_node_alive(const struct sim *sim, const struct sim_node *node)
{
	const struct sim_card *card;

	if (node->card >= sim->card_count)
		return false;
	card = &sim->cards[node->card];
	if (node->fn == SIM_FUNCTION_PF)
		return card->present && (card->generation & 0xffff) == node->generation;
	if (node->fn >= card->total_vfs || !sim_vf_visible(&card->vfs[node->fn]))
		return false;
	return (card->vfs[node->fn].generation & 0xffff) == node->generation;
}
