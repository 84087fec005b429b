# SPDX-License-Identifier: Apache-2.0
"""The berth program against a daemon that is played here: every command, exit status and odd answer."""

import json
import os
import pty
import re
import select
import socket
import socketserver
import subprocess
import threading
import time
from pathlib import Path

import pytest

BIN = Path(os.environ.get("BERTH_BIN") or Path(__file__).parents[2] / "build/bin")
BERTH = BIN / "berth"
DEADLINE = 15


def plain_env(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("BERTH_", "LC_", "LANG", "COLUMNS", "NO_COLOR"))}
    return {**env, "LC_ALL": "C.UTF-8", "COLUMNS": "80", **more}


class Daemon:
    """Answers by a table of (method, path) -> list of answers; the last one stays."""

    def __init__(self, path):
        self.path = str(path)
        self.answers = {}
        self.seen = []
        self.lock = threading.Lock()
        self.seen_changed = threading.Condition(self.lock)
        daemon = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                daemon.handle(self)

        class UnixServer(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

        self.server = UnixServer(self.path, Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def handle(self, handler):
        line = handler.rfile.readline().decode()
        if not line:
            return
        method, path, _ = line.split()
        headers = {}
        while (line := handler.rfile.readline().decode().strip()):
            key, value = line.split(":", 1)
            headers[key.lower()] = value.strip()
        body = handler.rfile.read(int(headers.get("content-length", 0)))
        with self.lock:
            self.seen.append((method, path, json.loads(body) if body else None))
            self.seen_changed.notify_all()
            answers = self.answers.get((method, path), [problem("not_found", 404, "no such path")])
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if callable(answer):
            answer(handler)
        else:
            handler.wfile.write(answer)

    def on(self, method, path, *answers):
        self.answers[method, path] = list(answers)

    def wait_seen(self, method, path, count=1):
        with self.lock:
            assert self.seen_changed.wait_for(
                lambda: sum(s[:2] == (method, path) for s in self.seen) >= count, DEADLINE)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def http(status, body, content_type="application/json"):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    return (f"HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n").encode() + body


NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


def problem(code, status, detail=None, **more):
    fields = {"type": "about:blank", "title": "The title", "status": status, "code": code, **more}
    if detail is not None:
        fields["detail"] = detail
    return http(status, fields, "application/problem+json")


@pytest.fixture
def daemon(tmp_path):
    d = Daemon(tmp_path / "d.sock")
    yield d
    d.close()


def berth(daemon, *args, **env):
    if daemon is not None:
        env["BERTH_SOCKET"] = daemon.path
    return subprocess.run([BERTH, *args], capture_output=True, text=True, timeout=DEADLINE, env=plain_env(**env))


CLAIM = {"name": "vm1", "state": "bound", "problem": None, "profile": "NVIDIA L40S-4Q", "type_id": 1150,
         "vf": "0000:41:00.4", "gpu": "0000:41:00.0", "placement": {"id": 8, "size": 4},
         "sysfs_path": "/sys/bus/pci/devices/0000:41:00.4", "vfio_group": 57, "vfio_device": "/dev/vfio/57",
         "iommufd": None, "assigned_at": "2026-11-29T16:38:00.123456789Z", "owner": "alice"}
RELEASING = {**CLAIM, "state": "releasing"}

RESOURCES = {"gpu": {"mode": "vgpu", "framework": "vendor_vfio", "total_slots": 64, "used_slots": 12,
                     "allocatable_slots": 51, "quarantined_slots": 1, "placements_age_ms": 1250,
                     "profiles": [{"name": "NVIDIA L40S-4Q", "framebuffer_mb": 4096, "available": 11},
                                  {"name": "NVIDIA L40S-48Q", "framebuffer_mb": 49152, "available": 0}],
                     "fallbacks": [{"gpu": "0000:81:00.0", "reason": "equal_size"}]}}


def placed(first, size, profile, claim, vf):
    return {"id": first, "size": size, "profile": f"NVIDIA {profile}", "claim": claim, "vf": vf}


def gpu(address, region, vgpus, **more):
    return {"address": address, "name": "NVIDIA L40S", "numa_node": 0, "mode": "mixed", "driver": "580.178.05",
            "source": "nvml", "fallback": None, "stuck": False, "cordoned": False, "region": region,
            "slots": {"total": 32, "used": len(vgpus), "allocatable": 32 - len(vgpus), "quarantined": 0},
            "placed": vgpus, "vfs": [],
            "profiles": [{"name": "NVIDIA L40S-8Q", "framebuffer_mb": 8192, "size": 8, "free_placements": 3,
                          "available": 3},
                         {"name": "NVIDIA L40S-48Q", "framebuffer_mb": 49152, "size": 48, "free_placements": 0,
                          "available": 0}], **more}


# --- Usage ---------------------------------------------------------------------------------------

COMMANDS = ["resources", "gpus", "map", "claim", "release", "claims", "gpu", "driver"]


def test_help_names_every_command():
    run = berth(None, "--help")
    assert run.returncode == 0 and run.stderr == ""
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", run.stdout, re.M)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_examples(command):
    for args in ([command, "--help"], [command, "-h"]):
        run = berth(None, *args)
        assert run.returncode == 0 and run.stderr == ""
        assert f"\nExamples:\n  berth {command}" in run.stdout or f"berth {command}" in run.stdout.split("Examples:")[1]
        assert "--json" in run.stdout


def test_help_fits_a_terminal():
    for args in [["--help"]] + [[c, "--help"] for c in COMMANDS]:
        assert max(len(line) for line in berth(None, *args).stdout.splitlines()) <= 90


def test_version():
    run = berth(None, "--version")
    assert run.returncode == 0 and re.fullmatch(r"berth \d+\.\d+\.\d+\n", run.stdout)


@pytest.mark.parametrize("args", [
    [], ["nonsense"], ["--nonsense"], ["resources", "extra"], ["resources", "--nonsense"], ["gpus", "x"], ["map", "x"],
    ["claims", "x"], ["claim"], ["claim", "vm1"], ["claim", "vm1", "-p"], ["claim", "vm1", "-p", ""],
    ["claim", "-p", "L40S-4Q"], ["claim", "a", "b", "-p", "L40S-4Q"], ["claim", "", "-p", "L40S-4Q"],
    ["claim", "..", "-p", "L40S-4Q"], ["claim", "x" * 256, "-p", "L40S-4Q"],
    ["claim", "a", "-p", "P", "--numa-node", "x"], ["claim", "a", "-p", "P", "--numa-node", "-1"],
    ["claim", "a", "-p", "P", "--pid", "1x"], ["claim", "a", "-p", "P", "--wait=soon"],
    ["claim", "a", "-p", "P", "--wait=11m"], ["claim", "a", "-p", "P", "--wait", "5s"],
    ["claim", "a", "-p", b"\xff"], ["release"], ["release", "a", "b"], ["release", "a", "--wait=x"], ["gpu"],
    ["gpu", "cordon"], ["gpu", "nonsense", "0000:41:00.0"], ["gpu", "cordon", "a", "b"], ["driver"],
    ["driver", "nonsense"], ["driver", "release", "x"], ["--socket"],
])
def test_wrong_usage(daemon, args):
    run = berth(daemon, *args)
    assert run.returncode == 2 and run.stdout == "" and run.stderr != ""
    assert daemon.seen == []


# --- Reaching the daemon -------------------------------------------------------------------------

ANY = [["resources"], ["gpus"], ["map"], ["claims"], ["claim", "a", "-p", "P"], ["release", "a"],
       ["gpu", "cordon", "a"], ["driver", "release"]]


@pytest.mark.parametrize("args", ANY)
def test_no_daemon(tmp_path, args):
    run = berth(None, "--socket", str(tmp_path / "none"), *args)
    assert run.returncode == 5 and "no daemon at socket" in run.stderr and run.stdout == ""


def test_dead_socket_and_long_path(tmp_path):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / "dead"))
    assert berth(None, "claims", BERTH_SOCKET=str(tmp_path / "dead")).returncode == 5
    assert berth(None, "claims", BERTH_SOCKET="/tmp/" + "x" * 200).returncode == 5


def test_socket_option_goes_before_the_environment(daemon, tmp_path):
    daemon.on("GET", "/claims", http(200, {"claims": []}))
    for args in (["--socket", daemon.path, "claims"], ["claims", "--socket", daemon.path]):
        assert berth(None, *args, BERTH_SOCKET=str(tmp_path / "none")).returncode == 0


@pytest.mark.parametrize("code,http_status,status", [
    ("bad_request", 400, 1), ("forbidden", 403, 1), ("not_found", 404, 4), ("insufficient_resources", 409, 3),
    ("claim_exists", 409, 1), ("in_use", 409, 1), ("unknown_profile", 422, 4), ("not_supported", 422, 1),
    ("driver_stuck", 503, 1), ("store_unavailable", 503, 1), ("of_the_future", 418, 1),
])
def test_problems_become_exit_codes(daemon, code, http_status, status):
    daemon.on("PUT", "/claims/vm1", problem(code, http_status, "because of this"))
    run = berth(daemon, "claim", "vm1", "-p", "L40S-4Q")
    assert (run.returncode, run.stdout) == (status, "")
    assert run.stderr == "berth: because of this\n"


def test_problem_without_detail_and_with_reasons(daemon):
    daemon.on("PUT", "/claims/vm1", problem("insufficient_resources", 409, cards=[
        {"gpu": "0000:41:00.0", "reason": "no hole of 4 units"}, {"address": "0000:81:00.0", "reason": "cordoned"},
        {"gpu": "no reason"}, 7]))
    run = berth(daemon, "claim", "vm1", "-p", "L40S-4Q")
    assert run.returncode == 3
    assert run.stderr.splitlines() == ["berth: The title", "  0000:41:00.0: no hole of 4 units",
                                       "  0000:81:00.0: cordoned"]


def test_problem_as_json(daemon):
    daemon.on("GET", "/claims", problem("store_unavailable", 503, "the disk"))
    run = berth(daemon, "claims", "--json")
    assert run.returncode == 1 and json.loads(run.stdout)["code"] == "store_unavailable"
    assert run.stderr == "berth: the disk\n"


# --- Commands ------------------------------------------------------------------------------------


def test_resources(daemon):
    daemon.on("GET", "/resources", http(200, RESOURCES))
    run = berth(daemon, "resources")
    assert run.returncode == 0 and run.stderr == ""
    assert run.stdout == """\
mode        vgpu (vendor_vfio)
slots       64 total, 12 used, 51 allocatable, 1 quarantined
placements  as of 1.2 s ago
fallback    0000:81:00.0: equal_size

PROFILE            MEMORY  AVAILABLE
NVIDIA L40S-4Q    4096 MB         11
NVIDIA L40S-48Q  49152 MB          0
"""


def test_resources_of_other_hosts(daemon):
    daemon.on("GET", "/resources", http(200, {"gpu": {"mode": "none", "fallbacks": ["library"]}}))
    assert berth(daemon, "resources").stdout == "mode        none\nfallback    library\n"
    daemon.on("GET", "/resources", http(200, {"gpu": {"mode": "passthrough", "devices": [
        {"name": "NVIDIA A2", "address": "0000:08:00.0", "available": True}]}}))
    assert "0000:08:00.0  NVIDIA A2  yes" in berth(daemon, "resources").stdout


def test_gpus(daemon):
    daemon.on("GET", "/gpus", http(200, {"gpus": [
        gpu("0000:41:00.0", 48, []),
        gpu("0000:81:00.0", 48, [], stuck=True, cordoned=True, fallback="timeout", numa_node=None)]}))
    lines = berth(daemon, "gpus").stdout.splitlines()
    assert lines[0].split()[:3] == ["GPU", "NAME", "NUMA"]
    assert lines[1].split() == "0000:41:00.0 NVIDIA L40S 0 mixed 580.178.05 nvml 0/32 32 0 ok".split()
    assert lines[2].endswith("stuck, cordoned, fallback: timeout") and " - " in lines[2]


def test_claim(daemon):
    daemon.on("PUT", "/claims/vm1", http(201, CLAIM), http(200, CLAIM))
    run = berth(daemon, "claim", "vm1", "-p", "L40S-4Q")
    assert run.returncode == 0 and run.stderr == ""
    assert run.stdout == """\
claimed vm1: NVIDIA L40S-4Q on 0000:41:00.0
  VF           0000:41:00.4
  sysfs path   /sys/bus/pci/devices/0000:41:00.4
  VFIO group   57
  VFIO device  /dev/vfio/57
  placement    8, size 4
"""
    assert berth(daemon, "claim", "vm1", "-p", "L40S-4Q").stdout.startswith("vm1 was claimed before: ")
    assert daemon.seen == [("PUT", "/claims/vm1", {"profile": "L40S-4Q"})] * 2


def test_claim_sends_every_option(daemon):
    daemon.on("PUT", "/claims/a%2Fb%20%C3%BC", http(201, CLAIM))
    run = berth(daemon, "claim", "a/b ü", "--profile", "L40S-4Q", "--gpu", "0000:41:00.0", "--numa-node", "1",
                "--owner", "me", "--console-log", "/var/log/x", "--channel", "vsock:5", "--pid", "77",
                "--policy", "least_waste", "--wait=1500ms")
    assert run.returncode == 0
    assert daemon.seen[0][2] == {"profile": "L40S-4Q", "gpu": "0000:41:00.0", "numa_node": 1, "owner": "me",
                                 "console_log": "/var/log/x", "channel": "vsock:5", "pid": 77,
                                 "policy": "least_waste", "wait_ms": 1500}
    daemon.on("PUT", "/claims/x", http(201, CLAIM))
    assert berth(daemon, "claim", "x", "-p", "P", "--wait").returncode == 0
    assert daemon.seen[-1][2]["wait_ms"] == 600000


def test_claim_that_is_interrupted_hangs_up(daemon):
    gone = threading.Event()

    def hold(handler):
        handler.connection.settimeout(DEADLINE)
        if handler.connection.recv(1) == b"":
            gone.set()

    daemon.on("PUT", "/claims/vm1", hold)
    process = subprocess.Popen([BERTH, "--socket", daemon.path, "claim", "vm1", "-p", "P", "--wait"])
    daemon.wait_seen("PUT", "/claims/vm1")
    process.terminate()
    process.wait(DEADLINE)
    assert gone.wait(DEADLINE)


def test_claims(daemon):
    daemon.on("GET", "/claims", http(200, {"claims": [CLAIM, {**CLAIM, "name": "lost", "problem": "vf_missing",
                                                              "placement": None, "owner": None}]}))
    lines = berth(daemon, "claims").stdout.splitlines()
    assert lines[1].split() == ["vm1", "bound", "NVIDIA", "L40S-4Q", "0000:41:00.4", "0000:41:00.0", "8",
                                "2026-11-29T16:38:00", "alice"]
    assert "bound (vf_missing)" in lines[2]
    daemon.on("GET", "/claims", http(200, {"claims": []}))
    assert berth(daemon, "claims").stdout == "there are no claims\n"


def test_release(daemon):
    daemon.on("DELETE", "/claims/vm1", http(200, CLAIM))
    run = berth(daemon, "release", "vm1")
    assert (run.returncode, run.stdout, run.stderr) == (0, "released vm1\n", "")


@pytest.mark.parametrize("json_flag", [[], ["--json"]])
def test_release_of_something_unknown(daemon, json_flag):
    daemon.on("DELETE", "/claims/vm1", NO_CONTENT)
    run = berth(daemon, "release", "vm1", *json_flag)
    assert (run.returncode, run.stdout, run.stderr) == (4, "", "berth: there is no claim named vm1\n")


def test_release_that_goes_on(daemon):
    daemon.on("DELETE", "/claims/vm1", http(202, RELEASING))
    run = berth(daemon, "release", "vm1")
    assert run.returncode == 0 and run.stdout.startswith("vm1 is being released")
    run = berth(daemon, "release", "vm1", "--json")
    assert run.returncode == 0 and json.loads(run.stdout)["state"] == "releasing"


def events(*times):
    """An event stream that says something whenever one of the events is set."""
    def serve(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                            b"Transfer-Encoding: chunked\r\n\r\n")
        for event in times:
            event.wait(DEADLINE)
            text = b"event: release\nid: 1\ndata: {}\n\n"
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
        handler.connection.settimeout(DEADLINE)
        handler.connection.recv(1)
    return serve


@pytest.mark.parametrize("stream", [events(threading.Event()), problem("not_ready", 503), b"garbage\r\n\r\n",
                                    http(200, b"", "text/event-stream")])
def test_release_waits_till_gone(daemon, stream):
    daemon.on("DELETE", "/claims/vm1", http(202, RELEASING))
    daemon.on("GET", "/events", stream)
    daemon.on("GET", "/claims/vm1", http(200, RELEASING), http(200, RELEASING), problem("not_found", 404))
    run = berth(daemon, "release", "vm1", "--wait")
    assert (run.returncode, run.stdout, run.stderr) == (0, "released vm1\n", "")


def test_release_is_woken_by_events(daemon):
    happened = threading.Event()
    daemon.on("DELETE", "/claims/vm1", http(202, RELEASING))
    daemon.on("GET", "/events", events(*[happened] * 40))
    daemon.on("GET", "/claims/vm1", *[http(200, RELEASING)] * 40, problem("not_found", 404))
    happened.set()
    start = time.monotonic()
    assert berth(daemon, "release", "vm1", "--wait").returncode == 0
    assert time.monotonic() - start < 40 * 0.5 / 2  # it did not sit out the pauses between looks


def test_release_that_does_not_end(daemon):
    daemon.on("DELETE", "/claims/vm1", http(202, RELEASING))
    daemon.on("GET", "/claims/vm1", http(200, RELEASING))
    run = berth(daemon, "release", "vm1", "--wait=100ms")
    assert run.returncode == 1 and "still being released" in run.stderr
    daemon.on("GET", "/claims/vm1", http(200, CLAIM))
    run = berth(daemon, "release", "vm1", "--wait=5s")
    assert run.returncode == 1 and "its state is bound again" in run.stderr


def test_cordon(daemon):
    daemon.on("PUT", "/gpus/0000%3A41%3A00.0/cordon", NO_CONTENT)
    daemon.on("DELETE", "/gpus/0000%3A41%3A00.0/cordon", http(200, {"cordoned": False}))
    run = berth(daemon, "gpu", "cordon", "0000:41:00.0")
    assert run.returncode == 0 and run.stdout.startswith("0000:41:00.0 is cordoned")
    run = berth(daemon, "gpu", "uncordon", "0000:41:00.0")
    assert run.returncode == 0 and "takes claims again" in run.stdout
    assert berth(daemon, "gpu", "cordon", "nonsense").returncode == 4


def test_driver(daemon):
    daemon.on("POST", "/driver/release", http(200, {"released": True}))
    daemon.on("POST", "/driver/resume", NO_CONTENT)
    run = berth(daemon, "driver", "release")
    assert run.returncode == 0 and "released" in run.stdout
    run = berth(daemon, "driver", "resume")
    assert run.returncode == 0 and "resumed" in run.stdout
    assert berth(daemon, "driver", "release", "--json").stdout == '{\n  "released": true\n}\n'


@pytest.mark.parametrize("args,method,path,answer", [
    (["resources"], "GET", "/resources", RESOURCES), (["gpus"], "GET", "/gpus", {"gpus": []}),
    (["map"], "GET", "/gpus", {"gpus": []}), (["claims"], "GET", "/claims", {"claims": [CLAIM]}),
    (["claim", "vm1", "-p", "P"], "PUT", "/claims/vm1", CLAIM), (["release", "vm1"], "DELETE", "/claims/vm1", CLAIM),
    (["gpu", "cordon", "x"], "PUT", "/gpus/x/cordon", {"a": [1.5, None, "ü\u0001"]}),
])
def test_json_is_the_answer(daemon, args, method, path, answer):
    daemon.on(method, path, http(200, answer))
    for line in (["--json", *args], [*args, "--json"]):
        run = berth(daemon, *line)
        assert run.returncode == 0 and json.loads(run.stdout) == answer and run.stderr == ""


# --- The map -------------------------------------------------------------------------------------

VGPUS = [placed(24, 12, "L40S-12Q", "train-1", "0000:41:01.0"), placed(0, 4, "L40S-4Q", "vm1", "0000:41:00.4"),
         placed(4, 1, "L40S-1Q", None, "0000:41:00.6")]


def test_map(daemon):
    daemon.on("GET", "/gpus", http(200, {"gpus": [gpu("0000:41:00.0", 48, VGPUS)]}))
    run = berth(daemon, "map")
    assert run.returncode == 0
    assert run.stdout == """\
0000:41:00.0  NVIDIA L40S  mixed  NUMA 0  VFs: 3 of 32 used
  0       8       16      24      32      40
  [a─]b····· 19 free ·····[c 12Q trai]· 12 free ··
     UNITS  PROFILE   CLAIM          VF
  a  0-3    L40S-4Q   vm1            0000:41:00.4
  b  4      L40S-1Q   (not claimed)  0000:41:00.6
  c  24-35  L40S-12Q  train-1        0000:41:01.0
  free units: 5-23 (19), 36-47 (12)
  room for, each alone: 3 x 8Q
"""
    ascii_only = berth(daemon, "map", LC_ALL="C").stdout
    assert ascii_only == run.stdout.replace("─", "-").replace("·", ".")


@pytest.mark.parametrize("region", [48, 80, 94, 96])
@pytest.mark.parametrize("columns", [40, 80, 132, 250])
def test_map_fits_the_terminal(daemon, region, columns):
    vgpus = [placed(0, 8, "L40S-8Q", "a-rather-long-name-of-a-claim", "0000:41:00.4")]
    daemon.on("GET", "/gpus", http(200, {"gpus": [gpu("0000:41:00.0", region, vgpus)]}))
    lines = berth(daemon, "map", COLUMNS=str(columns)).stdout.splitlines()
    strip = [line for line in lines if "·" in line or "[a" in line]
    assert sum(len(line) - 2 for line in strip) % region == 0
    assert max(len(line) for line in strip) <= columns


def test_map_of_a_card_without_known_places(daemon):
    cards = [gpu("0000:41:00.0", 48, [placed(None, 4, "L40S-4Q", "vm1", "0000:41:00.4")], fallback="equal_size"),
             gpu("0000:81:00.0", None, [], fallback="library", numa_node=None),
             gpu("0000:c1:00.0", 48, [placed(0, 4, "L40S-4Q", "vm2", "0000:c1:00.4")], fallback="error",
                 stuck=True, cordoned=True)]
    daemon.on("GET", "/gpus", http(200, {"gpus": cards}))
    first, second, third = berth(daemon, "map").stdout.split("\n\n")
    assert "no placements for this card: equal_size" in first and "·" not in first
    assert re.search(r"\? +L40S-4Q +vm1 +0000:41:00.4", first)
    assert "library" in second and "·" not in second and "NUMA" not in second
    assert "stuck" in third and "cordoned" in third and "[a─]" in third


def test_map_without_cards(daemon):
    daemon.on("GET", "/gpus", http(200, {"gpus": []}))
    assert berth(daemon, "map").stdout == "there are no vGPU cards on this host\n"


def on_terminal(daemon, *args, **env):
    """What the program writes when its output is a terminal."""
    parent, child = pty.openpty()
    process = subprocess.Popen([BERTH, *args], stdout=child, env=plain_env(BERTH_SOCKET=daemon.path, **env))
    os.close(child)
    text = b""
    while select.select([parent], [], [], DEADLINE)[0]:
        try:
            part = os.read(parent, 65536)
        except OSError:
            break
        if not part:
            break
        text += part
    os.close(parent)
    assert process.wait(DEADLINE) == 0
    return text.decode()


def test_colours_only_on_a_terminal(daemon):
    daemon.on("GET", "/gpus", http(200, {"gpus": [gpu("0000:41:00.0", 48, VGPUS)]}))
    assert "\033[" in on_terminal(daemon, "map", TERM="xterm")
    assert "\033" not in on_terminal(daemon, "map", TERM="xterm", NO_COLOR="1")
    assert "\033" not in on_terminal(daemon, "map", TERM="dumb")
    assert "\033" not in berth(daemon, "map", TERM="xterm").stdout


# --- Answers that nobody should give -------------------------------------------------------------

EVIL = "\033]0;owned\007\u009b31m\u007f"


def evil(value):
    """The same structure with every text made evil."""
    if isinstance(value, dict):
        return {k: evil(v) for k, v in value.items()}
    if isinstance(value, list):
        return [evil(v) for v in value]
    return value + EVIL if isinstance(value, str) else value


@pytest.mark.parametrize("args,method,path,answer", [
    (["resources"], "GET", "/resources", RESOURCES),
    (["gpus"], "GET", "/gpus", {"gpus": [gpu("0000:41:00.0", 48, VGPUS, fallback="x")]}),
    (["map"], "GET", "/gpus", {"gpus": [gpu("0000:41:00.0", 48, VGPUS)]}),
    (["claims"], "GET", "/claims", {"claims": [{**CLAIM, "problem": "x"}]}),
    (["claim", "vm1", "-p", "P"], "PUT", "/claims/vm1", CLAIM),
])
def test_control_characters_do_not_reach_the_terminal(daemon, args, method, path, answer):
    daemon.on(method, path, http(200, evil(answer)))
    for text in (berth(daemon, *args).stdout, on_terminal(daemon, *args, NO_COLOR="1"),
                 on_terminal(daemon, *args, "--json")):
        assert text and not re.search(r"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f]", text)
    daemon.on(method, path, problem("in_use", 409, "d" + EVIL, cards=[{"gpu": EVIL + "g", "reason": EVIL + "r"}]))
    run = berth(daemon, *args)
    assert run.returncode == 1 and not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", run.stderr)


ODD = [None, 7, -1, 1e300, 2**62, -2**63, "", "x", [], {}, [None], [[]], [7], {"id": "x"}, True]


@pytest.mark.parametrize("args,path,key,fields", [
    (["resources"], "/resources", "gpu", list(RESOURCES["gpu"])),
    (["gpus"], "/gpus", "gpus", list(gpu("a", 48, []))), (["map"], "/gpus", "gpus", list(gpu("a", 48, []))),
    (["claims"], "/claims", "claims", list(CLAIM)),
])
def test_fields_of_any_type(daemon, args, path, key, fields):
    good = {"gpu": RESOURCES["gpu"], "gpus": gpu("0000:41:00.0", 48, VGPUS), "claims": CLAIM}[key]
    answers = [{}, *({key: odd} for odd in ODD)]
    if key == "gpu":  # each field has had each odd value at the end
        for k in range(len(ODD)):
            answers.append({key: {f: ODD[(i + k) % len(ODD)] for i, f in enumerate(fields)}})
    else:
        for field in fields:
            answers.append({key: [{**good, field: odd} for odd in ODD]})
    daemon.on("GET", path, *(http(200, a) for a in answers))
    for answer in answers:
        run = berth(daemon, *args)
        assert run.returncode == 0, (answer, run.stderr)


def test_map_with_odd_places(daemon):
    odd = [-1, 48, 2**31, 2**32, 2**62, -2**63, 0, 47, 1.5, "4", None]
    cards = [gpu("0000:41:00.0", region, [{**VGPUS[0], "id": a, "size": b}])
             for a in odd for b in odd for region in (48, 0, -1, 512, 513, 2**40)]
    cards.append(gpu("0000:41:00.0", 512, [placed(i, 1, "L40S-1Q", "c", "v") for i in range(400)]))
    cards.append(gpu("0000:41:00.0", 48, VGPUS * 3))
    answers = [cards[i:i + 16] for i in range(0, len(cards), 16)]
    daemon.on("GET", "/gpus", *(http(200, {"gpus": a}) for a in answers))
    for answer in answers:
        run = berth(daemon, "map")
        assert run.returncode == 0, (answer, run.stderr)
        assert len(re.findall(r"^0000:41:00.0 ", run.stdout, re.M)) == len(answer)


@pytest.mark.parametrize("answer", [
    b"", b"\r\n\r\n", b"garbage", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
    b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", http(200, b"no json"), http(200, b"[1]"),
    http(200, b"\xff"), http(200, b'{"a": 1, "a": 2}'), http(200, b"{" * 100000), http(301, {"x": 1}),
    b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n", b"x" * 100000,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n", http(500, b"<html>", "text/html"),
    http(500, b""), b"HTTP/1.1 404 Not Found\r\n\r\n",
])
def test_answers_that_make_no_sense(daemon, answer):
    daemon.on("GET", "/claims", answer)
    run = berth(daemon, "claims")
    assert run.returncode == 1 and run.stdout == "" and run.stderr.startswith("berth: ")


def test_answer_without_end_is_given_up(daemon):
    def flood(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                handler.wfile.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
        except OSError:
            pass

    daemon.on("GET", "/claims", flood)
    run = berth(daemon, "claims")
    assert run.returncode == 1 and "too large" in run.stderr


def test_early_refusal_is_read_although_the_request_was_cut(daemon):
    """The daemon may answer and close before it has read the request."""
    path = daemon.path + "2"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def serve():
            s = listener.accept()[0]
            s.sendall(problem("too_large", 413, "too much"))
            s.close()

        thread = threading.Thread(target=serve)
        thread.start()
        run = berth(None, "--socket", path, "claim", "vm1", "-p", "P", "--owner", "x" * 100000)
        thread.join()
    assert run.returncode == 1 and run.stderr == "berth: too much\n"


def test_output_that_cannot_be_written(daemon):
    daemon.on("GET", "/claims", http(200, {"claims": []}))
    with open("/dev/full", "w") as full:
        run = subprocess.run([BERTH, "claims"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=DEADLINE,
                             env=plain_env(BERTH_SOCKET=daemon.path))
    assert run.returncode == 1 and "cannot write" in run.stderr


@pytest.mark.parametrize("args", [("--version",), ("--help",), ("claims",), ("claims", "--json")])
@pytest.mark.parametrize("output", [">&-", ">/dev/full"])
def test_output_that_cannot_be_written_is_an_error(daemon, args, output):
    daemon.on("GET", "/claims", http(200, {"claims": []}))
    run = subprocess.run(["sh", "-c", f'exec "$@" {output}', "sh", BERTH, *args], stderr=subprocess.PIPE, text=True,
                         env=plain_env(BERTH_SOCKET=daemon.path), timeout=DEADLINE)
    assert run.returncode == 1 and "cannot write" in run.stderr
