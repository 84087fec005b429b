# SPDX-License-Identifier: Apache-2.0
"""What berthd and its helpers call on the kernel for, held against the filter of berthd.service.

A call outside the filter fails with EPERM there, which may go unnoticed: so it is looked for.
"""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import ROOT

BIN = pathlib.Path(os.environ.get("BERTH_BIN", ROOT / "build/bin"))
UNIT = ROOT / "data/berthd.service.in"


def expand(name):
    """The calls of a group, as systemd has them; a call stands for itself."""
    if not name.startswith("@"):
        return {name}
    done = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True)
    words = [line.strip() for line in done.stdout.splitlines()[1:]]
    return set().union(*(expand(w) for w in words if w and w[0] != "#"))


def allowed(text):
    """What the SystemCallFilter= lines of a unit leave."""
    calls = expand("@default")
    for value in re.findall(r"^SystemCallFilter=(.*)$", text, re.M):
        named = set().union(*(expand(w) for w in value.removeprefix("~").split()))
        calls = calls - named if value.startswith("~") else calls | named
    return calls


@pytest.mark.parametrize("demo", ["demo.sh", "demo-wedge.sh"])
def test_every_call_is_allowed(demo, tmp_path):
    for program in ("strace", "systemd-analyze"):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("/dev/fuse cannot be opened")
    trace = tmp_path / "trace"
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("berth", "berth-sim"):
        (folder / name).symlink_to(BIN / name)
    # -D: the demo's child is berthd, not strace, which would not pass a signal on.
    (folder / "berthd").write_text(f"#!/bin/sh\nexec strace -D -f -qq -s 200 -e signal=none -o {trace} {BIN}/berthd \"$@\"\n")
    (folder / "berthd").chmod(0o755)
    done = subprocess.run(["timeout", "120", ROOT / "tools" / demo, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    text = trace.read_text()
    calls = set(re.findall(r"^\d+ +([a-z_0-9]+)\(", text, re.M))
    assert {"execve", "openat", "flock", "statx", "accept4", "fdatasync"} <= calls
    for helper in ("berth-card", "berth-nvml"):
        assert re.search(rf'execve\("[^"]*/{helper}"', text), "the helpers were not followed"
    missing = calls - allowed(UNIT.read_text())
    assert not missing, f"not in the filter: {sorted(missing)}"
