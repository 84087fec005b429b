# SPDX-License-Identifier: Apache-2.0
"""Which cards and VFs there are: hosts of every kind, and what comes, goes and fails while berthd runs."""
import concurrent.futures
import os

import pytest

from conftest import wait_for
from plain_host import PlainHost, capture
from test_capacity import A, B, QUERIES, settle, vf_addresses


@pytest.fixture
def plain_host(work):
    return PlainHost(work / "plain")


def slots(daemon):
    r = daemon.resources()
    return r["total_slots"], r["used_slots"], r["allocatable_slots"]


def unusable(daemon):
    """{address: reason}"""
    return {a: v["reason"] for a, v in daemon.vfs().items() if v["state"] == "unusable"}


# --- Hosts without vGPUs --------------------------------------------------------------------------


def test_no_gpu(plain_host, start_daemon):
    plain_host.write("0000:00:1f.0", vendor="0x8086\n", device="0x1234\n", **{"class": "0x060100\n"})
    daemon = start_daemon(plain_host)
    resources = daemon.resources()
    assert (resources["mode"], resources["framework"], resources["total_slots"]) == ("none", "none", 0)
    assert resources["profiles"] == [] and resources["fallbacks"] == []
    assert daemon.get("/gpus") == {"gpus": []} and daemon.get("/vfs") == {"vfs": []}
    refused = daemon.claim("vm")
    assert refused.status in (409, 422), refused
    # A card that is put in later is found without a restart.
    plain_host.function("0000:41:00.0", "nvidia")
    plain_host.write("0000:41:00.0", sriov_totalvfs="32\n")
    wait_for(lambda: daemon.resources()["mode"] == "vgpu", "the card to be found", 4)


def test_passthrough(plain_host, start_daemon):
    """Whole GPUs under vfio-pci: shown with what is free, no VFs, claims refused with the reason."""
    plain_host.function("0000:31:00.0", "vfio-pci")
    plain_host.function("0000:4b:00.0", None)
    plain_host.function("0000:4b:00.1", "snd_hda_intel", "0x10fa", "0x040300")
    daemon = start_daemon(plain_host)
    resources = daemon.resources()
    assert resources["mode"] == "passthrough"
    assert [(d["address"], d["available"]) for d in resources["devices"]] == \
        [("0000:31:00.0", True), ("0000:4b:00.0", False)]
    assert all("26b9" in d["name"] for d in resources["devices"])
    assert resources["total_slots"] == 0 and resources["profiles"] == []
    assert daemon.get("/resources?profiles=false")["gpu"]["mode"] == "passthrough"
    assert [g["driver"] for g in daemon.get("/gpus")["gpus"]] == ["vfio-pci", None]
    refused = daemon.claim("vm")
    assert (refused.status, refused.code) == (422, "not_supported")
    assert "passthrough" in refused.json["detail"]


def test_sriov_card_bound_to_vfio_pci(plain_host, start_daemon):
    """A card that could do SR-IOV, but whose PF is given away whole, is passthrough too."""
    plain_host.function("0000:31:00.0", "vfio-pci")
    plain_host.write("0000:31:00.0", sriov_totalvfs="32\n")
    daemon = start_daemon(plain_host)
    assert daemon.resources()["mode"] == "passthrough"
    assert daemon.resources()["devices"][0]["available"] is True
    assert daemon.claim("vm").code == "not_supported"


def test_mdev_host(plain_host, start_daemon):
    """The captured A2 host: 16 VFs, framework mdev, shown and not claimed."""
    plain_host.load_umockdev(capture("harvester/a2-node-nvidia.umockdev"))
    source = capture("harvester/sys/class/mdev_bus/0000:08:01.7")
    bus = plain_host.sys / "class/mdev_bus"
    bus.mkdir(parents=True)
    (bus / "0000:08:01.7").symlink_to("../../bus/pci/devices/0000:08:01.7")
    types = plain_host.devices / "0000:08:01.7/mdev_supported_types"
    for folder in sorted((source / "mdev_supported_types").iterdir()):
        (types / folder.name).mkdir(parents=True)
        for file in folder.iterdir():
            (types / folder.name / file.name).write_bytes(file.read_bytes())
    daemon = start_daemon(plain_host)
    resources = daemon.resources()
    assert (resources["mode"], resources["framework"]) == ("vgpu", "mdev")
    card, = daemon.get("/gpus")["gpus"]
    assert (card["address"], len(card["vfs"]), card["driver"]) == ("0000:08:00.0", 16, "nvidia")
    assert card["vfs"][11]["reason"] == "mdev framework"
    refused = daemon.claim("vm", "A2-2Q")
    assert (refused.status, refused.code) == (422, "not_supported")
    assert "mdev" in refused.json["detail"]


def test_captured_l40s_vf(plain_host, start_daemon):
    """The captured L40S VF: its six files, 23 types, and a claim of one of them."""
    source = capture("harvester/sys/bus/pci/devices/0000:26:00.4/nvidia")
    plain_host.function("0000:26:00.0", "nvidia")
    plain_host.write("0000:26:00.0", sriov_totalvfs="32\n")
    plain_host.vf("0000:26:00.0", 0, "0000:26:00.4")
    folder = plain_host.devices / "0000:26:00.4/nvidia"
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    assert len(list(folder.iterdir())) == 6
    daemon = start_daemon(plain_host)
    profiles = {p["type_id"]: p for p in daemon.get("/gpus/0000:26:00.0")["profiles"]}
    assert set(profiles) == {*range(1145, 1167), 2164}
    assert profiles[1150]["name"] == "NVIDIA L40S-4Q" and profiles[1150]["framebuffer_mb"] == 4096
    assert {p["available"] for p in profiles.values()} == {1}
    answer = daemon.claim("vm", "L40S-48Q")
    assert answer.status == 201 and answer.json["vf"] == "0000:26:00.4"
    assert (folder / "current_vgpu_type").read_text() == "1156"
    assert daemon.release("vm").status == 200
    assert (folder / "current_vgpu_type").read_text() == "0"


# --- What a list may look like (F01) --------------------------------------------------------------


BOTH = {1145: "NVIDIA L40S-1B", 1147: "NVIDIA L40S-1Q"}


@pytest.mark.field("F01")
@pytest.mark.parametrize("text, types, bad_lines", [
    ("ID    : vGPU Name\n1145  : NVIDIA L40S-1B\n1147  : NVIDIA L40S-1Q\n", BOTH, 0),
    ("ID    : vGPU Name\n1145  : NVIDIA L40S-1B\n1147  : NVIDIA L40S-1Q", BOTH, 0),
    ("ID    : vGPU Name\r\n1145  : NVIDIA L40S-1B\r\n1147  : NVIDIA L40S-1Q\r\n", BOTH, 0),
    ("ID    : vGPU Name\n", {}, 0),
    ("", {}, 0),
    ("ID    : vGPU Name\n1145  : NVIDIA L40S-1B\ngarbage\n1147  : NVIDIA L40S-1Q\n", BOTH, 1),
    ("ID    : vGPU Name\n1145  : NVIDIA L40S-1B\ngarbage\n99999999999 : X\n1147  : NVIDIA L40S-1Q\n", BOTH, 2),
])
def test_f01_lists(plain_host, start_daemon, text, types, bad_lines):
    plain_host.function(A, "nvidia")
    plain_host.write(A, sriov_totalvfs="32\n")
    plain_host.vf(A, 0, "0000:41:00.4", text)
    daemon = start_daemon(plain_host)
    assert {p["type_id"]: p["name"] for p in daemon.get(f"/gpus/{A}")["profiles"]} == types
    assert sorted(p["name"] for p in daemon.resources()["profiles"]) == sorted(types.values())
    assert slots(daemon) == (1, 0, 1)
    assert not unusable(daemon)
    said = [l for l in daemon.log().splitlines() if "do not parse" in l]
    assert [f"{bad_lines} lines" in l and "garbage" in l for l in said] == ([True] if bad_lines else [])


@pytest.mark.field("F01")
def test_f01_sibling_with_header_only(start_sim, start_daemon):
    """Header only or empty: nothing creatable there, no error; siblings count. NVML does not care."""
    sim = start_sim("--nvml-latency", 0)
    vfs = vf_addresses(A)
    for vf in vfs[:20]:
        sim.ctl("set", "sysfs.creatable", "header" if vf < vfs[10] else "empty", "--vf", vf)
    daemon = start_daemon(sim, {"nvml_library": ""})
    profiles = {p["name"]: p["available"] for p in daemon.get(f"/gpus/{A}")["profiles"]}
    assert profiles["NVIDIA L40S-1Q"] == 12 and profiles["NVIDIA L40S-4Q"] == 12
    assert not unusable(daemon) and slots(daemon) == (64, 0, 64)
    for i in range(12):
        answer = daemon.claim(f"vm{i}", "L40S-1Q", gpu=A)
        assert answer.status == 201 and answer.json["vf"] in vfs[20:]
    assert daemon.claim("one-more", "L40S-1Q", gpu=A).code == "insufficient_resources"


# --- VFs that cannot be used ----------------------------------------------------------------------


def test_unreadable_vf(start_sim, start_daemon):
    """EIO on one VF costs that VF, with the reason, and it is back when it can be read."""
    sim = start_sim("--nvml-latency", 0)
    bad = vf_addresses(A)[5]
    sim.ctl("set", "sysfs.read_errno", "EIO", "--vf", bad)
    daemon = start_daemon(sim)
    assert slots(daemon) == (63, 0, 63)
    assert list(unusable(daemon)) == [bad] and "Input/output error" in unusable(daemon)[bad]
    assert daemon.available()["L40S-4Q"] == 16
    for i in range(4):
        assert daemon.claim(f"vm{i}", gpu=A).json["vf"] != bad
    sim.ctl("set", "sysfs.read_errno", 0, "--vf", bad)
    wait_for(lambda: slots(daemon)[0] == 64, "the VF to be back", 4)
    assert not unusable(daemon)


@pytest.mark.field("F08")
def test_f08_bound_to_vfio_pci(start_sim, start_daemon):
    """A card whose VFs are all under vfio-pci gives nothing, with one reason; a VF rebound at run time
    drops out, its neighbours stay."""
    sim = start_sim("--nvml-latency", 0)
    for vf in vf_addresses(A):
        sim.ctl("rebind", vf, "vfio-pci")
    daemon = start_daemon(sim)
    assert slots(daemon) == (32, 0, 32)
    assert set(unusable(daemon)) == set(vf_addresses(A)) and len(set(unusable(daemon).values())) == 1
    assert "vfio-pci" in unusable(daemon)[vf_addresses(A)[0]]
    assert daemon.available()["L40S-4Q"] == 8
    refused = daemon.claim("vm", gpu=A)
    assert refused.status == 409 and "vfio-pci" in refused.json["cards"][0]["reason"]
    claim = daemon.claim("vm").json
    assert claim["gpu"] == B
    sim.ctl("rebind", claim["vf"], "vfio-pci")
    wait_for(lambda: slots(daemon)[0] == 31, "the VF to drop out", 4)
    wait_for(lambda: daemon.claims()["vm"]["problem"] == "vf_missing", "the claim to be judged", 2)
    assert daemon.claim("vm2").json["gpu"] == B
    assert slots(daemon) == (31, 1, 30)


@pytest.mark.field("F09")
def test_f09_vfs_that_come_late(start_sim, start_daemon):
    """SR-IOV off at the start: no VFs, not a host without GPU; later 32 without a restart."""
    sim = start_sim("--sriov", "off", "--nvml-latency", 0)
    daemon = start_daemon(sim)
    assert daemon.resources()["mode"] == "vgpu" and slots(daemon) == (0, 0, 0)
    refused = daemon.claim("vm")
    assert (refused.status, refused.code) == (409, "insufficient_resources")
    assert "SR-IOV is off" in refused.json["cards"][0]["reason"]
    sim.ctl("sriov", "-e", A)
    wait_for(lambda: slots(daemon) == (32, 0, 32), "32 VFs", 5)
    wait_for(lambda: daemon.available().get("L40S-4Q") == 12, "the equal-size card's numbers", 5)
    assert daemon.claim("vm").status == 201


def test_vfs_that_go_and_come(start_sim, start_daemon):
    """SR-IOV off and on again, also faster than the names are looked at."""
    sim = start_sim("--nvml-latency", 0)
    sim.ctl("set", "sriov.latency_ms", 0)
    daemon = start_daemon(sim)
    assert daemon.request("POST", "/driver/release").status == 200
    wait_for(lambda: sim.ctl("sriov", "-d", B, check=False).returncode == 0, "the helper to let go")
    wait_for(lambda: slots(daemon)[0] == 32, "the VFs to be missed", 4)
    for _ in range(3):
        sim.ctl("sriov", "-e", B)
        sim.ctl("sriov", "-d", B)
    sim.ctl("sriov", "-e", B)
    sim.ctl("set", "mode", "mixed", "--gpu", B)
    daemon.request("POST", "/driver/resume")
    wait_for(lambda: slots(daemon) == (64, 0, 64), "all VFs", 5)
    wait_for(lambda: daemon.available()["L40S-4Q"] == 16, "the placements", 5)


@pytest.mark.field("F11")
def test_f11_flapping_card(start_sim, start_daemon):
    """A card whose VFs come and go at 100 Hz and fail with ENODEV spoils nothing of its neighbour."""
    sim = start_sim("--nvml-latency", 0)
    daemon = start_daemon(sim)
    settle(sim)
    want = daemon.get(f"/gpus/{A}")
    sim.ctl("set", "sysfs.read_errno", "ENODEV", "--gpu", B, "--for", 3)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        flap = pool.submit(sim.ctl, "flap", B, "--hz", 100, "--for", 3)
        scans = 0
        while not flap.done():
            answer = daemon.claim("vm", gpu=A)
            assert answer.status == 201, answer
            card = daemon.get(f"/gpus/{A}")
            assert (card["slots"]["total"], card["slots"]["used"], len(card["vfs"])) == (32, 1, 32)
            assert daemon.release("vm").status in (200, 202)

            def settled():
                card = daemon.get(f"/gpus/{A}")
                return (card["slots"], card["profiles"]) == (want["slots"], want["profiles"])

            wait_for(settled, "the placement to be free again", 5)
            scans += 1
        assert scans > 3
    wait_for(lambda: slots(daemon) == (64, 0, 64), "all VFs to be back", 6)
    assert daemon.claim("vm", gpu=B).status == 201


def test_card_removed_and_restored(start_sim, start_daemon):
    sim = start_sim("--nvml-latency", 0)
    daemon = start_daemon(sim)
    assert daemon.claim("vm", gpu=B).status == 201
    sim.ctl("remove", B)
    wait_for(lambda: slots(daemon) == (32, 0, 32), "the card to be missed", 4)
    wait_for(lambda: [g["address"] for g in daemon.get("/gpus")["gpus"]] == [A], "the scan", 4)
    assert daemon.request("GET", f"/gpus/{B}").status == 404
    assert daemon.available()["L40S-4Q"] == 8
    wait_for(lambda: daemon.claims()["vm"]["problem"] == "vf_missing", "the claim to be judged", 2)
    assert daemon.claim("other").json["gpu"] == A
    sim.ctl("restore", B)
    wait_for(lambda: slots(daemon)[0] == 64, "the card to be back", 4)
    wait_for(lambda: daemon.available()["L40S-4Q"] == 15, "its placements", 4)
    wait_for(lambda: daemon.claims()["vm"]["problem"] == "type_lost", "the claim to be judged", 4)


def test_vf_removed_and_restored(daemon, sim):
    vf = vf_addresses(A)[7]
    sim.ctl("remove", vf)
    wait_for(lambda: slots(daemon) == (63, 0, 63), "the VF to be missed", 4)
    wait_for(lambda: vf not in daemon.vfs(), "the scan that follows", 4)
    sim.ctl("restore", vf)
    wait_for(lambda: slots(daemon) == (64, 0, 64), "the VF to be back", 4)


# --- Addresses, NUMA, exclusion -------------------------------------------------------------------


def test_other_domains(start_sim, start_daemon):
    """A fourth card on domain 0001, and one on a domain of five digits."""
    addresses = ["0000:41:00.0", "0000:81:00.0", "0000:c1:00.0", "0001:04:00.0", "10000:41:00.0"]
    sim = start_sim("--cards", 5, "--address", ",".join(addresses), "--vfs", 4, "--nvml-latency", 0,
                    "--numa", "0,-1,0,0,0")
    daemon = start_daemon(sim)
    cards = {g["address"]: g for g in daemon.get("/gpus")["gpus"]}
    assert list(cards) == addresses and {g["source"] for g in cards.values()} == {"nvml"}
    assert cards["0000:41:00.0"]["numa_node"] == 0 and cards["0000:81:00.0"]["numa_node"] is None
    claim = daemon.claim("vm", gpu="1:4:0.0").json
    assert claim["gpu"] == "0001:04:00.0" and claim["vf"].startswith("0001:04:00.")
    assert sim.vf(claim["vf"])["type"] == 1150
    wide = daemon.claim("wide", gpu="00010000:41:00.0").json
    assert wide["gpu"] == "10000:41:00.0" and wide["sysfs_path"].endswith(f"/10000:{wide['vf'][6:]}")
    assert daemon.get("/gpus/10000:41:00.0")["slots"]["used"] == 1
    assert daemon.get("/gpus/0000:41:00.0")["slots"]["used"] == 0
    # Any spelling in a path.
    assert daemon.get("/gpus/00000001:04:00.0")["address"] == "0001:04:00.0"
    assert daemon.get("/gpus/C1:00.0")["address"] == "0000:c1:00.0"
    refused = daemon.claim("vm2", numa_node=1)
    assert (refused.status, refused.code) == (409, "insufficient_resources")
    assert daemon.claim("vm2", numa_node=0).status == 201


def test_exclude(start_sim, start_daemon):
    """An excluded card and an excluded VF are shown and never written."""
    sim = start_sim("--nvml-latency", 0, "--vfs", 4)
    vfs = vf_addresses(A)[:4]
    sim.ctl("configure", vf_addresses(B)[1], "L40S-4Q")
    daemon = start_daemon(sim, {"gpu": {"exclude": [B, vfs[0].upper()]}, "unclaimed_grace": 0,
                                "reconcile_interval": "300ms"})
    assert slots(daemon) == (8, 1, 3)
    card = daemon.get(f"/gpus/{B}")
    assert card["excluded"] is True and {p["available"] for p in card["profiles"]} == {0}
    assert daemon.available()["L40S-1Q"] == 3
    assert daemon.vfs()[vfs[0]]["state"] == "excluded"
    refused = daemon.claim("vm", gpu=B)
    assert refused.status == 409 and "excluded" in refused.json["cards"][0]["reason"]
    assert {daemon.claim(f"vm{i}", "L40S-1Q").json["vf"] for i in range(3)} == set(vfs[1:])
    assert daemon.claim("vm3", "L40S-1Q").code == "insufficient_resources"
    queries = daemon.metric(QUERIES)
    wait_for(lambda: daemon.metric(QUERIES) >= queries + 3, "three passes of the reconciler")
    assert sim.vf(vf_addresses(B)[1])["type"] == 1150
    assert daemon.vfs()[vf_addresses(B)[1]]["state"] == "unclaimed"


@pytest.mark.field("F12")
def test_f12_read_only_sysfs(start_sim, start_daemon):
    """EROFS: said at once, on one VF, nothing else is tried; the numbers go on."""
    sim = start_sim("--nvml-latency", 0)
    daemon = start_daemon(sim)
    sim.ctl("set", "sysfs.write_errno", "EROFS")
    before = sim.counters()["attr_writes"]
    refused = daemon.claim("vm")
    assert (refused.status, refused.code) == (503, "sysfs_read_only")
    assert sim.counters()["attr_writes"] - before <= 2
    assert not any(v["quarantined"] for v in daemon.vfs().values())
    assert daemon.available()["L40S-4Q"] == 16
    sim.ctl("set", "sysfs.write_errno", 0)
    assert daemon.claim("vm").status == 201


def test_missing_sysfs_is_looked_for_again(work, start_daemon):
    """bus/pci/devices is not there yet: not an empty host, and found when it comes."""
    host = PlainHost(work / "plain")
    devices = host.root / "devices"
    os.rename(host.devices, devices)
    daemon = start_daemon(host, {"reconcile_interval": "300ms"}, ready=False)
    assert daemon.request("GET", "/readyz").status == 503
    os.rename(devices, host.devices)
    daemon.wait_ready(5)
    assert daemon.resources()["mode"] == "none"


@pytest.mark.field("F33")
def test_shared_iommu_group(start_sim, start_daemon):
    """A group with several devices goes to one VM: it is offered once, and the reason is shown."""
    sim = start_sim("--cards", 1, "--vfs", 4, "--nvml-latency", 0)
    vfs = vf_addresses(A)[:4]
    group = next(v["group"] for v in sim.card(0)["vfs"] if v["address"] == vfs[0])
    sim.ctl("group", vfs[1], group)
    daemon = start_daemon(sim)
    assert slots(daemon) == (4, 0, 3)
    assert daemon.vfs()[vfs[1]]["state"] == "blocked" and str(group) in daemon.vfs()[vfs[1]]["reason"]
    assert daemon.vfs()[vfs[0]]["state"] == "free" and daemon.available()["L40S-1Q"] == 3
    claimed = [daemon.claim(f"vm{i}", "L40S-1Q").json["vf"] for i in range(3)]
    assert sorted(claimed) == sorted({vfs[0], vfs[2], vfs[3]})
    assert daemon.claim("vm3", "L40S-1Q").code == "insufficient_resources"
    for i in range(3):
        assert daemon.release(f"vm{i}").status == 200
    # The other one in the hands of somebody else: none of the two is offered.
    sim.ctl("configure", vfs[1], "L40S-1Q")
    wait_for(lambda: slots(daemon) == (4, 1, 2), "the foreign vGPU", 4)
    assert daemon.vfs()[vfs[0]]["state"] == "blocked"
    assert {daemon.claim(f"vm{i}", "L40S-1Q").json["vf"] for i in range(2)} == set(vfs[2:])
