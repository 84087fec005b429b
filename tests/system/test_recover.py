# SPDX-License-Identifier: Apache-2.0
"""Recovery of a card: the SR-IOV cycle in one command, and what stays as it was when a step fails."""
import json
import os
import signal
import subprocess

import pytest

from conftest import BIN, wait_for

PF, PF2 = "0000:41:00.0", "0000:81:00.0"
VF = "0000:41:00.4"
STEPS = ["cordon", "stop_nvml", "stop_services", "sriov_off", "sriov_on", "wait_for_vfs", "mixed_mode",
         "start_services", "verify", "clear_records", "uncordon"]


def script(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


class Host:
    """Two cards with four VFs each; what the steps call is written to a file."""

    def __init__(self, sim, daemon):
        self.sim = sim
        self.daemon = daemon
        self.calls_path = sim.root / "calls"

    def command(self, name, text=""):
        """A command for the configuration that notes how it was called."""
        path = script(self.sim.root / name, f'echo {name} "$@" >> {self.calls_path}\n{text}\n')
        return f"{path} now"

    def calls(self):
        return self.calls_path.read_text().splitlines() if self.calls_path.exists() else []

    def recover(self, card=PF):
        return self.daemon.request("POST", f"/gpus/{card}/recover")

    def card(self, card=PF):
        return self.daemon.get(f"/gpus/{card}")

    def wait_end(self, card=PF, seconds=20):
        """The recovery's last word."""
        wait_for(lambda: (self.card(card)["recovery"] or {}).get("state") != "running", "the recovery to end", seconds)
        return self.card(card)["recovery"]

    def recovered(self):
        answer = self.recover()
        assert answer.status == 202, answer
        assert answer.json["state"] == "running"
        end = self.wait_end()
        assert (end["state"], end["step"], end["detail"]) == ("done", "done", None), (end, self.daemon.log())

    def open_vf(self):
        """Somebody's VF, configured and open without a claim."""
        self.sim.ctl("configure", VF, "NVIDIA L40S-4Q")
        return os.open(self.daemon.vfs()[VF]["vfio_group"], os.O_RDWR)

    def quarantine(self, vf=VF):
        assert self.daemon.request("PUT", f"/vfs/{vf}/quarantine").status == 200

    def quarantined(self):
        return [v["address"] for v in self.daemon.vfs().values() if v["quarantined"]]


@pytest.fixture
def start_host(start_sim, start_daemon):
    def start(*options, settings=None):
        sim = start_sim("--nvml-latency", 0, "--vfs", 4, *options)
        return Host(sim, start_daemon(sim, {"recover": {"timeout": "10s"}, **(settings or {})}))

    return start


@pytest.fixture
def host(start_host):
    return start_host()


@pytest.mark.tsan
def test_a_wedged_vf_is_brought_back(host):
    """Also: the mixed-size mode that the cycle loses, and the records of that card alone."""
    host.sim.ctl("wedge", VF)
    host.quarantine()
    host.quarantine("0000:81:00.4")
    host.recovered()
    assert not host.sim.vf(VF)["wedged"]
    assert host.sim.card()["mode"] == "mixed"
    assert host.quarantined() == ["0000:81:00.4"]
    wait_for(lambda: host.card()["mode"] == "mixed" and not host.card()["fallback"], "NVML to be used again")
    card = host.card()
    assert not card["cordoned"] and card["slots"]["allocatable"] == 4
    assert host.daemon.claim("vm", gpu=PF).status == 201
    host.daemon.restart()
    assert host.card()["recovery"] is None  # nothing is left unfinished


def test_equal_size_mode_stays(start_host):
    host = start_host("--mode", "equal")
    host.recovered()
    assert host.sim.card()["mode"] == "equal"


def test_cordon_is_as_before(host):
    assert host.daemon.request("PUT", f"/gpus/{PF}/cordon").status == 200
    host.recovered()
    assert host.card()["cordoned"]
    host.daemon.restart()
    assert host.card()["cordoned"]
    assert host.daemon.request("DELETE", f"/gpus/{PF}/cordon").status == 200
    host.recovered()  # the cordon of now counts, not that of the last recovery
    assert not host.card()["cordoned"]


@pytest.mark.parametrize("method", ["DELETE", "PUT"])
def test_a_cordon_that_is_on_its_way_when_it_begins(start_host, method):
    """It is what the card gets in the end; until then no claim comes between."""
    host = start_host()
    host.daemon.stop()
    gate = host.sim.root / "gate"
    os.mkfifo(gate)
    host.daemon.configure({"recover": {"services_stop": [f"/bin/cat {gate}"]}})
    host.daemon.start()
    cordon, recover = host.daemon.connect(), host.daemon.connect()
    for connection in (cordon, recover):
        connection.connect()
    # Both are there before berthd looks at one; the database answers later.
    os.kill(host.daemon.process.pid, signal.SIGSTOP)
    cordon.request(method, f"/gpus/{PF}/cordon")
    recover.request("POST", f"/gpus/{PF}/recover")
    os.kill(host.daemon.process.pid, signal.SIGCONT)
    statuses = [c.getresponse().status for c in (cordon, recover)]
    cordon.close()
    recover.close()
    assert statuses[1] == 202
    wait_for(lambda: host.card()["recovery"]["step"] == "stop_services", "the recovery to wait")
    assert host.card()["cordoned"]
    assert host.daemon.claim("vm", gpu=PF).status == 409
    gate.write_text("go")
    assert host.wait_end()["state"] == "done"
    if statuses[0] == 200:
        assert host.card()["cordoned"] == (method == "PUT")


def test_refused_while_in_use(host):
    host.daemon.claim("vm", gpu=PF)
    answer = host.recover()
    assert (answer.status, answer.code) == (409, "in_use")
    assert host.card()["recovery"] is None and not host.card()["cordoned"]
    assert host.daemon.release("vm").status == 200
    node = host.open_vf()
    answer = host.recover()
    assert (answer.status, answer.code) == (409, "in_use")
    assert VF in answer.json["detail"]
    assert host.card()["recovery"] is None and not host.card()["cordoned"]
    os.close(node)
    assert host.recover("0000:99:00.0").status == 404
    assert host.recover("nonsense").status in (400, 404)
    host.recovered()


@pytest.mark.parametrize("excluded", [PF, VF])
def test_what_is_excluded_is_not_cycled(start_host, excluded):
    """Neither a card, nor a VF of it, that somebody else configures."""
    host = start_host(settings={"gpu": {"exclude": [excluded]}})
    host.sim.ctl("configure", VF, "NVIDIA L40S-4Q")
    before = host.sim.counters()["attr_writes"]
    answer = host.recover()
    assert (answer.status, answer.code) == (403, "forbidden"), answer
    assert excluded in answer.json["detail"] and "gpu.exclude" in answer.json["detail"]
    assert host.card()["recovery"] is None and not host.card()["cordoned"]
    assert host.sim.vf(VF)["type"] and host.sim.counters()["attr_writes"] == before
    assert host.recover("0000:81:00.0").status == 202
    host.wait_end("0000:81:00.0")


def test_other_cards_work_on(host):
    """The card is cordoned at once, the others take claims; nothing else may meddle."""
    host.sim.ctl("set", "sriov.latency_ms", 400)
    assert host.recover().status == 202
    assert host.recover().code == "in_use"
    assert host.daemon.request("DELETE", f"/gpus/{PF}/cordon").code == "in_use"
    answer = host.daemon.claim("vm1", gpu=PF)
    assert answer.status == 409
    assert host.daemon.claim("vm2", timeout=60).json["gpu"] == PF2
    assert host.wait_end()["state"] == "done"
    assert host.daemon.claim("vm1", gpu=PF).status == 201


def test_services_and_verify(host):
    host.daemon.restart({"recover": {
        "services_stop": [host.command("stop-a"), host.command("stop-b")],
        "services_start": [host.command("start-b"), host.command("start-a")],
        "verify": host.command("verify", f'[ -d "$3" ] && [ -e "{host.sim.root}/sys/bus/pci/devices/$2" ]') +
        " {vf} {sysfs} {gpu}"}})
    host.recovered()
    assert host.calls() == ["stop-a now", "stop-b now", "start-b now", "start-a now",
                            f"verify now {VF} {host.sim.sys}/bus/pci/devices/{VF} {PF}"]


FAILING = {
    "stop_services": lambda host: {"services_stop": [host.command("stop", "echo no such unit >&2; exit 5")]},
    "sriov_off": lambda host: {"sriov_manage": script(host.sim.root / "manage", "exit 1\n")},
    "sriov_on": lambda host: {"sriov_manage": script(
        host.sim.root / "manage", f'[ $1 = -d ] && exec {host.sim.root}/sriov-manage "$@"; kill -9 $$\n')},
    "wait_for_vfs": lambda host: {"timeout": "1s", "sriov_manage": script(
        host.sim.root / "manage", f'[ $1 = -d ] && exec {host.sim.root}/sriov-manage "$@"; exit 0\n')},
    "start_services": lambda host: {"services_start": [host.command("start", "exit 3")]},
    "verify": lambda host: {"timeout": "1s", "verify": host.command("verify", "exec sleep 100") + " {vf}"},
}
DETAILS = {"stop_services": "no such unit", "sriov_off": "exit status 1", "sriov_on": "SIGKILL",
           "wait_for_vfs": "0 of 4 VFs", "start_services": "exit status 3", "verify": "time limit"}


@pytest.mark.parametrize("step", FAILING)
def test_failing_step(host, step):
    """It stops there, says so, touches no record, and the card stays cordoned, also over a restart."""
    host.quarantine()
    good = dict(host.daemon.settings["recover"])
    host.daemon.restart({"recover": FAILING[step](host)})
    assert host.recover().status == 202
    end = host.wait_end()
    assert (end["state"], end["step"]) == ("failed", step)
    assert DETAILS[step] in end["detail"]
    assert host.card()["cordoned"]
    assert json.loads((host.daemon.data_dir / "gpu/vf-health.json").read_text())["records"]
    assert host.daemon.claim("vm").json["gpu"] == PF2  # NVML is in use again
    assert host.daemon.release("vm").status in (200, 202)
    host.daemon.settings["recover"] = good
    host.daemon.restart()
    again = host.card()
    assert again["cordoned"]
    assert (again["recovery"]["state"], again["recovery"]["step"]) == ("failed", step)
    assert again["recovery"]["detail"] == end["detail"]
    host.recovered()
    assert host.quarantined() == [] and not host.card()["cordoned"]
    assert len(host.card()["vfs"]) == 4
    assert host.sim.card()["mode"] == "mixed"


def test_somebody_holds_the_nodes(host):
    """sriov-manage refuses while a process has the driver's nodes open."""
    node = os.open(host.sim.dev / "nvidia0", os.O_RDWR)
    assert host.recover().status == 202
    end = host.wait_end()
    assert (end["state"], end["step"]) == ("failed", "sriov_off")
    assert "unbindLock" in end["detail"]
    os.close(node)
    host.recovered()


def test_uncordon_ends_a_failed_recovery(host):
    host.daemon.restart({"recover": {"services_stop": [host.command("stop", "exit 1")]}})
    host.recover()
    assert host.wait_end()["state"] == "failed"
    assert host.daemon.request("DELETE", f"/gpus/{PF}/cordon").status == 200
    assert host.card()["recovery"] is None
    host.daemon.restart()
    assert host.card()["recovery"] is None and not host.card()["cordoned"]


def test_a_refused_second_try_keeps_the_first(host):
    host.daemon.restart({"recover": {"services_stop": [host.command("stop", "exit 1")]}})
    host.recover()
    first = host.wait_end()
    node = host.open_vf()
    assert host.recover().code == "in_use"
    os.close(node)
    assert host.card()["recovery"] == first and host.card()["cordoned"]


def test_stopped_driver_stays_stopped(host):
    """`berth driver release` by a person outlasts the recovery, but for the mixed-size mode."""
    assert host.daemon.request("POST", "/driver/release").status == 200
    host.recover()
    end = host.wait_end()
    assert end["state"] in ("done", "failed")
    if end["state"] == "failed":
        assert end["step"] == "mixed_mode"


def test_progress_as_events(host):
    connection = host.daemon.connect()
    connection.request("GET", "/events")
    stream = connection.getresponse()
    assert host.recover().status == 202
    seen = []
    while not seen or seen[-1]["state"] == "running":
        line = stream.readline()
        if line.startswith(b"event: recover") or line.startswith(b"event:recover"):
            data = stream.readline()
            while not data.startswith(b"data:"):
                data = stream.readline()
            seen.append(json.loads(data[5:]))
    connection.close()
    assert [e["step"] for e in seen] == [*STEPS, "done"]
    assert {e["gpu"] for e in seen} == {PF}
    assert seen[-1]["state"] == "done"


def berth(host, *args):
    return subprocess.run([BIN / "berth", "--socket", host.daemon.socket, *args], capture_output=True, text=True,
                          timeout=60)


def test_command(host):
    host.sim.ctl("set", "sriov.latency_ms", 300)
    done = berth(host, "gpu", "recover", PF)
    assert done.returncode == 0, done
    assert f"{PF}: sriov_off" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(f"{PF} is back")
    assert json.loads(berth(host, "--json", "gpu", "recover", PF).stdout)["state"] == "done"
    host.daemon.claim("vm", gpu=PF)
    done = berth(host, "gpu", "recover", PF)
    assert done.returncode == 1 and "claims" in done.stderr
    assert berth(host, "gpu", "recover", "0000:99:00.0").returncode == 4
    host.daemon.release("vm")
    host.daemon.restart({"recover": {"services_stop": [host.command("stop", "echo it hurts; exit 1")]}})
    done = berth(host, "gpu", "recover", PF)
    assert done.returncode == 1
    assert "stop_services" in done.stderr and "it hurts" in done.stderr and "cordoned" in done.stderr


def test_stopping_in_the_middle(host):
    """SIGTERM to berthd: reported at the next start, recovered by a second try."""
    host.quarantine()
    host.sim.ctl("set", "sriov.latency_ms", 1000)
    host.recover()
    wait_for(lambda: host.card()["recovery"]["step"] == "sriov_off", "the step")
    os.kill(host.daemon.process.pid, signal.SIGTERM)
    host.daemon.process.wait(timeout=20)
    host.sim.ctl("set", "sriov.latency_ms", 0)
    host.daemon.start()
    assert host.card()["recovery"]["state"] == "interrupted"
    assert host.card()["cordoned"]

    def second_try():
        assert host.recover().status == 202
        return host.wait_end()["state"] == "done"  # the first sriov-manage may still be at work

    wait_for(second_try, "the second try")
    assert host.quarantined() == [] and not host.card()["cordoned"]
    assert host.sim.card()["mode"] == "mixed"
