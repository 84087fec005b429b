# SPDX-License-Identifier: Apache-2.0
"""Health of VFs: what guests report on their consoles, what of it counts, and what follows from it."""
import collections
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading

import pytest

from conftest import BIN, attach, detach, request_over, wait_for

PF, PF2 = "0000:41:00.0", "0000:81:00.0"
VF, VF2 = "0000:41:00.4", "0000:81:00.4"
NVRM = "NVRM: GPU 0000:00:05.0: RmInitAdapter failed! (0x22:0x65:884)"
FAILURES = "berth_sentinel_init_failures_total"
QUARANTINES = "berth_sentinel_quarantines_total"
STAMP = "2026/08/25 19:10:00 [guest-agent]"


def failed(prefix="BERTH", nvrm=NVRM):
    return f'{STAMP} {prefix}-GPU-INIT-FAILED ts=2026-08-25T19:10:00Z nvrm="{nvrm}"\n'


def ok(prefix="BERTH"):
    return f"{STAMP} {prefix}-GPU-INIT-OK ts=2026-08-25T19:10:00.123Z\n"


def ignored(reason):
    return f'berth_sentinel_ignored_markers_total{{reason="{reason}"}}'


def settings(threshold=2, **sentinel):
    return {"gpu": {"vf_quarantine_threshold": threshold},
            "sentinel": {"scan_interval": "50ms", "contradiction_window": "300ms", **sentinel}}


class Host:
    """berthd on a small simulated host; what its guests print is written by us."""

    def __init__(self, sim, daemon):
        self.sim = sim
        self.daemon = daemon
        self.barriers = 0

    @property
    def records(self):
        return self.daemon.data_dir / "gpu" / "vf-health.json"

    def console(self, name):
        return self.sim.root / "console" / f"{name}.log"

    def claim(self, name="vm", gpu=PF, **fields):
        answer = self.daemon.claim(name, "L40S-2Q", gpu=gpu, console_log=str(self.console(name)), **fields)
        assert answer.status == 201, answer
        return answer.json

    def write(self, name, text):
        with open(self.console(name), "ab") as f:
            f.write(text.encode() if isinstance(text, str) else text)

    def vf(self, address=VF):
        return self.daemon.vfs()[address]

    def failures(self, address=VF):
        return len(self.vf(address)["failures"])

    def wait_failures(self, n, address=VF):
        wait_for(lambda: self.failures(address) == n, f"{n} failures")

    def round(self, name="vm", text=None, release=True):
        """One assignment of the first card's VF that reports a failure; gives the VF afterwards."""
        before = self.failures()
        self.claim(name)
        self.write(name, text or failed())
        self.wait_failures(before + 1)
        if release:
            self.release(name)
        return self.vf()

    def release(self, name):
        """The driver may need a moment; then the VF is free again."""
        vf = self.daemon.claims()[name]["vf"]
        assert self.daemon.release(name).status in (200, 202)
        wait_for(lambda: self.daemon.vfs()[vf]["state"] == "free", "the VF to be free")

    def boot(self, loaded, vf=VF):
        """A guest without agent whose driver has loaded, or never does."""
        pid = self.sim.boot(vf, "--init-ms", 1 if loaded else 600000, "--console", "/dev/null")
        wait_for(lambda: (self.sim.vf(vf)["instance"] or {}).get("driver_loaded") == loaded, "the guest")
        return pid

    def barrier(self):
        """What was written to any console before has been judged: the tail thread and the loop keep the
        order, and a log that came later, on the second card, has been read twice."""
        for _ in range(2):
            self.barriers += 1
            name = f"barrier-{self.barriers}"
            vf = self.claim(name, gpu=PF2)["vf"]
            self.write(name, failed())
            wait_for(lambda: self.failures(vf), "the barrier's own failure")
            self.release(name)
            assert self.daemon.request("DELETE", f"/vfs/{vf}/quarantine").status == 200

    def sriov(self, flag, card):
        """sriov-manage by hand, as a person does: NVML is let go of first."""
        if self.daemon.process.poll() is None:
            self.daemon.request("POST", "/driver/release")
        wait_for(lambda: self.sim.ctl("sriov", flag, card, check=False).returncode == 0, f"sriov-manage {flag}")

    def quarantine(self, vf=VF):
        return self.daemon.request("PUT", f"/vfs/{vf}/quarantine")

    def clear(self, vf=VF):
        return self.daemon.request("DELETE", f"/vfs/{vf}/quarantine")


@pytest.fixture
def start_host(start_sim, start_daemon):
    def start(*options, config=None):
        sim = start_sim("--nvml-latency", 0, *(options or ("--cards", 2, "--vfs", 1)))
        return Host(sim, start_daemon(sim, config or settings()))

    return start


@pytest.fixture
def host(start_host):
    """Two cards with one VF each: a claim on the first gets VF."""
    return start_host()


# --- Thresholds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_threshold(start_host, threshold):
    host = start_host(config=settings(threshold))
    for n in range(1, threshold + 1):
        vf = host.round(f"vm{n}")
        assert (len(vf["failures"]), vf["quarantined"]) == (n, n == threshold)
    assert vf["quarantined_at"]
    assert [f["claim"] for f in vf["failures"]] == [f"vm{n}" for n in range(1, threshold + 1)]
    metrics = host.daemon.metrics()
    assert metrics.get(FAILURES, 0) == threshold - 1
    assert metrics[QUARANTINES] == 1
    assert metrics["berth_quarantined_vfs"] == 1
    assert metrics["berth_vfs_with_init_failures"] == 1
    assert metrics["berth_vf_health_store_unavailable"] == 0
    assert metrics[f'berth_slots{{gpu="{PF}",state="quarantined"}}'] == 1
    record = json.loads(host.records.read_text())
    assert record["version"] == 1
    assert [len(r["failures"]) for r in record["records"]] == [threshold]


@pytest.mark.tsan
def test_one_failure_per_assignment(host):
    """However often it is repeated, scanned, or berthd started anew."""
    host.round("vm", release=False)
    for _ in range(3):
        host.write("vm", failed() * 3)
        host.barrier()
    assert host.failures() == 1
    host.daemon.restart()
    host.write("vm", failed())
    host.barrier()
    host.daemon.restart(kill=True)
    host.barrier()
    assert (host.failures(), host.vf()["quarantined"]) == (1, False)
    host.release("vm")
    # The same name claimed again is another assignment; its log begins anew.
    vf = host.round("vm")
    assert [f["claim"] for f in vf["failures"]] == ["vm", "vm"]
    assert len({f["assigned_at"] for f in vf["failures"]}) == 2
    assert vf["quarantined"]


def test_ok_clears_below_the_threshold(host):
    host.round("vm1")
    host.claim("vm2")
    host.write("vm2", ok())
    host.wait_failures(0)
    assert json.loads(host.records.read_text())["records"] == []
    assert host.daemon.metric("berth_vfs_with_init_failures") == 0
    host.release("vm2")
    assert not host.round("vm3")["quarantined"]
    assert host.daemon.metric("berth_vfs_with_init_failures") == 1


def test_ok_does_not_lift_a_quarantine(host):
    host.round("vm1")
    host.claim("vm2")
    host.write("vm2", failed())
    wait_for(lambda: host.vf()["quarantined"], "the quarantine")
    host.write("vm2", ok())
    host.barrier()
    assert (host.failures(), host.vf()["quarantined"]) == (2, True)


def test_only_the_latest_marker_of_a_pass_counts(host):
    """A driver that was slow and then came up has not failed."""
    host.claim("vm")
    host.write("vm", failed() * 3 + ok())
    host.barrier()
    assert host.failures() == 0
    host.write("vm", ok() + failed())
    host.wait_failures(1)


# --- What follows from a quarantine -------------------------------------------------------------------


def test_quarantined_vf_leaves_placement(start_host):
    host = start_host("--cards", 2, "--vfs", 2)
    before = host.daemon.available()["L40S-24Q"]
    assert host.quarantine().status == 200
    resources = host.daemon.resources()
    assert (resources["allocatable_slots"], resources["quarantined_slots"]) == (3, 1)
    assert before == 4 and host.daemon.available()["L40S-24Q"] == 3
    # The card with a quarantined VF goes last, under whatever policy; its sibling stays usable.
    cards = [host.daemon.claim(f"vm{n}", "L40S-4Q").json["gpu"] for n in range(3)]
    assert cards == [PF2, PF2, PF]
    refused = host.daemon.claim("vm3", "L40S-4Q")
    assert (refused.status, refused.code) == (409, "insufficient_resources")
    assert host.vf()["claim"] is None


def test_claim_on_a_quarantined_vf_stays(host):
    host.claim("vm")
    assert host.quarantine().json["quarantined"]
    claim = host.daemon.claims()["vm"]
    assert (claim["state"], claim["problem"], claim["vf"]) == ("bound", None, VF)
    host.daemon.restart()
    assert host.daemon.claims()["vm"]["state"] == "bound"
    assert host.sim.vf(VF)["type"]
    host.release("vm")
    assert host.daemon.resources()["allocatable_slots"] == 1


def test_api_of_quarantine(host):
    assert host.clear().status == 404
    assert host.quarantine("0000:99:00.4").status == 404
    assert host.quarantine("nonsense").status in (400, 404)
    assert host.quarantine("41:0.4").json["quarantined_at"]
    assert host.quarantine().status == 200
    assert host.daemon.metric(QUARANTINES) == 0  # those of the sentinel alone
    answer = host.clear()
    assert (answer.status, answer.json["quarantined"], answer.json["quarantined_at"]) == (200, False, None)
    assert host.clear().status == 404


def as_nobody(socket_path, method, path, body=None):
    """The status and code (or "-") that uid 65534 gets."""
    script = ("import http.client,json,os,socket,sys\n"
              "os.setuid(65534)\n"
              "s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
              "c=http.client.HTTPConnection('localhost'); c.sock=s\n"
              "c.request(sys.argv[2], sys.argv[3], sys.argv[4]); r=c.getresponse()\n"
              "print(r.status, json.loads(r.read()).get('code', '-'))\n")
    done = subprocess.run(["/usr/bin/python3", "-c", script, socket_path, method, path, json.dumps(body) if body else ""],
                          capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    status, code = done.stdout.split()
    return int(status), code


def test_only_root_changes_health(host, work):
    os.chmod(work, 0o755)
    os.chmod(host.sim.root, 0o755)
    os.chmod(host.daemon.socket, 0o666)
    for method, path in (("PUT", f"/vfs/{VF}/quarantine"), ("DELETE", f"/vfs/{VF}/quarantine"),
                         ("POST", f"/gpus/{PF}/recover")):
        assert as_nobody(host.daemon.socket, method, path) == (403, "forbidden")
    assert not host.vf()["quarantined"]


def test_commands(host):
    def berth(*args):
        return subprocess.run([BIN / "berth", "--socket", host.daemon.socket, *args], capture_output=True, text=True,
                              timeout=20)

    assert berth("vf", "clear", VF).returncode == 4
    assert berth("vf", "quarantine", VF).returncode == 0
    listed = berth("vf", "list").stdout
    assert [line.split()[5] for line in listed.splitlines() if VF in line] == ["quarantined"]
    assert {v["address"]: v["quarantined"] for v in json.loads(berth("--json", "vf", "list").stdout)["vfs"]} == {
        VF: True, VF2: False}
    assert berth("vf", "clear", VF).returncode == 0
    assert berth("vf").returncode == berth("vf", "mend", VF).returncode == 2


def test_random_choice_among_equals(start_host):
    """No VF is everybody's first: a single bad one must not look like an outage."""
    host = start_host("--cards", 1, "--vfs", 4, "--nvml-latency", 0)
    counts = collections.Counter()
    connection = host.daemon.connect()
    for n in range(80):
        answer = request_over(connection, "PUT", f"/claims/vm{n}", {"profile": "L40S-4Q"})
        counts[answer.json["vf"]] += 1
        assert request_over(connection, "DELETE", f"/claims/vm{n}").status == 200
    connection.close()
    expected = 80 / 4
    chi_square = sum((counts[v] - expected) ** 2 / expected for v in host.daemon.vfs())
    assert chi_square < 21.1  # 3 degrees of freedom: exceeded once in 10,000 runs


# --- The records' file --------------------------------------------------------------------------------


@pytest.mark.field("F60")
@pytest.mark.parametrize("damage", ["empty", "nul", "nuls behind", "cut", "version", "garbage"])
def test_unreadable_records(host, damage):
    host.round("vm1")
    good = host.records.read_bytes()
    bad = {"empty": b"", "nul": bytes(4096), "cut": good[:len(good) // 2], "garbage": good + b'"}', "nuls behind": good + bytes(512),
           "version": good.replace(b'"version": 1', b'"version": 2').replace(b'"version":1', b'"version":2')}[damage]
    assert bad != good
    host.records.write_bytes(bad)
    wait_for(lambda: host.daemon.metric("berth_vf_health_store_unavailable") == 1, "the gauge")
    assert host.daemon.resources()["allocatable_slots"] == 0
    assert set(host.daemon.available().values()) == {0}
    for _ in range(2):
        answer = host.daemon.claim("vm2")
        assert (answer.status, answer.code) == (503, "health_store_unavailable")
    assert host.daemon.request("GET", "/readyz").status == 503
    assert host.quarantine().code == "health_store_unavailable"
    host.daemon.restart(ready=False)  # neither does a start read it as "no quarantines"
    wait_for(lambda: host.daemon.metric("berth_vf_health_store_unavailable") == 1, "the gauge")
    answer = host.daemon.claim("vm2")
    assert (answer.status, answer.code) == (503, "health_store_unavailable")
    assert host.records.read_bytes() == bad
    host.records.write_bytes(good)
    wait_for(lambda: host.daemon.resources()["allocatable_slots"] == 2, "service without a restart")
    assert host.daemon.metric("berth_vf_health_store_unavailable") == 0
    assert host.failures() == 1
    assert host.daemon.claim("vm2").status == 201


EMPTY = b'{"version":1,"records":[]}'
SICK = b'{"vf_address":"0000:41:00.4","quarantined_at":"2026-08-25T19:10:00Z"}'
# What is wrong, and the byte that the message names.
NOT_THE_FORMAT = {
    "garbage behind": (EMPTY + b'"}', 26), "two documents": (EMPTY + EMPTY, 26), "mark before": (b"\xef\xbb\xbf" + EMPTY, 0),
    "one VF twice": (b'{"version":1,"records":[' + SICK + b"," + SICK + b"]}", 24 + len(SICK) + 1),
    "version 2": (EMPTY.replace(b"1", b"2", 1), None), "no number": (EMPTY.replace(b"1", b"NaN", 1), 11),
}


@pytest.mark.field("F62")
def test_records_that_are_not_the_format(host):
    """Refused with the file and the byte, and left as it is; berthd goes on, and needs no restart once it is
    mended."""
    def detail():
        answer = host.daemon.request("GET", "/readyz")
        return answer.json["detail"] if answer.status == 503 else ""

    host.records.parent.mkdir(exist_ok=True)
    for what, (text, byte) in NOT_THE_FORMAT.items():
        host.records.write_bytes(text)
        host.daemon.restart(ready=False)
        said = wait_for(lambda: "byte" in detail() and detail(), f"{what} to be refused")
        # The byte itself, or where the reader stood when it had taken it.
        at = int(re.search(r"byte (\d+):", said)[1])
        assert str(host.records) in said and (byte is None or byte <= at <= byte + 3), (what, said)
        assert host.daemon.resources()["allocatable_slots"] == 0
        assert host.daemon.claim("vm").code == "health_store_unavailable"
        assert host.daemon.request("GET", "/healthz").status == 200 and host.records.read_bytes() == text
    host.records.write_bytes(EMPTY)
    wait_for(lambda: host.daemon.claim("vm").status == 201, "service")


def test_hand_edit_is_noticed(host):
    assert not host.records.exists() or json.loads(host.records.read_text())["records"] == []
    assert host.quarantine().status == 200
    text = host.records.read_text()
    host.records.write_text('{"version": 1, "records": []}')
    wait_for(lambda: not host.vf()["quarantined"], "the edit")
    assert host.daemon.claim("vm", gpu=PF).status == 201
    host.records.write_text(text)
    wait_for(lambda: host.vf()["quarantined"], "the edit")


def test_lowered_threshold_applies_to_stored_failures(start_host):
    host = start_host(config=settings(3))
    host.round("vm1")
    assert not host.round("vm2")["quarantined"]
    host.daemon.restart(settings(2))
    wait_for(lambda: host.vf()["quarantined"], "the lower threshold")
    host.daemon.restart(settings(3))  # and a raised one lifts nothing
    assert (host.failures(), host.vf()["quarantined"]) == (2, True)


def test_a_report_that_is_not_stored_comes_again(host):
    folder = host.records.parent
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", str(folder)], check=True)
    try:
        host.claim("vm")
        host.write("vm", failed())
        wait_for(lambda: "not stored" in host.daemon.log(), "the report to be refused")
        assert host.failures() == 0  # nothing in memory that is not on disk
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    host.wait_failures(1)
    assert len(json.loads(host.records.read_text())["records"]) == 1


def test_absent_vfs_keep_their_records(host):
    """VFs gone for a while and back with type 0: records and file untouched."""
    host.round("vm1")
    host.quarantine(VF2)
    before = host.records.read_bytes()
    for card in (PF, PF2):
        host.sriov("-d", card)
    wait_for(lambda: not host.daemon.vfs(), "the VFs to go")
    assert host.daemon.metric("berth_quarantined_vfs") == 1
    host.daemon.restart(ready=False)
    for card in (PF, PF2):
        host.sriov("-e", card)
    host.daemon.wait_ready()
    wait_for(lambda: set(host.daemon.vfs()) == {VF, VF2}, "the VFs to come back")
    assert host.records.read_bytes() == before
    assert (host.failures(VF), host.vf(VF2)["quarantined"]) == (1, True)
    # An absent one's record can be cleared all the same.
    host.sriov("-d", PF2)
    wait_for(lambda: VF2 not in host.daemon.vfs(), "the VF to go")
    answer = host.clear(VF2)
    assert (answer.status, answer.json["state"], answer.json["quarantined"]) == (200, "absent", False)


# --- What counts as a marker ------------------------------------------------------------------------------

FORGED = {
    "echoed by a command line": f"root@vm:~# echo '{failed().strip()}'\n",
    "the raw kernel line": f"[   12.345678] {NVRM}\n",
    "torn": failed()[:60] + "[   12.3] usb 1-1: new device\n" + failed()[60:],
    "over-long": failed(nvrm=NVRM + "x" * 5000),
    "with text behind": failed().strip() + " and more\n",
    "another phrase": failed(nvrm="NVRM: GPU 0000:00:05.0: rm_init_adapter failed"),
    "another prefix": failed(prefix="OTHER"),
    "no newline": failed().strip(),
    "a carriage return inside": failed().replace(" nvrm", "\r nvrm"),
    "a quote inside": failed(nvrm=NVRM + '" "'),
    "a NUL inside": failed().replace("GPU 0000", "GPU\0000"),
    "a bare token": "BERTH-GPU-INIT-FAILED\n",
    "a date that is none": failed().replace("2026-08-25T", "2026-08-25 "),
}


def test_forged_markers_do_not_count(start_host):
    host = start_host("--cards", 2, "--vfs", 16)
    # All at once, each on a VF of its own.
    vfs = [host.claim(f"vm{n}")["vf"] for n in range(len(FORGED))]
    for n, text in enumerate(FORGED.values()):
        host.write(f"vm{n}", text)
    host.barrier()
    assert {host.failures(vf) for vf in vfs} == {0}
    assert host.daemon.metric(QUARANTINES) == 0


@pytest.mark.field("F67")
@pytest.mark.parametrize("text", [failed("HYPEMAN"), failed().replace("\n", "\r\n"), "x" * 1048576 + "\n" + failed(),
                                  "\0" * 5000 + "\n" + failed(), "noise\n" * 1000 + failed() * 3,
                                  failed(nvrm="NVRM: RmInitAdapter failed! (0x62:0x40:2168)")],
                         ids=["hypeman", "crlf", "after a long line", "after NULs", "three times", "another tuple"])
def test_true_markers_count(host, text):
    host.claim("vm")
    host.write("vm", text)
    host.wait_failures(1)


def test_configured_prefixes_alone(start_host):
    host = start_host(config=settings(marker_prefixes=["ACME"]))
    host.claim("vm")
    host.write("vm", failed())
    host.write("vm", failed("ACME"))
    host.wait_failures(1)
    host.release("vm")
    host.claim("vm2")
    host.write("vm2", failed("BERTH"))
    host.write("vm2", ok("ACME"))
    host.wait_failures(0)


@pytest.mark.field("F77")
def test_a_wave_of_failures_shows(start_host):
    """A bad guest driver fails on 32 VFs, with whatever numbers: one failure each, and the early counter
    shows it; none is quarantined."""
    host = start_host("--cards", 2, "--vfs", 16)
    for n in range(32):
        host.claim(f"vm{n}", gpu=(PF, PF2)[n % 2])
        host.write(f"vm{n}", failed(nvrm=NVRM.replace("0x22:0x65", f"0x{n:x}:0x40")) * 3)
    wait_for(lambda: host.daemon.metric(FAILURES) == 32, "the wave")
    assert {len(v["failures"]) for v in host.daemon.vfs().values()} == {1}
    assert host.daemon.metric(QUARANTINES) == 0


# --- The log before, and the log's files ---------------------------------------------------------------------


def test_older_log_is_archived_before_the_claim(host):
    host.console("vm").parent.mkdir(exist_ok=True)
    host.write("vm", failed())  # of an earlier boot
    host.claim("vm")
    assert host.console("vm").with_suffix(".log.1").read_text() == failed()
    assert not host.console("vm").exists()
    host.barrier()
    assert host.failures() == 0
    host.release("vm")


def test_archive_failure_fails_the_claim(host):
    host.console("vm").mkdir()  # no log, and not to be moved away
    (host.console("vm") / "x").touch()
    answer = host.daemon.claim("vm", gpu=PF, console_log=str(host.console("vm")))
    assert (answer.status, answer.code) == (500, "archive_failed")
    assert host.daemon.claims() == {}
    assert host.sim.vf(VF)["type"] == 0
    assert host.daemon.claim("vm2", gpu=PF).status == 201


def test_console_paths(host, work):
    outside = work / "outside"
    outside.mkdir()
    host.console("x").parent.mkdir(exist_ok=True)
    (host.sim.root / "console" / "link").symlink_to(outside)
    for path in (outside / "vm.log", host.sim.root / "console" / ".." / "vm.log", "/etc/passwd", "relative.log"):
        answer = host.daemon.claim("vm", console_log=str(path))
        assert (answer.status, answer.code) == (400, "bad_request"), path
    answer = host.daemon.claim("vm", console_log=str(host.sim.root / "console" / "link" / "vm.log"))
    assert answer.status in (400, 500), answer
    assert host.daemon.claims() == {}


def test_log_that_cannot_be_followed_is_said(host, work):
    """A guest whose console is not read looks well for ever."""
    def problem():
        return host.daemon.get("/claims/vm")["console_problem"]

    host.claim("vm")
    host.write("vm", "booting\n")
    host.barrier()
    assert problem() is None
    host.console("vm").unlink()
    host.console("vm").symlink_to(work / "elsewhere")
    wait_for(problem, "the problem")
    host.console("vm").unlink()
    host.write("vm", failed())
    host.wait_failures(1)
    assert problem() is None
    host.daemon.stop()
    (host.sim.root / "other").mkdir()
    host.daemon.configure({"sentinel": {"console_dirs": [str(host.sim.root / "other")]}})
    host.daemon.start()
    assert problem()
    host.release("vm")


def test_bad_channels_are_refused(host):
    for channel in ("", "tcp:1", "vsock:", "vsock:2", "vsock:x", "vsock:5:0", "unix:rel", "hvsock:/x", "hvsock:/x:y"):
        answer = host.daemon.claim("vm", channel=channel)
        assert (answer.status, answer.code) == (400, "bad_request"), channel


def test_rotated_log(host):
    host.claim("vm")
    host.write("vm", "booting\n")
    host.barrier()
    os.rename(host.console("vm"), host.console("vm").with_suffix(".log.1"))
    with open(host.console("vm").with_suffix(".log.1"), "ab") as old:
        host.write("vm", "after the rotation\n")
        old.write(failed().encode())  # the VM manager still has the old one open
    host.wait_failures(1)
    host.write("vm", ok())
    host.wait_failures(0)


@pytest.mark.field("F69")
@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_log_that_changes_places_between_two_calls(host):
    """Each call on the log takes 20 ms, so that rotation falls between any two of them: each new file, larger
    than what was read of the old one, is read from 0, and no old one again."""
    host.claim("vm")
    host.write("vm", "booting\n")
    host.barrier()
    path, console = host.console("vm"), host.console("vm").parent
    calls = "openat,openat2,fstat,newfstatat,pread64,read,close"
    strace = attach(host.daemon.process.pid, "/dev/null", "-e", f"trace={calls}", "-e", f"inject={calls}:delay_enter=20000",
                    "-P", str(console), "-P", str(path))
    try:
        for n in range(6):
            new = console / "new"
            new.write_text((failed(), ok())[n % 2] + f"guest {n}\n" * 500 * (n + 1))
            os.rename(path, path.with_suffix(".log.1"))
            os.rename(new, path)
            host.wait_failures((1, 0)[n % 2])
    finally:
        detach(strace)
    host.barrier()
    assert host.failures() == 0


@pytest.mark.field("F65")
@pytest.mark.parametrize("regrown", [False, True])
def test_copytruncate(host, regrown):
    """Shorter than what was read: read from 0. Longer again before anybody looked: known by its first
    KiB and by what stood before the place that was read to."""
    host.claim("vm")
    host.write("vm", "booting\n" * 2000)
    host.barrier()
    path = host.console("vm")
    path.with_suffix(".log.1").write_bytes(path.read_bytes())
    other = failed() + "started again\n" * 2000 * regrown
    with open(path, "r+b") as f:  # in one step for whoever looks: nothing is read between two of its writes
        f.write(other.encode())
        f.truncate(len(other))
    host.wait_failures(1)
    host.write("vm", "more\n")
    host.barrier()
    assert host.failures() == 1 and host.daemon.metric(FAILURES) == 1 + host.barriers  # which fail once each


# --- Corroboration ---------------------------------------------------------------------------------------------


class FakeAgent:
    """Answers "status" on a Unix socket, by the hvsock handshake where asked for."""

    def __init__(self, path, state, hvsock=False):
        self.state = state
        self.hvsock = hvsock
        self.asked = 0
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(8)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            try:
                self.answer(client)
            except OSError:
                pass  # berthd hung up in the middle; the next one is served

    def answer(self, client):
        with client, client.makefile("rwb", buffering=0) as f:
            if self.hvsock:
                assert f.readline() == b"CONNECT 52010\n"
                f.write(b"OK 1073741824\n")
            if f.readline() != b"status\n":
                return
            self.asked += 1
            if self.state == "silent":
                f.readline()
            elif self.state == "long":
                f.write(b"x" * 5000)
            else:
                f.write(json.dumps({"agent": "berth", "state": self.state.removeprefix("watching "),
                                    "watching": self.state.startswith("watching ")}).encode() + b"\n")

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.fixture
def fake_agent(work):
    made = []

    def make(state, hvsock=False):
        path = work / f"agent{len(made)}"
        made.append(FakeAgent(path, state, hvsock))
        return made[-1], f"hvsock:{path}:52010" if hvsock else f"unix:{path}"

    yield make
    for agent in made:
        agent.close()


@pytest.mark.parametrize("hvsock", [False, True], ids=["unix", "hvsock"])
def test_agent_that_answers_the_opposite(host, fake_agent, hvsock):
    """Who forges on the console cannot forge what the agent says on its channel."""
    agent, channel = fake_agent("ok", hvsock)
    host.claim("vm", channel=channel)
    host.write("vm", failed() * 3)
    wait_for(lambda: host.daemon.metric(ignored("agent")) == 1, "the marker to be ignored")
    assert (host.failures(), agent.asked) == (0, 1)
    host.write("vm", failed() * 3)
    host.barrier()
    assert (host.failures(), agent.asked) == (0, 1)
    # An OK that the agent denies clears nothing, either.
    host.release("vm")
    host.round("vm2")
    agent.state = "failed"
    host.claim("vm3", channel=channel)
    host.write("vm3", ok())
    wait_for(lambda: host.daemon.metric(ignored("agent")) == 2, "the marker to be ignored")
    assert host.failures() == 1
    host.write("vm3", failed())
    host.wait_failures(2)


def test_agent_that_has_seen_neither(host, fake_agent):
    """It watches and says "unknown": then no failure was reported by it, whatever the console says."""
    agent, channel = fake_agent("watching unknown")
    host.claim("vm", channel=channel)
    host.write("vm", failed())
    wait_for(lambda: host.daemon.metric(ignored("agent")) == 1, "the marker to be ignored")
    assert (host.failures(), agent.asked) == (0, 1)


def test_channel_to_a_socket_of_others(host, fake_agent, work):
    """berthd does not connect, as root, to what the claim's owner may not: it is not asked."""
    agent, channel = fake_agent("ok")
    os.chmod(work, 0o755)
    os.chmod(host.sim.root, 0o755)
    os.chmod(host.daemon.socket, 0o666)
    body = {"profile": "L40S-4Q", "gpu": PF, "channel": channel, "console_log": str(host.console("vm"))}
    assert as_nobody(host.daemon.socket, "PUT", "/claims/vm", body)[0] == 201
    host.write("vm", failed())
    wait_for(lambda: sum(len(v["failures"]) for v in host.daemon.vfs().values()) == 1, "the report")
    assert (agent.asked, host.daemon.metric(ignored("agent"))) == (0, 0)


@pytest.mark.parametrize("state", ["failed", "unknown", "silent", "long", "nobody"])
def test_agent_that_does_not_contradict(host, fake_agent, work, state):
    channel = f"unix:{work}/nobody" if state == "nobody" else fake_agent(state)[1]
    host.claim("vm", channel=channel)
    host.write("vm", failed())
    host.wait_failures(1)
    assert host.daemon.metric(ignored("agent")) == 0


def test_a_forger_with_a_channel_gets_nowhere(host, fake_agent):
    """Many boots that each forge a failure; with a channel not even the own VF is touched."""
    _, channel = fake_agent("ok")
    for n in range(30):
        host.claim("vm", channel=channel)
        host.write("vm", failed() * 3)
        wait_for(lambda n=n: host.daemon.metric(ignored("agent")) == n + 1, "the marker to be ignored")
        host.release("vm")
    assert {len(v["failures"]) for v in host.daemon.vfs().values()} == {0}


def test_nvml_shows_a_loaded_driver(host):
    host.claim("vm")
    guest = host.boot(loaded=True)
    host.write("vm", failed())
    wait_for(lambda: host.daemon.metric(ignored("nvml")) == 1, "the marker to be ignored")
    assert host.failures() == 0
    os.kill(guest, signal.SIGTERM)


def test_nvml_shows_no_driver_after_an_ok(host):
    host.round("vm1")
    host.claim("vm2")
    guest = host.boot(loaded=False)
    host.write("vm2", ok())
    wait_for(lambda: host.daemon.metric(ignored("nvml")) == 1, "the marker to be ignored")
    assert host.failures() == 1
    os.kill(guest, signal.SIGTERM)


@pytest.mark.parametrize("how", ["no library", "released", "error"])
def test_without_nvml_the_report_counts(start_sim, start_daemon, how):
    sim = start_sim("--nvml-latency", 0, "--cards", 2, "--vfs", 1)
    host = Host(sim, start_daemon(sim, {**settings(), **({"nvml_library": ""} if how == "no library" else {})}))
    if how == "released":
        assert host.daemon.request("POST", "/driver/release").status == 200
    if how == "error":
        sim.ctl("set", "nvml.error", 999, "--gpu", PF)
    host.claim("vm")
    host.write("vm", failed())
    host.wait_failures(1)


def test_claim_changed_while_judging(host, fake_agent):
    """The report of an assignment that is over is nobody's: the next one on that VF is not blamed."""
    agent, channel = fake_agent("silent")
    host.claim("vm", channel=channel)
    host.write("vm", failed())
    wait_for(lambda: agent.asked, "the agent to be asked")
    host.release("vm")
    host.claim("vm2")
    host.barrier()
    assert all(f["claim"] != "vm2" for f in host.vf()["failures"])


def test_a_real_wedge(host):
    """The simulator's own guests: one killed in its init window, the next two fail, the VF is out."""
    host.claim("vm0")
    guest = host.sim.boot(VF, "--init-ms", 600000, "--console", host.console("vm0"))
    os.kill(guest, signal.SIGKILL)
    wait_for(lambda: host.sim.vf(VF)["wedged"], "the wedge")
    for n in (1, 2):
        wait_for(lambda n=n: host.daemon.release(f"vm{n - 1}").status == 200, "the release")
        host.claim(f"vm{n}")
        guest = host.sim.boot(VF, "--init-ms", 1, "--console", host.console(f"vm{n}"))
        host.wait_failures(n)
        os.kill(guest, signal.SIGTERM)
    assert host.vf()["quarantined"]
    wait_for(lambda: host.daemon.release("vm2").status == 200, "the release")
    refused = host.daemon.claim("vm3", gpu=PF)
    assert (refused.status, refused.code) == (409, "insufficient_resources")
