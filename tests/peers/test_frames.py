# SPDX-License-Identifier: Apache-2.0
"""src/grpc's server against odd and hostile peers, frame by frame."""
import contextlib
import os
import pathlib
import random
import re
import resource
import socket
import struct
import threading
import time

import pytest

import frames
from frames import (ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PING, RST_STREAM, SETTINGS,
                    WINDOW_UPDATE, Connection, frame, message)
from testserver import folder, server  # noqa: F401 (fixtures)

ECHO = "/berth.Test/Echo"
HOLD = "/berth.Test/Hold"
WATCH = "/berth.Test/Watch"
FILL = "/berth.Test/Fill"
SANITIZED = bool(os.environ.get("BERTH_SANITIZER"))


@pytest.fixture
def peer(server):
    with Connection(server.path) as c:
        yield c


def still_serves(server):
    with Connection(server.path) as c:
        c.call(1, ECHO, b"alive")
        assert c.answer(1)[1:] == (message(b"alive"), None)


def window(stream, size):
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", size))


# What is asked, and how.

@pytest.mark.parametrize("authority", ["/var/lib/kubelet/device-plugins/x.sock", "%2Fvar%2Flib", "", None, "localhost"])
def test_authority_is_not_looked_at(peer, authority):
    peer.call(1, ECHO, b"x", authority=authority)
    found, body, reset = peer.answer(1)
    assert (found[":status"], found["content-type"], found["grpc-status"]) == ("200", "application/grpc", "0")
    assert (body, reset) == (message(b"x"), None)


@pytest.mark.parametrize("changes, http, status, text", [
    ({"method": "GET"}, "405", 13, "the HTTP method is not POST"),
    ({"method": None}, "405", 13, "the HTTP method is not POST"),
    ({"content_type": "application/json"}, "415", 13, "the content-type is not application/grpc"),
    ({"content_type": "application/grpcx"}, "415", 13, "the content-type is not application/grpc"),
    ({"content_type": None}, "415", 13, "the content-type is not application/grpc"),
    ({"te": None}, "200", 13, "the header te: trailers is missing"),
    ({"te": "gzip"}, "200", 13, "the header te: trailers is missing"),
    ({"grpc_timeout": "1"}, "200", 13, "grpc-timeout is malformed"),
    ({"grpc_timeout": "123456789S"}, "200", 13, "grpc-timeout is malformed"),
    ({"grpc_timeout": "-1S"}, "200", 13, "grpc-timeout is malformed"),
    ({"path": "/berth.Test/Echo/"}, "200", 12, "unknown method /berth.Test/Echo/"),
    ({"path": None}, "200", 12, "unknown method "),
    ({"path": "/%\u00e9\n"}, "200", 12, "unknown method /%25%C3%A9?"),
])
def test_refused_headers(peer, changes, http, status, text):
    peer.call(1, **{"path": ECHO, **changes})
    found, body, _ = peer.answer(1)
    assert (found[":status"], int(found["grpc-status"]), found["grpc-message"], body) == (http, status, text, b"")
    peer.call(3, ECHO, b"next")
    assert peer.answer(3)[1] == message(b"next")


@pytest.mark.parametrize("changes", [{"content_type": "application/grpc+proto"}, {"content_type": "application/grpc;x"},
                                     {"grpc_timeout": "29999983u"}, {"grpc_encoding": "gzip"}, {"scheme": "https"}])
def test_accepted_headers(peer, changes):
    peer.call(1, ECHO, b"x", **changes)
    assert peer.status(1) == (0, "")


@pytest.mark.parametrize("body, status, text", [
    (b"", 13, "the request has no message"),
    (b"\0\0\0", 13, "the request is not exactly one message"),
    (b"\0\0\0\0\x0aabc", 13, "the request is not exactly one message"),
    (message(b"ab") + b"c", 13, "the request is not exactly one message"),
    (message(b"ab") + message(b"cd"), 13, "the request is not exactly one message"),
    (b"\x02\0\0\0\0", 13, "the request is not exactly one message"),
    (b"\x01\0\0\0\x01x", 12, "compressed messages are not supported"),
    (b"\0\xff\xff\xff\xff", 8, "the request has 4294967295 bytes, at most 4194304 are taken"),
])
def test_refused_bodies(peer, body, status, text):
    peer.send(peer.headers(1, ECHO), frame(DATA, END_STREAM, 1, body))
    assert peer.status(1) == (status, text)
    peer.call(3, ECHO, b"next")
    assert peer.answer(3)[1] == message(b"next")


def test_request_without_data(peer):
    peer.send(peer.headers(1, ECHO, flags=END_HEADERS | END_STREAM))
    assert peer.status(1) == (13, "the request has no message")


def test_body_in_single_bytes_and_padded(peer):
    data = message(b"piece by piece")
    peer.send(peer.headers(1, ECHO), *[frame(DATA, PADDED, 1, b"\x07" + data[i:i + 1] + bytes(7))
                                       for i in range(len(data))], frame(DATA, END_STREAM, 1))
    assert peer.answer(1)[1] == data
    peer.send(peer.headers(3, ECHO))
    for i in range(len(data)):
        peer.send(frame(DATA, END_STREAM if i == len(data) - 1 else 0, 3, data[i:i + 1]))
    assert peer.answer(3)[1] == data


def test_early_refusal_stops_the_request(peer):
    """Said before all of it was sent; the rest is not wanted, and other calls go on."""
    peer.send(peer.headers(1, ECHO), frame(DATA, 0, 1, b"\0\0\x7f\0\0" + bytes(1000)))
    assert peer.status(1)[0] == 8
    reset = peer.read_until(lambda f: f.kind == RST_STREAM)
    assert (reset.stream, reset.payload) == (1, bytes(4))
    peer.send(frame(DATA, END_STREAM, 1, bytes(1000)))
    peer.call(3, ECHO, b"next")
    assert peer.answer(3)[1] == message(b"next")


def test_request_that_stays_open_is_not_started(server, peer):
    peer.send(peer.headers(1, HOLD), frame(DATA, 0, 1, message(b"")))
    peer.call(3, ECHO)
    assert peer.status(3) == (0, "")
    assert server.stats()[:2] == [1, 0]
    peer.send(frame(DATA, END_STREAM, 1))
    server.expect("held")
    assert server.stats()[:2] == [1, 1]


def test_deadline_before_the_request_is_complete(peer):
    peer.send(peer.headers(1, ECHO, grpc_timeout="50m"), frame(DATA, 0, 1, b"\0\0"))
    assert peer.status(1) == (4, "the deadline has passed")


def test_deadline_in_a_stream(server, peer):
    peer.call(1, WATCH, grpc_timeout="50m")
    found, body, _ = peer.answer(1)
    assert (found[":status"], found["grpc-status"], body) == ("200", "4", message(b""))
    server.expect("closed watch")


def test_deadline_with_a_message_half_sent_is_a_reset(server, peer):
    peer.call(1, FILL, b"100000", grpc_timeout="50m")
    found, body, reset = peer.answer(1)
    assert (found[":status"], len(body), reset) == ("200", 65535, frames.CANCEL)
    server.wait_stats(1, 0)


def test_ping_and_settings_are_acked(peer):
    peer.send(frame(PING, 0, 0, b"\x02\x04\x10\x10\x09\x0e\x07\x07"), window(0, 62))
    pong = peer.read_until(lambda f: f.kind == PING)
    assert (pong.flags, pong.payload) == (ACK, b"\x02\x04\x10\x10\x09\x0e\x07\x07")


# Flow control.

def test_large_lists_through_a_small_window(server, peer):
    """16 cards of 48 VFs are some 40 KB a list. The window of 64 KiB is opened only after five updates:
    every list that is sent is whole, they are in order, the newest arrives."""
    peer.call(1, WATCH)
    assert peer.read_until(lambda f: f.kind == DATA).payload == message(b"")
    sizes = [40000, 40001, 40002, 40003, 40004]
    for n in sizes:
        line = server.ask(f"update {n}", "updated")
    assert line != "updated skipped=0"
    stream = b""
    got = []
    while not got or got[-1] != sizes[-1]:
        f = peer.read()
        assert f.kind not in (RST_STREAM, GOAWAY)
        if f.kind != DATA:
            continue
        assert f.payload
        stream += f.payload
        peer.send(window(0, len(f.payload)), window(1, len(f.payload)))
        while len(stream) >= 5 and len(stream) >= 5 + int.from_bytes(stream[1:5], "big"):
            n = int.from_bytes(stream[1:5], "big")
            assert stream[5:5 + n] == b"x" * n
            got.append(n)
            stream = stream[5 + n:]
    assert got == sorted(got) and set(got) <= set(sizes)
    assert stream == b""


def test_updates_are_skipped_not_queued(server, peer):
    peer.call(1, WATCH)
    peer.read_until(lambda f: f.kind == DATA)
    for n in range(200000, 200020):
        server.ask(f"update {n}", "updated")
    body = b""
    total = 5 + 200000 + 5 + 200019
    while len(body) < total:
        f = peer.read()
        if f.kind == DATA:
            body += f.payload
            peer.send(window(0, max(1, len(f.payload))), window(1, max(1, len(f.payload))))
    assert body == message(b"x" * 200000) + message(b"x" * 200019)
    assert server.expect("writable") == "writable skipped=19"


def test_zero_window_and_cancel(server):
    """Nothing can be sent at all; the call is still freed when the peer resets it."""
    with Connection(server.path, settings=struct.pack(">HI", 4, 0)) as c:
        c.call(1, WATCH)
        c.read_until(lambda f: f.kind == HEADERS)
        c.send(frame(RST_STREAM, 0, 1, struct.pack(">I", frames.CANCEL)))
        server.expect("closed watch")
        c.call(3, ECHO, b"x", grpc_timeout="50m")
        f = c.read_until(lambda f: f.kind == RST_STREAM)
        assert (f.stream, int.from_bytes(f.payload, "big")) == (3, frames.CANCEL)


# Hostile peers.

def test_http1_client(server):
    for text in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"POST " + ECHO.encode() + b" HTTP/1.0\r\n\r\n"):
        with Connection(server.path, preface=False) as c:
            c.send(text)
            c.read_to_end()
    still_serves(server)


def test_random_bytes(server):
    rng = random.Random(7)
    for i in range(300):
        with Connection(server.path, preface=False) as c:
            data = rng.randbytes(rng.randrange(1, 400))
            c.send(b"" if i % 3 == 0 else frames.PREFACE + frame(SETTINGS), data)
            if i % 2:
                c.socket.shutdown(socket.SHUT_WR)
                c.read_to_end()
    still_serves(server)
    server.wait_stats(0, 0)


def test_write_side_shut(server):
    with Connection(server.path) as c:
        c.call(1, HOLD)
        server.expect("held")
        c.socket.shutdown(socket.SHUT_WR)
        server.expect("closed hold")
        c.read_to_end()
    still_serves(server)


def reset_many(peer, n):
    block = b""
    for i in range(n):
        stream = 2 * i + 1
        block += (peer.headers(stream, HOLD) + frame(DATA, END_STREAM, stream, message(b"")) +
                  frame(RST_STREAM, 0, stream, struct.pack(">I", frames.CANCEL)))
    try:
        peer.send(block)
    except OSError:
        pass


def test_1000_rapid_resets(server, peer):
    reset_many(peer, 1000)
    peer.call(2001, ECHO, b"still welcome")
    assert peer.answer(2001)[1] == message(b"still welcome")
    assert server.stats()[:2] == [1, 0]


def test_more_rapid_resets_end_the_connection(server, peer):
    reset_many(peer, 3000)
    end = [f for f in peer.read_to_end() if f.kind == GOAWAY]
    # The frame may be lost with what was still unread when the socket was closed.
    assert not end or int.from_bytes(end[0].payload[4:8], "big") == frames.ENHANCE_YOUR_CALM
    server.wait_stats(0, 0)
    still_serves(server)


def hold_256(server, peer):
    for i in range(256):
        peer.call(2 * i + 1, HOLD)
    for _ in range(256):
        server.expect("held")


def try_to_send(peer, block):
    with contextlib.suppress(OSError):
        peer.send(block)


def test_streams_that_we_must_reset_count_too(server, peer):
    """A peer can also make the server reset its streams, here by a window that grows too far."""
    block = b""
    for i in range(1100):
        stream = 2 * i + 1
        block += (peer.headers(stream, HOLD) + frame(DATA, END_STREAM, stream, message(b"")) +
                  window(stream, 0x7fffffff))
    sender = threading.Thread(target=try_to_send, args=(peer, block))
    sender.start()
    peer.read_to_end()
    sender.join()
    server.wait_stats(0, 0)
    still_serves(server)


def test_streams_above_the_limit_are_refused(server):
    with Connection(server.path, ack_settings=False) as c:
        hold_256(server, c)
        c.call(513, ECHO)
        f = c.read_until(lambda f: f.stream == 513)
        assert (f.kind, int.from_bytes(f.payload, "big")) == (RST_STREAM, frames.REFUSED_STREAM)
        c.send(frame(RST_STREAM, 0, 1, struct.pack(">I", frames.CANCEL)))
        server.expect("closed hold")
        c.call(515, ECHO)
        assert c.status(515) == (0, "")


def test_streams_above_a_limit_that_was_acknowledged(server, peer):
    """That is an error of the connection."""
    peer.read_until(lambda f: f.kind == SETTINGS and not f.flags & ACK)
    hold_256(server, peer)
    peer.call(513, ECHO)
    assert peer.read_to_end()[-1].kind == GOAWAY
    for _ in range(256):
        server.expect("closed hold")
    still_serves(server)


def test_silent_client_is_closed_after_5_s(server):
    start = time.monotonic()
    peers = [Connection(server.path, preface=False) for _ in range(4)]
    for c, text in zip(peers, (b"", b"PRI * HTTP", frames.PREFACE, frames.PREFACE + b"\0\0")):
        c.send(text)
    for c in peers:
        while c.socket.recv(1000):
            pass
        assert 4.9 < time.monotonic() - start < 10
    server.wait_stats(0, 0)


def test_headers_above_the_limit(server, peer):
    # Counted as HTTP/2 does: name, value and 32 for each; both sides of 16384.
    base = sum(len(n) + len(v) + 32 for n, v in frames.request_headers(ECHO))
    room = 16384 - base - 32 - 1
    peer.call(1, ECHO, x="y" * room)
    assert peer.status(1) == (0, "")
    block = peer.headers(3, ECHO, x="y" * (room + 1))
    peer.send(block, frame(DATA, END_STREAM, 3, message(b"")))
    assert peer.status(3) == (8, "request headers are above 16384 bytes")


def test_header_bomb(server, peer):
    """One entry of 3 KB in the table, then thousands of references to it."""
    first = peer.headers(1, ECHO, x="y" * 3000)
    peer.send(first, frame(DATA, END_STREAM, 1, message(b"")))
    assert peer.status(1) == (0, "")
    before = server.stats()[3]
    for i in range(1, 20):
        peer.send(frame(HEADERS, END_HEADERS, 2 * i + 1, b"\xbe" * 16000), frame(DATA, END_STREAM, 2 * i + 1))
        found, _, reset = peer.answer(2 * i + 1)
        assert found["grpc-status"] == "8", (found, reset)
    assert server.stats()[3] - before < 4096
    still_serves(server)


def test_endless_continuation(server, peer):
    block = peer.encoder.encode([("x", "y" * 16000)], huffman=False)
    try:
        peer.send(frame(HEADERS, 0, 1, b""), *[frame(frames.CONTINUATION, 0, 1, block[:16000])] * 200)
    except OSError:
        pass
    peer.read_to_end()
    still_serves(server)


def test_flood_from_a_peer_that_does_not_read(server):
    """PING and SETTINGS to be acked, streams to be refused: bounded whatever comes."""
    before = server.stats()[3]
    for flood in (frame(PING, 0, 0, bytes(8)) * 1000, frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535)) * 1000,
                  window(0, 1) * 1000):
        with Connection(server.path) as c:
            c.socket.settimeout(0.3)
            try:
                for _ in range(200):
                    c.send(flood)
            except OSError:
                pass
            still_serves(server)
    server.wait_stats(0, 0)
    if not SANITIZED:
        assert server.stats()[3] - before < 20000


def test_refused_streams_of_a_peer_that_does_not_read(server):
    """Each has an answer that waits: from some hundred on we stop reading, and the peer cannot send."""
    with Connection(server.path, ack_settings=False) as c:
        c.socket.settimeout(0.3)
        for i in range(256):
            c.call(2 * i + 1, HOLD)
        for _ in range(256):
            server.expect("held")
        with pytest.raises(OSError):
            for i in range(256, 100000, 100):
                c.send(*[c.headers(2 * (i + n) + 1, ECHO) for n in range(100)])
        assert i < 60000
        still_serves(server)


def test_replies_to_a_slow_reader_are_bounded(server):
    before = server.stats()[3]
    with Connection(server.path) as c:
        for i in range(40):
            c.call(2 * i + 1, FILL, b"4000000")
        # 32 MiB are held at most: 8 of them. The others are told.
        last = c.read_until(lambda f: f.stream == 79)
        assert (last.fields["grpc-status"], last.fields["grpc-message"]) == ("8", "out of memory for the answer")
    server.wait_stats(0, 0)
    if not SANITIZED:
        assert server.stats()[3] - before < 60000
    still_serves(server)


def test_unfinished_requests_are_bounded(server):
    """Requests that grow and are never complete, on several connections."""
    piece = bytes(16384)
    peers = [Connection(server.path) for _ in range(3)]
    refused = 0
    for c in peers:
        for i in range(4):
            stream = 2 * i + 1
            c.send(c.headers(stream, ECHO), frame(DATA, 0, stream, b"\0\0\x3f\0\0"))
            sent, open_window = 5, 65535
            while sent < 4000000 and refused == 0:
                while sent + len(piece) > open_window and refused == 0:
                    f = c.read()
                    if f.kind == WINDOW_UPDATE and f.stream == stream:
                        open_window += int.from_bytes(f.payload, "big")
                    if f.kind == HEADERS and f.stream == stream:
                        assert f.fields["grpc-message"] == "too many requests at once"
                        refused += 1
                if refused == 0:
                    c.send(frame(DATA, 0, stream, piece))
                    sent += len(piece)
    assert refused == 1
    for c in peers:
        c.socket.close()
    server.wait_stats(0, 0)
    still_serves(server)


def test_more_connections_than_allowed(server):
    """The one that was idle longest goes, those with calls stay."""
    busy = [Connection(server.path) for _ in range(20)]
    for c in busy:
        c.call(1, HOLD)
        server.expect("held")
    idle = [Connection(server.path) for _ in range(12)]
    for c in idle:
        c.call(1, ECHO)
        assert c.status(1) == (0, "")
    assert server.stats()[0] == 32
    still_serves(server)
    assert idle[0].read_to_end() is not None  # closed: would time out else
    for c in idle[1:3]:
        c.call(3, ECHO)
        assert c.status(3) == (0, "")
    more = [Connection(server.path) for _ in range(12)]
    for c in more:
        c.call(1, HOLD)
        server.expect("held")
    last = Connection(server.path, preface=False)
    assert last.read_to_end() == []
    for c in busy + idle + more + [last]:
        c.socket.close()
    server.wait_stats(0, 0)
    still_serves(server)


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def test_nothing_is_left_of_300_connections(server):
    still_serves(server)  # from here on the event loop has its own descriptors
    server.wait_stats(0, 0)
    before = descriptors(server)
    for i in range(300):
        with Connection(server.path) as c:
            c.call(1, WATCH, grpc_timeout="1H")
            c.call(3, ECHO)
            assert c.status(3) == (0, "")
    server.wait_stats(0, 0)
    assert descriptors(server) == before


def test_out_of_descriptors(server):
    """A connection that cannot be accepted waits, and keeps nobody else from being served."""
    pid = server.process.pid
    with Connection(server.path) as c:
        c.call(1, ECHO)
        assert c.status(1) == (0, "")
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (descriptors(server), limits[1]))
        with Connection(server.path) as waiting:
            waiting.call(1, ECHO)
            for stream in range(3, 103, 2):
                c.call(stream, ECHO)
                assert c.status(stream) == (0, "")
            assert server.stats()[0] == 1
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
            assert waiting.status(1) == (0, "")


def test_last_words(server, peer):
    """What was finished a moment before the server is freed still reaches its peers."""
    peer.call(1, WATCH)
    assert peer.read_until(lambda f: f.kind == DATA).payload == message(b"")
    server.order(f"end {server.path}")
    server.expect("closed watch")
    server.expect("freed")
    last = peer.read_until(lambda f: f.kind == HEADERS)
    assert last.fields == {"grpc-status": "14", "grpc-message": "the plugin ends"}
    assert [f.kind for f in peer.read_to_end() if f.kind != SETTINGS] == [GOAWAY]


# Recorded kubelets.

def recording(version):
    folder = os.environ.get("BERTH_SHARED") or pathlib.Path(__file__).parents[3] / "shared"
    path = pathlib.Path(folder) / "data" / f"wire-kubelet-{version}.txt"
    if not path.exists():
        pytest.skip(f"no recording at {path}: set BERTH_SHARED to the folder that has data/")
    for line in path.read_text().splitlines():
        m = re.match(r"\S+ 1 (kubelet>|plugin<) (\w+) flags=(\w+) stream=(\d+) len=(\d+) ([0-9a-f]*)", line)
        if m:
            payload = bytes.fromhex(m[6])
            assert len(payload) == int(m[5])
            yield m[1] == "kubelet>", frames.TYPES[m[2]], int(m[3], 16), int(m[4]), payload


@pytest.mark.parametrize("version", ["1.20.2", "1.36.2"])
def test_recorded_kubelet(server, version):
    """What the kubelet sent is sent again; the plugin's answers must be the recorded ones."""
    ended, compared = set(), 0
    with Connection(server.path, preface=False) as c:
        c.send(frames.PREFACE)
        for from_kubelet, kind, flags, stream, payload in recording(version):
            if from_kubelet:
                if not (kind == SETTINGS and flags & ACK):  # sent by read() when ours has come
                    c.send(frame(kind, flags, stream, payload))
                if kind == PING and not flags & ACK:
                    assert c.read_until(lambda f: f.kind == PING).payload == payload
            elif kind == DATA:
                f = c.read_until(lambda f: f.kind == DATA)
                assert (f.stream, f.payload) == (stream, payload)
                compared += 1
            elif kind == HEADERS and flags & END_STREAM:
                f = c.read_until(lambda f: f.kind == HEADERS and f.flags & END_STREAM)
                assert f.stream == stream
                assert f.fields == {"grpc-status": "0"}
                ended.add(stream)
    assert compared >= 4 and len(ended) >= 3
