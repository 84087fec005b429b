# SPDX-License-Identifier: Apache-2.0
"""Field reports about claims and what is done behind them (docs/field-cases.md), where no other test has
them whole."""
import json
import os
import re
import shutil
import subprocess

import pytest

from conftest import BIN, ROOT, attach, check_host, detach, settled, typed_vfs, wait_for
from test_capacity import settle, vf_addresses
from test_claims import claiming, in_parallel, send_put
from test_reconcile import FAST, failures, passes

PF, PF2 = "0000:41:00.0", "0000:81:00.0"
VF, VF2 = "0000:41:00.4", "0000:81:03.3"
needs_strace = pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")


def resources(daemon):
    """What /resources says, but for the age."""
    gpu = daemon.resources()
    gpu.pop("placements_age_ms")
    return gpu


# --- Looking changes nothing


def gets(claim, gpu):
    """Every GET that the interface describes."""
    paths = json.loads((ROOT / "docs/openapi.json").read_text())["paths"]
    for path, item in paths.items():
        if "get" in item and path != "/events":  # that one has no end
            yield re.sub(r"\{(\w+)\}", lambda m: claim if m[1] == "name" else gpu, path)


WRITING = r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|\bcreat\(|rename|unlink|mkdir|\blink(at)?\(|symlink|truncate|execve|chmod"
CALLS = "trace=open,openat,openat2,creat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,symlink," \
        "symlinkat,link,linkat,truncate,ftruncate,execve,chmod,fchmod,fchmodat"


def host_state(sim, daemon):
    """All that a look must not change: every VF, every file of berthd's, and how often the driver was written."""
    files = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in daemon.data_dir.rglob("*")
             if p.is_file() and p.suffix != ".lock"}
    return sim.state()["cards"], sim.counters()["attr_writes"], files


@needs_strace
@pytest.mark.field("F04")
def test_a_hundred_looks_write_nothing(sim, start_daemon):
    """Every GET and the dry runs, a hundred times: no file is opened for writing, none changes."""
    daemon = start_daemon(sim, {"reconcile_interval": "1h"})
    assert daemon.claim("vm").status == 201
    assert daemon.request("PUT", f"/vfs/{VF}/quarantine").status == 200
    settle(sim)
    before = host_state(sim, daemon)
    assert any(p.name == "vf-health.json" for p in before[2]) and any(p.name == "claims.db" for p in before[2])
    paths = list(gets("vm", PF))
    assert len(paths) >= 10
    trace = sim.root / "trace"
    strace = attach(daemon.process.pid, trace, "-e", CALLS)
    try:
        connection = daemon.connect()
        for _ in range(100):
            for method, path, body in [("GET", p, None) for p in paths] + \
                    [("POST", "/fit", '{"profiles": {"L40S-4Q": 3}}')]:
                connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
                answer = connection.getresponse()
                answer.read()
                assert answer.status == 200, (path, answer.status)
        connection.close()
        events = daemon.connect()
        events.request("GET", "/events")
        assert events.getresponse().status == 200
        events.close()
        wait_for(lambda: "bus/pci/devices" in trace.read_text(), "the trace of its own look at the devices")
    finally:
        detach(strace)
    lines = trace.read_text().splitlines()
    assert not [l for l in lines if re.search(WRITING, l) and "readlink" not in l][:5]
    assert host_state(sim, daemon) == before


@needs_strace
@pytest.mark.field("F04")
@pytest.mark.parametrize("command", [
    ["berthd", "--config", "{config}", "--check"],
    ["berth", "--socket", "{socket}", "fit", "L40S-4Q=3"],
    ["berth-device-plugin", "--list"], ["berth-device-plugin", "--print-permitted"],
    ["berth-device-plugin", "--kubelet-dir", "{folder}", "--check"]], ids=lambda c: " ".join(c[:1] + c[-1:]))
def test_checks_write_nothing(sim, daemon, work, command):
    """Nothing of the host's or of berthd's is opened for writing; folders of its own are its own."""
    assert daemon.claim("vm").status == 201
    settle(sim)
    (work / "plugins").mkdir()
    command = [c.format(config=daemon.config, socket=daemon.socket, folder=work / "plugins") for c in command]
    if command[0] == "berth-device-plugin":
        command += ["--sysfs-root", str(sim.sys), "--dev-root", str(sim.dev), "--nvml-library", "",
                    "--health-file", str(work / "none")]
    before = host_state(sim, daemon)
    trace = sim.root / "trace"
    done = subprocess.run(["strace", "-f", "-qq", "-e", CALLS, "-o", trace, BIN / command[0], *command[1:]],
                          capture_output=True, text=True, timeout=30, env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})
    assert done.returncode == 0, done.stderr
    assert "O_RDONLY" in trace.read_text()
    lines = [l for l in trace.read_text().splitlines() if re.search(WRITING, l) and str(work) in l]
    assert not [l for l in lines if "execve" not in l][:5]
    assert host_state(sim, daemon) == before
    assert not list((work / "plugins").iterdir())


# --- Failing half-way


class HalfWay:
    """A claim that fails at one point; each gives back the daemon as it was, but for what the claim left."""

    @staticmethod
    def refused_by_the_driver(sim, daemon):
        sim.ctl("set", "sysfs.write_errno", "EINVAL")
        answer = daemon.claim("vm")
        assert (answer.status, answer.code) == (503, "driver_refused")
        sim.ctl("set", "sysfs.write_errno", 0)

    @staticmethod
    def disk_full_at_the_second_commit(sim, daemon):
        """The type has been written when `bound` does not fit on the disk."""
        if not shutil.which("strace"):
            pytest.skip("strace is not installed")
        sim.ctl("set", "sysfs.write_latency_ms", 2000)
        connection = send_put(daemon, "vm")
        claiming(daemon)
        wait_for(lambda: sim.counters()["attr_writes"] > 0, "the write, which follows the intent's commit")
        strace = attach(daemon.process.pid, "/dev/null", "-e", "trace=pwrite64",
                        "-e", "inject=pwrite64:error=ENOSPC", "-P", str(daemon.data_dir / "claims.db-wal"))
        sim.ctl("set", "sysfs.write_latency_ms", 0)  # of what comes behind this write
        answer = connection.getresponse()
        assert answer.status == 503 and json.loads(answer.read())["code"] == "store_unavailable"
        detach(strace)

    @staticmethod
    def client_hangs_up(sim, daemon):
        sim.ctl("set", "sysfs.write_latency_ms", 400)
        connection = send_put(daemon, "vm")
        claiming(daemon)
        connection.close()
        sim.ctl("set", "sysfs.write_latency_ms", 0)

    @staticmethod
    def killed_between_write_and_commit(sim, daemon):
        daemon.restart(fault="claim.configured")
        assert daemon.try_request("PUT", "/claims/vm", {"profile": "L40S-4Q"}) is None
        daemon.wait_dead()
        assert len(typed_vfs(sim)) == 1
        daemon.start()


@pytest.mark.field("F05")
@pytest.mark.parametrize("how", [n for n in vars(HalfWay) if not n.startswith("_")])
def test_a_claim_that_fails_half_way(sim, start_daemon, how):
    """The VF is back at 0 and free, there is no claim, and /resources says what it said before."""
    daemon = start_daemon(sim, {"reconcile_interval": "500ms"})
    settle(sim)
    before = resources(daemon)
    getattr(HalfWay, how)(sim, daemon)
    settled(sim, daemon)
    wait_for(lambda: resources(daemon) == before, "the start state")
    assert check_host(sim, daemon) == {} and typed_vfs(sim) == {}
    assert daemon.request("GET", "/claims/vm").status == 404
    assert daemon.claim("vm").status == 201


# --- Capacity


@pytest.mark.field("F13")
def test_equal_size_card_of_twelve(start_sim, start_daemon):
    """32 free VFs that all list 4Q, room for 12: 12, and 0 after twelve claims though 20 VFs are free."""
    sim = start_sim("--cards", 1, "--mode", "equal", "--nvml-latency", 0)
    daemon = start_daemon(sim)
    assert all(1150 in sim.listed(vf) for vf in vf_addresses(PF))
    assert daemon.available()["L40S-4Q"] == 12 and daemon.resources()["allocatable_slots"] == 32
    for i in range(12):
        assert daemon.claim(f"vm{i}").status == 201
        wait_for(lambda i=i: daemon.available()["L40S-4Q"] == 11 - i, "one less")
    refused = daemon.claim("one-more")
    assert (refused.status, refused.code) == (409, "insufficient_resources")
    assert daemon.available()["L40S-4Q"] == 0 and daemon.resources()["allocatable_slots"] == 20


# --- Who uses what


@pytest.mark.field("F15")
def test_claim_whose_vm_is_not_listed_but_runs(sim, start_daemon):
    """The process that i-54 names is gone, but its VF is open: nothing is reset, and it is counted."""
    daemon = start_daemon(sim, FAST)
    holder = subprocess.Popen(["sleep", "600"])
    claim = daemon.claim("i-54", pid=holder.pid).json
    with open(claim["vfio_device"], "rb"):
        writes = sim.counters()["attr_writes"]
        holder.kill()
        holder.wait()
        wait_for(lambda: failures(daemon, "holder_gone_vf_open") >= 2, "two passes")
        assert daemon.log().count("its holder is gone but its VF is open") == 1
        assert daemon.get("/claims/i-54") == claim and daemon.vfs()[claim["vf"]]["state"] == "bound"
        assert sim.counters()["attr_writes"] == writes
        others = {daemon.claim(f"vm{i}", "L40S-1Q", gpu=claim["gpu"]).json["vf"] for i in range(6)}
        assert claim["vf"] not in others
    wait_for(lambda: "i-54" not in daemon.claims(), "the release once it is closed")


@pytest.mark.field("F17")
def test_foreign_vf_is_never_written_while_it_is_open(sim, start_daemon):
    """Three passes over a VF that somebody else configured and holds; reset once it is closed."""
    daemon = start_daemon(sim, FAST)
    assert daemon.claim("first").status == 201 and daemon.release("first").status == 200
    foreign = "0000:41:01.2"
    sim.ctl("configure", foreign, "L40S-2Q")
    with open(daemon.vfs()[foreign]["vfio_group"], "rb"):
        wait_for(lambda: daemon.vfs()[foreign]["unclaimed_open"], "it to be seen as open")
        writes, seen = sim.counters()["attr_writes"], failures(daemon, "unclaimed_vf_open")
        wait_for(lambda: failures(daemon, "unclaimed_vf_open") >= seen + 3, "three passes")
        assert sim.counters()["attr_writes"] == writes and set(typed_vfs(sim)) == {foreign}
        shown = daemon.vfs()[foreign]
        assert shown["claim"] is None and shown["state"] == "unclaimed"
        assert daemon.resources()["used_slots"] == 1
    wait_for(lambda: not typed_vfs(sim), "the reset")


# --- Settings


def held_claims(sim, daemon):
    """Five claims whose VFs are open; gives them, and the open nodes."""
    claims = [daemon.claim(f"vm{i}", pid=os.getpid(), console_log=str(sim.root / f"console/vm{i}.log")).json
              for i in range(5)]
    return {c["name"]: c["vf"] for c in claims}, [open(c["vfio_device"], "rb") for c in claims]


@pytest.mark.field("F18")
@pytest.mark.parametrize("key, section, value", [
    ("sentinel", None, {"consoles": ["/x"]}), ("sentinal", None, {"scan_interval": "5s"}),
    ("gpus", None, {"exclude": []}), ("datadir", None, "/x")])
def test_misspelt_settings_refuse_to_start(sim, start_daemon, key, section, value):
    """A section or a key that is not known: named, and nothing is done."""
    daemon = start_daemon(sim, FAST)
    claims, nodes = held_claims(sim, daemon)
    daemon.stop()
    database = (daemon.data_dir / "claims.db").read_bytes()
    writes = sim.counters()["attr_writes"]
    path = sim.root / "typo.yaml"
    path.write_text(re.sub(r"(?m)^sentinel:\n(  .*\n)*", "", sim.config.read_text()) + json.dumps({key: value})[1:-1] + "\n")
    done = subprocess.run([BIN / "berthd", "--config", path], timeout=20, capture_output=True, text=True)
    named = "consoles" if key == "sentinel" else key
    assert done.returncode == 1 and named in done.stderr, done
    assert sim.counters()["attr_writes"] == writes and set(typed_vfs(sim)) == set(claims.values())
    assert (daemon.data_dir / "claims.db").read_bytes() == database
    for node in nodes:
        node.close()


def degraded(daemon, key, folder):
    """It is not well, and says which folder it looked at."""
    if key == "console_dirs":
        return "sentinel.console_dirs" in (daemon.get("/claims/vm0")["console_problem"] or "")
    if key == "data_dir":  # as at a first start: what is configured is somebody's
        found = daemon.claims().values()
        return len(found) == 5 and {c["state"] for c in found} == {"external"} and f"data_dir={folder}" in daemon.log()
    if key == "proc_root":  # every holder looks gone: said once for each card
        return failures(daemon, "open_scan") > 1 and daemon.log().count(f"{folder}: No such file") == 2
    return daemon.request("GET", "/readyz").status == 503 and f"{folder}/bus/pci" in daemon.log()


@pytest.mark.field("F18")
@pytest.mark.parametrize("key", ["sysfs_root", "proc_root", "data_dir", "console_dirs"])
def test_folders_that_are_not_there_reset_nothing(sim, start_daemon, key):
    """A folder that does not exist is no empty one: nothing is reset or dropped, and the log names it."""
    daemon = start_daemon(sim, FAST)
    claims, nodes = held_claims(sim, daemon)
    daemon.stop()
    database = (daemon.data_dir / "claims.db").read_bytes()
    writes = sim.counters()["attr_writes"]
    right = {k: daemon.settings.get(k) for k in ("sysfs_root", "proc_root", "data_dir")}
    wrong = str(sim.root / "mispelt")
    daemon.configure({"sentinel": {"console_dirs": [wrong]}} if key == "console_dirs" else {key: wrong})
    for node in nodes[:3]:
        node.close()  # not even those that nobody holds any more
    foreign = {VF2} if key == "proc_root" else set()
    for vf in foreign:  # nobody's and closed: this one would be reset
        sim.ctl("configure", vf, "L40S-1Q")
    daemon.start(ready=key != "sysfs_root")
    wait_for(lambda: degraded(daemon, key, wrong), "what is wrong to be said")
    if key != "sysfs_root":
        passes(daemon)
    assert sim.counters()["attr_writes"] == writes and set(typed_vfs(sim)) == set(claims.values()) | foreign
    if key != "data_dir":
        assert {n: c["vf"] for n, c in daemon.claims().items()} == claims
    daemon.stop()
    assert (sim.root / "state/claims.db").read_bytes() == database
    daemon.configure({**{k: v for k, v in right.items() if v}, "proc_root": "/proc",
                      "sentinel": {"console_dirs": [str(sim.root / "console")]}})
    daemon.start()
    settled(sim, daemon)
    check_host(sim, daemon, acknowledged=claims)
    for node in nodes:
        node.close()


# --- Two daemons


@pytest.mark.field("F22")
def test_two_daemons_and_twenty_claims_each(sim, start_daemon, work):
    """An update that overlaps: the second one on the same folder does not start, however busy the first is."""
    daemon = start_daemon(sim)
    other = work / "other.yaml"
    other.write_text((sim.root / "daemon.yaml").read_text().replace("berthd.sock", "other.sock"))

    def second():
        done = subprocess.run([BIN / "berthd", "--config", other], capture_output=True, text=True, timeout=30)
        return done.returncode, "another berthd" in done.stderr

    results = in_parallel([second] * 2 + [lambda i=i: daemon.claim(f"vm{i}", "L40S-1Q") for i in range(20)])
    assert results[:2] == [(1, True)] * 2 and not (sim.root / "other.sock").exists()
    assert [a.status for a in results[2:]] == [201] * 20
    assert len({a.json["vf"] for a in results[2:]}) == 20
    check_host(sim, daemon, acknowledged={a.json["name"]: a.json["vf"] for a in results[2:]})


# --- A read-only /sys


@pytest.fixture
def read_only_sys(sim, work):
    """The host's sysfs, mounted again read-only."""
    path = work / "ro"
    path.mkdir()
    subprocess.run(["mount", "--bind", sim.sys, path], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", path], check=True)
    yield path
    subprocess.run(["umount", "-l", path], check=True)


@pytest.mark.field("F12")
def test_sysfs_is_mounted_read_only(sim, start_daemon, read_only_sys):
    """Said at the start and at each claim at once; no VF is blamed, and what only reads goes on."""
    sim.ctl("configure", VF, "L40S-4Q")
    daemon = start_daemon(sim, {"sysfs_root": str(read_only_sys)})
    assert daemon.log().count("mounted read-only") == 1
    available = daemon.available()
    before = sim.counters()["attr_writes"]
    answer = daemon.claim("vm")
    assert (answer.status, answer.code) == (503, "sysfs_read_only") and "read-only" in answer.json["detail"]
    assert sim.counters()["attr_writes"] == before  # the kernel lets none through
    assert not any(v["failures"] or v["quarantined"] for v in daemon.vfs().values())
    assert daemon.available() == available and available["L40S-4Q"] == 15
    listed = subprocess.run([BIN / "berth-device-plugin", "--list", "--json", "--sysfs-root", read_only_sys, "--dev-root",
                             sim.dev, "--nvml-library", "", "--health-file", "/nonexistent"],
                            capture_output=True, text=True, timeout=30)
    assert listed.returncode == 0, listed.stderr
    assert [d["id"] for r in json.loads(listed.stdout)["resources"] for d in r["devices"]] == [VF]
