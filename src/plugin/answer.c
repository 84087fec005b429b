/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/answer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "proto/deviceplugin.pb-c.h"

#define NODE_PATH_MAX 48

/* One container's part, with the memory behind it. */
struct part {
	V1beta1__ContainerAllocateResponse message;
	V1beta1__ContainerAllocateResponse__EnvsEntry env;
	V1beta1__ContainerAllocateResponse__EnvsEntry *envs[1];
	char env_name[ENV_NAME_MAX];
	char *env_value;
	unsigned n_specs;
	V1beta1__DeviceSpec *specs;
	V1beta1__DeviceSpec **spec_pointers;
	char (*paths)[NODE_PATH_MAX];
};

static void part_done(struct part *p)
{
	free(p->env_value);
	free(p->specs);
	free(p->spec_pointers);
	free(p->paths);
}

/* Each node once, in the order of the devices. */
static void add_node(struct part *p, const char *path)
{
	static char mrw[] = "mrw";

	for (unsigned i = 0; i < p->n_specs; i++)
		if (strcmp(p->paths[i], path) == 0)
			return;
	snprintf(p->paths[p->n_specs], NODE_PATH_MAX, "%s", path);
	v1beta1__device_spec__init(&p->specs[p->n_specs]);
	p->specs[p->n_specs].container_path = p->paths[p->n_specs];
	p->specs[p->n_specs].host_path = p->paths[p->n_specs];
	p->specs[p->n_specs].permissions = mrw;
	p->spec_pointers[p->n_specs] = &p->specs[p->n_specs];
	p->n_specs++;
}

static void add_group_nodes(struct part *p, const struct answer_container *c)
{
	char path[NODE_PATH_MAX];

	add_node(p, "/dev/vfio/vfio");
	for (unsigned i = 0; i < c->n; i++) {
		snprintf(path, sizeof path, "/dev/vfio/%d", c->devices[i].group);
		if (c->devices[i].group_node)
			add_node(p, path);
	}
}

static void add_iommufd_nodes(struct part *p, const struct answer_container *c,
			      const struct answer_host *host)
{
	char path[NODE_PATH_MAX];

	for (unsigned i = 0; i < c->n; i++)
		if (!c->devices[i].cdevs_complete || c->devices[i].n_cdevs == 0)
			return;
	if (!host->iommu_node || c->n == 0)
		return;
	add_node(p, "/dev/iommu");
	for (unsigned i = 0; i < c->n; i++)
		for (unsigned k = 0; k < c->devices[i].n_cdevs; k++) {
			snprintf(path, sizeof path, "/dev/vfio/devices/%s", c->devices[i].cdevs[k]);
			add_node(p, path);
		}
}

static bool has_all(const struct answer_container *c, const struct egm *e)
{
	for (unsigned g = 0; g < e->n_gpus; g++) {
		bool found = false;

		for (unsigned i = 0; i < c->n; i++)
			found |= c->devices[i].device->kind == DEVICE_GPU &&
				 pci_addr_equal(c->devices[i].device->address, e->gpus[g]);
		if (!found)
			return false;
	}
	return true;
}

static void add_egm_nodes(struct part *p, const struct answer_container *c,
			  const struct answer_host *host)
{
	char path[NODE_PATH_MAX];

	for (unsigned i = 0; i < host->n_egms; i++) {
		if (!has_all(c, &host->egms[i]))
			continue;
		snprintf(path, sizeof path, "/dev/%s", host->egms[i].name);
		add_node(p, path);
	}
}

static int add_env(struct part *p, const char *resource, const struct answer_container *c)
{
	_buf_ struct buf value = BUF_INIT;
	bool mdev = c->n > 0 && c->devices[0].device->kind == DEVICE_MDEV;
	size_t len;

	for (unsigned i = 0; i < c->n; i++)
		buf_printf(&value, "%s%s", i ? "," : "", c->devices[i].device->id);
	if (c->n == 0)
		return 0;
	if (buf_take(&value, &p->env_value, &len) < 0)
		return -ENOMEM;
	names_env(mdev ? NAMES_ENV_MDEV : NAMES_ENV_PCI, resource, p->env_name);
	v1beta1__container_allocate_response__envs_entry__init(&p->env);
	p->env.key = p->env_name;
	p->env.value = p->env_value;
	p->envs[0] = &p->env;
	p->message.n_envs = 1;
	p->message.envs = p->envs;
	return 0;
}

static int build_part(struct part *p, const char *resource, const struct answer_container *c,
		      const struct answer_host *host)
{
	unsigned size = 3 + c->n + host->n_egms;

	v1beta1__container_allocate_response__init(&p->message);
	for (unsigned i = 0; i < c->n; i++)
		size += c->devices[i].n_cdevs;
	p->specs = calloc(size, sizeof *p->specs);
	p->spec_pointers = calloc(size, sizeof *p->spec_pointers);
	p->paths = calloc(size, sizeof *p->paths);
	if (!p->specs || !p->spec_pointers || !p->paths)
		return -ENOMEM;
	add_group_nodes(p, c);
	add_iommufd_nodes(p, c, host);
	add_egm_nodes(p, c, host);
	p->message.n_devices = p->n_specs;
	p->message.devices = p->spec_pointers;
	return add_env(p, resource, c);
}

static int pack(const V1beta1__AllocateResponse *message, uint8_t **ret, size_t *ret_size)
{
	uint8_t *data = malloc(v1beta1__allocate_response__get_packed_size(message) + 1);

	if (!data)
		return -ENOMEM;
	*ret_size = v1beta1__allocate_response__pack(message, data);
	*ret = data;
	return 0;
}

int answer_build(const char *resource, const struct answer_container *containers, unsigned n,
		 const struct answer_host *host, uint8_t **ret, size_t *ret_size)
{
	V1beta1__AllocateResponse message = V1BETA1__ALLOCATE_RESPONSE__INIT;
	_free_ V1beta1__ContainerAllocateResponse **pointers = calloc(n + 1U, sizeof *pointers);
	_free_ struct part *parts = calloc(n + 1U, sizeof *parts);
	int r = pointers && parts ? 0 : -ENOMEM;

	for (unsigned i = 0; r == 0 && i < n; i++) {
		r = build_part(&parts[i], resource, &containers[i], host);
		pointers[i] = &parts[i].message;
	}
	if (r == 0) {
		message.n_container_responses = n;
		message.container_responses = pointers;
		r = pack(&message, ret, ret_size);
	}
	for (unsigned i = 0; parts && i < n; i++)
		part_done(&parts[i]);
	return r;
}
