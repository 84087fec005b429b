# SPDX-License-Identifier: Apache-2.0
"""The guest agent as a program: its kernel log is a pipe, its console a file, its driver probe a script."""
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import termios
import time
import tty

import pytest

from conftest import BIN, attach, detach, wait_for

NVRM = "NVRM: GPU 0000:00:05.0: RmInitAdapter failed! (0x22:0x65:884)"
LINE = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[guest-agent\] (.*)")
FAILED = re.compile(r'BERTH-GPU-INIT-FAILED ts=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ nvrm="(NVRM: .*)"')


class Agent:
    def __init__(self, work, *options, smi=None, gpu=True, fifo=True):
        self.kmsg = work / "kmsg"
        self.console = work / "console"
        self.sysfs = work / "guest-sys"
        self.smi = work / "nvidia-smi"
        self.console.touch()
        if fifo:
            os.mkfifo(self.kmsg)
        device = self.sysfs / "bus/pci/devices/0000:00:05.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n" if gpu else "0x8086\n")
        (device / "class").write_text("0x030200\n")
        if smi is not None:
            self.smi.write_text("#!/bin/sh\n" + smi)
            self.smi.chmod(0o755)
        self.process = subprocess.Popen([BIN / "berth-agent", "--kmsg", self.kmsg, "--console", self.console,
                                         "--sysfs-root", self.sysfs, "--nvidia-smi", self.smi, "--vsock-port", "0",
                                         "--virtio-port", work / "none", *options])
        self.writer = os.open(self.kmsg, os.O_WRONLY) if fifo and gpu else None

    def say(self, *records):
        for r in records:
            data = r.encode() if isinstance(r, str) else r
            while data:
                data = data[os.write(self.writer, data):]

    def lines(self):
        """What stands behind the head of each console line; every line must have that head."""
        text = self.console.read_bytes()
        assert not re.search(rb"[^\n\x20-\x7e]", text), text
        return [LINE.fullmatch(line).group(1) for line in text.decode().splitlines()]

    def reports(self):
        return [m.group(1) for m in map(FAILED.fullmatch, self.lines()) if m]

    def wait_reports(self, n):
        wait_for(lambda: len(self.reports()) == n, f"{n} report lines")

    def status(self):
        return dict(line.split(":\t", 1) for line in
                    pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines() if ":\t" in line)

    def switches(self):
        return int(self.status()["voluntary_ctxt_switches"])

    def stop(self):
        if self.writer is not None:
            os.close(self.writer)
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(timeout=10)


@pytest.fixture
def start_agent(work):
    started = []

    def start(*options, **keywords):
        agent = Agent(work, *options, **keywords)
        started.append(agent)
        return agent

    yield start
    for agent in started:
        assert agent.stop() == 0


def record(text, priority=3, number=1):
    return f"{priority},{number},5678,-;{text}\n"


BARRIER = record("NVRM: the other RmInitAdapter failed! (0x1:0x2:3)")


def test_a_failure_is_three_equal_lines(start_agent):
    agent = start_agent()
    agent.say(record(NVRM + ' "\x1b[2J\x7f'))
    agent.wait_reports(3)
    lines = agent.lines()
    assert len(lines) == 3 and len(set(lines)) == 1
    assert agent.reports()[0] == NVRM + " '?[2J?"


@pytest.mark.field("F73", "F75", "F77")
@pytest.mark.parametrize("text", [record(NVRM, 12), record(NVRM, 8), record(NVRM, 13),
                                  record("NVRM: RmInitAdapter: Cannot initialize GSP firmware RM"),
                                  record("NVRM: GPU 0000:01:00.0: RmInitAdapterBUG: unable to handle page fault"),
                                  record("pci 0000:00:05.0: hello") + f" X={NVRM}\n", NVRM + "\n"])
def test_what_is_no_failure(start_agent, text):
    agent = start_agent()
    agent.say(text, BARRIER)  # were it taken for one, the next would be held back for 30 s
    agent.wait_reports(3)
    assert {"the other" in r for r in agent.reports()} == {True}


@pytest.mark.field("F73")
def test_continuation_lines(start_agent):
    agent = start_agent()
    agent.say(record(NVRM) + " SUBSYSTEM=pci\n DEVICE=+pci:0000:00:05.0\n")
    agent.wait_reports(3)
    assert set(agent.reports()) == {NVRM}


@pytest.mark.field("F77")
def test_one_report_for_several_lines_and_many_retries(start_agent):
    """The driver prints three lines and tries again and again: one report in 30 s."""
    agent = start_agent(smi="echo 'GPU 0: NVIDIA L40S-4Q'; exec cat " + "/dev/null")
    wait_for(lambda: any("INIT-OK" in line for line in agent.lines()), "the probe")
    for n in range(100):
        agent.say(record("NVRM: RmInitAdapter: Cannot initialize GSP firmware RM", number=n), record(NVRM, number=n),
                  record("NVRM: GPU 0000:01:00.0: rm_init_adapter failed, device minor number 0", number=n))
    agent.wait_reports(3)
    os.close(agent.writer)  # all has been read when it says that the pipe is gone
    agent.writer = None
    wait_for(lambda: any("lost the watch" in line for line in agent.lines()), "the end of the pipe")
    assert len(agent.reports()) == 3


@pytest.mark.field("F71")
def test_flood(start_agent):
    agent = start_agent()
    chunk = b"".join(record("usb 1-1: new high-speed device", 6, n).encode() for n in range(1000))
    start = time.monotonic()
    for _ in range(100):
        agent.say(chunk)
    agent.say(record(NVRM))
    agent.wait_reports(3)
    assert time.monotonic() - start < 20


@pytest.mark.field("F71")
def test_losing_the_watch_is_said(start_agent):
    agent = start_agent()
    os.close(agent.writer)
    agent.writer = None
    wait_for(lambda: any("lost the watch" in line for line in agent.lines()), "the loss")
    agent.writer = os.open(agent.kmsg, os.O_WRONLY)  # waits for the agent to open it again
    wait_for(lambda: any("watching the kernel log again" in line for line in agent.lines()), "the watch")
    agent.say(record(NVRM))
    agent.wait_reports(3)
    assert len([line for line in agent.lines() if "lost the watch" in line]) == 1


@pytest.mark.field("F71")
@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize("error, said", [("EPIPE", 0), ("EIO", 1)])
def test_read_that_fails_once(start_agent, error, said):
    """An overrun is gone over; after any other error the log is opened again, and that is said. What the
    kernel says next is reported either way."""
    agent = start_agent()
    strace = attach(agent.process.pid, "/dev/null", "-e", "trace=read", "-e", f"inject=read:error={error}:when=1",
                    "-P", str(agent.kmsg))
    try:
        agent.say(record("usb 1-1: new high-speed device", 6))
        wait_for(lambda: said == sum("watching the kernel log again" in l for l in agent.lines()), "the next open")
        agent.say(record(NVRM))
        agent.wait_reports(3)
    finally:
        detach(strace)
    lines = agent.lines()
    assert len([l for l in lines if "lost the watch" in l]) == said
    assert len([l for l in lines if "watching the kernel log again" in l]) == said


def test_no_kernel_log(start_agent, work):
    agent = start_agent(fifo=False)
    wait_for(lambda: any("lost the watch" in line for line in agent.lines()), "the loss")
    assert agent.process.poll() is None


def test_probe_success(start_agent, work):
    agent = start_agent("--marker-prefix", "HYPEMAN", smi=f"echo \"$@\" > {work}/args; echo 'GPU 0: NVIDIA L40S-4Q'")
    wait_for(lambda: len(agent.lines()) == 3, "the marker")
    assert len(set(agent.lines())) == 1
    assert re.fullmatch(r"HYPEMAN-GPU-INIT-OK ts=\S+Z", agent.lines()[0])
    assert (work / "args").read_text() == "-L\n"


def test_probe_failure_says_nothing_itself(start_agent, work):
    agent = start_agent(smi=f"echo x >> {work}/tried; echo 'NVRM: RmInitAdapter failed!'; exit 9")
    wait_for(lambda: (work / "tried").exists(), "the attempt")
    agent.say(BARRIER)
    agent.wait_reports(3)
    assert len(agent.lines()) == 3


def test_stuck_probe_does_not_stop_the_watch(start_agent, work):
    agent = start_agent(smi=f"echo $$ > {work}/stuck; exec sleep 1000")
    wait_for(lambda: (work / "stuck").exists() and (work / "stuck").read_text().strip(), "the attempt")
    agent.say(record(NVRM))
    agent.wait_reports(3)
    os.kill(int((work / "stuck").read_text()), signal.SIGKILL)


def test_without_a_gpu(start_agent, work):
    assert start_agent(gpu=False).process.wait(timeout=10) == 0


def test_without_a_gpu_by_force(work):
    agent = Agent(work, "--force", gpu=False)
    agent.writer = os.open(agent.kmsg, os.O_WRONLY)
    agent.say(record(NVRM))
    agent.wait_reports(3)
    assert agent.stop() == 0


def test_serial_port(work):
    """The virtio-serial channel, on a pseudo-terminal."""
    master, slave = os.openpty()
    tty.setraw(slave, termios.TCSANOW)
    agent = Agent(work, "--virtio-port", os.ttyname(slave))
    os.set_blocking(master, False)

    def ask():
        os.write(master, b"status\n")
        assert select.select([master], [], [], 10)[0]
        return json.loads(os.read(master, 2000))

    answer = ask()
    assert (answer["agent"], answer["state"], answer["watching"], answer["nvrm"]) == ("berth", "unknown", True, "")
    agent.say(record(NVRM.replace("GPU", "\\")))
    agent.wait_reports(3)
    answer = ask()
    assert (answer["state"], answer["nvrm"]) == ("failed", NVRM.replace("GPU", "\\"))
    os.write(master, b"x" * 500 + b"\n")
    assert ask()["state"] == "failed"
    assert agent.stop() == 0
    os.close(master)
    os.close(slave)


def test_vsock(work):
    """End to end it needs a guest: here the agent only listens, where the kernel has AF_VSOCK."""
    try:
        host = socket.socket(socket.AF_VSOCK)
        host.settimeout(2)
    except OSError:
        pytest.skip("no AF_VSOCK here")
    agent = Agent(work, "--vsock-port", "52099")
    try:
        host.connect((1, 52099))  # VMADDR_CID_LOCAL
        host.sendall(b"status\n")
        assert json.loads(host.recv(2000))["state"] == "unknown"
    except OSError as e:
        pytest.skip(f"no vsock loopback here: {e}")
    finally:
        host.close()
        assert agent.stop() == 0


def test_small_and_quiet(start_agent):
    """At most 120 KB on disk and 200 KB resident, no libraries, no wake-ups without a reason."""
    program = BIN / "berth-agent"
    assert program.stat().st_size <= 120 * 1024
    kind = subprocess.run(["file", "-b", program], capture_output=True, text=True).stdout
    assert "statically linked" in kind
    agent = start_agent()
    agent.say(record(NVRM))
    agent.wait_reports(3)
    wait_for(lambda: agent.status()["State"].startswith("S"), "the agent to sleep")
    before = agent.switches()
    poller = select.poll()
    poller.poll(1500)  # an observation: nothing to wait for
    assert agent.switches() == before
    resident = int(agent.status()["VmRSS"].split()[0])
    assert resident <= 200, f"{resident} KB resident"


@pytest.mark.parametrize("args,status", [(("--help",), 0), (("--version",), 0), (("--nonsense",), 2), (("word",), 2),
                                         (("--vsock-port", "x"), 2)])
def test_options(args, status):
    done = subprocess.run([BIN / "berth-agent", *args], capture_output=True, text=True, timeout=10)
    assert done.returncode == status
    assert done.stdout if status == 0 else done.stderr
