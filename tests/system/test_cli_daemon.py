# SPDX-License-Identifier: Apache-2.0
"""The berth program with the real daemon on a simulated host: the words in which they agree."""

import json
import os
import re
import signal
import subprocess

import pytest
from conftest import BIN, wait_for

FIRST, SECOND = "0000:41:00.0", "0000:81:00.0"


def environment(daemon):
    return {**os.environ, "BERTH_SOCKET": daemon.socket, "LC_ALL": "C.UTF-8", "COLUMNS": "80"}


def berth(daemon, *args):
    return subprocess.run([BIN / "berth", *args], capture_output=True, text=True, timeout=60,
                          env=environment(daemon))


def ok(daemon, *args):
    run = berth(daemon, *args)
    assert (run.returncode, run.stderr) == (0, ""), run
    return run.stdout


def test_a_day_at_the_host(daemon):
    assert "64 total, 0 used, 64 allocatable" in ok(daemon, "resources")
    text = ok(daemon, "claim", "vm1", "-p", "L40S-4Q", "--owner", "alice", "--gpu", FIRST,
              "--policy", "least_loaded")
    claim = daemon.claims()["vm1"]
    assert text.startswith(f"claimed vm1: NVIDIA L40S-4Q on {FIRST}\n") and claim["vf"] in text
    assert claim["sysfs_path"] in text
    assert ok(daemon, "claim", "vm1", "-p", "L40S-4Q").startswith("vm1 was claimed before")
    assert re.search(rf"vm1 +bound +NVIDIA L40S-4Q +{claim['vf']} +{FIRST} +0 .* alice", ok(daemon, "claims"))
    picture = ok(daemon, "map")
    assert "[a─]" in picture and re.search(rf"a +0-3 +L40S-4Q +vm1 +{claim['vf']}", picture)
    assert re.search(rf"{FIRST} .* 1/32 +31 +0 +ok", ok(daemon, "gpus"))
    assert ok(daemon, "release", "vm1") == "released vm1\n"
    assert "[a─]" not in ok(daemon, "map") and daemon.claims() == {}


@pytest.mark.parametrize("command", ["resources", "gpus", "map", "claims"])
def test_json_is_what_the_daemon_says(daemon, command):
    ok(daemon, "claim", "vm1", "-p", "L40S-8Q")
    path = "/gpus" if command == "map" else f"/{command}"
    told, asked = json.loads(ok(daemon, command, "--json")), daemon.get(path)
    for answer in (told, asked):
        answer.get("gpu", {}).pop("placements_age_ms", None)
    assert told == asked


def test_exit_statuses(daemon):
    for args, status, sentence in (
            (("claim", "x", "-p", "L40S-99Q"), 4, "profile"),
            (("claim", "-x-", "-p", "L40S-4Q"), 2, ""),
            (("claim", ".x", "-p", "L40S-4Q"), 1, "name"),
            (("claim", "x", "-p", "L40S-4Q", "--pid", "2147483647"), 1, "process"),
            (("claim", "x", "-p", "L40S-4Q", "--policy", "nonsense"), 1, "policy"),
            (("release", "x"), 4, "no claim named x"),
            (("gpu", "cordon", "0000:99:00.0"), 4, "")):
        run = berth(daemon, *args)
        assert run.returncode == status and sentence in run.stderr, run
    for index in range(2):
        ok(daemon, "claim", f"big{index}", "-p", "L40S-48Q")
    run = berth(daemon, "claim", "x", "-p", "L40S-1Q")
    assert run.returncode == 3
    assert FIRST in run.stderr and SECOND in run.stderr
    run = berth(daemon, "claim", "big0", "-p", "L40S-1Q")
    assert run.returncode == 1
    daemon.stop()
    assert berth(daemon, "claims").returncode == 5


def test_cordon(daemon):
    ok(daemon, "gpu", "cordon", FIRST)
    assert "cordoned" in ok(daemon, "gpus") and "cordoned: no new claims" in ok(daemon, "map")
    run = berth(daemon, "claim", "vm1", "-p", "L40S-4Q", "--gpu", FIRST)
    assert run.returncode != 0 and "cordoned" in run.stderr
    ok(daemon, "gpu", "uncordon", FIRST)
    ok(daemon, "claim", "vm1", "-p", "L40S-4Q", "--gpu", FIRST)


def test_driver(daemon):
    ok(daemon, "driver", "release")
    wait_for(lambda: "fallback" in ok(daemon, "gpus"), "a fallback")
    ok(daemon, "driver", "resume")
    wait_for(lambda: "fallback" not in ok(daemon, "gpus"), "no fallback")


def test_slow_release(sim, daemon):
    for name in ("vm1", "vm2"):
        ok(daemon, "claim", name, "-p", "L40S-4Q", "--gpu", FIRST)
    sim.ctl("set", "sysfs.write_latency_ms", 1500)
    assert ok(daemon, "release", "vm1").startswith("vm1 is being released")
    assert ok(daemon, "release", "vm2", "--wait") == "released vm2\n"
    assert "vm2" not in daemon.claims()


def start_claim(daemon, *args):
    return subprocess.Popen([BIN / "berth", "claim", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env=environment(daemon))


def test_wait_for_room(daemon):
    for index in range(2):
        ok(daemon, "claim", f"big{index}", "-p", "L40S-48Q")
    waiting = start_claim(daemon, "vm1", "-p", "L40S-4Q", "--wait=30s")
    interrupted = start_claim(daemon, "vm2", "-p", "L40S-4Q", "--wait=30s")
    # A short wait ends first; by then the others have been taken in.
    assert berth(daemon, "claim", "vm3", "-p", "L40S-4Q", "--wait=1s").returncode == 3
    interrupted.send_signal(signal.SIGINT)
    interrupted.communicate(timeout=20)
    ok(daemon, "release", "big0")
    out, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 0 and out.startswith("claimed vm1"), err
    # Nothing that was asked for later can overtake a claim that nobody waits for any more.
    ok(daemon, "claim", "vm4", "-p", "L40S-4Q")
    assert set(daemon.claims()) == {"big1", "vm1", "vm4"}
