/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Field numbers and wire types of proto/ against bytes written by hand from the field lists, so
 * that a typing mistake there does not hide behind a decoder that was made from the same file. What
 * real kubelets and a plugin said to each other is in tests/peers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/macro.h"
#include "proto/deviceplugin.pb-c.h"
#include "proto/pluginregistration.pb-c.h"
#include "proto/podresources.pb-c.h"

/* Generated members are not const. */
#define TEXT(s)	 ((char *)(s))
#define BYTES(s) sizeof(s) - 1, (const uint8_t *)(s)

static void assert_packs(const ProtobufCMessage *message, size_t n, const uint8_t *bytes)
{
	uint8_t packed[512];

	assert_int_equal(protobuf_c_message_get_packed_size(message), n);
	assert_int_equal(protobuf_c_message_pack(message, packed), n);
	assert_memory_equal(packed, bytes, n);
}

static void test_register(void **state)
{
	V1beta1__DevicePluginOptions options = V1BETA1__DEVICE_PLUGIN_OPTIONS__INIT;
	V1beta1__RegisterRequest r = V1BETA1__REGISTER_REQUEST__INIT;

	(void)state;
	options.pre_start_required = true;
	options.get_preferred_allocation_available = true;
	r.version = TEXT("v");
	r.endpoint = TEXT("e");
	r.resource_name = TEXT("n");
	r.options = &options;
	assert_packs(&r.base, BYTES("\x0a\1v\x12\1e\x1a\1n\x22\4\x08\1\x10\1"));
}

static void test_list(void **state)
{
	V1beta1__NUMANode node = V1BETA1__NUMANODE__INIT, *nodes = &node;
	V1beta1__TopologyInfo topology = V1BETA1__TOPOLOGY_INFO__INIT;
	V1beta1__Device device = V1BETA1__DEVICE__INIT, *devices = &device;
	V1beta1__ListAndWatchResponse list = V1BETA1__LIST_AND_WATCH_RESPONSE__INIT;

	(void)state;
	node.id = 1;
	topology.n_nodes = 1;
	topology.nodes = &nodes;
	device.id = TEXT("i");
	device.health = TEXT("h");
	device.topology = &topology;
	list.n_devices = 1;
	list.devices = &devices;
	assert_packs(&list.base, BYTES("\x0a\x0c\x0a\1i\x12\1h\x1a\4\x0a\2\x08\1"));
	/* NUMA node 0 is a message without fields, not a missing one. */
	node.id = 0;
	assert_packs(&list.base, BYTES("\x0a\x0a\x0a\1i\x12\1h\x1a\2\x0a\0"));
}

static void test_allocate_response(void **state)
{
	V1beta1__ContainerAllocateResponse__EnvsEntry env =
		V1BETA1__CONTAINER_ALLOCATE_RESPONSE__ENVS_ENTRY__INIT;
	V1beta1__ContainerAllocateResponse__EnvsEntry *envs = &env;
	V1beta1__ContainerAllocateResponse__AnnotationsEntry note =
		V1BETA1__CONTAINER_ALLOCATE_RESPONSE__ANNOTATIONS_ENTRY__INIT;
	V1beta1__ContainerAllocateResponse__AnnotationsEntry *notes = &note;
	V1beta1__Mount mount = V1BETA1__MOUNT__INIT, *mounts = &mount;
	V1beta1__DeviceSpec spec = V1BETA1__DEVICE_SPEC__INIT, *specs = &spec;
	V1beta1__CDIDevice cdi = V1BETA1__CDIDEVICE__INIT, *cdis = &cdi;
	V1beta1__ContainerAllocateResponse one = V1BETA1__CONTAINER_ALLOCATE_RESPONSE__INIT;
	V1beta1__ContainerAllocateResponse *ones = &one;
	V1beta1__AllocateResponse r = V1BETA1__ALLOCATE_RESPONSE__INIT;

	(void)state;
	env.key = TEXT("k");
	env.value = TEXT("v");
	mount.container_path = TEXT("c");
	mount.host_path = TEXT("h");
	mount.read_only = true;
	spec.container_path = TEXT("c");
	spec.host_path = TEXT("h");
	spec.permissions = TEXT("p");
	note.key = TEXT("a");
	note.value = TEXT("b");
	cdi.name = TEXT("n");
	one.n_envs = one.n_mounts = one.n_devices = one.n_annotations = one.n_cdi_devices = 1;
	one.envs = &envs;
	one.mounts = &mounts;
	one.devices = &specs;
	one.annotations = &notes;
	one.cdi_devices = &cdis;
	r.n_container_responses = 1;
	r.container_responses = &ones;
	assert_packs(&r.base, BYTES("\x0a\x2a"
				    "\x0a\6\x0a\1k\x12\1v"
				    "\x12\x08\x0a\1c\x12\1h\x18\1"
				    "\x1a\x09\x0a\1c\x12\1h\x1a\1p"
				    "\x22\6\x0a\1a\x12\1b"
				    "\x2a\3\x0a\1n"));
}

static void test_requests(void **state)
{
	V1beta1__PreferredAllocationRequest *p = v1beta1__preferred_allocation_request__unpack(
		NULL, BYTES("\x0a\x0b\x0a\1a\x0a\1b\x12\1m\x18\2\x7a\2xx"));
	V1beta1__AllocateRequest *a;
	V1beta1__PreStartContainerRequest *s;

	(void)state;
	/* Field 15 is none that we know. */
	assert_non_null(p);
	assert_int_equal(p->n_container_requests, 1);
	assert_int_equal(p->container_requests[0]->n_available_deviceids, 2);
	assert_string_equal(p->container_requests[0]->available_deviceids[1], "b");
	assert_string_equal(p->container_requests[0]->must_include_deviceids[0], "m");
	assert_int_equal(p->container_requests[0]->allocation_size, 2);
	v1beta1__preferred_allocation_request__free_unpacked(p, NULL);
	a = v1beta1__allocate_request__unpack(NULL, BYTES("\x0a\6\x0a\1a\x0a\1b"));
	assert_non_null(a);
	assert_int_equal(a->container_requests[0]->n_devices_ids, 2);
	v1beta1__allocate_request__free_unpacked(a, NULL);
	s = v1beta1__pre_start_container_request__unpack(NULL, BYTES("\x0a\1a"));
	assert_non_null(s);
	assert_string_equal(s->devices_ids[0], "a");
	v1beta1__pre_start_container_request__free_unpacked(s, NULL);
	assert_null(v1beta1__allocate_request__unpack(NULL, BYTES("\x0a\6\x0a")));
}

static void test_preferred_response(void **state)
{
	char *ids[] = { TEXT("x"), TEXT("y") };
	V1beta1__ContainerPreferredAllocationResponse one =
		V1BETA1__CONTAINER_PREFERRED_ALLOCATION_RESPONSE__INIT;
	V1beta1__ContainerPreferredAllocationResponse *ones = &one;
	V1beta1__PreferredAllocationResponse r = V1BETA1__PREFERRED_ALLOCATION_RESPONSE__INIT;

	(void)state;
	one.n_deviceids = 2;
	one.deviceids = ids;
	r.n_container_responses = 1;
	r.container_responses = &ones;
	assert_packs(&r.base, BYTES("\x0a\6\x0a\1x\x0a\1y"));
}

/* Fields that we left out (cpu_ids, memory) are passed over. */
static void test_pod_resources(void **state)
{
	static const char bytes[] = "\x0a\x32"
				    "\x0a\1p\x12\1n"
				    "\x1a\x26"
				    "\x0a\1c"
				    "\x12\x0f\x0a\1r\x12\1d\x12\1e\x1a\4\x0a\2\x08\1"
				    "\x1a\1\7"
				    "\x22\0"
				    "\x2a\x0b\x12\1x\x1a\1y\x22\3\x12\1z"
				    "\x20\5"
				    "\x2a\0";
	V1__ListPodResourcesResponse *list;
	V1__ContainerResources *c;

	(void)state;
	assert_null(v1__list_pod_resources_response__unpack(NULL, sizeof(bytes) - 2,
							    (const uint8_t *)bytes));
	list = v1__list_pod_resources_response__unpack(NULL, BYTES(bytes));
	assert_non_null(list);
	assert_string_equal(list->pod_resources[0]->name, "p");
	assert_string_equal(list->pod_resources[0]->namespace_, "n");
	c = list->pod_resources[0]->containers[0];
	assert_string_equal(c->name, "c");
	assert_string_equal(c->devices[0]->resource_name, "r");
	assert_int_equal(c->devices[0]->n_device_ids, 2);
	assert_string_equal(c->devices[0]->device_ids[1], "e");
	assert_int_equal(c->devices[0]->topology->nodes[0]->id, 1);
	assert_string_equal(c->dynamic_resources[0]->claim_name, "x");
	assert_string_equal(c->dynamic_resources[0]->claim_namespace, "y");
	assert_string_equal(c->dynamic_resources[0]->claim_resources[0]->driver_name, "z");
	v1__list_pod_resources_response__free_unpacked(list, NULL);
}

static void test_plugin_registration(void **state)
{
	char *versions[] = { TEXT("v") };
	Pluginregistration__PluginInfo info = PLUGINREGISTRATION__PLUGIN_INFO__INIT;
	Pluginregistration__RegistrationStatus *status =
		pluginregistration__registration_status__unpack(NULL, BYTES("\x08\1\x12\1e"));

	(void)state;
	info.type = TEXT("t");
	info.name = TEXT("n");
	info.endpoint = TEXT("e");
	info.n_supported_versions = 1;
	info.supported_versions = versions;
	assert_packs(&info.base, BYTES("\x0a\1t\x12\1n\x1a\1e\x22\1v"));
	assert_non_null(status);
	assert_true(status->plugin_registered);
	assert_string_equal(status->error, "e");
	pluginregistration__registration_status__free_unpacked(status, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_register),
		cmocka_unit_test(test_list),
		cmocka_unit_test(test_allocate_response),
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_preferred_response),
		cmocka_unit_test(test_pod_resources),
		cmocka_unit_test(test_plugin_registration),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
