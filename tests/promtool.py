# SPDX-License-Identifier: Apache-2.0
"""promtool for the tests, and what the documents say about metrics."""
import fcntl
import functools
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
MONITORING = ROOT / "data/monitoring"
BUILD = pathlib.Path(os.environ.get("BERTH_BIN", ROOT / "build/bin")).parent


@functools.lru_cache
def find():
    """(path, None), or (None, why not)"""
    folder = BUILD / "tools"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:  # one worker fetches it for all
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run([ROOT / "tools/get-promtool.sh", folder], capture_output=True, text=True, timeout=120)
    return (done.stdout.strip(), None) if done.returncode == 0 else (None, done.stderr.strip())


def run(*arguments, stdin=None, cwd=None):
    """The finished process; skips the test where there is no promtool."""
    path, why = find()
    if not path:
        pytest.skip(why)
    return subprocess.run([path, *arguments], input=stdin, cwd=cwd, capture_output=True, text=True, timeout=120)


def documented():
    """{name: (type, labels)} of docs/metrics.md."""
    rows = re.findall(r"^\| `(berth_\w+)` \| (\w+) \| ([^|]*)\| (.+) \|$", (ROOT / "docs/metrics.md").read_text(), re.M)
    assert len({name for name, *_ in rows}) == len(rows), "one is there twice"
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in rows}


def names_in(expression):
    """Names of our metrics in an expression, as the families are called."""
    found = re.findall(r"(?<![\w:])berth_[a-z0-9_]+", expression)
    return {re.sub(r"(_seconds)_(bucket|sum|count)$", r"\1", name) for name in found}
