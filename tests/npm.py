# SPDX-License-Identifier: Apache-2.0
"""What tests take from npm, or build once for all workers: below the build folder, never in the tree."""
import fcntl
import re
import shutil
import subprocess
import time

FAILURE_SECONDS = 600  # so long a failure is remembered: one run of the tests, not the next


def remembered(failed, key):
    """Why it failed a short while ago, or None."""
    if not failed.exists() or time.time() - failed.stat().st_mtime > FAILURE_SECONDS:
        return None
    why, _, of = failed.read_bytes().partition(b"\0")
    return why.decode() if of == key else None


def reason(result):
    """The line that says most: npm's last one only names a file."""
    lines = (result.stderr.strip() or result.stdout.strip()).splitlines() or ["?"]
    return next((line for line in lines if re.search(r"ERR! (errno|code|network)|error:", line)), lines[-1])


def prepare(folder, key, action):
    """Runs action once for all workers, again when the key (bytes) changes. None, or why it failed."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done, failed = folder / "done", folder / "failed"
        if done.exists() and done.read_bytes() == key:
            return None
        why = remembered(failed, key)
        if why:
            return why
        try:
            result = action()
            why = reason(result) if result.returncode else None
        except subprocess.TimeoutExpired as e:
            why = f"no end after {e.timeout} s"
        if why:
            failed.write_bytes(why.encode() + b"\0" + key)
        else:
            done.write_bytes(key)
        return why


def install(source, folder):
    """The packages of source/package-lock.json below folder: (folder, None), or (None, why not)."""
    if not shutil.which("node") or not shutil.which("npm"):
        return None, "node and npm are not installed"
    files = [source / "package.json", source / "package-lock.json"]

    def ci():
        for f in files:
            shutil.copy(f, folder)
        return subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1",
                               "--fetch-timeout=20000"], cwd=folder, capture_output=True, text=True, timeout=120)

    why = prepare(folder, b"".join(f.read_bytes() for f in files), ci)
    return (None, f"npm cannot install what {source.name}/package.json names: {why}") if why else (folder, None)
