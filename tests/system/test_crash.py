# SPDX-License-Identifier: Apache-2.0
"""berthd killed at any instant: nothing acknowledged is lost, nothing released comes back, no VF leaks."""
import os
import re
import signal
import subprocess
import threading

import pytest

from conftest import BIN, ROOT, check_host, settled, wait_for

FAST = {"reconcile_interval": "500ms", "gpu": {"card_timeout": "1500ms"}}
PF, PF2 = "0000:41:00.0", "0000:81:00.0"

CLAIM_POINTS = ["claim.intent-stored", "claim.before-write", "claim.configured", "claim.bound",
                "store.before-commit", "store.before-commit:2", "store.after-commit", "store.after-commit:2",
                "store.after-gen", "store.after-gen:2"]
RELEASE_POINTS = ["release.before-mark", "release.marked", "release.written", "release.dropped",
                  "store.before-commit", "store.before-commit:2", "store.after-commit", "store.after-commit:2",
                  "store.after-gen", "store.after-gen:2"]
# Each step of a recovery, from the cordon to taking it away again.
RECOVER_POINTS = [f"recover.step:{n}" for n in range(1, 12)]
UNDO_POINTS = ["undo.written", "store.before-commit", "store.after-commit", "store.after-gen"]


def started(sim, start_daemon, settings=None):
    """A daemon that made its database and keeps two claims, then was stopped."""
    daemon = start_daemon(sim, {**FAST, **(settings or {})})
    kept = {name: daemon.claim(name).json["vf"] for name in ("kept1", "kept2")}
    daemon.stop()
    return daemon, kept


def test_fault_points_are_listed():
    """docs/fault-points.md names what the sources have, and this file passes each."""
    sources = "".join(p.read_text() for p in (ROOT / "src").rglob("*.c"))
    in_code = re.findall(r'fault_point\("([^"]+)"\)', sources)
    listed = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs/fault-points.md").read_text(), re.M)
    assert sorted(in_code) == sorted(listed)
    used = {p.split(":")[0] for p in CLAIM_POINTS + RELEASE_POINTS + UNDO_POINTS + RECOVER_POINTS}
    assert used == set(listed)


@pytest.mark.field("F05")
@pytest.mark.parametrize("point", CLAIM_POINTS)
def test_killed_in_a_claim(sim, start_daemon, point):
    daemon, kept = started(sim, start_daemon)
    daemon.start(fault=point)
    assert daemon.try_request("PUT", "/claims/new", {"profile": "L40S-4Q"}) is None
    daemon.wait_dead()
    daemon.start()
    bound = point in ("claim.bound", "store.after-commit:2", "store.after-gen:2")
    assert set(daemon.claims()) == set(kept) | ({"new"} if bound else set())
    assert daemon.claim("new").status == (200 if bound else 201)  # the name is free at once
    settled(sim, daemon)
    assert set(check_host(sim, daemon, acknowledged=kept)) == {"new", *kept}


@pytest.mark.parametrize("point", RELEASE_POINTS)
def test_killed_in_a_release(sim, start_daemon, point):
    daemon, kept = started(sim, start_daemon)
    daemon.start(fault=point)
    assert daemon.try_request("DELETE", "/claims/kept1") is None
    daemon.wait_dead()
    daemon.start()
    stays = point in ("release.before-mark", "store.before-commit")
    wait_for(lambda: ("kept1" in daemon.claims()) == stays, "the release to end")
    settled(sim, daemon)
    claims = check_host(sim, daemon, acknowledged={"kept2": kept["kept2"]})
    if stays:
        assert (claims["kept1"]["state"], claims["kept1"]["vf"]) == ("bound", kept["kept1"])
    assert daemon.release("kept1").status == (200 if stays else 204)
    check_host(sim, daemon, acknowledged={"kept2": kept["kept2"]}, released={"kept1"})


@pytest.mark.parametrize("point", UNDO_POINTS)
def test_killed_while_undoing(sim, start_daemon, point):
    """A start that undoes an intent may die too."""
    daemon, kept = started(sim, start_daemon)
    daemon.start(fault="claim.configured")
    assert daemon.try_request("PUT", "/claims/new", {"profile": "L40S-4Q"}) is None
    daemon.wait_dead()
    daemon.start(fault=point, ready=None)
    daemon.wait_dead()
    daemon.start()
    settled(sim, daemon)
    assert set(check_host(sim, daemon, acknowledged=kept)) == set(kept)


@pytest.mark.parametrize("point", RECOVER_POINTS)
def test_killed_in_a_recovery(sim, start_daemon, point):
    """The card stays cordoned and says where it was; the second recovery ends it."""
    daemon = start_daemon(sim, FAST)
    assert daemon.request("PUT", "/vfs/0000:41:00.4/quarantine").status == 200
    daemon.stop()
    daemon.start(fault=point)
    daemon.try_request("POST", f"/gpus/{PF}/recover")
    daemon.wait_dead()
    daemon.start()
    card = daemon.get(f"/gpus/{PF}")
    if point != "recover.step:1":  # before that nothing was touched, or stored
        assert card["cordoned"] and card["recovery"]["state"] == "interrupted"
    if point != "recover.step:11":
        assert any(v["quarantined"] for v in daemon.vfs().values()) or not card["vfs"]
    assert daemon.request("POST", f"/gpus/{PF}/recover").status == 202
    wait_for(lambda: daemon.get(f"/gpus/{PF}")["recovery"]["state"] != "running", "the second recovery")
    card = daemon.get(f"/gpus/{PF}")
    assert card["recovery"]["state"] == "done", card["recovery"]
    assert not card["cordoned"] and len(card["vfs"]) == 32 and card["slots"]["quarantined"] == 0
    assert sim.card()["mode"] == "mixed"
    daemon.restart()
    assert not daemon.get(f"/gpus/{PF}")["cordoned"]


def test_killed_at_once_after_each_answer(sim, start_daemon):
    """An answer means that it is on disk."""
    daemon = start_daemon(sim, FAST)
    vf = daemon.claim("vm1").json["vf"]
    daemon.kill()
    daemon.start()
    assert check_host(sim, daemon, acknowledged={"vm1": vf})["vm1"]["state"] == "bound"
    assert daemon.release("vm1").status == 200
    daemon.kill()
    daemon.start()
    assert check_host(sim, daemon, released={"vm1"}) == {}


def test_killed_with_many_claims_under_way(sim, start_daemon):
    """Claims and releases by several clients when the kill comes: what was answered counts."""
    daemon, kept = started(sim, start_daemon)
    daemon.start(fault="claim.configured:5")
    answers = {}

    def put(name):
        answers[name] = daemon.try_request("PUT", f"/claims/{name}", {"profile": "L40S-2Q"})

    threads = [threading.Thread(target=put, args=(f"vm{i}",)) for i in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    daemon.wait_dead()
    daemon.start()
    settled(sim, daemon)
    acknowledged = {n: a.json["vf"] for n, a in answers.items() if a and a.status == 201}
    check_host(sim, daemon, acknowledged={**kept, **acknowledged})


def test_stop_changes_nothing(sim, start_daemon):
    """Stopping and restarting changes no VF and no claim; a guest runs on."""
    daemon, kept = started(sim, start_daemon)
    pid = sim.boot(kept["kept1"], "--init-ms", 0)
    before = sim.counters()["attr_writes"]
    for _ in range(2):
        daemon.start()
        check_host(sim, daemon, acknowledged=kept)
        assert daemon.stop() == 0
    assert sim.counters()["attr_writes"] == before
    os.kill(pid, 0)
    os.kill(pid, signal.SIGTERM)


# --- Hung and slow driver calls ----------------------------------------------------------------


def hang_writes(sim, gpu, on=True):
    sim.ctl("set", "sysfs.write_hang", int(on), "--gpu", gpu)


def test_hung_write_lands_late(sim, start_daemon):
    """The helper is killed after card_timeout; the write lands when the hang ends, and is undone."""
    daemon = start_daemon(sim, FAST)
    hang_writes(sim, PF)
    answer = daemon.claim("vm1", gpu=PF)
    assert (answer.status, answer.code) == (503, "driver_stuck")
    gpu = daemon.get(f"/gpus/{PF}")
    assert gpu["stuck"] and gpu["stuck_reason"] and gpu["slots"]["allocatable"] == 0
    assert gpu["slots"]["total"] == 32
    assert daemon.metric(f'berth_card_stuck{{gpu="{PF}"}}') == 1
    # The name is free at once, and the other card goes on.
    again = daemon.claim("vm1")
    assert again.status == 201 and again.json["gpu"] == PF2
    assert daemon.claim("vm2", gpu=PF).code == "driver_stuck"
    hang_writes(sim, PF, False)
    wait_for(lambda: not daemon.get(f"/gpus/{PF}")["stuck"], "the card to answer again")
    settled(sim, daemon)
    assert set(check_host(sim, daemon, acknowledged={"vm1": again.json["vf"]})) == {"vm1"}
    wait_for(lambda: daemon.get(f"/gpus/{PF}")["slots"]["allocatable"] == 32, "all VFs to be free")
    assert daemon.claim("vm3", gpu=PF).status == 201


def test_hung_write_lands_late_across_a_restart(sim, start_daemon):
    """A helper of the berthd before still hangs: its card is stuck until the lock is free."""
    daemon = start_daemon(sim, FAST)
    assert daemon.claim("vm0", gpu=PF).status == 201
    hang_writes(sim, PF)
    put = threading.Thread(target=daemon.try_request, args=("PUT", "/claims/vm1", {"profile": "L40S-4Q", "gpu": PF}))
    put.start()
    wait_for(lambda: any(v["state"] == "claiming" for v in daemon.vfs().values()), "the claim to be written")
    daemon.kill()
    put.join(10)
    daemon.start()
    gpu = daemon.get(f"/gpus/{PF}")
    assert gpu["stuck"] and gpu["slots"]["allocatable"] == 0 and gpu["slots"]["total"] == 32
    assert set(daemon.claims()) == {"vm0"} and daemon.claims()["vm0"]["problem"] == "card_stuck"
    assert daemon.claim("vm2").json["gpu"] == PF2
    daemon.kill()
    daemon.start()
    assert daemon.get(f"/gpus/{PF}")["stuck"]
    hang_writes(sim, PF, False)
    wait_for(lambda: not daemon.get(f"/gpus/{PF}")["stuck"], "the card to answer again")
    settled(sim, daemon)
    claims = check_host(sim, daemon)
    assert set(claims) == {"vm0", "vm2"}
    wait_for(lambda: daemon.claims()["vm0"]["problem"] is None, "vm0 to be well")


def test_hung_release_lands_late(sim, start_daemon):
    daemon = start_daemon(sim, FAST)
    vf = daemon.claim("vm1", gpu=PF).json["vf"]
    hang_writes(sim, PF)
    answer = daemon.release("vm1")
    assert (answer.status == 202) or (answer.status, answer.code) == (503, "driver_stuck")
    assert daemon.claims()["vm1"]["state"] == "releasing"
    wait_for(lambda: daemon.get(f"/gpus/{PF}")["stuck"], "the card to be stuck")
    daemon.restart(kill=True)
    assert daemon.claims()["vm1"]["state"] == "releasing"
    assert daemon.claim("vm2", gpu=PF).status == 503
    hang_writes(sim, PF, False)
    wait_for(lambda: daemon.claims() == {}, "the release to end")
    assert sim.vf(vf)["type"] == 0


def test_hung_card_holds_up_nobody_else(sim, start_daemon):
    """Claims that were planned for a card that hangs before their turn go to the other."""
    daemon = start_daemon(sim, FAST)
    hang_writes(sim, PF)
    answers = []
    threads = [threading.Thread(target=lambda i=i: answers.append(daemon.claim(f"vm{i}"))) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(20)
    stuck = [a for a in answers if a.status == 503]
    assert len(stuck) == 1 and stuck[0].code == "driver_stuck"
    assert all(a.json["gpu"] == PF2 for a in answers if a.status == 201)
    assert len(answers) == 6
    hang_writes(sim, PF, False)
    settled(sim, daemon)
    check_host(sim, daemon)


def test_hung_read(sim, start_daemon):
    """A hung read makes the card stuck; GET answers at once all the while."""
    daemon = start_daemon(sim, FAST)
    vf = daemon.claim("vm1", gpu=PF).json["vf"]
    sim.ctl("set", "sysfs.read_hang", 1, "--gpu", PF)
    wait_for(lambda: daemon.get(f"/gpus/{PF}")["stuck"], "the card to be stuck")
    assert daemon.claims()["vm1"]["problem"] == "card_stuck"
    assert daemon.release("vm1").code == "driver_stuck"
    assert daemon.claim("vm2").json["gpu"] == PF2
    sim.ctl("set", "sysfs.read_hang", 0, "--gpu", PF)
    wait_for(lambda: daemon.claims()["vm1"]["problem"] is None, "the card to answer again")
    check_host(sim, daemon, acknowledged={"vm1": vf})


def test_berthd_exits_while_a_card_hangs(sim, start_daemon):
    daemon = start_daemon(sim, FAST)
    hang_writes(sim, PF)
    assert daemon.claim("vm1", gpu=PF).code == "driver_stuck"
    assert daemon.stop() == 0
    hang_writes(sim, PF, False)


def test_slow_release_beside_a_claim(sim, start_daemon):
    """The driver may block up to 5 s in a release; a claim on the same card goes on meanwhile."""
    daemon = start_daemon(sim, {"gpu": {"card_timeout": "15s"}})
    vf = daemon.claim("vm1", gpu=PF).json["vf"]
    sim.ctl("set", "sysfs.write_latency_ms", 5000, "--vf", vf)
    first = daemon.release("vm1")
    assert (first.status, first.json["state"]) == (202, "releasing")
    claim = daemon.claim("vm2", gpu=PF, timeout=3)
    assert claim.status == 201 and claim.json["vf"] != vf
    assert daemon.release("vm2", timeout=3).status == 200
    assert daemon.claims()["vm1"]["state"] == "releasing"
    assert daemon.claim("vm1").code == "releasing"
    wait_for(lambda: "vm1" not in daemon.claims(), "the slow release to end", 12)
    check_host(sim, daemon, released={"vm1"})


# --- The store -----------------------------------------------------------------------------------


@pytest.mark.field("F22")
def test_second_daemon_is_refused(sim, start_daemon, work):
    """Two daemons on one folder would give one VF twice."""
    daemon = start_daemon(sim, FAST)
    settings = (sim.root / "daemon.yaml").read_text().replace("berthd.sock", "other.sock")
    other = work / "other.yaml"
    other.write_text(settings)
    second = subprocess.run([BIN / "berthd", "--config", other], capture_output=True, text=True, timeout=20)
    assert second.returncode == 1 and "another berthd" in second.stderr
    assert not (sim.root / "other.sock").exists()
    assert daemon.claim("vm1").status == 201


@pytest.fixture
def small_disk(work):
    """A tmpfs of 1 MiB."""
    path = work / "small"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", path], check=True)
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def fill(path):
    with open(path / "fill", "wb", buffering=0) as f:
        while True:
            try:
                if f.write(b"x" * 4096) == 0:
                    return
            except OSError:
                return


@pytest.mark.field("F05")
@pytest.mark.tsan
def test_disk_full(sim, start_daemon, small_disk):
    """Nothing is handed out that is not on disk, and nothing stays configured for it."""
    daemon = start_daemon(sim, {**FAST, "data_dir": str(small_disk / "state")})
    vf = daemon.claim("vm1").json["vf"]
    fill(small_disk)

    def refused():
        answer = daemon.claim("vm-full")
        if answer.status == 201:  # the log had room for one more
            assert daemon.release("vm-full").status in (200, 202)
            return None
        return answer

    answer = wait_for(refused, "the disk to be full")
    assert (answer.status, answer.code) == (503, "store_unavailable")
    wait_for(lambda: {v["address"] for c in sim.state()["cards"] for v in c["vfs"] if v["type"]} <=
             {c["vf"] for c in daemon.claims().values()}, "the VF to be back at 0")
    failed = daemon.release("vm1")
    assert failed.status in (202, 503)
    (small_disk / "fill").unlink()
    wait_for(lambda: daemon.claim("vm2").status == 201, "claims to work again")
    settled(sim, daemon)
    check_host(sim, daemon)
    if failed.status == 503:
        assert daemon.claims()["vm1"]["vf"] == vf
    daemon.restart(kill=True)
    settled(sim, daemon)
    claims = check_host(sim, daemon)
    assert "vm2" in claims and "vm-full" not in claims


def test_disk_full_in_a_release(sim, start_daemon, small_disk):
    """The VF is reset but the drop cannot be stored: it is still being released, also after a crash."""
    daemon = start_daemon(sim, {**FAST, "data_dir": str(small_disk / "state")})
    vf = daemon.claim("vm1").json["vf"]
    sim.ctl("set", "sysfs.write_latency_ms", 600)
    answers = []
    release = threading.Thread(target=lambda: answers.append(daemon.release("vm1")))
    release.start()
    wait_for(lambda: daemon.claims()["vm1"]["state"] == "releasing", "the release to be marked")
    wait_for(lambda: daemon.vfs()[vf]["state"] == "releasing", "the release to be written")
    fill(small_disk)
    release.join(20)
    assert answers[0].status == 202
    assert daemon.claims()["vm1"]["state"] == "releasing" and daemon.vfs()[vf]["state"] == "releasing"
    daemon.restart(kill=True)
    assert daemon.claims()["vm1"]["state"] == "releasing"
    (small_disk / "fill").unlink()
    wait_for(lambda: daemon.claims() == {}, "the release to end")
    check_host(sim, daemon)
