/* SPDX-License-Identifier: Apache-2.0 */
/* Cards, VFs, VFIO, sysfs: what the PCI core shows. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "cli/doctor/doctor.h"

bool doctor_is_excluded(const struct doctor *d, struct pci_addr address)
{
	for (size_t i = 0; i < d->config->n_exclude; i++)
		if (pci_addr_equal(d->config->exclude[i], address))
			return true;
	return false;
}

const json_t *doctor_find_gpu(const struct doctor *d, struct pci_addr address)
{
	char wanted[PCI_ADDR_MAX], text[CLI_FIELD_SIZE];
	const json_t *gpu;
	size_t i;

	pci_addr_format(address, wanted);
	json_array_foreach(cli_field_array(d->gpus, "gpus"), i, gpu)
		if (strcmp(cli_field(gpu, "address", text, sizeof text), wanted) == 0)
			return gpu;
	return NULL;
}

void doctor_group_add(struct doctor_group *g, const char *vf, const char *what)
{
	if (g->n++ > 0)
		return;
	str_copy_cut(g->first, sizeof g->first, vf);
	str_copy_cut(g->what, sizeof g->what, what);
}

void doctor_group_report(struct doctor *d, enum doctor_id id, const char *card,
			 const struct doctor_group *g)
{
	if (g->n == 1)
		doctor_report_add(&d->report, id, card, "VF %s: %s", g->first, g->what);
	else if (g->n > 1)
		doctor_report_add(&d->report, id, card, "%u VFs, the first is %s: %s", g->n,
				  g->first, g->what);
}

/* What most checks here begin with. */
static bool host_is_known(struct doctor *d, enum doctor_check c)
{
	if (d->host->known && d->host->scan_error == 0)
		return true;
	doctor_report_not_made(&d->report, c, "the PCI devices of this host could not be listed");
	return false;
}

/* --- Cards ----------------------------------------------------------------------------------- */

/* A host whose cards can have VFs, whether or not they are there. */
static bool is_vgpu_host(const struct doctor_host *h)
{
	for (unsigned i = 0; i < h->n_cards; i++)
		if (h->cards[i].n_vfs > 0 ||
		    (h->cards[i].total_vfs > 0 && strcmp(h->cards[i].driver, "nvidia") == 0))
			return true;
	return false;
}

static void check_card(struct doctor *d, const struct inventory_card *c)
{
	char card[PCI_ADDR_MAX];

	pci_addr_format(c->address, card);
	if (c->reason[0])
		doctor_report_add(&d->report, DOCTOR_CARD_UNREADABLE, card, "%s", c->reason);
	if (doctor_is_excluded(d, c->address)) {
		doctor_report_add(&d->report, DOCTOR_CARD_EXCLUDED, card, "gpu.exclude names %s",
				  card);
		return;
	}
	if (c->total_vfs > 0 && strcmp(c->driver, "nvidia") != 0)
		doctor_report_add(&d->report, DOCTOR_CARD_WRONG_DRIVER, card, "%s%s",
				  c->driver[0] ? "bound to " : "bound to no driver", c->driver);
	else if (c->total_vfs > 0 && c->n_vfs == 0)
		doctor_report_add(&d->report, DOCTOR_CARD_NO_VFS, card,
				  "sriov_totalvfs is %u, and there is no virtfn0", c->total_vfs);
	if (c->numa_node < 0 && d->host->n_numa_nodes > 1)
		doctor_report_add(&d->report, DOCTOR_NUMA_UNKNOWN, card,
				  "numa_node is -1 or not on this machine, which has %u nodes",
				  d->host->n_numa_nodes);
}

void doctor_check_cards(struct doctor *d)
{
	const struct doctor_host *h = d->host;

	if (h->known && h->scan_error < 0)
		doctor_report_add(&d->report, DOCTOR_HOST_UNREADABLE, d->config->sysfs_root, "%s",
				  h->scan_text);
	if (!host_is_known(d, DOCTOR_CHECK_CARDS))
		return;
	if (h->n_cards == 0) {
		doctor_report_add(&d->report, DOCTOR_NO_CARD, d->config->sysfs_root,
				  "no display controller of vendor 0x10de in bus/pci/devices");
	} else if (h->framework == FRAMEWORK_MDEV) {
		doctor_report_add(&d->report, DOCTOR_MDEV_FRAMEWORK, d->config->sysfs_root,
				  "a card or VF has mdev_supported_types");
	} else if (!is_vgpu_host(h)) {
		char card[PCI_ADDR_MAX];

		doctor_report_add(
			&d->report, DOCTOR_PASSTHROUGH_ONLY,
			pci_addr_format(h->cards[0].address, card),
			"%u card%s, none with VFs or bound to a driver that can make some",
			h->n_cards, h->n_cards == 1 ? "" : "s");
	}
	for (unsigned i = 0; i < h->n_cards; i++)
		/* Cards that are passed through on purpose lack nothing. */
		if (is_vgpu_host(h) && h->framework != FRAMEWORK_MDEV)
			check_card(d, &h->cards[i]);
	doctor_report_made(&d->report, DOCTOR_CHECK_CARDS);
}

/* --- VFs ------------------------------------------------------------------------------------- */

/* The daemon reads the attributes once a second; what it could not read it says. */
static void add_unreadable(struct doctor *d, unsigned card, const struct inventory_vf *v,
			   const char *vf, struct doctor_group *unreadable)
{
	const json_t *gpu, *row;
	char text[CLI_FIELD_SIZE];
	size_t i, k;

	json_array_foreach(cli_field_array(d->gpus, "gpus"), i, gpu)
		json_array_foreach(cli_field_array(gpu, "vfs"), k, row)
			if (strcmp(cli_field(row, "address", text, sizeof text), vf) == 0 &&
			    json_is_false(json_object_get(row, "usable")) &&
			    cli_field_is_set(row, "reason") && !cli_field_is_set(gpu, "stuck"))
				doctor_group_add(unreadable, vf,
						 cli_field(row, "reason", text, sizeof text));
	if (d->types[card].asked && d->types[card].error == 0 &&
	    d->types[card].errors[v - d->host->cards[card].vfs] < 0)
		doctor_group_add(
			unreadable, vf,
			strerrordesc_np(-d->types[card].errors[v - d->host->cards[card].vfs]));
}

/* Could the types of this card's VFs be read? */
static void note_unread(struct doctor *d, unsigned card)
{
	const struct doctor_types *t = &d->types[card];
	const json_t *gpu = doctor_find_gpu(d, d->host->cards[card].address);
	unsigned n_vfs = d->host->cards[card].n_vfs;
	char address[PCI_ADDR_MAX];

	pci_addr_format(d->host->cards[card].address, address);
	if (n_vfs == 0)
		return;
	if (d->status && cli_field_is_set(gpu, "stuck"))
		doctor_report_not_made(&d->report, DOCTOR_CHECK_VFS,
				       "the driver of %s does not let its VFs be read", address);
	else if (d->status && !cli_field_array(gpu, "vfs"))
		doctor_report_not_made(&d->report, DOCTOR_CHECK_VFS, "berthd does not list %s",
				       address);
	else if (!d->status && t->error == -ETIMEDOUT)
		doctor_report_not_made(&d->report, DOCTOR_CHECK_VFS,
				       "%s: %u of %u VFs were read within %llu ms", address,
				       t->n_read, n_vfs, (unsigned long long)t->limit_usec / 1000);
	else if (!d->status && (!t->asked || t->error < 0))
		doctor_report_not_made(&d->report, DOCTOR_CHECK_VFS,
				       "%s: its VFs could not be read: %s", address,
				       strerrordesc_np(t->asked ? -t->error : ECHILD));
}

static void check_vfs_of(struct doctor *d, unsigned card)
{
	struct doctor_group driver = { 0 }, interface = { 0 }, unreadable = { 0 }, excluded = { 0 };
	const struct inventory_card *c = &d->host->cards[card];
	char vf[PCI_ADDR_MAX], address[PCI_ADDR_MAX];

	for (unsigned i = 0; i < c->n_vfs; i++) {
		const struct inventory_vf *v = &c->vfs[i];

		pci_addr_format(v->address, vf);
		if (doctor_is_excluded(d, v->address)) {
			doctor_group_add(&excluded, vf, "gpu.exclude names it");
			continue;
		}
		if (strcmp(v->driver, "nvidia") != 0)
			doctor_group_add(&driver, vf, v->reason);
		else if (!v->vendor_vfio && !v->mdev)
			doctor_group_add(&interface, vf, v->reason);
		else if (v->vendor_vfio)
			add_unreadable(d, card, v, vf, &unreadable);
	}
	pci_addr_format(c->address, address);
	doctor_group_report(d, DOCTOR_VF_WRONG_DRIVER, address, &driver);
	doctor_group_report(d, DOCTOR_VF_NO_INTERFACE, address, &interface);
	doctor_group_report(d, DOCTOR_VF_UNREADABLE, address, &unreadable);
	doctor_group_report(d, DOCTOR_VF_EXCLUDED, address, &excluded);
}

void doctor_check_vfs(struct doctor *d)
{
	if (!host_is_known(d, DOCTOR_CHECK_VFS))
		return;
	for (unsigned i = 0; i < d->host->n_cards; i++) {
		if (doctor_is_excluded(d, d->host->cards[i].address))
			continue;
		check_vfs_of(d, i);
		note_unread(d, i);
	}
	doctor_report_made(&d->report, DOCTOR_CHECK_VFS);
}

/* --- VFIO ------------------------------------------------------------------------------------ */

static unsigned count_in_group(const struct doctor_host *h, int group)
{
	unsigned n = 0;

	for (unsigned i = 0; i < h->n_cards; i++)
		for (unsigned k = 0; k < h->cards[i].n_vfs; k++)
			n += h->cards[i].vfs[k].vfio_group == group;
	return n;
}

static void count_grouped(const struct doctor_host *h, unsigned *ret_vfs, unsigned *ret_grouped)
{
	for (unsigned i = 0; i < h->n_cards; i++) {
		for (unsigned k = 0; k < h->cards[i].n_vfs; k++) {
			*ret_vfs += h->cards[i].vfs[k].vendor_vfio;
			*ret_grouped += h->cards[i].vfs[k].vendor_vfio &&
					h->cards[i].vfs[k].vfio_group >= 0;
		}
	}
}

static void check_vfio_of(struct doctor *d, unsigned card, bool grouped)
{
	const struct inventory_card *c = &d->host->cards[card];
	struct doctor_group shared = { 0 }, nodeless = { 0 };
	char vf[PCI_ADDR_MAX], address[PCI_ADDR_MAX], what[64];

	for (unsigned i = 0; i < c->n_vfs; i++) {
		const struct inventory_vf *v = &c->vfs[i];
		bool node = d->host->group_nodes[card] >> i & 1;

		if (!v->vendor_vfio)
			continue;
		pci_addr_format(v->address, vf);
		if (v->vfio_group >= 0 && count_in_group(d->host, v->vfio_group) > 1) {
			snprintf(what, sizeof what, "group %d holds %u VFs", v->vfio_group,
				 count_in_group(d->host, v->vfio_group));
			doctor_group_add(&shared, vf, what);
		}
		/* A host with iommufd alone may have no group nodes. */
		if (v->vfio_group >= 0 && !node && !v->vfio_node) {
			snprintf(what, sizeof what, "there is no vfio/%d and no vfio/devices/%s",
				 v->vfio_group, v->vfio_device[0] ? v->vfio_device : "vfioN");
			doctor_group_add(&nodeless, vf, what);
		}
		if (v->vfio_group < 0 && grouped)
			doctor_group_add(&nodeless, vf, "it is in no IOMMU group");
	}
	pci_addr_format(c->address, address);
	doctor_group_report(d, DOCTOR_IOMMU_GROUP_SHARED, address, &shared);
	if (d->host->vfio)
		doctor_group_report(d, DOCTOR_VFIO_NODE_MISSING, address, &nodeless);
}

void doctor_check_vfio(struct doctor *d)
{
	unsigned vfs = 0, grouped = 0;

	if (!host_is_known(d, DOCTOR_CHECK_VFIO))
		return;
	count_grouped(d->host, &vfs, &grouped);
	for (unsigned i = 0; i < d->host->n_cards; i++)
		check_vfio_of(d, i, grouped > 0);
	if (vfs > 0 && grouped == 0)
		doctor_report_add(&d->report, DOCTOR_IOMMU_OFF, d->config->sysfs_root,
				  "none of %u VFs has an iommu_group", vfs);
	else if (vfs > 0 && !d->host->vfio)
		doctor_report_add(&d->report, DOCTOR_VFIO_MISSING, d->config->dev_root,
				  "there is no %s/vfio", d->config->dev_root);
	if (vfs > 0)
		doctor_report_made(&d->report, DOCTOR_CHECK_VFIO);
	else
		doctor_report_not_made(&d->report, DOCTOR_CHECK_VFIO,
				       "there are no VFs of the vendor VFIO framework");
}

void doctor_check_sysfs(struct doctor *d)
{
	if (!host_is_known(d, DOCTOR_CHECK_SYSFS))
		return;
	if (json_is_true(json_object_get(d->status, "sysfs_read_only")))
		doctor_report_add(&d->report, DOCTOR_SYSFS_READ_ONLY, d->config->sysfs_root,
				  "berthd sees %s read-only", d->config->sysfs_root);
	else if (!d->status && d->host->read_only)
		doctor_report_add(&d->report, DOCTOR_SYSFS_READ_ONLY, d->config->sysfs_root,
				  "%s is mounted read-only here", d->config->sysfs_root);
	if (json_is_boolean(json_object_get(d->status, "sysfs_read_only")) ||
	    (!d->status && d->host->read_only_known))
		doctor_report_made(&d->report, DOCTOR_CHECK_SYSFS);
	else if (!d->status)
		doctor_report_not_made(&d->report, DOCTOR_CHECK_SYSFS,
				       "there is no VF with a file to write");
	else
		doctor_report_not_made(&d->report, DOCTOR_CHECK_SYSFS,
				       "berthd does not say whether it can write there");
}
