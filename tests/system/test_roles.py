# SPDX-License-Identifier: Apache-2.0
"""Who may do what, over each kind of listener, and the line that is left of it."""
import http.client
import os
import re
import subprocess

import pytest
import yaml

import openapi
from conftest import ROOT, check_host, request_over, settled, wait_for
from test_claims import as_user, open_to_all
from tls_daemon import TlsHost, audit_lines, free_port

READER, CLAIMANT, ADMIN = range(3)
# For each route: who may use it, a body, and what it answers to those who may. Nothing here exists, so that
# nothing comes of it.
ROUTES = {
    ("GET", "/"): (READER, None, {200}),
    ("GET", "/page.css"): (READER, None, {200}),
    ("GET", "/page.js"): (READER, None, {200}),
    ("GET", "/icon.svg"): (READER, None, {200}),
    ("GET", "/status"): (READER, None, {200}),
    ("GET", "/resources"): (READER, None, {200}),
    ("GET", "/gpus"): (READER, None, {200}),
    ("GET", "/gpus/{bdf}"): (READER, None, {404}),
    ("PUT", "/gpus/{bdf}/cordon"): (CLAIMANT, None, {404}),
    ("DELETE", "/gpus/{bdf}/cordon"): (CLAIMANT, None, {404}),
    ("POST", "/gpus/{bdf}/recover"): (ADMIN, None, {404}),
    ("GET", "/vfs"): (READER, None, {200}),
    ("PUT", "/vfs/{bdf}/quarantine"): (ADMIN, None, {404}),
    ("DELETE", "/vfs/{bdf}/quarantine"): (ADMIN, None, {404}),
    ("GET", "/claims"): (READER, None, {200}),
    ("GET", "/claims/{name}"): (READER, None, {404}),
    ("PUT", "/claims/{name}"): (CLAIMANT, {"profile": "NOSUCH-1Q"}, {422}),
    ("DELETE", "/claims/{name}"): (CLAIMANT, None, {204}),
    ("POST", "/fit"): (READER, {"profiles": {"L40S-4Q": 1}}, {200}),
    ("POST", "/driver/release"): (ADMIN, None, {200}),
    ("POST", "/driver/resume"): (ADMIN, None, {200}),
    ("GET", "/metrics"): (READER, None, {200}),
    ("GET", "/healthz"): (READER, None, {200}),
    ("GET", "/readyz"): (READER, None, {200}),
    ("GET", "/openapi.json"): (READER, None, {200}),
    ("GET", "/events"): (READER, None, {200}),
}
METHODS = {"get", "put", "post", "delete", "patch"}


def document_routes():
    return {(method.upper(), path) for path, item in openapi.DOCUMENT["paths"].items()
            for method in item if method in METHODS}


def attempt(connection, method, path, body):
    """(status, problem or None); leaves an event stream after its headers."""
    path = path.replace("{bdf}", "0000:ff:00.0").replace("{name}", "nobody")
    if path == "/events":
        connection.request(method, path)
        answer = connection.getresponse()
        connection.close()
        return answer.status, None
    answer = request_over(connection, method, path, body)
    connection.close()
    return answer.status, answer.json if answer.status == 403 else None


def judge(role, connect, only_get=False):
    wrong = []
    for method, path in sorted(document_routes()):
        needed, body, answers = ROUTES[method, path]
        status, problem = attempt(connect(), method, path, body)
        if role >= needed and (method == "GET" or not only_get):
            if status not in answers:
                wrong.append(f"{method} {path}: {status}, not {answers}")
        elif status != 403 or problem["code"] != "forbidden":
            wrong.append(f"{method} {path}: {status}, not 403")
        elif not re.search("root on this host and certificates in tls.admins|"
                           "Unix socket and certificates that are not in tls.readers|use the Unix socket",
                           problem["detail"]):
            wrong.append(f"{method} {path}: does not say who may: {problem['detail']}")
    assert not wrong, "\n".join(wrong)


def test_every_route_is_judged_here():
    assert document_routes() <= set(ROUTES)


def test_every_role_on_every_route(sim, start_daemon):
    host = TlsHost(sim, start_daemon, admins=["boss", "uri:boss"], readers=["monitor"])
    open_to_all(host.daemon)
    judge(ADMIN, host.daemon.connect)
    judge(ADMIN, lambda: host.connect("boss"))
    judge(CLAIMANT, lambda: host.connect("anybody"))
    judge(READER, lambda: host.connect("monitor"))
    as_user(4242, lambda: judge(CLAIMANT, host.daemon.connect) or "well")
    for method, path in sorted(document_routes()):
        status, _ = attempt(host.connect(None), method, path, None)
        assert status == 403, (method, path)


def test_plain_tcp_reads_only(sim, start_daemon):
    port = free_port()
    daemon = start_daemon(sim, {"listen": f"127.0.0.1:{port}"})
    judge(ADMIN, lambda: http.client.HTTPConnection("127.0.0.1", port, timeout=20), only_get=True)
    lines = audit_lines(daemon)
    assert {line.split()[0] for line in lines} == {"claim", "release", "cordon", "uncordon", "recover", "quarantine",
                                                  "clear", "driver-release", "driver-resume"}
    assert all(re.search(r' result=forbidden peer="" address=127\.0\.0\.1:\d+$', line) for line in lines)


def test_any_name_of_a_certificate_counts(sim, start_daemon):
    """A role by a name that does not stand for the client; and the lesser one where two names differ."""
    host = TlsHost(sim, start_daemon, admins=["ops.example", "spiffe://h/ops"], readers=["looks"])
    for name, fields, expected in (
            ("dns", {"common": "x", "dns": ["OPS.example"]}, 404),
            ("uri", {"common": "x", "uris": ["spiffe://h/ops"]}, 404),
            ("case", {"common": "x", "uris": ["spiffe://h/OPS"]}, 403),
            ("both", {"common": "looks", "dns": ["ops.example"]}, 403)):
        host.clients[name] = host.ca.issue(name, **fields)
        assert host.request(name, "POST", "/gpus/0000:ff:00.0/recover").status == expected, name
    assert host.request("both", "PUT", "/claims/x", {"profile": "L40S-1Q"}).status == 403


# --- Whose claim ------------------------------------------------------------------------------------


def test_a_claim_belongs_to_the_certificate(sim, start_daemon):
    host = TlsHost(sim, start_daemon, admins=["boss"])
    daemon = host.daemon
    open_to_all(daemon)
    made = host.request("vmm", "PUT", "/claims/vm1", {"profile": "L40S-4Q", "owner": "somebody"})
    assert (made.status, made.json["uid"], made.json["peer"]) == (201, None, "vmm")
    local = as_user(1001, lambda: daemon.claim("vm2", "L40S-4Q"))
    assert (local.status, local.json["uid"], local.json["peer"]) == (201, 1001, None)
    # Again by the same one, and by strangers of both kinds.
    assert host.request("vmm", "PUT", "/claims/vm1", {"profile": "L40S-4Q"}).status == 200
    for answer in (host.request("other", "PUT", "/claims/vm1", {"profile": "L40S-4Q"}),
                   host.request("other", "DELETE", "/claims/vm1"),
                   as_user(1001, lambda: daemon.release("vm1"))):
        assert answer.status == 403
        assert "belongs to certificate vmm" in answer.json["detail"]
        assert "tls.admins" in answer.json["detail"]
    refused = host.request("vmm", "DELETE", "/claims/vm2")
    assert refused.status == 403 and "belongs to user 1001" in refused.json["detail"]
    # As ever after a restart.
    daemon.restart()
    check_host(sim, daemon, acknowledged={"vm1": made.json["vf"], "vm2": local.json["vf"]})
    assert daemon.get("/claims/vm1")["peer"] == "vmm"
    assert host.request("other", "DELETE", "/claims/vm1").status == 403
    assert host.request("vmm", "DELETE", "/claims/vm1").status == 200
    # An admin and root may.
    assert host.request("boss", "DELETE", "/claims/vm2").status == 200
    assert host.request("vmm", "PUT", "/claims/vm3", {"profile": "L40S-4Q"}).status == 201
    assert daemon.release("vm3").status == 200


def test_a_channel_that_would_never_be_asked_is_refused(sim, start_daemon):
    """Whether the other end of a Unix socket is the claim's owner's cannot be told of a certificate."""
    host = TlsHost(sim, start_daemon, admins=["boss"])
    for who, channel in (("vmm", "unix:/run/x"), ("vmm", "hvsock:/run/x:5"), ("boss", "unix:/run/x")):
        answer = host.request(who, "PUT", "/claims/vm1", {"profile": "L40S-4Q", "channel": channel})
        assert (answer.status, answer.code) == (400, "bad_request"), (who, channel)
        assert "vsock" in answer.json["detail"]
    made = host.request("vmm", "PUT", "/claims/vm1", {"profile": "L40S-4Q", "channel": "vsock:5"})
    assert (made.status, made.json["channel"]) == (201, "vsock:5")
    assert host.daemon.claim("vm2", channel="unix:/run/x").status == 201


@pytest.mark.parametrize("name", ["root", "0", "user 0"])
def test_a_certificate_is_nobodys_user(sim, start_daemon, name):
    host = TlsHost(sim, start_daemon)
    assert host.daemon.claim("roots").status == 201
    assert host.request(name, "DELETE", "/claims/roots").status == 403
    assert host.request(name, "POST", "/driver/release").status == 403


def test_shared_claims(sim, start_daemon):
    host = TlsHost(sim, start_daemon, {"claims": "shared"}, readers=["monitor"])
    assert host.request("a", "PUT", "/claims/vm1", {"profile": "L40S-4Q"}).status == 201
    assert host.request("monitor", "DELETE", "/claims/vm1").status == 403
    assert host.request("b", "DELETE", "/claims/vm1").status == 200


def test_killed_while_a_peers_claim_is_made(sim, start_daemon):
    """The database's tables change with the first claim of a peer; a kill in the middle leaves nothing."""
    host = TlsHost(sim, start_daemon)
    daemon = host.daemon
    kept = daemon.claim("kept").json["vf"]
    for fault in ("store.before-commit:1", "store.after-commit:1", "store.before-commit:2", "store.after-commit:2"):
        daemon.restart(fault=fault, ready=True)
        with pytest.raises(Exception):
            host.request("vmm", "PUT", "/claims/vm1", {"profile": "L40S-4Q"})
        daemon.wait_dead()
        daemon.start()
        settled(sim, daemon)
        claims = check_host(sim, daemon, acknowledged={"kept": kept})
        assert set(claims) <= {"kept", "vm1"}
        if "vm1" in claims:
            assert claims["vm1"]["peer"] == "vmm"
            assert host.request("vmm", "DELETE", "/claims/vm1").status == 200


def manual_block(word):
    """The literal block of berthd.yaml(5) that has the word."""
    text = (ROOT / "man/berthd.yaml.5.scd").read_text()
    return next(b for b in text.split("```")[1::2] if word in b).replace("\\\\", "\\")


def test_the_manual_works(sim, start_daemon, work):
    """Its commands make certificates with which its curl makes a claim."""
    done = subprocess.run(["sh", "-e", "-c", manual_block("openssl req")], cwd=work, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    settings = yaml.safe_load(manual_block("client_ca").replace("/etc/berth/tls", str(work)))
    port = free_port()
    daemon = start_daemon(sim, {**settings, "listen": f"127.0.0.1:{port}"})
    command = manual_block("curl").replace(":9445", f":{port}")
    command = command.replace("curl ", f"curl -sS --resolve host7.example:{port}:127.0.0.1 ", 1)
    done = subprocess.run(["sh", "-e", "-c", command], cwd=work, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert daemon.get("/claims/vm1")["peer"] == "vmm"


# --- What is left of it -----------------------------------------------------------------------------


def test_audit_lines(sim, start_daemon):
    host = TlsHost(sim, start_daemon, admins=["boss"])
    daemon = host.daemon
    card = daemon.get("/gpus")["gpus"][0]["address"]
    vf = daemon.get("/vfs")["vfs"][0]["address"]
    comm = open("/proc/self/comm").read().strip()
    root = f'uid=0 pid={os.getpid()} comm="{comm}"'
    expected = []

    def done(answer, status, line):
        assert answer.status == status, answer
        if line:
            expected.append(line)
        found = wait_for(lambda: len(audit_lines(daemon)) >= len(expected) and audit_lines(daemon), "a line")
        found = [re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", f) for f in found]
        assert found == expected

    done(daemon.claim("vm1"), 201, f"claim name=vm1 result=ok {root}")
    done(daemon.claim("vm1"), 200, None)  # there already
    done(daemon.claim("vm1", "L40S-8Q"), 409, None)  # changes nothing
    done(daemon.request("GET", "/claims"), 200, None)
    done(host.request("o\"ps", "DELETE", "/claims/vm1"), 403,
         r'release name=vm1 result=forbidden peer="o\"ps" address=ADDRESS')
    done(host.request(None, "PUT", "/claims/vm9", {"profile": "L40S-4Q"}), 403,
         'claim name=vm9 result=forbidden peer="" address=ADDRESS')
    done(host.request(None, "PUT", "/claims/a%20b%22", {"profile": "L40S-4Q"}), 403,
         r'claim name="a b\"" result=forbidden peer="" address=ADDRESS')
    done(host.request(None, "GET", "/claims"), 403, None)  # would have changed nothing
    done(host.request("vmm", "POST", f"/gpus/{card}/recover"), 403,
         f'recover card={card} result=forbidden peer="vmm" address=ADDRESS')
    done(host.request("boss", "PUT", f"/gpus/{card}/cordon"), 200,
         f'cordon card={card} result=ok peer="boss" address=ADDRESS')
    done(host.request("boss", "DELETE", f"/gpus/{card}/cordon"), 200,
         f'uncordon card={card} result=ok peer="boss" address=ADDRESS')
    done(daemon.request("PUT", f"/vfs/{vf}/quarantine"), 200, f'quarantine vf={vf} result=ok {root}')
    done(daemon.request("DELETE", f"/vfs/{vf}/quarantine"), 200, f'clear vf={vf} result=ok {root}')
    done(daemon.request("POST", "/driver/release"), 200, f"driver-release result=ok {root}")
    done(daemon.request("POST", "/driver/resume"), 200, f"driver-resume result=ok {root}")
    done(daemon.request("POST", "/fit", {"profiles": {"L40S-4Q": 1}}), 200, None)
    done(daemon.release("vm1"), 200, f"release name=vm1 result=ok {root}")
    done(daemon.release("vm1"), 204, None)  # nothing there
    assert " notice: audit: " in daemon.log()


def test_audit_of_a_release_that_goes_on(sim, daemon):
    vf = daemon.claim("vm1").json["vf"]
    sim.ctl("set", "sysfs.release_errno", "EBUSY", "--vf", vf)
    assert daemon.release("vm1").status == 202
    assert audit_lines(daemon)[-1].startswith("release name=vm1 result=accepted uid=0 ")
    sim.ctl("set", "sysfs.release_errno", "0", "--vf", vf)


def test_strangers_cannot_fill_the_log(sim, start_daemon):
    """Refusals of clients without a certificate are told of up to a number a minute; known ones always."""
    host = TlsHost(sim, start_daemon)
    for _ in range(80):
        assert host.request(None, "DELETE", "/claims/x").status == 403
    lines = audit_lines(host.daemon)
    assert sum("result=forbidden" in line for line in lines) == 60
    assert sum("leaving out" in line for line in lines) == 1
    assert host.request("vmm", "POST", "/driver/release").status == 403
    assert audit_lines(host.daemon)[-1].startswith("driver-release result=forbidden peer=\"vmm\"")


def test_a_process_cannot_forge_a_line(sim, daemon):
    """The name of a process is its own choice."""
    with open("/proc/self/comm", "r+") as f:
        before = f.read().strip()
    try:
        with open("/proc/self/comm", "w") as f:
            f.write('x" uid=0\naudit')
        assert daemon.claim("vm1").status == 201
    finally:
        with open("/proc/self/comm", "w") as f:
            f.write(before)
    assert len(audit_lines(daemon)) == 1
    assert audit_lines(daemon)[0].endswith(r' comm="x\" uid=0"')
