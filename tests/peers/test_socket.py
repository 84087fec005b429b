# SPDX-License-Identifier: Apache-2.0
"""The socket file of a server: who has it, and what happens to it."""
import os
import signal
import socket
import stat
import subprocess

import pytest

from testserver import PROGRAM, Server, folder, server  # noqa: F401 (fixtures)
from frames import Connection, message

grpc = pytest.importorskip("grpc", reason="python3-grpcio is not installed")
DEADLINE = 20


def echo(path, text):
    with Connection(str(path)) as c:
        c.call(1, "/berth.Test/Echo", text)
        assert c.answer(1)[1] == message(text)


def test_mode_and_removal(folder):
    s = Server(folder / "a.sock")
    assert stat.S_IMODE(os.stat(s.path).st_mode) == 0o600
    assert os.listdir(folder) == ["a.sock"]
    assert s.stats()[2] == 1
    s.stop()
    assert os.listdir(folder) == []


def test_stale_socket_is_replaced(folder):
    s = Server(folder / "a.sock")
    s.process.kill()
    s.process.wait()
    assert os.path.exists(s.path)
    again = Server(s.path)
    echo(s.path, b"again")
    again.stop()


def test_second_instance_takes_over(folder):
    """As in a rolling update: the old one's connections live on, and it leaves the new socket alone."""
    old = Server(folder / "a.sock")
    with Connection(old.path) as kept:
        kept.call(1, "/berth.Test/Echo", b"1")
        assert kept.answer(1)[1] == message(b"1")
        new = Server(old.path)
        assert (old.stats()[2], new.stats()[2]) == (0, 1)
        kept.call(3, "/berth.Test/Echo", b"2")
        assert kept.answer(3)[1] == message(b"2")
    old.stop()
    echo(new.path, b"new")
    new.stop()


def test_deleted_by_somebody(server):
    os.unlink(server.path)
    assert server.stats()[2] == 0
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(server.path)
        assert server.stats()[2] == 0
        server.ask(f"free {server.path}", "freed")
        assert os.path.exists(server.path)
    os.unlink(server.path)


@pytest.mark.parametrize("name, text", [("file", "is there and is no socket"), ("x" * 110, "File name too long"),
                                        ("no/folder", "No such file or directory")])
def test_impossible_places(folder, name, text):
    (folder / "file").write_text("kept")
    done = subprocess.run([PROGRAM, folder / name], capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 1 and text in done.stderr
    assert (folder / "file").read_text() == "kept"
    assert os.listdir(folder) == ["file"]


def test_killed_with_a_stream_open_and_restarted(folder):
    s = Server(folder / "a.sock")
    with grpc.insecure_channel("unix:" + s.path, [("grpc.initial_reconnect_backoff_ms", 50)]) as channel:
        watch = channel.unary_stream("/berth.Test/Watch")(b"")
        assert next(watch) == b""
        s.process.send_signal(signal.SIGKILL)
        with pytest.raises(grpc.RpcError) as e:
            next(watch)
        assert e.value.code() == grpc.StatusCode.UNAVAILABLE
        s.process.wait()
        again = Server(s.path)
        echo = channel.unary_unary("/berth.Test/Echo")
        assert echo(b"back", timeout=DEADLINE, wait_for_ready=True) == b"back"
    again.stop()


def test_clean_end_tells_its_peers(folder):
    s = Server(folder / "a.sock")
    with Connection(s.path, ack_settings=False) as c:
        c.call(1, "/berth.Test/Hold")
        s.expect("held")
        s.process.stdin.close()
        assert s.process.wait(DEADLINE) == 0
        assert c.read_to_end()[-1].kind == 7  # GOAWAY
    assert s.expect("closed hold") == "closed hold -32"
