# SPDX-License-Identifier: Apache-2.0
"""The HTTP framework towards odd clients, by raw sockets and a server made for the purpose."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

BIN = Path(os.environ.get("BERTH_BIN") or Path(__file__).parents[2] / "build/bin")
SERVER = BIN.parent / "tests/unit/http-test-server"
DEADLINE = 10


class Server:
    def __init__(self, folder, *options):
        self.path = str(folder / "run" / "test.sock")
        self.process = subprocess.Popen([SERVER, self.path, *options], stdout=subprocess.PIPE, text=True)
        word, port = self.process.stdout.readline().split()
        assert word == "ready"
        self.port = int(port)

    def connect(self, tcp=False):
        if tcp:
            return socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE)
        s = socket.socket(socket.AF_UNIX)
        s.connect(self.path)  # blocks while the backlog is full; with a time-out it would fail
        s.settimeout(DEADLINE)
        return s

    def ask(self, request, tcp=False):
        with self.connect(tcp) as s:
            s.sendall(request)
            return read_answer(s)

    def get(self, path):
        return self.ask(request("GET", path))

    def stats(self):
        return self.get("/stats").json

    def wait_stats(self, **wanted):
        """The connection that asks counts itself."""
        limit = time.monotonic() + DEADLINE
        while True:
            stats = self.stats()
            if all(stats[k] == v for k, v in wanted.items()):
                return
            assert time.monotonic() < limit, f"{stats} did not become {wanted}"
            time.sleep(0.01)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(DEADLINE) == 0


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    def is_problem(self, status, code):
        assert self.headers["content-type"] == "application/problem+json"
        assert (self.status, self.json["status"], self.json["code"]) == (status, status, code)
        return self.json


def request(method, path, body=None, *headers, version="1.1"):
    lines = [f"{method} {path} HTTP/{version}", "Host: localhost", *headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")


class Reader:
    """Takes answers from a connection, one after another."""

    def __init__(self, s):
        self.s, self.data = s, b""

    def more(self):
        part = self.s.recv(65536)
        if not part:
            raise EOFError
        self.data += part

    def until(self, mark):
        while mark not in self.data:
            self.more()
        head, self.data = self.data.split(mark, 1)
        return head

    def exactly(self, n):
        while len(self.data) < n:
            self.more()
        part, self.data = self.data[:n], self.data[n:]
        return part

    def head(self):
        first, *lines = self.until(b"\r\n\r\n").decode().split("\r\n")
        headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines)}
        return int(first.split()[1]), headers

    def chunk(self):
        n = int(self.until(b"\r\n"), 16)
        part = self.exactly(n)
        self.exactly(2)
        return part

    def event(self):
        """The next block of an event stream."""
        text = b""
        while not text.endswith(b"\n\n"):
            part = self.chunk()
            assert part, "the stream ended"
            text += part
        return text.decode()


def read_answer(s, head=False):
    return next_answer(Reader(s), head)


def next_answer(reader, head=False):
    status, headers = reader.head()
    body = b"" if head or status == 204 else reader.exactly(int(headers["content-length"]))
    return Answer(status, headers, body)


def is_closed(s):
    """Waits for the end of the connection."""
    try:
        while s.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.fixture
def server(tmp_path):
    s = Server(tmp_path, "--tcp", "127.0.0.1:0")
    yield s
    s.stop()


@pytest.fixture
def fast(tmp_path):
    s = Server(tmp_path, "--tcp", "127.0.0.1:0", "--fast")
    yield s
    s.stop()


# --- Plain use -----------------------------------------------------------------------------------


def test_answers_and_keeps_the_connection(server):
    with server.connect() as s:
        reader = Reader(s)
        for _ in range(3):
            s.sendall(request("GET", "/healthz"))
            answer = next_answer(reader)
            assert answer.status == 200 and answer.json == {"status": "ok"}
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["x-content-type-options"] == "nosniff"


def test_socket_has_mode_0660(server):
    assert os.stat(server.path).st_mode & 0o777 == 0o660


def test_peer_credentials(server):
    answer = server.get("/echo/x").json
    assert answer["has_peer"] and answer["uid"] == os.getuid() and answer["pid"] == os.getpid()
    answer = server.ask(request("GET", "/echo/x"), tcp=True).json
    assert answer["tcp"] and not answer["has_peer"]


def test_parameter_and_query_are_decoded(server):
    answer = server.get("/echo/a%2Fb%C3%BC?a=x%26y+z&b").json
    assert (answer["name"], answer["a"]) == ("a/bü", "x&y z")


@pytest.mark.parametrize("path", ["/", "/nothing", "/echo", "/echo/", "/echo/a/b", "/echo/%zz", "/echo/%00",
                                  "/echo/%0a", "/echo/%ff", "/echo/" + "a" * 256, "//healthz", "/healthz/"])
def test_unknown_path(server, path):
    server.get(path).is_problem(404, "not_found")


@pytest.mark.parametrize("query", ["c=1", "a=1&a=2", "a=%f", "&".join(["a"] * 17), "a=%ff"])
def test_bad_query(server, query):
    server.get("/echo/x?" + query).is_problem(400, "bad_request")


def test_unknown_query_key_is_named(server):
    assert '"nope"' in server.get("/echo/x?nope=1").json["detail"]


def test_wrong_method_names_the_right_ones(server):
    answer = server.ask(request("DELETE", "/echo/x"))
    answer.is_problem(405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD, PUT"


def test_head_has_the_length_but_no_body(server):
    want = server.get("/big")
    with server.connect() as s:
        reader = Reader(s)
        s.sendall(request("HEAD", "/big") + request("GET", "/healthz"))
        answer = next_answer(reader, head=True)
        assert answer.headers["content-length"] == str(len(want.body))
        assert next_answer(reader).json == {"status": "ok"}


def test_head_of_the_event_stream_ends(server):
    with server.connect() as s:
        reader = Reader(s)
        s.sendall(request("HEAD", "/events") + request("GET", "/healthz"))
        assert reader.head()[1]["content-type"] == "text/event-stream"
        assert next_answer(reader).json == {"status": "ok"}
    server.wait_stats(streams=0)


def test_extra_header(server):
    assert server.get("/echo/x").headers["x-test"] == "yes"


def test_pipelined_requests_are_answered_in_order(server):
    with server.connect() as s:
        reader = Reader(s)
        s.sendall(b"".join(request("GET", f"/echo/{i}") for i in range(30)))
        assert [next_answer(reader).json["name"] for _ in range(30)] == [str(i) for i in range(30)]


def test_pipelined_behind_a_held_request(server):
    with server.connect() as s:
        reader = Reader(s)
        s.sendall(request("GET", "/hold") + request("GET", "/echo/after"))
        server.wait_stats(held=1)
        assert server.ask(request("POST", "/release")).json == {"released": 1}
        assert next_answer(reader).json == {"gone": False}
        assert next_answer(reader).json["name"] == "after"


# --- Bodies and headers --------------------------------------------------------------------------


def test_body_is_read(server):
    answer = server.ask(request("PUT", "/echo/x", b'{"k": [1, 2]}'))
    assert answer.json["body"] == {"k": [1, 2]}


def test_chunked_body_is_read(server):
    body = b"5\r\n{\"k\":\r\n3\r\n 1}\r\n0\r\n\r\n"
    answer = server.ask(request("PUT", "/echo/x", None, "Transfer-Encoding: chunked") + body)
    assert answer.json["body"] == {"k": 1}


@pytest.mark.parametrize("body", [b"{", b"[1]", b'{"a": 1, "a": 2}', b'{"a": 1} x', b"\xff", b"nul\0l", b'{"a": NaN}'])
def test_bad_json(server, body):
    server.ask(request("PUT", "/echo/x", body)).is_problem(400, "bad_request")


def json_of_size(n):
    return b'{"k": "' + b"x" * (n - 9) + b'"}'


def test_body_limit(server):
    assert server.ask(request("PUT", "/echo/x", json_of_size(65536))).status == 200
    server.ask(request("PUT", "/echo/x", json_of_size(65537))).is_problem(413, "too_large")


def test_chunked_body_limit(server):
    piece = b"1000\r\n" + b" " * 4096 + b"\r\n"
    start = request("PUT", "/echo/x", None, "Transfer-Encoding: chunked")
    server.ask(start + piece * 17 + b"0\r\n\r\n").is_problem(413, "too_large")
    with server.connect() as s:
        try:
            for data in [start] + [piece] * 1000:
                s.sendall(data)
        except OSError:
            pass
        assert is_closed(s)


def test_huge_announced_body_is_refused_at_once(server):
    with server.connect() as s:
        s.sendall(request("PUT", "/echo/x", None, "Content-Length: 99999999999"))
        read_answer(s).is_problem(413, "too_large")
        assert is_closed(s)


def test_get_with_a_body_is_refused(server):
    server.ask(request("GET", "/healthz", b"{}")).is_problem(400, "bad_request")
    server.ask(request("GET", "/healthz", None, "Transfer-Encoding: chunked") + b"0\r\n\r\n").is_problem(
        400, "bad_request")


@pytest.mark.parametrize("value", ["-1", "abc", "1e3", "99999999999999999999999"])
def test_bad_content_length(server, value):
    with server.connect() as s:
        s.sendall(request("PUT", "/echo/x", None, f"Content-Length: {value}"))
        assert read_answer(s).status in (400, 413)
        assert is_closed(s)


# What a proxy in front may understand otherwise: where the request ends, and whom it is from.
AMBIGUOUS = {
    "two-lengths": ["Content-Length: 0", "Content-Length: {n}"],
    "same-length-twice": ["Content-Length: {n}", "Content-Length: {n}"],
    "length-and-coding": ["Content-Length: {n}", "Transfer-Encoding: chunked"],
    "coding-twice": ["Transfer-Encoding: identity", "Transfer-Encoding: chunked"],
    "coding-unknown": ["Content-Length: {n}", "Transfer-Encoding: xchunked"],
    "coding-list": ["Transfer-Encoding: identity, chunked"],
    "coding-empty": ["Content-Length: {n}", "Transfer-Encoding:"],
    "space-behind-the-name": ["Content-Length : {n}"],
    "coding-with-a-space": ["Content-Length: 0", "Transfer-Encoding : chunked"],
    "no-token": ["Content-Length: 0", "Transfer\\Encoding: chunked"],
    "second-host": ["Content-Length: 0", "Host: evil.example"],
    "second-origin": ["Content-Length: 0", "Origin: http://localhost", "Origin: http://evil.example"],
    "second-site": ["Content-Length: 0", "Sec-Fetch-Site: none", "Sec-Fetch-Site: cross-site"],
}


@pytest.mark.parametrize("kind", AMBIGUOUS)
@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_ambiguous_headers_are_refused(server, kind, method):
    """At once, and nothing behind them is taken for a request."""
    hidden = request("GET", "/echo/hidden")
    headers = [h.format(n=len(hidden) + 5) for h in AMBIGUOUS[kind]]
    with server.connect() as s:
        s.sendall(request(method, "/echo/x", None, *headers) + b"0\r\n\r\n" + hidden)
        reader = Reader(s)
        problem = next_answer(reader).is_problem(400, "bad_request")
        assert "header" in problem["detail"]
        with pytest.raises((EOFError, ConnectionResetError)):
            reader.more()
        assert reader.data == b""


def test_header_limit(server):
    assert server.ask(request("GET", "/healthz", None, "X: " + "x" * 12000)).status == 200
    for header in ("X: " + "x" * 70000, "\r\n".join(f"X{i}: y" for i in range(9000))):
        with server.connect() as s:
            try:
                s.sendall(request("GET", "/healthz", None, header))
            except OSError:
                pass
            assert Reader(s).head()[0] in (400, 413, 431)
    with server.connect() as s:
        try:
            s.sendall(request("GET", "/" + "x" * 70000))
        except OSError:
            pass
        assert Reader(s).head()[0] in (400, 414, 431)


def test_garbage(server):
    rng = random.Random(7)
    for i in range(200):
        data = rng.randbytes(rng.randrange(1, 3000))
        if i % 3 == 0:
            good = bytearray(request("PUT", "/echo/x?a=1", b'{"k": 1}'))
            for _ in range(rng.randrange(1, 8)):
                good[rng.randrange(len(good))] = rng.randrange(256)
            data = bytes(good)
        with server.connect() as s:
            s.settimeout(0.01)
            try:
                s.sendall(data)
                s.recv(65536)
            except OSError:
                pass
    assert server.get("/healthz").status == 200
    server.wait_stats(connections=1, held=0)


# --- TCP -----------------------------------------------------------------------------------------


def test_tcp_reads_only(server):
    assert server.ask(request("GET", "/healthz"), tcp=True).status == 200
    for method in ("PUT", "POST", "DELETE"):
        server.ask(request(method, "/echo/x", b"{}"), tcp=True).is_problem(403, "forbidden")


@pytest.mark.parametrize("host,good", [("127.0.0.1", True), ("127.0.0.1:80", True), ("[::1]:80", True),
                                       ("LOCALHOST:1", True), ("10.1.2.3", True), ("evil.example", False),
                                       ("localhost.evil.example", False), ("127.0.0.1.evil", False), ("", False),
                                       ("[::1", False), ("[::1]x", False), ("1", False)])
def test_tcp_host(server, host, good):
    answer = server.ask(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(), tcp=True)
    if good:
        assert answer.status == 200
    else:
        answer.is_problem(403, "forbidden")


def test_tcp_connections_of_one_address(server):
    many = [server.connect(tcp=True) for _ in range(70)]
    answered = 0
    for s in many:
        try:
            s.sendall(request("GET", "/healthz"))
            answered += read_answer(s).status == 200
        except (OSError, EOFError):
            pass
    assert answered == 64
    for s in many:
        s.close()
    assert server.get("/healthz").status == 200


# --- Slow and vanishing clients ------------------------------------------------------------------


def drip(s, data, limit):
    """One byte after another; returns when the server has had enough."""
    end = time.monotonic() + limit
    s.settimeout(0.05)
    for i in range(len(data)):
        try:
            s.sendall(data[i:i + 1])
            if not s.recv(65536):
                return
        except socket.timeout:
            pass
        except OSError:
            return
        assert time.monotonic() < end, "never cut"


def test_half_sent_headers_are_cut(fast):
    with fast.connect() as s:
        s.sendall(b"GET /healthz HTTP/1.1\r\nHos")
        assert is_closed(s)


def test_silent_connection_is_cut(fast):
    with fast.connect() as s:
        assert is_closed(s)


def test_dripping_headers_are_cut(fast):
    with fast.connect() as s:
        drip(s, request("GET", "/healthz", None, "X: " + "x" * 1000), DEADLINE)


def test_slow_body_is_cut(fast):
    with fast.connect() as s:
        s.sendall(request("PUT", "/echo/x", None, "Content-Length: 1000"))
        drip(s, b"x" * 1000, DEADLINE)
    with fast.connect() as s:
        s.sendall(request("PUT", "/echo/x", None, "Content-Length: 10") + b"abc")
        assert is_closed(s)


def test_idle_connection_is_closed(fast):
    with fast.connect() as s:
        s.sendall(request("GET", "/healthz"))
        assert read_answer(s).status == 200
        assert is_closed(s)


def test_held_request_outlives_every_limit(fast):
    with fast.connect() as s:
        s.sendall(request("GET", "/hold"))
        with fast.connect() as other:
            other.sendall(request("GET", "/healthz"))
            assert read_answer(other).status == 200
            assert is_closed(other)  # the longest of the limits has passed
        fast.ask(request("POST", "/release"))
        assert read_answer(s).json == {"gone": False}


def test_client_that_does_not_take_its_answers_is_cut(fast):
    with fast.connect() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.setblocking(False)
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            try:
                s.send(request("GET", "/big") * 20)
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:
                break
        else:
            pytest.fail("never cut")
    fast.wait_stats(connections=1)


@pytest.mark.parametrize("later", [False, True])
def test_hangup_of_held_requests_is_reported(server, later):
    many = [server.connect() for _ in range(20)]
    for s in many:
        s.sendall(request("PUT", "/hold?later" if later else "/hold", b"{}"))
    server.wait_stats(held=20, hangups=0)
    for s in many[:15]:
        s.close()
    server.wait_stats(hangups=15, connections=6, held=20 if later else 5)
    assert server.ask(request("POST", "/release")).json["released"] == (20 if later else 5)
    for s in many[15:]:
        assert read_answer(s).json == {"gone": False}
        s.close()
    server.wait_stats(connections=1, held=0, hangups=15)


def test_half_closed_client(server):
    """It is answered at once or it counts as gone."""
    with server.connect() as s:
        s.sendall(request("GET", "/healthz"))
        s.shutdown(socket.SHUT_WR)
        assert read_answer(s).status == 200
    with server.connect() as s:
        s.sendall(request("GET", "/hold"))
        s.shutdown(socket.SHUT_WR)
        server.wait_stats(hangups=1, held=0)
        assert is_closed(s)


def test_held_requests_do_not_block_others(server):
    many = [server.connect() for _ in range(20)]
    for s in many:
        s.sendall(request("GET", "/hold"))
    server.wait_stats(held=20)
    assert server.get("/healthz").status == 200
    assert server.ask(request("POST", "/release")).json == {"released": 20}
    for s in many:
        assert read_answer(s).json == {"gone": False}
        s.close()


def test_more_connections_than_the_limit_wait(server):
    many = []
    for _ in range(200):
        s = server.connect()
        s.sendall(request("GET", "/healthz"))
        many.append(s)
    for s in many:
        assert read_answer(s).status == 200
        s.close()


# --- Events --------------------------------------------------------------------------------------


def subscribe(server, *headers, tcp=False):
    s = server.connect(tcp)
    s.sendall(request("GET", "/events", None, *headers))
    reader = Reader(s)
    status, fields = reader.head()
    assert (status, fields["content-type"]) == (200, "text/event-stream")
    return s, reader


def publish(server, value):
    assert server.ask(request("POST", "/publish", json.dumps(value).encode())).status == 204


def fields_of(block):
    return dict(line.split(": ", 1) for line in block.strip().split("\n"))


def test_events_come_with_growing_ids(server):
    s, reader = subscribe(server)
    assert "retry:" in reader.event()
    ids = []
    for i in range(5):
        publish(server, {"n": i})
        fields = fields_of(reader.event())
        assert fields["event"] == "test" and json.loads(fields["data"]) == {"n": i}
        ids.append(int(fields["id"]))
    assert ids == sorted(set(ids))
    s.close()
    server.wait_stats(streams=0, connections=1)


def events_in(reader, n):
    """Blocks may come several to a chunk."""
    text = ""
    while text.count("\ndata: ") < n or not text.endswith("\n\n"):
        text += reader.event()
    return [fields_of(b) for b in text.split("\n\n") if "data: " in b]


def test_last_event_id_replays(server):
    s, reader = subscribe(server)
    reader.event()
    for i in range(6):
        publish(server, {"n": i})
    events = events_in(reader, 6)
    s.close()
    s, reader = subscribe(server, f"Last-Event-ID: {events[2]['id']}")
    assert [json.loads(e["data"])["n"] for e in events_in(reader, 3)] == [3, 4, 5]
    s.close()
    s, reader = subscribe(server, f"Last-Event-ID: {events[5]['id']}")
    publish(server, {"n": 6})
    assert [json.loads(e["data"])["n"] for e in events_in(reader, 1)] == [6]
    s.close()


@pytest.mark.parametrize("last", ["1", "99999999999999999999", "x", "9007199254740991"])
def test_lost_events_are_told(server, last):
    s, reader = subscribe(server, f"Last-Event-ID: {last}")
    assert "event: reset" in reader.event()
    s.close()


def test_ring_forgets_the_oldest(server):
    s, reader = subscribe(server)
    reader.event()
    publish(server, {"n": -1})
    first = events_in(reader, 1)[0]["id"]
    s.close()
    for i in range(257):
        publish(server, {"n": i})
    s, reader = subscribe(server, f"Last-Event-ID: {first}")
    assert "event: reset" in reader.event()
    s.close()


def test_keep_alive_comment(fast):
    s, reader = subscribe(fast)
    reader.event()
    assert reader.event() == ": keep-alive\n\n"
    assert reader.event() == ": keep-alive\n\n"
    s.close()


@pytest.mark.parametrize("tcp", [False, True])
def test_vanished_event_clients_are_collected(server, tcp):
    many = [server.connect(tcp) for _ in range(60 if tcp else 100)]
    statuses = []
    for s in many:
        s.sendall(request("GET", "/events"))
        statuses.append(Reader(s).head()[0])
    assert statuses.count(200) == min(len(many), 64)
    assert statuses.count(503) == len(many) - statuses.count(200)
    for s in many:
        s.close()
    server.wait_stats(streams=0, connections=1)


def test_slow_event_client_is_cut_and_others_are_not(fast):
    slow, _ = subscribe(fast)
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    quick, reader = subscribe(fast)
    reader.event()
    for i in range(300):
        publish(fast, {"n": i, "fill": "x" * 8000})
        assert json.loads(events_in(reader, 1)[0]["data"])["n"] == i
    fast.wait_stats(streams=1)
    slow.close()
    quick.close()


def test_stalled_event_client_is_cut(fast):
    """It takes nothing, and too little is published for the ring to overtake it."""
    s, _ = subscribe(fast)
    for i in range(60):
        publish(fast, {"n": i, "fill": "x" * 8000})
    fast.wait_stats(streams=0)
    s.close()


# --- Beginning and end ---------------------------------------------------------------------------


def test_stop_answers_what_is_owed(tmp_path):
    server = Server(tmp_path, "--tcp", "127.0.0.1:0")
    idle, events = server.connect(), subscribe(server)[0]
    held = server.connect()
    held.sendall(request("GET", "/hold"))
    server.wait_stats(held=1)
    worker = server.connect()
    reader = Reader(worker)
    worker.sendall(request("GET", "/healthz"))
    assert next_answer(reader).status == 200
    # Half a request is in flight when it stops; its end comes after.
    worker.sendall(b"POST /release HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{")
    server.process.send_signal(signal.SIGTERM)
    assert is_closed(idle) and is_closed(events)
    assert not os.path.exists(server.path)
    with pytest.raises(OSError):
        server.connect(tcp=True)
    worker.sendall(b"}")
    assert next_answer(reader).json == {"released": 1}
    answer = read_answer(held)
    assert answer.json == {"gone": False} and answer.headers["connection"].lower() == "close"
    server.stop()


def test_stop_has_a_limit(tmp_path):
    server = Server(tmp_path)
    with server.connect() as s:
        s.sendall(request("GET", "/hold"))
        server.wait_stats(held=1)
        server.stop()
        assert is_closed(s)


def test_dead_socket_is_replaced_and_a_live_one_is_not(tmp_path):
    server = Server(tmp_path)
    second = subprocess.run([SERVER, server.path], capture_output=True, text=True, timeout=DEADLINE)
    assert second.returncode == 1 and "another daemon answers" in second.stderr
    assert server.get("/healthz").status == 200
    server.process.kill()
    server.process.wait()
    assert os.path.exists(server.path)
    server = Server(tmp_path)
    assert server.get("/healthz").status == 200
    server.stop()


def test_what_is_no_socket_is_left_alone(tmp_path):
    path = tmp_path / "file"
    path.write_text("precious")
    run = subprocess.run([SERVER, path], capture_output=True, text=True, timeout=DEADLINE)
    assert run.returncode == 1 and "is no socket" in run.stderr
    assert path.read_text() == "precious"


@pytest.mark.parametrize("listen", ["", "80", ":80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000", "::1:80", "[]:80",
                                    "host.example:80", "127.0.0.1:-1"])
def test_bad_listen_address(tmp_path, listen):
    run = subprocess.run([SERVER, tmp_path / "s", "--tcp", listen], capture_output=True, text=True, timeout=DEADLINE)
    assert run.returncode == 1 and re.search("listen address", run.stderr)
    assert not (tmp_path / "s").exists()
