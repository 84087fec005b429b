/* SPDX-License-Identifier: Apache-2.0 */
#include "host/vf.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "model/placement.h"

#define ATTR_MAX   64	      /* a number and a newline; longer text is no number */
#define PARAMS_MAX 1100	      /* the driver takes 1024 bytes */
#define LIST_MAX   (16 << 10) /* sysfs gives at most one page of 4 KiB, larger page sizes more */

int vf_open(const char *sysfs_root, struct pci_addr vf, int *ret_fd)
{
	char bdf[PCI_ADDR_MAX];
	char path[PATH_MAX];
	int n, fd;

	n = snprintf(path, sizeof path, "%s/bus/pci/devices/%s/nvidia", sysfs_root,
		     pci_addr_format(vf, bdf));
	if (n < 0 || (size_t)n >= sizeof path)
		return -ENAMETOOLONG;
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

static int attr_write(int vf_fd, const char *name, const char *text)
{
	size_t len = strlen(text);
	_close_ int fd = -1;
	ssize_t n;

	/* O_TRUNC means nothing to sysfs; a directory of plain files needs it. */
	fd = openat(vf_fd, name, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return -errno;
	n = write(fd, text, len);
	if (n < 0)
		return -errno;
	return (size_t)n == len ? 0 : -EIO;
}

int vf_parse_type(const char *text, size_t len, uint32_t *ret)
{
	return str_to_u32_n(text, len, ret) < 0 ? -EBADMSG : 0;
}

uint16_t vf_parse_placement(const char *text, size_t len)
{
	uint32_t id;

	if (str_to_u32_n(text, len, &id) < 0 || id >= PLACEMENT_NONE)
		return PLACEMENT_NONE;
	return (uint16_t)id;
}

int vf_read_type(int vf_fd, uint32_t *ret)
{
	char text[ATTR_MAX];
	size_t len;
	int r;

	r = file_read_into(vf_fd, "current_vgpu_type", text, sizeof text, &len);
	if (r < 0)
		return r == -EFBIG ? -EBADMSG : r;
	return vf_parse_type(text, len, ret);
}

int vf_write_type(int vf_fd, uint32_t type_id)
{
	char text[16];

	snprintf(text, sizeof text, "%" PRIu32, type_id);
	return attr_write(vf_fd, "current_vgpu_type", text);
}

bool vf_has_placement_file(int vf_fd)
{
	return faccessat(vf_fd, "placement_id", F_OK, 0) == 0;
}

uint16_t vf_read_placement(int vf_fd)
{
	char text[ATTR_MAX];
	size_t len;
	int r;

	r = file_read_into(vf_fd, "placement_id", text, sizeof text, &len);
	return r < 0 ? PLACEMENT_NONE : vf_parse_placement(text, len);
}

int vf_write_placement(int vf_fd, uint16_t id)
{
	char text[16];

	snprintf(text, sizeof text, "%u", id);
	return attr_write(vf_fd, "placement_id", text);
}

bool vf_params_pin(const char *text, size_t len, uint16_t id)
{
	static const char key[] = "vgpu-placement-id=";
	const size_t key_len = sizeof key - 1;
	const char *end = text + len;

	while (text < end) {
		const char *comma = memchr(text, ',', (size_t)(end - text));
		const char *part_end = comma ? comma : end;
		uint32_t value;

		while (text < part_end && *text == ' ')
			text++;
		if ((size_t)(part_end - text) > key_len && memcmp(text, key, key_len) == 0 &&
		    str_to_u32_n(text + key_len, (size_t)(part_end - text) - key_len, &value) ==
			    0 &&
		    value == id)
			return true;
		text = part_end + 1;
	}
	return false;
}

int vf_pin_placement(int vf_fd, uint16_t id)
{
	char text[PARAMS_MAX];
	size_t len;
	int r;

	snprintf(text, sizeof text, "vgpu-placement-id=%u", id);
	r = attr_write(vf_fd, "vgpu_params", text);
	if (r < 0)
		return r;
	r = file_read_into(vf_fd, "vgpu_params", text, sizeof text, &len);
	if (r < 0)
		return r;
	return vf_params_pin(text, len, id) ? 0 : -EIO;
}

int vf_read_list(int vf_fd, struct profile_list *ret, unsigned *ret_bad_lines, struct error *err)
{
	_free_ char *text = NULL;
	size_t len;
	int r;

	r = file_read_at(vf_fd, "creatable_vgpu_types", LIST_MAX, &text, &len);
	if (r < 0)
		return error_set_errno(err, r, "creatable_vgpu_types");
	return profile_list_parse(text, len, ret, ret_bad_lines, err);
}

void vf_reader_done(struct vf_reader *r)
{
	cleanup_close(&r->type_fd);
	cleanup_close(&r->placement_fd);
	*r = VF_READER_INIT;
}

static int reader_open(struct vf_reader *r, const char *sysfs_root, struct pci_addr vf)
{
	_close_ int vf_fd = -1;
	int fd, e;

	vf_reader_done(r);
	e = vf_open(sysfs_root, vf, &vf_fd);
	if (e < 0)
		return e;
	fd = openat(vf_fd, "current_vgpu_type", O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	r->type_fd = fd;
	r->placement_fd = openat(vf_fd, "placement_id",
				 O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	r->has_placement_file = r->placement_fd >= 0 || errno != ENOENT;
	return 0;
}

static int reader_type(const struct vf_reader *r, uint32_t *ret)
{
	char text[ATTR_MAX];
	ssize_t n;

	if (r->type_fd < 0)
		return -EBADF;
	n = pread(r->type_fd, text, sizeof text, 0);
	if (n < 0)
		return -errno;
	return vf_parse_type(text, (size_t)n, ret);
}

int vf_reader_read(struct vf_reader *r, const char *sysfs_root, struct pci_addr vf,
		   uint32_t *ret_type, uint16_t *ret_placement)
{
	uint16_t placement = PLACEMENT_NONE;
	char text[ATTR_MAX];
	uint32_t type = 0;
	int e;

	/* Whatever a kept descriptor fails with, a fresh one decides. */
	e = reader_type(r, &type);
	if (e < 0) {
		e = reader_open(r, sysfs_root, vf);
		if (e == 0)
			e = reader_type(r, &type);
	}
	if (e < 0) {
		vf_reader_done(r);
		return e;
	}
	if (type != 0 && r->placement_fd >= 0) {
		ssize_t n = pread(r->placement_fd, text, sizeof text, 0);

		if (n >= 0)
			placement = vf_parse_placement(text, (size_t)n);
	}
	*ret_type = type;
	*ret_placement = placement;
	return 0;
}
