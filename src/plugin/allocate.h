/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocate and PreStartContainer: a last look at each device asked for, then the answer.
 *
 * Nothing is believed that was only true at the last scan: the function, its vendor, its group, its
 * nodes, and of a VF the type, which berth-card reads. A kubelet sets no limit to Allocate and
 * admits no other pod meanwhile, so there is one of our own.
 */
#pragma once

#include "grpc/grpc.h"
#include "plugin/plugin.h"

void allocate_start(struct plugin *p, const char *resource, struct grpc_call *call, const void *msg,
		    size_t size);
void allocate_pre_start(struct plugin *p, const char *resource, struct grpc_call *call,
			const void *msg, size_t size);
/* The call is over, whether it was answered or not. */
void allocate_closed(struct grpc_call *call);
