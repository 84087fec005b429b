# SPDX-License-Identifier: Apache-2.0
"""`berth run`: a command with a vGPU of its own, and no SIGKILL while the guest driver initialises."""
import os
import signal
import subprocess

import pytest

from conftest import BIN, wait_for

OK = "2026/08/25 19:10:00 [guest-agent] BERTH-GPU-INIT-OK ts=2026-08-25T19:10:00Z\n"
WAITING = "waiting for the guest driver's init"
# A VM: says that it is up, notes signals, and ends by itself only where told so.
VM = """
import os, signal, sys, time
out = open(sys.argv[1], "a", buffering=1)
def term(*_):
    out.write("TERM\\n")
    if sys.argv[2] == "polite":
        sys.exit(7)
signal.signal(signal.SIGTERM, term)
signal.signal(signal.SIGUSR1, lambda *_: out.write("USR1\\n"))
out.write("up\\n")
while True:
    signal.pause()
"""


class Run:
    def __init__(self, daemon, work, *options, mode="polite", command=None, name="vm"):
        self.notes = work / "notes"
        self.errors = work / "errors"
        vm = work / "vm.py"
        vm.write_text(VM)
        command = command or ["/usr/bin/python3", str(vm), str(self.notes), mode]
        with open(self.errors, "w") as errors:
            self.process = subprocess.Popen([BIN / "berth", "--socket", daemon.socket, "run", "-p", "L40S-4Q", "--name",
                                             name, *options, "--", *command], stderr=errors, stdout=subprocess.PIPE,
                                            text=True)

    def wait_note(self, note, count=1):
        wait_for(lambda: self.notes.exists() and self.notes.read_text().split().count(note) == count, note)

    def wait_error(self, text):
        wait_for(lambda: text in self.errors.read_text(), text)

    def ends(self, seconds=20):
        return self.process.wait(timeout=seconds)


@pytest.fixture
def start_run(daemon, work):
    started = []

    def start(*options, **keywords):
        run = Run(daemon, work, *options, **keywords)
        started.append(run)
        return run

    yield start
    for run in started:
        if run.process.poll() is None:
            run.process.kill()
        run.process.wait()
        run.process.stdout.close()


def gone(daemon, name="vm"):
    wait_for(lambda: name not in daemon.claims(), "the claim to be released")


def test_the_command_is_told_what_it_has(daemon, start_run):
    script = 'echo "$0 $1 $2 $3 $BERTH_CLAIM $BERTH_VF $BERTH_SYSFS $BERTH_GROUP $BERTH_DEVICE $BERTH_PROFILE"; exec sleep 1000'
    run = start_run(command=["sh", "-c", script, "a{vf}b", "{sysfs}", "{group}", "{device}{none}"])
    wait_for(lambda: "vm" in daemon.claims(), "the claim")
    words = run.process.stdout.readline().split()
    claim = daemon.claims()["vm"]
    vf, sysfs, group, device = (claim[k] for k in ("vf", "sysfs_path", "vfio_group", "vfio_device"))
    assert words == [f"a{vf}b", sysfs, group, device + "{none}", "vm", vf, sysfs, group, device, "L40S-4Q"]
    run.process.terminate()
    assert run.ends() == 128 + signal.SIGTERM
    gone(daemon)


@pytest.mark.parametrize("command,status", [(["true"], 0), (["sh", "-c", "exit 42"], 42), (["sh", "-c", "kill -9 $$"], 137),
                                            (["/nonexistent"], 125)])
def test_exit_status(daemon, start_run, command, status):
    assert start_run(command=command).ends() == status
    gone(daemon)


def test_own_failures(daemon, start_run, work):
    assert daemon.claim("vm").status == 201
    assert start_run(command=["touch", str(work / "ran")]).ends() == 125
    assert daemon.claims()["vm"]  # another's claim of that name stays
    assert start_run("--console", "/etc/passwd", name="other", command=["touch", str(work / "ran")]).ends() == 125
    for options in ((), ("-p", "L40S-4Q"), ("-p", "L40S-4Q", "--init-window", "x", "--", "true")):
        assert subprocess.run([BIN / "berth", "--socket", daemon.socket, "run", *options], capture_output=True,
                              timeout=20).returncode == 2
    daemon.stop()
    assert start_run(name="third", command=["touch", str(work / "ran")]).ends() == 125
    assert not (work / "ran").exists()


def test_stop_in_the_window_is_no_kill(daemon, start_run):
    run = start_run("--init-window", "60s", mode="stubborn")
    run.wait_note("up")
    run.process.send_signal(signal.SIGUSR1)
    run.wait_note("USR1")
    run.process.terminate()
    run.wait_note("TERM")
    run.wait_error(WAITING)
    run.process.send_signal(signal.SIGUSR1)  # still alive, still passing signals on
    run.wait_note("USR1", 2)
    assert daemon.claims()["vm"]["state"] == "bound"
    run.process.terminate()  # the second one insists
    assert run.ends() == 128 + signal.SIGKILL
    gone(daemon)


def test_polite_command_ends_at_once(daemon, start_run):
    run = start_run("--init-window", "60s")
    run.wait_note("up")
    run.process.send_signal(signal.SIGINT)
    assert run.ends() == 7
    gone(daemon)


def test_ok_marker_ends_the_window(sim, daemon, start_run):
    console = sim.root / "console" / "vm.log"
    run = start_run("--init-window", "60s", "--console", str(console), mode="stubborn")
    run.wait_note("up")
    assert daemon.claims()["vm"]["console_log"] == str(console)
    console.write_text("booting\n" + OK)
    run.process.terminate()
    run.wait_note("TERM")
    run.process.send_signal(signal.SIGUSR1)
    run.wait_note("USR1")
    assert WAITING not in run.errors.read_text()
    # Outside the window the stop is insisted on by itself, after ten seconds.
    assert run.ends() == 128 + signal.SIGKILL


def test_killed_run_leaves_a_claim_that_is_taken_back(sim, start_daemon, work):
    daemon = start_daemon(sim, {"reconcile_interval": "200ms"})
    run = Run(daemon, work, mode="stubborn")
    run.wait_note("up")
    pid = daemon.claims()["vm"]["pid"]
    assert pid == run.process.pid
    vm = sim.boot(daemon.claims()["vm"]["vf"], "--init-ms", 1)
    run.process.kill()
    run.process.wait()
    run.process.stdout.close()
    assert daemon.claims()["vm"]["state"] == "bound"  # its VM still runs
    os.kill(vm, signal.SIGTERM)
    gone(daemon)
