/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which VFs are open: a scan of /proc/<pid>/fd for the VFIO nodes of the VFs asked for.
 *
 * A VF's nodes are <dev>/vfio/<its iommu group> and <dev>/vfio/devices/<its vfioN>; what is open is
 * matched by device number (character devices), else by file system and inode, since link texts lie
 * across mount namespaces. A VF without either node cannot be open.
 *
 * Unknown is never "no": when /proc cannot be listed, the process lacks CAP_SYS_PTRACE, or the scan
 * does not find a descriptor that is known to be open (the canary), every VF not found open is
 * CARD_OPEN_UNKNOWN. The calling process itself does not count. What no scan of /proc can see:
 * descriptors in flight over a socket, and references the kernel keeps after the last close while a
 * VM is torn down; the driver refuses to release those VFs itself (EPERM, EBUSY).
 */
#pragma once

#include "base/error.h"
#include "host/card-message.h"

struct holders_roots {
	const char *sysfs_root;
	const char *dev_root;
	const char *proc_root;
};

struct holders_vf {
	struct pci_addr vf;  /* in */
	enum card_open open; /* out */
	char holder[64];     /* out: "pid 123 (qemu-system-x86)", one process; "" unless open */
};

/* Fills in the vfs. 0 when the scan is conclusive; *ret_partial is true then if single processes
 * could not be looked into. -errno with the reason when it is not (open VFs that were found all the
 * same are CARD_OPEN_YES, the others unknown). */
int holders_scan(const struct holders_roots *roots, int canary_fd, struct holders_vf *vfs,
		 unsigned n_vfs, bool *ret_partial, struct error *err) _must_check_;
