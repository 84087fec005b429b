/* SPDX-License-Identifier: Apache-2.0 */
/* What sysfs, /dev and the file system show. Every function that looks runs in a child. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "cli/doctor/doctor.h"
#include "cli/doctor/probe.h"
#include "cli/doctor/texts.h"
#include "host/listing.h"
#include "host/vf.h"
#include "model/claim.h"
#include "store/health-store.h"

#define LOOK_USEC	 (5 * USEC_PER_SEC)
#define HEALTH_BYTES_MAX ((size_t)4 * 1024 * 1024)

/* --- PCI ------------------------------------------------------------------------------------- */

static bool there_is(const char *root, const char *name)
{
	_free_ char *path = str_printf("%s/%s", root, name);

	return path && access(path, F_OK) == 0;
}

static void read_version(const struct config *c, struct doctor_host *h)
{
	_free_ char *module = str_printf("%s/module/nvidia/version", c->sysfs_root);
	_free_ char *proc = str_printf("%s/driver/nvidia/version", c->proc_root);
	char text[1024];

	if (!module || !proc)
		return;
	if (file_read_into(AT_FDCWD, module, text, sizeof text, NULL) == 0) {
		text[strcspn(text, "\r\n")] = '\0';
		str_copy_cut(h->module_version, sizeof h->module_version, text);
	} else if (file_read_into(AT_FDCWD, proc, text, sizeof text, NULL) == 0) {
		doctor_parse_proc_version(text, h->module_version, sizeof h->module_version);
	}
	str_sanitize(h->module_version, strlen(h->module_version));
}

/* Of a file that the driver lets root write. The mount is asked, which tells it to everybody. */
static void find_read_only(const struct config *c, struct doctor_host *h)
{
	for (unsigned i = 0; i < h->n_cards; i++) {
		for (unsigned k = 0; k < h->cards[i].n_vfs; k++) {
			char bdf[PCI_ADDR_MAX];
			_free_ char *path = NULL;
			struct statvfs fs;

			if (!h->cards[i].vfs[k].vendor_vfio)
				continue;
			path = str_printf("%s/bus/pci/devices/%s/nvidia/current_vgpu_type",
					  c->sysfs_root,
					  pci_addr_format(h->cards[i].vfs[k].address, bdf));
			h->read_only_known = path && statvfs(path, &fs) == 0;
			h->read_only = h->read_only_known && fs.f_flag & ST_RDONLY;
			return;
		}
	}
}

static unsigned count_numa_nodes(const struct config *c)
{
	unsigned n = 0;
	char name[64];

	for (unsigned i = 0; i < 64; i++) {
		snprintf(name, sizeof name, "devices/system/node/node%u", i);
		n += there_is(c->sysfs_root, name);
	}
	return n;
}

static void find_group_nodes(const struct config *c, struct doctor_host *h)
{
	for (unsigned i = 0; i < h->n_cards; i++) {
		for (unsigned k = 0; k < h->cards[i].n_vfs; k++) {
			char name[40];

			snprintf(name, sizeof name, "vfio/%d", h->cards[i].vfs[k].vfio_group);
			if (h->cards[i].vfs[k].vfio_group >= 0 && there_is(c->dev_root, name))
				h->group_nodes[i] |= UINT64_C(1) << k;
		}
	}
}

static void look_at_host(const void *context, void *memory)
{
	const struct config *c = ((const struct doctor *)context)->config;
	struct doctor_host *h = memory;
	struct inventory *inv = NULL;
	struct error err = ERROR_INIT;

	h->scan_error = inventory_scan(c->sysfs_root, &inv, &err);
	if (h->scan_error < 0) {
		str_copy_cut(h->scan_text, sizeof h->scan_text, error_text(&err));
	} else {
		inventory_find_nodes(inv, c->dev_root);
		h->framework = inv->framework;
		h->n_cards = inv->n_cards;
		memcpy(h->cards, inv->cards, inv->n_cards * sizeof *inv->cards);
		find_group_nodes(c, h);
	}
	h->vfio = there_is(c->dev_root, "vfio");
	h->n_numa_nodes = count_numa_nodes(c);
	find_read_only(c, h);
	read_version(c, h);
}

void doctor_look_at_host(struct doctor *d)
{
	int r = doctor_probe_run(look_at_host, d, d->host, LOOK_USEC);

	d->host->known = r == 0;
	if (r == 0)
		return;
	d->host->n_cards = 0;
	doctor_report_add(&d->report, DOCTOR_HOST_UNREADABLE, d->config->sysfs_root,
			  "looking at the PCI devices: %s",
			  r == -ETIMEDOUT ? "no answer within 5 s" : strerrordesc_np(-r));
}

/* --- Driver attributes, without the daemon ---------------------------------------------------- */

static void read_types(const void *context, void *memory)
{
	const struct doctor *d = context;
	struct doctor_types *t = memory;
	const struct inventory_card *card = &d->host->cards[t - d->types];

	for (unsigned i = 0; i < card->n_vfs; i++) {
		_close_ int fd = -1;

		if (!card->vfs[i].vendor_vfio)
			continue;
		t->n_read = i;
		t->since_usec = clock_now_usec();
		t->errors[i] = vf_open(d->config->sysfs_root, card->vfs[i].address, &fd);
		if (t->errors[i] == 0)
			t->errors[i] = vf_read_type(fd, &t->types[i]);
	}
}

/* All cards at once, so that several that hang do not add up. */
void doctor_read_types(struct doctor *d)
{
	struct doctor_probe probes[INVENTORY_CARDS_MAX];
	/* A release of somebody else may keep the driver's lock for five seconds. */
	uint64_t limit = MIN(d->config->card_timeout_usec, 7 * USEC_PER_SEC);
	uint64_t deadline = clock_now_usec() + limit;

	for (unsigned i = 0; i < d->host->n_cards; i++)
		probes[i] = doctor_probe_start(read_types, d, &d->types[i]);
	for (unsigned i = 0; i < d->host->n_cards; i++) {
		struct doctor_types *t = &d->types[i];

		t->asked = true;
		t->limit_usec = limit;
		t->error = doctor_probe_wait(&probes[i], deadline);
		/* Many reads that are slow add up: only one that takes most of the time hangs. */
		t->stuck = t->error == -ETIMEDOUT && t->since_usec > 0 &&
			   t->since_usec + limit / 4 < deadline;
	}
}

/* --- Files ----------------------------------------------------------------------------------- */

static void look_at(struct doctor_path *p)
{
	_close_ int fd = -1;
	struct stat st;

	if (!p->path)
		return;
	if (stat(p->path, &st) < 0) {
		p->error = -errno;
		return;
	}
	p->mode = st.st_mode;
	p->uid = st.st_uid;
	p->gid = st.st_gid;
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		return;
	fd = open(p->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		p->read_error = -errno;
}

/* As berthd does it, which does not start without. */
static void read_boot_id(struct doctor_path *p)
{
	char text[CLAIM_BOOT_ID_MAX];
	int r;

	if (p->error < 0 || p->read_error < 0)
		return;
	r = file_read_into(AT_FDCWD, p->path, text, sizeof text, NULL);
	p->read_error = r < 0 ? r : strcspn(text, "\r\n") == 0 ? -ENODATA : 0;
}

static void read_health(struct doctor_files *f, bool root)
{
	_free_ struct health *h = calloc(1, sizeof *h);
	int code = f->health.error < 0 ? f->health.error : f->health.read_error;
	bool denied = code == -EACCES || code == -EPERM;
	struct error err = ERROR_INIT;
	_free_ char *text = NULL;
	size_t len;

	/* What this user may not see is told by the codes. */
	if (!h || code == -ENOENT || (denied && !root))
		return;
	if (code < 0)
		error_set_errno(&err, code, "it cannot be looked at");
	else if (file_read_at(AT_FDCWD, f->health.path, HEALTH_BYTES_MAX, &text, &len) < 0)
		error_set(&err, EFBIG, "it cannot be read, or is larger than 4 MiB");
	else if (health_parse(text, len, h, &err) == 0)
		return;
	f->health_bad = true;
	str_copy_cut(f->health_text, sizeof f->health_text, error_text(&err));
}

static void look_at_files(const void *context, void *memory)
{
	struct doctor_files *f = memory;
	struct doctor_path *const paths[] = { &f->data_dir, &f->health,
					      &f->boot_id,  &f->sriov_manage,
					      &f->socket,   &f->tls_certificate,
					      &f->tls_key,  &f->tls_client_ca };
	struct statvfs fs;

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		look_at(paths[i]);
	for (unsigned i = 0; i < f->n_consoles; i++)
		look_at(&f->consoles[i]);
	if (f->data_dir.error == 0 && statvfs(f->data_dir.path, &fs) == 0) {
		f->room_known = true;
		f->room_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
		f->size_bytes = (uint64_t)fs.f_blocks * fs.f_frsize;
	}
	read_boot_id(&f->boot_id);
	read_health(f, ((const struct doctor *)context)->root);
}

void doctor_look_at_files(struct doctor *d)
{
	const struct config *c = d->config;
	struct doctor_files *f = d->files;

	d->health_path = str_printf("%s/gpu/vf-health.json", c->data_dir);
	f->data_dir.path = c->data_dir;
	f->health.path = d->health_path;
	f->boot_id.path = c->boot_id_file;
	f->sriov_manage.path = c->recover_sriov_manage;
	f->socket.path = d->socket;
	f->tls_certificate.path = c->tls_certificate;
	f->tls_key.path = c->tls_key;
	f->tls_client_ca.path = c->tls_client_ca;
	f->consoles = doctor_probe_memory(sizeof *f->consoles * MAX(c->n_console_dirs, (size_t)1));
	if (!f->consoles) {
		d->report.failed = true;
		return;
	}
	f->n_consoles = (unsigned)c->n_console_dirs;
	for (unsigned i = 0; i < f->n_consoles; i++)
		f->consoles[i].path = c->console_dirs[i];
	f->known = doctor_probe_run(look_at_files, d, f, LOOK_USEC) == 0;
}
