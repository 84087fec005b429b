# SPDX-License-Identifier: Apache-2.0
"""Messages of the kubelet's APIs, as dynamic protobuf types: independent of proto/ and protobuf-c."""
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# message: [(field, number, type, repeated)]; a type with a capital is a message, "map" is map<string, string>.
DEVICE_PLUGIN = {
    "Empty": [],
    "DevicePluginOptions": [("pre_start_required", 1, "bool", False),
                            ("get_preferred_allocation_available", 2, "bool", False)],
    "RegisterRequest": [("version", 1, "string", False), ("endpoint", 2, "string", False),
                        ("resource_name", 3, "string", False), ("options", 4, "DevicePluginOptions", False)],
    "NUMANode": [("ID", 1, "int64", False)],
    "TopologyInfo": [("nodes", 1, "NUMANode", True)],
    "Device": [("ID", 1, "string", False), ("health", 2, "string", False), ("topology", 3, "TopologyInfo", False)],
    "ListAndWatchResponse": [("devices", 1, "Device", True)],
    "PreStartContainerRequest": [("devices_ids", 1, "string", True)],
    "PreStartContainerResponse": [],
    "ContainerPreferredAllocationRequest": [("available_deviceIDs", 1, "string", True),
                                            ("must_include_deviceIDs", 2, "string", True),
                                            ("allocation_size", 3, "int32", False)],
    "PreferredAllocationRequest": [("container_requests", 1, "ContainerPreferredAllocationRequest", True)],
    "ContainerPreferredAllocationResponse": [("deviceIDs", 1, "string", True)],
    "PreferredAllocationResponse": [("container_responses", 1, "ContainerPreferredAllocationResponse", True)],
    "ContainerAllocateRequest": [("devices_ids", 1, "string", True)],
    "AllocateRequest": [("container_requests", 1, "ContainerAllocateRequest", True)],
    "Mount": [("container_path", 1, "string", False), ("host_path", 2, "string", False),
              ("read_only", 3, "bool", False)],
    "DeviceSpec": [("container_path", 1, "string", False), ("host_path", 2, "string", False),
                   ("permissions", 3, "string", False)],
    "CDIDevice": [("name", 1, "string", False)],
    "ContainerAllocateResponse": [("envs", 1, "map", True), ("mounts", 2, "Mount", True),
                                  ("devices", 3, "DeviceSpec", True), ("annotations", 4, "map", True),
                                  ("cdi_devices", 5, "CDIDevice", True)],
    "AllocateResponse": [("container_responses", 1, "ContainerAllocateResponse", True)],
}
POD_RESOURCES = {
    "ListPodResourcesRequest": [],
    "ContainerDevices": [("resource_name", 1, "string", False), ("device_ids", 2, "string", True)],
    "ContainerResources": [("name", 1, "string", False), ("devices", 2, "ContainerDevices", True),
                           ("cpu_ids", 3, "int64", True)],
    "PodResources": [("name", 1, "string", False), ("namespace", 2, "string", False),
                     ("containers", 3, "ContainerResources", True), ("cpu_ids", 4, "int64", True)],
    "ListPodResourcesResponse": [("pod_resources", 1, "PodResources", True)],
}
FIELD = descriptor_pb2.FieldDescriptorProto
TYPES = {"bool": FIELD.TYPE_BOOL, "string": FIELD.TYPE_STRING, "int32": FIELD.TYPE_INT32, "int64": FIELD.TYPE_INT64}


def add_map(message, package, field):
    """The entry type that stands behind a map field."""
    entry = message.nested_type.add(name=field.title().replace("_", "") + "Entry")
    entry.options.map_entry = True
    for number, key in enumerate(("key", "value"), 1):
        entry.field.add(name=key, number=number, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    return f".{package}.{message.name}.{entry.name}"


def build(package, table):
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in table.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in fields:
            f = message.field.add(name=field, number=number,
                                  label=FIELD.LABEL_REPEATED if repeated else FIELD.LABEL_OPTIONAL)
            if kind in TYPES:
                f.type = TYPES[kind]
            else:
                f.type = FIELD.TYPE_MESSAGE
                f.type_name = add_map(message, package, field) if kind == "map" else f".{package}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    factory = message_factory.MessageFactory(pool)
    return {name: factory.GetPrototype(pool.FindMessageTypeByName(f"{package}.{name}")) for name in table}


class Namespace:
    def __init__(self, types):
        self.__dict__.update(types)


V1BETA1 = Namespace(build("v1beta1", DEVICE_PLUGIN))
V1 = Namespace(build("v1", POD_RESOURCES))
