/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vGPU profiles: names, type ids, framebuffer, and the text of `creatable_vgpu_types`.
 *
 * A profile's name is what the driver prints ("NVIDIA L40S-4Q"); requests may leave out "NVIDIA ".
 * A type id belongs to one card's catalogue and is never carried to another card.
 */
#pragma once

#include "base/error.h"

#define PROFILE_NAME_MAX  64  /* NVML_VGPU_NAME_BUFFER_SIZE; with NUL */
#define PROFILE_TYPES_MAX 128 /* types per GPU, drivers >= 580 */

struct profile {
	uint32_t type_id;	     /* never 0 */
	char name[PROFILE_NAME_MAX]; /* empty while unknown */
	uint32_t framebuffer_mb;     /* MiB; from NVML, else from the name; 0 while unknown */
};

struct profile_list {
	unsigned n;
	struct profile items[PROFILE_TYPES_MAX]; /* in the driver's order */
};

/* Both sides may carry the "NVIDIA " prefix; exact otherwise. */
bool profile_name_equal(const char *a, const char *b);

/* Framebuffer in MiB that the name states: "L40S-4Q" 4096, "DC-1-24Q" 24576, "A16-2B" 2048.
 * 0 when the name does not end in "-<GB><letters>". */
uint32_t profile_name_framebuffer_mb(const char *name);
/* "NVIDIA H100-1-10C": a type backed by a GPU instance has its slices before its framebuffer. */
bool profile_name_is_mig(const char *name);

/* "NVIDIA RTX Pro 6000 Blackwell DC-3Q" -> "RTX Pro 6000 Blackwell DC-3Q" (a pointer into name). */
const char *profile_name_short(const char *name);

/* Parses creatable_vgpu_types: a header line, then "%-5d : %s" lines (VFIO module; L40S capture).
 * Tolerates CRLF, a missing final newline, header only and 0 bytes. A line that does not parse is
 * passed over and counted in *ret_bad_lines (the first one is quoted in err, if err is not NULL);
 * the others still count. Duplicate ids keep the first. Returns 0; -E2BIG when there are more than
 * PROFILE_TYPES_MAX types (the list then holds the first ones). */
int profile_list_parse(const char *text, size_t len, struct profile_list *ret,
		       unsigned *ret_bad_lines, struct error *err) _must_check_;

const struct profile *profile_list_find_id(const struct profile_list *l, uint32_t type_id);
const struct profile *profile_list_find_name(const struct profile_list *l, const char *name);
