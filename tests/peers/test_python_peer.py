# SPDX-License-Identifier: Apache-2.0
"""grpcio (gRPC's C core) as client of src/grpc's server. Messages are plain bytes."""
import concurrent.futures
import os
import time

import pytest

from testserver import folder, server  # noqa: F401 (fixtures)

grpc = pytest.importorskip("grpc", reason="python3-grpcio is not installed")

DEADLINE = 20
# The core's own limits off, so that the server's are seen.
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@pytest.fixture
def channel(server):
    with grpc.insecure_channel("unix:" + server.path, OPTIONS) as c:
        yield c


def unary(channel, method, message=b"", timeout=DEADLINE, **more):
    return channel.unary_unary(f"/berth.Test/{method}")(message, timeout=timeout, **more)


def stream(channel, method, message=b"", timeout=None):
    return channel.unary_stream(f"/berth.Test/{method}")(message, timeout=timeout)


def refused(call, *args, **more):
    with pytest.raises(grpc.RpcError) as e:
        call(*args, **more)
    return e.value.code().name, e.value.details()


def test_messages_of_every_size(channel):
    for size in (0, 1, 4, 5, 16384 - 5, 16384, 65535, 65536, 2 << 20, 4 << 20):
        message = os.urandom(size)
        assert unary(channel, "Echo", message) == message, size


def test_too_large_both_ways(channel):
    assert refused(unary, channel, "Echo", bytes(5 << 20)) == (
        "RESOURCE_EXHAUSTED", "the request has 5242880 bytes, at most 4194304 are taken")
    assert refused(unary, channel, "Echo", bytes((4 << 20) + 1))[0] == "RESOURCE_EXHAUSTED"
    assert len(unary(channel, "Fill", b"4194304")) == 4 << 20
    assert refused(unary, channel, "Fill", b"4194305") == (
        "RESOURCE_EXHAUSTED", "the answer has 4194305 bytes, at most 4194304 can be sent")
    # A method's own limit, from both sides.
    assert unary(channel, "Small", b"0123456789") == b"0123456789"
    assert refused(unary, channel, "Small", b"0123456789a")[0] == "RESOURCE_EXHAUSTED"
    assert unary(channel, "Echo", b"still there") == b"still there"


def test_every_status_and_text(channel):
    for status in grpc.StatusCode:
        number, name = status.value[0], status.name
        if number:
            assert refused(unary, channel, "Fail", b"%d cause %d" % (number, number)) == (name, f"cause {number}")
    assert refused(unary, channel, "Fail", b"99 none") == ("UNKNOWN", "none")
    text = "100% of Gr\u00f6\u00dfe \u2603"
    assert refused(unary, channel, "Fail", b"5 " + text.encode()) == ("NOT_FOUND", text)
    assert refused(unary, channel, "Fail", b"5 two\nlines")[1] == "two?lines"
    assert refused(unary, channel, "Fail", b"5 " + b"x" * 5000)[1] == "x" * 1023


def test_unknown_method(channel):
    assert refused(unary, channel, "NoSuch") == ("UNIMPLEMENTED", "unknown method /berth.Test/NoSuch")


def test_undecodable_message(channel):
    call = channel.unary_unary("/v1beta1.DevicePlugin/Allocate")
    assert refused(call, b"\xff\xff\xff", timeout=DEADLINE) == (
        "INVALID_ARGUMENT", "the request cannot be decoded")


def test_unary_deadline(server, channel):
    start = time.monotonic()
    assert refused(unary, channel, "Hold", timeout=0.3)[0] == "DEADLINE_EXCEEDED"
    assert 0.25 < time.monotonic() - start < 5
    remaining = int(server.expect("held").split()[1])
    assert 0 < remaining <= 310000  # rounded up by the core
    assert server.expect("closed hold") == "closed hold -32"  # -EPIPE: nothing can be sent any more
    server.wait_stats(1, 0)


def test_stream_deadline(server, channel):
    got = []
    with pytest.raises(grpc.RpcError) as e:
        for message in stream(channel, "Watch", timeout=0.3):
            got.append(message)
    assert (e.value.code().name, got) == ("DEADLINE_EXCEEDED", [b""])
    server.expect("closed watch")


def test_cancel(server, channel):
    call = channel.unary_unary("/berth.Test/Hold").future(b"")
    assert server.expect("held") == f"held {2**64 - 1}"  # no deadline
    call.cancel()
    server.expect("closed hold")
    watch = stream(channel, "Watch")
    assert next(watch) == b""
    watch.cancel()
    server.expect("closed watch")
    server.wait_stats(1, 0)


def test_stream_with_end(channel):
    assert [int(m) for m in stream(channel, "Count", b"1000")] == list(range(1000))
    assert list(stream(channel, "Count", b"0")) == []


def test_updates_reach_every_watcher(server, channel):
    watchers = [stream(channel, "Watch") for _ in range(50)]
    assert [next(w) for w in watchers] == [b""] * 50
    for size in (1, 70000, 3):
        server.order(f"update {size}")
        assert {len(next(w)) for w in watchers} == {size}
    for w in watchers:
        w.cancel()
    server.wait_stats(1, 0)


def test_many_streams_at_once(server, channel):
    futures = [channel.unary_unary("/berth.Test/Hold").future(b"") for _ in range(50)]
    for _ in futures:
        server.expect("held")
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda i: unary(channel, "Echo", b"%d" % i), range(200)))
    assert answers == [b"%d" % i for i in range(200)]
    for f in futures:
        f.cancel()
    server.wait_stats(1, 0)


def test_compressed_request_is_refused(channel):
    assert refused(unary, channel, "Echo", b"x" * 1000, compression=grpc.Compression.Gzip) == (
        "UNIMPLEMENTED", "compressed messages are not supported")


def test_several_servers_in_one_process(server):
    for path in server.paths:
        with grpc.insecure_channel("unix:" + path) as c:
            assert unary(c, "Echo", path.encode()) == path.encode()
    first, second = server.paths
    with grpc.insecure_channel("unix:" + first) as a, grpc.insecure_channel("unix:" + second) as b:
        watch_a, watch_b = stream(a, "Watch"), stream(b, "Watch")
        assert (next(watch_a), next(watch_b)) == (b"", b"")
        server.ask(f"free {second}", "freed")
        with pytest.raises(grpc.RpcError) as e:
            next(watch_b)
        assert e.value.code().name == "UNAVAILABLE"
        assert not os.path.exists(second)
        server.order("update 7")
        assert next(watch_a) == b"x" * 7


def test_server_freed_inside_its_own_call(server):
    with grpc.insecure_channel("unix:" + server.path) as c:
        watch = stream(c, "Watch")
        assert next(watch) == b""
        assert refused(unary, c, "Suicide", server.path.encode(), timeout=DEADLINE)[0] == "UNAVAILABLE"
    lines = {server.expect(("closed", "freed")) for _ in range(3)}
    assert lines == {"closed suicide", "closed watch", "freed -32"}
    with grpc.insecure_channel("unix:" + server.paths[1]) as c:
        assert unary(c, "Echo", b"other") == b"other"


def test_client_gone(server):
    channel = grpc.insecure_channel("unix:" + server.path)
    calls = [channel.unary_unary("/berth.Test/Hold").future(b"") for _ in range(5)]
    for _ in calls:
        server.expect("held")
    channel.close()
    for _ in calls:
        server.expect("closed hold")
    server.wait_stats(0, 0)
