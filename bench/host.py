# SPDX-License-Identifier: Apache-2.0
"""A simulated host with berthd on it, and the C programs that put it under load.

Everything lies in one folder and ends with its context manager.
"""
import contextlib
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

import yaml

READY_SECONDS = 20
ANSWER_SECONDS = 120


class BenchError(Exception):
    """A measurement could not be made; not a target that was missed."""


def wait_for(condition, what, seconds=READY_SECONDS):
    """Polls until condition() is true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise BenchError(f"waited {seconds} s in vain for {what}")
        time.sleep(0.01)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=ANSWER_SECONDS)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Tool:
    """A C program of this folder that answers each line with one line of JSON."""

    def __init__(self, build, name, *arguments):
        self.process = subprocess.Popen([build / "bench" / f"bench-{name}", *map(str, arguments)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.name = name

    def ask(self, line=""):
        self.send(line)
        return self.answer()

    def send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self):
        ready = select.select([self.process.stdout], [], [], ANSWER_SECONDS)[0]
        text = self.process.stdout.readline() if ready else ""
        if not text:
            raise BenchError(f"bench-{self.name} gave no answer")
        return json.loads(text)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class Host:
    """berth-sim and berthd, both running."""

    def __init__(self, build, root, cards, vfs, latency_ms, settings, environment=None):
        self.build = build
        self.root = root
        self.latency_ms = latency_ms
        self.sim = self.daemon = None
        try:
            self._start(cards, vfs, settings, environment)
        except BaseException:
            self.stop()
            raise

    def _start(self, cards, vfs, settings, environment):
        self.sim = subprocess.Popen(
            [self.build / "bin/berth-sim", "run", "--root", self.root, "--cards", str(cards),
             "--vfs", str(vfs), "--nvml-latency", str(self.latency_ms)],
            stdout=subprocess.PIPE, text=True)
        ready = select.select([self.sim.stdout], [], [], READY_SECONDS)[0]
        if not ready or not self.sim.stdout.readline().startswith("ready"):
            raise BenchError("berth-sim did not get ready")
        self.settings = {**yaml.safe_load((self.root / "berthd.yaml").read_text()), **settings}
        config = self.root / "bench.yaml"
        config.write_text(yaml.safe_dump(self.settings))
        with open(self.root / "berthd.log", "wb") as log:
            self.daemon = subprocess.Popen([self.build / "bin/berthd", "--config", config],
                                           stdout=log, stderr=log,
                                           env={**os.environ, **(environment or {})})
        wait_for(self._is_ready, "berthd to get ready")
        self.settle()

    def _is_ready(self):
        if self.daemon.poll() is not None:
            raise BenchError("berthd ended:\n" + (self.root / "berthd.log").read_text())
        try:
            return self.get("/readyz", check=False)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    @property
    def socket(self):
        return self.settings["socket"]

    def get(self, path, check=True):
        connection = UnixConnection(self.socket)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if check and answer.status != 200:
            raise BenchError(f"GET {path}: {answer.status}")
        return answer.status, body

    def metric(self, name):
        for line in self.get("/metrics")[1].decode().splitlines():
            if line.startswith(name + " "):
                return float(line.rsplit(" ", 1)[1])
        return 0.0

    def queries(self):
        """How many times NVML was asked."""
        return int(self.metric("berth_nvml_query_seconds_count"))

    def card_addresses(self):
        return [c["address"] for c in json.loads(self.get("/gpus")[1])["gpus"]]

    def settle(self):
        """Until no refresh has ended for three sweeps: nothing is under way that a measurement
        would have to wait for."""
        quiet = max(3 * self.latency_ms / 1000, 0.05)
        end = time.monotonic() + READY_SECONDS
        last, since = self.queries(), time.monotonic()
        while time.monotonic() - since < quiet:
            time.sleep(0.01)
            now = self.queries()
            if now != last:
                last, since = now, time.monotonic()
            if time.monotonic() > end:
                raise BenchError("refreshes do not end")

    def processes(self):
        """berthd and its helpers."""
        children = pathlib.Path(f"/proc/{self.daemon.pid}/task/{self.daemon.pid}/children")
        return [self.daemon.pid, *map(int, children.read_text().split())]

    def stop(self):
        for process in (self.daemon, self.sim):
            if process is None or process.poll() is not None:
                continue
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self.sim is not None:
            self.sim.stdout.close()
        for name in ("sys", "dev"):
            if os.path.ismount(self.root / name):
                subprocess.run(["umount", "-l", self.root / name], check=False)


@contextlib.contextmanager
def work_folder(parent):
    """Short, since sockets lie in it."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="berth-bench-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def running_host(options, cards=2, vfs=32, latency_ms=20, settings=None, environment=None):
    with work_folder(options.work) as root:
        host = Host(options.build, root, cards, vfs, latency_ms, settings or {}, environment)
        try:
            yield host
        finally:
            host.stop()


def terminate_on_signals():
    """A bench that is told to end unmounts first."""
    def end(*_):
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
