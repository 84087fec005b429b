# SPDX-License-Identifier: Apache-2.0
"""berthd as a service: messages to systemd, the watchdog, sockets that are handed over."""
import os
import signal
import socket
import stat
import subprocess
import time

import pytest

from conftest import BIN, UnixConnection, request_over, wait_for
from service_manager import Manager
from test_claims import as_user, open_to_all
from tls_daemon import TlsHost, free_port


@pytest.fixture
def manager(work):
    m = Manager(work)
    yield m
    m.close()


def children(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        found += open(f"/proc/{pid}/task/{task}/children").read().split()
    return [int(p) for p in found]


# --- Messages ---------------------------------------------------------------------------------------


def test_ready_when_it_is(sim, start_daemon, manager):
    """READY=1 comes when /readyz says 200, not before, and STOPPING=1 at the end."""
    sim.ctl("set", "sysfs.read_latency_ms", 20)
    daemon = start_daemon(sim, ready=None, **manager.options())
    wait_for(lambda: daemon.try_request("GET", "/readyz"), "an answer")
    while manager.count("READY") == 0:
        was_ready = daemon.request("GET", "/readyz").status == 200
        assert was_ready or manager.count("READY") == 0 or daemon.request("GET", "/readyz").status == 200
    assert daemon.request("GET", "/readyz").status == 200
    sim.ctl("set", "sysfs.read_latency_ms", 0)
    assert daemon.stop() == 0
    manager.wait("STOPPING", "1")
    assert manager.count("READY") == 1


def test_ready_although_the_database_cannot_be_read(sim, start_daemon, manager):
    """It answers and explains: a service that never got ready would be killed and started in a circle."""
    (sim.root / "state").mkdir(exist_ok=True)
    (sim.root / "state/claims.db").write_text("this is no database, however long one looks at it")
    daemon = start_daemon(sim, ready=False, **manager.options())
    manager.wait("READY", "1")
    assert daemon.request("GET", "/readyz").status == 503
    manager.wait_status("not ready: claims.db is not a database")


def test_status_line(sim, start_daemon, manager):
    daemon = start_daemon(sim, **manager.options())
    manager.wait_status("2 cards, 64 VFs, 0 claims")
    assert "fallback" not in manager.status()
    assert daemon.claim("vm1").status == 201
    manager.wait_status("1 claim")
    card = sim.card()["address"]
    sim.ctl("set", "nvml.error", 999, "--gpu", card)
    assert daemon.claim("vm2").status == 201
    manager.wait_status("2 claims", "fallback: ")
    sim.ctl("set", "nvml.error", 0, "--gpu", card)
    vf = daemon.get("/vfs")["vfs"][-1]["address"]
    assert daemon.request("PUT", f"/vfs/{vf}/quarantine").status == 200
    manager.wait_status("1 quarantined")
    assert daemon.request("PUT", f"/gpus/{daemon.get('/gpus')['gpus'][0]['address']}/cordon").status == 200
    manager.wait_status("1 cordoned")


def test_status_is_cheap(sim, start_daemon, manager):
    """A line for each change would be one for each claim; and none is told twice."""
    daemon = start_daemon(sim, {"reconcile_interval": "50ms"}, **manager.options())
    for i in range(30):
        assert daemon.claim(f"vm{i}", "L40S-1Q").status == 201
        assert daemon.release(f"vm{i}").status == 200
    manager.wait_status("0 claims")
    told = [m["STATUS"] for m in manager.messages if "STATUS" in m]
    assert len(told) < 30
    assert all(a != b for a, b in zip(told, told[1:]))


def test_watchdog(sim, start_daemon, manager):
    daemon = start_daemon(sim, **manager.options(env={"WATCHDOG_USEC": "300000"}))
    manager.wait("WATCHDOG", "1", times=5)
    # Not by a thread beside a loop that hangs.
    os.kill(daemon.process.pid, signal.SIGSTOP)
    wait_for(lambda: open(f"/proc/{daemon.process.pid}/stat").read().rsplit(") ")[1][0] == "T", "the stop")
    before = manager.count("WATCHDOG")
    end = time.monotonic() + 0.7
    wait_for(lambda: time.monotonic() > end, "twice the interval")
    assert manager.count("WATCHDOG") <= before + 1
    os.kill(daemon.process.pid, signal.SIGCONT)
    manager.wait("WATCHDOG", "1", times=before + 3)


def test_watchdog_while_the_driver_hangs(sim, start_daemon, manager):
    """Helpers hang, the loop does not."""
    daemon = start_daemon(sim, {"gpu": {"card_timeout": "30s", "nvml_timeout": "30s"}},
                          **manager.options(env={"WATCHDOG_USEC": "300000"}))
    sim.ctl("set", "nvml.hang", 1)
    sim.ctl("set", "sysfs.read_hang", 1)
    before = manager.count("WATCHDOG")
    manager.wait("WATCHDOG", "1", times=before + 5)
    sim.ctl("set", "sysfs.read_hang", 0)
    sim.ctl("set", "nvml.hang", 0)
    assert daemon.request("GET", "/healthz").status == 200


# --- Sockets ----------------------------------------------------------------------------------------


def test_inherited_unix_socket(sim, start_daemon, manager):
    """A connection made before berthd runs is served; the socket stays behind; credentials are right."""
    path = sim.root / "berthd.sock"
    listener = manager.listen_unix(path, mode=0o660)
    early = socket.socket(socket.AF_UNIX)
    early.connect(str(path))
    early.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
    daemon = start_daemon(sim, **manager.options(listener))
    early.settimeout(10)
    assert early.recv(100).startswith(b"HTTP/1.1 200") or early.recv(100)
    early.close()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
    open_to_all(daemon)
    assert as_user(1001, lambda: daemon.claim("vm1")).json["uid"] == 1001
    assert daemon.claim("vm2").json["uid"] == 0
    inode = os.stat(path).st_ino
    assert daemon.stop() == 0
    assert os.stat(path).st_ino == inode
    # Across a restart no connection is refused, they only wait.
    waiting = UnixConnection(path)
    waiting.request("GET", "/claims")
    daemon.start(**manager.options(listener))
    answer = waiting.getresponse()
    assert answer.status in (200, 503)
    answer.read()
    waiting.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_inherited_tcp_socket(sim, start_daemon, manager, address):
    try:
        listener = manager.listen_tcp(address)
    except OSError as e:
        pytest.skip(f"no {address} here: {e}")
    port = listener.getsockname()[1]
    shown = f"[{address}]" if ":" in address else address
    unix = manager.listen_unix(sim.root / "berthd.sock")
    start_daemon(sim, {"listen": f"{shown}:{port}"}, **manager.options(listener, unix))
    import http.client
    connection = http.client.HTTPConnection(address, port, timeout=10)
    assert request_over(connection, "GET", "/resources").status == 200
    connection.close()


def test_inherited_tls_socket(sim, start_daemon, manager):
    host = TlsHost(sim, start_daemon)
    host.daemon.stop()
    listener = manager.listen_tcp(port=host.port)
    host.daemon.start(**manager.options(listener))
    assert host.request("vmm", "PUT", "/claims/vm1", {"profile": "L40S-4Q"}).status == 201
    assert host.request(None, "GET", "/claims").status == 403


def test_helpers_have_none_of_it(sim, start_daemon, manager):
    listener = manager.listen_tcp()
    port = listener.getsockname()[1]
    daemon = start_daemon(sim, {"listen": f"127.0.0.1:{port}", "recover": {"verify": "/bin/sleep 60"}},
                          **manager.options(listener, manager.listen_unix(sim.root / "berthd.sock")))
    assert daemon.claim("vm1").status == 201
    helpers = children(daemon.process.pid)
    assert helpers
    listening = {os.fstat(s.fileno()).st_ino for s in manager.sockets}
    for pid in helpers:
        links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        assert not [link for link in links for inode in listening if link == f"socket:[{inode}]"]
        environment = open(f"/proc/{pid}/environ").read()
        assert "LISTEN_FDS" not in environment and "LISTEN_PID" not in environment


WRONG = {
    "other-path": (lambda m, s: [m.listen_unix(s.root / "elsewhere.sock")], {}, "elsewhere.sock"),
    "datagram": (lambda m, s: [m.listen_unix(s.root / "berthd.sock", kind=socket.SOCK_DGRAM, backlog=None)], {},
                 "no listening Unix or TCP stream socket"),
    "not-listening": (lambda m, s: [m.listen_unix(s.root / "berthd.sock", backlog=None)], {},
                      "no listening Unix or TCP stream socket"),
    "two": (lambda m, s: [m.listen_unix(s.root / "berthd.sock"), m.listen_unix(s.root / "b")], {},
            "two Unix sockets"),
    "tcp-unasked": (lambda m, s: [m.listen_tcp()], {}, "`listen` is not set"),
    "tcp-elsewhere": (lambda m, s: [m.listen_tcp()], {"listen": "127.0.0.1:1"}, "does not listen at 127.0.0.1:1"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_sockets_refuse_to_start(sim, start_daemon, manager, kind):
    make, settings, message = WRONG[kind]
    daemon = start_daemon(sim, settings, ready=None, **manager.options(*make(manager, sim)))
    assert daemon.process.wait(timeout=10) == 1
    assert message in daemon.log()
    daemon.process = subprocess.Popen(["true"])  # for the fixture, which wants a good end
    daemon.process.wait()


def test_variables_of_another_process_are_not_ours(sim, start_daemon):
    daemon = start_daemon(sim, env={"LISTEN_PID": "1", "LISTEN_FDS": "2", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"})
    assert daemon.request("GET", "/healthz").status == 200
