/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/scan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/worker.h"
#include "model/outcome.h"
#include "nvml/client.h"
#include "plugin/discovery.h"
#include "plugin/pci-ids.h"

#define LINGER_USEC (60 * USEC_PER_SEC) /* longer than any question to a helper lives */

struct card {
	struct card_reading reading;
	struct scan *scan;
	struct card_client *client;
	bool in_scan;	    /* has vendor-VFIO VFs in the scan that runs */
	bool listed;	    /* its lists were read in this scan */
	bool bad_lines;	    /* its lists have lines that do not parse, which was said */
	unsigned asked;	    /* questions of this scan that are out */
	uint64_t number;    /* of the scan that they belong to */
	uint64_t gone_usec; /* since when it has no such VFs; 0: it has */
};

struct scan {
	struct scan_config config;
	struct worker *worker;
	struct nvml_client *nvml;
	bool running, again;
	uint64_t number;  /* of the scan */
	unsigned pending; /* answers of helpers that are still waited for */
	sd_event_source *limit;
	struct host_scan *host;
	struct error host_error;
	struct scan_stats stats;
	unsigned n_cards;
	struct card *cards[INVENTORY_CARDS_MAX]; /* owned */
};

static void start(struct scan *s);

/* --- The end --------------------------------------------------------------------------------- */

static int gpu_name(uint32_t device_id, char ret[static NAME_SOURCE_MAX], void *userdata)
{
	static const char *const usual[] = { PCI_IDS_PATHS };
	const struct scan *s = userdata;
	_fclose_ FILE *list = NULL;

	if (s->config.pci_ids)
		list = fopen(s->config.pci_ids, "re");
	for (size_t i = 0; !s->config.pci_ids && !list && i < ARRAY_SIZE(usual); i++)
		list = fopen(usual[i], "re");
	return list ? pci_ids_find(list, device_id, ret) : -ENOENT;
}

static void finish(struct scan *s, struct discovery *take, const struct error *err)
{
	s->host = host_scan_free(s->host);
	s->running = false;
	s->stats.took_usec = clock_now_usec() - s->stats.started_usec;
	s->config.done(take, &s->stats, err, s->config.userdata);
	if (s->again && !s->running)
		start(s);
}

static void build(struct scan *s)
{
	const struct card_reading *cards[INVENTORY_CARDS_MAX];
	struct discovery_input in = { .host = s->host,
				      .cards = cards,
				      .names = s->config.names,
				      .gpu_name = gpu_name,
				      .userdata = s };
	struct discovery *d = NULL;
	struct error err = ERROR_INIT;

	for (unsigned i = 0; i < s->n_cards; i++)
		if (s->cards[i]->in_scan)
			cards[in.n_cards++] = &s->cards[i]->reading;
	if (discovery_build(&in, &d) < 0)
		error_set(&err, ENOMEM, "out of memory");
	finish(s, d, &err);
}

/* --- Names from NVML ------------------------------------------------------------------------- */

static void add_type(struct profile_list *l, const struct profile *p)
{
	if (p->type_id && p->name[0] && !profile_list_find_id(l, p->type_id) &&
	    l->n < PROFILE_TYPES_MAX)
		l->items[l->n++] = *p;
}

static bool has_unnamed_type(const struct card *c)
{
	for (unsigned i = 0; i < c->reading.n_vfs; i++) {
		const struct vf_reading *v = &c->reading.vfs[i];

		if (v->known && v->type_id &&
		    !profile_list_find_id(&c->reading.catalogue, v->type_id))
			return true;
	}
	return false;
}

static struct card *find_card(struct scan *s, struct pci_addr address)
{
	for (unsigned i = 0; i < s->n_cards; i++)
		if (pci_addr_equal(s->cards[i]->reading.address, address))
			return s->cards[i];
	return NULL;
}

static void nvml_done(const struct nvml_answer *answer, void *userdata)
{
	struct scan *s = userdata;

	for (unsigned i = 0; i < answer->n_cards; i++) {
		struct card *c = find_card(s, answer->cards[i].address);

		/* Types count also where placements are not supported. */
		for (unsigned t = 0; c && t < answer->cards[i].n_types; t++)
			add_type(&c->reading.catalogue, &answer->cards[i].types[t].profile);
	}
	if (answer->reason != NVML_REASON_NONE)
		str_copy_cut(s->stats.nvml_text, sizeof s->stats.nvml_text, answer->text);
	nvml_client_release(s->nvml);
	build(s);
}

static void ask_nvml(struct scan *s)
{
	struct pci_addr cards[INVENTORY_CARDS_MAX];
	unsigned n = 0;

	for (unsigned i = 0; i < s->n_cards && n < NVML_CARDS_MAX; i++)
		if (s->cards[i]->in_scan && has_unnamed_type(s->cards[i]))
			cards[n++] = s->cards[i]->reading.address;
	if (n == 0 || !*s->config.nvml_library) {
		build(s);
		return;
	}
	s->stats.nvml_cards = n;
	nvml_client_resume(s->nvml);
	if (nvml_client_query(s->nvml, cards, n, nvml_done, s) < 0)
		build(s);
}

/* --- Types from the cards -------------------------------------------------------------------- */

static void answered(struct scan *s)
{
	if (--s->pending > 0)
		return;
	sd_event_source_set_enabled(s->limit, SD_EVENT_OFF);
	ask_nvml(s);
}

static struct vf_reading *reading_of(struct card *c, struct pci_addr vf)
{
	for (unsigned i = 0; i < c->reading.n_vfs; i++)
		if (pci_addr_equal(c->reading.vfs[i].address, vf))
			return &c->reading.vfs[i];
	return NULL;
}

static void take_state(struct vf_reading *v, int error, uint32_t type_id)
{
	v->error = error;
	if (error) {
		v->failures++;
		return;
	}
	v->failures = 0;
	v->known = true;
	v->type_id = type_id;
}

static void read_done(const struct card_reply *reply, void *userdata);

static void ask_card(struct card *c, enum card_op op)
{
	struct card_request request = { .op = op, .n_vfs = c->reading.n_vfs };
	int r;

	for (unsigned i = 0; i < c->reading.n_vfs; i++)
		request.vfs[i] = c->reading.vfs[i].address;
	c->listed |= op == CARD_OP_LIST;
	r = card_client_submit(c->client, &request, read_done, c);
	if (r == 0) {
		c->number = c->scan->number;
		c->asked++;
		c->scan->pending++;
		return;
	}
	for (unsigned i = 0; i < c->reading.n_vfs; i++)
		take_state(&c->reading.vfs[i], r, 0);
}

static void take_lists(struct card *c, const struct card_reply *reply)
{
	char bdf[PCI_ADDR_MAX];

	if (reply->bad_lines > 0 && !c->bad_lines)
		log_warning("card: %u lines of its lists do not parse, ignoring them card=%s: %s",
			    reply->bad_lines, pci_addr_format(c->reading.address, bdf),
			    reply->text);
	c->bad_lines = reply->bad_lines > 0;
	for (unsigned t = 0; t < reply->types.n; t++)
		add_type(&c->reading.catalogue, &reply->types.items[t]);
}

static void read_done(const struct card_reply *reply, void *userdata)
{
	struct card *c = userdata;
	struct scan *s = c->scan;
	bool late = c->asked == 0 || c->number != s->number;

	for (unsigned i = 0; i < reply->n_vfs; i++) {
		struct vf_reading *v = reading_of(c, reply->vfs[i].address);

		if (v)
			take_state(v, reply->result ? reply->result : reply->vfs[i].error,
				   reply->vfs[i].type_id);
	}
	c->reading.stuck = reply->result == -E_DRIVER_STUCK;
	str_copy_cut(c->reading.reason, sizeof c->reading.reason, reply->text);
	if (reply->result == 0 && reply->op == CARD_OP_LIST)
		take_lists(c, reply);
	else if (reply->result == 0 && !late && !c->listed && has_unnamed_type(c))
		ask_card(c, CARD_OP_LIST);
	if (late && reply->result == 0) {
		scan_request(s); /* what it says came too late for a scan that is over */
	} else if (!late) {
		c->asked--;
		answered(s);
	}
}

/* One card's driver that is slow or hangs holds up nobody else's devices: the scan goes on without.
 */
static int limit_passed(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct scan *s = userdata;
	char bdf[PCI_ADDR_MAX];

	(void)source;
	(void)usec;
	for (unsigned i = 0; i < s->n_cards; i++) {
		struct card *c = s->cards[i];

		if (c->asked == 0 || c->number != s->number)
			continue;
		if (!c->reading.stuck)
			log_warning(
				"card: its driver is slow; its devices stay as they are, going on "
				"without it card=%s",
				pci_addr_format(c->reading.address, bdf));
		for (unsigned v = 0; v < c->reading.n_vfs; v++)
			take_state(&c->reading.vfs[v], -ETIMEDOUT, 0);
		c->asked = 0;
	}
	s->pending = 0;
	ask_nvml(s);
	return 0;
}

static void client_changed(struct card_client *client, enum card_client_state state, void *userdata)
{
	struct card *c = userdata;
	char bdf[PCI_ADDR_MAX];

	pci_addr_format(c->reading.address, bdf);
	if (state == CARD_CLIENT_STUCK)
		log_error("card: its driver does not answer card=%s: %s", bdf,
			  card_client_reason(client));
	else if (state == CARD_CLIENT_READY && c->reading.stuck)
		log_notice("card: its driver answers again card=%s", bdf);
}

static struct card *card_free(struct card *c)
{
	if (c)
		card_client_free(c->client);
	free(c);
	return NULL;
}

static struct card *card_new(struct scan *s, struct pci_addr address)
{
	struct card_client_config config = { .event = s->config.event,
					     .card = address,
					     .sysfs_root = s->config.sysfs_root,
					     .dev_root = s->config.dev_root,
					     .proc_root = "/proc",
					     .lock_dir = s->config.run_dir,
					     .timeout_usec = s->config.card_timeout_usec,
					     .state_changed = client_changed };
	struct error err = ERROR_INIT;
	struct card *c = calloc(1, sizeof *c);
	char bdf[PCI_ADDR_MAX];

	if (!c)
		return NULL;
	c->scan = s;
	c->reading.address = address;
	config.userdata = c;
	if (card_client_new(&config, &c->client, &err) < 0) {
		log_error("card: no helper for it, retrying with the next scan card=%s: %s",
			  pci_addr_format(address, bdf), error_text(&err));
		return card_free(c);
	}
	return c;
}

/* What was known of VFs that are still there is kept. A card all of whose VFs went has lost its
 * driver or had SR-IOV off; its types may be others when they return. */
static void update_vfs(struct card *c, const struct inventory_card *found)
{
	struct vf_reading old[INVENTORY_VFS_MAX];
	unsigned n_old = c->reading.n_vfs;
	bool kept = false;

	memcpy(old, c->reading.vfs, n_old * sizeof old[0]);
	c->reading.n_vfs = 0;
	for (unsigned i = 0; i < found->n_vfs; i++) {
		struct vf_reading *v = &c->reading.vfs[c->reading.n_vfs];

		if (!found->vfs[i].vendor_vfio)
			continue;
		*v = (struct vf_reading){ .address = found->vfs[i].address };
		for (unsigned k = 0; k < n_old; k++)
			if (pci_addr_equal(old[k].address, v->address)) {
				*v = old[k];
				kept = true;
			}
		c->reading.n_vfs++;
	}
	c->in_scan = c->reading.n_vfs > 0;
	c->listed = false;
	if (!kept)
		c->reading.catalogue.n = 0;
}

/* A card that went keeps its helper until whatever that was asked has ended. */
static bool keep_card(struct card *c)
{
	if (c->in_scan) {
		c->gone_usec = 0;
		return true;
	}
	c->reading.n_vfs = 0;
	c->reading.catalogue.n = 0;
	if (c->gone_usec == 0)
		c->gone_usec = clock_now_usec();
	return clock_now_usec() - c->gone_usec < LINGER_USEC;
}

static void update_cards(struct scan *s)
{
	const struct inventory *inv = s->host->inventory;
	unsigned n = 0;

	for (unsigned i = 0; i < s->n_cards; i++)
		s->cards[i]->in_scan = false;
	for (unsigned i = 0; i < inv->n_cards; i++) {
		const struct inventory_card *found = &inv->cards[i];
		struct card *c = find_card(s, found->address);
		bool any = false;

		for (unsigned k = 0; k < found->n_vfs; k++)
			any |= found->vfs[k].vendor_vfio;
		if (any && !c && s->n_cards < INVENTORY_CARDS_MAX) {
			c = card_new(s, found->address);
			if (c)
				s->cards[s->n_cards++] = c;
		}
		if (any && c)
			update_vfs(c, found);
	}
	for (unsigned i = 0; i < s->n_cards; i++) {
		if (keep_card(s->cards[i]))
			s->cards[n++] = s->cards[i];
		else
			card_free(s->cards[i]);
	}
	s->n_cards = n;
}

static void host_done(void *job)
{
	struct scan *s = job;

	if (!s->host) {
		finish(s, NULL, &s->host_error);
		return;
	}
	update_cards(s);
	sd_event_source_set_time(s->limit, clock_now_usec() + s->config.wait_usec);
	sd_event_source_set_enabled(s->limit, SD_EVENT_ONESHOT);
	s->pending = 1; /* ourselves, so that it does not end while cards are still to be asked */
	for (unsigned i = 0; i < s->n_cards; i++)
		if (s->cards[i]->in_scan)
			ask_card(s->cards[i], s->cards[i]->reading.catalogue.n == 0 ? CARD_OP_LIST
										    : CARD_OP_READ);
	answered(s);
}

static void host_run(void *job)
{
	struct scan *s = job;

	s->host_error = ERROR_INIT;
	if (host_scan_run(s->config.sysfs_root, &s->host, &s->host_error) < 0)
		s->host = NULL;
}

/* --- From outside ---------------------------------------------------------------------------- */

static void start(struct scan *s)
{
	s->running = true;
	s->again = false;
	s->number++;
	s->stats = (struct scan_stats){ .started_usec = clock_now_usec() };
	if (worker_submit(s->worker, host_run, host_done, NULL, s) < 0) {
		struct error err = ERROR_INIT;

		error_set(&err, ENOMEM, "out of memory");
		finish(s, NULL, &err);
	}
}

void scan_request(struct scan *s)
{
	if (s->running)
		s->again = true;
	else
		start(s);
}

bool scan_is_running(const struct scan *s)
{
	return s->running;
}

struct card_client *scan_card_client(struct scan *s, struct pci_addr card)
{
	struct card *c = find_card(s, card);

	return c ? c->client : NULL;
}

int scan_new(const struct scan_config *config, struct scan **ret, struct error *err)
{
	struct nvml_client_config nvml = { .event = config->event,
					   .library = config->nvml_library,
					   .timeout_usec = config->nvml_timeout_usec };
	struct scan *s = calloc(1, sizeof *s);
	int r;

	if (!s)
		return error_set(err, ENOMEM, "out of memory");
	s->config = *config;
	r = nvml_client_new(&nvml, &s->nvml, err);
	if (r >= 0) {
		nvml_client_release(s->nvml);
		r = worker_new(config->event, "scan", &s->worker);
		if (r >= 0)
			r = sd_event_add_time(config->event, &s->limit, CLOCK_MONOTONIC, UINT64_MAX,
					      0, limit_passed, s);
		if (r < 0)
			error_set_errno(err, r, "scan thread");
		else
			sd_event_source_set_enabled(s->limit, SD_EVENT_OFF);
	}
	if (r < 0) {
		scan_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

struct scan *scan_free(struct scan *s)
{
	if (!s)
		return NULL;
	if (s->worker)
		worker_free(s->worker);
	sd_event_source_disable_unref(s->limit);
	for (unsigned i = 0; i < s->n_cards; i++)
		card_free(s->cards[i]);
	nvml_client_free(s->nvml);
	host_scan_free(s->host);
	free(s);
	return NULL;
}
