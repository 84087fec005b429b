# SPDX-License-Identifier: Apache-2.0
"""A kubelet as far as a device plugin sees one: it does what real ones (1.20 and 1.36) were seen doing.

It wipes the sockets of its folder when it starts, asks for the options before it answers Register, takes
the list from one stream per resource that it never opens again by itself, and calls Allocate without a
deadline. It is over grpcio's C core, so it shares nothing with src/grpc.
"""
import concurrent.futures
import os
import pathlib
import stat
import threading
import time

import grpc

from kubelet_messages import V1, V1BETA1

NAME_ALLOWED = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


def serialize(message):
    return message.SerializeToString()


class Endpoint:
    """A registered plugin: its channel, and what its list said."""

    def __init__(self, kubelet, resource, socket):
        self.kubelet = kubelet
        self.resource = resource
        self.socket = socket
        self.lists = []  # of {id: (health, node or None)}
        self.first = threading.Event()  # a list came
        self.ended = None
        options = [("grpc.default_authority", str(kubelet.folder / socket))] if kubelet.raw_authority else []
        self.channel = grpc.insecure_channel(f"unix:{kubelet.folder / socket}", options=options)
        self.stream = None

    def call(self, method, request, answer, timeout=30):
        function = self.channel.unary_unary(f"/v1beta1.DevicePlugin/{method}", serialize, answer.FromString)
        return function(request, timeout=timeout)

    def watch(self):
        function = self.channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch", serialize,
                                             V1BETA1.ListAndWatchResponse.FromString)
        self.stream = function(V1BETA1.Empty())
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            for answer in self.stream:
                self.lists.append({d.ID: (d.health, d.topology.nodes[0].ID if d.HasField("topology") else None)
                                   for d in answer.devices})
                self.first.set()
            self.ended = "ok"
        except grpc.RpcError as e:
            self.ended = e.code().name

    def cut(self):
        """Ends the stream, as a kubelet that dropped this endpoint."""
        self.stream.cancel()


class FakeKubelet:
    def __init__(self, folder, raw_authority=False, ask_options=True, watch=True, delay=0, list_first=False):
        self.folder = pathlib.Path(folder)
        self.raw_authority = raw_authority
        self.ask_options = ask_options
        self.watches = watch  # False: takes registrations and never watches
        self.delay = delay
        self.list_first = list_first  # answers Register when the first list is there
        self.endpoints = {}  # resource: the newest
        self.registrations = []  # (time, resource, endpoint, options)
        self.refuse = None  # text of the error that Register gives
        self.server = None
        self.lock = threading.Lock()

    # --- Life

    def wipe(self):
        for path in self.folder.iterdir():
            if stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink()

    def start(self, wipe=True, replace=False):
        self.folder.mkdir(exist_ok=True)
        if wipe:
            self.wipe()
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
        handlers = {"Register": grpc.unary_unary_rpc_method_handler(
            self.register, V1BETA1.RegisterRequest.FromString, serialize)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.Registration", handlers),))
        path = self.folder / "kubelet.sock"
        bound = self.folder / f"new-{len(self.registrations)}.sock" if replace else path
        assert server.add_insecure_port(f"unix:{bound}")
        server.start()
        if replace:
            self.server.stop(0).wait()  # which removes the socket where it was bound
            os.rename(bound, path)
        self.server = server
        return self

    def replace(self):
        """Another kubelet's socket over that of this one. The old connections stay open."""
        self.endpoints = {}
        self.start(wipe=False, replace=True)

    def stop(self):
        """As if it were killed: its connections end. (Its socket file goes too.)"""
        for endpoint in self.endpoints.values():
            endpoint.channel.close()
        self.endpoints = {}
        if self.server:
            self.server.stop(0).wait()
        self.server = None

    def restart(self, down=0.0):
        self.stop()
        self.wipe()
        if down:
            time.sleep(down)
        self.start()

    # --- Registration

    def register(self, request, context):
        self.registrations.append((time.monotonic(), request.resource_name, request.endpoint, request.options))
        if self.refuse:
            context.abort(grpc.StatusCode.UNKNOWN, self.refuse)
        if request.version != "v1beta1":
            context.abort(grpc.StatusCode.UNKNOWN, f'requested API version "{request.version}" is not supported')
        domain, slash, part = request.resource_name.partition("/")
        if not slash or not part or len(part) > 63 or set(part) - NAME_ALLOWED or "kubernetes.io" in domain:
            context.abort(grpc.StatusCode.UNKNOWN, f'the ResourceName "{request.resource_name}" is invalid')
        endpoint = Endpoint(self, request.resource_name, request.endpoint)
        if self.ask_options:
            try:
                options = endpoint.call("GetDevicePluginOptions", V1BETA1.Empty(), V1BETA1.DevicePluginOptions, 10)
            except grpc.RpcError as e:
                context.abort(grpc.StatusCode.UNKNOWN, f"failed to dial device plugin: {e.details()}")
            assert options.pre_start_required and options.get_preferred_allocation_available
        if self.delay:
            time.sleep(self.delay)
        with self.lock:
            old = self.endpoints.get(request.resource_name)
            self.endpoints[request.resource_name] = endpoint
        if old:
            old.channel.close()
        if self.watches:
            endpoint.watch()
        if self.list_first and not endpoint.first.wait(10):
            context.abort(grpc.StatusCode.UNKNOWN, "no list came while Register waited")
        return V1BETA1.Empty()

    # --- What a node's status and pods would see

    def devices(self, resource):
        """{id: (health, node)} as told last; None where nothing is registered or watched."""
        endpoint = self.endpoints.get(resource)
        return endpoint.lists[-1] if endpoint and endpoint.lists and endpoint.ended is None else None

    def healthy(self, resource):
        devices = self.devices(resource)
        return None if devices is None else sorted(i for i, (health, _) in devices.items() if health == "Healthy")

    def lists(self, resource):
        return self.endpoints[resource].lists

    def allocate(self, resource, *containers, timeout=30):
        """Each container is a list of IDs; gives [(envs, [device paths])]."""
        request = V1BETA1.AllocateRequest(
            container_requests=[V1BETA1.ContainerAllocateRequest(devices_ids=ids) for ids in containers])
        answer = self.endpoints[resource].call("Allocate", request, V1BETA1.AllocateResponse, timeout)
        result = []
        for response in answer.container_responses:
            for device in response.devices:
                assert device.permissions == "mrw" and device.host_path == device.container_path
            result.append((dict(response.envs), [d.host_path for d in response.devices]))
        return result

    def refusal(self, resource, *containers):
        """(status, text) of an Allocate that has to fail."""
        try:
            answer = self.allocate(resource, *containers)
        except grpc.RpcError as e:
            return e.code().name, e.details()
        raise AssertionError(f"allocated: {answer}")

    def pre_start(self, resource, ids):
        self.endpoints[resource].call("PreStartContainer", V1BETA1.PreStartContainerRequest(devices_ids=ids),
                                      V1BETA1.PreStartContainerResponse, 30)

    def preferred(self, resource, available, size, must=()):
        part = V1BETA1.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size)
        answer = self.endpoints[resource].call(
            "GetPreferredAllocation", V1BETA1.PreferredAllocationRequest(container_requests=[part]),
            V1BETA1.PreferredAllocationResponse)
        return list(answer.container_responses[0].deviceIDs)


class Rival:
    """Another program that offers the same resource: serves an empty list and registers."""

    def __init__(self, kubelet, resource):
        self.kubelet = kubelet
        self.resource = resource
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        self.stopped = threading.Event()
        handlers = {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
                lambda _request, _context: V1BETA1.DevicePluginOptions(
                    pre_start_required=True, get_preferred_allocation_available=True),
                V1BETA1.Empty.FromString, serialize),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self.list_and_watch, V1BETA1.Empty.FromString, serialize)}
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers),))
        assert self.server.add_insecure_port(f"unix:{kubelet.folder}/rival.sock")
        self.server.start()

    def list_and_watch(self, _request, _context):
        yield V1BETA1.ListAndWatchResponse()
        self.stopped.wait()

    def register(self):
        with grpc.insecure_channel(f"unix:{self.kubelet.folder}/kubelet.sock") as channel:
            call = channel.unary_unary("/v1beta1.Registration/Register", serialize, V1BETA1.Empty.FromString)
            call(V1BETA1.RegisterRequest(version="v1beta1", endpoint="rival.sock", resource_name=self.resource),
                 timeout=10)

    def stop(self):
        self.stopped.set()
        self.server.stop(0).wait()


class PodResources:
    """The kubelet's pod-resources service on a socket."""

    def __init__(self, path):
        self.path = path
        self.pods = {}  # name: {resource: [id]}
        self.error = None  # a StatusCode
        self.asked = 0
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        handlers = {"List": grpc.unary_unary_rpc_method_handler(
            self.list, V1.ListPodResourcesRequest.FromString, serialize)}
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers),))
        assert self.server.add_insecure_port(f"unix:{path}")
        self.server.start()

    def list(self, _request, context):
        self.asked += 1
        if self.error:
            context.abort(self.error, "rejected by rate limit")
        pods = []
        for name, devices in self.pods.items():
            container = V1.ContainerResources(name="compute", cpu_ids=[1, 2], devices=[
                V1.ContainerDevices(resource_name=resource, device_ids=[i])
                for resource, ids in devices.items() for i in ids])
            pods.append(V1.PodResources(name=name, namespace="vms", containers=[container], cpu_ids=[3]))
        return V1.ListPodResourcesResponse(pod_resources=pods)

    def stop(self):
        self.server.stop(0).wait()
