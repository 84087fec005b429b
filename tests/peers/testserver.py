# SPDX-License-Identifier: Apache-2.0
"""grpc-test-server with its orders and lines; see the comment in its source for them.

The fixtures are here and not in a conftest.py: tests/system imports its own by that name.
"""
import os
import pathlib
import queue
import subprocess
import tempfile
import threading
import time

import pytest

BIN = pathlib.Path(os.environ.get("BERTH_BIN") or pathlib.Path(__file__).parents[2] / "build/bin")
BUILD = BIN.parent
PROGRAM = BUILD / "tests/peers/grpc-test-server"
DEADLINE = 20


class Server:
    def __init__(self, *paths):
        self.paths = [str(p) for p in paths]
        self.path = self.paths[0]
        self.process = subprocess.Popen([PROGRAM, *self.paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.expect("ready")

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))

    def order(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def expect(self, start, seconds=DEADLINE):
        """The next line that begins so; what comes before it is dropped."""
        end = time.monotonic() + seconds
        while True:
            try:
                line = self.lines.get(timeout=max(0, end - time.monotonic()))
            except queue.Empty:
                pytest.fail(f"no line {start!r} in {seconds} s (server: {self.process.poll()})")
            if line.startswith(start):
                return line

    def ask(self, text, answer):
        self.order(text)
        return self.expect(answer)

    def stats(self, path=None):
        """Connections, calls, reachable, peak of resident KB."""
        return [int(w) for w in self.ask(f"stats {path or self.path}", "stats").split()[1:]]

    def wait_stats(self, connections, calls):
        end = time.monotonic() + DEADLINE
        while (now := self.stats()[:2]) != [connections, calls]:
            assert time.monotonic() < end, f"connections, calls stay at {now}"
            time.sleep(0.01)

    def stop(self):
        """Ends it the clean way; a sanitizer's report is an exit status other than 0."""
        if self.process.poll() is None:
            self.process.stdin.close()
        try:
            status = self.process.wait(DEADLINE)
        finally:
            self.process.kill()
            self.process.wait()
        assert status == 0
        self.reader.join()
        self.process.stdout.close()


@pytest.fixture
def folder():
    """Short: a socket's path has 107 characters at most."""
    with tempfile.TemporaryDirectory(prefix="berth-grpc-") as name:
        yield pathlib.Path(name)


@pytest.fixture
def server(folder):
    s = Server(folder / "a.sock", folder / "b.sock")
    yield s
    s.stop()
