/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a VF's nvidia/ folder: their names per driver branch, their exact text, and what the
 * driver answers to a write. Used by simsys.c only; faults are injected above (simfuse).
 */
#pragma once

#include "base/macro.h"
#include "sim/simtree.h"

void simsys_nvidia_list(struct sim_vf *vf, struct sim_listing *l);
mode_t simsys_nvidia_mode(uint32_t attr);
bool simsys_nvidia_is_type(uint32_t attr);	/* current_vgpu_type */
bool simsys_nvidia_is_placement(uint32_t attr); /* placement_id */
ssize_t simsys_nvidia_read(struct sim_vf *vf, uint32_t attr,
			   char ret[SIM_ATTRIBUTE_SIZE]) _must_check_;
int simsys_nvidia_write(struct sim_vf *vf, uint32_t attr, const char *data, size_t n) _must_check_;
