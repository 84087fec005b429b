/* SPDX-License-Identifier: Apache-2.0 */
#include "device-methods.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "proto/deviceplugin.pb-c.h"

/* Generated members are not const. */
#define TEXT(s) ((char *)(s))

static uint8_t *pack(const ProtobufCMessage *message, size_t *ret_size)
{
	size_t size = protobuf_c_message_get_packed_size(message);
	uint8_t *bytes = malloc(size + 1);

	if (bytes)
		*ret_size = protobuf_c_message_pack(message, bytes);
	return bytes;
}

static void reply(struct grpc_call *call, const ProtobufCMessage *message)
{
	size_t size = 0;
	_free_ uint8_t *bytes = pack(message, &size);

	if (bytes)
		(void)grpc_call_reply(call, bytes, size);
	else
		(void)grpc_call_finish(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
}

static void undecodable(struct grpc_call *call)
{
	(void)grpc_call_finish(call, GRPC_INVALID_ARGUMENT, "the request cannot be decoded");
}

void device_options(struct grpc_call *call, const void *msg, size_t size, void *userdata)
{
	V1beta1__DevicePluginOptions options = V1BETA1__DEVICE_PLUGIN_OPTIONS__INIT;

	(void)msg;
	(void)size;
	(void)userdata;
	options.pre_start_required = true;
	options.get_preferred_allocation_available = true;
	reply(call, &options.base);
}

void device_list(struct grpc_call *call, const void *msg, size_t size, void *userdata)
{
	V1beta1__ListAndWatchResponse list = V1BETA1__LIST_AND_WATCH_RESPONSE__INIT;
	V1beta1__Device devices[3], *pointers[3];
	char ids[3][8];
	size_t n = 0;
	_free_ uint8_t *bytes = NULL;

	(void)msg;
	(void)size;
	(void)userdata;
	for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
		devices[i] = (V1beta1__Device)V1BETA1__DEVICE__INIT;
		snprintf(ids[i], sizeof(ids[i]), "fake-%zu", i);
		devices[i].id = ids[i];
		devices[i].health = TEXT("Healthy");
		pointers[i] = &devices[i];
	}
	list.n_devices = ARRAY_SIZE(devices);
	list.devices = pointers;
	bytes = pack(&list.base, &n);
	if (!bytes || grpc_call_send(call, bytes, n) < 0)
		(void)grpc_call_finish(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
}

void device_preferred(struct grpc_call *call, const void *msg, size_t size, void *userdata)
{
	V1beta1__PreferredAllocationRequest *request =
		v1beta1__preferred_allocation_request__unpack(NULL, size, msg);
	V1beta1__PreferredAllocationResponse answer = V1BETA1__PREFERRED_ALLOCATION_RESPONSE__INIT;
	V1beta1__ContainerPreferredAllocationResponse one =
		V1BETA1__CONTAINER_PREFERRED_ALLOCATION_RESPONSE__INIT;
	V1beta1__ContainerPreferredAllocationResponse *pointer = &one;

	(void)userdata;
	if (!request || request->n_container_requests != 1) {
		undecodable(call);
	} else {
		one.deviceids = request->container_requests[0]->available_deviceids;
		one.n_deviceids = MIN((size_t)request->container_requests[0]->allocation_size,
				      request->container_requests[0]->n_available_deviceids);
		answer.container_responses = &pointer;
		answer.n_container_responses = 1;
		reply(call, &answer.base);
	}
	v1beta1__preferred_allocation_request__free_unpacked(request, NULL);
}

/* What the recorded plugin answered for one device. */
static void reply_allocated(struct grpc_call *call, char *id)
{
	V1beta1__ContainerAllocateResponse__EnvsEntry env =
		V1BETA1__CONTAINER_ALLOCATE_RESPONSE__ENVS_ENTRY__INIT;
	V1beta1__ContainerAllocateResponse__EnvsEntry *envs = &env;
	V1beta1__ContainerAllocateResponse__AnnotationsEntry note =
		V1BETA1__CONTAINER_ALLOCATE_RESPONSE__ANNOTATIONS_ENTRY__INIT;
	V1beta1__ContainerAllocateResponse__AnnotationsEntry *notes = &note;
	V1beta1__Mount mount = V1BETA1__MOUNT__INIT, *mounts = &mount;
	V1beta1__DeviceSpec node = V1BETA1__DEVICE_SPEC__INIT, *nodes = &node;
	V1beta1__ContainerAllocateResponse one = V1BETA1__CONTAINER_ALLOCATE_RESPONSE__INIT;
	V1beta1__ContainerAllocateResponse *ones = &one;
	V1beta1__AllocateResponse answer = V1BETA1__ALLOCATE_RESPONSE__INIT;

	env.key = TEXT("FAKE_IDS");
	env.value = id;
	note.key = TEXT("fake.example/ids");
	note.value = id;
	mount.container_path = TEXT("/fake/hostname");
	mount.host_path = TEXT("/etc/hostname");
	mount.read_only = true;
	node.container_path = TEXT("/dev/fake0");
	node.host_path = TEXT("/dev/zero");
	node.permissions = TEXT("rw");
	one.n_envs = one.n_mounts = one.n_devices = one.n_annotations = 1;
	one.envs = &envs;
	one.mounts = &mounts;
	one.devices = &nodes;
	one.annotations = &notes;
	answer.n_container_responses = 1;
	answer.container_responses = &ones;
	reply(call, &answer.base);
}

void device_allocate(struct grpc_call *call, const void *msg, size_t size, void *userdata)
{
	V1beta1__AllocateRequest *request = v1beta1__allocate_request__unpack(NULL, size, msg);

	(void)userdata;
	if (!request || request->n_container_requests != 1 ||
	    request->container_requests[0]->n_devices_ids != 1)
		undecodable(call);
	else
		reply_allocated(call, request->container_requests[0]->devices_ids[0]);
	v1beta1__allocate_request__free_unpacked(request, NULL);
}

void device_pre_start(struct grpc_call *call, const void *msg, size_t size, void *userdata)
{
	V1beta1__PreStartContainerRequest *request = v1beta1__pre_start_container_request__unpack(
		NULL, size, msg);
	V1beta1__PreStartContainerResponse answer = V1BETA1__PRE_START_CONTAINER_RESPONSE__INIT;

	(void)userdata;
	if (request)
		reply(call, &answer.base);
	else
		undecodable(call);
	v1beta1__pre_start_container_request__free_unpacked(request, NULL);
}

uint8_t *device_register_request(size_t *ret_size)
{
	V1beta1__RegisterRequest request = V1BETA1__REGISTER_REQUEST__INIT;

	request.version = TEXT("v1beta1");
	request.endpoint = TEXT("fake.sock");
	request.resource_name = TEXT("nvidia.com/FAKE-4Q");
	return pack(&request.base, ret_size);
}
