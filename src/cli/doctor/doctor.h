/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `berth doctor` knows of the host and the daemon, and the checks made of it.
 *
 * First facts are gathered: from the daemon where it answers, else (and for what it does not tell)
 * from the host, by children with a deadline (probe.h). Then each check turns facts into findings.
 * A fact that is missing makes a check not made, never ok. Nothing on the host is changed.
 */
#pragma once

#include <jansson.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/doctor/report.h"
#include "config/config.h"
#include "host/holders.h"
#include "host/inventory.h"
#include "host/node-holders.h"

#define DOCTOR_TEXT_MAX	   200
#define DOCTOR_VERSION_MAX 80

/* What the PCI core, the kernel and /dev show. */
struct doctor_host {
	bool known; /* all below was looked at */
	int scan_error;
	char scan_text[DOCTOR_TEXT_MAX];
	enum inventory_framework framework;
	unsigned n_cards;
	struct inventory_card cards[INVENTORY_CARDS_MAX];
	uint64_t group_nodes[INVENTORY_CARDS_MAX]; /* bit i: /dev/vfio/<group> of the card's vfs[i]
						      is there */
	bool vfio;				   /* /dev/vfio is there */
	bool read_only_known;			   /* there is a file to be written */
	bool read_only;				   /* sysfs, here */
	unsigned n_numa_nodes;
	char module_version[DOCTOR_VERSION_MAX]; /* of the loaded driver; "" unknown */
};

/* The types of one card's VFs, without the daemon. */
struct doctor_types {
	bool asked;
	int error; /* -ETIMEDOUT: not all was read in time */
	/* Of use then: how many were read, and since when the next one is under way. */
	unsigned n_read;
	uint64_t since_usec, limit_usec;
	bool stuck; /* it does not return */
	int errors[INVENTORY_VFS_MAX];
	uint32_t types[INVENTORY_VFS_MAX];
};

struct doctor_path {
	const char *path; /* NULL: no such setting */
	int error;	  /* -errno of looking at it */
	int read_error;	  /* -errno of reading it (a folder: of listing it) */
	mode_t mode;
	uid_t uid;
	gid_t gid;
};

struct doctor_files {
	bool known;
	struct doctor_path data_dir, health, boot_id, sriov_manage, socket;
	struct doctor_path tls_certificate, tls_key, tls_client_ca;
	unsigned n_consoles;
	struct doctor_path *consoles; /* shared, too */
	bool room_known;
	uint64_t room_bytes, size_bytes; /* of data_dir's file system */
	bool health_bad;
	char health_text[DOCTOR_TEXT_MAX];
};

#define DOCTOR_HOLDERS_MAX 64
#define DOCTOR_PLUGINS_MAX 8

struct doctor_processes {
	bool known;
	int scan_error; /* of the scan for open VFs; 0: conclusive */
	bool scan_partial;
	char scan_text[DOCTOR_TEXT_MAX];
	unsigned n_vfs;
	struct holders_vf vfs[INVENTORY_CARDS_MAX * INVENTORY_VFS_MAX];
	int holders_error;
	unsigned n_holders;
	struct node_holder holders[DOCTOR_HOLDERS_MAX]; /* of /dev/nvidia* */
	int sockets_error;				/* of listing the kubelet's folder */
	unsigned n_plugins;
	char plugins[DOCTOR_PLUGINS_MAX][64]; /* "pid 12 (name)" or a socket's name */
	/* of the daemon */
	pid_t daemon_pid; /* 0: not found here; else what follows is known */
	bool daemon_may_trace, daemon_own_pids;
};

/* What NVML says, without the daemon. */
struct doctor_nvml {
	bool asked;
	bool answered;
	int error; /* of asking at all */
	int reason, nvml_error;
	char text[DOCTOR_TEXT_MAX];
	char driver[DOCTOR_VERSION_MAX];
	unsigned n_cards;
	struct {
		struct pci_addr address;
		int reason, mode;
		char text[DOCTOR_TEXT_MAX];
	} cards[INVENTORY_CARDS_MAX];
};

struct doctor {
	struct cli *cli;
	struct doctor_report report;

	const char *config_path;
	bool config_given;
	struct config *config; /* never NULL: the defaults where the file cannot be used */
	char *health_path;     /* owned */
	bool config_read;      /* what is in config is berthd's */
	const char *socket;
	const char *kubelet_dir;
	bool use_nvml;
	bool root;

	/* The daemon's answers, owned; NULL: it does not answer. */
	json_t *status, *gpus, *claims;
	char no_daemon[DOCTOR_TEXT_MAX];
	char no_claims[DOCTOR_TEXT_MAX]; /* why it lists no claims although it answers */
	pid_t daemon_pids[2];		 /* the first of them that is a berthd; 0: unknown */

	/* Shared with children; what is not `known` was not seen. */
	struct doctor_host *host;
	struct doctor_types *types; /* one a card */
	struct doctor_files *files;
	struct doctor_processes *processes;
	struct doctor_nvml *nvml;
};

/* --- Facts ----------------------------------------------------------------------------------- */

int doctor_read_config(struct doctor *d); /* -ENOMEM */
void doctor_ask_daemon(struct doctor *d);
void doctor_look_at_host(struct doctor *d);
void doctor_look_at_files(struct doctor *d);
void doctor_look_at_processes(struct doctor *d);
/* Without the daemon. */
void doctor_read_types(struct doctor *d);
void doctor_ask_nvml(struct doctor *d);

/* --- Checks ---------------------------------------------------------------------------------- */

void doctor_check_config(struct doctor *d);
void doctor_check_access(struct doctor *d);
void doctor_check_data(struct doctor *d);
void doctor_check_consoles(struct doctor *d);
void doctor_check_tls(struct doctor *d);
void doctor_check_clock(struct doctor *d);
void doctor_check_cards(struct doctor *d);
void doctor_check_vfs(struct doctor *d);
void doctor_check_vfio(struct doctor *d);
void doctor_check_sysfs(struct doctor *d);
void doctor_check_driver(struct doctor *d);
void doctor_check_nvml(struct doctor *d);
void doctor_check_mode(struct doctor *d);
void doctor_check_response(struct doctor *d);
void doctor_check_stores(struct doctor *d);
void doctor_check_claims(struct doctor *d);
void doctor_check_health(struct doctor *d);
void doctor_check_reconcile(struct doctor *d);
void doctor_check_handles(struct doctor *d);
void doctor_check_recover(struct doctor *d);
void doctor_check_plugin(struct doctor *d);

/* Judges a clock: `now` and `built` in seconds since 1970, `synchronised` as the kernel says. */
void doctor_judge_clock(struct doctor_report *r, time_t now, time_t built, bool synchronised);

bool doctor_is_excluded(const struct doctor *d, struct pci_addr address);
/* What the daemon says of a card; NULL: nothing. */
const json_t *doctor_find_gpu(const struct doctor *d, struct pci_addr address);
/* Adds one finding for several VFs of a card: "32 VFs (0000:41:00.4 and 31 more) <what>". */
struct doctor_group {
	unsigned n;
	char first[PCI_ADDR_MAX];
	char what[DOCTOR_TEXT_MAX];
};
void doctor_group_add(struct doctor_group *g, const char *vf, const char *what);
void doctor_group_report(struct doctor *d, enum doctor_id id, const char *card,
			 const struct doctor_group *g);
