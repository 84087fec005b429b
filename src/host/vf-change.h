/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two operations that change a VF, as berth-card runs them: configure and release.
 *
 * Each is a fixed sequence of reads and writes whose every outcome has a step and an errno in the
 * reply (card-message.h). A value that somebody else wrote is never overwritten: a type write that
 * fails is undone only where our own type stands.
 */
#pragma once

#include "host/card-message.h"

/* {read, must be 0} {write type, read back} {steer the placement, read back}. A placement that is
 * refused keeps the driver's choice. */
void vf_configure(const char *sysfs_root, const struct card_request *request,
		  struct card_reply *reply);

/* Looks whether vfs[0] of the reply is open; fills in its `open`, `holder`, `scan_partial`, and a
 * text where it is unknown. */
typedef void (*vf_open_check_fn)(struct card_reply *reply, void *userdata);

/* {read, must be ours} {scan, must be closed} {read again} {write 0, read back}. The type is read
 * on both sides of the scan: before it a VF that is not ours any more needs no scan, and after it
 * nothing but the driver keeps us from clearing what somebody else has put there meanwhile. */
void vf_release(const char *sysfs_root, const struct card_request *request, vf_open_check_fn check,
		void *userdata, struct card_reply *reply);
