# SPDX-License-Identifier: Apache-2.0
"""Claims and releases: what each answer is, and that the VF is what the answer says."""
import json
import os
import pickle
import re
import signal
import subprocess
import threading

import pytest

from conftest import check_host, leave_undo_record, settled, wait_for

PF, PF2 = "0000:41:00.0", "0000:81:00.0"
L40S_2Q, L40S_4Q = 1148, 1150


def in_parallel(calls):
    """Runs all at the same time; their results in the same order."""
    results = [None] * len(calls)

    def run(i):
        results[i] = calls[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(40)
    return results


def slow_writes(sim, ms=400, **where):
    sim.ctl("set", "sysfs.write_latency_ms", ms)


def claiming(daemon):
    """Waits until a claim is being written."""
    wait_for(lambda: [v for v in daemon.vfs().values() if v["state"] == "claiming"], "a claim to be written")


def send_put(daemon, name, profile="L40S-4Q", **fields):
    """A PUT whose answer is not waited for; gives the connection."""
    connection = daemon.connect()
    connection.request("PUT", f"/claims/{name}", json.dumps({"profile": profile, **fields}),
                       {"Content-Type": "application/json"})
    return connection


def fetch(connection):
    """(status, JSON) of what was sent."""
    answer = connection.getresponse()
    body = json.loads(answer.read())
    connection.close()
    return answer.status, body


def heard(daemon):
    """Everything sent before has been read by the daemon."""
    for _ in range(2):
        daemon.get("/healthz")


def as_user(uid, call):
    """Result of call() in a process of another user."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.write(write, pickle.dumps(call()))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as f:
        data = f.read()
    os.waitpid(pid, 0)
    return pickle.loads(data)


def open_to_all(daemon):
    """The socket is 0660 and its folder private: tests with other users need more."""
    os.chmod(daemon.sim.root.parent, 0o755)
    os.chmod(daemon.sim.root, 0o755)
    os.chmod(daemon.socket, 0o666)


def is_opaque(pid):
    """root may list the descriptors of this process but not see what they are."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
        for name in names[:1]:
            os.readlink(f"/proc/{pid}/fd/{name}")
    except PermissionError:
        return True
    except OSError:
        pass
    return False


# --- PUT -----------------------------------------------------------------------------------------


def test_a_claim_and_its_release(sim, daemon):
    answer = daemon.claim("vm1", owner="team x", pid=os.getpid())
    assert answer.status == 201
    claim = answer.json
    assert (claim["name"], claim["state"], claim["problem"]) == ("vm1", "bound", None)
    assert (claim["profile"], claim["type_id"], claim["owner"]) == ("NVIDIA L40S-4Q", L40S_4Q, "team x")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", claim["assigned_at"])
    assert (claim["uid"], claim["pid"]) == (0, os.getpid())
    assert claim["boot_id"] == (sim.root / "boot_id").read_text().strip()
    vf = sim.vf(claim["vf"])
    assert (vf["type"], vf["placement"]) == (L40S_4Q, claim["placement"]["id"])
    assert claim["placement"]["size"] == 4
    assert claim["sysfs_path"] == str(sim.sys / "bus/pci/devices" / claim["vf"])
    assert os.path.exists(claim["vfio_device"]) and os.path.exists(claim["vfio_group"])
    assert daemon.get("/claims/vm1") == claim and daemon.claims() == {"vm1": claim}
    assert daemon.vfs()[claim["vf"]]["claim"] == "vm1"
    released = daemon.release("vm1")
    assert released.status == 200 and released.json["name"] == "vm1"
    assert daemon.release("vm1").status == 204
    assert daemon.request("GET", "/claims/vm1").code == "not_found"
    assert check_host(sim, daemon, released={"vm1"}) == {}


def test_put_is_idempotent(sim, daemon):
    first = daemon.claim("vm1")
    again = daemon.claim("vm1", "NVIDIA L40S-4Q")
    assert (first.status, again.status) == (201, 200) and first.json == again.json
    other = daemon.claim("vm1", "L40S-2Q")
    assert (other.status, other.code) == (409, "claim_exists")
    assert len(check_host(sim, daemon)) == 1


@pytest.mark.tsan
def test_put_joins_one_in_progress(sim, daemon):
    slow_writes(sim)
    first = send_put(daemon, "vm1")
    claiming(daemon)
    other = daemon.claim("vm1", "L40S-2Q")
    assert (other.status, other.code) == (409, "claim_exists")
    joined = in_parallel([lambda: daemon.claim("vm1") for _ in range(3)])
    status, claim = fetch(first)
    assert status == 201
    assert [(a.status, a.json) for a in joined] == [(200, claim)] * 3
    assert len(check_host(sim, daemon)) == 1


def test_one_that_joined_keeps_the_claim(sim, daemon):
    """The client that came first hangs up; another one waits for the same claim."""
    slow_writes(sim)
    first = send_put(daemon, "vm1")
    claiming(daemon)
    second = send_put(daemon, "vm1")
    heard(daemon)
    first.close()
    status, claim = fetch(second)
    assert status in (200, 201)
    check_host(sim, daemon, acknowledged={"vm1": claim["vf"]})


def test_release_then_claim_under_the_same_name(sim, daemon):
    for _ in range(5):
        assert daemon.claim("vm1").status == 201
        assert daemon.release("vm1").status == 200
    assert check_host(sim, daemon) == {}


def test_release_waits_for_a_claim_under_way(sim, daemon):
    slow_writes(sim)
    first = send_put(daemon, "vm1")
    claiming(daemon)
    released = daemon.release("vm1")
    assert fetch(first)[0] == 201 and released.status in (200, 202)
    wait_for(lambda: daemon.claims() == {}, "the release to end")
    check_host(sim, daemon)


def test_requirements(sim, daemon):
    """`gpu` and `numa_node` are requirements, not wishes."""
    node = daemon.get(f"/gpus/{PF2}")["numa_node"]
    assert daemon.claim("vm1", gpu=PF2.upper().replace("0000:", "00000000:")).json["gpu"] == PF2
    assert daemon.claim("vm2", "L40S-48Q", gpu=PF2).code == "insufficient_resources"
    assert daemon.claim("vm3", gpu="0000:99:00.0").code == "insufficient_resources"
    if node is not None:
        assert daemon.claim("vm4", numa_node=node).status == 201
    assert daemon.claim("vm5", numa_node=900).code == "insufficient_resources"


def test_unknown_profile(sim, daemon):
    answer = daemon.claim("vm1", "L40S-5Q")
    assert (answer.status, answer.code) == (422, "unknown_profile")


def test_refused_from_memory(start_sim, start_daemon):
    """Without a free VF no NVML query is made."""
    sim = start_sim("--cards", 1, "--vfs", 2, "--nvml-latency", 0)
    daemon = start_daemon(sim)
    assert [daemon.claim(f"vm{i}", "L40S-1Q").status for i in range(2)] == [201, 201]
    calls = []

    def quiet():
        calls.append(sim.counters()["nvml_calls"])
        return len(calls) > 20 and len(set(calls[-20:])) == 1

    wait_for(quiet, "the refreshes to end")
    refused = daemon.claim("vm9", "L40S-1Q")
    assert (refused.status, refused.code) == (409, "insufficient_resources")
    assert refused.json["cards"] == [{"gpu": PF, "reason": "no free VF"}]
    assert sim.counters()["nvml_calls"] == calls[-1]


# --- At the same time --------------------------------------------------------------------------


def fill_to(daemon, profile, left):
    i = 0
    while daemon.available()[profile] > left:
        assert daemon.claim(f"fill{i}", profile).status == 201
        i += 1
    assert daemon.available()[profile] == left


def test_five_claims_for_three_placements(sim, daemon):
    fill_to(daemon, "L40S-4Q", 3)
    answers = in_parallel([lambda i=i: daemon.claim(f"vm{i}") for i in range(5)])
    assert sorted(a.status for a in answers) == [201, 201, 201, 409, 409]
    assert {a.code for a in answers if a.status == 409} == {"insufficient_resources"}
    settled(sim, daemon)
    acknowledged = {a.json["name"]: a.json["vf"] for a in answers if a.status == 201}
    check_host(sim, daemon, acknowledged=acknowledged)
    # Stop and start of one of them.
    name = next(iter(acknowledged))
    assert daemon.release(name).status == 200
    assert daemon.claim(name).status == 201


@pytest.mark.field("F14")
def test_fifty_claims_for_one_placement(sim, daemon):
    fill_to(daemon, "L40S-48Q", 1)
    sim.ctl("set", "sysfs.write_latency_ms", 30)
    used = []
    writes = sim.counters()["attr_writes"]
    done = threading.Event()

    def watch():
        while not done.is_set():
            gpu = daemon.resources()
            used.append(gpu["used_slots"] <= gpu["total_slots"] and gpu["allocatable_slots"] >= 0)

    watcher = threading.Thread(target=watch)
    watcher.start()
    answers = in_parallel([lambda i=i: daemon.claim(f"vm{i}", "L40S-48Q") for i in range(50)])
    done.set()
    watcher.join()
    assert sorted(a.status for a in answers) == [201] + [409] * 49
    assert {a.code for a in answers if a.status == 409} == {"insufficient_resources"}
    assert used and all(used)
    # Those that get nothing are told so without a try at the driver: the type and its place once.
    assert sim.counters()["attr_writes"] - writes <= 2
    settled(sim, daemon)
    check_host(sim, daemon)


@pytest.mark.tsan
def test_twenty_claims_get_twenty_vfs(sim, daemon):
    answers = in_parallel([lambda i=i: daemon.claim(f"vm{i}", "L40S-2Q") for i in range(20)])
    assert [a.status for a in answers] == [201] * 20
    assert len({a.json["vf"] for a in answers}) == 20
    places = [(a.json["gpu"], a.json["placement"]["id"]) for a in answers]
    assert len(set(places)) == 20
    check_host(sim, daemon, acknowledged={a.json["name"]: a.json["vf"] for a in answers})
    gone = in_parallel([lambda i=i: daemon.release(f"vm{i}") for i in range(20)])
    assert {a.status for a in gone} <= {200, 202}
    wait_for(lambda: daemon.claims() == {}, "the releases to end")
    check_host(sim, daemon)


# --- Waiting -----------------------------------------------------------------------------------


def test_waiting_in_order(sim, daemon):
    """First come, first served; nobody overtakes."""
    fill_to(daemon, "L40S-48Q", 0)
    waiting = []
    for i in range(4):
        waiting.append(send_put(daemon, f"w{i}", "L40S-48Q", wait_ms=20000))
        heard(daemon)
    turn = [f"fill{i}" for i in range(2)] + ["w0", "w1"]
    for i, name in enumerate(turn):
        assert daemon.release(name).status == 200
        status, claim = fetch(waiting[i])
        assert (status, claim["name"]) == (201, f"w{i}")
        assert set(daemon.claims()) == set(turn[i + 1:i + 2] + [f"w{i}"]) or len(daemon.claims()) == 2
    settled(sim, daemon)
    assert set(check_host(sim, daemon)) == {"w2", "w3"}


def test_waiting_ends(sim, daemon):
    fill_to(daemon, "L40S-48Q", 0)
    answer = daemon.claim("w0", "L40S-48Q", wait_ms=300)
    assert (answer.status, answer.code) == (409, "insufficient_resources")


def test_waiting_ends_when_the_client_hangs_up(sim, daemon):
    fill_to(daemon, "L40S-48Q", 0)
    first = send_put(daemon, "w0", "L40S-48Q", wait_ms=20000)
    heard(daemon)
    second = send_put(daemon, "w1", "L40S-48Q", wait_ms=20000)
    heard(daemon)
    first.close()
    assert daemon.release("fill0").status == 200
    assert fetch(second)[1]["name"] == "w1"
    assert set(check_host(sim, daemon)) == {"fill1", "w1"}


# --- Hanging up ----------------------------------------------------------------------------------


@pytest.mark.tsan
def test_client_hangs_up_before_bound(sim, daemon):
    slow_writes(sim)
    connection = send_put(daemon, "vm1")
    claiming(daemon)
    connection.close()
    settled(sim, daemon)
    assert check_host(sim, daemon) == {}
    assert daemon.claim("vm1").status == 201


def test_client_hangs_up_after_bound(sim, daemon):
    connection = send_put(daemon, "vm1")
    wait_for(lambda: daemon.claims(), "the claim to be bound")
    connection.close()
    heard(daemon)
    assert check_host(sim, daemon)["vm1"]["state"] == "bound"


def test_undo_that_fails(sim, start_daemon):
    """The VF cannot be reset: the name is free at once, the VF is not offered, also after a crash."""
    daemon = start_daemon(sim, {"reconcile_interval": "300ms"})
    sim.ctl("set", "sysfs.release_errno", "EBUSY")
    slow_writes(sim)
    vf = leave_undo_record(daemon, lambda: send_put(daemon, "vm1"))
    sim.ctl("set", "sysfs.write_latency_ms", 0)

    def claim_again():
        answer = daemon.claim("vm1")
        return answer if answer.status != 409 else None  # the record is being stored

    again = wait_for(claim_again, "the name to be free")
    assert again.status == 201 and again.json["vf"] != vf
    daemon.restart(kill=True)
    assert daemon.vfs()[vf]["state"] == "undoing" and sim.vf(vf)["type"] == L40S_4Q
    assert set(daemon.claims()) == {"vm1"}
    wait_for(lambda: daemon.metric('berth_reconcile_failures_total{stage="undo"}') > 1, "refusals to be counted")
    sim.ctl("set", "sysfs.release_errno", 0)
    settled(sim, daemon)
    check_host(sim, daemon, acknowledged={"vm1": again.json["vf"]})


# --- The driver refuses ----------------------------------------------------------------------------


def type_writes(sim, action):
    """Attribute writes of it. The claims here leave the placement to the driver: no other writes."""
    before = sim.counters()["attr_writes"]
    result = action()
    return result, sim.counters()["attr_writes"] - before


def test_eperm_tries_other_vfs(sim, daemon):
    sim.ctl("set", "sysfs.write_errno", "EPERM", "--gpu", PF)
    answer, writes = type_writes(sim, lambda: daemon.claim("vm1", policy="least_loaded"))
    assert answer.status == 201 and answer.json["gpu"] == PF2
    assert writes <= 4  # at most three VFs of a card
    answer, writes = type_writes(sim, lambda: daemon.claim("vm2", gpu=PF))
    assert (answer.status, answer.code, writes) == (503, "driver_refused", 3)
    assert answer.json["cards"][0]["gpu"] == PF
    assert set(check_host(sim, daemon)) == {"vm1"}
    assert not any(v["quarantined"] for v in daemon.vfs().values())


def test_eperm_of_one_vf(start_sim, start_daemon):
    sim = start_sim("--cards", 1, "--vfs", 3, "--nvml-latency", 0)
    daemon = start_daemon(sim)
    for vf in ("0000:41:00.4", "0000:41:00.5"):
        sim.ctl("set", "sysfs.write_errno", "EPERM", "--vf", vf)
    answer = daemon.claim("vm1")
    assert (answer.status, answer.json["vf"]) == (201, "0000:41:00.6")


def test_eio_tries_another_card(sim, daemon):
    sim.ctl("set", "sysfs.write_errno", "EIO", "--gpu", PF)
    for i in range(4):
        answer, writes = type_writes(sim, lambda: daemon.claim(f"vm{i}", policy="least_loaded"))
        assert answer.status == 201 and answer.json["gpu"] == PF2
        assert writes <= 2
    refused = daemon.claim("vm9", gpu=PF)
    assert (refused.status, refused.code) == (503, "driver_refused")
    settled(sim, daemon)
    assert len(check_host(sim, daemon)) == 4
    sim.ctl("set", "sysfs.write_errno", 0, "--gpu", PF)
    assert daemon.claim("vm9", gpu=PF).status == 201


@pytest.mark.field("F12")
def test_erofs_stops_at_once(sim, daemon):
    sim.ctl("set", "sysfs.write_errno", "EROFS")
    answer, writes = type_writes(sim, lambda: daemon.claim("vm1"))
    assert (answer.status, answer.code, writes) == (503, "sysfs_read_only", 1)
    assert check_host(sim, daemon) == {}


def test_a_burst_against_a_refusing_card(sim, daemon):
    """One card refuses: all land on the other one, none is lost on the way."""
    sim.ctl("set", "sysfs.write_errno", "EIO", "--gpu", PF)
    answers = in_parallel([lambda i=i: daemon.claim(f"vm{i}", "L40S-2Q") for i in range(10)])
    assert [a.status for a in answers] == [201] * 10
    assert {a.json["gpu"] for a in answers} == {PF2}
    settled(sim, daemon)
    check_host(sim, daemon)


def test_foreign_write_in_between(sim, daemon):
    """Somebody else configures VFs while we do: theirs is not touched."""
    for i in range(4, 8):
        sim.ctl("configure", f"0000:41:00.{i}", "L40S-2Q")
    answers = in_parallel([lambda i=i: daemon.claim(f"vm{i}", "L40S-2Q") for i in range(8)])
    assert [a.status for a in answers] == [201] * 8
    assert not {a.json["vf"] for a in answers} & {f"0000:41:00.{i}" for i in range(4, 8)}
    for i in range(4, 8):
        assert sim.vf(f"0000:41:00.{i}")["type"] == L40S_2Q


# --- DELETE ----------------------------------------------------------------------------------------


def test_release_of_an_open_vf(sim, daemon):
    """409 in_use changes nothing: a guest, or a program that merely holds the node."""
    claim = daemon.claim("vm1").json
    pid = sim.boot(claim["vf"], "--init-ms", 0)
    answer = daemon.release("vm1")
    assert (answer.status, answer.code) == (409, "in_use") and str(pid) in answer.json["detail"]
    assert daemon.get("/claims/vm1") == claim
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not sim.vf(claim["vf"])["open"], "the guest to end")
    with open(claim["vfio_device"], "rb"):
        assert daemon.release("vm1").code == "in_use"
    assert daemon.get("/claims/vm1") == claim
    assert daemon.release("vm1").status == 200
    check_host(sim, daemon, released={"vm1"})


# A place where every process can be looked into, whatever the machine's own /proc shows.
OWN_PROC = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


def own_proc():
    """The same, or a skip where the kernel or a chroot does not allow it."""
    probe = subprocess.run([*OWN_PROC, "true"], capture_output=True, text=True, check=False, timeout=20)
    if probe.returncode:
        pytest.skip("no PID namespace of our own: " + probe.stderr.strip())
    return OWN_PROC


@pytest.mark.field("F02")
@pytest.mark.parametrize("code", ["EBUSY", "EPERM"])
def test_driver_is_still_tearing_down(sim, start_daemon, code):
    """4 s of EBUSY, or of EPERM without a holder: 202, the VF is not offered, claims go on, and it
    ends by itself."""
    daemon = start_daemon(sim, {"reconcile_interval": "1s"}, wrap=own_proc() if code == "EPERM" else ())
    claim = daemon.claim("vm1", gpu=PF).json
    vf = claim["vf"]
    if code == "EBUSY":  # elsewhere we are not seen from there
        with open(claim["vfio_device"], "rb"):
            assert daemon.release("vm1").code == "in_use"
    sim.ctl("set", "sysfs.release_errno", code, "--vf", vf, "--for", 4)
    answer = daemon.release("vm1")
    assert answer.status == 202, answer
    assert answer.json["state"] == daemon.claims()["vm1"]["state"] == "releasing"
    assert daemon.release("vm1").status == 202
    again = daemon.claim("vm1")
    assert (again.status, again.code) == (409, "releasing")
    other = daemon.claim("vm2", gpu=PF, timeout=2)
    assert other.status == 201 and other.json["vf"] != vf
    assert daemon.vfs()[vf]["state"] == "releasing" and daemon.resources()["allocatable_slots"] == 62
    assert daemon.metric('berth_reconcile_failures_total{stage="release"}') > 0
    wait_for(lambda: "vm1" not in daemon.claims(), "the release to end by itself")
    check_host(sim, daemon, acknowledged={"vm2": other.json["vf"]}, released={"vm1"})
    daemon.kill()


def test_eperm_under_a_partial_scan(sim, daemon):
    """A process that cannot be looked into may be the one: the driver's EPERM is 409."""
    if not any(is_opaque(pid) for pid in os.listdir("/proc") if pid.isdigit()):
        pytest.skip("every process of this machine can be looked into")
    claim = daemon.claim("vm1").json
    sim.ctl("set", "sysfs.release_errno", "EPERM", "--vf", claim["vf"])
    answer = daemon.release("vm1")
    assert (answer.status, answer.code) == (409, "in_use")
    assert daemon.get("/claims/vm1") == claim


@pytest.mark.field("F02")
def test_driver_never_lets_go(sim, start_daemon):
    daemon = start_daemon(sim, {"reconcile_interval": "200ms"})
    vf = daemon.claim("vm1").json["vf"]
    sim.ctl("set", "sysfs.release_errno", "EBUSY", "--vf", vf)
    assert daemon.release("vm1").status == 202
    failures = 'berth_reconcile_failures_total{stage="release"}'
    wait_for(lambda: daemon.metric(failures) >= 4, "several tries")
    daemon.restart(kill=True)
    wait_for(lambda: daemon.metric(failures) >= 2, "more tries")
    assert daemon.claims()["vm1"]["state"] == "releasing" and sim.vf(vf)["type"] == L40S_4Q
    assert daemon.vfs()[vf]["state"] == "releasing" and daemon.resources()["allocatable_slots"] == 63
    assert daemon.request("GET", "/readyz").status == 200 and daemon.claim("vm2").json["vf"] != vf
    sim.ctl("set", "sysfs.release_errno", 0, "--vf", vf)
    wait_for(lambda: set(daemon.claims()) == {"vm2"}, "the release to end")
    check_host(sim, daemon)


def test_release_with_read_only_sysfs(sim, daemon):
    claim = daemon.claim("vm1").json
    sim.ctl("set", "sysfs.release_errno", "EROFS")
    answer = daemon.release("vm1")
    assert (answer.status, answer.code) == (503, "sysfs_read_only")
    assert daemon.get("/claims/vm1") == claim
    sim.ctl("set", "sysfs.release_errno", 0)
    assert daemon.release("vm1").status == 200


def test_release_of_what_somebody_else_cleared(sim, daemon):
    """0 reads back: that is success."""
    vf = daemon.claim("vm1").json["vf"]
    sim.ctl("configure", vf, 0)
    assert daemon.release("vm1").status == 200
    assert check_host(sim, daemon) == {}


def test_two_releases_at_the_same_time(sim, daemon):
    daemon.claim("vm1")
    slow_writes(sim, 200)
    answers = in_parallel([lambda: daemon.release("vm1") for _ in range(4)])
    assert all(a.status in (200, 204) for a in answers) and any(a.status == 200 for a in answers)
    assert check_host(sim, daemon) == {}


def test_names(daemon):
    longest = "a" * 128
    assert daemon.claim(longest).status == 201 and daemon.release(longest).status == 200
    for bad in ("a" * 129, "-a", ".a", "a%20b", "a%2fb", "%c3%a4"):
        assert daemon.claim(bad).status in (400, 404)
        assert daemon.release(bad).status in (400, 404)


# --- Whose claim it is -----------------------------------------------------------------------------


def test_owner_only(sim, daemon):
    open_to_all(daemon)
    mine = as_user(1001, lambda: daemon.claim("vm1"))
    assert mine.status == 201 and mine.json["uid"] == 1001
    assert as_user(1001, lambda: daemon.claim("vm1")).status == 200
    for action in (lambda: daemon.release("vm1"), lambda: daemon.claim("vm1")):
        answer = as_user(1002, action)
        assert (answer.status, answer.code) == (403, "forbidden")
    check_host(sim, daemon, acknowledged={"vm1": mine.json["vf"]})
    assert as_user(1001, lambda: daemon.release("vm1")).status == 200
    assert as_user(1001, lambda: daemon.claim("vm2")).status == 201
    assert daemon.release("vm2").status == 200  # root may


def test_owner_only_while_under_way(sim, daemon):
    open_to_all(daemon)
    slow_writes(sim)
    first = send_put(daemon, "vm1")
    claiming(daemon)
    answers = in_parallel([lambda: as_user(1002, lambda: daemon.claim("vm1")),
                           lambda: as_user(1002, lambda: daemon.release("vm1"))])
    assert [a.status for a in answers] == [403, 403]
    status, claim = fetch(first)
    assert status == 201
    check_host(sim, daemon, acknowledged={"vm1": claim["vf"]})


def test_shared(sim, start_daemon):
    daemon = start_daemon(sim, {"claims": "shared"})
    open_to_all(daemon)
    assert as_user(1001, lambda: daemon.claim("vm1")).status == 201
    assert as_user(1002, lambda: daemon.claim("vm1")).status == 200
    assert as_user(1002, lambda: daemon.release("vm1")).status == 200
    assert check_host(sim, daemon) == {}
