# SPDX-License-Identifier: Apache-2.0
"""SIGHUP: the settings change in one step or not at all, whatever is under way."""
import os
import re
import shutil
import signal
import threading
import time

import pytest


from conftest import check_host, settled, wait_for
from service_manager import Manager
from test_claims import as_user, open_to_all
from tls_daemon import TlsHost


@pytest.fixture
def manager(work):
    m = Manager(work)
    yield m
    m.close()


class Reloadable:
    """A daemon that is told to reload, and whose manager hears of the end of it."""

    def __init__(self, daemon, manager):
        self.daemon = daemon
        self.manager = manager

    def hup(self):
        ready = self.manager.count("READY")
        os.kill(self.daemon.process.pid, signal.SIGHUP)
        self.manager.wait("READY", "1", times=ready + 1)

    def set(self, settings):
        """Writes and reloads; the log lines about it."""
        before = len(self.daemon.log())
        self.daemon.configure(settings)
        self.hup()
        return re.findall(r"(\w+): configuration: (.*)", self.daemon.log()[before:])

    def text(self, text):
        """The same with a file that says just this."""
        before = len(self.daemon.log())
        self.daemon.config.write_text(text)
        self.hup()
        return re.findall(r"(\w+): configuration: (.*)", self.daemon.log()[before:])


@pytest.fixture
def running(sim, start_daemon, manager):
    return Reloadable(start_daemon(sim, **manager.options()), manager)


# --- What is said of it -----------------------------------------------------------------------------


def test_each_change_is_named(running):
    assert running.set({}) == [("notice", "reloaded changes=0")]
    lines = running.set({"reconcile_interval": "1h", "claims": "shared", "gpu": {"vf_quarantine_threshold": 3},
                         "recover": {"services_stop": ["nvidia-dcgm", 'odd "one"']}})
    assert lines == [
        ("notice", 'changed key=reconcile_interval from="1m" to="1h"'),
        ("notice", 'changed key=claims from="owner" to="shared"'),
        ("notice", 'changed key=gpu.vf_quarantine_threshold from="2" to="3"'),
        ("notice", r'changed key=recover.services_stop from="[]" to="[nvidia-dcgm, odd \"one\"]"'),
        ("notice", "reloaded changes=4")]
    assert running.manager.count("RELOADING", "1") == 2
    assert all(int(m["MONOTONIC_USEC"]) > 0 for m in running.manager.messages if "RELOADING" in m)


def test_what_needs_a_restart_is_named_and_kept(running, sim):
    daemon = running.daemon
    wanted = {"data_dir": str(sim.root / "elsewhere"), "socket": str(sim.root / "other.sock"), "listen": "127.0.0.1:1",
              "sysfs_root": "/nowhere", "dev_root": "/nowhere", "proc_root": "/nowhere", "boot_id_file": "/nowhere",
              "nvml_library": ""}
    before = dict(daemon.settings)
    for _ in range(2):  # said each time, as it holds each time
        lines = running.set({**wanted, "claims": "shared"})
        said = {m[1] for level, line in lines if level == "warning"
                if (m := re.match(r"needs a restart, keeps its value until then key=(\S+) ", line))}
        assert said == set(wanted)
    daemon.settings["socket"] = before["socket"]
    assert daemon.claim("vm1").status == 201
    assert not (sim.root / "elsewhere").exists() and not (sim.root / "other.sock").exists()
    daemon.settings.update({k: before[k] for k in wanted if k in before})


INVALID = {
    "unknown-key": ("claims: shared\nreconcile_intervall: 5s\n", ":2: reconcile_intervall: unknown key"),
    "range": ("claims: shared\ngpu:\n  vf_quarantine_threshold: 0\n", ":3: gpu.vf_quarantine_threshold: must be"),
    "yaml": ("claims: shared\n\tx: 1\n", "not valid YAML"),
    "tls-missing": ("claims: shared\ntls: {certificate: /nowhere/c, key: /nowhere/k, client_ca: /nowhere/a}\n",
                    "tls.certificate: /nowhere/c cannot be read"),
    "empty": ("", "nothing is set there any more"),
    "comments": ("# claims: shared\n---\n", "nothing is set there any more"),
    "gone": (None, "cannot be read: No such file"),
}


@pytest.mark.parametrize("kind", INVALID)
def test_an_invalid_file_changes_nothing(running, kind):
    daemon = running.daemon
    text, message = INVALID[kind]
    open_to_all(daemon)
    assert daemon.claim("vm1").status == 201
    good = daemon.config.read_text()
    if text is None:
        os.unlink(daemon.config)
        before = len(daemon.log())
        running.hup()
        lines = re.findall(r"(\w+): configuration: (.*)", daemon.log()[before:])
    else:
        lines = running.text(text)
    assert len(lines) == 1 and lines[0][0] == "error", lines
    assert "not reloaded, everything stays as it was" in lines[0][1] and message in lines[0][1], lines
    assert as_user(1002, lambda: daemon.release("vm1")).status == 403  # claims is not shared
    daemon.config.write_text(good)
    assert running.set({"claims": "shared"})[-1] == ("notice", "reloaded changes=1")
    assert as_user(1002, lambda: daemon.release("vm1")).status == 200


# --- What comes of it -------------------------------------------------------------------------------


def test_unclaimed_vfs(sim, start_daemon, manager):
    """From leave to reset: after the grace from then on, and soon, not at the next interval."""
    r = Reloadable(start_daemon(sim, {"unclaimed_vfs": "leave", "unclaimed_grace": "1h", "reconcile_interval": "50ms"},
                                **manager.options()), manager)
    vf = sim.card()["vfs"][0]["address"]
    sim.ctl("configure", vf, "L40S-4Q")
    wait_for(lambda: r.daemon.vfs()[vf]["state"] == "unclaimed", "the VF to be seen")
    r.set({"unclaimed_vfs": "reset"})
    assert sim.vf(vf)["type"]
    r.set({"reconcile_interval": "1h"})
    r.set({"unclaimed_grace": "0"})
    wait_for(lambda: not sim.vf(vf)["type"], "the reset")


def test_exclude(running, sim):
    daemon = running.daemon
    cards = [c["address"] for c in sim.state()["cards"]]
    made = daemon.claim("vm1", gpu=cards[0]).json
    running.set({"gpu": {"exclude": [cards[0]]}})
    assert daemon.claim("vm2", gpu=cards[0]).status == 409
    refused = daemon.release("vm1")
    assert refused.status == 403 and "excluded" in refused.json["detail"]
    assert sim.vf(made["vf"])["type"]
    assert {c["gpu"] for c in [daemon.claim(f"vm{i}").json for i in range(3, 6)]} == {cards[1]}
    running.set({"gpu": {"exclude": []}})
    assert daemon.release("vm1").status == 200
    assert daemon.claim("vm2", gpu=cards[0]).status == 201


def test_threshold_and_console_folders(running, sim):
    """A new folder holds for claims made from then on; a lower threshold for failures that are stored."""
    daemon = running.daemon
    other = sim.root / "logs"
    other.mkdir()
    assert daemon.claim("vm1", console_log=str(other / "vm1.log")).status == 400
    running.set({"sentinel": {"console_dirs": [str(sim.root / "console"), str(other)], "scan_interval": "100ms"}})
    made = daemon.claim("vm1", console_log=str(other / "vm1.log"))
    assert made.status == 201
    running.set({"sentinel": {"console_dirs": [str(sim.root / "console")]}})
    assert daemon.claim("vm2", console_log=str(other / "vm2.log")).status == 400
    # The log that is followed already is followed on.
    (other / "vm1.log").write_text('2026/11/29 16:38:00 [guest-agent] BERTH-GPU-INIT-FAILED ts=2026-11-29T16:38:00Z '
                                   'nvrm="NVRM: GPU 0000:00:05.0: RmInitAdapter failed! (0x26:0x56:1463)"\n')
    wait_for(lambda: daemon.metric("berth_sentinel_init_failures_total") == 1, "the failure to be seen")
    assert not daemon.vfs()[made.json["vf"]]["quarantined"]
    running.set({"gpu": {"vf_quarantine_threshold": 1}})
    wait_for(lambda: daemon.vfs()[made.json["vf"]]["quarantined"], "the quarantine")


@pytest.mark.tsan
def test_marker_prefixes_and_scan_interval(sim, start_daemon, manager):
    """From an interval of an hour to a short one: at once, not at the end of the hour."""
    r = Reloadable(start_daemon(sim, {"sentinel": {"scan_interval": "1h", "marker_prefixes": ["OLD"]},
                                      "gpu": {"vf_quarantine_threshold": 1}}, **manager.options()), manager)
    log = sim.root / "console" / "vm1.log"
    made = r.daemon.claim("vm1", console_log=str(log)).json
    r.set({"sentinel": {"scan_interval": "100ms", "marker_prefixes": ["NEW"]}})
    log.write_text('2026/11/29 16:38:00 [guest-agent] NEW-GPU-INIT-FAILED ts=2026-11-29T16:38:00Z '
                   'nvrm="NVRM: GPU 0000:00:05.0: RmInitAdapter failed! (0x26:0x56:1463)"\n')
    wait_for(lambda: r.daemon.vfs()[made["vf"]]["quarantined"], "the quarantine")


def test_timeouts(sim, start_daemon, manager):
    r = Reloadable(start_daemon(sim, {"gpu": {"nvml_timeout": "1h", "card_timeout": "1h"}}, **manager.options()), manager)
    r.set({"gpu": {"nvml_timeout": "300ms"}})
    sim.ctl("set", "nvml.hang", 1)
    assert r.daemon.claim("vm1").status == 201  # by the VFs' lists
    sim.ctl("set", "nvml.hang", 0)
    r.set({"gpu": {"card_timeout": "1s"}})
    card = sim.card()["address"]
    sim.ctl("set", "sysfs.read_hang", 1, "--gpu", card)
    wait_for(lambda: r.daemon.get(f"/gpus/{card}")["stuck"], "the card to be stuck")
    sim.ctl("set", "sysfs.read_hang", 0, "--gpu", card)
    wait_for(lambda: not r.daemon.get(f"/gpus/{card}")["stuck"], "the card to come back")


def test_a_recovery_goes_on_with_what_it_began_with(sim, start_daemon, manager):
    """Its list of services gets shorter behind its back."""
    gate = sim.root / "gate"
    os.mkfifo(gate)
    done = sim.root / "done"
    services = [f"/bin/cat {gate}", f"/usr/bin/touch {done}"]
    r = Reloadable(start_daemon(sim, {"recover": {
        "services_stop": services, "sriov_manage": f"{shutil.which('true')}", "verify": "/bin/true"}},
        **manager.options()), manager)
    card = sim.card()["address"]
    assert r.daemon.request("POST", f"/gpus/{card}/recover").status == 202
    wait_for(lambda: r.daemon.get(f"/gpus/{card}")["recovery"]["step"] == "stop_services", "the first service")
    for _ in range(3):
        r.set({"recover": {"services_stop": [], "verify": "/bin/false"}})
    gate.write_text("go")
    wait_for(done.exists, "the second service")


# --- Roles and certificates -------------------------------------------------------------------------


def test_roles_change(sim, start_daemon, manager):
    host = TlsHost(sim, start_daemon, readers=["r"])
    host.daemon.restart(**manager.options())
    r = Reloadable(host.daemon, manager)
    path = "/gpus/0000:ff:00.0/recover"
    kept = host.connect("a")
    kept.request("POST", path)
    assert kept.getresponse().read() and host.request("a", "POST", path).status == 403
    r.set({"tls": {"admins": ["a"], "readers": []}})
    kept.request("POST", path)
    answer = kept.getresponse()
    answer.read()
    assert answer.status == 404
    kept.close()
    assert host.request("r", "PUT", "/claims/x", {"profile": "L40S-1Q"}).status == 201


def test_a_bad_set_of_files_keeps_everything(sim, start_daemon, manager):
    host = TlsHost(sim, start_daemon)
    host.daemon.restart(**manager.options())
    r = Reloadable(host.daemon, manager)
    good = host.server.certificate.read_bytes()
    host.server.certificate.write_text("torn")
    lines = r.set({"claims": "shared"})
    assert len(lines) == 1 and "tls.certificate" in lines[0][1]
    assert host.request("a", "PUT", "/claims/x", {"profile": "L40S-1Q"}).status == 201
    assert host.request("b", "DELETE", "/claims/x").status == 403  # not shared
    host.server.certificate.write_bytes(good)
    r.set({})
    assert host.request("b", "DELETE", "/claims/x").status == 200


def test_end_of_the_certificate_is_shown(sim, start_daemon, manager):
    host = TlsHost(sim, start_daemon)
    host.daemon.restart(**manager.options())
    days = (host.daemon.metric("berth_tls_certificate_expires_seconds") - time.time()) / 86400
    assert 29 < days <= 30
    host.ca.issue("server", dns=["localhost"], purposes=["server"], days=(-1, 60))
    Reloadable(host.daemon, manager).set({})
    days = (host.daemon.metric("berth_tls_certificate_expires_seconds") - time.time()) / 86400
    assert 59 < days <= 60


def test_tls_is_not_switched_by_a_reload(sim, start_daemon, manager):
    host = TlsHost(sim, start_daemon, admins=["boss"], readers=["r"])
    host.daemon.restart(**manager.options())
    r = Reloadable(host.daemon, manager)
    tls = host.daemon.settings.pop("tls")
    lines = r.set({})
    assert {re.search(r"key=(\S+)", line)[1] for level, line in lines if level == "warning"} == {
        "tls.certificate", "tls.key", "tls.client_ca", "tls.admins", "tls.readers"}
    assert host.request("a", "GET", "/claims").status == 200
    assert host.request(None, "GET", "/claims").status == 403
    # The listener is still there, and so are its roles.
    assert host.request("r", "PUT", "/claims/x", {"profile": "L40S-1Q"}).status == 403
    assert host.request("boss", "POST", "/gpus/0000:ff:00.0/recover").status == 404
    host.daemon.settings["tls"] = tls
    assert r.set({})[-1][1].startswith("reloaded")


# --- While it works ---------------------------------------------------------------------------------


@pytest.mark.tsan
def test_under_load(sim, start_daemon, manager):
    """Claims and releases from several sides while all that can change does."""
    daemon = start_daemon(sim, {"reconcile_interval": "100ms"}, **manager.options())
    r = Reloadable(daemon, manager)
    stop, failures, rounds = threading.Event(), [], [0] * 3

    def work(k):
        log = str(sim.root / "console" / f"vm{k}.log")
        while not stop.is_set():
            made = daemon.claim(f"vm{k}", "L40S-2Q", console_log=log)
            gone = daemon.release(f"vm{k}")
            if made.status != 201 or gone.status not in (200, 202):
                failures.append((made, gone))
                return
            wait_for(lambda: f"vm{k}" not in daemon.claims(), "the release")
            rounds[k] += 1

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    free = sim.card(1)["vfs"][-1]["address"]
    for i in range(25):
        r.set({"reconcile_interval": f"{50 + i}ms", "claims": ("owner", "shared")[i % 2],
               "unclaimed_grace": f"{i}s", "unclaimed_vfs": ("leave", "reset")[i % 2],
               "gpu": {"exclude": [free][:i % 2], "expected_mix": [f"L40S-{1 << i % 4}Q={i + 1}"],
                       "placement_policy": ("foresight", "least_waste", "least_loaded")[i % 3],
                       "card_timeout": f"{20 + i}s", "nvml_timeout": f"{10 + i}s"},
               "sentinel": {"console_dirs": [str(sim.root / "console"), f"/tmp/x{i}"], "scan_interval": f"{100 + i}ms",
                            "marker_prefixes": [f"P{i}"]},
               "recover": {"services_stop": [f"unit{i}"], "verify": f"/bin/true {i}"}})
        if failures:
            break
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert all(rounds)
    settled(sim, daemon)
    assert check_host(sim, daemon) == {}


def test_many_signals_at_once(running):
    """They may share a reload; the last settings are in force at the end."""
    daemon = running.daemon
    for i in range(60):
        daemon.configure({"reconcile_interval": f"{100 + i}s"})
        os.kill(daemon.process.pid, signal.SIGHUP)
    wait_for(lambda: 'key=reconcile_interval from' in daemon.log() and 'to="159s"' in daemon.log(), "the last reload")
    assert daemon.request("GET", "/readyz").status == 200


def test_while_starting(sim, start_daemon, manager):
    """A signal before it is ready is no ready, and ends nothing."""
    sim.ctl("set", "sysfs.read_latency_ms", 10)
    daemon = start_daemon(sim, ready=False, **manager.options())
    for _ in range(20):
        os.kill(daemon.process.pid, signal.SIGHUP)
        assert manager.count("READY") == 0 or daemon.request("GET", "/readyz").status == 200
    manager.wait("READY", "1")
    daemon.wait_ready()


def test_while_stopping(sim, start_daemon, manager):
    daemon = start_daemon(sim, **manager.options())
    os.kill(daemon.process.pid, signal.SIGHUP)
    os.kill(daemon.process.pid, signal.SIGTERM)
    os.kill(daemon.process.pid, signal.SIGHUP)
    assert daemon.process.wait(timeout=10) == 0
