# SPDX-License-Identifier: Apache-2.0
"""src/grpc's client: Register at grpcio's server, and at servers that are no such thing."""
import contextlib
import socket
import struct
import threading
import time
from concurrent import futures

import pytest

import frames
from frames import DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, SETTINGS, frame, message
from testserver import folder, server  # noqa: F401 (fixtures)

grpc = pytest.importorskip("grpc", reason="python3-grpcio is not installed")
DEADLINE = 20
REQUEST = b"\n\x07v1beta1\x12\tfake.sock\x1a\x12nvidia.com/FAKE-4Q"


class Kubelet(grpc.GenericRpcHandler):
    def __init__(self, behaviour):
        self.behaviour = behaviour
        self.metadata = None

    def service(self, details):
        if details.method != "/v1beta1.Registration/Register":
            return None
        self.metadata = dict(details.invocation_metadata)
        return grpc.unary_unary_rpc_method_handler(self.behaviour)


@contextlib.contextmanager
def kubelet(path, behaviour, options=()):
    server = grpc.server(futures.ThreadPoolExecutor(4), options=options)
    handler = Kubelet(behaviour)
    server.add_generic_rpc_handlers([handler])
    server.add_insecure_port("unix:" + str(path))
    server.start()
    try:
        yield handler
    finally:
        server.stop(None).wait(DEADLINE)


def register(server, path, msec=10000, size=""):
    return server.ask(f"register {path} {msec} {size}", "register")


def test_success(server, folder):
    asked = []

    def answer(request, context):
        asked.append((request, context.time_remaining()))
        return b"ok"

    with kubelet(folder / "k.sock", answer):
        assert register(server, folder / "k.sock") == "register OK 2 "
    (request, remaining), = asked
    assert request == REQUEST
    assert 5 < remaining <= 10


def test_dials_back_before_it_answers(server, folder):
    """As kubelets do: the plugin is asked for its options while it waits for Register's answer."""
    def answer(request, context):
        with grpc.insecure_channel("unix:" + server.path) as c:
            return c.unary_unary("/v1beta1.DevicePlugin/GetDevicePluginOptions")(b"", timeout=DEADLINE)

    with kubelet(folder / "k.sock", answer):
        assert register(server, folder / "k.sock") == "register OK 4 "


def test_large_both_ways(server, folder):
    unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with kubelet(folder / "k.sock", lambda request, context: request, unlimited):
        for size in (1, 70000, 2 << 20, 4 << 20):
            assert register(server, folder / "k.sock", 20000, size) == f"register OK {size} "
        assert register(server, folder / "k.sock", 20000, (4 << 20) + 1) == (
            "register failed: the request has 4194305 bytes, at most 4194304 can be sent")
    with kubelet(folder / "l.sock", lambda request, context: bytes((4 << 20) + 1), unlimited):
        assert register(server, folder / "l.sock") == (
            "register RESOURCE_EXHAUSTED 0 the answer has 4194305 bytes, at most 4194304 are taken")
    with kubelet(folder / "m.sock", lambda request, context: b"x"):  # refuses above 4 MiB, early
        assert register(server, folder / "m.sock", 20000, 4 << 20) == "register OK 1 "


def test_refused_then_accepted(server, folder):
    answers = ["the ResourceName \"X\" is invalid", "100% no\u2603", None]

    def answer(request, context):
        text = answers.pop(0)
        if text:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
        return b""

    with kubelet(folder / "k.sock", answer):
        assert register(server, folder / "k.sock") == (
            'register FAILED_PRECONDITION 0 the ResourceName "X" is invalid')
        assert register(server, folder / "k.sock") == "register FAILED_PRECONDITION 0 100% no\u2603"
        assert register(server, folder / "k.sock") == "register OK 0 "


def test_unknown_method_at_the_other_side(server, folder):
    other = grpc.server(futures.ThreadPoolExecutor(1))
    other.add_insecure_port(f"unix:{folder}/k.sock")
    other.start()
    assert register(server, folder / "k.sock").startswith("register UNIMPLEMENTED 0 ")
    other.stop(None).wait(DEADLINE)


def test_hang(server, folder):
    let_go = threading.Event()
    ended = threading.Event()

    def answer(request, context):
        context.add_callback(ended.set)
        let_go.wait(DEADLINE)
        return b""

    with kubelet(folder / "k.sock", answer):
        start = time.monotonic()
        # Told by our own clock, or by the server's, whichever is first.
        assert register(server, folder / "k.sock", 300).startswith("register DEADLINE_EXCEEDED 0 ")
        assert 0.25 < time.monotonic() - start < 5
        assert ended.wait(DEADLINE)
        # Cancelled by its owner: done() is not called.
        ended.clear()
        server.order(f"register {folder}/k.sock 20000")
        assert server.ask("cancel", ("register", "cancelled")) == "cancelled"
        let_go.set()


def test_absent_then_there(server, folder):
    path = folder / "k.sock"
    absent = f"register UNAVAILABLE 0 cannot connect to {path}: "
    assert register(server, path) == absent + "No such file or directory"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))
    assert register(server, path) == absent + "Connection refused"
    path.unlink()
    with kubelet(path, lambda request, context: b""):
        assert register(server, path) == "register OK 0 "
    long = "/" + "x" * 120
    assert register(server, long) == f"register UNAVAILABLE 0 cannot connect to {long}: File name too long"


def test_server_ends_while_it_is_asked(server, folder):
    started = threading.Event()

    def answer(request, context):
        started.set()
        time.sleep(0.2)  # a handler that cannot be interrupted
        return b""

    with kubelet(folder / "k.sock", answer):
        server.order(f"register {folder}/k.sock 20000")
        assert started.wait(DEADLINE)
    assert server.expect("register").startswith("register UNAVAILABLE 0 ")


# No gRPC server at the other end.

def answered_with(server, folder, *parts, read=True):
    """What the client makes of these bytes; None closes."""
    with socket.socket(socket.AF_UNIX) as listener:
        path = str(folder / "raw.sock")
        listener.bind(path)
        listener.listen()
        server.order(f"register {path} 20000")
        peer = listener.accept()[0]
        with peer:
            peer.settimeout(DEADLINE)
            if read:
                peer.recv(65536)
            peer.sendall(b"".join(parts))
            if read:
                return server.expect("register")
        return server.expect("register")


def headers(fields, flags=END_HEADERS, stream=1):
    encoder = frames.hpack.Encoder()
    return frame(HEADERS, flags, stream, encoder.encode(fields, huffman=False))


OK_HEADERS = [(":status", "200"), ("content-type", "application/grpc")]
END = [("grpc-status", "0")]


@pytest.mark.parametrize("parts, answer", [
    ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], "UNAVAILABLE 0 the answer is no valid HTTP/2"),
    ([frame(SETTINGS), headers([(":status", "503")], END_HEADERS | END_STREAM)],
     "UNAVAILABLE 0 the answer is no gRPC (HTTP status 503)"),
    ([frame(SETTINGS), headers([(":status", "200"), ("content-type", "text/html")], END_HEADERS | END_STREAM)],
     "UNAVAILABLE 0 the answer is no gRPC (HTTP status 200)"),
    ([frame(SETTINGS), headers(OK_HEADERS), frame(DATA, END_STREAM, 1, message(b"x"))],
     "UNAVAILABLE 0 the answer ended without a status"),
    ([frame(SETTINGS), headers(OK_HEADERS), frame(DATA, 0, 1, message(b"x")[:-1]),
      headers(END, END_HEADERS | END_STREAM)], "INTERNAL 0 the answer is not exactly one message"),
    ([frame(SETTINGS), headers(OK_HEADERS + END, END_HEADERS | END_STREAM)],
     "INTERNAL 0 the answer is not exactly one message"),
    ([frame(SETTINGS), headers(OK_HEADERS), frame(DATA, 0, 1, message(b"x") * 2)],
     "INTERNAL 0 the answer is not exactly one message"),
    ([frame(SETTINGS), headers(OK_HEADERS), frame(DATA, 0, 1, b"\1\0\0\0\1x")],
     "INTERNAL 0 the answer is compressed, which was not offered"),
    ([frame(SETTINGS), headers(OK_HEADERS), frame(DATA, 0, 1, message(b"x")),
      headers([("grpc-status", "77"), ("grpc-message", "od%0Ad%")], END_HEADERS | END_STREAM)],
     "UNKNOWN 0 od?d%"),
    ([frame(SETTINGS), headers(OK_HEADERS), frame(DATA, 0, 1, message(b"xy")), headers(END, END_HEADERS | END_STREAM)],
     "OK 2 "),
    ([frame(SETTINGS), frame(RST_STREAM, 0, 1, struct.pack(">I", 7))],
     "UNAVAILABLE 0 the call was reset (REFUSED_STREAM)"),
    ([frame(SETTINGS), frame(GOAWAY, 0, 0, struct.pack(">II", 0, 0))],
     "UNAVAILABLE 0 the call was reset (REFUSED_STREAM)"),
])
def test_odd_answers(server, folder, parts, answer):
    assert answered_with(server, folder, *parts) == "register " + answer


def test_late_server_is_told(server, folder):
    """At the deadline, and when the owner gives up: RST_STREAM with CANCEL, then the end."""
    with socket.socket(socket.AF_UNIX) as listener:
        path = str(folder / "raw.sock")
        listener.bind(path)
        listener.listen()
        for give_up in (False, True):
            server.order(f"register {path} {20000 if give_up else 100}")
            with listener.accept()[0] as peer:
                peer.settimeout(DEADLINE)
                got = b""
                while b"v1beta1\x12" not in got:
                    got += peer.recv(65536)
                if give_up:
                    server.ask("cancel", "cancelled")
                while more := peer.recv(65536):
                    got += more
                assert got.endswith(frame(RST_STREAM, 0, 1, struct.pack(">I", frames.CANCEL)))
            if not give_up:
                assert server.expect("register") == "register DEADLINE_EXCEEDED 0 no answer in time"


def test_closed_at_once(server, folder):
    assert answered_with(server, folder, read=False) == "register UNAVAILABLE 0 the connection was closed"


def test_headers_without_end(server, folder):
    field = headers([("x", "y" * 15000)])
    line = answered_with(server, folder, frame(SETTINGS), headers(OK_HEADERS), *[field] * 6)
    assert line == "register RESOURCE_EXHAUSTED 0 the answer's headers are too long"
