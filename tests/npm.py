# SPDX-License-Identifier: Apache-2.0
"""Packages of npm for a test, installed into the build folder from the test's own lock file."""
import fcntl
import shutil
import subprocess


def install(source, folder):
    """Once for all workers, again when the lock file changes. None, or why it cannot be."""
    if not shutil.which("node") or not shutil.which("npm"):
        return "node and npm are not installed"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        key, done = (source / "package-lock.json").read_bytes(), folder / "done"
        if done.exists() and done.read_bytes() == key:
            return None
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, folder)
        try:
            result = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1",
                                     "--fetch-timeout=20000"], cwd=folder, capture_output=True, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            return "npm did not end within 120 s"
        if result.returncode:
            return "npm cannot install: " + (result.stderr.strip().splitlines() or ["?"])[-1]
        done.write_bytes(key)
    return None
