/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench-placement-churn: how much of a demand each placement rule serves, over the model alone.
 *
 * Claims of a mix of profiles come at random (Poisson) and stay for a random time (log-normal) on
 * cards like an L40S in mixed-size mode; a claim that finds no placement is lost. The random
 * numbers are those of CPython's random module, so a seed means the same arrivals for every rule
 * and also for other programs that draw in that order. The product's policies are asked themselves
 * (policy_choose()); the rules that were tried beside them live here. Prints one JSON line a run.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model/policy.h"
#include "twister.h"
#include "workload.h"

#define PLACES_MAX 96U
#define CARD_VFS   32U
#define CARDS_MAX  64U
#define LIST_MAX   16U
#define DEMAND_MAX 1024U

/* How a tried rule weighs a size. */
enum weights {
	WEIGHTS_ALIKE,
	WEIGHTS_MIX,	  /* the true shares */
	WEIGHTS_ASKED,	  /* shares among the last claims, refused ones too */
	WEIGHTS_ACCEPTED, /* shares among the last claims that were served */
	WEIGHTS_PRESENT,  /* shares among the vGPUs that are there */
};

enum tie { TIE_FULLER, TIE_EMPTIER, TIE_FIRST };

/* A tried rule: a placement costs the sum over all that it touches of weight x size^power x
 * foresight^(vGPUs in the way), divided by the free placements of that size if scarce. */
struct rule {
	const char *name;
	enum { RULE_PRODUCT, RULE_TRIED, RULE_BOUND } kind;
	enum policy policy; /* RULE_PRODUCT */
	double power, foresight;
	enum weights weights;
	unsigned window; /* claims remembered */
	bool scarce;
	enum tie tie;
	bool look_ahead; /* cost is that of the best next claim of each size, too */
};

static const struct rule rules[] = {
	{ .name = "least_loaded", .policy = POLICY_LEAST_LOADED },
	{ .name = "least_waste", .policy = POLICY_LEAST_WASTE },
	{ .name = "foresight", .policy = POLICY_FORESIGHT },
	{ .name = "tie-emptier", .kind = RULE_TRIED, .power = 1, .tie = TIE_EMPTIER },
	{ .name = "tie-first", .kind = RULE_TRIED, .power = 1, .tie = TIE_FIRST },
	{ .name = "count-only", .kind = RULE_TRIED, .power = 0 },
	{ .name = "squared", .kind = RULE_TRIED, .power = 2 },
	{ .name = "mix", .kind = RULE_TRIED, .power = 1, .weights = WEIGHTS_MIX },
	{ .name = "scarce", .kind = RULE_TRIED, .power = 1, .scarce = true },
	{ .name = "mix-scarce",
	  .kind = RULE_TRIED,
	  .power = 1,
	  .weights = WEIGHTS_MIX,
	  .scarce = true },
	{ .name = "look-ahead", .kind = RULE_TRIED, .power = 1, .look_ahead = true },
	{ .name = "f.02", .kind = RULE_TRIED, .power = 1, .foresight = .02 },
	{ .name = "f.10", .kind = RULE_TRIED, .power = 1, .foresight = .10 },
	{ .name = "f.25", .kind = RULE_TRIED, .power = 1, .foresight = .25 },
	{ .name = "f.50", .kind = RULE_TRIED, .power = 1, .foresight = .50 },
	{ .name = "f.80", .kind = RULE_TRIED, .power = 1, .foresight = .80 },
	{ .name = "f.25-squared", .kind = RULE_TRIED, .power = 2, .foresight = .25 },
	{ .name = "f.25-scarce", .kind = RULE_TRIED, .power = 1, .foresight = .25, .scarce = true },
	{ .name = "f.25-mix",
	  .kind = RULE_TRIED,
	  .power = 1,
	  .foresight = .25,
	  .weights = WEIGHTS_MIX },
	{ .name = "f.25-mix-scarce",
	  .kind = RULE_TRIED,
	  .power = 1,
	  .foresight = .25,
	  .weights = WEIGHTS_MIX,
	  .scarce = true },
	{ .name = "f.25-asked128-scarce",
	  .kind = RULE_TRIED,
	  .power = 1,
	  .foresight = .25,
	  .weights = WEIGHTS_ASKED,
	  .window = 128,
	  .scarce = true },
	{ .name = "f.25-served32-scarce",
	  .kind = RULE_TRIED,
	  .power = 1,
	  .foresight = .25,
	  .weights = WEIGHTS_ACCEPTED,
	  .window = 32,
	  .scarce = true },
	{ .name = "f.25-served512-scarce",
	  .kind = RULE_TRIED,
	  .power = 1,
	  .foresight = .25,
	  .weights = WEIGHTS_ACCEPTED,
	  .window = 512,
	  .scarce = true },
	{ .name = "f.25-present-scarce",
	  .kind = RULE_TRIED,
	  .power = 1,
	  .foresight = .25,
	  .weights = WEIGHTS_PRESENT,
	  .scarce = true },
	{ .name = "bound", .kind = RULE_BOUND }, /* no geometry at all: what no rule can pass */
};

/* --- Geometry ----------------------------------------------------------------------------------
 */

struct place {
	unsigned class;
	uint16_t id;
	unsigned n_touched;
	uint8_t touched[PLACES_MAX];
};

static unsigned n_places, first_place[WORKLOAD_CLASSES];
static struct place places[PLACES_MAX];

static void make_geometry(void)
{
	workload_make();
	for (unsigned c = 0; c < WORKLOAD_CLASSES; c++) {
		first_place[c] = n_places;
		for (unsigned i = 0; i < workload_types[c].n_ids; i++)
			places[n_places++] = (struct place){ .class = c,
							     .id = workload_types[c].ids[i] };
	}
	for (unsigned a = 0; a < n_places; a++)
		for (unsigned b = 0; b < n_places; b++)
			if (places[a].id < places[b].id + workload_types[places[b].class].size &&
			    places[b].id < places[a].id + workload_types[places[a].class].size)
				places[a].touched[places[a].n_touched++] = (uint8_t)b;
}

/* --- State ---------------------------------------------------------------------------------------
 */

struct card {
	unsigned used, vgpus;
	unsigned n_free[WORKLOAD_CLASSES];
	struct placement_view view;
};

struct departure {
	double at;
	unsigned card, class;
	int place; /* -1: the bound has no places */
};

struct churn {
	const struct rule *rule;
	const struct workload_mix *mix;
	unsigned n_cards;
	struct card cards[CARDS_MAX];
	unsigned free[WORKLOAD_CLASSES], present[WORKLOAD_CLASSES];
	struct policy_demand demand;
	unsigned n_seen, seen[DEMAND_MAX];
	unsigned n_departures;
	struct departure departures[CARDS_MAX * CARD_VFS + 1];
	unsigned long long choices, choice_nsec;
};

static void change(struct churn *s, unsigned card, unsigned place, int by)
{
	const struct place *p = &places[place];
	struct card *c = &s->cards[card];

	for (unsigned i = 0; i < p->n_touched; i++) {
		const struct place *q = &places[p->touched[i]];
		struct placement_class *class = &c->view.classes[q->class];
		unsigned at = p->touched[i] - first_place[q->class];
		bool was_free = class->in_the_way[at] == 0, is_free;

		class->in_the_way[at] = (uint8_t)(class->in_the_way[at] + by);
		is_free = class->in_the_way[at] == 0;
		if (was_free == is_free)
			continue;
		class->free ^= UINT64_C(1) << at;
		c->n_free[q->class] += is_free ? 1U : -1U;
		s->free[q->class] += is_free ? 1U : -1U;
	}
}

static void occupy(struct churn *s, unsigned card, unsigned class, int place, int by)
{
	s->cards[card].used += (unsigned)by * workload_types[class].size;
	s->cards[card].vgpus += (unsigned)by;
	s->present[class] += (unsigned)by;
	if (place >= 0)
		change(s, card, (unsigned)place, by);
}

static void depart_later(struct churn *s, struct departure d)
{
	unsigned i = s->n_departures++;

	while (i > 0 && s->departures[(i - 1) / 2].at > d.at) {
		s->departures[i] = s->departures[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	s->departures[i] = d;
}

static struct departure take_first_departure(struct churn *s)
{
	struct departure first = s->departures[0], last = s->departures[--s->n_departures];
	unsigned i = 0, child;

	while ((child = 2 * i + 1) < s->n_departures) {
		if (child + 1 < s->n_departures &&
		    s->departures[child + 1].at < s->departures[child].at)
			child++;
		if (s->departures[child].at >= last.at)
			break;
		s->departures[i] = s->departures[child];
		i = child;
	}
	s->departures[i] = last;
	return first;
}

static bool is_usable(const struct churn *s, unsigned card, unsigned class)
{
	return s->cards[card].vgpus < CARD_VFS && s->cards[card].n_free[class] > 0;
}

/* --- Rules ---------------------------------------------------------------------------------------
 */

static uint64_t now_nsec(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static bool choose_by_product(struct churn *s, unsigned class, unsigned *ret_card, int *ret_place)
{
	static struct policy_card candidates[CARDS_MAX];
	static struct policy_mix mix;
	unsigned cards[CARDS_MAX], n = 0;
	struct policy_choice choice;
	uint64_t begun;
	int r;

	if (s->rule->policy == POLICY_FORESIGHT)
		policy_demand_mix(&s->demand, &s->cards[0].view, &mix);
	for (unsigned c = 0; c < s->n_cards; c++) {
		if (!is_usable(s, c, class))
			continue;
		cards[n] = c;
		candidates[n++] = (struct policy_card){
			.address = { .bus = (uint8_t)(c + 1) },
			.used_mb = s->cards[c].used * UINT64_C(1024),
			.type = &workload_types[class],
			.free = s->cards[c].view.classes[class].free,
			.view = &s->cards[c].view,
			.mix = s->rule->policy == POLICY_FORESIGHT ? &mix : NULL,
		};
	}
	begun = now_nsec();
	r = policy_choose(s->rule->policy, candidates, n, &choice);
	s->choice_nsec += now_nsec() - begun;
	s->choices++;
	if (r < 0)
		return false;
	*ret_card = cards[choice.card];
	*ret_place = (int)first_place[class] +
		     placement_type_find(&workload_types[class], choice.span.id);
	return true;
}

static bool choose_by_bound(const struct churn *s, unsigned class, unsigned *ret_card,
			    int *ret_place)
{
	bool found = false;

	for (unsigned c = 0; c < s->n_cards; c++) {
		const struct card *card = &s->cards[c];

		if (card->vgpus == CARD_VFS ||
		    WORKLOAD_REGION - card->used < workload_types[class].size ||
		    (found && card->used < s->cards[*ret_card].used))
			continue;
		*ret_card = c;
		found = true;
	}
	*ret_place = -1;
	return found;
}

static void weigh(const struct churn *s, double weights[static WORKLOAD_CLASSES])
{
	const struct rule *r = s->rule;
	double shares[WORKLOAD_CLASSES] = { 0 }, total = 0;
	unsigned remembered = MIN(s->n_seen, r->window);

	for (unsigned i = 0; i < s->mix->n && r->weights == WEIGHTS_MIX; i++)
		shares[s->mix->items[i].class] = s->mix->items[i].weight;
	for (unsigned i = 1; i <= remembered; i++)
		shares[s->seen[(s->n_seen - i) % DEMAND_MAX]]++;
	for (unsigned c = 0; c < WORKLOAD_CLASSES && r->weights == WEIGHTS_PRESENT; c++)
		shares[c] = s->present[c];
	for (unsigned c = 0; c < WORKLOAD_CLASSES; c++)
		total += shares[c];
	for (unsigned c = 0; c < WORKLOAD_CLASSES; c++) {
		weights[c] = r->weights == WEIGHTS_MIX ? shares[c]
						       : shares[c] + total / 10 / WORKLOAD_CLASSES;
		if (r->weights == WEIGHTS_ALIKE || total <= 0)
			weights[c] = 1;
		weights[c] *= pow(workload_types[c].size, r->power);
		if (r->scarce)
			weights[c] /= MAX(s->free[c], 1U);
	}
}

static double cost_of(const struct churn *s, unsigned card, unsigned place,
		      const double weights[static WORKLOAD_CLASSES],
		      const double chances[static CARD_VFS])
{
	double cost = 0;

	for (unsigned i = 0; i < places[place].n_touched; i++) {
		unsigned q = places[place].touched[i], class = places[q].class;

		cost += weights[class] *
			chances[s->cards[card].view.classes[class].in_the_way[q -
									      first_place[class]]];
	}
	return cost;
}

/* What the cheapest next claim of each size would cost on this card, each size alike. */
static double cost_of_next(struct churn *s, unsigned card, unsigned place,
			   const double weights[static WORKLOAD_CLASSES],
			   const double chances[static CARD_VFS])
{
	double sum = 0;

	change(s, card, place, 1);
	for (unsigned class = 0; class < WORKLOAD_CLASSES; class ++) {
		double best = 0;
		bool found = false;

		for (unsigned i = 0; i < workload_types[class].n_ids; i++) {
			double cost;

			if (s->cards[card].view.classes[class].in_the_way[i] > 0)
				continue;
			cost = cost_of(s, card, first_place[class] + i, weights, chances);
			if (!found || cost < best)
				best = cost;
			found = true;
		}
		sum += found ? best : 2.0 * WORKLOAD_REGION;
	}
	change(s, card, place, -1);
	return sum / WORKLOAD_CLASSES;
}

static double tie_of(const struct rule *r, const struct card *c)
{
	return r->tie == TIE_FULLER    ? -(double)c->used
	       : r->tie == TIE_EMPTIER ? (double)c->used
				       : 0;
}

static bool choose_by_cost(struct churn *s, unsigned class, unsigned *ret_card, int *ret_place)
{
	double weights[WORKLOAD_CLASSES], chances[CARD_VFS + 1], best = 0;
	bool found = false;

	weigh(s, weights);
	for (unsigned k = 0; k <= CARD_VFS; k++)
		chances[k] = k == 0 ? 1 : pow(s->rule->foresight, k);
	for (unsigned c = 0; c < s->n_cards; c++) {
		for (unsigned i = 0; is_usable(s, c, class) && i < workload_types[class].n_ids;
		     i++) {
			unsigned place = first_place[class] + i;
			double cost;

			if (s->cards[c].view.classes[class].in_the_way[i] > 0)
				continue;
			cost = cost_of(s, c, place, weights, chances);
			if (s->rule->look_ahead)
				cost += cost_of_next(s, c, place, weights, chances);
			if (found &&
			    (cost > best + 1e-9 ||
			     (cost > best - 1e-9 && tie_of(s->rule, &s->cards[c]) >=
							    tie_of(s->rule, &s->cards[*ret_card]))))
				continue;
			found = true;
			best = cost;
			*ret_card = c;
			*ret_place = (int)place;
		}
	}
	return found;
}

static bool choose(struct churn *s, unsigned class, unsigned *ret_card, int *ret_place)
{
	switch (s->rule->kind) {
	case RULE_PRODUCT:
		return choose_by_product(s, class, ret_card, ret_place);
	case RULE_TRIED:
		return choose_by_cost(s, class, ret_card, ret_place);
	case RULE_BOUND:
		return choose_by_bound(s, class, ret_card, ret_place);
	}
	return false;
}

/* --- Runs ----------------------------------------------------------------------------------------
 */

static void remember(struct churn *s, unsigned class)
{
	s->seen[s->n_seen++ % DEMAND_MAX] = class;
}

static void start(struct churn *s, const struct rule *rule, const struct workload_mix *mix,
		  unsigned n_cards)
{
	static const struct placement_set none;

	memset(s, 0, sizeof *s);
	s->rule = rule;
	s->mix = mix;
	s->n_cards = n_cards;
	for (unsigned c = 0; c < n_cards; c++) {
		for (unsigned k = 0; k < WORKLOAD_CLASSES; k++) {
			placement_view_add(&s->cards[c].view, &workload_types[k], &none);
			s->cards[c].n_free[k] = workload_types[k].n_ids;
			s->free[k] += workload_types[k].n_ids;
		}
	}
}

static void run(const struct rule *rule, const struct workload_mix *mix, unsigned n_cards,
		double load, unsigned arrivals, unsigned seed)
{
	static struct churn s;
	unsigned seen = 0, got = 0, seen_gb = 0, got_gb = 0;
	double now = 0, rate = workload_rate(mix, n_cards, load);

	start(&s, rule, mix, n_cards);
	twister_seed(seed);
	for (unsigned k = 0; k < arrivals; k++) {
		bool counts = k >= arrivals / 10; /* the cards have filled by then */
		unsigned class, card = 0;
		double hold;
		int place = -1;

		now += twister_exponential(rate);
		class = workload_draw(mix);
		hold = workload_hold();
		while (s.n_departures > 0 && s.departures[0].at <= now) {
			struct departure d = take_first_departure(&s);

			occupy(&s, d.card, d.class, d.place, -1);
		}
		seen += counts;
		seen_gb += counts ? workload_types[class].size : 0;
		if (rule->weights == WEIGHTS_ASKED)
			remember(&s, class);
		if (!choose(&s, class, &card, &place))
			continue;
		occupy(&s, card, class, place, 1);
		depart_later(&s, (struct departure){ now + hold, card, class, place });
		policy_demand_add(&s.demand, workload_types[class].size);
		if (rule->weights == WEIGHTS_ACCEPTED)
			remember(&s, class);
		got += counts;
		got_gb += counts ? workload_types[class].size : 0;
	}
	printf("{\"rule\": \"%s\", \"cards\": %u, \"mix\": \"%s\", \"load\": %g, \"seed\": %u, "
	       "\"claims\": %.5f, "
	       "\"gb\": %.5f, \"choice_nsec\": %llu}\n",
	       rule->name, n_cards, mix->name, load, seed, (double)got / seen,
	       (double)got_gb / seen_gb, s.choices ? s.choice_nsec / s.choices : 0);
}

/* "1,2,8" */
static unsigned parse_numbers(char *text, double numbers[static LIST_MAX])
{
	char *rest = NULL;
	unsigned n = 0;

	for (char *t = strtok_r(text, ",", &rest); t && n < LIST_MAX;
	     t = strtok_r(NULL, ",", &rest))
		numbers[n++] = strtod(t, NULL);
	return n;
}

static bool is_named(const char *list, const char *name)
{
	size_t len = strlen(name);

	for (const char *p = list; (p = strstr(p, name)) != NULL; p += len)
		if ((p == list || p[-1] == ',') && (p[len] == ',' || p[len] == '\0'))
			return true;
	return false;
}

static void usage(void)
{
	fputs("Usage: bench-placement-churn [--cards 1,2] [--loads 0.8] [--mixes small,broad] "
	      "[--rules A,B]\n"
	      "           [--seeds 10] [--arrivals 6000]\nRules:",
	      stderr);
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
		fprintf(stderr, " %s", rules[i].name);
	fputc('\n', stderr);
	exit(2);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "cards", required_argument, NULL, 'c' },
		{ "loads", required_argument, NULL, 'l' },
		{ "mixes", required_argument, NULL, 'm' },
		{ "rules", required_argument, NULL, 'r' },
		{ "seeds", required_argument, NULL, 's' },
		{ "arrivals", required_argument, NULL, 'a' },
		{ 0 },
	};
	unsigned seeds = 10, arrivals = 6000, n_cards = 1, n_loads = 1;
	const char *only_mixes = NULL, *only_rules = NULL;
	double cards[LIST_MAX] = { 8 }, loads[LIST_MAX] = { 0.8 };
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (opt == 'c')
			n_cards = parse_numbers(optarg, cards);
		else if (opt == 'l')
			n_loads = parse_numbers(optarg, loads);
		else if (opt == 'm')
			only_mixes = optarg;
		else if (opt == 'r')
			only_rules = optarg;
		else if (opt == 's')
			seeds = (unsigned)strtoul(optarg, NULL, 10);
		else if (opt == 'a')
			arrivals = (unsigned)strtoul(optarg, NULL, 10);
		else
			usage();
	}
	for (unsigned i = 0; i < n_cards; i++)
		if (cards[i] < 1 || cards[i] > CARDS_MAX)
			usage();
	make_geometry();
	for (size_t r = 0; r < ARRAY_SIZE(rules); r++)
		for (size_t m = 0; m < WORKLOAD_MIXES; m++)
			for (unsigned c = 0; c < n_cards; c++)
				for (unsigned l = 0; l < n_loads; l++)
					for (unsigned s = 1; s <= seeds; s++)
						if ((!only_rules ||
						     is_named(only_rules, rules[r].name)) &&
						    (!only_mixes ||
						     is_named(only_mixes, workload_mixes[m].name)))
							run(&rules[r], &workload_mixes[m],
							    (unsigned)cards[c], loads[l], arrivals,
							    s);
	return EXIT_SUCCESS;
}
