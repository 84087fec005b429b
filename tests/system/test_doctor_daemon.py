# SPDX-License-Identifier: Apache-2.0
"""berth doctor on the simulated host, with berthd and without: one test a finding."""
import http.server
import json
import os
import pathlib
import re
import shutil
import socketserver
import subprocess
import tempfile
import threading

import pytest
import yaml

from conftest import BIN, Daemon, Sim, mounts_below, wait_for
from test_doctor import OF_MACHINE, Report, can_unshare, doctor, in_mounts

CARD, OTHER = "0000:41:00.0", "0000:81:00.0"
SOON = {"reconcile_interval": "300ms", "unclaimed_grace": "0s"}


def look(daemon, **more):
    return doctor(config=daemon.config, **more)


def wait_found(daemon, name, seconds=15):
    """The report in which a finding first appears."""
    def found():
        report = look(daemon)
        return report if name in report.ids else None

    return wait_for(found, f"the finding {name}", seconds)


def wait_gone(daemon, name, seconds=15):
    wait_for(lambda: name not in look(daemon).ids, f"the finding {name} to go", seconds)


class Live:
    """A simulator and a berthd that several tests use; each mends what it breaks."""

    def __init__(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="berth-"))
        self.sim = Sim(self.root / "sim", "--nvml-latency", 0)
        self.daemon = Daemon(self.sim, {**SOON, "unclaimed_vfs": "leave", "gpu": {"nvml_timeout": "400ms"}})

    def stop(self):
        try:
            assert self.daemon.stop() == 0
        finally:
            self.sim.stop()
            assert not mounts_below(self.root)
            shutil.rmtree(self.root)


@pytest.fixture(scope="module")
def live():
    live = Live()
    yield live
    try:
        assert look(live.daemon).worst() == 0, "the host is not as it was"
    finally:
        live.stop()


# --- In good health -------------------------------------------------------------------------------

def test_healthy_host_has_no_warnings(live):
    report = look(live.daemon)
    assert report.ids <= OF_MACHINE and report.status == 0
    assert [c for c, row in report.checks.items() if row["state"] == "skipped"] == []
    live.daemon.claim("vm1")
    try:
        assert look(live.daemon).status == 0
    finally:
        live.daemon.release("vm1")


def test_healthy_host_without_berthd(sim):
    report = doctor(config=sim.config)
    assert report.ids - OF_MACHINE == {"daemon-absent"} and report.status == 6
    assert report.checks["nvml"]["state"] == report.checks["mode"]["state"] == "ok"


def test_socket_option_names_another_daemon(live, work):
    report = doctor("--socket", work / "none", config=live.daemon.config)
    assert "daemon-absent" in report.ids
    assert doctor(config="/nonexistent/x", env={"BERTH_SOCKET": "/none"}).find("daemon-absent")["subject"] == \
        live_default_socket()


def live_default_socket():
    return "/run/berth/berthd.sock"


# --- Nothing is changed, nothing hangs ------------------------------------------------------------

@pytest.mark.parametrize("with_daemon", [True, False], ids=["berthd", "no-berthd"])
def test_f04_changes_nothing(sim, start_daemon, with_daemon):
    """Under strace: no file is opened to be written, made or removed, but for what NVML's library does."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    config = start_daemon(sim).config if with_daemon else sim.config
    before = sim.state()
    trace = sim.root / "trace"
    calls = "trace=open,openat,openat2,creat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,symlink," \
            "symlinkat,link,linkat,truncate,ftruncate,chmod,fchmod,fchmodat,chown,fchown,fchownat,utimensat,mknod," \
            "mknodat,mount,umount2,adjtimex,clock_adjtime,execve"
    # A sanitizer cannot look for leaks in a traced process.
    doctor(config=config, wrap=("strace", "-f", "-qq", "-e", calls, "-o", str(trace)), timeout=60,
           env={"ASAN_OPTIONS": "detect_leaks=0"})
    lines = trace.read_text().splitlines()
    programs = {re.search(r'execve\("([^"]+)"', l)[1].rsplit("/", 1)[1] for l in lines if "execve(" in l}
    assert programs == ({"berth"} if with_daemon else {"berth", "berth-nvml"})
    bad = [l for l in lines if re.search(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|creat\(|rename|unlink|mkdir|[^d]link\(|symlink|"
                                         r"truncate|chmod|chown|utimens|mknod|mount", l)
           and "readlink" not in l and '"/dev/null"' not in l and f'"{sim.root}/dev/nvidia' not in l]
    assert not bad, bad[:5]
    assert any("adjtimex({modes=0" in l or "clock_adjtime(CLOCK_REALTIME, {modes=0" in l for l in lines)
    assert sim.state()["cards"] == before["cards"]


def test_a_driver_that_hangs_does_not_hang_doctor(sim):
    """F52: both the attributes and NVML; the children that cannot be killed keep no pipe of ours."""
    sim.ctl("set", "sysfs.read_hang", 1, "--gpu", CARD)
    sim.ctl("set", "nvml.hang", 1)
    try:
        config = yaml.safe_load(sim.config.read_text())
        config["gpu"] = {"nvml_timeout": "300ms", "card_timeout": "500ms"}
        sim.config.write_text(yaml.safe_dump(config))
        report = doctor(config=sim.config)
        assert report.find("card-stuck")["subject"] == CARD
        assert report.find("nvml-hangs")["severity"] == "error"
        assert report.status == 7
        # Those of the other card could be read.
        assert CARD in report.checks["vfs"]["reason"] and OTHER not in report.checks["vfs"]["reason"]
    finally:
        sim.ctl("set", "nvml.hang", 0)
        sim.ctl("set", "sysfs.read_hang", 0)
    assert "card-stuck" not in doctor(config=sim.config).ids


def test_settings_that_cannot_be_read_in_time(sim):
    """As on a file server that does not answer."""
    sim.ctl("set", "sysfs.read_hang", 1, "--gpu", CARD)
    try:
        report = doctor("--no-nvml", config=sim.sys / "bus/pci/devices/0000:41:00.4/nvidia/current_vgpu_type")
        assert "no answer within 5 s" in report.find("config-unreadable")["what"]
    finally:
        sim.ctl("set", "sysfs.read_hang", 0)


def test_a_driver_that_is_slow_is_not_called_stuck(sim):
    """Every read returns, and all together take longer than is waited for."""
    config = yaml.safe_load(sim.config.read_text())
    config["gpu"] = {"card_timeout": "1s"}
    sim.config.write_text(yaml.safe_dump(config))
    sim.ctl("set", "sysfs.read_latency_ms", 100)
    report = doctor("--no-nvml", config=sim.config)
    assert "card-stuck" not in report.ids
    assert "within 1000 ms" in report.checks["response"]["reason"] and "of 32" in report.checks["vfs"]["reason"]


def test_nothing_is_left_behind(sim):
    doctor(config=sim.config)
    held = [l for l in subprocess.run(["ps", "-eo", "stat,args"], capture_output=True, text=True).stdout.splitlines()
            if str(sim.root) in l and "berth-sim" not in l]
    assert not held
    assert not [v for c in sim.state()["cards"] for v in c["vfs"] if v["open"]]
    sim.ctl("sriov", "-d", CARD)  # refused while NVML is open


# --- NVML -----------------------------------------------------------------------------------------

def test_driver_mismatch(sim):
    sim.ctl("set", "nvml.error", 18)
    assert "580.178.05" in doctor(config=sim.config).find("driver-mismatch")["what"]


def test_nvml_symbol_missing(sim):
    """F54"""
    sim.ctl("set", "nvml.symbol_missing", "nvmlDeviceGetVgpuTypeCreatablePlacements")
    row = doctor(config=sim.config).find("nvml-symbol-missing")
    assert "nvmlDeviceGetVgpuTypeCreatablePlacements" in row["what"]


def test_nvml_error_and_card_nvml_error(sim):
    """F51: one lost card costs only that card."""
    sim.ctl("set", "nvml.error", 15, "--gpu", OTHER)
    report = doctor(config=sim.config)
    assert report.find("card-nvml-error")["subject"] == OTHER and "nvml-error" not in report.ids
    assert report.checks["mode"]["state"] == "skipped"
    sim.ctl("set", "nvml.error", 0, "--gpu", OTHER)
    sim.ctl("set", "nvml.error", 999)
    assert "999" in doctor(config=sim.config).find("nvml-error")["what"]


def test_with_berthd_nvml_error_and_card_nvml_error(live):
    live.sim.ctl("set", "nvml.error", 15, "--gpu", OTHER)
    report = wait_found(live.daemon, "card-nvml-error")
    assert report.find("card-nvml-error")["subject"] == OTHER and report.status == 7
    live.sim.ctl("set", "nvml.error", 0, "--gpu", OTHER)
    wait_gone(live.daemon, "card-nvml-error")
    # Of the whole host: what Init says to the next helper.
    live.sim.ctl("set", "nvml.error", 999)
    live.daemon.request("POST", "/driver/release")
    live.daemon.request("POST", "/driver/resume")
    try:
        report = wait_found(live.daemon, "nvml-error")
        assert "card-nvml-error" not in report.ids
    finally:
        live.sim.ctl("set", "nvml.error", 0)
    wait_gone(live.daemon, "nvml-error")


def test_with_berthd_nvml_hangs(live):
    live.sim.ctl("set", "nvml.hang", 1)
    try:
        wait_found(live.daemon, "nvml-hangs")
    finally:
        live.sim.ctl("set", "nvml.hang", 0)
    wait_gone(live.daemon, "nvml-hangs", 30)


def test_nvml_released(live):
    assert live.daemon.request("POST", "/driver/release").status == 200
    try:
        report = look(live.daemon)
        assert report.find("nvml-released")["severity"] == "warning"
        assert not {"nvml-library-missing", "nvml-library-unusable", "nvml-error"} & report.ids
    finally:
        live.daemon.request("POST", "/driver/resume")
    wait_for(lambda: look(live.daemon).worst() == 0, "NVML to be in use")


def test_nvml_off(sim, start_daemon):
    daemon = start_daemon(sim, {"nvml_library": ""})
    report = look(daemon)
    assert report.find("nvml-off")["severity"] == "info" and report.status == 0


# --- Modes ----------------------------------------------------------------------------------------

def test_card_equal_size(start_sim, start_daemon):
    sim = start_sim("--mode", "equal", "--nvml-latency", 0)
    report = doctor(config=sim.config)
    assert [f["subject"] for f in report.findings if f["id"] == "card-equal-size"] == [CARD, OTHER]
    report = look(start_daemon(sim))
    assert [f["subject"] for f in report.findings if f["id"] == "card-equal-size"] == [CARD, OTHER]
    assert "mixed-mode-lost" not in report.ids and report.status == 0


def test_card_mig(start_sim, start_daemon):
    sim = start_sim("--model", "h100-80", "--mode", "mig", "--cards", 1, "--nvml-latency", 0)
    assert doctor(config=sim.config).find("card-mig")["subject"] == CARD
    assert look(start_daemon(sim)).find("card-mig")["severity"] == "info"


def test_mixed_mode_lost_beside_its_likes(sim):
    sim.ctl("set", "mode", "equal", "--gpu", OTHER)
    assert doctor(config=sim.config).find("mixed-mode-lost")["subject"] == OTHER


def test_mixed_mode_lost_after_an_sriov_cycle(start_sim, start_daemon):
    sim = start_sim("--cards", 1, "--nvml-latency", 0)
    daemon = start_daemon(sim, SOON)
    assert daemon.request("POST", "/driver/release").status == 200

    def cycled():
        return sim.ctl("sriov", "-d", CARD, check=False).returncode == 0

    wait_for(cycled, "the driver to be free")
    wait_found(daemon, "card-no-vfs")
    sim.ctl("sriov", "-e", CARD)
    assert daemon.request("POST", "/driver/resume").status == 200
    row = wait_found(daemon, "mixed-mode-lost").find("mixed-mode-lost")
    assert "has seen it in mixed-size mode" in row["what"]


# --- Claims, VFs, health --------------------------------------------------------------------------

def test_vf_wrong_driver_and_claim_problem(sim, start_daemon):
    """F08: libvirt takes a claimed VF from its driver."""
    daemon = start_daemon(sim, SOON)
    vf = daemon.claim("vm1").json["vf"]
    sim.ctl("rebind", vf, "vfio-pci")
    report = wait_found(daemon, "claim-problem")
    assert vf in report.find("vf-wrong-driver")["what"]
    assert report.find("claim-problem")["subject"] == "vm1"
    sim.ctl("rebind", vf, "nvidia")
    assert vf in wait_found(daemon, "vf-unreadable").find("vf-unreadable")["what"]


def test_vf_unclaimed_and_vf_unclaimed_open(live):
    vf = "0000:41:00.7"
    live.sim.ctl("configure", vf, "L40S-4Q")
    assert vf in wait_found(live.daemon, "vf-unclaimed").find("vf-unclaimed")["what"]
    guest = live.sim.boot(vf)
    report = wait_found(live.daemon, "vf-unclaimed-open")
    assert vf in report.find("vf-unclaimed-open")["what"] and "vf-unclaimed" not in report.ids
    # reconcile counts an open VF again and again; that is no failure of its own.
    assert "reconcile-failing" not in report.ids
    os.kill(guest, 15)
    wait_gone(live.daemon, "vf-unclaimed-open")
    live.sim.ctl("configure", vf, 0)
    wait_gone(live.daemon, "vf-unclaimed")


def test_vf_quarantined_and_card_cordoned(live):
    vf = "0000:81:00.6"
    assert live.daemon.request("PUT", f"/vfs/{vf}/quarantine").status in (200, 201)
    assert live.daemon.request("PUT", f"/gpus/{OTHER}/cordon").status == 200
    try:
        report = look(live.daemon)
        assert vf in report.find("vf-quarantined")["what"] and report.status == 0
        assert "berth gpu recover 0000:81:00.0" in report.find("vf-quarantined")["how"]
        assert report.find("card-cordoned")["subject"] == OTHER
    finally:
        live.daemon.request("DELETE", f"/vfs/{vf}/quarantine")
        live.daemon.request("DELETE", f"/gpus/{OTHER}/cordon")


def test_reconcile_failing(sim, start_daemon):
    daemon = start_daemon(sim, SOON)
    sim.ctl("set", "sysfs.release_errno", "EBUSY")
    sim.ctl("configure", "0000:41:00.7", "L40S-4Q")
    row = wait_found(daemon, "reconcile-failing").find("reconcile-failing")
    assert row["subject"] == "reset_unclaimed_vfs"


def test_card_stuck(sim, start_daemon):
    """F52"""
    daemon = start_daemon(sim, {**SOON, "gpu": {"card_timeout": "300ms"}})
    sim.ctl("set", "sysfs.read_hang", 1, "--gpu", CARD)
    try:
        report = wait_found(daemon, "card-stuck")
        assert report.find("card-stuck")["subject"] == CARD and "vf-unreadable" not in report.ids
        assert CARD in report.checks["vfs"]["reason"]
    finally:
        sim.ctl("set", "sysfs.read_hang", 0)
    wait_gone(daemon, "card-stuck")


# --- Stores, settings, what berthd may ------------------------------------------------------------

def test_health_store_unavailable(live):
    path = live.daemon.data_dir / "gpu/vf-health.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text("{")
    wait_found(live.daemon, "health-store-unavailable")
    path.write_text('{"version": 1, "records": []}')
    path.chmod(0o600)
    wait_gone(live.daemon, "health-store-unavailable")


def test_claims_store_unavailable(sim, start_daemon):
    daemon = start_daemon(sim)
    daemon.stop()
    (daemon.data_dir / "claims.db").write_bytes(b"no database" * 1000)
    daemon.start(ready=False)
    report = wait_found(daemon, "claims-store-unavailable")
    assert report.status == 7 and "daemon-not-ready" not in report.ids
    # What is in the store cannot be known.
    assert "503" in report.checks["claims"]["reason"]


def test_config_differs(live):
    settings = yaml.safe_load(live.daemon.config.read_text())
    other = live.root / "other.yaml"
    other.write_text(yaml.safe_dump({**settings, "unclaimed_vfs": "reset"}))
    row = doctor(config=other).find("config-differs")
    assert row["subject"] == "unclaimed_vfs" and '"leave"' in row["what"]


def test_data_dir_missing(live):
    aside = live.root / "aside"
    live.daemon.data_dir.rename(aside)
    try:
        assert look(live.daemon).find("data-dir-missing")["severity"] == "error"
    finally:
        aside.rename(live.daemon.data_dir)
    wait_for(lambda: look(live.daemon).worst() == 0, "the stores to be back")


def test_scan_blind_where_berthd_lacks_the_capability(sim, start_daemon):
    if not shutil.which("setpriv"):
        pytest.skip("setpriv is not installed")
    daemon = start_daemon(sim, wrap=("setpriv", "--bounding-set=-sys_ptrace"))
    assert "CAP_SYS_PTRACE" in look(daemon).find("scan-blind")["what"]


def test_scan_blind_where_berthd_has_pids_of_its_own(sim, start_daemon):
    """As in a container without hostPID."""
    if not can_unshare("-pf", "--mount-proc"):
        pytest.skip("no PID namespace can be made here")
    daemon = start_daemon(sim, wrap=("unshare", "-pf", "--mount-proc", "--kill-child=SIGTERM"), ready=None)
    daemon.wait_answering()
    assert "PID namespace of its own" in look(daemon).find("scan-blind")["what"]
    inner = int(pathlib.Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children").read_text())
    os.kill(inner, 15)
    daemon.process.wait(timeout=10)


def test_sysfs_read_only_where_berthd_runs(sim, start_daemon):
    """F12: doctor itself may write there; berthd says that it may not."""
    wrap = in_mounts(f"mount --bind {sim.sys} {sim.sys} && mount -o remount,ro,bind {sim.sys}")
    daemon = start_daemon(sim, wrap=wrap)
    assert "berthd sees" in look(daemon).find("sysfs-read-only")["what"]


def test_plugin_and_reset_asks_berthd(live, work):
    """What counts is what berthd does, here: leave."""
    (work / "kubevirt-x.sock").touch()
    settings = yaml.safe_load(live.daemon.config.read_text())
    other = live.root / "reset.yaml"
    other.write_text(yaml.safe_dump({**settings, "unclaimed_vfs": "reset"}))
    assert "plugin-and-reset" not in doctor("--kubelet-dir", work, config=other).ids


# --- What berthd says seldom ----------------------------------------------------------------------

class Replay:
    """Answers as berthd did, with one thing changed."""

    def __init__(self, path, answers):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = json.dumps(answers[self.path]).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def address_string(self):
                return "peer"

            def log_message(self, *args):
                pass

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self.server = Server(str(path), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def stop(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def replay(live, work, change):
    """The report where berthd's answers were changed: change(status, first card)."""
    answers = {p: live.daemon.get(p) for p in ("/status", "/gpus", "/claims")}
    change(answers["/status"], answers["/gpus"]["gpus"][0])
    path = work / "replay.sock"
    server = Replay(path, answers)
    try:
        return doctor("--socket", path, config=live.daemon.config)
    finally:
        server.stop()
        path.unlink()


def test_what_is_replayed_unchanged_is_healthy(live, work):
    assert replay(live, work, lambda s, c: None).worst() == 0


@pytest.mark.parametrize("name, change, words", [
    ("daemon-version", lambda s, c: s.update(version="0.0.9"), "0.0.9"),
    ("daemon-not-ready", lambda s, c: s.update(ready=False, reason="the first look has not ended"), "first look"),
    ("placements-old", lambda s, c: s.update(placements_age_ms=3600000), "3600 s"),
    ("placement-drift", lambda s, c: c.update(drift=True), "disagree"),
    ("driver-mismatch", lambda s, c: s.update(driver_version="570.86.10"), "570.86.10"),
    ("card-no-placements", lambda s, c: c.update(mode="equal", fallback="unsupported", fallback_detail="Not Supported"),
     "Not Supported"),
    ("vf-failing", lambda s, c: c["vfs"][0]["failures"].append({"claim": "a"}), "VF 0000:41:00.4"),
    ("recovery-failed", lambda s, c: c.update(recovery={"state": "failed", "step": "sriov_off", "detail": "busy"}),
     "sriov_off"),
], ids=lambda v: v if isinstance(v, str) and "-" in v else "")
def test_what_berthd_says_seldom(live, work, name, change, words):
    assert words in replay(live, work, change).find(name)["what"]


@pytest.mark.parametrize("junk", [{"vfs": 7, "recovery": []}, {"address": None, "mode": 3}, {"vfs": [[], {}, 1]}],
                         ids=["kinds", "nulls", "rows"])
def test_answers_are_not_trusted(live, work, junk):
    report = replay(live, work, lambda s, c: (s.pop("reconcile"), s.update(claims_store=5, settings=[]), c.update(junk)))
    assert isinstance(report, Report)
