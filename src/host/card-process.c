/* SPDX-License-Identifier: Apache-2.0 */
#include "host/card-process.h"

#include <limits.h>
#include <signal.h>
#include <sys/pidfd.h>

#include "base/channel.h"
#include "base/cleanup.h"

int card_process_start(struct card_process *p, struct pci_addr card,
		       const struct card_process_paths *paths)
{
	char path[PATH_MAX], bdf[PCI_ADDR_MAX];
	char option_card[] = "--card", option_sysfs[] = "--sysfs-root", option_dev[] = "--dev-root";
	char option_proc[] = "--proc-root", option_lock[] = "--lock";
	char *argv[] = { path,
			 option_card,
			 bdf,
			 option_sysfs,
			 paths->sysfs_root,
			 option_dev,
			 paths->dev_root,
			 option_proc,
			 paths->proc_root,
			 option_lock,
			 paths->lock,
			 NULL };
	int r;

	r = channel_helper_path("berth-card", path, sizeof path);
	if (r < 0)
		return r;
	pci_addr_format(card, bdf);
	return channel_spawn(path, argv, &p->pid, &p->pidfd, &p->fd);
}

void card_process_close_channel(struct card_process *p)
{
	cleanup_close(&p->fd);
	p->fd = -1;
}

void card_process_kill(struct card_process *p)
{
	if (p->pid > 0)
		pidfd_send_signal(p->pidfd, SIGKILL, NULL, 0);
	card_process_close_channel(p);
}

bool card_process_collect(struct card_process *p, siginfo_t *ret)
{
	*ret = (siginfo_t){ 0 };
	if (waitid((idtype_t)P_PIDFD, (id_t)p->pidfd, ret, WEXITED | WNOHANG) < 0 ||
	    ret->si_pid == 0)
		return false;
	card_process_close_channel(p);
	cleanup_close(&p->pidfd);
	*p = CARD_PROCESS_INIT;
	return true;
}

static int collect_stray(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	(void)revents;
	(void)userdata;
	waitid((idtype_t)P_PIDFD, (id_t)fd, &(siginfo_t){ 0 }, WEXITED | WNOHANG);
	return sd_event_source_set_floating(source, false); /* frees it, with the descriptor */
}

void card_process_abandon(struct card_process *p, sd_event *event)
{
	sd_event_source *source;

	card_process_close_channel(p);
	if (p->pidfd >= 0 &&
	    sd_event_add_io(event, &source, p->pidfd, EPOLLIN, collect_stray, NULL) >= 0) {
		sd_event_source_set_io_fd_own(source, true);
		sd_event_source_set_floating(source, true);
		sd_event_source_unref(source);
		p->pidfd = -1;
	}
	cleanup_close(&p->pidfd);
	*p = CARD_PROCESS_INIT;
}
