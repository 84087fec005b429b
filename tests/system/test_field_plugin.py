# SPDX-License-Identifier: Apache-2.0
"""Field reports about device plugins (docs/field-cases.md), where no other test has them whole."""
import os
import signal
import subprocess

import grpc
import pytest

from conftest import BIN, wait_for
from fake_kubelet import FakeKubelet, Rival
from plugin_host import Plugin, Q2, Q4, Q8, Tree, list_json
from test_plugin import OTHER, VFS, folder, host, kubelet, pods, start_plugin, wait_healthy  # noqa: F401

A, B = "0000:41:00.0", "0000:81:00.0"
L40S = {1150: "NVIDIA L40S-4Q", 1151: "NVIDIA L40S-6Q"}


def ours(kubelet, resource):
    """Registrations of the resource by plugins of ours: [(time, socket)]."""
    return [(t, s) for t, r, s, _ in kubelet.registrations if r == resource and s != "rival.sock"]


# --- What is offered


@pytest.mark.field("F08")
def test_vfs_under_vfio_pci_are_not_offered(sim, kubelet, start_plugin):
    """Neither as vGPUs nor as whole GPUs, at the start and when it happens under way."""
    for vf in VFS[:2] + OTHER[:2]:
        sim.ctl("configure", vf, "L40S-4Q")
    for vf in [v["address"] for v in sim.card(0)["vfs"]]:
        sim.ctl("rebind", vf, "vfio-pci")
    plugin = start_plugin(sim)
    wait_healthy(kubelet, Q4, OTHER[:2])
    assert list(kubelet.endpoints) == [Q4]
    left_out = {e["id"]: e["reason"] for e in list_json(sim.sys, sim.dev)["left_out"]}
    assert len(left_out) == 32 and len(set(left_out.values())) == 1 and "vfio-pci" in left_out[VFS[0]]
    sim.ctl("rebind", OTHER[0], "vfio-pci")
    plugin.rescan()
    wait_for(lambda: set(kubelet.devices(Q4)) == {OTHER[1]}, "the VF to leave, its neighbour to stay")
    assert list(kubelet.endpoints) == [Q4]


@pytest.mark.field("F09")
def test_vfs_that_come_after_the_plugin(start_sim, kubelet, start_plugin):
    """SR-IOV off at the start: nothing to offer is no reason to end, or to stop looking."""
    sim = start_sim("--nvml-latency", 0, "--sriov", "off")
    plugin = start_plugin(sim)
    wait_for(lambda: plugin.answers() and plugin.get("/readyz")[0] == 200, "ready, with nothing")
    sim.ctl("sriov", "-e", A)
    sim.ctl("configure", VFS[0], "L40S-4Q")
    plugin.rescan()
    wait_healthy(kubelet, Q4, VFS[:1])


@pytest.mark.field("F11")
def test_flapping_card_withdraws_nothing_of_another(host, kubelet, start_plugin):
    """The VFs of one card go and come at 100 Hz and fail with ENODEV; scan follows scan meanwhile."""
    plugin = start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    endpoint, scans = kubelet.endpoints[Q4], 0
    host.ctl("set", "sysfs.read_errno", "ENODEV", "--gpu", B, "--for", 2)
    flap = subprocess.Popen([BIN / "berth-sim", "ctl", "--root", host.root, "flap", B, "--hz", "100", "--for", "2"])
    while flap.poll() is None:
        plugin.rescan()
        scans += 1
    assert flap.returncode == 0 and scans > 3
    plugin.rescan()
    assert kubelet.endpoints[Q4] is endpoint and endpoint.ended is None
    assert [set(l) for l in endpoint.lists] == [set(VFS[:2])]
    assert {health for l in endpoint.lists for health, _ in l.values()} == {"Healthy"}
    failed = [k for k in plugin.metrics() if k.startswith("berth_plugin_scans_total") and "ok" not in k]
    assert all(plugin.metrics()[k] == 0 for k in failed)


@pytest.mark.field("F30")
def test_env_of_a_name_made_from_the_id(work, folder, kubelet):
    """KubeVirt upper-cases the resource: 26b9 is looked for as 26B9."""
    tree = Tree(work / "host")
    tree.function("0000:31:00.0", "0x26b9", group=7)
    plugin = Plugin(work, tree.sys, tree.dev, folder, "--pci-ids", "/nonexistent")
    try:
        wait_healthy(kubelet, "nvidia.com/26b9", ["0000:31:00.0"])
        [(env, _)] = kubelet.allocate("nvidia.com/26b9", ["0000:31:00.0"])
        assert env == {"PCI_RESOURCE_NVIDIA_COM_26B9": "0000:31:00.0"}
    finally:
        assert plugin.stop() == 0


@pytest.mark.field("F31")
def test_long_names_in_a_deep_folder(work):
    """Names of 63 characters that differ in the last, a folder of 60 bytes; the same after a restart."""
    types = {i: "NVIDIA " + "x" * 55 + str(i) for i in (1, 2)}
    resources = ["nvidia.com/" + n.replace(" ", "_") for n in types.values()]
    assert {len(r) - len("nvidia.com/") for r in resources} == {63}
    deep = work / ("d" * (60 - len(str(work)) - 1))
    deep.mkdir()
    assert len(str(deep)) == 60
    tree = Tree(work / "host")
    tree.card(A, {VFS[0]: 1, VFS[1]: 2}, types=types)
    kubelet = FakeKubelet(deep).start()
    seen = []
    try:
        for _ in range(2):
            plugin = Plugin(work, tree.sys, tree.dev, deep)
            for resource, vf in zip(resources, VFS):
                wait_healthy(kubelet, resource, [vf])
            seen.append([kubelet.endpoints[r].socket for r in resources])
            assert plugin.stop() == 0
            wait_for(lambda: all(kubelet.devices(r) is None for r in resources), "the streams to end")
    finally:
        kubelet.stop()
    assert seen[0] == seen[1] and len(set(seen[0])) == 2
    assert all(len(f"{deep}/{socket}") <= 107 for socket in seen[0])


# --- Kubelets


@pytest.mark.field("F38")
def test_killed_while_all_is_in_use(host, folder, kubelet, start_plugin):
    """The plugin dies with every device open: its successor offers the full list at once."""
    first = start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    wait_healthy(kubelet, Q2, OTHER[:1])
    guests = [host.boot(vf, "--init-ms", 0) for vf in VFS[:2] + OTHER[:1]]
    first.kill()
    wait_for(lambda: kubelet.devices(Q4) is None and kubelet.devices(Q2) is None, "the streams to end")
    start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    wait_healthy(kubelet, Q2, OTHER[:1])
    assert set(kubelet.lists(Q4)[0]) == set(VFS[:2])
    for pid in guests:
        os.kill(pid, signal.SIGTERM)


@pytest.mark.field("F40")
def test_kubelet_that_stays_away(host, folder, kubelet, start_plugin):
    """Its sockets are gone for as long as it takes to notice, three times."""
    plugin = start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    for _ in range(3):
        kubelet.stop()
        kubelet.wipe()
        wait_for(lambda: plugin.get("/readyz")[0] == 503, "the plugin to notice")
        kubelet.start()
        wait_healthy(kubelet, Q4, VFS[:2], 5)
        wait_healthy(kubelet, Q2, OTHER[:1], 5)


class ConfusedKubelet(FakeKubelet):
    """Keyed by the resource alone: when an old instance's connection ends, the new one's endpoint goes."""

    def __init__(self, folder):
        super().__init__(folder)
        self.old = {}

    def drop(self, resource):
        """The end of any connection of the resource takes the endpoint that is there now."""
        self.endpoints[resource].cut()


@pytest.mark.field("F41")
def test_goodbye_of_the_old_instance_takes_the_new_one_along(host, folder, start_plugin):
    """A kubelet drops the wrong endpoint and says nothing: the new instance notices and registers again."""
    kubelet = ConfusedKubelet(folder).start()
    first = start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    old = {p.name for p in folder.glob("berth-*.sock")}
    second = start_plugin(host)
    wait_for(lambda: kubelet.endpoints[Q4].socket not in old and kubelet.healthy(Q4) == VFS[:2], "the second one")
    assert first.stop() == 0
    new = {p.name for p in folder.glob("berth-*.sock")}
    assert new and not new & old  # the one that went took its own sockets only
    taken = kubelet.endpoints[Q4]
    seen = len(kubelet.registrations)
    kubelet.drop(Q4)
    wait_for(lambda: len(kubelet.registrations) > seen and kubelet.endpoints[Q4] is not taken, "to register again", 5)
    wait_healthy(kubelet, Q4, VFS[:2])
    assert set(kubelet.lists(Q4)[0]) == set(VFS[:2])  # each stream begins with the whole list
    assert {p.name for p in folder.glob("berth-*.sock")} == new
    assert second.process.poll() is None
    kubelet.stop()


@pytest.mark.field("F42")
def test_one_name_however_often(work, folder, kubelet):
    """The last VF of a profile loses its type and gets it back, a hundred times."""
    tree = Tree(work / "host")
    tree.card(A, {VFS[0]: 1150, VFS[1]: 1151}, types=L40S)
    current = tree.folder(VFS[0]) / "nvidia/current_vgpu_type"
    plugin = Plugin(work, tree.sys, tree.dev, folder)
    try:
        wait_healthy(kubelet, Q4, VFS[:1])
        for _ in range(100):
            endpoint = kubelet.endpoints[Q4]
            current.write_text("0\n")
            plugin.process.send_signal(signal.SIGHUP)
            wait_for(lambda: endpoint.ended, "the end of the stream")
            assert endpoint.lists[-1] == {}
            current.write_text("1150\n")
            plugin.process.send_signal(signal.SIGHUP)
            wait_for(lambda: kubelet.endpoints[Q4] is not endpoint and kubelet.healthy(Q4), "the next one")
        assert {r for _, r, _, _ in kubelet.registrations} == {Q4, "nvidia.com/NVIDIA_L40S-6Q"}
        assert len({s for _, s in ours(kubelet, Q4)}) == 1
        assert len(ours(kubelet, Q4)) == 101 and len(ours(kubelet, "nvidia.com/NVIDIA_L40S-6Q")) == 1
    finally:
        assert plugin.stop() == 0


@pytest.mark.field("F46")
def test_list_is_there_before_register_returns(host, folder, start_plugin):
    """The kubelet dials back and takes the first list inside its Register; a stale socket is in the way."""
    kubelet = FakeKubelet(folder, list_first=True).start()
    first = start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    assert len(ours(kubelet, Q4)) == 1
    first.kill()
    stale = {p.name for p in folder.glob("berth-*.sock")}
    wait_for(lambda: kubelet.devices(Q4) is None, "the stream's end")
    start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    assert len(ours(kubelet, Q4)) == 2  # at the first try
    assert {p.name for p in folder.glob("berth-*.sock")} == stale
    kubelet.stop()


@pytest.mark.field("F47")
def test_rival_for_the_same_resource(host, folder, kubelet, start_plugin):
    """Somebody registers our resource and removes our socket whenever we are back: we come later each
    time, say so once, and nothing else suffers."""
    plugin = start_plugin(host)
    wait_healthy(kubelet, Q4, VFS[:2])
    wait_healthy(kubelet, Q2, OTHER[:1])
    other = kubelet.endpoints[Q2]
    rival = Rival(kubelet, Q4)
    try:
        for n in range(4):
            assert len(ours(kubelet, Q4)) == n + 1  # one attempt for each loss
            rival.register()
            (folder / ours(kubelet, Q4)[-1][1]).unlink()
            if n < 3:
                wait_for(lambda n=n: len(ours(kubelet, Q4)) == n + 2 and kubelet.healthy(Q4) == VFS[:2],
                         "us to be back", 20)
    finally:
        rival.stop()
    times = [t for t, _ in ours(kubelet, Q4)]
    gaps = [b - a for a, b in zip(times[1:], times[2:])]
    assert gaps[0] > 0.9 and gaps[1] > 1.9, gaps  # it doubles, though each registration went well
    log = [l for l in plugin.log().splitlines() if Q4 in l]
    assert sum("does another program offer the same" in l for l in log) == 1
    assert len(log) <= 6, log
    assert plugin.get("/readyz")[0] == 503 and Q4 in plugin.get("/readyz")[1]
    assert kubelet.endpoints[Q2] is other and other.ended is None and len(other.lists) == 1
    assert kubelet.allocate(Q2, OTHER[:1])


# --- After a restart


def test_pods_keep_their_ids_over_a_restart(host, work, kubelet, pods, start_plugin):
    """What a pod has is listed from the first list on, also if its type went while the plugin was away;
    and what became of the VF meanwhile is not for others."""
    pods.pods = {"vm-1": {Q2: [OTHER[0]]}, "vm-2": {Q4: [VFS[0]]},
                 "nic": {"nvidia.com/mlx5": ["0000:c1:00.4"]}, "other": {"example.org/thing": [OTHER[0]]}}
    host.ctl("configure", OTHER[0], 0)  # the only one of its profile
    host.ctl("configure", VFS[0], 0)
    host.ctl("configure", VFS[0], "L40S-8Q")
    plugin = start_plugin(host, "--pod-resources", work / "pods.sock")
    wait_for(lambda: kubelet.devices(Q2) == {OTHER[0]: ("Unhealthy", 1)}, "unhealthy, not gone")
    wait_for(lambda: kubelet.devices(Q4) == {VFS[0]: ("Unhealthy", 0), VFS[1]: ("Healthy", 0)}, "the other one too")
    assert set(kubelet.lists(Q4)[0]) == set(VFS[:2])
    assert set(kubelet.endpoints) == {Q2, Q4}  # not under its new name, and nothing of other plugins
    assert "no vGPU type" in kubelet.refusal(Q2, [OTHER[0]])[1]
    host.ctl("configure", OTHER[0], "L40S-2Q")
    pods.pods.pop("vm-2")
    plugin.rescan()
    wait_healthy(kubelet, Q2, OTHER[:1])
    wait_healthy(kubelet, Q8, VFS[:1])
    assert kubelet.allocate(Q2, [OTHER[0]])


def test_pod_resources_that_answers_late(host, work, kubelet, pods, start_plugin):
    """It is asked until it has answered once, without a rescan."""
    pods.error = grpc.StatusCode.UNAVAILABLE
    pods.pods = {"vm": {Q2: [OTHER[0]]}}
    host.ctl("configure", OTHER[0], 0)
    start_plugin(host, "--pod-resources", work / "pods.sock")
    wait_healthy(kubelet, Q4, VFS[:2])
    assert Q2 not in kubelet.endpoints
    pods.error = None
    wait_for(lambda: Q2 in kubelet.endpoints and kubelet.devices(Q2) == {OTHER[0]: ("Unhealthy", 1)}, "its device")
