/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names: from a profile or a GPU to the Kubernetes resource, from the resource to KubeVirt's
 * environment variable, and the operator's own names.
 *
 * The same source always gives the same resource; nothing that changes goes into a name. What
 * Kubernetes would refuse and cannot be mended is an error, never cut off silently. Pure.
 */
#pragma once

#include "base/error.h"

#define RESOURCE_NAME_MAX   320 /* prefix 244, slash, name 63; with NUL */
#define RESOURCE_PART_MAX   63	/* bytes behind the slash */
#define RESOURCE_DOMAIN_MAX 244
#define RESOURCE_DOMAIN	    "nvidia.com"
#define ENV_NAME_MAX	    (RESOURCE_NAME_MAX + 24)
#define NAME_SOURCE_MAX	    128 /* what the driver, pci.ids or a person calls it; with NUL */

/* A profile: "NVIDIA L40S-4Q" -> "nvidia.com/NVIDIA_L40S-4Q". Blanks and slashes become '_', other
 * characters that Kubernetes does not take are left out, as are ends that are no letter or digit.
 * -EINVAL with the reason when nothing is left or it is too long. */
int names_from_profile(const char *profile, char ret[static RESOURCE_NAME_MAX],
		       struct error *err) _must_check_;

/* A GPU's name in pci.ids: "TU106 [GeForce RTX 2060 Rev. A]" ->
 * "nvidia.com/TU106_GEFORCE_RTX_2060_REV__A" (upper case; '/', '.' and blank become '_'). */
int names_from_pci_ids(const char *name, char ret[static RESOURCE_NAME_MAX],
		       struct error *err) _must_check_;

/* Whether Kubernetes takes it as an extended resource. -EINVAL with the rule that it breaks. */
int names_check(const char *resource, struct error *err) _must_check_;

enum names_env_kind { NAMES_ENV_PCI, NAMES_ENV_MDEV };

/* As KubeVirt builds it: "PCI_RESOURCE_NVIDIA_COM_NVIDIA_L40S-4Q" (hyphens stay). */
void names_env(enum names_env_kind kind, const char *resource, char ret[static ENV_NAME_MAX]);

/* The operator's own names: lines "SOURCE: RESOURCE", where SOURCE is a profile with or without
 * "NVIDIA ", or a GPU's PCI id as "10de:26b9", and RESOURCE has a domain or gets nvidia.com/. Lines
 * that are empty or start with '#' count for nothing; quotes around either side are taken off. */
struct name_map;

/* -EINVAL with the line's number. Two sources may not share a resource. */
int name_map_parse(const char *text, size_t len, struct name_map **ret,
		   struct error *err) _must_check_;
struct name_map *name_map_free(struct name_map *m);
static inline void name_map_freep(struct name_map **m)
{
	name_map_free(*m);
}

/* The resource of a source, or NULL. The map may be NULL. */
const char *name_map_find(const struct name_map *m, const char *source);
