/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/cleanup.h"

static void list_device(const struct device *d, struct buf *out)
{
	const char *problem = device_problem(d);
	char node[16] = "-", group[16];

	if (d->numa_node >= 0)
		snprintf(node, sizeof node, "%d", d->numa_node);
	snprintf(group, sizeof group, "%d", d->group);
	buf_printf(out, "  %-36s  NUMA %-3s  group %-6s  %s%s%s\n", d->id, node, group,
		   problem ? "unhealthy" : "healthy", problem ? ": " : "", problem ? problem : "");
}

void list_table(const struct discovery *d, struct buf *out)
{
	for (unsigned i = 0; i < d->n_resources; i++) {
		const struct resource *r = &d->resources[i];

		buf_printf(out, "%s  (%s, %s): %u\n", r->name, device_kind_name(r->kind), r->source,
			   r->n_devices);
		for (unsigned k = 0; k < r->n_devices; k++)
			list_device(&r->devices[k], out);
	}
	if (d->n_resources == 0)
		buf_add_str(out, "nothing to offer\n");
	if (d->n_free > 0)
		buf_printf(out, "VFs without a vGPU type: %u\n", d->n_free);
	if (d->n_left_out > 0)
		buf_add_str(out, "not offered:\n");
	for (unsigned i = 0; i < d->n_left_out; i++)
		buf_printf(out, "  %-36s  %s\n", d->left_out[i].id, d->left_out[i].reason);
}

static json_t *device_json(const struct device *d)
{
	const char *problem = device_problem(d);
	json_t *j = json_pack("{s:s,s:s,s:i,s:s?}", "id", d->id, "health",
			      problem ? "Unhealthy" : "Healthy", "iommu_group", d->group, "problem",
			      problem);
	char bdf[PCI_ADDR_MAX];

	json_object_set_new(j, "gpu", json_string(pci_addr_format(d->card, bdf)));
	json_object_set_new(j, "numa_node",
			    d->numa_node < 0 ? json_null() : json_integer(d->numa_node));
	if (d->type_id)
		json_object_set_new(j, "type_id", json_integer(d->type_id));
	return j;
}

int list_json(const struct discovery *d, struct buf *out)
{
	json_t *resources = json_array(), *left_out = json_array(), *root;
	_free_ char *text = NULL;

	for (unsigned i = 0; i < d->n_resources; i++) {
		const struct resource *r = &d->resources[i];
		json_t *devices = json_array();

		for (unsigned k = 0; k < r->n_devices; k++)
			json_array_append_new(devices, device_json(&r->devices[k]));
		json_array_append_new(resources,
				      json_pack("{s:s,s:s,s:s,s:o}", "name", r->name, "source",
						r->source, "kind", device_kind_name(r->kind),
						"devices", devices));
	}
	for (unsigned i = 0; i < d->n_left_out; i++)
		json_array_append_new(left_out, json_pack("{s:s,s:s}", "id", d->left_out[i].id,
							  "reason", d->left_out[i].reason));
	root = json_pack("{s:o,s:i,s:o}", "resources", resources, "unconfigured_vfs",
			 (int)d->n_free, "left_out", left_out);
	text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
	json_decref(root);
	if (!text)
		return -ENOMEM;
	buf_add_str(out, text);
	buf_add_char(out, '\n');
	return 0;
}

static bool has_kind(const struct discovery *d, bool mdev)
{
	for (unsigned i = 0; i < d->n_resources; i++)
		if ((d->resources[i].kind == DEVICE_MDEV) == mdev)
			return true;
	return false;
}

/* VFs go under pciHostDevices: under mediatedDevices KubeVirt would look for another variable. */
void list_permitted(const struct discovery *d, struct buf *out)
{
	buf_add_str(out, has_kind(d, false) || has_kind(d, true) ? "permittedHostDevices:\n"
								 : "permittedHostDevices: {}\n");
	if (has_kind(d, false))
		buf_add_str(out, "  pciHostDevices:\n");
	for (unsigned i = 0; i < d->n_resources; i++) {
		const struct resource *r = &d->resources[i];

		if (r->kind != DEVICE_MDEV)
			buf_printf(
				out,
				"  - pciVendorSelector: \"10DE:%04X\"\n    resourceName: \"%s\"\n"
				"    externalResourceProvider: true\n",
				r->device_id, r->name);
	}
	if (has_kind(d, true))
		buf_add_str(out, "  mediatedDevices:\n");
	for (unsigned i = 0; i < d->n_resources; i++) {
		const struct resource *r = &d->resources[i];

		if (r->kind == DEVICE_MDEV)
			buf_printf(out,
				   "  - mdevNameSelector: \"%s\"\n    resourceName: \"%s\"\n"
				   "    externalResourceProvider: true\n",
				   r->source, r->name);
	}
}
