# SPDX-License-Identifier: Apache-2.0
"""berth-device-plugin on hosts of plain files: passthrough, mdev, groups, topology, names."""
import signal
import time

from prometheus_client.parser import text_string_to_metric_families
import pytest
import yaml

from conftest import wait_for
from fake_kubelet import FakeKubelet
from plugin_host import Plugin, Q4, Tree, list_json, offered, run_once

L40S = {1150: "NVIDIA L40S-4Q", 1151: "NVIDIA L40S-6Q"}
PCI_IDS = """# a list
1028  Somebody
\t1f08  Nothing of that
10dd  Before
\t0001  Thing
\t\t1028 1f08  SAS 5/iR Integrated RAID Controller
10de  NVIDIA Corporation
\t1f08  TU106 [GeForce RTX 2060 Rev. A]
\t\t1028 26b9  Not this
\t26b9  AD102GL [L40S]
8086  Intel Corporation
\t1f08  Atom Processor
\t2235  Something of Intel's
"""


@pytest.fixture
def tree(work):
    return Tree(work / "host")


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
def start(work, tree, folder):
    started = []

    def run(*options, **more):
        plugin = Plugin(work, tree.sys, tree.dev, folder, *options, **more)
        started.append(plugin)
        return plugin

    yield run
    for plugin in started:
        assert plugin.stop() in (0, -signal.SIGKILL), plugin.log()


def wait_healthy(kubelet, resource, ids):
    wait_for(lambda: kubelet.healthy(resource) == sorted(ids), f"{resource} = {ids}")


def listing(tree, *options):
    return offered(list_json(tree.sys, tree.dev, *options))


def left_out(tree, *options):
    return {e["id"]: e["reason"] for e in list_json(tree.sys, tree.dev, *options)["left_out"]}


# --- Names


@pytest.mark.field("F27")
def test_gpu_names(tree, work):
    """Only lines of vendor 10de's own section; unknown ids under one name made from the id."""
    (work / "pci.ids").write_text(PCI_IDS)
    tree.function("0000:01:00.0", "0x1f08", group=1)
    tree.function("0000:02:00.0", "0x2235", group=2)
    tree.function("0000:03:00.0", "0x2235", group=3)
    assert listing(tree, "--pci-ids", work / "pci.ids") == {
        "nvidia.com/TU106_GEFORCE_RTX_2060_REV__A": ["0000:01:00.0"],
        "nvidia.com/2235": ["0000:02:00.0", "0000:03:00.0"]}
    assert set(listing(tree, "--pci-ids", "/nonexistent")) == {"nvidia.com/1f08", "nvidia.com/2235"}


def test_own_names(tree, work):
    names = work / "names"
    names.write_text("# ours\nL40S-4Q: small\n'10de:1f08': example.org/gaming\n")
    tree.function("0000:01:00.0", "0x1f08", group=1)
    tree.card("0000:41:00.0", {"0000:41:00.4": 1150, "0000:41:00.5": 1151}, types=L40S)
    assert listing(tree, "--names", names) == {
        "example.org/gaming": ["0000:01:00.0"], "nvidia.com/small": ["0000:41:00.4"],
        "nvidia.com/NVIDIA_L40S-6Q": ["0000:41:00.5"]}
    names.write_text("L40S-4Q: small\nL40S-6Q: with blank\n")
    done = run_once(tree.sys, tree.dev, "--list", "--names", names)
    assert done.returncode == 1 and "line 2" in done.stderr


def test_type_ids_are_each_cards_own(tree):
    """The same number means another profile on the other card; a card's name never comes from a sibling."""
    tree.card("0000:41:00.0", {"0000:41:00.4": 1150}, types=L40S, group=20)
    tree.card("0000:81:00.0", {"0000:81:00.4": 1150}, types={1150: "NVIDIA L40S-8Q"}, group=30)
    tree.card("0000:c1:00.0", {"0000:c1:00.4": 1150}, types={}, group=40)
    assert listing(tree) == {"nvidia.com/NVIDIA_L40S-4Q": ["0000:41:00.4"], "nvidia.com/NVIDIA_L40S-8Q": ["0000:81:00.4"]}
    assert "1150" in left_out(tree)["0000:c1:00.4"]


def test_names_that_kubernetes_refuses(tree):
    tree.card("0000:41:00.0", {"0000:41:00.4": 1, "0000:41:00.5": 2},
              types={1: "NVIDIA A/B (c) 4Q.", 2: "NVIDIA " + "x" * 56})
    tree.card("0000:81:00.0", {"0000:81:00.4": 1}, types={1: "NVIDIA A/B c 4Q"}, group=50)
    found = listing(tree)
    assert found["nvidia.com/NVIDIA_A_B_c_4Q"] == ["0000:41:00.4"]  # mended
    assert found["nvidia.com/NVIDIA_" + "x" * 56] == ["0000:41:00.5"]  # exactly 63
    assert "already stands for" in left_out(tree)["0000:81:00.4"]  # two profiles, one name


def test_domain_that_kubevirt_cannot_take(tree):
    tree.card("10000:41:00.0", {"10000:41:00.4": 1150}, types=L40S)
    assert listing(tree) == {} and "ffff" in left_out(tree)["10000:41:00.4"]


def test_permitted_block(tree, work):
    tree.function("0000:01:00.0", "0x2235", group=1)
    tree.card("0000:41:00.0", {"0000:41:00.4": 1150}, types=L40S)
    tree.mdev("5f2a3d5e-0000-4000-8000-000000000001", "0000:41:00.0", "NVIDIA A40-8Q", 70)
    text = run_once(tree.sys, tree.dev, "--print-permitted", "--pci-ids", "/nonexistent").stdout
    block = yaml.safe_load(text)["permittedHostDevices"]
    assert block["pciHostDevices"] == [
        {"pciVendorSelector": "10DE:2235", "resourceName": "nvidia.com/2235", "externalResourceProvider": True},
        {"pciVendorSelector": "10DE:26B9", "resourceName": Q4, "externalResourceProvider": True}]
    assert block["mediatedDevices"] == [{"mdevNameSelector": "NVIDIA A40-8Q", "externalResourceProvider": True,
                                         "resourceName": "nvidia.com/NVIDIA_A40-8Q"}]


# --- Whole GPUs


@pytest.mark.field("F32")
def test_passthrough(tree, kubelet, start):
    """A group's other functions get no slot; each container has its own addresses only."""
    for gpu, sound, group in (("0000:31:00.0", "0000:31:00.1", 7), ("0000:4b:00.0", "0000:4b:00.1", 5)):
        tree.function(gpu, group=group)
        tree.function(sound, device="0x1aef", group=group, klass="0x040300")
    tree.function("0000:61:00.0", group=9, driver="nvidia")  # not for passthrough
    start("--pci-ids", "/nonexistent")
    wait_healthy(kubelet, "nvidia.com/2235", ["0000:31:00.0", "0000:4b:00.0"])
    [(env, nodes)] = kubelet.allocate("nvidia.com/2235", ["0000:31:00.0", "0000:4b:00.0"])
    assert env == {"PCI_RESOURCE_NVIDIA_COM_2235": "0000:31:00.0,0000:4b:00.0"}
    assert nodes == ["/dev/vfio/vfio", "/dev/vfio/7", "/dev/vfio/5"]
    one, two = kubelet.allocate("nvidia.com/2235", ["0000:31:00.0"], ["0000:4b:00.0"])
    assert one == ({"PCI_RESOURCE_NVIDIA_COM_2235": "0000:31:00.0"}, ["/dev/vfio/vfio", "/dev/vfio/7"])
    assert two == ({"PCI_RESOURCE_NVIDIA_COM_2235": "0000:4b:00.0"}, ["/dev/vfio/vfio", "/dev/vfio/5"])


def test_grace_driver_and_rescans_leave_passthrough_alone(tree, kubelet, start):
    tree.function("0000:31:00.0", driver="nvgrace_gpu_vfio_pci", group=7)
    tree.card("0000:41:00.0", {"0000:41:00.4": 1150}, types=L40S)
    plugin = start("--pci-ids", "/nonexistent")
    wait_healthy(kubelet, "nvidia.com/2235", ["0000:31:00.0"])
    endpoint = kubelet.endpoints["nvidia.com/2235"]
    tree.set_type("0000:41:00.4", 1151)
    plugin.rescan()
    wait_healthy(kubelet, "nvidia.com/NVIDIA_L40S-6Q", ["0000:41:00.4"])
    assert kubelet.endpoints["nvidia.com/2235"] is endpoint and len(endpoint.lists) == 1


def test_group_that_is_not_viable(tree):
    tree.function("0000:31:00.0", group=7)
    tree.function("0000:31:00.1", device="0x1aef", group=7, klass="0x040300", driver="snd_hda_intel")
    assert listing(tree) == {} and "snd_hda_intel" in left_out(tree)["0000:31:00.0"]


def test_vendor_changes(tree, kubelet, start):
    tree.function("0000:31:00.0", group=7)
    start("--pci-ids", "/nonexistent")
    wait_healthy(kubelet, "nvidia.com/2235", ["0000:31:00.0"])
    (tree.folder("0000:31:00.0") / "vendor").write_text("0x8086\n")
    assert "vendor" in kubelet.refusal("nvidia.com/2235", ["0000:31:00.0"])[1]


def test_egm_goes_with_all_of_its_gpus_only(tree, kubelet, start):
    gpus = ["0008:01:00.0", "0009:01:00.0"]
    for group, gpu in enumerate(gpus, 3):
        tree.function(gpu, driver="nvgrace_gpu_vfio_pci", group=group)
    (tree.sys / "class/egm/egm4").mkdir(parents=True)
    (tree.sys / "class/egm/egm4/gpu_devices").write_text("\n".join(gpus) + "\n")
    start("--pci-ids", "/nonexistent")
    wait_healthy(kubelet, "nvidia.com/2235", gpus)
    assert "/dev/egm4" in kubelet.allocate("nvidia.com/2235", gpus)[0][1]
    assert "/dev/egm4" not in kubelet.allocate("nvidia.com/2235", gpus[:1])[0][1]


# --- Mediated devices


def test_mdev(tree, kubelet, start):
    uuid = "5f2a3d5e-0000-4000-8000-000000000001"
    tree.card("0000:41:00.0", {}, numa=1)
    tree.mdev(uuid, "0000:41:00.0", "NVIDIA A40-8Q", 70)
    tree.mdev("5f2a3d5e-0000-4000-8000-000000000002", "0000:00:02.0", "i915-GVTg_V5_4", 71)  # no card of NVIDIA's
    start()
    wait_healthy(kubelet, "nvidia.com/NVIDIA_A40-8Q", [uuid])
    assert list(kubelet.endpoints) == ["nvidia.com/NVIDIA_A40-8Q"]
    [(env, nodes)] = kubelet.allocate("nvidia.com/NVIDIA_A40-8Q", [uuid])
    assert env == {"MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A40-8Q": uuid}
    assert nodes == ["/dev/vfio/vfio", "/dev/vfio/70"]
    (tree.sys / "bus/mdev/devices" / uuid).unlink()
    assert uuid in kubelet.refusal("nvidia.com/NVIDIA_A40-8Q", [uuid])[1]  # never fewer devices in silence


# --- Groups and topology


@pytest.mark.field("F33")
def test_shared_group_is_offered_once(tree, kubelet, start):
    """Which one goes to nobody, and why, is shown."""
    tree.card("0000:41:00.0", {"0000:41:00.4": 1150, "0000:41:00.5": 1150, "0000:41:00.6": 1150}, types=L40S)
    for vf in ("0000:41:00.4", "0000:41:00.5"):
        tree.join(vf, 12)
    (tree.dev / "vfio/12").touch()
    start()
    wait_healthy(kubelet, Q4, ["0000:41:00.4", "0000:41:00.6"])
    assert kubelet.refusal(Q4, ["0000:41:00.5"])[0] == "NOT_FOUND"
    assert "IOMMU group 12" in left_out(tree)["0000:41:00.5"]


@pytest.mark.field("F35")
@pytest.mark.parametrize("value, nodes, expected", [
    ("-1", 2, None), (None, 2, None), ("abc", 2, None), ("1", 2, 1), ("7", 2, None), ("0", 2, 0), ("1", 0, 1)])
def test_topology(tree, kubelet, start, value, nodes, expected):
    """Unset, never an empty list and never 0 for -1."""
    for node in range(nodes):
        (tree.sys / f"devices/system/node/node{node}").mkdir(parents=True)
    tree.function("0000:31:00.0", group=7, numa=value)
    start("--pci-ids", "/nonexistent")
    wait_healthy(kubelet, "nvidia.com/2235", ["0000:31:00.0"])
    assert kubelet.devices("nvidia.com/2235")["0000:31:00.0"] == ("Healthy", expected)


@pytest.mark.field("F34")
@pytest.mark.parametrize("iommu, cdev, devices, both", [
    (False, "vfio0", None, False), (False, "vfio0", [], False), (True, "vfio0", ["vfio0"], True),
    (True, None, ["vfio0"], False), (True, "vfio0", [], False), (False, "vfio0", ["vfio0"], False)])
def test_iommufd_nodes_only_where_all_is_there(tree, kubelet, start, iommu, cdev, devices, both):
    """The group's nodes alone, or all four."""
    tree.card("0000:41:00.0", {"0000:41:00.4": 1150}, types=L40S, group=60)
    if cdev:
        (tree.folder("0000:41:00.4") / "vfio-dev" / cdev).mkdir(parents=True)
    if iommu:
        (tree.dev / "iommu").touch()
    if devices is not None:
        (tree.dev / "vfio/devices").mkdir()
    for name in devices or []:
        (tree.dev / "vfio/devices" / name).touch()
    start()
    wait_healthy(kubelet, Q4, ["0000:41:00.4"])
    nodes = kubelet.allocate(Q4, ["0000:41:00.4"])[0][1]
    assert nodes == ["/dev/vfio/vfio", "/dev/vfio/61"] + (["/dev/iommu", "/dev/vfio/devices/vfio0"] if both else [])


# --- Content and health


@pytest.mark.field("F48")
def test_comparison_by_content(tree, kubelet, start):
    """Same size, times and inode, no event."""
    tree.card("0000:41:00.0", {"0000:41:00.4": 1150, "0000:41:00.5": 1150}, types=L40S)
    plugin = start()
    wait_healthy(kubelet, Q4, ["0000:41:00.4", "0000:41:00.5"])
    tree.set_type("0000:41:00.4", 1151)
    plugin.rescan()
    wait_healthy(kubelet, Q4, ["0000:41:00.5"])
    wait_healthy(kubelet, "nvidia.com/NVIDIA_L40S-6Q", ["0000:41:00.4"])


def test_node_missing_at_start_and_back(tree, kubelet, start):
    tree.card("0000:41:00.0", {"0000:41:00.4": 1150, "0000:41:00.5": 1150}, types=L40S)
    (tree.dev / "vfio/21").unlink()
    plugin = start()
    wait_healthy(kubelet, Q4, ["0000:41:00.5"])
    assert kubelet.devices(Q4)["0000:41:00.4"][0] == "Unhealthy"
    tree.set_type("0000:41:00.5", 1151)  # the health is carried over a change of the list
    tree.set_type("0000:41:00.5", 1150)
    plugin.rescan()
    assert kubelet.devices(Q4)["0000:41:00.4"][0] == "Unhealthy"
    (tree.dev / "vfio/21").touch()
    wait_healthy(kubelet, Q4, ["0000:41:00.4", "0000:41:00.5"])


@pytest.mark.field("F36")
def test_function_and_node_go_and_return(tree, kubelet, start):
    """A whole GPU and its node; the other one is left alone."""
    for group, gpu in ((7, "0000:31:00.0"), (8, "0000:32:00.0")):
        tree.function(gpu, group=group)
    start("--pci-ids", "/nonexistent")
    wait_healthy(kubelet, "nvidia.com/2235", ["0000:31:00.0", "0000:32:00.0"])
    folder = tree.folder("0000:31:00.0")
    folder.rename(tree.root / "away")
    (tree.dev / "vfio/7").unlink()
    wait_healthy(kubelet, "nvidia.com/2235", ["0000:32:00.0"])
    assert "missing" in kubelet.refusal("nvidia.com/2235", ["0000:31:00.0"])[1] or "not there" in \
        kubelet.refusal("nvidia.com/2235", ["0000:31:00.0"])[1]
    (tree.root / "away").rename(folder)
    (tree.dev / "vfio/7").touch()
    wait_healthy(kubelet, "nvidia.com/2235", ["0000:31:00.0", "0000:32:00.0"])


def test_vf_added_later_is_watched_too(tree, kubelet, start):
    tree.card("0000:41:00.0", {"0000:41:00.4": 1150, "0000:41:00.5": 0}, types=L40S)
    plugin = start()
    wait_healthy(kubelet, Q4, ["0000:41:00.4"])
    tree.set_type("0000:41:00.5", 1150)
    plugin.rescan()
    wait_healthy(kubelet, Q4, ["0000:41:00.4", "0000:41:00.5"])
    (tree.dev / "vfio/22").unlink()
    wait_healthy(kubelet, Q4, ["0000:41:00.4"])


def test_scan_that_fails_keeps_the_lists(tree, kubelet, start):
    tree.card("0000:41:00.0", {"0000:41:00.4": 1150}, types=L40S)
    plugin = start()
    wait_healthy(kubelet, Q4, ["0000:41:00.4"])
    pci = tree.sys / "bus/pci"
    pci.rename(tree.root / "away")
    plugin.rescan()
    assert set(kubelet.devices(Q4)) == {"0000:41:00.4"}
    (tree.root / "away").rename(pci)
    plugin.rescan()
    assert kubelet.healthy(Q4) == ["0000:41:00.4"]


def test_idle_without_any_card(tree, kubelet, start):
    """Runs, does not crash: a card may come later."""
    plugin = start()
    wait_for(lambda: plugin.answers() and plugin.get("/readyz")[0] == 200, "ready")
    assert not kubelet.registrations
    tree.function("0000:31:00.0", group=7)
    plugin.rescan()
    wait_for(lambda: kubelet.endpoints, "the new card")


def test_http(tree, kubelet, start):
    tree.card("0000:41:00.0", {"0000:41:00.4": 1150}, types=L40S)
    plugin = start()
    wait_healthy(kubelet, Q4, ["0000:41:00.4"])
    kubelet.allocate(Q4, ["0000:41:00.4"])
    status, text = plugin.get("/metrics")
    assert status == 200
    families = {f.name: f for f in text_string_to_metric_families(text)}
    assert all(name.startswith("berth_plugin_") for name in families)
    metrics = plugin.metrics()
    assert metrics[f'berth_plugin_devices{{resource="{Q4}",health="healthy"}}'] == 1
    assert metrics[f'berth_plugin_allocations_total{{resource="{Q4}",call="allocate",result="ok"}}'] == 1
    assert 0 < metrics["berth_plugin_start_time_seconds"] <= time.time()
    assert plugin.get("/healthz") == (200, "ok\n")
    assert '"0000:41:00.4"' in plugin.get("/devices")[1]
