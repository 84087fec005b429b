# SPDX-License-Identifier: Apache-2.0
"""Node's gRPC library and Go's, as clients of src/grpc's server and as servers of its client.

Node's is installed into the build folder by npm, from node/package-lock.json; Go's is Debian's
golang-google-grpc-dev. Where one cannot be had its tests are skipped, and say why.
"""
import functools
import os
import pathlib
import shutil
import subprocess

import pytest

import npm
from testserver import BUILD, folder, server  # noqa: F401 (fixtures)

HERE = pathlib.Path(__file__).parent
CHECKS = ["echo", "large", "status", "unknown", "undecodable", "deadline", "stream-deadline", "cancel", "count",
          "streams", "plugin"]
DEADLINE = 60


@functools.lru_cache
def node():
    folder, why = npm.install(HERE / "node", BUILD / "peers-node")
    return ["env", f"GRPC_JS={folder}/node_modules/@grpc/grpc-js", "node", str(HERE / "node/peer.js")], why


@functools.lru_cache
def go():
    folder = BUILD / "peers-go"
    if not shutil.which("go") or not os.path.isdir("/usr/share/gocode/src/google.golang.org/grpc"):
        return None, "golang-go and golang-google-grpc-dev are not installed"
    env = dict(os.environ, GO111MODULE="off", GOPATH="/usr/share/gocode", GOFLAGS="", GOCACHE=str(folder / "cache"))
    source = HERE / "go/peer.go"

    def build():
        return subprocess.run(["go", "build", "-o", str(folder / "peer"), str(source)], env=env, cwd=folder,
                              capture_output=True, text=True, timeout=200)

    why = npm.prepare(folder, source.read_bytes(), build)
    return [str(folder / "peer")], why and "the Go peer cannot be built: " + why


@pytest.fixture(params=[node, go], ids=["grpc-js", "grpc-go"])
def command(request):
    found, why = request.param()
    if why:
        pytest.skip(why)
    return found


@pytest.mark.parametrize("check", CHECKS)
def test_client(server, command, check):
    done = subprocess.run([*command, check, server.path], capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    server.wait_stats(0, 0)


@pytest.mark.parametrize("behaviour, timeout, answer", [
    ("ok", 20000, "register OK 2 "),
    ("error", 20000, "register FAILED_PRECONDITION 0 not now"),
    ("hang", 300, "register DEADLINE_EXCEEDED 0 "),
    ("dial", 20000, "register OK 4 "),
])
def test_server(server, folder, command, behaviour, timeout, answer):
    path = str(folder / "peer.sock")
    with subprocess.Popen([*command, f"serve-{behaviour}", path, server.path], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdout.readline() == "ready\n"
        assert server.ask(f"register {path} {timeout}", "register").startswith(answer)
        peer.stdin.close()
        peer.wait(DEADLINE)
