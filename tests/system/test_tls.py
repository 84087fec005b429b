# SPDX-License-Identifier: Apache-2.0
"""The HTTP framework over TLS: who gets in, handshakes that lead nowhere, new files while it runs."""
import errno
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest
from cryptography.hazmat.primitives import serialization

import certificates
from certificates import Authority, client_context
from conftest import BIN, UnixConnection, wait_for
from test_http_server import SERVER, Reader, next_answer, request

DEADLINE = 10


class Pki:
    """A CA with a server's certificate and clients' of all kinds."""

    def __init__(self, folder):
        self.folder = folder
        self.ca = Authority(folder)
        self.other = Authority(folder, "other")
        self.between = Authority(folder, "between", parent=self.ca)
        self.server = self.ca.issue("server", dns=["localhost"], purposes=["server"])
        self.good = self.ca.issue("good", common="client one")
        self.second = self.ca.issue("second")


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki(tmp_path_factory.mktemp("pki"))


class Server:
    """http-test-server with TLS on a folder of its own, whose files may be exchanged."""

    def __init__(self, folder, pki, *options):
        self.folder = folder
        self.path = str(folder / "test.sock")
        for name in ("server.pem", "server.key", "ca.pem"):
            shutil.copy(pki.folder / name, folder / name)
        self.process = subprocess.Popen([SERVER, self.path, "--tcp", "127.0.0.1:0", "--tls", folder, *options],
                                        stdout=subprocess.PIPE, text=True)
        word, port = self.process.stdout.readline().split()
        assert word == "ready"
        self.port = int(port)

    def https(self, pki, pair, ca=None, version=None):
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=DEADLINE,
                                           context=client_context(ca or pki.ca.path, pair, version))

    def tls(self, pki, pair):
        """A socket after its handshake."""
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE)
        return client_context(pki.ca.path, pair).wrap_socket(plain)

    def get(self, pki, pair, path="/healthz", **options):
        connection = self.https(pki, pair, **options)
        try:
            return ask(connection, path)
        finally:
            connection.close()

    def over_unix(self, path, method="GET", body=None):
        connection = UnixConnection(self.path)
        try:
            return ask(connection, path, method, body)
        finally:
            connection.close()

    def stats(self):
        return self.over_unix("/stats")[1]

    def reload(self):
        """SIGHUP; what the server says of it: "" or an error."""
        self.process.send_signal(signal.SIGHUP)
        word, _, rest = self.process.stdout.readline().strip().partition(" ")
        assert word == "reloaded"
        return rest

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(DEADLINE)
        self.process.stdout.close()
        return status


def ask(connection, path, method="GET", body=None, headers=None):
    """(status, JSON or text)."""
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    text = answer.read()
    kind = answer.getheader("Content-Type") or ""
    return answer.status, json.loads(text) if "json" in kind else text


@pytest.fixture(scope="module")
def shared(tmp_path_factory, pki):
    """A server whose files stay."""
    folder = tmp_path_factory.mktemp("tls")
    server = Server(folder, pki)
    yield server
    assert server.stop() == 0


@pytest.fixture
def start(work, pki):
    started = []

    def start(*options):
        started.append(Server(work, pki, *options))
        return started[-1]

    yield start
    for server in started:
        assert server.stop() == 0


# --- Who gets in -----------------------------------------------------------------------------------


REFUSED = {
    "none": (lambda p: None, "none was sent"),
    "expired": (lambda p: p.ca.issue("expired", days=(-10, -1)), "has expired"),
    "early": (lambda p: p.ca.issue("early", days=(1, 10)), "not valid yet"),
    "self-signed": (lambda p: p.ca.issue("self", self_signed=True), "no CA of tls.client_ca"),
    "other-ca": (lambda p: p.other.issue("foreign"), "no CA of tls.client_ca"),
    "server-only": (lambda p: p.server, "not meant for clients"),
    "weak": (lambda p: p.ca.issue("weak", key=certificates.weak_key()), "too weak"),
    "no-intermediate": (lambda p: p.between.issue("alone"), "no CA of tls.client_ca"),
    "by-a-client": (lambda p: forged(p), "no CA of tls.client_ca|not a CA"),
    "two-names": (lambda p: p.ca.issue("two", common=("a", "root")), "two common names"),
    "no-name": (lambda p: p.ca.issue("nameless", common=()), "has no name"),
    "control": (lambda p: p.ca.issue("control", common="root\n<3>evil"), "not printable"),
    "c1-control": (lambda p: p.ca.issue("c1", common="vmm\u009b31m"), "not printable"),
    "nul": (lambda p: p.ca.issue("nul", common="root\0.example"), "not printable"),
}


def forged(pki):
    """Issued with the certificate of a client, which is no CA."""
    maker = Authority(pki.folder, "good-as-ca")
    maker.key = serialization.load_pem_private_key(pki.good.key.read_bytes(), None)
    maker.certificate = certificates.x509.load_pem_x509_certificate(pki.good.certificate.read_bytes())
    return maker.issue("forged", chain=[maker])


@pytest.mark.parametrize("kind", REFUSED)
def test_bad_certificates_are_told_why(shared, pki, kind):
    make, reason = REFUSED[kind]
    pair = make(pki)
    for path in ("/healthz", "/echo/x"):
        connection = shared.https(pki, pair)
        status, problem = ask(connection, path)
        assert (status, problem["code"]) == (403, "forbidden")
        assert any(part in problem["detail"] for part in reason.split("|")), problem["detail"]
        connection.close()
    assert shared.get(pki, pki.good)[0] == 200


def test_refused_is_closed(shared, pki):
    """No second try on a connection, and no body is read."""
    s = shared.tls(pki, None)
    s.sendall(request("PUT", "/echo/x", b"{}") + request("GET", "/healthz"))
    reader = Reader(s)
    assert next_answer(reader).status == 403
    with pytest.raises((EOFError, OSError)):
        next_answer(reader)
    s.close()


GOOD = {
    "common": (lambda p: p.good, "client one"),
    "no-purpose": (lambda p: p.ca.issue("any", purposes=()), "any"),
    "both": (lambda p: p.ca.issue("both", purposes=("client", "server"), dns=["other.example"]), "both"),
    "dns": (lambda p: p.ca.issue("dns", common=(), dns=["vm.example", "b.example"]), "vm.example"),
    "uri": (lambda p: p.ca.issue("uri", common=(), uris=["spiffe://host/agent"]), "spiffe://host/agent"),
    "intermediate": (lambda p: p.between.issue("below", chain=[p.between]), "below"),
    "umlaut": (lambda p: p.ca.issue("umlaut", common="Zoë"), "Zoë"),
    "special": (lambda p: p.ca.issue("special", common='a, "b"=c\\ #'), 'a, "b"=c\\ #'),
}


@pytest.mark.parametrize("kind", GOOD)
def test_good_certificates(shared, pki, kind):
    make, name = GOOD[kind]
    status, answer = shared.get(pki, make(pki), "/echo/x")
    assert (status, answer["peer"], answer["has_peer"]) == (200, name, False)


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
def test_old_versions_are_refused(shared, pki, version):
    with pytest.raises((ssl.SSLError, OSError)):
        shared.get(pki, pki.good, version=ssl.TLSVersion[version])
    assert shared.get(pki, pki.good)[0] == 200


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_versions(shared, pki, version):
    connection = shared.https(pki, pki.good, version=ssl.TLSVersion[version])
    assert ask(connection, "/healthz")[0] == 200
    assert connection.sock.version() == version.replace("_", ".")
    # Forward secrecy and authenticated encryption.
    assert any(word in connection.sock.cipher()[0] for word in ("GCM", "CHACHA20", "CCM"))
    connection.close()


def test_any_host_name(shared, pki):
    """Over TLS the server's certificate is what keeps foreign names out."""
    connection = shared.https(pki, pki.good)
    assert ask(connection, "/healthz", headers={"Host": "node7.example:8443"})[0] == 200
    connection.close()


# --- As without TLS ---------------------------------------------------------------------------------


def test_keep_alive_and_sizes(shared, pki):
    connection = shared.https(pki, pki.good)
    ask(connection, "/healthz")
    before = connection.sock
    for n in (10, 1000, 15000):
        assert ask(connection, "/healthz", headers={"X-Long": "x" * n})[0] == 200
    body = b'{"text": "' + b"x" * 60000 + b'"}'
    assert ask(connection, "/echo/x", "PUT", body)[1]["body"]["text"] == "x" * 60000
    assert ask(connection, "/big")[0] == 200
    assert connection.sock is before  # http.client connects anew where it had to
    assert ask(connection, "/healthz", headers={"X-Long": "x" * 40000})[0] == 431
    connection.close()


def test_pipelined_and_in_pieces(shared, pki):
    s = shared.tls(pki, pki.good)
    for byte in request("GET", "/echo/pieces"):
        s.sendall(bytes([byte]))
    reader = Reader(s)
    assert next_answer(reader).json["name"] == "pieces"
    s.sendall(b"".join(request("GET", f"/echo/n{i}") for i in range(20)))
    assert [next_answer(reader).json["name"] for _ in range(20)] == [f"n{i}" for i in range(20)]
    s.close()


def test_events_over_tls(shared, pki):
    s = shared.tls(pki, pki.good)
    s.sendall(request("GET", "/events"))
    reader = Reader(s)
    assert reader.head()[0] == 200
    reader.event()
    for i in range(3):
        assert shared.over_unix("/publish", "POST", b'{"n": %d}' % i)[0] == 204
        assert f'"n":{i}' in reader.event()
    s.close()
    wait_for(lambda: shared.stats()["streams"] == 0, "the stream to be noticed gone")


def test_hang_up_while_held(shared, pki):
    hangups = shared.stats()["hangups"]
    s = shared.tls(pki, pki.good)
    s.sendall(request("PUT", "/hold", b"{}"))
    wait_for(lambda: shared.stats()["held"] == 1, "the request to be held")
    s.close()
    wait_for(lambda: shared.stats()["hangups"] == hangups + 1, "the end to be noticed")


def test_held_and_answered(shared, pki):
    s = shared.tls(pki, pki.good)
    s.sendall(request("PUT", "/hold", b"{}"))
    wait_for(lambda: shared.stats()["held"] == 1, "the request to be held")
    assert shared.over_unix("/release", "POST")[0] == 200
    assert next_answer(Reader(s)).json == {"gone": False}
    s.close()


# --- Handshakes that lead nowhere -------------------------------------------------------------------


@pytest.mark.parametrize("garbage", [
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\x40\x00" + b"\0" * 100,
    b"\x16\x03\x01\x00\x05\x01\xff\xff\xff\xff", b"\x15\x03\x01\x00\x02\x02\x28", bytes(range(256)) * 8,
], ids=["http", "long-record", "long-hello", "alert", "noise"])
def test_garbage_instead_of_a_handshake(shared, pki, garbage):
    answer = b""
    with socket.create_connection(("127.0.0.1", shared.port), timeout=DEADLINE) as s:
        try:
            s.sendall(garbage)
            s.shutdown(socket.SHUT_WR)
            while part := s.recv(65536):
                answer += part
        except OSError as e:
            assert e.errno in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN)
    assert not answer.startswith(b"HTTP/")
    assert shared.get(pki, pki.good)[0] == 200


def test_truncated_handshake_in_every_state(shared, pki):
    """A client hello cut at many places, and one that goes silent behind it."""
    out = ssl.MemoryBIO()
    client = client_context(pki.ca.path, pki.good).wrap_bio(ssl.MemoryBIO(), out)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    hello = out.read()
    for n in (1, 5, 6, 40, len(hello) // 2, len(hello) - 1, len(hello)):
        with socket.create_connection(("127.0.0.1", shared.port), timeout=DEADLINE) as s:
            s.sendall(hello[:n])
    assert shared.get(pki, pki.good)[0] == 200
    wait_for(lambda: shared.stats()["connections"] == 1, "what was left to be closed")


def test_half_open_handshakes_end(start, pki):
    """They take no more than their share, hold up nobody, and are cut at the deadline."""
    server = start("--fast")
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(90)]
    for s in silent[::2]:
        s.sendall(b"\x16\x03\x01\x02\x00\x01")
    most = wait_for(lambda: (n := server.stats()["connections"]) > 50 and n, "them to be taken in")
    assert most <= 64 + 1  # of one address, and the one that asks
    wait_for(lambda: server.stats()["connections"] == 1, "the silent ones to be cut")
    assert server.get(pki, pki.good)[0] == 200
    for s in silent:
        s.close()


@pytest.mark.parametrize("n", [1, 40])
def test_waiting_for_a_handshake_costs_nothing(start, pki, n):
    """libmicrohttpd wants to be run all the time while a client is in the middle of one."""
    server = start("--fast")
    out = ssl.MemoryBIO()
    client = client_context(pki.ca.path, pki.good).wrap_bio(ssl.MemoryBIO(), out)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    hello = out.read()
    waiting = [socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE) for _ in range(n)]
    for i, s in enumerate(waiting):
        s.sendall(hello if i % 2 else hello[:100])
    for s in waiting[1::2]:
        s.recv(10)
    before = cpu_seconds(server.process.pid)
    began = time.monotonic()
    for s in waiting:
        try:
            while s.recv(65536):  # until it is cut
                pass
        except ConnectionError:
            pass
        s.close()
    spent = cpu_seconds(server.process.pid) - before
    assert spent < 0.5 * max(time.monotonic() - began, 0.3)


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_slow_handshake_holds_up_nobody(start, pki):
    """A handshake byte by byte does not get more time than a whole one."""
    server = start("--fast")
    s = socket.create_connection(("127.0.0.1", server.port))
    ended = threading.Event()

    def drip():
        try:
            for byte in b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"r" * 400:
                s.sendall(bytes([byte]))
                if ended.wait(0.02):
                    return
        except OSError:
            ended.set()

    thread = threading.Thread(target=drip)
    thread.start()
    while not ended.is_set():
        assert server.get(pki, pki.good)[0] == 200
    thread.join()
    s.close()


# --- New files while it runs ------------------------------------------------------------------------


def replace(server, name, source):
    fresh = server.folder / f"{name}.new"
    shutil.copy(source, fresh)
    os.rename(fresh, server.folder / name)


def shown_certificate(server, pki):
    connection = server.https(pki, pki.good, ca=server.folder / "trusted.pem")
    assert ask(connection, "/healthz")[0] == 200
    shown = connection.sock.getpeercert(True)
    connection.close()
    return shown


def test_new_certificate(start, pki):
    server = start()
    (server.folder / "trusted.pem").write_bytes(pki.ca.pem + pki.other.pem)
    before = shown_certificate(server, pki)
    kept = server.https(pki, pki.good)
    assert ask(kept, "/healthz")[0] == 200
    connection = kept.sock
    fresh = pki.other.issue("fresh-server", dns=["localhost"], purposes=["server"])
    replace(server, "server.pem", fresh.certificate)
    # The key still is the old one: the set as a whole is refused.
    assert "does not belong" in server.reload()
    assert shown_certificate(server, pki) == before
    replace(server, "server.key", fresh.key)
    assert server.reload() == ""
    assert shown_certificate(server, pki) != before
    assert ask(kept, "/healthz")[0] == 200 and kept.sock is connection
    kept.close()


def test_new_ca_shuts_out_who_was_in(start, pki):
    server = start()
    foreign = pki.other.issue("newcomer")
    kept, stream = server.https(pki, pki.good), server.tls(pki, pki.good)
    assert ask(kept, "/healthz")[0] == 200
    stream.sendall(request("GET", "/events"))
    reader = Reader(stream)
    assert reader.head()[0] == 200
    assert server.get(pki, foreign)[0] == 403
    replace(server, "ca.pem", pki.other.path)
    assert server.reload() == ""
    status, problem = ask(kept, "/healthz")
    assert status == 403 and "no CA of tls.client_ca" in problem["detail"]
    with pytest.raises((EOFError, OSError, AssertionError)):
        while True:
            reader.event()
    assert server.get(pki, foreign)[0] == 200
    kept.close()
    stream.close()


def test_stream_goes_on_over_a_reload(start, pki):
    server = start()
    stream = server.tls(pki, pki.good)
    stream.sendall(request("GET", "/events"))
    reader = Reader(stream)
    assert reader.head()[0] == 200
    reader.event()
    (server.folder / "ca.pem").write_bytes(pki.ca.pem + pki.other.pem)
    assert server.reload() == ""
    server.over_unix("/publish", "POST", b'{"n": 7}')
    assert '"n":7' in reader.event()
    stream.close()


def test_reload_under_load(start, pki):
    """Requests on kept and on new connections while the files are read again: none fails."""
    server = start()
    stop, failures, counts = threading.Event(), [], [0, 0]

    def load(index, fresh):
        connection = server.https(pki, pki.good)
        try:
            while not stop.is_set():
                if ask(connection, "/healthz")[0] != 200:
                    failures.append("status")
                counts[index] += 1
                if fresh:
                    connection.close()
        except (OSError, http.client.HTTPException) as e:
            failures.append(repr(e))
        finally:
            connection.close()

    threads = [threading.Thread(target=load, args=(i, i == 1)) for i in range(2)]
    for thread in threads:
        thread.start()
    for i in range(20):
        reached = counts[1] + 2
        pair = pki.ca.issue(f"again{i % 2}", dns=["localhost"], purposes=["server"])
        replace(server, "server.pem", pair.certificate)
        replace(server, "server.key", pair.key)
        assert server.reload() == ""
        wait_for(lambda: counts[1] >= reached or failures, "requests beside the reload")
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures


# --- Files that will not do -------------------------------------------------------------------------


def encrypted(pki):
    key = serialization.load_pem_private_key(pki.server.key.read_bytes(), None)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                             serialization.BestAvailableEncryption(b"secret"))


BAD_FILES = {
    "key-readable": (lambda d, p: os.chmod(d / "server.key", 0o640), "tls.key: .* chmod 600"),
    "key-missing": (lambda d, p: os.unlink(d / "server.key"), "tls.key: .* cannot be read: No such file"),
    "key-of-another": (lambda d, p: shutil.copy(p.good.key, d / "server.key"), "tls.key: .* does not belong to"),
    "key-encrypted": (lambda d, p: (d / "server.key").write_bytes(encrypted(p)), "tls.key: "),
    "key-garbage": (lambda d, p: (d / "server.key").write_text("x"), "tls.key: .* holds no key"),
    "certificate-missing": (lambda d, p: os.unlink(d / "server.pem"), "tls.certificate: .* No such file"),
    "certificate-garbage": (lambda d, p: (d / "server.pem").write_text("x"), "tls.certificate: .* no certificate"),
    "certificate-folder": (lambda d, p: (os.unlink(d / "server.pem"), os.mkdir(d / "server.pem")),
                           "tls.certificate: .* is not a file"),
    "certificate-fifo": (lambda d, p: (os.unlink(d / "server.pem"), os.mkfifo(d / "server.pem")),
                         "tls.certificate: .* is not a file"),
    "ca-empty": (lambda d, p: (d / "ca.pem").write_text(""), "tls.client_ca: .* no certificate"),
    "ca-torn": (lambda d, p: (d / "ca.pem").write_bytes(p.ca.pem[:200]), "tls.client_ca: "),
    "ca-second-torn": (lambda d, p: (d / "ca.pem").write_bytes(p.ca.pem + p.other.pem[:200]),
                       "tls.client_ca: .* a certificate that is damaged or cut off"),
    "chain-torn": (lambda d, p: (d / "server.pem").write_bytes(p.server.certificate.read_bytes() + p.between.pem[:99]),
                   "tls.certificate: .* a certificate that is damaged or cut off"),
    "ca-is-none": (lambda d, p: (d / "ca.pem").write_bytes(p.ca.pem + p.good.certificate.read_bytes()),
                   "tls.client_ca: certificate 2 of .* is not a CA's"),
    "ca-long": (lambda d, p: (d / "ca.pem").write_bytes(p.ca.pem * 4000), "tls.client_ca: .* File too large"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_files_refuse_to_start(work, pki, kind):
    spoil, message = BAD_FILES[kind]
    for name in ("server.pem", "server.key", "ca.pem"):
        shutil.copy(pki.folder / name, work / name)
    spoil(work, pki)
    config = work / "berthd.yaml"
    config.write_text(f"data_dir: {work}/state\nsocket: {work}/s\nlisten: 127.0.0.1:0\ntls:\n"
                      f"  certificate: {work}/server.pem\n  key: {work}/server.key\n  client_ca: {work}/ca.pem\n")
    for options in (["--check"], []):
        done = subprocess.run([BIN / "berthd", "--config", config, *options], capture_output=True, text=True,
                              timeout=10)
        assert done.returncode == 1
        assert re.search(message, done.stderr), done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not (work / "state").exists()
