# SPDX-License-Identifier: Apache-2.0
"""Branch 550: a placement is taken when a VM boots, claims are pinned through vgpu_params."""
import os
import signal

import pytest

from conftest import wait_for
from test_capacity import A, B, refresh, settle, vf_addresses

DRIVER = ("--driver", "550.163.01", "--nvml-latency", 0)


@pytest.fixture
def old_sim(start_sim):
    return start_sim(*DRIVER)


@pytest.fixture
def old_daemon(old_sim, start_daemon):
    return start_daemon(old_sim)


def profile(daemon, name, address=A):
    profiles = daemon.get(f"/gpus/{address}")["profiles"]
    return next(p for p in profiles if p["name"] == f"NVIDIA {name}")


def boot(sim, vf):
    return sim.boot(vf, "--init-ms", 0)


def shut_down(pid):
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "the guest to end")


def test_claims_are_pinned(old_sim, old_daemon):
    """The pin is written, read back, shown, and counted although NVML does not count it."""
    assert old_daemon.get(f"/gpus/{A}")["source"] == "nvml"
    for i, placement in enumerate((0, 8, 12, 20)):
        answer = old_daemon.claim(f"vm{i}", "L40S-4Q", gpu=A, policy="least_loaded")
        assert answer.status == 201
        assert answer.json["placement"] == {"id": placement, "size": 4}
        params = old_sim.read(answer.json["vf"], "vgpu_params")
        assert f"vgpu-placement-id={placement}" in params
        settle(old_sim)
        assert profile(old_daemon, "L40S-4Q")["free_placements"] == 7 - i
        assert profile(old_daemon, "L40S-24Q")["available"] == 1
    placed = {p["claim"]: p["id"] for p in old_daemon.get(f"/gpus/{A}")["placed"]}
    assert placed == {"vm0": 0, "vm1": 8, "vm2": 12, "vm3": 20}
    assert old_daemon.metric("berth_placement_drift_total") == 0


def test_a_full_card(old_sim, old_daemon):
    """Eight 4Q and no ninth, with and without running guests; the numbers are right on the way."""
    vfs = []
    for i in range(8):
        answer = old_daemon.claim(f"vm{i}", "L40S-4Q", gpu=A)
        assert answer.status == 201, answer
        vfs.append(answer.json["vf"])
    refused = old_daemon.claim("vm8", "L40S-4Q", gpu=A)
    assert (refused.status, refused.code) == (409, "insufficient_resources")
    pids = [boot(old_sim, vf) for vf in vfs[:3]]
    refresh(old_daemon)
    assert profile(old_daemon, "L40S-4Q")["free_placements"] == 0
    for pid in pids:
        shut_down(pid)
    for i in range(8):
        assert old_daemon.release(f"vm{i}").status == 200
        settle(old_sim)
        assert profile(old_daemon, "L40S-4Q")["free_placements"] == i + 1


def test_pins_survive_a_restart(old_sim, old_daemon):
    assert old_daemon.claim("vm", "L40S-24Q", gpu=A).status == 201
    old_daemon.restart()
    assert old_daemon.claims()["vm"]["placement"] == {"id": 0, "size": 24}
    assert profile(old_daemon, "L40S-24Q")["available"] == 1
    assert old_daemon.claim("vm2", "L40S-24Q", gpu=A).json["placement"]["id"] == 24


def test_foreign_vf_counts_as_first_fit(old_sim, old_daemon):
    """Not pinned, no VM yet: counted where the driver's first fit would put it; no id is shown."""
    foreign = vf_addresses(A)[9]
    old_sim.ctl("configure", foreign, "L40S-24Q")
    wait_for(lambda: profile(old_daemon, "L40S-24Q")["available"] == 1, "the foreign vGPU")
    placed = old_daemon.get(f"/gpus/{A}")["placed"]
    assert placed == [{"id": None, "size": 24, "profile": "NVIDIA L40S-24Q", "vf": foreign, "claim": None}]
    assert old_daemon.vfs()[foreign]["placement"] is None
    answer = old_daemon.claim("vm", "L40S-24Q", gpu=A)
    assert answer.status == 201 and answer.json["placement"]["id"] == 24
    # The foreign one boots into the half that was left for it.
    pid = boot(old_sim, foreign)
    mine = boot(old_sim, answer.json["vf"])
    refresh(old_daemon)
    assert {p["available"] for p in old_daemon.get(f"/gpus/{A}")["profiles"]} == {0}
    shut_down(pid)
    shut_down(mine)


def test_running_foreign_guest_counts_once(old_sim, old_daemon):
    """When its VM runs NVML counts its placement: the first fit must not be counted beside it."""
    foreign = vf_addresses(A)[9]
    old_sim.ctl("configure", foreign, "L40S-24Q")
    wait_for(lambda: profile(old_daemon, "L40S-24Q")["available"] == 1, "the foreign vGPU")
    pid = boot(old_sim, foreign)
    refresh(old_daemon)
    assert profile(old_daemon, "L40S-24Q")["free_placements"] == 1
    assert profile(old_daemon, "L40S-4Q")["available"] == 4
    # And one that runs does not stand for another that does not.
    other = vf_addresses(A)[10]
    old_sim.ctl("configure", other, "L40S-12Q")
    wait_for(lambda: profile(old_daemon, "L40S-12Q")["available"] == 1, "the other one")
    assert profile(old_daemon, "L40S-24Q")["available"] == 0
    shut_down(pid)
    refresh(old_daemon)
    assert profile(old_daemon, "L40S-24Q")["free_placements"] == 0
    assert old_daemon.metric("berth_placement_drift_total") == 0


def test_least_loaded_across_cards(old_sim, old_daemon):
    gpus = [old_daemon.claim(f"vm{i}", "L40S-16Q", policy="least_loaded").json["gpu"] for i in range(4)]
    assert gpus == [A, B, A, B]
    refused = old_daemon.claim("vm4", "L40S-16Q")
    assert (refused.status, refused.code) == (409, "insufficient_resources")
