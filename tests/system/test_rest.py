# SPDX-License-Identifier: Apache-2.0
"""berthd's REST interface: the document, routes, problems, limits, TCP and events."""
import concurrent.futures
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading

import jsonschema
import pytest

import openapi
from conftest import Answer, UnixConnection, wait_for
from test_capacity import A, B, refresh, settle, vf_addresses

PATHS = ("/resources", "/resources?profiles=false", "/resources?profiles=true", "/gpus", f"/gpus/{A}",
         "/vfs", "/claims", "/claims/vm", "/metrics", "/healthz", "/readyz", "/openapi.json")


def raw(daemon, data, timeout=10):
    """Sends bytes and gives the answer."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(timeout)
        s.connect(daemon.socket)
        s.sendall(data)
        response = http.client.HTTPResponse(s)
        response.begin()
        return Answer(response.status, dict(response.getheaders()), response.read())


# --- The document ---------------------------------------------------------------------------------


def test_document(daemon):
    served = daemon.get("/openapi.json")
    assert served == openapi.DOCUMENT
    assert served["openapi"].startswith("3.1")
    for schema in served["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def walk(node, path=""):
    yield path, node
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield from walk(child, f"{path}/{key}")


def test_document_is_whole():
    """References lead somewhere, every field says what it means, operations are told apart."""
    document, ids, used = openapi.DOCUMENT, [], set()
    for path, node in walk(document):
        if not isinstance(node, dict):
            continue
        if isinstance(node.get("$ref"), str):
            kind, name = re.fullmatch(r"#/components/(schemas|examples)/(\w+)", node["$ref"]).groups()
            assert name in document["components"][kind], path
            used |= {name} if kind == "schemas" else set()
        if isinstance(node.get("properties"), dict):
            for field, schema in node["properties"].items():
                described = "description" in schema or "$ref" in schema or "oneOf" in schema
                assert described, f"{path}: {field} does not say what it means"
        if "operationId" in node:
            ids.append(node["operationId"])
            assert node["description"] and node["responses"], path
    assert len(ids) == len(set(ids))
    events = {n for n in document["components"]["schemas"] if n.endswith("Event")}
    assert set(document["components"]["schemas"]) - used == events
    text = json.dumps(document["components"]["schemas"]["ProfileSum"])
    assert "Not additive" in text
    for path, item in document["paths"].items():
        named = {p["name"] for p in item.get("parameters", ()) if p["in"] == "path"}
        assert named == set(re.findall(r"\{(\w+)\}", path)), path


def test_document_has_every_route():
    """The table of routes in the source and the document name the same operations."""
    source = (openapi.pathlib.Path(__file__).resolve().parents[2] / "src/http/api-service.c").read_text()
    routes = {(m.lower(), p) for m, p in re.findall(r'\{ "([A-Z]+)", "([^"]+)", api_', source)}
    documented = {(m, p) for p, item in openapi.DOCUMENT["paths"].items() for m in item if m != "parameters"}
    assert routes == documented and len(routes) >= 17


def test_document_has_every_code():
    source = openapi.pathlib.Path(__file__).resolve().parents[2] / "src/model/outcome.c"
    codes = set(re.findall(r'\{ E_\w+, "(\w+)"', source.read_text()))
    documented = set(openapi.DOCUMENT["components"]["schemas"]["Problem"]["properties"]["code"]["enum"])
    assert codes - documented == {"client_gone", "unreachable"}  # never sent
    assert not documented - codes


# --- Answers --------------------------------------------------------------------------------------


def test_every_get(daemon):
    assert daemon.claim("vm", owner="me", channel="vsock:7").status == 201
    for path in PATHS:
        answer = daemon.request("GET", path)
        assert answer.status == 200, (path, answer)
        head = daemon.request("HEAD", path)
        assert head.status == 200 and head.body == b""
        if "metrics" not in path:
            assert answer.headers["Content-Type"] == "application/json" and answer.json
    assert "profiles" not in daemon.get("/resources?profiles=false")["gpu"]


def test_claim_fields(daemon, sim):
    console = str(sim.root / "console/vm.log")
    answer = daemon.claim("vm", "NVIDIA L40S-4Q", owner="Ünicode ☂", gpu="41:0.0", numa_node=0,
                          console_log=console, channel="vsock:7:52010", pid=os.getpid(),
                          policy="least_loaded", wait_ms=10)
    assert answer.status == 201, answer
    claim = answer.json
    vf = claim["vf"]
    assert {k: claim[k] for k in ("name", "state", "problem", "profile", "type_id", "gpu", "placement",
                                  "owner", "console_log", "channel", "pid", "uid")} == {
        "name": "vm", "state": "bound", "problem": None, "profile": "NVIDIA L40S-4Q", "type_id": 1150,
        "gpu": A, "placement": {"id": 0, "size": 4}, "owner": "Ünicode ☂", "console_log": console,
        "channel": "vsock:7:52010", "pid": os.getpid(), "uid": 0}
    assert claim["sysfs_path"] == str(sim.sys / "bus/pci/devices" / vf)
    assert os.path.exists(claim["sysfs_path"]) and os.path.exists(claim["vfio_group"])
    assert os.path.exists(claim["vfio_device"]) and claim["iommufd"] is True
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", claim["assigned_at"])
    assert claim["boot_id"] == (sim.root / "boot_id").read_text().strip()
    again = daemon.claim("vm", "L40S-4Q")
    assert (again.status, again.json) == (200, claim)
    assert daemon.get("/claims/vm") == claim and daemon.get("/claims") == {"claims": [claim]}


def test_numa_requirement(daemon):
    assert daemon.claim("vm", numa_node=1).json["gpu"] == B
    refused = daemon.claim("vm2", numa_node=7)
    assert (refused.status, refused.code) == (409, "insufficient_resources")


@pytest.mark.parametrize("body, named", [
    ({"profile": "L40S-4Q", "profil": 1}, "profil"),
    ({"owner": "me"}, "profile"),
    ({"profile": ""}, "profile"),
    ({"profile": 4}, "profile"),
    ({"profile": None}, "profile"),
    ({"profile": "X" * 64}, "profile"),
    ({"profile": "L40S\x004Q"}, "u0000"),
    ({"profile": "L40S-4Q", "owner": "x" * 257}, "owner"),
    ({"profile": "L40S-4Q", "gpu": "nonsense"}, "gpu"),
    ({"profile": "L40S-4Q", "numa_node": -1}, "numa_node"),
    ({"profile": "L40S-4Q", "numa_node": 1.5}, "numa_node"),
    ({"profile": "L40S-4Q", "console_log": "relative"}, "console_log"),
    ({"profile": "L40S-4Q", "pid": 0}, "pid"),
    ({"profile": "L40S-4Q", "pid": 4194305}, "pid"),
    ({"profile": "L40S-4Q", "policy": "tightest"}, "policy"),
    ({"profile": "L40S-4Q", "wait_ms": 600001}, "wait_ms"),
    ({"profile": "L40S-4Q", "wait_ms": "10"}, "wait_ms"),
    ([], "object"), ("L40S-4Q", "JSON"),
])
def test_bad_bodies_are_named(daemon, body, named):
    answer = daemon.request("PUT", "/claims/vm", body)
    assert (answer.status, answer.code) == (400, "bad_request")
    assert named in answer.json["detail"]
    assert daemon.get("/claims") == {"claims": []}


@pytest.mark.parametrize("body", [b"", b"{", b'{"profile": "L40S-4Q"} x', b'{"profile": "a", "profile": "b"}',
                                  b'{"profile": "\xff"}', b'{"profile": NaN}'])
def test_bad_json(daemon, body):
    answer = raw(daemon, b"PUT /claims/vm HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert (answer.status, answer.code) == (400, "bad_request")


@pytest.mark.parametrize("method, path, status, code", [
    ("GET", "/page", 404, "not_found"), ("GET", "/nothing", 404, "not_found"),
    ("GET", "/claims/nobody", 404, "not_found"), ("GET", "/gpus/0000:99:00.0", 404, "not_found"),
    ("GET", "/gpus/card0", 400, "bad_request"), ("PUT", "/gpus/0000:99:00.0/cordon", 404, "not_found"),
    ("POST", "/claims/vm", 405, "method_not_allowed"), ("DELETE", "/resources", 405, "method_not_allowed"),
    ("PUT", "/metrics", 405, "method_not_allowed"), ("GET", "/resources?profile=false", 400, "bad_request"),
    ("GET", "/resources?profiles=no", 400, "bad_request"), ("GET", "/vfs?x", 400, "bad_request"),
    ("GET", "/claims?all=1", 400, "bad_request"), ("DELETE", "/claims/-x", 400, "bad_request"),
    ("GET", "/resources?profiles=true&profiles=false", 400, "bad_request"),
    ("GET", "/claims/%zz", 404, "not_found"), ("GET", "/claims/", 404, "not_found"),
])
def test_problems(daemon, method, path, status, code):
    answer = daemon.request(method, path)
    assert (answer.status, answer.code) == (status, code), answer
    if status == 405:
        assert answer.headers["Allow"]


def test_cordon_outlives_scans_and_restarts(start_sim, start_daemon):
    sim = start_sim("--nvml-latency", 0)
    daemon = start_daemon(sim)
    daemon.restart()  # the cards are in the database now
    assert daemon.request("PUT", f"/gpus/{A}/cordon").json["cordoned"] is True
    last = vf_addresses(B)[31]
    sim.ctl("remove", last)
    wait_for(lambda: last not in daemon.vfs(), "a scan", 4)
    assert daemon.get(f"/gpus/{A}")["cordoned"] is True
    daemon.restart()
    assert daemon.get(f"/gpus/{A}")["cordoned"] is True
    assert daemon.request("DELETE", f"/gpus/{A}/cordon").json["cordoned"] is False
    sim.ctl("restore", last)
    wait_for(lambda: last in daemon.vfs(), "a scan", 4)
    assert daemon.get(f"/gpus/{A}")["cordoned"] is False


def test_claim_names(daemon):
    for name in ("a", "0", "A.b_c-d", "x" * 128):
        answer = daemon.claim(name, "L40S-1Q")
        assert answer.status == 201 and answer.json["name"] == name
    for name in ("-a", ".a", "_a", "x" * 129, "a%20b", "a:b", "%C3%A4"):
        answer = daemon.claim(name, "L40S-1Q")
        assert (answer.status, answer.code) == (400, "bad_request"), name
    assert daemon.release("nobody").status == 204


def test_conflicts(daemon, sim):
    assert daemon.claim("vm", "L40S-4Q").status == 201
    assert daemon.claim("vm", "L40S-8Q").code == "claim_exists"
    unknown = daemon.claim("vm2", "L40S-5Q")
    assert (unknown.status, unknown.code) == (422, "unknown_profile")
    assert [c["gpu"] for c in unknown.json["cards"]] == [A, B]
    for address in (A, B):
        assert daemon.request("PUT", f"/gpus/{address}/cordon").json["cordoned"] is True
    assert daemon.claim("vm2").code == "cordoned"
    for address in (A, B):
        assert daemon.request("DELETE", f"/gpus/{address}/cordon").json["cordoned"] is False
    pid = sim.boot(daemon.claims()["vm"]["vf"], "--init-ms", 0)
    in_use = daemon.release("vm")
    assert (in_use.status, in_use.code) == (409, "in_use")
    assert daemon.claims()["vm"]["state"] == "bound"
    os.kill(pid, 15)
    wait_for(lambda: daemon.release("vm").status in (200, 204), "the guest to let go")


def test_releasing(daemon, sim):
    """A release that the driver is not done with: 202, the name is taken until then."""
    vf = daemon.claim("vm").json["vf"]
    sim.ctl("set", "sysfs.release_errno", "EBUSY", "--vf", vf)
    pending = daemon.release("vm")
    assert pending.status == 202 and pending.json["state"] == "releasing"
    assert daemon.claim("vm").code == "releasing"
    assert daemon.vfs()[vf]["state"] == "releasing"
    sim.ctl("set", "sysfs.release_errno", 0, "--vf", vf)
    wait_for(lambda: daemon.request("GET", "/claims/vm").status == 404, "the release")


def test_driver_refuses(daemon, sim):
    sim.ctl("set", "sysfs.write_errno", "EIO")
    refused = daemon.claim("vm")
    assert (refused.status, refused.code) == (503, "driver_refused")
    assert {c["gpu"] for c in refused.json["cards"]} == {A, B}
    assert all("driver refused" in c["reason"] for c in refused.json["cards"])


def test_driver_stuck(start_sim, start_daemon):
    sim = start_sim("--cards", 1, "--nvml-latency", 0)
    daemon = start_daemon(sim, {"gpu": {"card_timeout": "1s"}})
    sim.ctl("set", "sysfs.write_hang", 1)
    stuck = daemon.claim("vm")
    assert (stuck.status, stuck.code) == (503, "driver_stuck")
    card = wait_for(lambda: (c := daemon.get(f"/gpus/{A}"))["stuck"] and c, "the card to be stuck")
    assert card["stuck_reason"] and card["slots"]["total"] == 32 and card["slots"]["allocatable"] == 0
    assert {p["available"] for p in card["profiles"]} == {0}
    assert daemon.metric(f'berth_card_stuck{{gpu="{A}"}}') == 1
    again = daemon.claim("vm2")
    assert (again.status, again.code) == (503, "driver_stuck")
    sim.ctl("set", "sysfs.write_hang", 0)
    wait_for(lambda: daemon.get(f"/gpus/{A}")["slots"]["allocatable"] == 32, "the card to be usable", 20)
    assert daemon.metric(f'berth_card_stuck{{gpu="{A}"}}') == 0


def test_store_unavailable(start_sim, start_daemon):
    """A damaged database: served, explained, nothing offered."""
    sim = start_sim("--nvml-latency", 0)
    daemon = start_daemon(sim)
    assert daemon.claim("vm").status == 201
    daemon.stop()
    database = daemon.data_dir / "claims.db"
    database.write_bytes(b"not a database" * 100)
    daemon.start(ready=False)
    wait_for(lambda: daemon.request("GET", "/readyz").code == "store_unavailable", "the database to be tried")
    for answer in (daemon.request("GET", "/readyz"), daemon.claim("vm2"), daemon.release("vm"),
                   daemon.request("GET", "/claims"), daemon.request("GET", "/claims/vm"),
                   daemon.request("PUT", f"/gpus/{A}/cordon")):
        assert (answer.status, answer.code) == (503, "store_unavailable"), answer
        assert answer.json["detail"]
    resources = daemon.resources()
    assert resources["total_slots"] == 64 and resources["allocatable_slots"] == 0
    assert {p["available"] for p in resources["profiles"]} == {0}
    assert daemon.metric("berth_claims_store_unavailable") == 1
    assert sum(1 for c in sim.state()["cards"] for v in c["vfs"] if v["type"]) == 1


def test_not_ready_while_starting(start_sim, start_daemon):
    sim = start_sim("--nvml-latency", 0)
    sim.ctl("set", "nvml.latency_ms", 3000)
    daemon = start_daemon(sim, ready=False)
    assert daemon.request("GET", "/readyz").code == "not_ready"
    assert daemon.request("GET", "/healthz").json == {"status": "ok"}
    for path in ("/gpus", "/vfs", "/metrics", "/resources?profiles=false"):
        assert daemon.request("GET", path).status == 200
    assert daemon.request("PUT", f"/gpus/{A}/cordon").code == "not_ready"
    sim.ctl("set", "nvml.latency_ms", 0)
    daemon.wait_ready()


def as_user(daemon, uid, method, path, body=None):
    """The answer that another user gets."""
    code = """
import os, socket, sys
path, uid, data = sys.argv[1], int(sys.argv[2]), os.fsencode(sys.argv[3])
os.setgid(uid); os.setuid(uid)
s = socket.socket(socket.AF_UNIX)
s.settimeout(15)
s.connect(path)
s.sendall(data)
while data := s.recv(65536):
    os.write(1, data)
"""
    text = json.dumps(body) if body else ""
    request = f"{method} {path} HTTP/1.0\r\nContent-Length: {len(text)}\r\n\r\n{text}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, daemon.socket, str(uid), request],
                          capture_output=True, timeout=20)
    assert done.returncode == 0, done.stderr
    head, _, answer = done.stdout.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    kind = re.search(rb"(?i)\r\ncontent-type: *([^\r]*)", head)
    openapi.check(method, path, status, kind and kind[1].decode(), answer)
    return Answer(status, {}, answer)


def test_other_users(daemon, sim):
    """The socket's mode says who may ask; a claim is released by its user and root alone."""
    os.chmod(sim.root.parent, 0o755)
    os.chmod(sim.root, 0o755)
    os.chmod(daemon.socket, 0o666)
    made = as_user(daemon, 4242, "PUT", "/claims/theirs", {"profile": "L40S-1Q"})
    assert made.status == 201 and made.json["uid"] == 4242
    assert daemon.claim("mine", "L40S-1Q").status == 201
    for uid, name in ((4243, "theirs"), (4242, "mine")):
        refused = as_user(daemon, uid, "DELETE", f"/claims/{name}")
        assert (refused.status, refused.code) == (403, "forbidden")
    assert as_user(daemon, 4242, "POST", "/driver/release").code == "forbidden"
    assert as_user(daemon, 4242, "DELETE", "/claims/theirs").status == 200
    assert as_user(daemon, 4242, "GET", "/claims").status == 200


# --- Limits ---------------------------------------------------------------------------------------


def test_limits(daemon):
    """64 KiB of body, 16 KiB of headers; the daemon goes on."""
    exact = json.dumps({"profile": "L40S-1Q", "owner": "x"}).encode()
    exact += b" " * (65536 - len(exact))
    head = b"PUT /claims/vm HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    assert raw(daemon, head % len(exact) + exact).status == 201
    large = raw(daemon, head % 65537)
    assert (large.status, large.code) == (413, "too_large")
    headers = raw(daemon, b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 60000 + b"\r\n\r\n")
    assert headers.status in (400, 413, 431)
    with_body = raw(daemon, b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
    assert (with_body.status, with_body.code) == (400, "bad_request")
    deep = raw(daemon, head % 40000 + b"[" * 40000)
    assert (deep.status, deep.code) == (400, "bad_request")
    assert daemon.request("GET", "/healthz").status == 200


# --- TCP ------------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_tcp_reads_only(start_sim, start_daemon):
    port = free_port()
    daemon = start_daemon(start_sim("--nvml-latency", 0), {"listen": f"127.0.0.1:{port}"})
    assert daemon.claim("vm").status == 201

    def tcp(method, path, body=None, host=None):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request(method, path, body, {"Host": host} if host else {})
        answer = connection.getresponse()
        data = answer.read()
        openapi.check(method, path, answer.status, answer.getheader("Content-Type"), data)
        connection.close()
        return Answer(answer.status, dict(answer.getheaders()), data)

    for path in PATHS:
        assert tcp("GET", path).status == 200, path
        assert tcp("HEAD", path).status == 200, path
    for method, path in (("PUT", "/claims/x"), ("DELETE", "/claims/vm"), ("PUT", f"/gpus/{A}/cordon"),
                         ("POST", "/driver/release"), ("DELETE", f"/gpus/{A}/cordon")):
        refused = tcp(method, path, b'{"profile": "L40S-4Q"}' if method == "PUT" else None)
        assert (refused.status, refused.code) == (403, "forbidden")
    # A page of somebody else's that a browser was led to.
    assert tcp("GET", "/claims", host="evil.example").code == "forbidden"
    assert set(daemon.claims()) == {"vm"} and not daemon.get(f"/gpus/{A}")["cordoned"]


# --- Events ---------------------------------------------------------------------------------------


class Events:
    """A client of /events; collects (type, data) in the background and checks each."""

    def __init__(self, daemon, last_id=None):
        self.connection = UnixConnection(daemon.socket)
        self.connection.request("GET", "/events", headers={"Last-Event-ID": last_id} if last_id else {})
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200
        assert self.answer.getheader("Content-Type") == "text/event-stream"
        self.seen, self.ids, self.errors = [], [], []
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        kind = None
        try:
            for line in self.answer:
                field, _, value = line.decode().rstrip("\n").partition(": ")
                if field == "event":
                    kind = value
                elif field == "id":
                    self.ids.append(int(value))
                elif field == "data":
                    data = json.loads(value)
                    if kind != "reset":
                        schema = openapi.component(f"{kind.capitalize()}Event")
                        self.errors += [f"{kind}: {e.message}" for e in schema.iter_errors(data)]
                    self.seen.append((kind, data))
        except (OSError, http.client.HTTPException, ValueError):
            pass

    def of(self, kind):
        return [d for k, d in self.seen if k == kind]

    def close(self):
        self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(10)
        self.answer.close()
        self.connection.close()
        assert not self.errors, self.errors


def test_events(daemon, sim):
    settle(sim)
    events = Events(daemon)
    claim = daemon.claim("vm").json
    wait_for(lambda: events.of("claim"), "the claim")
    assert events.of("claim") == [{k: claim[k] for k in ("name", "state", "profile", "vf", "gpu")}]

    def capacity():
        return events.of("capacity")[-1]["gpu"] if events.of("capacity") else {"profiles": []}

    def available():
        return {p["name"]: p["available"] for p in capacity()["profiles"]}.get("NVIDIA L40S-4Q")

    wait_for(lambda: available() == 15 and capacity()["used_slots"] == 1, "the capacity")
    assert daemon.release("vm").status == 200
    wait_for(lambda: events.of("release"), "the release")
    assert events.of("release")[0]["name"] == "vm" and events.of("release")[0]["vf"] == claim["vf"]
    wait_for(lambda: available() == 16 and capacity()["used_slots"] == 0, "the capacity")
    want = daemon.resources()
    want.pop("placements_age_ms")
    assert capacity() == want
    sim.ctl("set", "nvml.error", 15, "--gpu", B)
    refresh(daemon)
    wait_for(lambda: events.of("fallback"), "the fallback")
    sim.ctl("set", "nvml.error", 0, "--gpu", B)
    refresh(daemon)
    wait_for(lambda: len(events.of("fallback")) == 2, "its end")
    begun, ended = events.of("fallback")
    assert (begun["gpu"], begun["reason"]) == (B, "error") and "(15)" in begun["detail"]
    assert ended == {"gpu": B, "reason": None, "detail": None}
    # Nothing changes, nothing is said, but that the placements are younger.
    settle(sim)

    def said():
        return [e for e in events.seen if e[0] != "changed"]

    count = len(said())
    refresh(daemon)
    refresh(daemon)
    assert len(said()) == count
    assert events.ids == sorted(set(events.ids))
    events.close()
    known = list(events.ids)
    missed = Events(daemon, str(known[-2]))
    wait_for(lambda: missed.seen, "what was missed")
    assert missed.ids[0] == known[-1]
    missed.close()
    foreign = Events(daemon, "12")
    wait_for(lambda: foreign.seen, "the reset")
    assert foreign.seen[0] == ("reset", {})
    foreign.close()


def test_events_of_a_host_fallback(start_sim, start_daemon):
    """One event when it begins and one when it ends, for the host, not for each card."""
    sim = start_sim("--nvml-latency", 0)
    daemon = start_daemon(sim)
    settle(sim)
    events = Events(daemon)
    daemon.request("POST", "/driver/release")
    wait_for(lambda: events.of("fallback"), "the fallback")
    daemon.request("POST", "/driver/resume")
    wait_for(lambda: daemon.resources()["fallbacks"] == [], "NVML to be used again")
    wait_for(lambda: len(events.of("fallback")) >= 2, "the end")
    begun, ended = events.of("fallback")
    assert (begun["gpu"], begun["reason"]) == (None, "library")
    assert ended == {"gpu": None, "reason": None, "detail": None}
    events.close()


def test_foreign_changes_are_events(daemon, sim):
    settle(sim)
    events = Events(daemon)
    sim.ctl("configure", vf_addresses(A)[0], "L40S-24Q")
    wait_for(lambda: events.of("capacity") and events.of("capacity")[-1]["gpu"]["used_slots"] == 1,
             "the foreign vGPU")
    wait_for(lambda: {p["name"]: p["available"] for p in events.of("capacity")[-1]["gpu"]["profiles"]}
             ["NVIDIA L40S-24Q"] == 3, "its placement")
    events.close()


def test_answers_are_whole_under_load(daemon):
    """Readers and writers at once: every answer is one that the document promises."""
    def read(i):
        connection = daemon.connect()
        for k in range(30):
            path = PATHS[(i + k) % len(PATHS)]
            if path != "/claims/vm":
                connection.request("GET", path)
                answer = connection.getresponse()
                body = answer.read()
                assert answer.status == 200
                openapi.check("GET", path, 200, answer.getheader("Content-Type"), body)
        connection.close()
        return True

    def write(i):
        for _ in range(10):
            assert daemon.claim(f"vm{i}", "L40S-2Q").status in (200, 201)
            assert daemon.release(f"vm{i}").status in (200, 202)
        return True

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        work = [pool.submit(read, i) for i in range(8)] + [pool.submit(write, i) for i in range(4)]
        assert all(f.result(timeout=60) for f in work)


def test_events_after_a_gap(daemon, sim):
    """Who comes back learns of the capacity that changed while nobody listened."""
    settle(sim)
    events = Events(daemon)
    wait_for(lambda: events.of("capacity"), "the state at the beginning")
    last = str(events.ids[-1])
    events.close()
    sim.ctl("configure", vf_addresses(A)[0], "L40S-24Q")
    wait_for(lambda: daemon.available()["L40S-24Q"] == 3, "the foreign vGPU")
    settle(sim)
    again = Events(daemon, last)
    wait_for(lambda: again.of("capacity"), "the capacity of now")
    assert again.of("capacity")[-1]["gpu"]["used_slots"] == 1
    again.close()
