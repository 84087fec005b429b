# SPDX-License-Identifier: Apache-2.0
"""berth doctor on hosts of plain files and without berthd: one test a finding. With berthd: test_doctor_daemon.py."""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import threading

import pytest
import yaml

from conftest import BIN, ROOT, wait_for
from plain_host import PlainHost

NOBODY = 65534
CARD, VF = "0000:41:00.0", "0000:41:00.4"
# What depends on the machine that the tests run on.
OF_MACHINE = {"group-missing", "clock-unsynchronised", "scan-partial", "socket-group"}


class Report:
    def __init__(self, done):
        self.status = done.returncode
        self.text = done.stdout + done.stderr
        self.json = json.loads(done.stdout)
        self.findings = self.json["findings"]
        self.checks = {c["id"]: c for c in self.json["checks"]}

    @property
    def ids(self):
        return {f["id"] for f in self.findings}

    def find(self, name):
        """The only finding of that id."""
        rows = [f for f in self.findings if f["id"] == name]
        assert len(rows) == 1, (name, self.findings)
        return rows[0]

    def worst(self):
        return max(({"info": 0, "warning": 6, "error": 7}[f["severity"]] for f in self.findings), default=0)


def doctor(*options, config=None, wrap=(), user=None, env=None, timeout=40):
    """The report of a run as JSON. user: a uid to run as."""
    command = [*wrap, BIN / "berth", "doctor", "--json", *options]
    if config:
        command += ["--config", config]
    variables = {**os.environ, **(env or {})}
    variables.pop("BERTH_SOCKET", None)
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=timeout, user=user,
                          group=user, extra_groups=[] if user else None, env=variables)
    assert done.returncode in (0, 6, 7), done
    report = Report(done)
    assert report.status == report.worst()
    return report


class Host(PlainHost):
    """A host in good health but for berthd, which does not run: a card with four VFs."""

    def __init__(self, root):
        super().__init__(root)
        self.dev = self.root / "dev"
        self.state = self.root / "state"
        self.state.mkdir(mode=0o700)
        self.console = self.root / "console"
        self.console.mkdir(mode=0o755)
        self.kubelet = self.root / "kubelet"
        self.kubelet.mkdir()
        (self.root / "sriov-manage").write_text("#!/bin/sh\n")
        (self.root / "sriov-manage").chmod(0o755)
        self.version("580.178.05")
        self.function(CARD, "nvidia")
        self.write(CARD, sriov_totalvfs="4\n")
        for i in range(4):
            self.vf(CARD, i, f"0000:41:00.{4 + i}")
        self.settings = yaml.safe_load(self.config.read_text())
        self.set(sentinel={"console_dirs": [str(self.console)]},
                 recover={"sriov_manage": str(self.root / "sriov-manage")})

    def version(self, text):
        path = self.sys / "module/nvidia/version"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")

    def set(self, **settings):
        for key, value in settings.items():
            if isinstance(value, dict):
                self.settings.setdefault(key, {}).update(value)
            else:
                self.settings[key] = value
        self.config.write_text(yaml.safe_dump(self.settings))

    def doctor(self, *options, **more):
        return doctor("--kubelet-dir", self.kubelet, *options, config=self.config, **more)


@pytest.fixture
def host(work):
    return Host(work / "host")


def can_unshare(*options):
    return subprocess.run(["unshare", *options, "true"], capture_output=True).returncode == 0


def in_mounts(command):
    """Runs a shell command in a mount namespace of its own before berth doctor."""
    if not can_unshare("-m"):
        pytest.skip("no mount namespace can be made here")
    return ("unshare", "-m", "sh", "-c", f'{command} && exec "$@"', "sh")


# --- In good health -------------------------------------------------------------------------------

def test_healthy_host_without_berthd(host):
    report = host.doctor()
    assert report.ids - OF_MACHINE == {"daemon-absent", "nvml-off"}
    assert report.status == 6
    skipped = {c for c, row in report.checks.items() if row["state"] == "skipped"}
    # What only berthd knows is never called ok; nor what only NVML knows.
    assert skipped >= {"stores", "claims", "health", "reconcile", "mode"}
    assert all(row["reason"] for row in report.checks.values() if row["state"] == "skipped")
    assert {"config", "cards", "vfs", "vfio", "sysfs", "driver", "response", "data", "consoles", "tls",
            "plugin"} <= {c for c, row in report.checks.items() if row["state"] == "ok"}
    assert report.find("daemon-absent")["subject"] == host.settings["socket"]


def test_every_finding_has_a_test_and_a_place_in_the_manual():
    done = subprocess.run([BIN / "berth", "doctor", "--list", "--json"], capture_output=True, text=True)
    rows = json.loads(done.stdout)["findings"]
    tests = "".join((pathlib.Path(__file__).parent / n).read_text()
                    for n in ("test_doctor.py", "test_doctor_daemon.py"))
    tests += (ROOT / "tests/unit/test-doctor.c").read_text()
    manual = (ROOT / "man/berth-doctor.7.scd").read_text()
    documented = {m[1]: m[2] for m in re.finditer(r"^\*([a-z0-9-]+)\* \((info|warning|error)\)$", manual, re.M)}
    assert documented == {r["id"]: r["severity"] for r in rows}
    assert not [r["id"] for r in rows if f'"{r["id"]}"' not in tests]
    text = subprocess.run([BIN / "berth", "doctor", "--list"], capture_output=True, text=True).stdout
    assert [line.split()[0] for line in text.splitlines() if line[0] != " "] == [r["id"] for r in rows]


def test_text_says_what_why_and_how(host):
    (host.devices / VF / "driver").unlink()
    host.link(VF, "driver", "../../drivers/vfio-pci")
    done = subprocess.run([BIN / "berth", "doctor", "--config", host.config], capture_output=True, text=True)
    assert done.returncode == 6 and not done.stderr
    for words in ("warning vf-wrong-driver  0000:41:00.0", "VF 0000:41:00.4: bound to vfio-pci", "managed='no'",
                  "Not looked at, or not in full:", "0 errors, 2 warnings"):
        assert words in done.stdout
    assert "\033" not in done.stdout
    assert max(map(len, (l for l in done.stdout.splitlines() if not l.startswith("        ")))) <= 80


def test_usage():
    def run(*options):
        return subprocess.run([BIN / "berth", "doctor", *options], capture_output=True, text=True)

    assert run("--no-such").returncode == 2
    assert run("word").returncode == 2
    assert "Exit status: 0 nothing to mend, 6 warnings, 7 errors" in run("--help").stdout


# --- Settings -------------------------------------------------------------------------------------

def test_config_invalid_names_line_and_key(host):
    """F18"""
    host.config.write_text("data_dir: /var/lib/berth\ngpu:\n  exclud: []\n")
    report = host.doctor()
    assert "berthd.yaml:3: gpu.exclud: unknown key (did you mean exclude?)" in report.find("config-invalid")["what"]
    assert report.status == 7 and report.checks["config"]["reason"]


def test_config_unreadable(host):
    host.config.unlink()
    assert "cannot be read" in host.doctor().find("config-unreadable")["what"]


def test_config_defaults(host):
    if pathlib.Path("/etc/berth/berthd.yaml").exists():
        pytest.skip("this machine has /etc/berth/berthd.yaml")
    assert doctor("--no-nvml").find("config-defaults")["severity"] == "info"


def test_exclude_unknown(host):
    host.set(gpu={"exclude": ["0000:42:00.0", VF]})
    assert host.doctor().find("exclude-unknown")["subject"] == "0000:42:00.0"


# --- The socket -----------------------------------------------------------------------------------

class Listener:
    """Something that listens on berthd's socket and answers every request with `answer`, or not at all."""

    def __init__(self, path, answer=None):
        self.answer = answer
        self.peers = []
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(path)
        self.socket.listen(8)
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while True:
            try:
                peer = self.socket.accept()[0]
            except OSError:
                return
            self.peers.append(peer)
            if self.answer is not None:
                try:
                    peer.recv(65536)
                    peer.sendall(self.answer)
                except OSError:
                    pass
                peer.close()

    def stop(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join(10)
        self.socket.close()
        for peer in self.peers:
            peer.close()


@pytest.fixture
def listen(host):
    started = []

    def start(answer=None):
        started.append(Listener(host.settings["socket"], answer))
        return started[-1]

    yield start
    for listener in started:
        listener.stop()


def test_daemon_refused(host):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(host.settings["socket"])
    assert host.doctor().find("daemon-refused")["severity"] == "warning"


@pytest.mark.parametrize("answer", [None, b"no HTTP at all\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"],
                         ids=["nothing", "nonsense", "list"])
def test_daemon_silent(host, listen, answer):
    listen(answer)
    report = host.doctor()
    assert report.find("daemon-silent")["severity"] == "error"
    assert report.checks["stores"]["state"] == "skipped"


class Routes(Listener):
    """Answers each path as berthd would, but for what `answers` says: {path: (status, JSON)}."""

    STATUS = {"version": "0", "ready": True, "claims_store": {"state": "ready"}, "health_store": {"state": "ready"},
              "sysfs_read_only": False, "nvml": {"state": "in_use", "reason": None},
              "reconcile": {"interval_ms": 60000, "failures": []}, "placements_age_ms": 5}

    def __init__(self, path, answers):
        self.routes = {"/status": (200, self.STATUS), "/gpus": (200, {"gpus": []}), "/claims": (200, {"claims": []}),
                       **answers}
        super().__init__(path)

    def serve(self):
        while True:
            try:
                peer = self.socket.accept()[0]
            except OSError:
                return
            with peer:
                request = peer.recv(65536).decode()
                if not request:
                    continue
                status, answer = self.routes[request.split()[1]]
                body = json.dumps(answer).encode()
                try:
                    peer.sendall(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)
                except OSError:
                    pass


@pytest.fixture
def routes(host):
    started = []

    def start(**answers):
        started.append(Routes(host.settings["socket"], {f"/{k}": v for k, v in answers.items()}))
        return started[-1]

    yield start
    for listener in started:
        listener.stop()


@pytest.mark.parametrize("answers", [
    {"gpus": (503, {"code": "not_ready"})},
    {"gpus": (200, {"gpus": "none"})}, {"claims": (200, {})}, {"gpus": (200, {"gpus": [None]})}],
    ids=["gpus-503", "gpus-text", "no-claims", "gpu-null"])
def test_an_answer_that_tells_nothing_is_not_ok(host, routes, answers):
    routes(**answers)
    report = host.doctor()
    assert report.find("daemon-silent")["severity"] == "error"
    for check in ("claims", "health", "reconcile", "stores"):
        assert report.checks[check]["state"] == "skipped", check


def test_claims_that_are_refused_are_not_ok(host, routes):
    """As berthd does while it cannot read them; what else it says is of use."""
    routes(claims=(503, {"code": "not_ready"}))
    report = host.doctor()
    assert "503" in report.checks["claims"]["reason"] and report.checks["claims"]["state"] == "skipped"
    assert report.checks["reconcile"]["state"] == "ok" and "daemon-silent" not in report.ids


@pytest.mark.parametrize("status", [{}, {"nvml": 5, "reconcile": [], "settings": 3}], ids=["empty", "odd"])
def test_a_status_that_tells_nothing_is_not_ok(host, routes, status):
    routes(status=(200, status))
    host.set(nvml_library="libnvidia-ml.so.1")
    report = host.doctor("--no-nvml")
    for check in ("stores", "sysfs", "nvml", "reconcile"):
        assert report.checks[check]["state"] == "skipped", check


def test_placements_that_are_not_known_yet_are_not_ok(host, routes):
    routes(status=(200, {**Routes.STATUS, "placements_age_ms": None}))
    host.set(nvml_library="libnvidia-ml.so.1")
    assert "no placements from it yet" in host.doctor("--no-nvml").checks["nvml"]["reason"]


def test_vfs_that_the_daemon_does_not_list_are_not_ok(host, routes):
    routes()
    assert host.doctor().checks["vfs"]["state"] == "skipped"


def test_more_findings_than_anybody_reads(host, routes):
    """The report is cut, and says so; it is not lost."""
    claims = [{"name": f"vm{i}", "problem": "vf_missing", "vf": None} for i in range(3000)]
    routes(claims=(200, {"claims": claims}))
    report = host.doctor()
    assert len(report.findings) <= 2000 and report.status == 6
    assert "more findings" in report.checks["claims"]["reason"]


def test_daemon_version_of_one_that_knows_no_status(host, listen):
    body = b'{"code":"not_found"}'
    listen(b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    report = host.doctor()
    assert report.find("daemon-version")["severity"] == "warning"
    assert "too old" in report.checks["stores"]["reason"]


def as_nobody(host):
    """Lets everybody pass the folders above, as on a real host."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    for folder in (host.root.parent, host.root):
        folder.chmod(0o755)
    if subprocess.run([BIN / "berth", "--version"], user=NOBODY, capture_output=True).returncode != 0:
        pytest.skip(f"{BIN} is closed to other users")


def test_daemon_forbidden_and_not_root(host, listen):
    """Without root everything that could not be seen is said, and nothing of it is called ok."""
    try:
        as_nobody(host)
    except PermissionError:
        pytest.skip(f"{BIN} is closed to other users")
    listen()
    os.chmod(host.settings["socket"], 0o660)
    (host.state / "gpu").mkdir()
    report = host.doctor(user=NOBODY)
    assert {"daemon-forbidden", "not-root", "group-not-member"} <= report.ids
    assert not {"data-dir-unusable", "console-dir-unreadable", "card-held", "scan-blind"} & report.ids
    for check in ("data", "handles", "recover", "stores"):
        assert report.checks[check]["state"] == "skipped", check
    assert report.checks["cards"]["state"] == "ok"


def test_socket_open(host, listen):
    listen(b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n")
    os.chmod(host.settings["socket"], 0o666)
    assert "0666" in host.doctor().find("socket-open")["what"]
    os.chmod(host.settings["socket"], 0o660)
    assert "socket-open" not in host.doctor().ids


def test_group_missing_and_socket_group(host, listen):
    listen(b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n")
    group = host.root / "group"
    group.write_text("root:x:0:\n")
    wrap = in_mounts(f"mount --bind {group} /etc/group")
    report = host.doctor(wrap=wrap)
    assert "group-missing" in report.ids and "socket-group" not in report.ids
    group.write_text("root:x:0:\nberth:x:4242:\n")
    report = host.doctor(wrap=wrap)
    assert "group-missing" not in report.ids
    assert "4242" in report.find("socket-group")["what"]
    os.chown(host.settings["socket"], 0, 4242)
    assert not {"group-missing", "socket-group"} & host.doctor(wrap=wrap).ids


# --- Files ----------------------------------------------------------------------------------------

def test_data_dir_unusable(host):
    host.state.rmdir()
    host.state.write_text("")
    assert "Not a directory" in host.doctor().find("data-dir-unusable")["what"]


def test_data_dir_not_there_yet(host):
    host.state.rmdir()
    report = host.doctor()
    assert "makes it at its first start" in report.checks["data"]["reason"] and report.status == 6


@pytest.mark.parametrize("mode, name", [(0o770, "data-dir-writable"), (0o707, "data-dir-writable"),
                                        (0o750, "data-dir-readable"), (0o701, "data-dir-readable"), (0o700, None)])
def test_data_dir_mode(host, mode, name):
    host.state.chmod(mode)
    found = host.doctor().ids & {"data-dir-writable", "data-dir-readable"}
    assert found == ({name} if name else set())


def test_disk_low(host):
    report = host.doctor(wrap=in_mounts(f"mount -t tmpfs -o size=1m,mode=700 t {host.state} && "
                                        f"dd if=/dev/zero of={host.state}/x bs=64k count=16 status=none; true"))
    assert report.find("disk-low")["subject"] == str(host.state)
    assert "disk-low" not in host.doctor().ids


def test_health_file(host):
    path = host.state / "gpu/vf-health.json"
    path.parent.mkdir()
    path.write_text('{"version": 1, "records": []}')
    path.chmod(0o600)
    assert not {"health-file-writable", "health-file-invalid"} & host.doctor().ids
    path.chmod(0o660)
    assert "0660" in host.doctor().find("health-file-writable")["what"]
    path.write_text('{"version": 1, "records": []}"}')
    report = host.doctor()
    assert report.find("health-file-invalid")["subject"] == str(path) and report.status == 7


def into(path, what):
    """Puts something there that is no file with text."""
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    {"fifo": lambda: os.mkfifo(path), "folder": path.mkdir, "loop": lambda: path.symlink_to(path),
     "empty": path.touch, "zero": lambda: path.symlink_to("/dev/zero")}[what]()


@pytest.mark.parametrize("what", ["fifo", "folder", "loop", "zero"])
def test_health_file_is_something_else(host, what):
    (host.state / "gpu").mkdir()
    into(host.state / "gpu/vf-health.json", what)
    assert host.doctor().find("health-file-invalid")["severity"] == "error"


def test_health_folder_is_a_file(host):
    (host.state / "gpu").touch()
    assert "Not a directory" in host.doctor().find("health-file-invalid")["what"]


def test_every_console_dir_is_looked_at(host):
    folders = [host.root / f"console{i}" for i in range(80)]
    for folder in folders:
        folder.mkdir(mode=0o755)
    host.set(sentinel={"console_dirs": list(map(str, folders))})
    assert host.doctor().checks["consoles"]["state"] == "ok"
    folders[70].chmod(0o777)
    assert host.doctor().find("console-dir-writable")["subject"] == str(folders[70])


@pytest.mark.parametrize("what", ["fifo", "folder", "empty"])
def test_boot_id_is_something_else(host, what):
    into(host.root / "boot_id", what)
    assert host.doctor().find("boot-id-unreadable")["severity"] == "error"


@pytest.mark.parametrize("what", ["fifo", "folder", "zero"])
def test_config_is_something_else(host, what):
    """A FIFO without a writer reads like an empty file, and that like all defaults."""
    into(host.config, what)
    report = host.doctor()
    assert report.ids & {"config-unreadable", "config-invalid"} and report.checks["config"]["state"] != "ok"


def test_console_dir_missing(host):
    host.set(sentinel={"console_dirs": [str(host.console), str(host.root / "none")]})
    assert host.doctor().find("console-dir-missing")["subject"] == str(host.root / "none")


def test_console_dir_writable(host):
    host.console.chmod(0o1777)
    assert "1777" in host.doctor().find("console-dir-writable")["what"]


def test_console_dir_unreadable(host):
    host.console.rmdir()
    host.console.write_text("")
    assert "Not a directory" in host.doctor().find("console-dir-unreadable")["what"]


def test_tls_files(host):
    paths = {k: host.root / f"{k}.pem" for k in ("certificate", "key", "client_ca")}
    for path in paths.values():
        path.write_text("x")
    paths["key"].chmod(0o600)
    host.set(tls={k: str(p) for k, p in paths.items()})
    assert not {"tls-key-open", "tls-file-missing"} & host.doctor().ids
    paths["key"].chmod(0o640)
    assert host.doctor().find("tls-key-open")["subject"] == str(paths["key"])
    paths["client_ca"].unlink()
    assert host.doctor().find("tls-file-missing")["subject"] == str(paths["client_ca"])


def test_boot_id_unreadable(host):
    (host.root / "boot_id").unlink()
    assert host.doctor().find("boot-id-unreadable")["severity"] == "error"


# --- Cards and VFs --------------------------------------------------------------------------------

def test_host_unreadable(host):
    host.set(sysfs_root=str(host.root / "none"))
    report = host.doctor()
    assert report.find("host-unreadable")["severity"] == "error"
    assert all(report.checks[c]["state"] == "skipped" for c in ("vfs", "vfio", "sysfs"))


def test_exclude_is_not_judged_where_nothing_could_be_listed(host):
    host.set(sysfs_root=str(host.root / "none"), gpu={"exclude": [CARD]})
    report = host.doctor()
    assert "exclude-unknown" not in report.ids and report.checks["config"]["state"] == "skipped"


def test_sysfs_without_a_file_to_write_is_not_ok(host):
    for i in range(4):
        shutil.rmtree(host.devices / f"0000:41:00.{4 + i}/nvidia")
    assert host.doctor().checks["sysfs"]["state"] == "skipped"


def test_no_card(host):
    for path in list(host.devices.iterdir()):
        shutil.rmtree(path)
    assert host.doctor().find("no-card")["severity"] == "warning"


def test_card_unreadable(host):
    host.write(CARD, sriov_totalvfs="many\n")
    assert "sriov_totalvfs" in host.doctor().find("card-unreadable")["what"]


def test_card_wrong_driver(host):
    host.function("0000:81:00.0", "nouveau")
    host.write("0000:81:00.0", sriov_totalvfs="32\n")
    row = host.doctor().find("card-wrong-driver")
    assert (row["subject"], row["what"]) == ("0000:81:00.0", "bound to nouveau")


def test_card_no_vfs(host):
    """F09"""
    host.function("0000:81:00.0", "nvidia")
    host.write("0000:81:00.0", sriov_totalvfs="32\n")
    row = host.doctor().find("card-no-vfs")
    assert row["subject"] == "0000:81:00.0" and "sriov-manage -e 0000:81:00.0" in row["how"]


def test_card_and_vf_excluded(host):
    host.function("0000:81:00.0", "vfio-pci")
    host.write("0000:81:00.0", sriov_totalvfs="32\n")
    host.set(gpu={"exclude": ["0000:81:00.0", VF]})
    report = host.doctor()
    assert report.find("card-excluded")["subject"] == "0000:81:00.0"
    assert VF in report.find("vf-excluded")["what"]
    # What is excluded on purpose lacks nothing.
    assert not {"card-wrong-driver", "exclude-unknown"} & report.ids


def test_passthrough_only(host):
    for path in list(host.devices.iterdir()):
        shutil.rmtree(path)
    host.function(CARD, "vfio-pci")
    report = host.doctor()
    assert report.find("passthrough-only")["severity"] == "info"
    assert not {"no-card", "card-wrong-driver", "card-no-vfs"} & report.ids


def test_mdev_framework(host):
    for i in range(4):
        shutil.rmtree(host.devices / f"0000:41:00.{4 + i}/nvidia")
        (host.devices / f"0000:41:00.{4 + i}/mdev_supported_types").mkdir()
    report = host.doctor()
    assert report.find("mdev-framework")["severity"] == "error" and "vf-no-interface" not in report.ids


def test_numa_unknown(host):
    for node in ("node0", "node1"):
        (host.sys / "devices/system/node" / node).mkdir(parents=True)
    assert "numa-unknown" not in host.doctor().ids
    host.write(CARD, numa_node="-1\n")
    assert host.doctor().find("numa-unknown")["severity"] == "info"
    # On a machine with one node nothing depends on it.
    (host.sys / "devices/system/node/node1").rmdir()
    assert "numa-unknown" not in host.doctor().ids


def test_vf_wrong_driver(host):
    """F08"""
    for i in range(3):
        vf = f"0000:41:00.{4 + i}"
        host.link(vf, "driver", "../../drivers/vfio-pci")
        shutil.rmtree(host.devices / vf / "nvidia")
    row = host.doctor().find("vf-wrong-driver")
    assert row["what"] == "3 VFs, the first is 0000:41:00.4: bound to vfio-pci instead of nvidia"
    assert "managed='no'" in row["how"]


def test_vf_bound_to_nothing(host):
    (host.devices / VF / "driver").unlink()
    assert host.doctor().find("vf-wrong-driver")["what"] == f"VF {VF}: bound to no driver"


def test_vf_no_interface(host):
    for i in range(4):
        shutil.rmtree(host.devices / f"0000:41:00.{4 + i}/nvidia")
    report = host.doctor()
    assert report.find("vf-no-interface")["severity"] == "error" and "vf-wrong-driver" not in report.ids


def test_vf_unreadable(host):
    (host.devices / VF / "nvidia/current_vgpu_type").write_text("none\n")
    assert VF in host.doctor().find("vf-unreadable")["what"]


def test_configured_vfs_are_told(host):
    assert "vf-unclaimed" not in host.doctor().ids
    (host.devices / VF / "nvidia/current_vgpu_type").write_text("1150\n")
    assert "type 1150" in host.doctor().find("vf-unclaimed")["what"]


# --- VFIO and sysfs -------------------------------------------------------------------------------

def test_vfio_missing(host):
    shutil.rmtree(host.dev / "vfio")
    report = host.doctor()
    assert report.find("vfio-missing")["severity"] == "error" and "vfio-node-missing" not in report.ids


def test_vfio_node_missing(host):
    group = os.readlink(host.devices / VF / "iommu_group").rsplit("/", 1)[1]
    (host.dev / "vfio" / group).unlink()
    assert f"vfio/{group}" in host.doctor().find("vfio-node-missing")["what"]


def test_vf_without_a_group_beside_others(host):
    (host.devices / VF / "iommu_group").unlink()
    row = host.doctor().find("vfio-node-missing")
    assert row["what"] == f"VF {VF}: it is in no IOMMU group"


def test_iommu_off(host):
    for path in host.devices.iterdir():
        (path / "iommu_group").unlink()
    assert "none of 4 VFs" in host.doctor().find("iommu-off")["what"]


def test_iommu_group_shared(host):
    group = os.readlink(host.devices / VF / "iommu_group")
    host.link("0000:41:00.5", "iommu_group", group)
    row = host.doctor().find("iommu-group-shared")
    assert row["what"].startswith("2 VFs, the first is 0000:41:00.4")


def test_sysfs_read_only(host):
    """F12"""
    wrap = in_mounts(f"mount --bind {host.sys} {host.sys} && mount -o remount,ro,bind {host.sys}")
    assert host.doctor(wrap=wrap).find("sysfs-read-only")["severity"] == "error"
    assert "sysfs-read-only" not in host.doctor().ids


# --- Driver and NVML ------------------------------------------------------------------------------

@pytest.mark.parametrize("version, name", [("535.129.03", "driver-too-old"), ("550.144.02", "driver-before-570"),
                                           ("570.86.10", None)])
def test_driver_branch(host, version, name):
    host.version(version)
    found = host.doctor().ids & {"driver-too-old", "driver-before-570"}
    assert found == ({name} if name else set())


def test_driver_version_unknown_is_not_ok(host):
    (host.sys / "module/nvidia/version").unlink()
    assert host.doctor().checks["driver"]["state"] == "skipped"


def test_nvml_library_missing(host):
    """F54"""
    host.set(nvml_library=str(host.root / "libnvidia-ml.so.1"))
    row = host.doctor().find("nvml-library-missing")
    assert "libnvidia-ml.so.1" in row["what"] and row["severity"] == "error"


def test_nvml_library_unusable(host):
    library = host.root / "libnvidia-ml.so.1"
    # An ELF header of a 32-bit machine.
    library.write_bytes(b"\x7fELF\x01\x01\x01" + bytes(200))
    host.set(nvml_library=str(library))
    assert "nvml-library-unusable" in host.doctor().ids


def test_nvml_helper_missing(host):
    host.set(nvml_library=str(host.root / "libnvidia-ml.so.1"))
    report = host.doctor(env={"BERTH_HELPER_DIR": str(host.console)})
    assert report.find("nvml-helper-missing")["severity"] == "error"


def test_no_nvml(host):
    host.set(nvml_library=str(host.root / "libnvidia-ml.so.1"))
    report = host.doctor("--no-nvml")
    assert report.checks["nvml"]["state"] == "skipped" and "--no-nvml" in report.checks["nvml"]["reason"]


# --- Processes ------------------------------------------------------------------------------------

def test_scan_blind(host):
    if not shutil.which("setpriv"):
        pytest.skip("setpriv is not installed")
    report = host.doctor(wrap=("setpriv", "--bounding-set=-sys_ptrace"))
    assert "CAP_SYS_PTRACE" in report.find("scan-blind")["what"]
    assert "scan-blind" not in host.doctor().ids


def test_scan_partial(host):
    if not can_unshare("-Ur"):
        pytest.skip("no user namespace can be made here")
    assert host.doctor(wrap=("unshare", "-Ur")).find("scan-partial")["severity"] == "info"


def test_card_held_and_services_stop_empty(host):
    node = host.dev / "nvidiactl"
    node.write_text("")
    assert not {"card-held", "services-stop-empty"} & host.doctor().ids
    with open(node):
        report = host.doctor()
        assert f"pid {os.getpid()} " in report.find("card-held")["what"]
        assert "services_stop: [" in report.find("services-stop-empty")["how"]
        host.set(recover={"services_stop": ["nvidia-dcgm.service"]})
        report = host.doctor()
        assert "card-held" in report.ids and "services-stop-empty" not in report.ids


def test_services_stop_empty_names_the_units(host):
    """A /proc of plain files: process 7 is a service that has a node open."""
    (host.dev / "nvidia0").write_text("")
    process = host.root / "proc/7"
    (process / "fd").mkdir(parents=True)
    (process / "fd/3").symlink_to(host.dev / "nvidia0")
    (process / "comm").write_text("nvidia-persiste\n")
    (process / "cgroup").write_text("0::/system.slice/nvidia-persistenced.service\n")
    host.set(proc_root=str(host.root / "proc"))
    row = host.doctor().find("services-stop-empty")
    assert row["subject"] == "nvidia-persistenced.service"
    assert "services_stop: [nvidia-persistenced.service]" in row["how"]


def test_services_of_the_vgpu_driver_are_not_in_the_way(host):
    node = host.dev / "nvidia0"
    node.write_text("")
    manager = host.root / "nvidia-vgpu-mgr"
    shutil.copy("/bin/sleep", manager)
    with open(node) as file:
        process = subprocess.Popen([manager, "60"], pass_fds=[file.fileno()])
    try:
        wait_for(lambda: pathlib.Path(f"/proc/{process.pid}/comm").read_text() == "nvidia-vgpu-mgr\n", "exec")
        assert not {"card-held", "services-stop-empty"} & host.doctor().ids
    finally:
        process.kill()
        process.wait()


def test_sriov_manage_missing(host):
    (host.root / "sriov-manage").chmod(0o644)
    assert "not executable" in host.doctor().find("sriov-manage-missing")["what"]
    (host.root / "sriov-manage").unlink()
    (host.root / "sriov-manage").mkdir()
    assert "no file" in host.doctor().find("sriov-manage-missing")["what"]
    (host.root / "sriov-manage").rmdir()
    assert "No such file" in host.doctor().find("sriov-manage-missing")["what"]


@pytest.mark.parametrize("name", ["kubevirt-NVIDIA_L40S-4Q.sock", "berth-0123456789abcdef-0.sock"])
def test_plugin_and_reset_by_socket(host, name):
    assert "plugin-and-reset" not in host.doctor().ids
    (host.kubelet / name).touch()
    assert name in host.doctor().find("plugin-and-reset")["what"]
    host.set(gpu={"exclude": [CARD]})
    assert "plugin-and-reset" not in host.doctor().ids
    host.set(gpu={"exclude": []}, unclaimed_vfs="leave")
    assert "plugin-and-reset" not in host.doctor().ids


@pytest.mark.parametrize("what", ["fifo", "loop"])
def test_sockets_of_plugins_that_cannot_be_listed_are_not_ok(host, what):
    into(host.kubelet, what)
    assert str(host.kubelet) in host.doctor().checks["plugin"]["reason"]


def test_sockets_of_plugins_are_closed_to_others(host):
    """As the kubelet's folder is."""
    try:
        as_nobody(host)
    except PermissionError:
        pytest.skip(f"{BIN} is closed to other users")
    host.kubelet.chmod(0o700)
    assert host.doctor(user=NOBODY).checks["plugin"]["state"] == "skipped"
    host.kubelet.rmdir()  # no kubelet, no plugin
    assert host.doctor(user=NOBODY).checks["plugin"]["state"] == "ok"


def test_plugin_and_reset_by_process(host):
    """One that offers this host's VFs; another simulated host's is none of it."""
    plugin = host.root / "berth-device-plugin"
    plugin.write_text("#!/bin/sh\nread x\n")
    plugin.chmod(0o755)
    for root, found in ((host.sys, True), (host.console, False)):
        process = subprocess.Popen([plugin, "--sysfs-root", root], stdin=subprocess.PIPE)
        try:
            comm = pathlib.Path(f"/proc/{process.pid}/comm")
            wait_for(lambda: comm.read_text() == "berth-device-pl\n", "exec")
            report = host.doctor()
            assert ("plugin-and-reset" in report.ids) is found
            assert not found or f"pid {process.pid}" in report.find("plugin-and-reset")["what"]
        finally:
            process.stdin.close()
            process.wait()


def test_names_from_outside_do_no_harm(host):
    """A process may be called anything."""
    node = host.dev / "nvidiactl"
    node.write_text("")
    evil = host.root / "a\033[31mb"
    shutil.copy("/bin/sleep", evil)
    with open(node) as file:
        process = subprocess.Popen([evil, "60"], pass_fds=[file.fileno()])
    try:
        wait_for(lambda: pathlib.Path(f"/proc/{process.pid}/exe").resolve() == evil, "exec")
        assert "(a?[31mb)" in host.doctor().find("card-held")["what"]
        done = subprocess.run([BIN / "berth", "doctor", "--config", host.config], capture_output=True, text=True)
        assert "card-held" in done.stdout and "\033" not in done.stdout
    finally:
        process.kill()
        process.wait()
