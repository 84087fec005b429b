# SPDX-License-Identifier: Apache-2.0
"""Chromium, what drives it, and the scripts that are run with them."""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BIN = pathlib.Path(os.environ.get("BERTH_BIN", ROOT / "build/bin"))
MODULES = BIN.parent / "e2e-node"

sys.path.insert(0, str(HERE.parent))
import npm  # noqa: E402


def missing():
    """Why no browser test can run here, or None."""
    if not shutil.which("chromium"):
        return "chromium is not installed (tools/packages-page.txt)"
    return npm.install(HERE, MODULES)[1]


def processes_of(folder):
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if int(entry.name) != os.getpid() and str(folder).encode() in (entry / "cmdline").read_bytes():
                yield int(entry.name)


@contextlib.contextmanager
def folder():
    """For the hosts of one script; nothing of them is left behind, however the script ended."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="berth-e2e-"))
    try:
        yield path
    finally:
        for pid in processes_of(path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
            if line.split()[1].startswith(f"{path}/"):
                subprocess.run(["umount", "-l", line.split()[1]], check=False)
        shutil.rmtree(path, ignore_errors=True)


def run(script, *arguments, timeout):
    """The finished process of a script of this folder."""
    env = {**os.environ, "BERTH_BIN": str(BIN), "BERTH_HELPER_DIR": str(BIN), "NODE_PATH": str(MODULES / "node_modules"),
           "CHROMIUM": shutil.which("chromium")}
    return subprocess.run(["node", HERE / script, *map(str, arguments)], env=env, stdout=subprocess.PIPE, text=True,
                          timeout=timeout)
