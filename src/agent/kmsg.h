/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of /dev/kmsg: which of them are the driver's own word that its init failed.
 *
 * A record is "PRIORITY,SEQUENCE,TIME,FLAGS[,...];TEXT\n", with continuation lines that begin with
 * a blank. Anybody in the guest may write to /dev/kmsg, but not with facility 0 (kernel): only
 * priorities below 8 count. The tuple behind "RmInitAdapter failed!" differs with every driver
 * build and is not looked at.
 */
#pragma once

#include "base/macro.h"

#define KMSG_RECORD_MAX 8192
#define KMSG_TEXT_MAX	400

/* One line of a record, without newline. True with the text, printable and without quotes, when it
 * is the first line of a kernel record "NVRM: ...RmInitAdapter failed!...". */
bool kmsg_is_init_failure(const char *line, size_t len, char ret_text[static KMSG_TEXT_MAX]);

struct kmsg {
	int fd; /* -1: not open */
	const char *path;
	bool opened_before; /* reopened at its end: what was there was seen or is lost */
};

/* -errno. The first time from the first record that is still there, later from the end. */
int kmsg_open(struct kmsg *k) _must_check_;
void kmsg_close(struct kmsg *k);

/* Reads what is there and calls failed() for each failure. 0 when there is no more for now, 1 when
 * records were overwritten before they were read (there may be more), -errno when the watch is
 * lost. */
int kmsg_read(struct kmsg *k, void (*failed)(const char *text, void *userdata),
	      void *userdata) _must_check_;
