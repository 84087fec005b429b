/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc shows, and NVML by way of its helper. Every function that looks runs in a child. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "cli/doctor/doctor.h"
#include "cli/doctor/probe.h"
#include "cli/doctor/texts.h"
#include "host/listing.h"
#include "nvml/client.h"

#define LOOK_USEC (10 * USEC_PER_SEC)

/* --- Processes ------------------------------------------------------------------------------- */

static void scan_vfs(const struct doctor *d, struct doctor_processes *p)
{
	const struct config *c = d->config;
	struct holders_roots roots = { c->sysfs_root, c->dev_root, c->proc_root };
	_close_ int canary = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct error err = ERROR_INIT;

	for (unsigned i = 0; i < d->host->n_cards; i++)
		for (unsigned k = 0; k < d->host->cards[i].n_vfs; k++)
			p->vfs[p->n_vfs++].vf = d->host->cards[i].vfs[k].address;
	p->scan_error = holders_scan(&roots, canary, p->vfs, p->n_vfs, &p->scan_partial, &err);
	str_copy_cut(p->scan_text, sizeof p->scan_text, error_text(&err));
}

/* A plugin that offers VFs of this sysfs. comm holds 15 characters: "berth-device-plugin" and
 * NVIDIA's "nvidia-kubevirt-gpu-device-plugin" are cut. */
static bool is_plugin(const struct doctor *d, int proc_fd, const char *pid, const char *comm)
{
	char path[64], line[4096];
	const char *root;
	size_t len;

	if (str_starts_with(comm, "nvidia-kubevirt"))
		return strcmp(d->config->sysfs_root, "/sys") == 0;
	if (!str_starts_with(comm, "berth-device-pl"))
		return false;
	snprintf(path, sizeof path, "%.20s/cmdline", pid);
	if (file_read_into(proc_fd, path, line, sizeof line, &len) < 0)
		return true;
	root = doctor_find_option(line, len, "--sysfs-root");
	return strcmp(root ?: "/sys", d->config->sysfs_root) == 0;
}

static void find_plugin_processes(const struct doctor *d, struct doctor_processes *p)
{
	_close_ int fd = open(d->config->proc_root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct listing l;
	const char *pid;
	int r;

	if (fd < 0)
		return;
	listing_init(&l, fd);
	while ((pid = listing_next(&l, &r)) && p->n_plugins < DOCTOR_PLUGINS_MAX) {
		char path[64], comm[64];

		snprintf(path, sizeof path, "%.20s/comm", pid);
		if (pid[0] < '0' || pid[0] > '9' ||
		    file_read_into(fd, path, comm, sizeof comm, NULL) < 0 ||
		    !is_plugin(d, fd, pid, comm))
			continue;
		comm[strcspn(comm, "\n")] = '\0';
		snprintf(p->plugins[p->n_plugins++], sizeof p->plugins[0], "pid %.20s (%.32s)", pid,
			 comm);
	}
}

/* Sockets of plugins in the kubelet's folder: ours, and NVIDIA's for KubeVirt. */
static void find_plugin_sockets(const struct doctor *d, struct doctor_processes *p)
{
	_close_ int fd = open(d->kubelet_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct listing l;
	const char *name;
	int r;

	if (fd < 0) {
		/* Without a kubelet there is no such folder. */
		p->sockets_error = errno == ENOENT ? 0 : -errno;
		return;
	}
	listing_init(&l, fd);
	while ((name = listing_next(&l, &r)) && p->n_plugins < DOCTOR_PLUGINS_MAX)
		if (str_ends_with(name, ".sock") &&
		    (str_starts_with(name, "berth-") || str_starts_with(name, "kubevirt-")))
			snprintf(p->plugins[p->n_plugins++], sizeof p->plugins[0], "socket %.50s",
				 name);
	if (!name)
		p->sockets_error = r;
}

/* World-readable: may berthd look into other processes, and does it see this host's at all? */
static bool look_at_daemon(const struct doctor *d, pid_t pid, struct doctor_processes *p)
{
	_free_ char *path = str_printf("%s/%d/status", d->config->proc_root, (int)pid);
	char text[8192];

	if (!path || pid <= 0 || file_read_into(AT_FDCWD, path, text, sizeof text, NULL) < 0 ||
	    doctor_parse_status(text, &p->daemon_may_trace, &p->daemon_own_pids) < 0)
		return false;
	p->daemon_pid = pid;
	return true;
}

static void look_at_processes(const void *context, void *memory)
{
	const struct doctor *d = context;
	const struct config *c = d->config;
	struct doctor_processes *p = memory;
	unsigned hidden;

	scan_vfs(d, p);
	p->holders_error = node_holders_find(c->dev_root, c->proc_root, p->holders,
					     DOCTOR_HOLDERS_MAX, &p->n_holders, &hidden);
	if (p->holders_error == 0 && hidden > 0 && !d->root)
		p->holders_error = -EACCES;
	find_plugin_processes(d, p);
	find_plugin_sockets(d, p);
	if (!look_at_daemon(d, d->daemon_pids[0], p))
		(void)look_at_daemon(d, d->daemon_pids[1], p);
}

void doctor_look_at_processes(struct doctor *d)
{
	d->processes->known = doctor_probe_run(look_at_processes, d, d->processes, LOOK_USEC) == 0;
}

/* --- NVML, without the daemon ---------------------------------------------------------------- */

struct question {
	sd_event *event;
	struct doctor_nvml *answer;
};

static void answered(const struct nvml_answer *answer, void *userdata)
{
	struct question *q = userdata;
	struct doctor_nvml *n = q->answer;

	n->reason = (int)answer->reason;
	n->nvml_error = answer->nvml_error;
	str_copy_cut(n->text, sizeof n->text, answer->text);
	str_copy_cut(n->driver, sizeof n->driver, answer->driver);
	n->n_cards = MIN(answer->n_cards, (unsigned)INVENTORY_CARDS_MAX);
	for (unsigned i = 0; i < n->n_cards; i++) {
		n->cards[i].address = answer->cards[i].address;
		n->cards[i].reason = (int)answer->cards[i].reason;
		n->cards[i].mode = (int)answer->cards[i].mode;
		str_copy_cut(n->cards[i].text, sizeof n->cards[i].text, answer->cards[i].text);
	}
	n->answered = true;
	sd_event_exit(q->event, 0);
}

static void ask_nvml(const void *context, void *memory)
{
	const struct doctor *d = context;
	struct question q = { .answer = memory };
	struct nvml_client_config config = { .library = d->config->nvml_library,
					     .timeout_usec = d->config->nvml_timeout_usec };
	struct pci_addr cards[INVENTORY_CARDS_MAX];
	struct nvml_client *client = NULL;
	unsigned n = 0;
	sigset_t set;
	int r;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD); /* sd-event watches children only then */
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (unsigned i = 0; i < d->host->n_cards; i++)
		if (d->host->cards[i].n_vfs > 0)
			cards[n++] = d->host->cards[i].address;
	r = sd_event_new(&q.event);
	config.event = q.event;
	if (r >= 0)
		r = nvml_client_new(&config, &client, NULL);
	if (r >= 0)
		r = nvml_client_query(client, cards, n, answered, &q);
	if (r >= 0)
		r = sd_event_loop(q.event);
	q.answer->error = MIN(r, 0);
	/* It ends at the end of its channel. Until then it has the driver open. */
	nvml_client_free(client);
	while (waitpid(-1, NULL, 0) > 0)
		continue;
}

void doctor_ask_nvml(struct doctor *d)
{
	struct doctor_nvml *n = d->nvml;
	int r;

	n->asked = true;
	r = doctor_probe_run(ask_nvml, d, n, d->config->nvml_timeout_usec + 2 * USEC_PER_SEC);
	if (!n->answered && n->error == 0)
		n->error = r < 0 ? r : -ENODATA;
}
