# SPDX-License-Identifier: Apache-2.0
"""What the system tests share: the simulated host, and waiting for things with a limit.

Programs come from BERTH_BIN, else from build/bin. Each test has its own simulator; after a test
nothing may be mounted below its folder and none of its processes may be left.
"""
import errno
import http.client
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pytest
import yaml

import openapi

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BERTH_BIN", ROOT / "build" / "bin"))


def wait_for(condition, what="condition", seconds=10):
    """Polls until condition() is true and returns what it gave; fails after the limit."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            pytest.fail(f"waited {seconds} s in vain for: {what}")
        time.sleep(0.01)


def errno_of(action, *args):
    """Name of the errno that action(*args) fails with, None if it works."""
    try:
        action(*args)
    except OSError as e:
        return errno.errorcode[e.errno]
    return None


class CtlError(Exception):
    def __init__(self, status, message):
        super().__init__(f"exit {status}: {message}")
        self.status = status
        self.message = message


class Sim:
    """One `berth-sim run`; paths and commands of the host it simulates."""

    def __init__(self, root, *options):
        self.root = pathlib.Path(root)
        self.sys = self.root / "sys"
        self.dev = self.root / "dev"
        self.config = self.root / "berthd.yaml"
        self.process = subprocess.Popen(
            [BIN / "berth-sim", "run", "--root", str(root), *map(str, options)],
            stdout=subprocess.PIPE, text=True)
        ready = select.select([self.process.stdout], [], [], 10)[0]
        line = self.process.stdout.readline() if ready else ""
        if line != f"ready {root}\n":
            self.process.kill()
            self.process.wait()
            raise RuntimeError(f"berth-sim did not get ready: {line!r}")

    def ctl(self, *args, check=True):
        """Runs a ctl command and returns its output. check=False: the finished process instead."""
        done = subprocess.run([BIN / "berth-sim", "ctl", "--root", str(self.root), *map(str, args)],
                              capture_output=True, text=True, timeout=60)
        if not check:
            return done
        if done.returncode:
            raise CtlError(done.returncode, done.stderr.strip())
        return done.stdout

    def state(self):
        return json.loads(self.ctl("state"))

    def card(self, index=0):
        return self.state()["cards"][index]

    def vf(self, address):
        """The state of one VF."""
        for card in self.state()["cards"]:
            for vf in card["vfs"]:
                if vf["address"] == address:
                    return vf
        raise KeyError(address)

    def counters(self):
        return self.state()["counters"]

    def boot(self, vf, *options):
        """Boots a guest on a VF and returns its pid."""
        return int(self.ctl("boot", vf, *options))

    def attribute(self, vf, name):
        """Path of a file in a VF's nvidia/ folder."""
        return self.sys / "bus/pci/devices" / vf / "nvidia" / name

    def read(self, vf, name):
        return self.attribute(vf, name).read_text()

    def write(self, vf, name, value):
        """One write(2); raises OSError with the driver's errno."""
        fd = os.open(self.attribute(vf, name), os.O_WRONLY)
        try:
            os.write(fd, str(value).encode())
        finally:
            os.close(fd)

    def listed(self, vf):
        """{id: name} of creatable_vgpu_types."""
        rows = [line.split(":", 1) for line in self.read(vf, "creatable_vgpu_types").splitlines()[1:]]
        return {int(number): name.strip() for number, name in rows}

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        status = self.process.wait(timeout=20)
        self.process.stdout.close()
        assert not mounts_below(self.root)
        return status


class Answer:
    """What berthd answered: status, headers, and the body as bytes and, where it is, as JSON."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        """`code` of a problem answer."""
        return self.json["code"]

    def __repr__(self):
        return f"Answer({self.status}, {self.body[:400]!r})"


class UnixConnection(http.client.HTTPConnection):
    """http.client over a Unix socket."""

    def __init__(self, path, timeout=20):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def request_over(connection, method, path, body=None):
    """One request on an open connection."""
    data = None if body is None else json.dumps(body)
    headers = {} if data is None else {"Content-Type": "application/json"}
    connection.request(method, path, data, headers)
    answer = connection.getresponse()
    body = answer.read()
    openapi.check(method, path, answer.status, answer.getheader("Content-Type"), body)
    return Answer(answer.status, dict(answer.getheaders()), body)


def parse_metrics(text):
    """{'name{label="x"}': value} of a Prometheus text."""
    rows = (line.rsplit(" ", 1) for line in text.splitlines() if line and line[0] != "#")
    return {name: float(value) for name, value in rows}


class Daemon:
    """berthd on a simulated host. `settings` go over the simulator's yaml: {"gpu": {"exclude": []}}."""

    def __init__(self, sim, settings=None, **options):
        self.sim = sim
        self.config = sim.root / "daemon.yaml"
        self.log_path = sim.root / "berthd.log"
        self.settings = yaml.safe_load(sim.config.read_text())
        self.process = None
        self.configure(settings or {})
        self.start(**options)

    @property
    def socket(self):
        return self.settings["socket"]

    @property
    def data_dir(self):
        return pathlib.Path(self.settings["data_dir"])

    def configure(self, settings):
        """Merges settings into those for the next start."""
        for key, value in settings.items():
            if isinstance(value, dict):
                self.settings.setdefault(key, {}).update(value)
            else:
                self.settings[key] = value
        self.config.write_text(yaml.safe_dump(self.settings))

    def start(self, env=None, fault=None, ready=True, wrap=(), pass_fds=()):
        """fault: a fault point, "NAME" or "NAME:N". ready=False: only until the socket answers;
        ready=None: does not wait. wrap: a command that berthd is run by."""
        variables = {**os.environ, **(env or {})}
        if fault:
            variables["BERTH_FAULT"] = fault
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([*wrap, BIN / "berthd", "--config", str(self.config)],
                                            stdout=log, stderr=log, env=variables, pass_fds=pass_fds)
        if ready is not None:
            self.wait_answering()
        if ready:
            self.wait_ready()

    def wait_answering(self):
        def answers():
            if self.process.poll() is not None:
                pytest.fail(f"berthd ended with {self.process.returncode}:\n{self.log()}")
            return self.try_request("GET", "/healthz")

        wait_for(answers, "berthd to answer")

    def wait_ready(self, seconds=20):
        def ready():
            if self.process.poll() is not None:
                pytest.fail(f"berthd ended with {self.process.returncode}:\n{self.log()}")
            answer = self.try_request("GET", "/readyz")
            return answer and answer.status == 200

        wait_for(ready, "/readyz", seconds)

    def connect(self, timeout=20):
        return UnixConnection(self.socket, timeout)

    def request(self, method, path, body=None, timeout=20):
        connection = self.connect(timeout)
        try:
            return request_over(connection, method, path, body)
        finally:
            connection.close()

    def try_request(self, method, path, body=None, timeout=20):
        """None where the daemon is not there, or dies before it has answered."""
        try:
            return self.request(method, path, body, timeout)
        except (OSError, http.client.HTTPException):
            return None

    def get(self, path):
        """The JSON of a GET that has to succeed."""
        answer = self.request("GET", path)
        assert answer.status == 200, answer
        return answer.json

    def claim(self, name, profile="L40S-4Q", timeout=30, **fields):
        return self.request("PUT", f"/claims/{name}", {"profile": profile, **fields}, timeout)

    def release(self, name, timeout=30):
        return self.request("DELETE", f"/claims/{name}", timeout=timeout)

    def claims(self):
        """{name: claim}"""
        return {c["name"]: c for c in self.get("/claims")["claims"]}

    def vfs(self):
        """{address: VF}"""
        return {v["address"]: v for v in self.get("/vfs")["vfs"]}

    def resources(self):
        return self.get("/resources")["gpu"]

    def available(self):
        """{profile: available}, names as in requests (without "NVIDIA ")."""
        return {p["name"].removeprefix("NVIDIA "): p["available"]
                for p in self.resources()["profiles"]}

    def metrics(self):
        answer = self.request("GET", "/metrics")
        assert answer.status == 200
        return parse_metrics(answer.body.decode())

    def metric(self, name):
        """0.0 for a series that is not there (yet)."""
        return self.metrics().get(name, 0.0)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def kill(self):
        """kill -9, as by the OOM killer; helpers notice it and end by themselves."""
        self.process.kill()
        self.process.wait(timeout=10)

    def wait_dead(self, seconds=10):
        """Until it died at its fault point."""
        assert self.process.wait(timeout=seconds) == -signal.SIGKILL, self.log()

    def stop(self):
        """SIGTERM; gives the exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(timeout=20)

    def restart(self, settings=None, kill=False, **options):
        if self.process.poll() is None:
            self.kill() if kill else self.stop()
        self.configure(settings or {})
        self.start(**options)


def typed_vfs(sim):
    """{address: type} of the VFs that have one, as the driver knows it."""
    return {v["address"]: v["type"] for c in sim.state()["cards"] for v in c["vfs"] if v["type"]}


def settled(sim, daemon, seconds=10):
    """Waits until everything configured is somebody's and nothing is on its way."""
    def ends():
        if any(c["state"] == "releasing" for c in daemon.claims().values()):
            return False
        busy = {"claiming", "undoing", "resetting", "unclaimed", "unknown"}
        return (set(typed_vfs(sim)) == {c["vf"] for c in daemon.claims().values()} and
                not busy & {v["state"] for v in daemon.vfs().values()})

    wait_for(ends, "the host to settle", seconds)


def leave_undo_record(daemon, put):
    """Hangs up in the middle of the write of a claim that cannot be undone; gives the VF. put() sends
    the claim; one that is noticed to be abandoned before its write leaves nothing, and is sent again."""
    def states():
        return {v["state"]: a for a, v in daemon.vfs().items()}

    for _ in range(20):
        connection = put()
        wait_for(lambda: "claiming" in states(), "a claim to be written")
        connection.close()
        wait_for(lambda: "claiming" not in states(), "the claim to end")
        if "undoing" in states():
            return states()["undoing"]
    pytest.fail("no claim was abandoned in the middle of its write")


def check_host(sim, daemon, acknowledged=None, released=()):
    """Every typed VF has exactly one claim, every acknowledged claim ({name: vf}) is there, no
    acknowledged release is. Gives the claims."""
    claims = daemon.claims()
    owners = [c["vf"] for c in claims.values()]
    assert len(owners) == len(set(owners)), "a VF has two claims"
    assert set(typed_vfs(sim)) == set(owners)
    for name, vf in (acknowledged or {}).items():
        assert name in claims, f"{name} was acknowledged and is lost"
        assert (claims[name]["vf"], claims[name]["problem"]) == (vf, None)
    assert not set(released) & set(claims), "a released claim is back"
    return claims


def mounts_below(root):
    lines = pathlib.Path("/proc/self/mounts").read_text().splitlines()
    return [line for line in lines if line.split()[1].startswith(f"{root}/")]


def processes_of(root):
    """Processes of ours whose command line names the folder."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if str(root).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def children(pid):
    """{pid: name} of all processes below this one; those that end meanwhile may be missing."""
    found = {}
    try:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found[int(child)] = pathlib.Path(f"/proc/{child}/comm").read_text().strip()
                found.update(children(int(child)))
    except OSError:
        pass
    return found


def attach(pid, trace, *options):
    """strace on a process, its threads and its children; returns when it traces all of them."""
    pids = [pid, *children(pid)]
    strace = subprocess.Popen(["strace", "-f", "-qq", "-o", str(trace), *options,
                               *(f"--attach={p}" for p in pids)], stderr=subprocess.DEVNULL)

    def traced():
        assert strace.poll() is None, "strace ended"
        return all("TracerPid:\t0\n" not in (task / "status").read_text()
                   for p in pids for task in pathlib.Path(f"/proc/{p}/task").iterdir())

    wait_for(traced, "strace to be attached")
    return strace


def detach(strace):
    strace.terminate()
    strace.wait(timeout=10)


@pytest.fixture
def work():
    """A folder whose path is short enough for sockets."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="berth-"))
    yield path
    for line in mounts_below(path):
        subprocess.run(["umount", "-l", line.split()[1]], check=False)
    for pid in processes_of(path):
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def start_sim(work):
    """start_sim(*options) gives a running Sim; all are stopped, and checked, at the end."""
    started = []

    def start(*options):
        root = work / f"sim{len(started)}" if started else work / "sim"
        sim = Sim(root, *options)
        started.append(sim)
        return sim

    yield start
    for sim in started:
        assert sim.stop() in (0, -signal.SIGKILL)


@pytest.fixture
def sim(start_sim):
    """Two L40S in mixed-size mode, without NVML latency."""
    return start_sim("--nvml-latency", 0)


@pytest.fixture
def start_daemon(start_sim):
    """start_daemon(sim, settings, ...) gives a running Daemon; all are stopped, before the simulators."""
    started = []

    def start(sim, settings=None, **options):
        daemon = Daemon(sim, settings, **options)
        started.append(daemon)
        return daemon

    yield start
    for daemon in started:
        try:
            status = daemon.stop()
        except subprocess.TimeoutExpired:
            daemon.kill()
            raise
        assert status in (0, -signal.SIGKILL), f"berthd ended with {status}:\n{daemon.log()}"


@pytest.fixture
def daemon(sim, start_daemon):
    """berthd with the simulator's own settings on the default host."""
    return start_daemon(sim)
