# SPDX-License-Identifier: Apache-2.0
"""What berthd finds and what it makes of it: foreign VFs, lost VFs, reboots, databases, holders."""
import os
import shutil
import signal
import sqlite3
import subprocess

import pytest

from conftest import check_host, settled, typed_vfs, wait_for

PF, PF2 = "0000:41:00.0", "0000:81:00.0"
VF, VF2, VF3 = "0000:41:00.4", "0000:41:00.5", "0000:41:00.6"
L40S_1Q, L40S_2Q, L40S_4Q = 1147, 1148, 1150
FAST = {"reconcile_interval": "200ms", "unclaimed_grace": 0}


def failures(daemon, stage):
    return daemon.metric(f'berth_reconcile_failures_total{{stage="{stage}"}}')


def passes(daemon, count=3):
    """Waits until that many reconcile passes have begun."""
    # Each pass makes one query of the placements at least.
    name = "berth_nvml_query_seconds_count"
    before = daemon.metric(name)
    wait_for(lambda: daemon.metric(name) >= before + count, "reconcile passes")


def made(sim, start_daemon, settings=None):
    """A daemon whose database is there already: what it finds configured later is not adopted."""
    daemon = start_daemon(sim, {**FAST, **(settings or {})})
    daemon.claim("first")
    daemon.release("first")
    return daemon


# --- Configured, and nobody's --------------------------------------------------------------------


def test_unclaimed_vf_is_reset(sim, start_daemon):
    daemon = made(sim, start_daemon)
    sim.ctl("configure", VF, "L40S-2Q")
    wait_for(lambda: not typed_vfs(sim), "the reset")
    wait_for(lambda: daemon.vfs()[VF]["state"] == "free", "the VF to be free")


def test_unclaimed_grace(sim, start_daemon):
    """It must have been so, with the same type, for that long."""
    daemon = made(sim, start_daemon, {"unclaimed_grace": "1500ms"})
    sim.ctl("configure", VF, "L40S-2Q")
    wait_for(lambda: daemon.vfs()[VF]["state"] == "unclaimed", "the VF to be noticed")
    passes(daemon, 2)
    assert sim.vf(VF)["type"] == L40S_2Q
    assert daemon.resources()["used_slots"] == 1
    wait_for(lambda: not typed_vfs(sim), "the reset")


@pytest.mark.field("F17")
def test_unclaimed_and_open(sim, start_daemon):
    """Foreign and held open: never written, shown as used without claim, counted; reset afterwards."""
    daemon = made(sim, start_daemon, {"unclaimed_grace": "1s"})
    sim.ctl("configure", VF, "L40S-2Q")
    with open(daemon.vfs()[VF]["vfio_device"], "rb"):
        wait_for(lambda: failures(daemon, "unclaimed_vf_open") >= 3, "three passes")
        vf = daemon.vfs()[VF]
        assert vf["unclaimed_open"] and vf["claim"] is None and vf["type_id"] == L40S_2Q
        assert sim.vf(VF)["type"] == L40S_2Q
        assert daemon.resources()["used_slots"] == 1
        assert failures(daemon, "reset_unclaimed_vfs") == 0
    wait_for(lambda: not typed_vfs(sim), "the reset after it was closed")
    assert not daemon.vfs()[VF]["unclaimed_open"]


def test_unclaimed_and_open_no_more(sim, start_daemon):
    """Its owner closed and cleared it between two passes."""
    daemon = made(sim, start_daemon, {"unclaimed_vfs": "leave"})
    sim.ctl("configure", VF, "L40S-2Q")
    with open(daemon.vfs()[VF]["vfio_device"], "rb"):
        daemon.restart({"reconcile_interval": "60s"})
        wait_for(lambda: daemon.vfs()[VF]["unclaimed_open"], "the first pass")
    sim.ctl("configure", VF, 0)
    wait_for(lambda: daemon.vfs()[VF]["state"] == "free", "the VF to be free")
    assert not daemon.vfs()[VF]["unclaimed_open"]


def test_unclaimed_vfs_leave(sim, start_daemon):
    daemon = made(sim, start_daemon, {"unclaimed_vfs": "leave"})
    sim.ctl("configure", VF, "L40S-2Q")
    wait_for(lambda: daemon.vfs()[VF]["state"] == "unclaimed", "the VF to be noticed")
    passes(daemon)
    assert sim.vf(VF)["type"] == L40S_2Q
    daemon.restart({"unclaimed_vfs": "reset"})
    wait_for(lambda: not typed_vfs(sim), "the reset")


@pytest.mark.field("F02")
def test_reset_that_is_refused(sim, start_daemon):
    daemon = made(sim, start_daemon)
    sim.ctl("set", "sysfs.release_errno", "EBUSY", "--vf", VF)
    sim.ctl("configure", VF, "L40S-2Q")
    wait_for(lambda: failures(daemon, "reset_unclaimed_vfs") >= 2, "refusals to be counted")
    sim.ctl("set", "sysfs.release_errno", 0, "--vf", VF)
    wait_for(lambda: not typed_vfs(sim), "the reset")


def test_reserved_while_it_is_reset(start_sim, start_daemon):
    """No claim may take a VF before 0 has been read back from it."""
    sim = start_sim("--cards", 1, "--vfs", 1, "--nvml-latency", 0)
    daemon = made(sim, start_daemon)
    sim.ctl("set", "sysfs.write_latency_ms", 700)
    sim.ctl("configure", VF, "L40S-2Q")
    wait_for(lambda: daemon.vfs()[VF]["state"] == "resetting", "the reset to run")
    assert daemon.claim("vm1").code == "insufficient_resources"
    answer = daemon.claim("vm1", wait_ms=8000)
    assert answer.status == 201
    check_host(sim, daemon, acknowledged={"vm1": VF})


def test_exclude(sim, start_daemon):
    """Shown, never written: a VF, and a whole card."""
    daemon = made(sim, start_daemon, {"gpu": {"exclude": [VF, PF2]}})
    sim.ctl("configure", VF, "L40S-2Q")
    sim.ctl("configure", "0000:81:00.4", "L40S-2Q")
    wait_for(lambda: daemon.vfs()[VF]["type_id"] and daemon.vfs()["0000:81:00.4"]["type_id"], "both to be seen")
    passes(daemon)
    assert set(typed_vfs(sim)) == {VF, "0000:81:00.4"}
    assert daemon.vfs()[VF]["excluded"] and daemon.get(f"/gpus/{PF2}")["excluded"]
    assert daemon.claim("vm1", gpu=PF2).code == "insufficient_resources"
    used = {daemon.claim(f"vm{i}", "L40S-1Q").json["vf"] for i in range(8)}
    assert VF not in used and all(v.startswith("0000:41:") for v in used)


def test_exclude_of_a_claimed_vf(sim, start_daemon):
    """Excluded later: its claim stays and the VF is not written, whatever is asked."""
    daemon = made(sim, start_daemon)
    vf = daemon.claim("vm1").json["vf"]
    daemon.restart({"gpu": {"exclude": [vf]}})
    answer = daemon.release("vm1")
    assert (answer.status, answer.code) == (403, "forbidden")
    passes(daemon)
    check_host(sim, daemon, acknowledged={"vm1": vf})
    sim.ctl("configure", vf, 0)
    wait_for(lambda: daemon.claims()["vm1"]["problem"] == "type_lost", "the problem to be seen")
    assert daemon.release("vm1").status == 200


def test_exclude_of_a_vf_to_be_undone(sim, start_daemon):
    daemon = start_daemon(sim, FAST)
    kept = daemon.claim("kept").json["vf"]
    daemon.restart(fault="claim.configured")
    assert daemon.try_request("PUT", "/claims/new", {"profile": "L40S-4Q"}) is None
    daemon.wait_dead()
    vf = (set(typed_vfs(sim)) - {kept}).pop()
    daemon.configure({"gpu": {"exclude": [vf]}})
    daemon.start()
    passes(daemon)
    assert sim.vf(vf)["type"] == L40S_4Q and daemon.vfs()[vf]["state"] == "undoing"
    daemon.restart({"gpu": {"exclude": []}})
    settled(sim, daemon)
    assert set(check_host(sim, daemon)) == {"kept"}


# --- Adoption --------------------------------------------------------------------------------------


def test_adoption(sim, start_daemon):
    """Without a database what is configured belongs to somebody: shown, never reset by itself."""
    sim.ctl("configure", VF, "L40S-2Q")
    daemon = start_daemon(sim, FAST)
    name = "external-0000-41-00.4"
    claim = daemon.claims()[name]
    assert (claim["state"], claim["profile"], claim["vf"]) == ("external", "NVIDIA L40S-2Q", VF)
    assert claim["problem"] is None
    assert claim["placement"]["id"] == sim.vf(VF)["placement"]
    passes(daemon)
    daemon.restart(kill=True)
    passes(daemon)
    assert daemon.claims()[name] == claim and sim.vf(VF)["type"] == L40S_2Q
    # It is released like any other.
    assert daemon.release(name).status == 200
    assert check_host(sim, daemon) == {}
    # And from now on nothing is adopted.
    sim.ctl("configure", VF2, "L40S-2Q")
    wait_for(lambda: not typed_vfs(sim), "the reset")


@pytest.mark.parametrize("point", ["store.before-commit", "store.after-commit", "store.after-gen"])
def test_killed_while_adopting(sim, start_daemon, point):
    """All that was configured is adopted, whenever the first start is killed."""
    for vf in (VF, VF2, "0000:81:00.4"):
        sim.ctl("configure", vf, "L40S-2Q")
    sim.ctl("set", "sysfs.read_errno", "EIO", "--vf", VF3)
    daemon = start_daemon(sim, FAST, fault=point, ready=None)
    daemon.wait_dead()
    daemon.start()
    passes(daemon)
    claims = check_host(sim, daemon)
    assert {c["vf"] for c in claims.values()} == {VF, VF2, "0000:81:00.4"}
    assert {c["state"] for c in claims.values()} == {"external"}


@pytest.mark.parametrize("typed", [True, False])
def test_adoption_of_an_unreadable_vf(sim, start_daemon, typed):
    """It could not be read at the first start: adopted when it can be, also after a kill between."""
    if typed:
        sim.ctl("configure", VF, "L40S-2Q")
    sim.ctl("configure", VF2, "L40S-1Q")
    sim.ctl("set", "sysfs.read_errno", "EIO", "--vf", VF)
    daemon = start_daemon(sim, FAST)
    assert set(daemon.claims()) == {"external-0000-41-00.5"}
    assert not daemon.vfs()[VF]["usable"] and daemon.vfs()[VF]["reason"]
    answer = daemon.claim("external-0000-41-00.4")  # its name, when it can be read
    assert (answer.status, answer.code) == (400, "bad_request")
    daemon.restart(kill=True)
    passes(daemon)
    assert set(daemon.claims()) == {"external-0000-41-00.5"}
    sim.ctl("set", "sysfs.read_errno", 0, "--vf", VF)
    if typed:
        wait_for(lambda: "external-0000-41-00.4" in daemon.claims(), "the adoption")
        passes(daemon)
        assert sim.vf(VF)["type"] == L40S_2Q
    else:
        wait_for(lambda: daemon.vfs()[VF]["state"] == "free", "the VF to be free")
        sim.ctl("configure", VF, "L40S-2Q")
        wait_for(lambda: sim.vf(VF)["type"] == 0, "the reset of what came later")
    assert len(check_host(sim, daemon)) == 1 + typed


def test_cordon_before_the_adoption(sim, start_daemon):
    """The first commit makes the database; it must be the adoption."""
    sim.ctl("configure", VF, "L40S-2Q")
    sim.ctl("set", "nvml.hang", 1)
    daemon = start_daemon(sim, {**FAST, "gpu": {"nvml_timeout": "3s"}}, ready=False)
    for path in ("/claims", f"/gpus/{PF}"):
        wait_for(lambda: daemon.request("GET", path).status == 200, f"{path} to be known")
    answer = daemon.request("PUT", f"/gpus/{PF}/cordon")
    daemon.kill()
    assert answer.status == 503
    sim.ctl("set", "nvml.hang", 0)
    daemon.start()
    passes(daemon)
    assert set(check_host(sim, daemon)) == {"external-0000-41-00.4"}


# --- The database ----------------------------------------------------------------------------------


def closed(sim, daemon, claims):
    """It serves, explains, offers nothing and resets nothing."""
    before = sim.counters()["attr_writes"]
    ready = daemon.request("GET", "/readyz")
    assert (ready.status, ready.code) == (503, "store_unavailable") and ready.json["detail"]
    assert daemon.request("GET", "/claims").code == "store_unavailable"
    assert daemon.request("PUT", "/claims/new", {"profile": "L40S-4Q"}).code == "store_unavailable"
    assert daemon.release(next(iter(claims))).code == "store_unavailable"
    assert daemon.resources()["allocatable_slots"] == 0
    assert daemon.metric("berth_claims_store_unavailable") == 1
    wait_for(lambda: failures(daemon, "store") >= 2, "reconcile passes that do nothing")
    assert sim.counters()["attr_writes"] == before


def two_claims(sim, start_daemon):
    daemon = start_daemon(sim, FAST)
    claims = {}
    for name in ("vm1", "vm2"):
        claims[name] = daemon.claim(name).json["vf"]
    daemon.stop()
    return daemon, claims


def test_damaged_database(sim, start_daemon):
    daemon, claims = two_claims(sim, start_daemon)
    path = daemon.data_dir / "claims.db"
    good = path.read_bytes()
    path.write_bytes(b"this was a database" + good[19:])
    daemon.start(ready=False)
    closed(sim, daemon, claims)
    assert path.read_bytes()[:19] == b"this was a database"
    path.write_bytes(good)
    daemon.wait_ready()  # without a restart
    check_host(sim, daemon, acknowledged=claims)
    assert daemon.metric("berth_claims_store_unavailable") == 0


def test_older_database(sim, start_daemon):
    """A backup knows nothing of claims made since."""
    daemon = start_daemon(sim, FAST)
    claims = {"vm1": daemon.claim("vm1").json["vf"]}
    daemon.stop()
    path = daemon.data_dir / "claims.db"
    shutil.copy(path, sim.root / "backup")
    daemon.start()
    claims["vm2"] = daemon.claim("vm2").json["vf"]
    daemon.stop()
    good = path.read_bytes()
    shutil.copy(sim.root / "backup", path)
    daemon.start(ready=False)
    closed(sim, daemon, claims)
    path.write_bytes(good)
    daemon.wait_ready()
    check_host(sim, daemon, acknowledged=claims)


def test_missing_database(sim, start_daemon):
    """As at the first start: nothing is reset."""
    daemon, claims = two_claims(sim, start_daemon)
    for path in daemon.data_dir.glob("claims.db*"):
        path.unlink()
    daemon.start()
    passes(daemon)
    found = check_host(sim, daemon)
    assert {c["vf"] for c in found.values()} == set(claims.values())
    assert {c["state"] for c in found.values()} == {"external"}


def test_database_removed_under_way(sim, start_daemon):
    """Noticed at the next commit: that one is refused, and what is configured is adopted."""
    daemon = start_daemon(sim, FAST)
    vf = daemon.claim("vm1").json["vf"]
    for path in daemon.data_dir.glob("claims.db*"):
        path.unlink()
    answer = daemon.claim("vm2")
    assert (answer.status, answer.code) == (503, "store_unavailable")
    daemon.wait_ready()
    settled(sim, daemon)
    claims = check_host(sim, daemon)
    assert {c["vf"] for c in claims.values()} == {vf}


# --- Another boot ------------------------------------------------------------------------------------


@pytest.mark.field("F24")
def test_reboot(sim, start_daemon):
    """Claims of the boot before are neither shown nor in the way."""
    daemon = start_daemon(sim, FAST)
    for i in range(4):
        assert daemon.claim(f"vm{i}", "L40S-24Q").status == 201
    assert daemon.request("PUT", f"/vfs/{VF}/quarantine").status == 200
    daemon.stop()
    sim.ctl("reboot")
    for gpu in (PF, PF2):
        sim.ctl("sriov", "-e", gpu)
        sim.ctl("set", "mode", "mixed", "--gpu", gpu)
    daemon.start(ready=False)
    answer = daemon.claim("vm0", "L40S-24Q")
    assert answer.status == 201
    assert set(check_host(sim, daemon)) == {"vm0"}
    assert [daemon.claim(f"vm{i}", "L40S-24Q").status for i in range(1, 4)] == [201] * 3
    assert daemon.vfs()[VF]["quarantined"]  # that is not a matter of the boot


@pytest.mark.parametrize("point", ["claim.intent-stored", "claim.configured", "release.marked", "release.written"])
def test_reboot_in_the_middle(sim, start_daemon, point):
    daemon = start_daemon(sim, FAST)
    daemon.claim("old")
    daemon.restart(fault=point)
    method, path, body = (("DELETE", "/claims/old", None) if point.startswith("release") else
                          ("PUT", "/claims/new", {"profile": "L40S-4Q"}))
    assert daemon.try_request(method, path, body) is None
    daemon.wait_dead()
    sim.ctl("reboot")
    for gpu in (PF, PF2):
        sim.ctl("sriov", "-e", gpu)
    daemon.start()
    passes(daemon)
    assert check_host(sim, daemon) == {}
    assert daemon.resources()["allocatable_slots"] == 64
    assert daemon.claim("old").status == 201 and daemon.claim("new").status == 201


@pytest.mark.field("F24")
def test_boot_id_that_is_not_known(sim, start_daemon):
    """A record without the field counts as valid."""
    daemon, claims = two_claims(sim, start_daemon)
    db = sqlite3.connect(daemon.data_dir / "claims.db", isolation_level=None)
    db.execute("UPDATE claims SET boot_id = '' WHERE name = 'vm1'")
    db.close()
    daemon.start()
    check_host(sim, daemon, acknowledged=claims)


# --- The holder ------------------------------------------------------------------------------------


def test_holder_is_gone(sim, start_daemon):
    """The process named in the claim ended and the VF is not open for two passes: released."""
    daemon = start_daemon(sim, FAST)
    holder = subprocess.Popen(["sleep", "600"])
    claim = daemon.claim("vm1", pid=holder.pid).json
    node = open(claim["vfio_device"], "rb")
    passes(daemon)
    holder.kill()
    holder.wait()
    passes(daemon)
    assert daemon.claims()["vm1"]["state"] == "bound"  # somebody has it open
    daemon.restart(kill=True)
    passes(daemon)
    assert daemon.claims()["vm1"]["state"] == "bound"
    node.close()
    wait_for(lambda: daemon.claims() == {}, "the release")
    check_host(sim, daemon)


def test_holder_that_lives(sim, start_daemon):
    daemon = start_daemon(sim, FAST)
    vf = daemon.claim("vm1", pid=os.getpid()).json["vf"]
    daemon.claim("vm2")
    passes(daemon, 5)
    assert set(check_host(sim, daemon, acknowledged={"vm1": vf})) == {"vm1", "vm2"}


# --- VFs that are gone or changed ------------------------------------------------------------------


def problem(daemon, name, wanted):
    wait_for(lambda: daemon.claims()[name]["problem"] == wanted, f"problem {wanted}")


@pytest.mark.field("F23")
def test_vf_missing(sim, start_daemon):
    """The card is gone: released without it, again: nothing there, claimed anew elsewhere."""
    daemon = start_daemon(sim, FAST)
    for name in ("vm1", "vm2"):
        daemon.claim(name, gpu=PF)
    sim.ctl("remove", PF)
    problem(daemon, "vm1", "vf_missing")
    passes(daemon)
    assert daemon.claims()["vm1"]["state"] == "bound"
    assert daemon.release("vm1").status == 200
    assert daemon.release("vm1").status == 204
    assert daemon.claim("vm1").json["gpu"] == PF2
    # PUT of the name replaces it.
    other = daemon.claim("vm2", "L40S-2Q")
    assert (other.status, other.code) == (409, "claim_exists")
    again = daemon.claim("vm2")
    assert (again.status, again.json["gpu"], again.json["problem"]) == (201, PF2, None)
    assert daemon.claim("vm2").status == 200
    assert set(check_host(sim, daemon)) == {"vm1", "vm2"}


@pytest.mark.field("F26")
def test_vf_missing_across_a_restart(sim, start_daemon):
    """Records of hardware that is gone neither count nor block."""
    daemon = start_daemon(sim, FAST)
    for name in ("vm1", "vm2"):
        daemon.claim(name, gpu=PF)
    daemon.stop()
    sim.ctl("remove", PF)
    daemon.start()
    problem(daemon, "vm1", "vf_missing")
    assert daemon.resources()["total_slots"] == 32 and daemon.resources()["used_slots"] == 0
    assert daemon.claim("vm3").json["gpu"] == PF2
    assert daemon.claim("vm1").status == 201 and daemon.release("vm2").status == 200
    sim.ctl("restore", PF)
    wait_for(lambda: daemon.resources()["total_slots"] == 64, "the card to be back")
    assert set(check_host(sim, daemon)) == {"vm1", "vm3"}
    assert daemon.claim("vm2", gpu=PF).status == 201


def test_one_vf_missing(sim, start_daemon):
    daemon = start_daemon(sim, FAST)
    vf = daemon.claim("vm1").json["vf"]
    sim.ctl("remove", vf)
    problem(daemon, "vm1", "vf_missing")
    sim.ctl("restore", vf)
    problem(daemon, "vm1", "type_lost")  # back, and free
    assert daemon.vfs()[vf]["state"] == "bound"  # not offered
    assert daemon.claim("vm1").status == 201
    check_host(sim, daemon)


def test_vf_that_cannot_be_read(sim, start_daemon):
    """Unknown is not gone: the claim stays, and PUT still gives it."""
    daemon = start_daemon(sim, FAST)
    vf = daemon.claim("vm1").json["vf"]
    sim.ctl("set", "sysfs.read_errno", "EIO", "--vf", vf)
    problem(daemon, "vm1", "vf_missing")
    again = daemon.claim("vm1")
    assert (again.status, again.json["vf"], again.json["state"]) == (200, vf, "bound")
    passes(daemon)
    sim.ctl("set", "sysfs.read_errno", 0, "--vf", vf)
    problem(daemon, "vm1", None)
    check_host(sim, daemon, acknowledged={"vm1": vf})


def test_type_lost(sim, start_daemon):
    daemon = start_daemon(sim, FAST)
    for name in ("vm1", "vm2"):
        daemon.claim(name)
    vf1, vf2 = (daemon.claims()[n]["vf"] for n in ("vm1", "vm2"))
    sim.ctl("configure", vf1, 0)
    sim.ctl("configure", vf2, 0)
    problem(daemon, "vm1", "type_lost")
    problem(daemon, "vm2", "type_lost")
    assert {daemon.vfs()[v]["state"] for v in (vf1, vf2)} == {"bound"}
    before = sim.counters()["attr_writes"]
    assert daemon.release("vm1").status == 200
    assert sim.counters()["attr_writes"] == before
    assert daemon.claim("vm2").status == 201
    settled(sim, daemon)
    assert set(check_host(sim, daemon)) == {"vm2"}


def test_type_changed(sim, start_daemon):
    """Somebody else's by now: DELETE succeeds and writes nothing, even if it is open."""
    daemon = start_daemon(sim, {**FAST, "unclaimed_vfs": "leave"})
    claim = daemon.claim("vm1").json
    sim.ctl("configure", claim["vf"], 0)
    sim.ctl("configure", claim["vf"], "L40S-2Q")
    problem(daemon, "vm1", "type_changed")
    with open(claim["vfio_device"], "rb"):
        answer = daemon.claim("vm1")
        assert (answer.status, answer.code) == (409, "in_use")
        assert daemon.claims()["vm1"]["problem"] == "type_changed"
        before = sim.counters()["attr_writes"]
        assert daemon.release("vm1").status == 200
    assert sim.counters()["attr_writes"] == before
    assert sim.vf(claim["vf"])["type"] == L40S_2Q
    assert daemon.claims() == {}


def test_put_replaces_a_changed_claim(sim, start_daemon):
    daemon = start_daemon(sim, {**FAST, "unclaimed_vfs": "leave"})
    claim = daemon.claim("vm1").json
    sim.ctl("configure", claim["vf"], 0)
    sim.ctl("configure", claim["vf"], "L40S-2Q")
    problem(daemon, "vm1", "type_changed")
    again = daemon.claim("vm1")
    assert again.status == 201 and again.json["vf"] != claim["vf"]
    assert again.json["assigned_at"] != claim["assigned_at"]
    assert sim.vf(claim["vf"])["type"] == L40S_2Q
    assert daemon.claim("vm1").status == 200


@pytest.mark.parametrize("point", [
    "release.before-mark", "release.marked", "release.dropped", "claim.intent-stored", "claim.bound"])
def test_killed_while_replacing(sim, start_daemon, point):
    daemon = start_daemon(sim, FAST)
    vf = daemon.claim("vm1").json["vf"]
    daemon.restart(fault=point)
    sim.ctl("configure", vf, 0)
    problem(daemon, "vm1", "type_lost")
    assert daemon.try_request("PUT", "/claims/vm1", {"profile": "L40S-4Q"}) is None
    daemon.wait_dead()
    daemon.start()
    wait_for(lambda: all(c["state"] == "bound" for c in daemon.claims().values()), "the release to end")
    assert daemon.claim("vm1").status == (200 if point == "claim.bound" else 201)
    settled(sim, daemon)
    assert set(check_host(sim, daemon)) == {"vm1"}


def test_releasing_found_open_at_start(sim, start_daemon):
    """Somebody opened it after `releasing` had been stored: back to bound."""
    daemon = start_daemon(sim, FAST)
    claim = daemon.claim("vm1").json
    daemon.restart(fault="release.marked")
    assert daemon.try_request("DELETE", "/claims/vm1") is None
    daemon.wait_dead()
    with open(claim["vfio_device"], "rb"):
        daemon.start()
        wait_for(lambda: daemon.claims()["vm1"]["state"] == "bound", "the claim to be bound again")
        passes(daemon)
        check_host(sim, daemon, acknowledged={"vm1": claim["vf"]})
    daemon.restart(kill=True)
    assert daemon.claims()["vm1"]["state"] == "bound"


@pytest.mark.field("F15")
def test_guest_holds_through_passes(sim, start_daemon):
    """A claim whose VF is open is never touched by a periodic job."""
    daemon = start_daemon(sim, FAST)
    holder = subprocess.Popen(["sleep", "600"])
    vf = daemon.claim("i-54", pid=holder.pid).json["vf"]
    pid = sim.boot(vf, "--init-ms", 0)
    holder.kill()
    holder.wait()
    passes(daemon, 4)
    check_host(sim, daemon, acknowledged={"i-54": vf})
    assert daemon.release("i-54").code == "in_use"
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: daemon.claims() == {}, "the release after the guest ended")
