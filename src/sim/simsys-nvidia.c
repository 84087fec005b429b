/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/simsys-nvidia.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum file {
	FILE_CREATABLE,
	FILE_CURRENT,
	FILE_PARAMS,
	FILE_GI, /* from here on: branch 570 and later */
	FILE_PLACEMENT,
	FILE_WARM_UPDATE,
};

static const struct {
	const char *name;
	mode_t mode;
} files[] = {
	[FILE_CREATABLE] = { "creatable_vgpu_types", 0444 },
	[FILE_CURRENT] = { "current_vgpu_type", 0644 },
	[FILE_PARAMS] = { "vgpu_params", 0644 },
	[FILE_GI] = { "gpu_instance_id", 0644 },
	[FILE_PLACEMENT] = { "placement_id", 0644 },
	[FILE_WARM_UPDATE] = { "warm_update", 0644 },
};

void simsys_nvidia_list(struct sim_vf *vf, struct sim_listing *l)
{
	uint32_t last = sim_places_at_configure(vf->card->sim) ? FILE_WARM_UPDATE : FILE_PARAMS;

	for (uint32_t i = 0; i <= last; i++) {
		struct sim_node node = sim_function_node(vf->card, vf->index,
							 SIM_KIND_NVIDIA_ATTRIBUTE, i);

		sim_listing_add(l, files[i].name, &node);
	}
}

mode_t simsys_nvidia_mode(uint32_t attr)
{
	return files[attr].mode;
}

bool simsys_nvidia_is_type(uint32_t attr)
{
	return attr == FILE_CURRENT;
}

bool simsys_nvidia_is_placement(uint32_t attr)
{
	return attr == FILE_PLACEMENT;
}

/* A sysfs text never exceeds one page; what would not fit is left out, line by line. */
static ssize_t read_creatable(struct sim_vf *vf, char *ret)
{
	enum sim_creatable_text text = (enum sim_creatable_text)
					       vf->faults.value[SIM_FAULT_CREATABLE];
	const struct sim_type *types[SIM_TYPES_MAX];
	uint32_t n = text == SIM_CREATABLE_NORMAL ? sim_vf_listed_types(vf, types) : 0;
	int len;

	if (text == SIM_CREATABLE_EMPTY)
		return 0;
	len = snprintf(ret, SIM_ATTRIBUTE_SIZE, "ID    : vGPU Name\n");
	for (uint32_t i = 0; i < n; i++) {
		int added = snprintf(ret + len, (size_t)(SIM_ATTRIBUTE_SIZE - len), "%-5d : %s\n",
				     types[i]->id, types[i]->name);

		if (len + added >= SIM_ATTRIBUTE_SIZE)
			break;
		len += added;
	}
	return len;
}

/* What a number that a vGPU does not have reads as is not known for certain; this is the text that
 * was seen. */
static ssize_t read_number(uint32_t value, uint32_t none, char *ret)
{
	if (value == none)
		return snprintf(ret, SIM_ATTRIBUTE_SIZE, "Not Applicable\n");
	return snprintf(ret, SIM_ATTRIBUTE_SIZE, "%u\n", value);
}

ssize_t simsys_nvidia_read(struct sim_vf *vf, uint32_t attr, char ret[SIM_ATTRIBUTE_SIZE])
{
	enum file file = (enum file)attr;

	if (vf->dead)
		return -EINVAL;
	if (file == FILE_CREATABLE)
		return read_creatable(vf, ret);
	if (file == FILE_CURRENT)
		return snprintf(ret, SIM_ATTRIBUTE_SIZE, "%u\n", vf->type ? vf->type->id : 0);
	if (!vf->type)
		return -ENXIO;
	switch (file) {
	case FILE_PARAMS:
		return snprintf(ret, SIM_ATTRIBUTE_SIZE, "%s\n", vf->params);
	case FILE_GI:
		return read_number(vf->gi, SIM_GI_NONE, ret);
	case FILE_PLACEMENT:
		return read_number(vf->placement, SIM_PLACEMENT_NONE, ret);
	case FILE_WARM_UPDATE:
		return snprintf(ret, SIM_ATTRIBUTE_SIZE, "%u\n", vf->warm_update);
	case FILE_CREATABLE:
	case FILE_CURRENT:
		break;
	}
	return -EIO;
}

/* As kstrtol(): decimal, optional sign, one optional newline at the end. */
static int parse_number(const char *data, size_t n, long *ret)
{
	char text[32], *end;

	if (n > 0 && data[n - 1] == '\n')
		n--;
	if (n == 0 || n >= sizeof(text))
		return -EINVAL;
	memcpy(text, data, n);
	text[n] = '\0';
	if (strspn(text, "+-0123456789") < n)
		return -EINVAL;
	errno = 0;
	*ret = strtol(text, &end, 10);
	if (*end != '\0' || end == text)
		return -EINVAL;
	return errno == ERANGE ? -ERANGE : 0;
}

int simsys_nvidia_write(struct sim_vf *vf, uint32_t attr, const char *data, size_t n)
{
	enum file file = (enum file)attr;
	long value;
	int r;

	if (file == FILE_PARAMS)
		return sim_vf_write_params(vf, data, n);
	r = parse_number(data, n, &value);
	if (r < 0)
		return r;
	/* Nothing has such a number; the driver refuses it as it refuses any unknown one. */
	if (value < 0 || value > UINT32_MAX)
		value = UINT32_MAX - 1;
	switch (file) {
	case FILE_CURRENT:
		return sim_vf_write_type(vf, (uint32_t)value);
	case FILE_PLACEMENT:
		return sim_vf_write_placement(vf, (uint32_t)value);
	case FILE_GI:
		return sim_vf_write_gi(vf, (uint32_t)value);
	case FILE_WARM_UPDATE:
		if (!vf->type)
			return -ENXIO;
		if (value > 1)
			return -EINVAL;
		vf->warm_update = (uint32_t)value;
		return 0;
	case FILE_CREATABLE:
	case FILE_PARAMS:
		break;
	}
	return -EIO;
}
