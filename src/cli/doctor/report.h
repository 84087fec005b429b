/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `berth doctor` found: the table of all findings and checks, the report, and its two forms.
 *
 * A finding's id and severity are relied on from outside (scripts, docs); they are added to, never
 * renamed. A check begins as not made, and is ok only where somebody said that all of it was
 * looked at: what could not be seen is never ok.
 */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "base/macro.h"

#define DOCTOR_EXIT_WARNING 6
#define DOCTOR_EXIT_ERROR   7

enum doctor_severity {
	DOCTOR_INFO,	/* worth knowing; nothing to do */
	DOCTOR_WARNING, /* something does not work, or will not when it is needed */
	DOCTOR_ERROR,	/* vGPUs cannot be handed out as they should now */
};

enum doctor_check {
	DOCTOR_CHECK_CONFIG,
	DOCTOR_CHECK_DAEMON,
	DOCTOR_CHECK_ACCESS,
	DOCTOR_CHECK_DATA,
	DOCTOR_CHECK_CONSOLES,
	DOCTOR_CHECK_TLS,
	DOCTOR_CHECK_CLOCK,
	DOCTOR_CHECK_CARDS,
	DOCTOR_CHECK_VFS,
	DOCTOR_CHECK_VFIO,
	DOCTOR_CHECK_SYSFS,
	DOCTOR_CHECK_DRIVER,
	DOCTOR_CHECK_NVML,
	DOCTOR_CHECK_MODE,
	DOCTOR_CHECK_RESPONSE,
	DOCTOR_CHECK_STORES,
	DOCTOR_CHECK_CLAIMS,
	DOCTOR_CHECK_HEALTH,
	DOCTOR_CHECK_RECONCILE,
	DOCTOR_CHECK_HANDLES,
	DOCTOR_CHECK_RECOVER,
	DOCTOR_CHECK_PLUGIN,
	DOCTOR_CHECK_COUNT,
};

/* Each is a row of kinds.c. */
enum doctor_id {
	DOCTOR_CONFIG_INVALID,
	DOCTOR_CONFIG_UNREADABLE,
	DOCTOR_CONFIG_DEFAULTS,
	DOCTOR_CONFIG_DIFFERS,
	DOCTOR_EXCLUDE_UNKNOWN,
	DOCTOR_DAEMON_ABSENT,
	DOCTOR_DAEMON_REFUSED,
	DOCTOR_DAEMON_FORBIDDEN,
	DOCTOR_DAEMON_SILENT,
	DOCTOR_DAEMON_VERSION,
	DOCTOR_DAEMON_NOT_READY,
	DOCTOR_GROUP_MISSING,
	DOCTOR_GROUP_NOT_MEMBER,
	DOCTOR_SOCKET_GROUP,
	DOCTOR_SOCKET_OPEN,
	DOCTOR_NOT_ROOT,
	DOCTOR_DATA_DIR_MISSING,
	DOCTOR_DATA_DIR_UNUSABLE,
	DOCTOR_DATA_DIR_WRITABLE,
	DOCTOR_DATA_DIR_READABLE,
	DOCTOR_DISK_LOW,
	DOCTOR_HEALTH_FILE_WRITABLE,
	DOCTOR_HEALTH_FILE_INVALID,
	DOCTOR_CONSOLE_DIR_MISSING,
	DOCTOR_CONSOLE_DIR_WRITABLE,
	DOCTOR_CONSOLE_DIR_UNREADABLE,
	DOCTOR_TLS_FILE_MISSING,
	DOCTOR_TLS_KEY_OPEN,
	DOCTOR_CLOCK_WRONG,
	DOCTOR_CLOCK_UNSYNCHRONISED,
	DOCTOR_BOOT_ID_UNREADABLE,
	DOCTOR_HOST_UNREADABLE,
	DOCTOR_NO_CARD,
	DOCTOR_CARD_UNREADABLE,
	DOCTOR_CARD_WRONG_DRIVER,
	DOCTOR_CARD_NO_VFS,
	DOCTOR_CARD_EXCLUDED,
	DOCTOR_CARD_CORDONED,
	DOCTOR_PASSTHROUGH_ONLY,
	DOCTOR_MDEV_FRAMEWORK,
	DOCTOR_NUMA_UNKNOWN,
	DOCTOR_VF_WRONG_DRIVER,
	DOCTOR_VF_NO_INTERFACE,
	DOCTOR_VF_UNREADABLE,
	DOCTOR_VF_EXCLUDED,
	DOCTOR_VFIO_MISSING,
	DOCTOR_VFIO_NODE_MISSING,
	DOCTOR_IOMMU_OFF,
	DOCTOR_IOMMU_GROUP_SHARED,
	DOCTOR_SYSFS_READ_ONLY,
	DOCTOR_DRIVER_TOO_OLD,
	DOCTOR_DRIVER_BEFORE_570,
	DOCTOR_DRIVER_MISMATCH,
	DOCTOR_NVML_OFF,
	DOCTOR_NVML_RELEASED,
	DOCTOR_NVML_HELPER_MISSING,
	DOCTOR_NVML_LIBRARY_MISSING,
	DOCTOR_NVML_LIBRARY_UNUSABLE,
	DOCTOR_NVML_SYMBOL_MISSING,
	DOCTOR_NVML_HANGS,
	DOCTOR_NVML_ERROR,
	DOCTOR_CARD_NVML_ERROR,
	DOCTOR_PLACEMENTS_OLD,
	DOCTOR_PLACEMENT_DRIFT,
	DOCTOR_CARD_EQUAL_SIZE,
	DOCTOR_CARD_MIG,
	DOCTOR_CARD_NO_PLACEMENTS,
	DOCTOR_MIXED_MODE_LOST,
	DOCTOR_CARD_STUCK,
	DOCTOR_HEALTH_STORE_UNAVAILABLE,
	DOCTOR_CLAIMS_STORE_UNAVAILABLE,
	DOCTOR_CLAIM_PROBLEM,
	DOCTOR_VF_UNCLAIMED,
	DOCTOR_VF_UNCLAIMED_OPEN,
	DOCTOR_VF_QUARANTINED,
	DOCTOR_VF_FAILING,
	DOCTOR_RECONCILE_FAILING,
	DOCTOR_SCAN_BLIND,
	DOCTOR_SCAN_PARTIAL,
	DOCTOR_CARD_HELD,
	DOCTOR_SERVICES_STOP_EMPTY,
	DOCTOR_SRIOV_MANAGE_MISSING,
	DOCTOR_RECOVERY_FAILED,
	DOCTOR_PLUGIN_AND_RESET,
	DOCTOR_ID_COUNT,
};

struct doctor_kind {
	const char *id;
	enum doctor_check check;
	enum doctor_severity severity;
	const char *title; /* what is the matter, in general */
	const char *why;   /* what it leads to */
	const char *how;   /* how to mend it, a step a line; "{}" is the subject */
};

const struct doctor_kind *doctor_kind(enum doctor_id id);
const char *doctor_severity_name(enum doctor_severity s); /* "info", "warning", "error" */
const char *doctor_check_id(enum doctor_check c);
const char *doctor_check_title(enum doctor_check c);

struct doctor_finding {
	enum doctor_id id;
	char *subject; /* an address, a path, a name; owned */
	char *what;    /* what was seen; owned */
};

struct doctor_report {
	size_t n, cap;
	struct doctor_finding *findings; /* owned */
	enum doctor_severity worst;	 /* of all, those that were too many included */
	bool made[DOCTOR_CHECK_COUNT];
	char *not_made[DOCTOR_CHECK_COUNT]; /* why, of a check that was not made or only in part */
	bool failed;			    /* out of memory: the report is not complete */
};

void doctor_report_done(struct doctor_report *r);

void doctor_report_add(struct doctor_report *r, enum doctor_id id, const char *subject,
		       const char *what, ...) _printf_(4, 5);
bool doctor_report_has(const struct doctor_report *r, enum doctor_id id, const char *subject);
/* All that the check is about was looked at. */
void doctor_report_made(struct doctor_report *r, enum doctor_check c);
/* It was not, or not all of it. The first reason stays. */
void doctor_report_not_made(struct doctor_report *r, enum doctor_check c, const char *why, ...)
	_printf_(3, 4);

/* 0, DOCTOR_EXIT_WARNING or DOCTOR_EXIT_ERROR: by the worst finding. */
int doctor_report_exit_status(const struct doctor_report *r);

/* NULL: out of memory. */
json_t *doctor_report_json(const struct doctor_report *r);
struct terminal;
void doctor_report_text(const struct doctor_report *r, const struct terminal *t, struct buf *out);
/* `berth doctor --list`: every finding there is. */
json_t *doctor_list_json(void);
void doctor_list_text(const struct terminal *t, struct buf *out);
