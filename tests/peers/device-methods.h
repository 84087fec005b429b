/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The methods of a device plugin with three invented devices, for grpc-test-server: the messages of
 * proto/ in use. No plugin of any kind.
 */
#pragma once

#include "base/macro.h"
#include "grpc/grpc.h"

void device_options(struct grpc_call *call, const void *msg, size_t size, void *userdata);
/* Lists the devices and stays open. */
void device_list(struct grpc_call *call, const void *msg, size_t size, void *userdata);
void device_preferred(struct grpc_call *call, const void *msg, size_t size, void *userdata);
void device_allocate(struct grpc_call *call, const void *msg, size_t size, void *userdata);
void device_pre_start(struct grpc_call *call, const void *msg, size_t size, void *userdata);

/* A RegisterRequest; NULL when memory is out. */
uint8_t *device_register_request(size_t *ret_size);
