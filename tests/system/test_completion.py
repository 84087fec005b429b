# SPDX-License-Identifier: Apache-2.0
"""Completion of berth in bash, zsh and fish: words from the files, names from the daemon."""
import json
import os
import pty
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time

import pytest

from conftest import BIN, ROOT, Daemon, Sim

FILES = ROOT / "completions"
CARD, OTHER, VF = "0000:41:00.0", "0000:81:00.0", "0000:41:00.4"


@pytest.fixture(scope="module")
def daemon():
    root = tempfile.mkdtemp(prefix="berth-")
    sim = Sim(f"{root}/sim", "--nvml-latency", 0)
    daemon = Daemon(sim)
    daemon.claim("alpha-1")
    daemon.claim("beta-2", "L40S-8Q")
    yield daemon
    daemon.stop()
    sim.stop()
    shutil.rmtree(root)


def environment(daemon):
    variables = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", "TERM": "dumb"}
    variables.pop("BERTH_SOCKET", None)
    return {**variables, "BERTH_SOCKET": str(daemon.socket)} if daemon else variables


def bash(daemon, line):
    """What bash would offer at the end of the line, as it hands it to readline."""
    script = f'''source {FILES}/berth.bash; COMP_LINE=$1 COMP_POINT=${{#1}}; _berth; printf '%s\\n' "${{COMPREPLY[@]}}"'''
    done = subprocess.run(["bash", "--norc", "-c", script, "bash", line], capture_output=True, text=True,
                          env=environment(daemon), timeout=20)
    # compopt complains where no completion is under way; it is the only thing that may be said.
    assert not [l for l in done.stderr.splitlines() if "compopt" not in l], done.stderr
    return sorted(w for w in done.stdout.split("\n") if w)


def fish(daemon, line):
    if not shutil.which("fish"):
        pytest.skip("fish is not installed")
    script = f"source {FILES}/berth.fish; complete -C {line!r}"
    done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True,
                          env=environment(daemon), timeout=20)
    assert done.returncode == 0, done.stderr
    return sorted(l.split("\t")[0] for l in done.stdout.splitlines())


class Zsh:
    """An interactive zsh; what it has on its line after a tab."""

    def __init__(self, daemon):
        if not shutil.which("zsh"):
            pytest.skip("zsh is not installed")
        pid, self.fd = pty.fork()
        if pid == 0:
            os.execvpe("zsh", ["zsh", "-f", "-i"], environment(daemon))
        self.pid = pid
        self.say(f"fpath=({FILES} $fpath); autoload -Uz compinit; compinit -D -u; PS1='>'; unsetopt zle_bracketed_paste; "
                 "zstyle ':completion:*' list-prompt ''; LISTMAX=10000; COLUMNS=300; print rea''dy\n")
        self.until("ready")

    def say(self, text):
        os.write(self.fd, text.encode())

    def until(self, *words):
        """Reads until one of the words has come."""
        seen, end = "", time.monotonic() + 20
        while not any(w in seen for w in words):
            assert time.monotonic() < end, seen
            if select.select([self.fd], [], [], 0.1)[0]:
                seen += os.read(self.fd, 65536).decode(errors="replace").replace("\x08", "")
        return seen

    def completes(self, line, wanted):
        """One tab behind `line` makes `wanted` of it, or lists it."""
        self.say(f"\x15{line}\t")
        self.until(wanted)
        self.say("\x15")

    def end(self):
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def available(daemon):
    return sorted(p["name"].removeprefix("NVIDIA ") for p in daemon.resources()["profiles"])


def test_bash(daemon):
    assert {"claim", "release", "doctor", "--socket"} <= set(bash(daemon, "berth "))
    assert bash(daemon, "berth re") == ["release", "resources"]
    assert bash(daemon, "berth release ") == ["alpha-1", "beta-2"]
    assert bash(daemon, "berth release b") == ["beta-2"]
    assert bash(daemon, "berth release beta-2 ") == []
    assert bash(daemon, "berth claim vm -p ") == available(daemon)
    assert bash(daemon, "berth claim vm --profile=L40S-4") == [p for p in available(daemon) if p.startswith("L40S-4")]
    assert bash(daemon, "berth claim vm --policy l") == ["least_loaded", "least_waste"]
    assert bash(daemon, "berth gpu ") == ["cordon", "recover", "uncordon"]
    assert bash(daemon, "berth gpu cordon ") == [CARD, OTHER]
    # bash replaces only what stands behind the last colon.
    assert bash(daemon, "berth gpu cordon 0000:8") == ["81:00.0"]
    assert VF in bash(daemon, "berth vf quarantine ") and bash(daemon, "berth vf list ") == []
    assert "L40S-4Q=" in bash(daemon, "berth fit L40S-4")
    assert bash(daemon, "berth map --w") == ["--watch"]
    assert "--no-nvml" in bash(daemon, "berth doctor --")
    assert bash(daemon, "berth --color n") == ["never"]
    assert "true" in bash(daemon, "berth run -p L40S-4Q -- tru")


def test_bash_asks_the_daemon_that_the_line_names(daemon):
    assert bash(None, f"berth --socket {daemon.socket} release ") == ["alpha-1", "beta-2"]
    assert bash(None, f"berth --socket={daemon.socket} release ") == ["alpha-1", "beta-2"]


def test_fish(daemon):
    assert {"claim", "release", "doctor"} <= set(fish(daemon, "berth "))
    assert fish(daemon, "berth release ") == ["alpha-1", "beta-2"]
    assert fish(daemon, "berth release beta-2 ") == []
    assert fish(daemon, "berth claim vm -p ") == available(daemon)
    assert fish(daemon, "berth gpu cordon ") == [CARD, OTHER]
    assert VF in fish(daemon, "berth vf clear ") and fish(daemon, "berth vf ") == ["clear", "list", "quarantine"]
    assert "--watch" in fish(daemon, "berth map --w")
    assert "L40S-4Q=" in fish(daemon, "berth fit L40S-4")
    assert "--no-nvml" in fish(daemon, "berth doctor --")
    assert fish(None, f"berth --socket {daemon.socket} release ") == ["alpha-1", "beta-2"]


def test_zsh(daemon):
    shell = Zsh(daemon)
    try:
        shell.completes("berth doc", "doctor")
        shell.completes("berth release al", "alpha-1")
        shell.completes("berth gpu cordon 0000:8", "81:00.0")
        shell.completes("berth claim vm -p L40S-24", "L40S-24Q")
        shell.completes("berth vf quar", "quarantine")
        shell.completes("berth map --wa", "--watch")
        shell.completes("berth doctor --no", "--no-nvml")
        shell.completes("berth fit L40S-24Q", "L40S-24Q=")
    finally:
        shell.end()


def test_nothing_is_said_where_nobody_answers(work):
    """Quickly, and without a word of complaint."""
    def run(*args):
        return subprocess.run([BIN / "berth", "--socket", work / "none", "complete", *args], capture_output=True, text=True)

    for kind in ("profiles", "claims", "gpus", "vfs", "nonsense"):
        done = run(kind)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert run().returncode == 2
    assert bash(None, f"berth --socket {work}/none release ") == []
    assert fish(None, f"berth --socket {work}/none release ") == []


def test_words_that_a_shell_would_take_apart_are_left_out(daemon):
    done = subprocess.run([BIN / "berth", "complete", "claims"], capture_output=True, text=True, env=environment(daemon))
    assert done.stdout == "alpha-1\tNVIDIA L40S-4Q\nbeta-2\tNVIDIA L40S-8Q\n"


HOSTILE = ["<(touch<pwned>pwned)", ">(touch>pwned)", "~root", "{a,b}", "a*", "a;b", "a|b", "a&b", "a(b", "#c", "!h", "-rf",
           "--wait", "a\u202eb", "a=b", "a,b", "", "a/b", "good-1"]


@pytest.fixture
def hostile_socket(work):
    """Somebody who is not berthd: names that berthd would never give out."""
    path = work / "hostile.sock"
    body = json.dumps({"claims": [{"name": n, "profile": "p"} for n in HOSTILE]}).encode()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(8)

        def serve():
            while True:
                try:
                    peer = listener.accept()[0]
                except OSError:
                    return
                with peer:
                    peer.recv(65536)
                    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

        thread = threading.Thread(target=serve)
        thread.start()
        yield path
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def test_names_that_a_shell_would_act_on_are_left_out(hostile_socket):
    done = subprocess.run([BIN / "berth", "--socket", hostile_socket, "complete", "claims"], capture_output=True, text=True)
    assert done.stdout == "good-1\tp\n"


def test_bash_runs_nothing_that_a_name_says(work):
    """Even where `berth` gave it out."""
    fake = work / "berth"
    fake.write_text("#!/bin/sh\ncat <<'EOF'\n" + "\n".join(HOSTILE[:-1]) + "\n$(touch pwned)\n`touch pwned`\ngood-1\nEOF\n")
    fake.chmod(0o755)
    script = f'source {FILES}/berth.bash; COMP_LINE=$1 COMP_POINT=${{#1}}; _berth; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "--norc", "-c", script, "bash", "berth release "], capture_output=True, text=True,
                          cwd=work, env={**os.environ, "PATH": f"{work}:{os.environ['PATH']}"}, timeout=20)
    assert not (work / "pwned").exists() and not done.stderr
    assert done.stdout.split() == ["-rf", "--wait", "a=b", "good-1"]


def test_bash_with_the_cursor_in_the_first_word(daemon):
    assert bash(daemon, "berth") == [] and bash(daemon, "") == []


def test_the_files_are_well_formed():
    subprocess.run(["bash", "-n", FILES / "berth.bash"], check=True)
    for shell, name in (("zsh", "_berth"), ("fish", "berth.fish")):
        if shutil.which(shell):
            subprocess.run([shell, "-n", FILES / name], check=True)
