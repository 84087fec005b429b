/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's attributes of one VF, in <sysfs>/bus/pci/devices/<VF>/nvidia/.
 *
 * Every function here may block on the driver's lock, for ever if the driver hangs: only berth-card
 * calls them, and for reading the children of `berth doctor`. What each errno means is in the
 * kernel module (vgpu-vfio-pci-core.c): EPERM on a type write is "already configured", on a 0 write
 * "no vGPU there" or "open"; EBUSY "the plugin process did not end within 5 s"; EIO any refusal of
 * the resource manager.
 */
#pragma once

#include "base/error.h"
#include "model/pci.h"
#include "model/profile.h"

/* A descriptor (O_PATH) of the VF's nvidia folder. -ENOENT or -ENODEV when the VF is gone or not
 * bound to the driver. */
int vf_open(const char *sysfs_root, struct pci_addr vf, int *ret_fd) _must_check_;

/* current_vgpu_type; 0: free. -EBADMSG when it is no number. */
int vf_read_type(int vf_fd, uint32_t *ret) _must_check_;
/* Writes the decimal id in one write(2); 0 releases. */
int vf_write_type(int vf_fd, uint32_t type_id) _must_check_;

/* False where the driver has no placement_id (before 570). Does not ask the driver. */
bool vf_has_placement_file(int vf_fd);
/* placement_id, or PLACEMENT_NONE when it does not read as one. */
uint16_t vf_read_placement(int vf_fd);
int vf_write_placement(int vf_fd, uint16_t id) _must_check_;
/* Asks for a placement through vgpu_params, which the driver honours at the VM's boot, and reads it
 * back. -EIO when it does not stand there afterwards. */
int vf_pin_placement(int vf_fd, uint16_t id) _must_check_;

/* creatable_vgpu_types; see profile_list_parse(). */
int vf_read_list(int vf_fd, struct profile_list *ret, unsigned *ret_bad_lines,
		 struct error *err) _must_check_;

/* What the attributes' texts say. A placement that is empty, "Not Applicable", 65535 or no number
 * is PLACEMENT_NONE. */
int vf_parse_type(const char *text, size_t len, uint32_t *ret) _must_check_;
uint16_t vf_parse_placement(const char *text, size_t len);
/* Whether a vgpu_params text holds "vgpu-placement-id=<id>" as one of its comma-separated parts. */
bool vf_params_pin(const char *text, size_t len, uint16_t id);

/*
 * The two files that are read once a second, kept open and read anew by pread. The kernel answers
 * ENODEV on a descriptor whose device or driver binding is gone; the file is then opened again.
 */
struct vf_reader {
	int type_fd;
	int placement_fd;
	bool has_placement_file;
};

#define VF_READER_INIT ((struct vf_reader){ .type_fd = -1, .placement_fd = -1 })

void vf_reader_done(struct vf_reader *r);
/* The type and, if there is one, its placement. -errno of reading the type. */
int vf_reader_read(struct vf_reader *r, const char *sysfs_root, struct pci_addr vf,
		   uint32_t *ret_type, uint16_t *ret_placement) _must_check_;
