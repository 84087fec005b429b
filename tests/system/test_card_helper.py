# SPDX-License-Identifier: Apache-2.0
"""berth-card and its client against the simulated driver: what it refuses, delays, or hangs in."""
import errno
import json
import os
import queue
import signal
import subprocess
import threading

import pytest

from conftest import BIN, wait_for

CARD = "0000:41:00.0"
VF = "0000:41:00.4"
VF2 = "0000:41:00.5"
VF3 = "0000:41:00.6"
L40S_4Q, L40S_24Q, L40S_48Q = 1150, 1155, 1156


class Client:
    """One card-driver process: the client that berthd has for a card."""

    def __init__(self, sim, timeout_ms=5000, card=CARD, run=None):
        self.process = subprocess.Popen(
            [BIN.parent / "tests/unit/card-driver", card, sim.sys, sim.dev,
             run or sim.root / "run", str(timeout_ms)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            env=os.environ | {"BERTH_HELPER_DIR": str(BIN)})
        self.number = -1
        self.states = queue.Queue()
        self.replies = {}
        self.changed = threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            message = json.loads(line)
            if "state" in message:
                self.states.put(message)
                continue
            with self.changed:
                self.replies[message["number"]] = message
                self.changed.notify_all()

    def submit(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.number += 1
        return self.number

    def reply(self, number, seconds=15):
        with self.changed:
            assert self.changed.wait_for(lambda: number in self.replies, seconds), f"no reply to {number}"
            return self.replies[number]

    def ask(self, *words):
        return self.reply(self.submit(*words))

    def state(self, name, seconds=15):
        """Waits for the next change of state, which must be that one."""
        message = self.states.get(timeout=seconds)
        assert message["state"] == name, message
        return message

    def close(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            assert self.process.wait(timeout=10) == 0

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start_client(sim):
    clients = []

    def start(*args, **kwargs):
        clients.append(Client(*args, **kwargs))
        return clients[-1]

    yield start
    for key in ("sysfs.read_hang", "sysfs.write_hang"):
        sim.ctl("set", key, 0)
    for client in clients:
        client.close()


@pytest.fixture
def client(sim, start_client):
    client = start_client(sim)
    client.state("ready")
    return client


def thread_states(pid):
    states = ""
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/stat") as f:
                states += f.read().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        pass
    return states


def is_alive(pid):
    """False for one that only waits to be collected, which an orphan may for a while. The first
    thread of a killed process is a zombie while another one hangs in the kernel."""
    return bool(thread_states(pid).strip("ZX"))


def test_configure_steer_and_release(sim, client):
    done = client.ask("configure", VF, L40S_4Q, 12)
    assert (done["result"], done["step"], done["steered"]) == (0, "done", True)
    assert sim.vf(VF)["placement"] == 12
    seen = client.ask("read", VF, VF2)["vfs"]
    assert [(v["type"], v["placement"]) for v in seen] == [(L40S_4Q, 12), (0, None)]
    assert client.ask("release", VF, L40S_4Q)["result"] == 0
    assert sim.vf(VF)["type"] == 0


def test_a_refused_placement_keeps_the_drivers_choice(sim, client):
    assert client.ask("configure", VF, L40S_4Q)["vfs"][0]["placement"] == 0
    done = client.ask("configure", VF2, L40S_4Q, 0)
    assert (done["result"], done["step"], done["steered"]) == (0, "done", False)
    assert done["steer_error"] < 0
    assert done["vfs"][0]["placement"] not in (None, 0)
    assert sim.vf(VF2)["type"] == L40S_4Q


def test_a_full_card_is_refused_and_leaves_nothing(sim, client):
    assert client.ask("configure", VF, L40S_48Q)["result"] == 0
    done = client.ask("configure", VF2, L40S_4Q)
    assert (done["result"], done["step"], done["undone"]) == (-errno.EIO, "write", True)
    assert sim.vf(VF2)["type"] == 0
    assert client.ask("list", VF2)["vfs"][0]["listed"] == 0


@pytest.mark.parametrize("name", ["EROFS", "EPERM", "EIO", "ENOMEM"])
def test_write_errors_pass_through(sim, client, name):
    sim.ctl("set", "sysfs.write_errno", name)
    done = client.ask("configure", VF, L40S_4Q)
    assert (done["result"], done["step"], done["undone"]) == (-getattr(errno, name), "write", True)
    sim.ctl("set", "sysfs.write_errno", 0)
    assert client.ask("configure", VF, L40S_4Q)["result"] == 0


@pytest.mark.parametrize("name", ["EBUSY", "EPERM", "EIO"])
def test_release_errors_pass_through(sim, client, name):
    client.ask("configure", VF, L40S_4Q)
    sim.ctl("set", "sysfs.release_errno", name, "--vf", VF)
    done = client.ask("release", VF, L40S_4Q)
    assert (done["result"], done["step"]) == (-getattr(errno, name), "write")
    assert done["vfs"][0]["type"] == L40S_4Q
    sim.ctl("set", "sysfs.release_errno", 0, "--vf", VF)
    assert client.ask("release", VF, L40S_4Q)["result"] == 0


def test_read_errors_cost_that_vf(sim, client):
    sim.ctl("set", "sysfs.read_errno", "EIO", "--vf", VF)
    assert [v["error"] for v in client.ask("read", VF, VF2)["vfs"]] == [-errno.EIO, 0]
    done = client.ask("configure", VF, L40S_4Q)
    assert (done["result"], done["step"]) == (-errno.EIO, "before")
    assert client.ask("release", VF, L40S_4Q)["step"] == "before"
    assert sim.vf(VF)["type"] == 0


def test_an_open_vf_is_not_released(sim, client):
    client.ask("configure", VF, L40S_4Q)
    guest = sim.boot(VF)
    done = client.ask("release", VF, L40S_4Q)
    assert (done["result"], done["step"]) == (-errno.EBUSY, "scan")
    assert f"pid {guest} " in done["holder"]
    assert [v["open"] for v in client.ask("scan", VF, VF2)["vfs"]] == ["yes", "no"]
    os.kill(guest, signal.SIGTERM)
    wait_for(lambda: client.ask("release", VF, L40S_4Q)["result"] == 0, "release after the guest")


def test_a_slow_release_holds_up_nothing(sim, client):
    client.ask("configure", VF, L40S_4Q)
    sim.ctl("set", "sysfs.write_latency_ms", 2000, "--vf", VF)
    slow = client.submit("release", VF, L40S_4Q)
    assert client.ask("configure", VF2, L40S_4Q)["result"] == 0
    assert client.ask("read", VF2)["vfs"][0]["type"] == L40S_4Q
    assert client.ask("release", VF2, L40S_4Q)["result"] == 0
    assert slow not in client.replies
    assert client.reply(slow)["result"] == 0


def test_configures_come_one_after_another(sim, start_client):
    """Each takes 500 ms, more than one limit together, and nothing hangs."""
    client = start_client(sim, timeout_ms=1200)
    client.state("ready")
    sim.ctl("set", "sysfs.write_latency_ms", 250)
    numbers = [client.submit("configure", f"0000:41:00.{4 + i}", L40S_4Q) for i in range(4)]
    numbers += [client.submit("configure", f"0000:41:01.{i}", L40S_4Q) for i in range(4)]
    placements = [client.reply(n)["vfs"][0]["placement"] for n in numbers]
    assert placements == sorted(placements)
    assert client.states.empty()


def test_a_hung_write_lands_late_and_is_waited_for(sim, start_client):
    client = start_client(sim, timeout_ms=500)
    helper = client.state("ready")["pid"]
    sim.ctl("set", "sysfs.write_hang", 1, "--vf", VF)
    hung = client.submit("configure", VF, L40S_4Q)
    reason = client.state("stuck")["reason"]
    assert VF in reason and str(helper) in reason
    assert client.reply(hung)["driver_stuck"]
    assert client.ask("read", VF2)["op"] == "refused"
    # Killed, but the driver has it: neither collected nor replaced.
    assert is_alive(helper)
    sim.ctl("set", "sysfs.write_hang", 0, "--vf", VF)
    assert client.state("ready")["pid"] != helper
    assert not is_alive(helper)
    # Whoever comes after sees the late write.
    assert sim.vf(VF)["type"] == L40S_4Q
    assert client.ask("read", VF)["vfs"][0]["type"] == L40S_4Q


def test_a_hung_write_outlives_its_daemon(sim, start_client):
    first = start_client(sim, timeout_ms=20000)
    helper = first.state("ready")["pid"]
    sim.ctl("set", "sysfs.write_hang", 1, "--vf", VF)
    first.submit("configure", VF, L40S_4Q)
    wait_for(lambda: in_write(helper), "the helper to hang in its write")
    first.kill()
    second = start_client(sim, timeout_ms=5000)
    reason = second.state("stuck")["reason"]
    assert str(helper) in reason
    assert second.ask("read", VF2)["op"] == "refused"
    sim.ctl("set", "sysfs.write_hang", 0, "--vf", VF)
    second.state("ready")
    assert not is_alive(helper)
    assert second.ask("read", VF)["vfs"][0]["type"] == L40S_4Q


def in_write(pid):
    """Whether a thread of the process waits for the simulated driver in write(2), or hangs there."""
    if "D" in thread_states(pid):
        return True
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/syscall") as f:
            if f.read().split()[0] == "1":
                return True
    return False


def test_a_hung_read_makes_the_card_stuck(sim, start_client):
    client = start_client(sim, timeout_ms=500)
    client.state("ready")
    assert client.ask("read", VF, VF2)["result"] == 0
    sim.ctl("set", "sysfs.read_hang", 1, "--vf", VF2)
    # Operations on other VFs go on until the limit has passed.
    client.submit("read", VF2)
    assert client.ask("configure", VF, L40S_4Q)["result"] == 0
    client.state("stuck")
    sim.ctl("set", "sysfs.read_hang", 0, "--vf", VF2)
    client.state("ready")
    assert client.ask("read", VF)["vfs"][0]["type"] == L40S_4Q


def test_a_card_that_goes_and_comes_back(sim, client):
    assert client.ask("configure", VF, L40S_4Q)["result"] == 0
    assert client.ask("read", VF)["vfs"][0]["type"] == L40S_4Q
    sim.ctl("remove", CARD)
    assert client.ask("read", VF)["vfs"][0]["error"] in (-errno.ENOENT, -errno.ENODEV)
    gone = client.ask("release", VF, L40S_4Q)
    assert gone["result"] in (-errno.ENOENT, -errno.ENODEV)
    assert gone["step"] == "before"
    sim.ctl("restore", CARD)
    seen = client.ask("read", VF)["vfs"][0]
    assert (seen["error"], seen["type"]) == (0, 0)


def test_sriov_cycle(sim, client):
    assert client.ask("configure", VF, L40S_4Q)["result"] == 0
    assert client.ask("read", VF)["vfs"][0]["type"] == L40S_4Q
    sim.ctl("sriov", "-d", CARD)
    sim.ctl("sriov", "-e", CARD)
    assert client.ask("read", VF)["vfs"][0]["type"] == 0


def test_a_foreign_type_is_left_alone(sim, client):
    sim.ctl("configure", VF, L40S_24Q)
    done = client.ask("configure", VF, L40S_4Q)
    assert (done["result"], done["step"]) == (-errno.EEXIST, "before")
    done = client.ask("release", VF, L40S_4Q)
    assert (done["result"], done["step"]) == (-errno.ESTALE, "changed")
    assert sim.vf(VF)["type"] == L40S_24Q


def test_before_570_a_placement_is_pinned(start_sim, start_client):
    sim = start_sim("--driver", "550.163.02", "--nvml-latency", 0)
    client = Client(sim)
    try:
        client.state("ready")
        types = client.ask("list", VF)
        assert types["types"] > 0
        done = client.ask("configure", VF, L40S_4Q, 12, "pin")
        assert (done["result"], done["steered"], done["steer_error"]) == (0, True, 0)
        assert done["vfs"][0]["placement"] is None
        assert not done["vfs"][0]["has_placement_file"]
        assert "vgpu-placement-id=12" in sim.read(VF, "vgpu_params")
    finally:
        client.close()


def test_reading_costs_one_read_per_free_vf(sim, client):
    vfs = [vf["address"] for vf in sim.card()["vfs"]]
    client.ask("read", *vfs)
    before = sim.counters()["attr_reads"]
    for _ in range(10):
        client.ask("read", *vfs)
    assert sim.counters()["attr_reads"] - before == 10 * len(vfs)
