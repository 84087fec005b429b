/* SPDX-License-Identifier: Apache-2.0 */
/* Settings, files and their modes, the socket, the clock. */
#include <errno.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/timex.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/doctor/doctor.h"

#ifndef BERTH_BUILT
#error "the build says when it was made"
#endif

#define GROUP_NAME     "berth"
#define ROOM_MIN_BYTES (UINT64_C(64) * 1024 * 1024)
#define ROOM_MIN_PART  100U /* of the file system, when that is less */

/* --- Settings -------------------------------------------------------------------------------- */

static bool is_present(const struct doctor *d, struct pci_addr a)
{
	for (unsigned i = 0; i < d->host->n_cards; i++) {
		if (pci_addr_equal(d->host->cards[i].address, a))
			return true;
		for (unsigned k = 0; k < d->host->cards[i].n_vfs; k++)
			if (pci_addr_equal(d->host->cards[i].vfs[k].address, a))
				return true;
	}
	return false;
}

static void compare_settings(struct doctor *d)
{
	const struct config *c = d->config;
	const json_t *settings = json_object_get(d->status, "settings");
	const struct {
		const char *key, *value;
	} rows[] = {
		{ "data_dir", c->data_dir },
		{ "sysfs_root", c->sysfs_root },
		{ "dev_root", c->dev_root },
		{ "proc_root", c->proc_root },
		{ "nvml_library", c->nvml_library },
		{ "unclaimed_vfs", c->unclaimed_vfs == CONFIG_UNCLAIMED_RESET ? "reset" : "leave" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *value = json_string_value(json_object_get(settings, rows[i].key));

		if (!value || strcmp(value, rows[i].value) == 0)
			continue;
		doctor_report_add(&d->report, DOCTOR_CONFIG_DIFFERS, rows[i].key,
				  "berthd has \"%s\", %s has \"%s\"", value, d->config_path,
				  rows[i].value);
	}
}

void doctor_check_config(struct doctor *d)
{
	bool listed = d->host->known && d->host->scan_error == 0;

	if (!d->config_read) {
		doctor_report_not_made(&d->report, DOCTOR_CHECK_CONFIG,
				       "the defaults were used instead");
		return;
	}
	for (size_t i = 0; i < d->config->n_exclude && listed; i++) {
		char text[PCI_ADDR_MAX];

		/* VFs come and go with their card's SR-IOV; a function of a card that is there may
		 * well be one of them. */
		if (!is_present(d, d->config->exclude[i]))
			doctor_report_add(&d->report, DOCTOR_EXCLUDE_UNKNOWN,
					  pci_addr_format(d->config->exclude[i], text),
					  "no card and no VF of this host has that address now");
	}
	if (d->config->n_exclude > 0 && !listed)
		doctor_report_not_made(
			&d->report, DOCTOR_CHECK_CONFIG,
			"the PCI devices that gpu.exclude names could not be listed");
	compare_settings(d);
	doctor_report_made(&d->report, DOCTOR_CHECK_CONFIG);
}

/* --- Access ---------------------------------------------------------------------------------- */

static bool is_in_group(gid_t gid)
{
	gid_t groups[512];
	int n = getgroups(ARRAY_SIZE(groups), groups);

	for (int i = 0; i < n; i++)
		if (groups[i] == gid)
			return true;
	return getegid() == gid;
}

static void check_socket(struct doctor *d, const struct group *berth)
{
	const struct doctor_path *s = &d->files->socket;
	const struct group *g;
	char number[24];

	if (s->mode & S_IWOTH)
		doctor_report_add(&d->report, DOCTOR_SOCKET_OPEN, s->path, "its mode is %04o",
				  s->mode & 07777);
	if (berth && s->gid != berth->gr_gid)
		doctor_report_add(&d->report, DOCTOR_SOCKET_GROUP, s->path,
				  "its group is %u, that of " GROUP_NAME " is %u", s->gid,
				  berth->gr_gid);
	if (d->root || is_in_group(s->gid) || s->mode & S_IWOTH)
		return;
	snprintf(number, sizeof number, "%u", s->gid);
	g = getgrgid(s->gid);
	doctor_report_add(&d->report, DOCTOR_GROUP_NOT_MEMBER, g ? g->gr_name : number,
			  "the socket's group is %s", g ? g->gr_name : number);
}

void doctor_check_access(struct doctor *d)
{
	const struct group *berth = getgrnam(GROUP_NAME);

	if (!berth)
		doctor_report_add(&d->report, DOCTOR_GROUP_MISSING, GROUP_NAME,
				  "no such group in the group database");
	if (!d->root)
		doctor_report_add(&d->report, DOCTOR_NOT_ROOT, "uid", "the user id is %u",
				  geteuid());
	if (d->files->known && d->files->socket.error == 0)
		check_socket(d, berth);
	else
		doctor_report_not_made(&d->report, DOCTOR_CHECK_ACCESS,
				       "the socket is not there or cannot be looked at");
	doctor_report_made(&d->report, DOCTOR_CHECK_ACCESS);
}

/* --- Files ----------------------------------------------------------------------------------- */

static bool files_are_known(struct doctor *d, enum doctor_check c)
{
	if (!d->files->known)
		doctor_report_not_made(&d->report, c,
				       "looking at the files did not end within 5 s (a file "
				       "server that does not answer?)");
	return d->files->known;
}

/* Not what is wrong, only what this user may not see. */
static bool is_denied(const struct doctor *d, int code)
{
	return !d->root && (code == -EACCES || code == -EPERM);
}

static void check_room(struct doctor *d)
{
	const struct doctor_files *f = d->files;
	uint64_t limit = MIN(ROOM_MIN_BYTES, f->size_bytes / ROOM_MIN_PART);

	if (!f->room_known)
		doctor_report_not_made(&d->report, DOCTOR_CHECK_DATA,
				       "the file system of %s does not tell its room",
				       f->data_dir.path);
	else if (f->room_bytes < limit)
		doctor_report_add(&d->report, DOCTOR_DISK_LOW, f->data_dir.path,
				  "%llu KiB of %llu MiB are free",
				  (unsigned long long)f->room_bytes / 1024,
				  (unsigned long long)f->size_bytes / 1024 / 1024);
}

static void check_health_file(struct doctor *d)
{
	const struct doctor_path *h = &d->files->health;

	if (h->error == 0 && h->mode & (S_IWGRP | S_IWOTH))
		doctor_report_add(&d->report, DOCTOR_HEALTH_FILE_WRITABLE, h->path,
				  "its mode is %04o", h->mode & 07777);
	/* The daemon itself says so, where there is one. */
	if (d->files->health_bad && !d->status)
		doctor_report_add(&d->report, DOCTOR_HEALTH_FILE_INVALID, h->path, "%s",
				  d->files->health_text);
	if (is_denied(d, h->error) || is_denied(d, h->read_error))
		doctor_report_not_made(&d->report, DOCTOR_CHECK_DATA,
				       "only root may look at the health records");
}

void doctor_check_data(struct doctor *d)
{
	const struct doctor_path *p = &d->files->data_dir;

	if (!files_are_known(d, DOCTOR_CHECK_DATA))
		return;
	if (p->error == -ENOENT && !d->status) {
		doctor_report_not_made(&d->report, DOCTOR_CHECK_DATA,
				       "%s is not there yet; berthd makes it at its first start",
				       p->path);
		return;
	}
	if (p->error == -ENOENT) {
		doctor_report_add(&d->report, DOCTOR_DATA_DIR_MISSING, p->path,
				  "no such folder: %s", p->path);
	} else if (is_denied(d, p->error)) {
		doctor_report_not_made(&d->report, DOCTOR_CHECK_DATA, "only root may look at %s",
				       p->path);
		return;
	} else if (p->error < 0 || !S_ISDIR(p->mode)) {
		doctor_report_add(&d->report, DOCTOR_DATA_DIR_UNUSABLE, p->path, "%s: %s", p->path,
				  strerrordesc_np(p->error < 0 ? -p->error : ENOTDIR));
	} else if (p->mode & (S_IWGRP | S_IWOTH)) {
		doctor_report_add(&d->report, DOCTOR_DATA_DIR_WRITABLE, p->path, "its mode is %04o",
				  p->mode & 07777);
	} else if (p->mode & (S_IRWXG | S_IRWXO)) {
		doctor_report_add(&d->report, DOCTOR_DATA_DIR_READABLE, p->path, "its mode is %04o",
				  p->mode & 07777);
	}
	check_room(d);
	check_health_file(d);
	doctor_report_made(&d->report, DOCTOR_CHECK_DATA);
}

void doctor_check_consoles(struct doctor *d)
{
	if (!files_are_known(d, DOCTOR_CHECK_CONSOLES))
		return;
	for (unsigned i = 0; i < d->files->n_consoles; i++) {
		const struct doctor_path *p = &d->files->consoles[i];

		if (p->error == -ENOENT)
			doctor_report_add(&d->report, DOCTOR_CONSOLE_DIR_MISSING, p->path,
					  "no such folder: %s", p->path);
		else if (is_denied(d, p->error) || is_denied(d, p->read_error))
			doctor_report_not_made(&d->report, DOCTOR_CHECK_CONSOLES,
					       "only root may look at %s", p->path);
		else if (p->error < 0 || p->read_error < 0 || !S_ISDIR(p->mode))
			doctor_report_add(&d->report, DOCTOR_CONSOLE_DIR_UNREADABLE, p->path,
					  "%s: %s", p->path,
					  strerrordesc_np(p->error < 0	      ? -p->error
							  : p->read_error < 0 ? -p->read_error
									      : ENOTDIR));
		else if (p->mode & S_IWOTH)
			doctor_report_add(&d->report, DOCTOR_CONSOLE_DIR_WRITABLE, p->path,
					  "its mode is %04o", p->mode & 07777);
	}
	doctor_report_made(&d->report, DOCTOR_CHECK_CONSOLES);
}

void doctor_check_tls(struct doctor *d)
{
	const struct doctor_path *const paths[] = { &d->files->tls_certificate, &d->files->tls_key,
						    &d->files->tls_client_ca };

	if (!files_are_known(d, DOCTOR_CHECK_TLS))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		const struct doctor_path *p = paths[i];

		if (!p->path)
			continue;
		if (is_denied(d, p->error) || is_denied(d, p->read_error))
			doctor_report_not_made(&d->report, DOCTOR_CHECK_TLS,
					       "only root may look at %s", p->path);
		else if (p->error < 0 || p->read_error < 0 || !S_ISREG(p->mode))
			doctor_report_add(&d->report, DOCTOR_TLS_FILE_MISSING, p->path, "%s: %s",
					  p->path,
					  strerrordesc_np(p->error < 0	      ? -p->error
							  : p->read_error < 0 ? -p->read_error
									      : EINVAL));
		else if (p == &d->files->tls_key && p->mode & (S_IRWXG | S_IRWXO))
			doctor_report_add(&d->report, DOCTOR_TLS_KEY_OPEN, p->path,
					  "its mode is %04o", p->mode & 07777);
	}
	doctor_report_made(&d->report, DOCTOR_CHECK_TLS);
}

/* --- Clock ----------------------------------------------------------------------------------- */

void doctor_judge_clock(struct doctor_report *r, time_t now, time_t built, bool synchronised)
{
	char text[64];
	struct tm tm;

	if (now < built) {
		gmtime_r(&now, &tm);
		strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &tm);
		doctor_report_add(r, DOCTOR_CLOCK_WRONG, "clock",
				  "it says %s, which is before this program was built", text);
	} else if (!synchronised) {
		doctor_report_add(r, DOCTOR_CLOCK_UNSYNCHRONISED, "clock",
				  "the kernel says that it is not synchronised (STA_UNSYNC)");
	}
}

void doctor_check_clock(struct doctor *d)
{
	const struct doctor_path *boot = &d->files->boot_id;
	struct timex t = { 0 };
	int state = adjtimex(&t); /* with no mode set it only reads */

	doctor_judge_clock(&d->report, time(NULL), BERTH_BUILT,
			   state >= 0 && !(t.status & STA_UNSYNC));
	if (!files_are_known(d, DOCTOR_CHECK_CLOCK))
		return;
	if (boot->error < 0 || boot->read_error < 0)
		doctor_report_add(
			&d->report, DOCTOR_BOOT_ID_UNREADABLE, boot->path, "%s: %s", boot->path,
			strerrordesc_np(boot->error < 0 ? -boot->error : -boot->read_error));
	doctor_report_made(&d->report, DOCTOR_CHECK_CLOCK);
}
