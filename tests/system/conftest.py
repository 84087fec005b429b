# SPDX-License-Identifier: Apache-2.0
"""What the system tests share: the simulated host, and waiting for things with a limit.

Programs come from BERTH_BIN, else from build/bin. Each test has its own simulator; after a test
nothing may be mounted below its folder and none of its processes may be left.
"""
import errno
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

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
