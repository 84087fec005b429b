# SPDX-License-Identifier: Apache-2.0
"""What berthd does where NVML fails: for one card, for the host, for a while, for ever."""
import concurrent.futures
import os
import re
import signal
import subprocess
import time

import pytest

from conftest import BIN, children, wait_for
from test_capacity import A, B, L40S_4Q, fallbacks, refresh, settle, vf_addresses

CREATABLE = "nvmlDeviceGetVgpuTypeCreatablePlacements"


def lines(daemon, level):
    """Lines about NVML of one level in berthd's log."""
    return [l for l in daemon.log().splitlines() if f" berthd {level}: nvml: " in l]


def card(daemon, address):
    return daemon.get(f"/gpus/{address}")


def free_placements(daemon, address):
    return {p["free_placements"] for p in card(daemon, address)["profiles"]}


def descriptors(pid):
    """What the process has open."""
    links = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            continue
    return links


def nvidia_nodes(daemon):
    """{process name: its /dev/nvidia* descriptors} of berthd and all its children."""
    pids = {daemon.process.pid: "berthd", **children(daemon.process.pid)}
    return {name: sorted(os.path.basename(l) for l in descriptors(pid) if "/dev/nvidia" in l)
            for pid, name in pids.items()}


def helper_pid(daemon):
    return next((p for p, name in children(daemon.process.pid).items() if name == "berth-nvml"), None)


# --- One card -------------------------------------------------------------------------------------


SICK = "0000:01:00.0"  # the fourth card


@pytest.mark.field("F51")
@pytest.mark.parametrize("key, code", [("nvml.error", 15), ("nvml.error", 999), ("nvml.placement_error", 999)])
def test_f51_one_sick_card(start_sim, start_daemon, key, code):
    """It is lost, fails, or fails in its placement query alone: only that card falls back, with NVML's own
    number; the others are claimed, and reconciled, as before."""
    sim = start_sim("--cards", 4, "--nvml-latency", 0)
    well = [c["address"] for c in sim.state()["cards"] if c["address"] != SICK]
    daemon = start_daemon(sim, {"unclaimed_grace": 0, "reconcile_interval": "10m"})
    assert daemon.available()["L40S-4Q"] == 32
    sim.ctl("set", key, code, "--gpu", SICK)
    refresh(daemon)
    wait_for(lambda: daemon.available()["L40S-4Q"] == 8 * 3 + 12, "the lists")
    sick = card(daemon, SICK)
    assert (sick["fallback"], sick["source"]) == ("error", "sysfs")
    assert f"({code})" in sick["fallback_detail"] and free_placements(daemon, SICK) == {None}
    assert [f["gpu"] for f in daemon.resources()["fallbacks"]] == [SICK]
    for address in well:
        assert card(daemon, address)["source"] == "nvml"
        answer = daemon.claim(f"on-{address[5:7]}", gpu=address, policy="least_loaded")
        assert answer.status == 201 and answer.json["placement"] == {"id": 0, "size": 4}
    assert daemon.claim("on-the-sick", gpu=SICK).status == 201
    assert daemon.request("GET", "/readyz").status == 200
    settle(sim)
    counted = fallbacks(daemon)
    assert set(counted) == {"error"}
    refresh(daemon)
    assert fallbacks(daemon) == {"error": counted["error"] + 1}
    assert len(lines(daemon, "warning")) == 1
    daemon.restart({"reconcile_interval": "300ms"})
    claimed = {c["vf"] for c in daemon.claims().values()}
    free = next(v for v in vf_addresses(A) if v not in claimed)
    sim.ctl("configure", free, "L40S-1Q")  # nobody's, on a card that is well
    wait_for(lambda: not sim.vf(free)["type"], "the reset")
    assert {c["problem"] for c in daemon.claims().values()} == {None} and len(daemon.claims()) == 4
    sim.ctl("set", key, 0, "--gpu", SICK)
    wait_for(lambda: daemon.resources()["fallbacks"] == [], "NVML to be used again")
    assert daemon.available()["L40S-4Q"] == 28
    assert len(lines(daemon, "warning")) == 2 and len(lines(daemon, "info")) == 1  # one for each start


def test_several_reasons_count_once_each(start_sim, start_daemon):
    sim = start_sim("--cards", 4, "--nvml-latency", 0)
    cards = [c["address"] for c in sim.state()["cards"]]
    for address in cards[:2]:
        sim.ctl("set", "mode", "equal", "--gpu", address)
    sim.ctl("set", "nvml.error", 999, "--gpu", cards[2])
    daemon = start_daemon(sim)
    settle(sim)
    before = fallbacks(daemon)
    assert set(before) == {"equal_size", "error"} and before["error"] == before["equal_size"]
    refresh(daemon)
    assert fallbacks(daemon) == {k: v + 1 for k, v in before.items()}
    assert len(lines(daemon, "warning")) == 3
    # Another error on a card that is in a fallback is worth one more line, the same one is not.
    sim.ctl("set", "nvml.error", 15, "--gpu", cards[2])
    refresh(daemon)
    refresh(daemon)
    assert len(lines(daemon, "warning")) == 4


# --- The whole host -------------------------------------------------------------------------------


@pytest.mark.field("F54")
def test_without_nvml(start_sim, start_daemon):
    """No library: sizes from the names, bounded by what the card can hold; claims work."""
    sim = start_sim("--nvml-latency", 0)
    for i, vf in enumerate(vf_addresses(A)[:7]):
        sim.ctl("configure", vf, "L40S-4Q" if i < 6 else "L40S-2Q")
    path = sim.root / "none/libnvidia-ml.so.1"
    daemon = start_daemon(sim, {"nvml_library": str(path)})
    resources = daemon.resources()
    assert resources["placements_age_ms"] is None
    assert [(f["gpu"], f["reason"]) for f in resources["fallbacks"]] == [(A, "library"), (B, "library")]
    assert all(str(path) in f["detail"] for f in resources["fallbacks"])
    listed = {vf: sim.listed(vf) for vf in vf_addresses(A) + vf_addresses(B)}
    used = {A: [4] * 6 + [2], B: []}
    for address in (A, B):
        shown = card(daemon, address)
        assert (shown["mode"], shown["source"]) == ("unknown", "sysfs")
        assert free_placements(daemon, address) == {None}
        for p in shown["profiles"]:
            size = p["framebuffer_mb"] // 1024
            free = sum(1 for vf in vf_addresses(address) if p["type_id"] in listed[vf])
            bound = min((48 - sum(used[address])) // size,
                        48 // size - sum(1 for u in used[address] if u == size))
            assert p["available"] == min(free, bound), p
    for i in range(12):
        assert daemon.claim(f"vm{i}", "L40S-4Q", gpu=B).status == (201 if i < 8 else 409)
    assert sum(1 for v in sim.card(1)["vfs"] if v["type"] == L40S_4Q) == 8
    assert daemon.request("GET", "/readyz").status == 200
    assert set(fallbacks(daemon)) == {"library"}
    assert len(lines(daemon, "warning")) == 1


def other_machine(sim):
    """The library, but for another processor."""
    path = sim.root / "other.so.1"
    image = bytearray((sim.root / "lib/libnvidia-ml.so.1").read_bytes())
    image[18:20] = (183).to_bytes(2, "little")  # e_machine: AArch64
    path.write_bytes(image)
    return path


def no_library(sim):
    path = sim.root / "text.so.1"
    path.write_text("not a library\n")
    return path


@pytest.mark.field("F54")
@pytest.mark.parametrize("make", [other_machine, no_library])
def test_f54_wrong_file(start_sim, start_daemon, make):
    sim = start_sim("--nvml-latency", 0)
    path = make(sim)
    daemon = start_daemon(sim, {"nvml_library": str(path)})
    reasons = daemon.resources()["fallbacks"]
    assert {f["reason"] for f in reasons} == {"library"} and str(path) in reasons[0]["detail"]
    assert daemon.claim("vm").status == 201
    # The right file at that place is enough.
    os.replace(path, sim.root / "old")
    path.symlink_to(sim.root / "lib/libnvidia-ml.so.1")
    refresh(daemon)
    assert daemon.resources()["fallbacks"] == []


@pytest.mark.field("F54")
def test_f54_symbol_missing(start_sim, start_daemon):
    sim = start_sim("--nvml-latency", 0)
    sim.ctl("set", "nvml.symbol_missing", CREATABLE)
    daemon = start_daemon(sim)
    fallback = daemon.resources()["fallbacks"][0]
    assert fallback["reason"] == "library" and CREATABLE in fallback["detail"]
    assert daemon.claim("vm").status == 201
    assert len(lines(daemon, "warning")) == 1
    sim.ctl("set", "nvml.symbol_missing", 0)
    refresh(daemon)
    wait_for(lambda: daemon.resources()["fallbacks"] == [], "the symbol to be found", 5)
    assert len(lines(daemon, "info")) == 1


def test_mismatch_is_healed_by_a_fresh_helper(start_sim, start_daemon):
    """18 after a driver upgrade: the library in the helper stays the wrong one, a new one is right."""
    sim = start_sim("--nvml-latency", 0)
    daemon = start_daemon(sim)
    settle(sim)
    first = helper_pid(daemon)
    sim.ctl("set", "nvml.error", 18)
    os.kill(first, signal.SIGKILL)  # the next one calls Init
    wait_for(lambda: helper_pid(daemon) is None, "the helper to be collected")
    refresh(daemon)
    fallback = wait_for(lambda: daemon.resources()["fallbacks"], "the fallback")
    assert fallback[0]["reason"] == "library" and "(18)" in fallback[0]["detail"]
    assert set(fallbacks(daemon)) == {"library"}
    assert daemon.claim("vm").status == 201
    sim.ctl("set", "nvml.error", 0)
    refresh(daemon)
    wait_for(lambda: daemon.resources()["fallbacks"] == [], "NVML to be used again", 5)
    assert helper_pid(daemon) != first
    assert len(lines(daemon, "warning")) == 1 and len(lines(daemon, "info")) == 1


def test_crash(start_sim, start_daemon):
    """The helper dies in the library: an error, and the next query has a helper of its own."""
    sim = start_sim("--nvml-latency", 0)
    daemon = start_daemon(sim)
    settle(sim)
    sim.ctl("set", "nvml.crash", 1)
    daemon.request("POST", "/driver/resume")
    fallback = wait_for(lambda: daemon.resources()["fallbacks"], "the fallback")
    assert {f["reason"] for f in fallback} == {"error"} and "signal" in fallback[0]["detail"]
    assert daemon.claim("vm").status == 201
    sim.ctl("set", "nvml.crash", 0)
    refresh(daemon)
    wait_for(lambda: daemon.resources()["fallbacks"] == [], "NVML to be used again", 5)
    assert set(fallbacks(daemon)) == {"error"}


# --- A hang ---------------------------------------------------------------------------------------


@pytest.mark.field("F52")
def test_f52_hang(start_sim, start_daemon):
    """One claim pays the time-out, later ones nothing; what only reads never waits; then it is over."""
    sim = start_sim("--nvml-latency", 0)
    daemon = start_daemon(sim, {"gpu": {"nvml_timeout": "3s"}})
    settle(sim)
    sim.ctl("set", "nvml.hang", 1)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(daemon.claim, "vm0")
        wait_for(lambda: sim.counters()["nvml_calls"] > 0, "the query")
        for _ in range(20):
            for path in ("/resources", "/gpus", "/metrics", "/vfs", "/claims"):
                assert daemon.request("GET", path).status == 200
        assert not first.done()
        assert first.result().status == 201
    begun = time.monotonic()
    for i in range(1, 6):
        assert daemon.claim(f"vm{i}").status == 201
    assert time.monotonic() - begun < 3, "a claim paid the time-out again"
    assert {f["reason"] for f in daemon.resources()["fallbacks"]} == {"timeout"}
    assert free_placements(daemon, A) == {None}
    counted = fallbacks(daemon)
    assert set(counted) == {"timeout"} and counted["timeout"] >= 6
    assert len(lines(daemon, "warning")) == 1
    age = daemon.resources()["placements_age_ms"]
    assert age >= 3000
    sim.ctl("set", "nvml.hang", 0)
    wait_for(lambda: daemon.resources()["fallbacks"] == [], "NVML to be used again")
    assert daemon.available()["L40S-4Q"] == 10
    assert len(lines(daemon, "warning")) == 1 and len(lines(daemon, "info")) == 1
    assert daemon.resources()["placements_age_ms"] < age


@pytest.mark.field("F52")
def test_hang_at_start(start_sim, start_daemon):
    """berthd starts, serves and claims although NVML never answers."""
    sim = start_sim("--nvml-latency", 0)
    sim.ctl("set", "nvml.hang", 1)
    daemon = start_daemon(sim, {"gpu": {"nvml_timeout": "500ms"}})
    assert daemon.available()["L40S-4Q"] == 24
    assert daemon.claim("vm").status == 201
    sim.ctl("set", "nvml.hang", 0)
    wait_for(lambda: daemon.resources()["fallbacks"] == [], "NVML to be used")


def test_waiting_for_the_slot_counts(start_sim, start_daemon):
    """A claim behind a slow query falls back when its own time is over, though neither query takes
    too long by itself."""
    sim = start_sim("--nvml-latency", 0)
    daemon = start_daemon(sim, {"gpu": {"nvml_timeout": "2s"}})
    settle(sim)
    sim.ctl("set", "nvml.latency_ms", 1500)
    calls = sim.counters()["nvml_calls"]
    daemon.request("POST", "/driver/resume")
    wait_for(lambda: sim.counters()["nvml_calls"] > calls + 10, "a refresh to be well under way")
    assert daemon.claim("vm").status == 201
    assert set(fallbacks(daemon)) == {"timeout"}
    sim.ctl("set", "nvml.latency_ms", 0)
    wait_for(lambda: daemon.resources()["fallbacks"] == [], "the slow answer")


def test_release_by_hand_during_a_hang(start_sim, start_daemon):
    """What hangs is let go of all the same; NVML is used again when told to."""
    sim = start_sim("--nvml-latency", 0)
    daemon = start_daemon(sim, {"gpu": {"nvml_timeout": "500ms"}})
    settle(sim)
    sim.ctl("set", "nvml.hang", 1)
    assert daemon.claim("vm").status == 201
    assert {f["reason"] for f in daemon.resources()["fallbacks"]} == {"timeout"}
    assert daemon.request("POST", "/driver/release").status == 200
    wait_for(lambda: {f["reason"] for f in daemon.resources()["fallbacks"]} == {"library"}, "the reason")
    wait_for(lambda: helper_pid(daemon) is None, "the helper to be gone")
    assert daemon.claim("vm2").status == 201 and helper_pid(daemon) is None
    sim.ctl("set", "nvml.hang", 0)
    assert daemon.request("POST", "/driver/resume").status == 200
    wait_for(lambda: daemon.resources()["fallbacks"] == [], "NVML to be used again")
    assert daemon.available()["L40S-4Q"] == 14


@pytest.mark.field("F52")
def test_sigterm_during_a_hang(start_sim, start_daemon):
    """The claim that waits is answered or cut; berthd and its helpers are gone."""
    sim = start_sim("--nvml-latency", 0)
    daemon = start_daemon(sim, {"gpu": {"nvml_timeout": "60s"}})
    settle(sim)
    pids = children(daemon.process.pid)
    sim.ctl("set", "nvml.hang", 1)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        claim = pool.submit(daemon.try_request, "PUT", "/claims/vm", {"profile": "L40S-4Q"})
        wait_for(lambda: not claim.done() and daemon.get("/resources"), "the claim to wait")
        daemon.process.terminate()
        assert daemon.process.wait(timeout=5) == 0
        answer = claim.result()
        assert answer is None or answer.status == 503
    sim.ctl("set", "nvml.hang", 0)
    wait_for(lambda: not any(os.path.exists(f"/proc/{p}") for p in pids), "the helpers to end")
    assert not any(v["type"] for c in sim.state()["cards"] for v in c["vfs"])


# --- Who holds /dev/nvidia* -----------------------------------------------------------------------


@pytest.mark.field("F56")
def test_f56_switched_off(start_sim, start_daemon):
    """nvml_library "": not a single descriptor, no helper, SR-IOV is free, one line in the log."""
    sim = start_sim("--nvml-latency", 0)
    sim.ctl("set", "sriov.latency_ms", 0)
    daemon = start_daemon(sim, {"nvml_library": ""})
    nodes = nvidia_nodes(daemon)
    assert set(nodes) == {"berthd", "berth-card"} and not any(nodes.values())
    assert sim.counters()["nvml_calls"] == 0
    assert {f["reason"] for f in daemon.resources()["fallbacks"]} == {"library"}
    assert daemon.available()["L40S-4Q"] == 24
    sim.ctl("sriov", "-d", A)
    wait_for(lambda: daemon.resources()["total_slots"] == 32, "the VFs to be missed")
    sim.ctl("sriov", "-e", A)
    wait_for(lambda: daemon.resources()["total_slots"] == 64, "the VFs to be back")
    assert daemon.claim("vm", gpu=A).status == 201
    assert len(lines(daemon, "warning")) == 1


@pytest.mark.field("F56")
def test_f56_only_the_helper_holds_them(start_sim, start_daemon):
    """berthd and berth-card never; the helper does, until it is told to let go."""
    sim = start_sim("--nvml-latency", 0)
    sim.ctl("set", "sriov.latency_ms", 0)
    daemon = start_daemon(sim)
    nodes = nvidia_nodes(daemon)
    assert nodes["berth-nvml"] and not nodes["berthd"] and not nodes["berth-card"]
    assert sim.ctl("sriov", "-d", A, check=False).returncode == 1

    def berth(*args):
        return subprocess.run([BIN / "berth", "--socket", daemon.socket, *args], timeout=20,
                              capture_output=True, text=True)

    assert berth("driver", "release").returncode == 0
    wait_for(lambda: helper_pid(daemon) is None, "the helper to end")
    assert not any(nvidia_nodes(daemon).values())
    fallback = wait_for(lambda: daemon.resources()["fallbacks"], "the fallback")
    assert fallback[0]["reason"] == "library" and "by hand" in fallback[0]["detail"]
    assert daemon.claim("meanwhile", gpu=B).status == 201
    assert helper_pid(daemon) is None
    sim.ctl("sriov", "-d", A)
    sim.ctl("sriov", "-e", A)
    sim.ctl("set", "mode", "mixed", "--gpu", A)
    assert berth("driver", "resume").returncode == 0
    wait_for(lambda: daemon.resources()["fallbacks"] == [], "NVML to be used again")
    wait_for(lambda: daemon.available()["L40S-4Q"] == 15, "both cards")
    assert helper_pid(daemon)


@pytest.mark.field("F56")
def test_f56_sigterm_in_a_query(start_sim, start_daemon):
    """The helper leaves the library in order, by nvmlShutdown, and nobody has /dev/nvidia* behind it."""
    sim = start_sim("--nvml-latency", 0)
    daemon = start_daemon(sim)
    settle(sim)
    before = sim.counters()
    assert before["nvml_shutdowns"] == 0
    sim.ctl("set", "nvml.latency_ms", 1500)
    helper = helper_pid(daemon)
    daemon.request("POST", "/driver/resume")
    wait_for(lambda: sim.counters()["nvml_calls"] > before["nvml_calls"] + 10, "the query to be under way")
    assert daemon.stop() == 0
    wait_for(lambda: sim.counters()["nvml_shutdowns"] == 1, "the library to be left")
    wait_for(lambda: not os.path.exists(f"/proc/{helper}"), "the helper to end")
    assert all(c["node_handles"] == 0 for c in sim.state()["cards"])


@pytest.mark.field("F56")
def test_children_inherit_nothing(start_sim, start_daemon):
    """A helper has its socket, the log, and what it opened; no socket or file of berthd's."""
    sim = start_sim("--nvml-latency", 0)
    daemon = start_daemon(sim, {"listen": "127.0.0.1:0"})
    assert daemon.claim("vm").status == 201
    settle(sim)
    old = helper_pid(daemon)
    os.kill(old, signal.SIGKILL)
    wait_for(lambda: helper_pid(daemon) is None, "the helper to be collected")
    refresh(daemon)
    assert helper_pid(daemon) not in (None, old)
    own = set(descriptors(daemon.process.pid))
    for pid, name in children(daemon.process.pid).items():
        shared = own & set(descriptors(pid))
        shared = {l for l in shared if l not in ("/dev/null", str(daemon.log_path)) and
                  not l.startswith("anon_inode:")}
        assert not shared, (name, shared)
        assert sum(1 for l in descriptors(pid) if l.startswith("socket:")) <= (2 if name == "berth-nvml" else 1)


# --- MIG ------------------------------------------------------------------------------------------


def test_mig_is_shown_and_not_claimed(start_sim, start_daemon):
    sim = start_sim("--model", "h100-80", "--cards", 2, "--nvml-latency", 0)
    sim.ctl("set", "mode", "mig", "--gpu", A)
    sim.ctl("gi", A, "3g.40gb", "1g.10gb", "1g.10gb")
    daemon = start_daemon(sim)
    shown = wait_for(lambda: (c := card(daemon, A))["mode"] == "mig" and
                     any(p["available"] for p in c["profiles"]) and c, "the lists of the MIG card")
    assert (shown["fallback"], shown["source"]) == ("mig", "sysfs")
    available = {p["name"]: p["available"] for p in shown["profiles"] if p["available"]}
    ones = [n for n in available if re.search(r"-1-10C$", n)]
    threes = [n for n in available if re.search(r"-3-40C$", n)]
    assert {available[n] for n in ones} == {2} and {available[n] for n in threes} == {1}, available
    sim.ctl("configure", vf_addresses(A)[0], ones[0])
    wait_for(lambda: {p["name"]: p["available"] for p in card(daemon, A)["profiles"]}[ones[0]] == 1,
             "one instance less", 4)
    for refused in (daemon.claim("vm", ones[0]), daemon.claim("vm", ones[0], gpu=A)):
        assert (refused.status, refused.code) == (422, "not_supported"), refused
    assert set(fallbacks(daemon)) == {"mig"}
    assert card(daemon, B)["source"] == "nvml"
    assert daemon.claim("vm", "H100-10C").json["gpu"] == B
    # The driver's own names of the MIG card do not become claimable where NVML does not say "MIG".
    settle(sim)
    sim.ctl("set", "nvml.error", 999)
    os.kill(helper_pid(daemon), signal.SIGKILL)
    refresh(daemon)
    wait_for(lambda: len(daemon.resources()["fallbacks"]) == 2, "the fallback of the host")
    refused = daemon.claim("vm2", ones[0])
    assert refused.status in (409, 422), refused
    assert sum(1 for v in sim.card(0)["vfs"] if v["type"]) == 1
