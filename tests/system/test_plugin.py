# SPDX-License-Identifier: Apache-2.0
"""berth-device-plugin on a simulated host, with a fake kubelet: registration, lists, rescans, Allocate."""
import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import struct
import sys
import time

import grpc
import pytest

from conftest import BIN, wait_for
from fake_kubelet import FakeKubelet, PodResources
from kubelet_messages import V1BETA1
from plugin_host import Plugin, Q2, Q4, Q8, run_once

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
import frames  # noqa: E402

VFS = [f"0000:41:00.{n}" for n in (4, 5, 6, 7)]
OTHER = [f"0000:81:00.{n}" for n in (4, 5, 6, 7)]


@pytest.fixture
def folder(work):
    path = work / "device-plugins"
    path.mkdir()
    return path


@pytest.fixture
def kubelet(folder):
    started = FakeKubelet(folder).start()
    yield started
    started.stop()


@pytest.fixture
def start_plugin(work, folder):
    """start_plugin(sim, *options) gives a running Plugin; all are stopped at the end."""
    started = []

    def start(sim, *options, **more):
        plugin = Plugin(work, sim.sys, sim.dev, folder, *options, **more)
        started.append(plugin)
        return plugin

    yield start
    for plugin in started:
        assert plugin.stop() in (0, -signal.SIGKILL), plugin.log()
    if all(p.process.returncode == 0 for p in started):
        assert not list(folder.glob("berth-*"))


@pytest.fixture
def host(sim):
    """Two 4Q on one card, one 2Q on the other."""
    for vf in VFS[:2]:
        sim.ctl("configure", vf, "L40S-4Q")
    sim.ctl("configure", OTHER[0], "L40S-2Q")
    return sim


def wait_healthy(kubelet, resource, ids, seconds=10):
    wait_for(lambda: kubelet.healthy(resource) == sorted(ids), f"{resource} = {ids}", seconds)


# --- Registration


def test_registers_and_lists_at_once(host, kubelet, start_plugin):
    plugin = start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    wait_healthy(kubelet, Q2, OTHER[:1])
    assert kubelet.devices(Q4)[VFS[0]] == ("Healthy", 0)
    assert kubelet.devices(Q2)[OTHER[0]] == ("Healthy", 1)
    _, _, socket, options = kubelet.registrations[0]
    assert options.pre_start_required and options.get_preferred_allocation_available
    assert "/" not in socket and len(socket) <= 75
    wait_for(lambda: plugin.get("/readyz")[0] == 200, "ready")


def test_answers_while_register_waits(host, folder, start_plugin):
    """The options are asked for inside Register, and the answer to it comes later still."""
    kubelet = FakeKubelet(folder, delay=1.5).start()
    start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    kubelet.stop()


def test_old_kubelet(host, folder, start_plugin):
    """1.20: the socket's path as authority, and nobody asks for options."""
    kubelet = FakeKubelet(folder, raw_authority=True, ask_options=False).start()
    start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    assert kubelet.allocate(Q4, VFS[:1])
    kubelet.stop()


def test_waits_for_a_kubelet(host, folder, start_plugin):
    plugin = start_plugin(host)
    wait_for(lambda: plugin.scans(), "a scan")
    status, text = plugin.get("/readyz")
    assert status == 503 and "kubelet" in text
    kubelet = FakeKubelet(folder).start(wipe=False)
    wait_healthy(kubelet, Q4, VFS[:2])
    kubelet.stop()


def test_refused_registration_is_tried_again(host, folder, start_plugin):
    kubelet = FakeKubelet(folder)
    kubelet.refuse = "not today"
    kubelet.start()
    plugin = start_plugin(host)
    wait_for(lambda: len(kubelet.registrations) >= 4, "two attempts for each resource")
    assert plugin.log().count("not today") == 2  # once for each resource, not for each attempt
    assert "not today" in plugin.get("/readyz")[1]
    kubelet.refuse = None
    wait_healthy(kubelet, Q4, VFS[:2])
    kubelet.stop()


def test_stale_socket_is_replaced(host, folder, kubelet, start_plugin):
    first = start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    names = {p.name for p in folder.glob("berth-*.sock")}
    first.kill()
    assert {p.name for p in folder.glob("berth-*.sock")} == names
    wait_for(lambda: kubelet.devices(Q4) is None, "the stream's end")
    start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    assert {p.name for p in folder.glob("berth-*.sock")} == names  # stable over restarts


# --- Kubelet restarts


def restart(kubelet, folder, how):
    if how == "sockets wiped":
        kubelet.restart(down=0.3)
    elif how == "socket replaced":
        kubelet.replace()
    else:
        kubelet.stop()
        shutil.rmtree(folder)
        kubelet.start()


@pytest.mark.field("F40")
@pytest.mark.parametrize("how", ["sockets wiped", "socket replaced", "folder replaced"])
def test_kubelet_restart(host, folder, kubelet, start_plugin, how):
    plugin = start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    for _ in range(3):
        seen = len(kubelet.registrations)
        restart(kubelet, folder, how)
        wait_healthy(kubelet, Q4, VFS[:2], 5)
        wait_healthy(kubelet, Q2, OTHER[:1], 5)
        assert len(kubelet.registrations) - seen <= 4
    assert plugin.process.poll() is None


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize("how", ["sockets wiped", "socket replaced", "folder replaced"])
def test_without_inotify_the_poll_notices(host, folder, kubelet, start_plugin, how):
    """As at the limit of inotify instances."""
    plugin = start_plugin(host, env={"ASAN_OPTIONS": "detect_leaks=0"},
                          wrapper=["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=inotify_init1",
                                   "-e", "inject=inotify_init1:error=EMFILE"])
    wait_healthy(kubelet, Q4, VFS[:2])
    assert "no notification" in plugin.log()
    restart(kubelet, folder, how)
    wait_healthy(kubelet, Q4, VFS[:2], 5)
    assert plugin.log().count("no notification") == 1


@pytest.mark.field("F46")
def test_many_restarts_grow_nothing(host, kubelet, start_plugin):
    plugin = start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    kubelet.restart()
    wait_healthy(kubelet, Q4, VFS[:2])
    before = plugin.descriptors(), plugin.threads()
    for _ in range(100):
        kubelet.restart()
        wait_healthy(kubelet, Q4, VFS[:2])
        wait_healthy(kubelet, Q2, OTHER[:1])
    wait_for(lambda: (plugin.descriptors(), plugin.threads()) == before, f"descriptors and threads as before {before}")


# --- Streams that end


@pytest.mark.field("F41")
def test_stream_that_ends_is_registered_again(host, kubelet, start_plugin):
    start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    wait_healthy(kubelet, Q2, OTHER[:1])
    old, other = kubelet.endpoints[Q4], kubelet.endpoints[Q2]
    old.cut()
    wait_for(lambda: kubelet.endpoints[Q4] is not old and kubelet.healthy(Q4) == VFS[:2], "a new registration", 5)
    assert kubelet.endpoints[Q2] is other  # nobody else is disturbed


def test_kubelet_that_takes_and_never_watches(host, folder, start_plugin):
    kubelet = FakeKubelet(folder, watch=False).start()
    start_plugin(host)
    wait_for(lambda: kubelet.registrations, "a registration")
    kubelet.watches = True
    wait_healthy(kubelet, Q4, VFS[:2], 20)
    kubelet.stop()


@pytest.mark.field("F41")
def test_two_instances(host, folder, kubelet, start_plugin):
    """A rolling update: each has its own sockets, and the old one's goodbye takes nothing away."""
    first = start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    sockets = {p.name for p in folder.glob("berth-*.sock")}
    start_plugin(host)
    wait_for(lambda: len(list(folder.glob("berth-*.sock"))) == 2 * len(sockets), "the second one's sockets")
    wait_for(lambda: kubelet.endpoints[Q4].socket not in sockets and kubelet.healthy(Q4) == VFS[:2], "the second one")
    assert first.stop() == 0
    assert not sockets & {p.name for p in folder.glob("berth-*.sock")}
    wait_healthy(kubelet, Q4, VFS[:2])


def test_sigterm_leaves_cleanly(host, folder, kubelet, start_plugin):
    plugin = start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    assert plugin.stop() == 0
    assert not list(folder.glob("berth-*"))
    assert host.vf(VFS[0])["type"]  # nothing was changed


# --- Rescans


@pytest.mark.tsan
def test_profile_configured_after_start_appears(host, kubelet, start_plugin):
    plugin = start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    four = kubelet.endpoints[Q4]
    host.ctl("configure", OTHER[1], "L40S-8Q")
    host.ctl("configure", VFS[2], "L40S-4Q")
    plugin.rescan()
    wait_healthy(kubelet, Q8, OTHER[1:2])
    wait_healthy(kubelet, Q4, VFS[:3])
    assert kubelet.endpoints[Q4] is four and four.ended is None  # in place, without registering again


def test_vf_leaves_its_profile(host, kubelet, start_plugin):
    plugin = start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    host.ctl("configure", VFS[0], 0)
    plugin.rescan()
    wait_healthy(kubelet, Q4, VFS[1:2])
    assert set(kubelet.devices(Q4)) == {VFS[1]}


@pytest.mark.field("F42")
def test_empty_profile_stops_after_an_empty_list(host, folder, kubelet, start_plugin):
    plugin = start_plugin(host)
    wait_healthy(kubelet, Q2, OTHER[:1])
    wait_healthy(kubelet, Q4, VFS[:2])
    four, two = kubelet.endpoints[Q4], kubelet.endpoints[Q2]
    for _ in range(2):
        host.ctl("configure", OTHER[0], 0)
        plugin.rescan()
        wait_for(lambda: two.ended, "the end of the stream")
        assert two.lists[-1] == {}
        host.ctl("configure", OTHER[0], "L40S-2Q")
        plugin.rescan()
        wait_for(lambda: kubelet.endpoints[Q2] is not two, "registered again")
        wait_healthy(kubelet, Q2, OTHER[:1])
        two = kubelet.endpoints[Q2]
    assert kubelet.endpoints[Q4] is four and len(four.lists) == 1
    assert {r for _, r, _, _ in kubelet.registrations} == {Q2, Q4}
    host.ctl("configure", OTHER[0], 0)
    plugin.rescan()
    wait_for(lambda: len(list(folder.glob("berth-*.sock"))) == 1, "its socket to go")


def test_rescan_without_change_says_nothing(host, kubelet, start_plugin):
    plugin = start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    for _ in range(3):
        plugin.rescan()
    assert len(kubelet.lists(Q4)) == 1 and len(kubelet.registrations) == 2


@pytest.mark.field("F48")
def test_type_that_changes_moves_the_vf(host, kubelet, start_plugin):
    """Nothing but the content tells."""
    plugin = start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    host.ctl("configure", VFS[0], 0)
    host.ctl("configure", VFS[0], "L40S-2Q")
    plugin.rescan()
    wait_healthy(kubelet, Q2, [VFS[0], OTHER[0]])
    wait_healthy(kubelet, Q4, VFS[1:2])


def test_failed_scan_changes_nothing(host, kubelet, start_plugin):
    plugin = start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    host.ctl("set", "sysfs.read_errno", "EIO")
    plugin.rescan()
    host.ctl("set", "sysfs.read_errno", 0)
    plugin.rescan()
    assert len(kubelet.lists(Q4)) == 1
    assert kubelet.healthy(Q4) == VFS[:2]


def test_rescan_by_itself(host, kubelet, start_plugin):
    """Below the floor: every five seconds, with a warning."""
    plugin = start_plugin(host, env={"VFIO_VGPU_RESCAN_INTERVAL": "1s"})
    wait_healthy(kubelet, Q4, VFS[:2])
    assert "5s" in plugin.log()
    start = time.monotonic()
    host.ctl("configure", VFS[2], "L40S-4Q")
    wait_healthy(kubelet, Q4, VFS[:3], 9)
    assert time.monotonic() - start > 1


@pytest.mark.parametrize("value", [None, "", "0", "0s"])
def test_rescans_are_off(host, kubelet, start_plugin, value):
    plugin = start_plugin(host, env={} if value is None else {"VFIO_VGPU_RESCAN_INTERVAL": value})
    wait_healthy(kubelet, Q4, VFS[:2])
    assert "rescans=off" in plugin.log()


@pytest.mark.parametrize("value", ["-1s", "30", "soon", "5s extra", "1d"])
def test_bad_interval_refuses_to_start(host, folder, value):
    done = run_once(host.sys, host.dev, "--kubelet-dir", folder, env={"VFIO_VGPU_RESCAN_INTERVAL": value})
    assert done.returncode == 1
    assert "VFIO_VGPU_RESCAN_INTERVAL" in done.stderr and value in done.stderr
    done = run_once(host.sys, host.dev, "--kubelet-dir", folder, "--rescan-interval", value)
    assert done.returncode == 1 and "--rescan-interval" in done.stderr


def test_option_wins_over_the_variable(host, kubelet, start_plugin):
    plugin = start_plugin(host, interval="1m", env={"VFIO_VGPU_RESCAN_INTERVAL": "nonsense"})
    wait_healthy(kubelet, Q4, VFS[:2])
    assert "rescans=on" in plugin.log()


# --- Allocate


@pytest.mark.field("F30", "F34")
def test_allocate(host, kubelet, start_plugin):
    """Names as KubeVirt builds them, both sets of nodes where all is there."""
    start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    groups = {vf: os.readlink(host.sys / "bus/pci/devices" / vf / "iommu_group").split("/")[-1] for vf in VFS}
    cdevs = {vf: os.listdir(host.sys / "bus/pci/devices" / vf / "vfio-dev")[0] for vf in VFS}
    [(env, nodes)] = kubelet.allocate(Q4, [VFS[1], VFS[0]])
    assert env == {"PCI_RESOURCE_NVIDIA_COM_NVIDIA_L40S-4Q": f"{VFS[1]},{VFS[0]}"}
    assert nodes == ["/dev/vfio/vfio", f"/dev/vfio/{groups[VFS[1]]}", f"/dev/vfio/{groups[VFS[0]]}", "/dev/iommu",
                     f"/dev/vfio/devices/{cdevs[VFS[1]]}", f"/dev/vfio/devices/{cdevs[VFS[0]]}"]
    first, second = kubelet.allocate(Q4, [VFS[0]], [VFS[1]])
    assert list(first[0].values()) == [VFS[0]] and list(second[0].values()) == [VFS[1]]
    assert f"/dev/vfio/{groups[VFS[1]]}" not in first[1]


def test_allocate_is_refused_with_device_and_reason(host, kubelet, start_plugin):
    start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    assert kubelet.refusal(Q4, ["0000:41:01.0"]) == ("NOT_FOUND", f"0000:41:01.0 is no device of {Q4}")
    assert kubelet.refusal(Q4, [OTHER[0]])[0] == "NOT_FOUND"
    assert kubelet.refusal(Q4, [VFS[0], VFS[0]]) == ("INVALID_ARGUMENT", f"{VFS[0]} is asked for twice")
    assert kubelet.refusal(Q4, [])[0] == "INVALID_ARGUMENT"
    host.ctl("configure", VFS[0], 0)
    status, text = kubelet.refusal(Q4, [VFS[1], VFS[0]])
    assert status == "FAILED_PRECONDITION" and VFS[0] in text and "no vGPU type" in text
    host.ctl("configure", VFS[0], "L40S-2Q")
    status, text = kubelet.refusal(Q4, [VFS[0]])
    assert status == "FAILED_PRECONDITION" and "1148" in text and "L40S-4Q" in text
    host.ctl("group", VFS[1], 99)
    status, text = kubelet.refusal(Q4, [VFS[1]])
    assert status == "FAILED_PRECONDITION" and "group is 99" in text


def test_allocate_when_the_attribute_fails(host, kubelet, start_plugin):
    start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    host.ctl("set", "sysfs.read_errno", "EBUSY")
    status, text = kubelet.refusal(Q4, [VFS[0]])
    assert status == "FAILED_PRECONDITION" and VFS[0] in text and "busy" in text
    host.ctl("set", "sysfs.read_errno", 0)
    assert kubelet.allocate(Q4, [VFS[0]])


def test_hung_driver_does_not_hang_allocate(host, kubelet, start_plugin):
    """Other cards go on meanwhile; the answer comes within 20 s."""
    start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    wait_healthy(kubelet, Q2, OTHER[:1])
    host.ctl("set", "sysfs.read_hang", 1, "--gpu", "0000:41:00.0")
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        refusal = pool.submit(kubelet.refusal, Q4, [VFS[0]])
        assert kubelet.allocate(Q2, [OTHER[0]], timeout=5)
        status, text = refusal.result()
    assert time.monotonic() - start < 21
    assert status in ("UNAVAILABLE", "DEADLINE_EXCEEDED") and VFS[0] in text
    host.ctl("set", "sysfs.read_hang", 0)
    wait_for(lambda: try_allocate(kubelet, Q4, VFS[0]), "the card to work again", 15)


def test_hung_card_holds_up_nobody(host, kubelet, start_plugin):
    """At the start too: the other card's devices are offered, and the hung one's when it works again."""
    host.ctl("set", "sysfs.read_hang", 1, "--gpu", "0000:41:00.0")
    start_plugin(host)
    wait_healthy(kubelet, Q2, OTHER[:1], 9)
    assert Q4 not in kubelet.endpoints
    host.ctl("set", "sysfs.read_hang", 0)
    wait_healthy(kubelet, Q4, VFS[:2], 5)


def test_card_that_hangs_in_a_rescan_keeps_its_list(host, kubelet, start_plugin):
    plugin = start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    host.ctl("set", "sysfs.read_hang", 1, "--gpu", "0000:41:00.0")
    host.ctl("configure", OTHER[1], "L40S-2Q")
    plugin.rescan()
    wait_healthy(kubelet, Q2, OTHER[:2])
    assert kubelet.healthy(Q4) == VFS[:2] and len(kubelet.lists(Q4)) == 1
    host.ctl("set", "sysfs.read_hang", 0)
    wait_for(lambda: try_allocate(kubelet, Q4, VFS[0]), "the card to work again", 15)


def test_card_that_goes_while_it_is_asked(host, kubelet, start_plugin):
    plugin = start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    host.ctl("set", "sysfs.read_latency_ms", 1500)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        refusal = pool.submit(kubelet.refusal, Q4, [VFS[0]])
        host.ctl("remove", "0000:41:00.0")
        plugin.process.send_signal(signal.SIGHUP)
        status, text = refusal.result()
    assert status == "FAILED_PRECONDITION" and VFS[0] in text
    host.ctl("set", "sysfs.read_latency_ms", 0)
    wait_for(lambda: kubelet.endpoints[Q4].ended, "the profile's end", 20)


def try_allocate(kubelet, resource, vf):
    try:
        return kubelet.allocate(resource, [vf])
    except grpc.RpcError:
        return None


def test_pre_start_checks_again(host, kubelet, start_plugin):
    start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    kubelet.allocate(Q4, [VFS[0]])
    kubelet.pre_start(Q4, [VFS[0]])
    host.ctl("configure", VFS[0], 0)
    with pytest.raises(grpc.RpcError) as e:
        kubelet.pre_start(Q4, [VFS[0]])
    assert VFS[0] in e.value.details()


def test_preferred_allocation(start_sim, kubelet, start_plugin):
    sim = start_sim("--nvml-latency", 0, "--numa", "0,1")
    for vf in VFS[:2] + OTHER[:3]:
        sim.ctl("configure", vf, "L40S-4Q")
    start_plugin(sim)
    wait_healthy(kubelet, Q4, VFS[:2] + OTHER[:3])
    everything = VFS[:2] + OTHER[:3]
    assert kubelet.preferred(Q4, everything, 2) == VFS[:2]  # the node that is just large enough
    assert sorted(kubelet.preferred(Q4, everything, 3)) == OTHER[:3]
    assert kubelet.preferred(Q4, everything, 2, [OTHER[1]]) == [OTHER[1], OTHER[0]]
    assert len(kubelet.preferred(Q4, everything, 5)) == 5


# --- Health


@pytest.mark.field("F36")
def test_vf_off_the_bus_and_back(host, kubelet, start_plugin):
    """That device alone, and without a rescan."""
    start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    group = os.readlink(host.sys / "bus/pci/devices" / VFS[0] / "iommu_group").split("/")[-1]
    host.ctl("remove", VFS[0])
    assert not (host.dev / "vfio" / group).exists()
    wait_healthy(kubelet, Q4, VFS[1:2])
    assert kubelet.devices(Q4)[VFS[0]][0] == "Unhealthy"
    host.ctl("restore", VFS[0])
    wait_healthy(kubelet, Q4, VFS[:2])


def test_quarantined_vf(host, work, kubelet, start_plugin):
    """Without pod-resources nobody knows who has it: Unhealthy; and healthy again when it is lifted."""
    plugin = start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    file = work / "vf-health.json"
    record = {"vf_address": VFS[0], "failures": [], "quarantined_at": "2026-11-29T12:00:00Z"}
    file.write_text(json.dumps({"version": 1, "records": [record]}))
    wait_healthy(kubelet, Q4, VFS[1:2])
    assert kubelet.devices(Q4)[VFS[0]][0] == "Unhealthy"
    assert "quarantined" in kubelet.refusal(Q4, [VFS[0]])[1]
    file.write_text("garbage")  # never "no quarantines"
    wait_for(lambda: plugin.metrics()["berth_plugin_health_file_unreadable"] == 1, "noticed")
    assert kubelet.healthy(Q4) == VFS[1:2]
    file.unlink()
    wait_healthy(kubelet, Q4, VFS[:2])


# --- pod-resources


@pytest.fixture
def pods(work):
    service = PodResources(work / "pods.sock")
    yield service
    service.stop()


def test_pods_keep_their_ids(host, work, kubelet, pods, start_plugin):
    pods.pods = {"vm-1": {Q2: [OTHER[0]]}, "vm-2": {Q4: [VFS[0]]}}
    plugin = start_plugin(host, "--pod-resources", work / "pods.sock")
    wait_healthy(kubelet, Q4, VFS[:2])
    wait_healthy(kubelet, Q2, OTHER[:1])
    endpoint = kubelet.endpoints[Q2]
    for vf in (VFS[0], VFS[1], OTHER[0]):
        host.ctl("configure", vf, 0)
    plugin.rescan()
    wait_for(lambda: kubelet.devices(Q2) == {OTHER[0]: ("Unhealthy", 1)}, "unhealthy, not gone")
    wait_for(lambda: kubelet.devices(Q4) == {VFS[0]: ("Unhealthy", 0)}, "the free one leaves")
    assert endpoint.ended is None  # its profile does not stop
    host.ctl("configure", VFS[0], "L40S-8Q")  # under another name, while a pod has it: not offered
    plugin.rescan()
    assert Q8 not in kubelet.endpoints
    pods.error = grpc.StatusCode.RESOURCE_EXHAUSTED  # unknown is never "no pods"
    asked = pods.asked
    plugin.rescan()
    wait_for(lambda: pods.asked > asked, "asked")
    assert set(kubelet.devices(Q2)) == {OTHER[0]}
    pods.error = None
    pods.pods = {}
    plugin.rescan()
    wait_for(lambda: endpoint.ended, "the profile's end")
    wait_healthy(kubelet, Q8, VFS[:1])


def test_quarantined_and_free_leaves_the_list(host, work, kubelet, pods, start_plugin):
    pods.pods = {"vm": {Q4: [VFS[1]]}}
    start_plugin(host, "--pod-resources", work / "pods.sock")
    wait_healthy(kubelet, Q4, VFS[:2])
    records = [{"vf_address": vf, "quarantined_at": "2026-11-29T12:00:00Z"} for vf in VFS[:2]]
    (work / "vf-health.json").write_text(json.dumps({"version": 1, "records": records}))
    wait_for(lambda: kubelet.devices(Q4) == {VFS[1]: ("Unhealthy", 0)}, "free one gone, allocated one unhealthy")


# --- Names that only NVML knows, and hangs


@pytest.mark.tsan
def test_full_card_is_named_by_nvml_once(start_sim, kubelet, start_plugin):
    sim = start_sim("--nvml-latency", 0)
    sim.ctl("configure", VFS[0], "L40S-48Q")
    library = next((sim.root / "lib").glob("libnvidia-ml.so.1"))
    plugin = start_plugin(sim, nvml=library)
    wait_healthy(kubelet, "nvidia.com/NVIDIA_L40S-48Q", VFS[:1])
    plugin.rescan()
    assert plugin.metrics()["berth_plugin_nvml_cards_total"] == 1
    # Nothing of NVIDIA's is held open behind it.
    helpers = [os.readlink(f"/proc/{p}/exe") for p in children(plugin.process.pid)]
    assert not [h for h in helpers if h.endswith("berth-nvml")]


def children(pid):
    out = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as f:
            out += [int(c) for c in f.read().split()]
    return out


def test_without_nvml_a_full_card_is_left_out(start_sim, kubelet, start_plugin):
    sim = start_sim("--nvml-latency", 0)
    sim.ctl("configure", VFS[0], "L40S-48Q")
    sim.ctl("configure", OTHER[0], "L40S-2Q")
    plugin = start_plugin(sim)
    wait_healthy(kubelet, Q2, OTHER[:1])
    assert f"device={VFS[0]}" in plugin.log()
    assert "nvidia.com/NVIDIA_L40S-48Q" not in kubelet.endpoints


@pytest.mark.field("F44")
def test_kubelet_restart_while_nvml_hangs_and_sysfs_is_slow(host, kubelet, start_plugin):
    """The last good list at once, never an empty one because a scan is running."""
    library = next((host.root / "lib").glob("libnvidia-ml.so.1"))
    plugin = start_plugin(host, nvml=library)
    wait_healthy(kubelet, Q4, VFS[:2])
    host.ctl("set", "nvml.hang", 1)
    host.ctl("set", "sysfs.read_latency_ms", 60)
    plugin.process.send_signal(signal.SIGHUP)
    start = time.monotonic()
    kubelet.restart()
    wait_healthy(kubelet, Q4, VFS[:2], 5)
    assert time.monotonic() - start < 2.5
    assert kubelet.lists(Q4)[0] == {VFS[0]: ("Healthy", 0), VFS[1]: ("Healthy", 0)}
    host.ctl("set", "sysfs.read_latency_ms", 0)
    host.ctl("set", "nvml.hang", 0)


def test_one_resource_many_devices(start_sim, kubelet, start_plugin):
    """The list in one piece and in order."""
    sim = start_sim("--nvml-latency", 0, "--cards", 4, "--model", "a16")
    state = sim.state()
    vfs = []
    for card in state["cards"]:
        for vf in card["vfs"][:7]:
            sim.ctl("configure", vf["address"], "A16-2Q")
            vfs.append(vf["address"])
    start_plugin(sim)
    wait_healthy(kubelet, "nvidia.com/NVIDIA_A16-2Q", vfs)


@pytest.mark.field("F38")
def test_all_in_use_and_the_socket_dies(host, folder, kubelet, start_plugin):
    """Usage does not influence the list."""
    start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    guests = [host.boot(vf, "--init-ms", 0) for vf in VFS[:2]]
    (folder / kubelet.endpoints[Q4].socket).unlink()
    seen = len(kubelet.registrations)
    wait_for(lambda: len(kubelet.registrations) > seen, "registered again", 8)
    wait_healthy(kubelet, Q4, VFS[:2])
    for pid in guests:
        os.kill(pid, signal.SIGTERM)


def test_check_and_long_folder(host, folder, work):
    done = run_once(host.sys, host.dev, "--kubelet-dir", folder, "--check")
    assert done.returncode == 0 and "2 resources" in done.stdout
    deep = work / ("d" * (60 - len(str(work)) - 1))
    deep.mkdir()
    assert run_once(host.sys, host.dev, "--kubelet-dir", deep, "--check").returncode == 0
    done = run_once(host.sys, host.dev, "--kubelet-dir", work / ("d" * 100))
    assert done.returncode == 1 and "107" in done.stderr
    assert (BIN / "berth-device-plugin").exists()


def read_lists(connection, stream, until):
    """Sizes of the lists of a ListAndWatch stream; grants the windows as it reads."""
    data, sizes = b"", []
    while not sizes or sizes[-1] != until:
        while len(data) < 5 or len(data) < 5 + int.from_bytes(data[1:5], "big"):
            frame = connection.read()
            assert frame.kind != frames.RST_STREAM
            if frame.kind == frames.DATA and frame.stream == stream:
                data += frame.payload
                grant = struct.pack(">I", len(frame.payload) or 1)
                connection.send(frames.frame(frames.WINDOW_UPDATE, 0, 0, grant),
                                frames.frame(frames.WINDOW_UPDATE, 0, stream, grant))
        end = 5 + int.from_bytes(data[1:5], "big")
        sizes.append(len(V1BETA1.ListAndWatchResponse.FromString(data[5:end]).devices))
        data = data[end:]
    return sizes


@pytest.mark.field("F43")
def test_full_host_and_a_watcher_that_stalls(start_sim, folder, kubelet, start_plugin):
    """768 devices with topology in one list; lists that are queued meanwhile come whole, in order, and the
    newest last."""
    sim = start_sim("--nvml-latency", 0, "--cards", 24, "--vfs", 32, "--model", "rtx-pro-6000",
                    "--mode", "equal")
    name, vfs = "NVIDIA RTX Pro 6000 Blackwell DC-2B", []
    for card in sim.state()["cards"]:
        number = next(i for i, n in sim.listed(card["vfs"][0]["address"]).items() if n == name)
        for vf in card["vfs"]:
            sim.write(vf["address"], "current_vgpu_type", number)
            vfs.append(vf["address"])
    assert len(vfs) == 16 * 48  # no card takes 48 of one type outside MIG: so many on cards that are full
    plugin = start_plugin(sim, nvml=next((sim.root / "lib").glob("libnvidia-ml.so.1")))
    resource = "nvidia.com/" + name.replace(" ", "_")
    wait_healthy(kubelet, resource, vfs, 20)
    assert {node for _, node in kubelet.devices(resource).values()} == {0, 1}
    with frames.Connection(str(folder / kubelet.endpoints[resource].socket)) as stalled:
        stalled.call(1, "/v1beta1.DevicePlugin/ListAndWatch")
        for n in range(9):  # each list has some 28 KB; nothing is granted meanwhile
            sim.write(vfs[n], "current_vgpu_type", 0)
            plugin.rescan()
            wait_for(lambda: len(kubelet.devices(resource)) == len(vfs) - n - 1, "the list of one that reads")
        sizes = read_lists(stalled, 1, len(vfs) - 9)
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == len(vfs)
    assert len(sizes) < 9  # those in between were not worth keeping
    assert "kubelets take" not in plugin.log()  # far below their 4 MiB
