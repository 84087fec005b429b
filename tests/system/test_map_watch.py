# SPDX-License-Identifier: Apache-2.0
"""berth map --watch, colours, and the progress line, on a pseudo-terminal."""
import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import termios
import threading

import pytest

from conftest import BIN, wait_for

BEGIN, END = "\033[?1049h\033[?25l\033[?7l", "\033[?7h\033[?25h\033[?1049l"


class Terminal:
    """A program on a terminal of its own; `text` is all it has written."""

    def __init__(self, daemon, *args, size=(30, 100), read=True, **env):
        self.master, slave = pty.openpty()
        self.resize(*size)
        variables = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        variables |= {"BERTH_SOCKET": str(daemon.socket), "LC_ALL": "C.UTF-8", "TERM": "xterm", **env}
        # The terminal becomes the controlling one, so that Ctrl-C in it is a signal.
        self.process = subprocess.Popen([BIN / "berth", *args], stdin=slave, stdout=slave, stderr=slave,
                                        env=variables, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.data = b""
        self.reader = threading.Thread(target=self.read)
        if read:
            self.reader.start()

    def read(self):
        while True:
            try:
                piece = os.read(self.master, 65536)
            except OSError:
                return
            if not piece:
                return
            self.data += piece

    @property
    def text(self):
        return self.data.decode(errors="replace")

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def frame(self):
        """The lines of the last whole frame, without escape sequences."""
        frames = re.findall(r"\033\[\?2026h(.*?)\033\[\?2026l", self.text, re.S)
        return re.sub(r"\033\[[0-9;?]*[A-Za-z]", "", frames[-1]).split("\r\n") if frames else []

    def wait_frame(self, condition, what):
        wait_for(lambda: condition(self.frame()), what)
        return self.frame()

    def end(self):
        """Until it has ended: its exit status."""
        status = self.process.wait(timeout=10)
        if self.reader.ident:
            self.reader.join(10)
        os.close(self.master)
        return status


@pytest.fixture
def on_terminal():
    started = []

    def start(*args, **more):
        started.append(Terminal(*args, **more))
        return started[-1]

    yield start
    for t in started:
        if t.process.poll() is None:
            t.process.kill()
            t.end()


def shows(word):
    return lambda lines: any(word in line for line in lines)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_watch_draws_what_changes_and_gives_the_screen_back(daemon, on_terminal, number):
    t = on_terminal(daemon, "map", "--watch")
    lines = t.wait_frame(shows("48 free"), "the first map")
    assert "berth map" in lines[0] and "Ctrl-C ends" in lines[0]
    daemon.claim("vm1", "L40S-24Q")
    t.wait_frame(shows("vm1"), "the claim to be drawn")
    daemon.release("vm1")
    t.wait_frame(lambda lines: not shows("vm1")(lines), "the release to be drawn")
    if number == signal.SIGINT:
        os.write(t.master, b"\x03")
    else:
        t.process.send_signal(number)
    assert t.end() == -number
    assert t.text.startswith(BEGIN) and t.text.rstrip("^C").endswith(END)
    # Between those nothing clears the screen first: no frame flickers.
    assert "\033[2J" not in t.text and t.text.count(BEGIN) == 1


def test_watch_takes_the_terminals_size(daemon, on_terminal):
    t = on_terminal(daemon, "map", "-w", size=(40, 120))
    t.wait_frame(shows("room for"), "the first map")
    before = len(t.data)
    t.resize(8, 60)
    lines = t.wait_frame(lambda lines: len(lines) <= 8 and len(t.data) > before, "the small map")
    assert re.fullmatch(r"\.\.\. \d+ more lines; a taller terminal shows them", lines[-1])
    t.resize(60, 60)
    t.wait_frame(lambda lines: "more line" not in lines[-1] and shows("room for")(lines), "the tall map")


def test_watch_survives_a_daemon_that_goes_and_comes(daemon, on_terminal):
    t = on_terminal(daemon, "map", "--watch")
    t.wait_frame(shows("48 free"), "the first map")
    daemon.stop()
    lines = t.wait_frame(shows("berthd is lost, trying again"), "the loss")
    assert shows("48 free")(lines), "the last map stays"
    assert t.process.poll() is None
    daemon.start()
    t.wait_frame(lambda lines: not shows("lost")(lines), "the daemon to be back")
    daemon.claim("vm2", "L40S-8Q")
    t.wait_frame(shows("vm2"), "a claim of the new daemon")


def test_watch_stops_and_goes_on(daemon, on_terminal):
    t = on_terminal(daemon, "map", "--watch")
    t.wait_frame(shows("48 free"), "the first map")
    os.kill(t.process.pid, signal.SIGTSTP)
    wait_for(lambda: open(f"/proc/{t.process.pid}/stat").read().rsplit(")", 1)[1].split()[0] == "T", "the stop")
    wait_for(lambda: t.text.endswith(END), "the screen to be given back")
    os.kill(t.process.pid, signal.SIGCONT)
    wait_for(lambda: t.text.count(BEGIN) == 2 and t.text.rfind("48 free") > t.text.rfind(BEGIN), "the map again")


def test_watch_without_colours_and_in_ascii(daemon, on_terminal):
    t = on_terminal(daemon, "map", "--watch", NO_COLOR="1", LC_ALL="C")
    t.wait_frame(shows("48 free"), "the first map")
    assert not re.search(r"\033\[[0-9;]*m", t.text)
    assert all(b < 0x80 for b in t.data)


def test_watch_on_a_terminal_of_one_line(daemon, on_terminal):
    """Nothing may scroll: what the status line says is all that has room."""
    t = on_terminal(daemon, "map", "--watch", size=(1, 60))
    t.wait_frame(shows("Ctrl-C ends"), "the status line")
    assert "\n" not in t.text


def test_watch_ends_on_a_terminal_that_takes_nothing(daemon, on_terminal):
    """Nobody reads the other end, as after Ctrl-S."""
    t = on_terminal(daemon, "map", "--watch", size=(60, 200), read=False)
    pending = [-1, 0]

    def full():
        for rows in range(40, 60):
            t.resize(rows, 200)
        pending.append(struct.unpack("i", fcntl.ioctl(t.master, termios.FIONREAD, bytes(4)))[0])
        return pending[-1] > 2000 and len(set(pending[-8:])) == 1

    wait_for(full, "the terminal to be full")
    t.process.send_signal(signal.SIGTERM)
    assert t.process.wait(timeout=10) == -signal.SIGTERM


class StallingDaemon:
    """Answers the first question for the cards, and never the second one, which it tells by an event."""

    def __init__(self, path, answer):
        self.socket, self.answer = str(path), json.dumps(answer).encode()
        self.asked, self.peers = threading.Event(), []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.socket)
        self.listener.listen(8)
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        cards = 0
        while True:
            try:
                peer = self.listener.accept()[0]
            except OSError:
                return
            self.peers.append(peer)
            if b"/events" in peer.recv(65536):
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
                continue
            cards += 1
            if cards == 1:
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(self.answer) + self.answer)
            else:
                self.asked.set()

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join(10)
        for peer in [self.listener, *self.peers]:
            peer.close()


def test_watch_ends_while_the_daemon_does_not_answer(daemon, work, on_terminal):
    stalling = StallingDaemon(work / "stalling.sock", daemon.get("/gpus"))
    try:
        t = on_terminal(stalling, "map", "--watch")
        assert stalling.asked.wait(20)
        t.resize(30, 90)
        os.write(t.master, b"\x03")
        assert t.end() == -signal.SIGINT
        # It was not waited for until it is given up.
        assert "lost" not in t.text and t.text.endswith(END)
    finally:
        stalling.stop()


def test_watch_says_that_its_output_cannot_be_written(daemon):
    with open("/dev/full", "w") as full:
        done = subprocess.run([BIN / "berth", "--socket", daemon.socket, "map", "--watch"], stdout=full,
                              stderr=subprocess.PIPE, text=True, timeout=20)
    assert done.returncode == 1 and "No space left on device" in done.stderr


def test_watch_of_a_daemon_that_is_not_there(work):
    run = subprocess.run([BIN / "berth", "--socket", work / "none", "map", "--watch"], capture_output=True, text=True)
    assert run.returncode == 5 and "is berthd running?" in run.stderr and run.stdout == ""


@pytest.fixture
def in_pipe(daemon):
    started = []

    def start(*args, **env):
        started.append(subprocess.Popen([BIN / "berth", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, env={**os.environ, "BERTH_SOCKET": str(daemon.socket), **env}))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_watch_into_a_pipe_prints_each_new_map(daemon, in_pipe):
    process = in_pipe("map", "--watch")
    seen = ""
    while "room for" not in seen.rsplit("0000:81:00.0", 1)[-1]:
        seen += process.stdout.readline()
    daemon.claim("vm1", "L40S-24Q")
    while "vm1" not in seen:
        seen += process.stdout.readline()
    assert "\033" not in seen and re.search(r"^--- \d\d:\d\d:\d\d$", seen, re.M)
    # Nobody reads any more: it ends without being asked.
    process.stdout.close()
    assert process.wait(timeout=10) == 0


def test_watch_on_a_dumb_terminal_moves_no_cursor(daemon, on_terminal):
    t = on_terminal(daemon, "map", "--watch", TERM="dumb")
    wait_for(lambda: "room for" in t.text, "the first map")
    assert "\033" not in t.text


def test_watch_json_is_one_document_a_line(daemon, in_pipe):
    process = in_pipe("map", "--watch", "--json")
    first = json.loads(process.stdout.readline())
    assert first == daemon.get("/gpus")
    claim = daemon.claim("vm1").json
    while True:
        vfs = [v for g in json.loads(process.stdout.readline())["gpus"] for v in g["vfs"] if v["claim"] == "vm1"]
        if vfs:
            break
    assert vfs[0]["address"] == claim["vf"]
    daemon.stop()
    assert "berthd is lost" in process.stderr.readline()
    daemon.start()
    assert "berthd is back" in process.stderr.readline()


# --- Colours --------------------------------------------------------------------------------------

def test_color_option(daemon, on_terminal):
    def run(*args, **env):
        return subprocess.run([BIN / "berth", *args], capture_output=True, text=True,
                              env={**os.environ, "BERTH_SOCKET": str(daemon.socket), **env})

    daemon.claim("vm1")
    assert "\033[" not in run("map").stdout
    assert "\033[" in run("map", "--color=always").stdout
    assert "\033[" in run("--color", "always", "map", NO_COLOR="1").stdout
    t = on_terminal(daemon, "map", "--color=never")
    assert t.end() == 0 and "\033" not in t.text
    for wrong in (["map", "--color=loud"], ["--color=", "map"]):
        done = run(*wrong)
        assert done.returncode == 2 and "auto, always or never" in done.stderr


# --- Progress -------------------------------------------------------------------------------------

def test_a_claim_that_waits_says_so_on_a_terminal(daemon, on_terminal):
    daemon.claim("big1", "L40S-48Q")
    daemon.claim("big2", "L40S-48Q")
    t = on_terminal(daemon, "claim", "vm1", "-p", "L40S-4Q", "--wait=30s")
    wait_for(lambda: re.search(r"\r\033\[Kwaiting for room for L40S-4Q, \d+ s", t.text), "the progress line")
    daemon.release("big1")
    assert t.end() == 0
    # It is gone before the result is printed.
    assert re.search(r"\r\033\[Kclaimed vm1", t.text)


def test_progress_is_for_terminals_only(daemon, sim):
    sim.ctl("set", "sysfs.write_latency_ms", 1500)
    run = subprocess.run([BIN / "berth", "--socket", daemon.socket, "claim", "vm1", "-p", "L40S-4Q"],
                         capture_output=True, text=True)
    assert run.returncode == 0 and run.stderr == ""


def test_a_slow_release_and_a_refusal_leave_no_progress_line(daemon, sim, on_terminal):
    daemon.claim("vm1")
    sim.ctl("set", "sysfs.release_errno", "EBUSY")
    t = on_terminal(daemon, "release", "vm1", "--wait=2s")
    assert t.end() == 1
    assert re.search(r"vm1 is being released, \d+ s", t.text)
    assert re.search(r"\r\033\[Kberth: vm1 is still being released", t.text)


def test_recover_says_how_long_a_step_takes(daemon, sim, on_terminal):
    sim.ctl("set", "sriov.latency_ms", 1500)
    t = on_terminal(daemon, "gpu", "recover", "0000:41:00.0")
    assert t.end() == 0, t.text
    assert re.search(r"\r\033\[K0000:41:00.0: sriov_\w+, \d+ s", t.text)
    assert "is back" in t.text.rsplit("\033[K", 1)[1]
