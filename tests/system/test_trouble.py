# SPDX-License-Identifier: Apache-2.0
"""What breaks in the middle: helpers die, cards vanish, /proc is closed, the daemon is told to stop."""
import json
import os
import pathlib
import signal
import threading
import time

import pytest

from conftest import check_host, leave_undo_record, settled, typed_vfs, wait_for

PF, PF2 = "0000:41:00.0", "0000:81:00.0"
VF = "0000:41:00.4"
FAST = {"reconcile_interval": "300ms", "unclaimed_grace": 0, "gpu": {"card_timeout": "2s"}}


def send(daemon, method, name, body=None):
    """A request whose answer is not waited for."""
    connection = daemon.connect()
    headers = {"Content-Type": "application/json"} if body else {}
    connection.request(method, f"/claims/{name}", json.dumps(body) if body else None, headers)
    return connection


def status_of(connection):
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def in_state(daemon, state):
    return wait_for(lambda: [a for a, v in daemon.vfs().items() if v["state"] == state], f"a VF in state {state}")


def helper_of(daemon, gpu):
    """Process id of the card's helper."""
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if parent == daemon.process.pid and gpu.encode() in words:
            return int(entry.name)
    return None


def commits(daemon):
    return int((daemon.data_dir / "claims.gen").read_text())


def test_an_intent_is_never_shown(sim, start_daemon):
    daemon = start_daemon(sim, FAST)
    sim.ctl("set", "sysfs.write_latency_ms", 500)
    connection = send(daemon, "PUT", "vm1", {"profile": "L40S-4Q"})
    vf = in_state(daemon, "claiming")[0]
    assert daemon.claims() == {} and daemon.request("GET", "/claims/vm1").status == 404
    assert daemon.vfs()[vf]["claim"] is None
    assert daemon.resources()["used_slots"] == 1  # but it counts
    assert status_of(connection) == 201


@pytest.mark.tsan
def test_helper_dies_in_a_claim(sim, start_daemon):
    """Nothing of it can land late; the claim goes to another card, the VF is undone."""
    daemon = start_daemon(sim, FAST)
    assert daemon.claim("big", "L40S-24Q", gpu=PF2).status == 201  # the next one goes to the other card
    sim.ctl("set", "sysfs.write_latency_ms", 500, "--gpu", PF)
    before = commits(daemon)
    connection = send(daemon, "PUT", "vm1", {"profile": "L40S-4Q", "policy": "least_loaded"})
    assert in_state(daemon, "claiming")[0].startswith("0000:41")
    wait_for(lambda: commits(daemon) > before, "the intent to be stored, which the write follows")
    os.kill(helper_of(daemon, PF), signal.SIGKILL)
    assert status_of(connection) == 201
    assert daemon.claims()["vm1"]["gpu"] == PF2
    sim.ctl("set", "sysfs.write_latency_ms", 0, "--gpu", PF)
    settled(sim, daemon)
    check_host(sim, daemon)
    assert daemon.claim("next", gpu=PF).status == 201


def test_helper_dies_in_a_release(sim, start_daemon):
    daemon = start_daemon(sim, FAST)
    daemon.claim("vm1", gpu=PF)
    sim.ctl("set", "sysfs.write_latency_ms", 500, "--gpu", PF)
    connection = send(daemon, "DELETE", "vm1")
    in_state(daemon, "releasing")
    os.kill(helper_of(daemon, PF), signal.SIGKILL)
    assert status_of(connection) in (200, 202)
    wait_for(lambda: daemon.claims() == {}, "the release to end")
    check_host(sim, daemon)


def test_card_vanishes_in_a_claim(sim, start_daemon):
    daemon = start_daemon(sim, FAST)
    sim.ctl("set", "sysfs.write_latency_ms", 400, "--gpu", PF)
    connections = [send(daemon, "PUT", f"vm{i}", {"profile": "L40S-4Q", "gpu": PF}) for i in range(3)]
    in_state(daemon, "claiming")
    sim.ctl("remove", PF)
    statuses = [status_of(c) for c in connections]
    assert all(s in (201, 409, 503) for s in statuses)
    wait_for(lambda: daemon.resources()["total_slots"] == 32, "the card to be missed")
    assert daemon.claim("other").status == 201
    sim.ctl("set", "sysfs.write_latency_ms", 0, "--gpu", PF)
    sim.ctl("restore", PF)
    wait_for(lambda: daemon.resources()["total_slots"] == 64, "the card to be back")
    for name in daemon.claims():
        assert daemon.release(name).status in (200, 202)
    wait_for(lambda: daemon.resources()["allocatable_slots"] == 64, "everything to be free")
    assert check_host(sim, daemon) == {}


def test_card_vanishes_in_a_release(sim, start_daemon):
    daemon = start_daemon(sim, FAST)
    daemon.claim("vm1", gpu=PF)
    sim.ctl("set", "sysfs.write_latency_ms", 400, "--gpu", PF)
    connection = send(daemon, "DELETE", "vm1")
    in_state(daemon, "releasing")
    sim.ctl("remove", PF)
    assert status_of(connection) in (200, 202)
    wait_for(lambda: daemon.claims() == {}, "the release to end")


@pytest.mark.tsan
def test_vfs_flap(sim, start_daemon):
    """Free VFs go and come back many times a second while claims are made."""
    daemon = start_daemon(sim, FAST)
    kept = {f"vm{i}": daemon.claim(f"vm{i}", gpu=PF).json["vf"] for i in range(3)}
    flapping = threading.Thread(target=lambda: sim.ctl("flap", PF, "--hz", "50", "--for", "1"))
    flapping.start()
    i = 0
    while flapping.is_alive():
        if daemon.claim(f"f{i}").status == 201:
            daemon.release(f"f{i}")
        i += 1
    flapping.join()
    wait_for(lambda: daemon.resources()["total_slots"] == 64, "all VFs to be back")
    for name in set(daemon.claims()) - set(kept):
        daemon.release(name)
    wait_for(lambda: daemon.resources()["allocatable_slots"] == 61, "all VFs to be free")
    assert set(check_host(sim, daemon, acknowledged=kept)) == set(kept)


@pytest.mark.tsan
def test_told_to_stop_in_the_middle(sim, start_daemon):
    """SIGTERM with claims, releases and a waiting client under way: ends soon, nothing leaks."""
    daemon = start_daemon(sim, FAST)
    daemon.claim("big", "L40S-48Q", gpu=PF2)
    daemon.claim("old", gpu=PF)
    sim.ctl("set", "sysfs.write_latency_ms", 600)
    waiting = send(daemon, "PUT", "waits", {"profile": "L40S-48Q", "wait_ms": 60000})
    claiming = send(daemon, "PUT", "new", {"profile": "L40S-4Q", "gpu": PF})
    in_state(daemon, "claiming")
    releasing = send(daemon, "DELETE", "old")
    in_state(daemon, "releasing")
    began = time.monotonic()
    assert daemon.stop() == 0
    assert time.monotonic() - began < 5
    assert status_of(waiting) == 503
    for connection in (claiming, releasing):
        connection.close()
    sim.ctl("set", "sysfs.write_latency_ms", 0)
    daemon.start()
    settled(sim, daemon)
    assert "big" in check_host(sim, daemon)


def test_client_hangs_up_in_a_release(sim, start_daemon):
    """A release that was begun goes on."""
    daemon = start_daemon(sim, FAST)
    daemon.claim("vm1")
    sim.ctl("set", "sysfs.write_latency_ms", 300)
    connection = send(daemon, "DELETE", "vm1")
    in_state(daemon, "releasing")
    connection.close()
    wait_for(lambda: daemon.claims() == {}, "the release to end")
    check_host(sim, daemon)


def test_retries_soon_after_a_failure(sim, start_daemon):
    """Not only at the next interval, a minute away."""
    daemon = start_daemon(sim)
    sim.ctl("set", "sysfs.release_errno", "EBUSY")
    sim.ctl("set", "sysfs.write_latency_ms", 300)
    leave_undo_record(daemon, lambda: send(daemon, "PUT", "vm1", {"profile": "L40S-4Q"}))
    sim.ctl("set", "sysfs.release_errno", 0)
    settled(sim, daemon)
    assert check_host(sim, daemon) == {}


def unknown_is_never_empty(sim, daemon, claim):
    """It cannot be told what is open: no release, no reset."""
    answer = daemon.release("vm1")
    assert (answer.status, answer.code) == (409, "in_use")
    assert daemon.get("/claims/vm1") == claim
    sim.ctl("configure", VF, "L40S-2Q")
    wait_for(lambda: daemon.metric('berth_reconcile_failures_total{stage="open_scan"}') >= 3, "passes")
    assert set(typed_vfs(sim)) == {claim["vf"], VF}


def test_proc_cannot_be_read(sim, start_daemon, tmp_path):
    daemon = start_daemon(sim, {**FAST, "gpu": {"exclude": []}})
    claim = daemon.claim("vm1", "L40S-4Q", gpu=PF2).json
    daemon.restart({"proc_root": str(tmp_path)})
    unknown_is_never_empty(sim, daemon, claim)
    daemon.restart({"proc_root": "/proc"})
    wait_for(lambda: sim.vf(VF)["type"] == 0, "the reset")
    assert daemon.release("vm1").status == 200


def test_processes_cannot_be_looked_into(sim, start_daemon):
    """Without CAP_SYS_PTRACE the descriptors of other users' processes are hidden."""
    daemon = start_daemon(sim, FAST)
    claim = daemon.claim("vm1", "L40S-4Q", gpu=PF2).json
    daemon.restart(wrap=["setpriv", "--bounding-set", "-sys_ptrace"])
    unknown_is_never_empty(sim, daemon, claim)


def test_releasing_while_it_cannot_be_told(sim, start_daemon, tmp_path):
    """A release found at start stays one until it can be told what is open."""
    daemon = start_daemon(sim, FAST)
    daemon.claim("vm1")
    daemon.restart(fault="release.marked")
    assert daemon.try_request("DELETE", "/claims/vm1") is None
    daemon.wait_dead()
    daemon.restart({"proc_root": str(tmp_path)})
    wait_for(lambda: daemon.metric('berth_reconcile_failures_total{stage="release"}') >= 3, "tries")
    assert daemon.claims()["vm1"]["state"] == "releasing" and len(typed_vfs(sim)) == 1
    daemon.restart({"proc_root": "/proc"})
    wait_for(lambda: daemon.claims() == {}, "the release to end")
    check_host(sim, daemon)


@pytest.mark.tsan
def test_database_lost_in_a_release(sim, start_daemon):
    """It is loaded anew while the driver still works on a release: that one comes to its end."""
    daemon = start_daemon(sim, {**FAST, "gpu": {"card_timeout": "15s"}})
    slow, kept = daemon.claim("slow", gpu=PF).json["vf"], daemon.claim("kept", gpu=PF2).json["vf"]
    sim.ctl("set", "sysfs.write_latency_ms", 7000, "--vf", slow)
    assert daemon.release("slow").status == 202
    for path in daemon.data_dir.glob("claims.db*"):
        path.unlink()
    assert daemon.claim("new").code == "store_unavailable"
    daemon.wait_ready()
    assert daemon.claims()["slow"]["state"] == "releasing"
    wait_for(lambda: "slow" not in daemon.claims(), "the release to end")
    settled(sim, daemon)
    assert {c["vf"] for c in check_host(sim, daemon).values()} == {kept}


def test_a_burst_shares_commits(sim, start_daemon):
    daemon = start_daemon(sim, FAST)
    daemon.claim("first")
    daemon.release("first")
    before, count = commits(daemon), 20
    threads = [threading.Thread(target=daemon.claim, args=(f"vm{i}", "L40S-1Q")) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert len(check_host(sim, daemon)) == count
    # Intents come in few batches; each `bound` follows its write.
    assert commits(daemon) - before <= count + count // 2


@pytest.mark.field("F05")
@pytest.mark.parametrize("code", ["EINVAL", "EPERM", "EIO", "ENOMEM"])
def test_resources_after_a_failed_claim(sim, start_daemon, code):
    """The VF is free and /resources equals the start state, whatever the driver said."""
    daemon = start_daemon(sim, FAST)

    def state():
        gpu = daemon.resources()
        gpu.pop("placements_age_ms")
        return gpu

    before = state()
    sim.ctl("set", "sysfs.write_errno", code)
    answer = daemon.claim("vm1")
    assert (answer.status, answer.code) == (503, "driver_refused")
    settled(sim, daemon)
    wait_for(lambda: state() == before, "the start state")
    assert check_host(sim, daemon) == {} and typed_vfs(sim) == {}
    sim.ctl("set", "sysfs.write_errno", 0)
    assert daemon.claim("vm1").status == 201


@pytest.mark.field("F26")
def test_records_of_hardware_that_is_gone(start_sim, start_daemon):
    """After a re-deployment one of two cards is left, with fewer VFs: old records neither count nor
    block, can be released or replaced, and nothing inherits them."""
    old = start_sim("--nvml-latency", 0, "--boot-id", "b")
    daemon = start_daemon(old, FAST)
    first = {f"a{i}": daemon.claim(f"a{i}", gpu=PF).json["vf"] for i in range(3)}
    second = {f"b{i}": daemon.claim(f"b{i}", gpu=PF2).json["vf"] for i in range(3)}
    sick = [VF, "0000:41:03.3"]
    for vf in sick:
        assert daemon.request("PUT", f"/vfs/{vf}/quarantine").status == 200
    daemon.stop()
    new = start_sim("--nvml-latency", 0, "--boot-id", "b", "--cards", 1, "--address", PF2, "--vfs", 8)
    daemon = start_daemon(new, {**FAST, "data_dir": str(old.root / "state")})
    wait_for(lambda: all(c["problem"] for c in daemon.claims().values()), "the problems to be seen")
    claims = daemon.claims()
    here = set(daemon.vfs())
    for name, vf in {**first, **second}.items():
        assert claims[name]["problem"] == ("type_lost" if vf in here else "vf_missing")
    resources = daemon.resources()
    assert (resources["total_slots"], resources["quarantined_slots"]) == (8, 0)
    assert not any(v["quarantined"] for v in daemon.vfs().values()) and not here & set(sick)
    got = daemon.claim("new")
    assert got.status == 201 and got.json["vf"] in here - set(second.values())
    assert daemon.claim("a0").status == 201  # replaced
    for name in ("a1", "a2", *second):
        assert daemon.release(name).status == 200
    for vf in sick:  # cleared though there is no such VF
        assert daemon.request("DELETE", f"/vfs/{vf}/quarantine").status == 200
        assert daemon.request("DELETE", f"/vfs/{vf}/quarantine").status == 404
    settled(new, daemon)
    assert set(check_host(new, daemon)) == {"new", "a0"}


def test_closed_standard_descriptors(start_sim, start_daemon):
    """What berthd opens must not end up where messages are written: a log line in the database."""
    sim = start_sim()
    daemon = start_daemon(sim, wrap=["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"])
    for fd in "012":
        assert os.readlink(f"/proc/{daemon.process.pid}/fd/{fd}") == "/dev/null"
    assert daemon.claim("vm1").status == 201
