# SPDX-License-Identifier: Apache-2.0
"""What tests take from npm, or build once for all workers: below the build folder, never in the tree."""
import fcntl
import shutil
import subprocess


def prepare(folder, key, action):
    """Runs action once for all workers, again when the key (bytes) changes. None, or why it failed."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "done"
        if done.exists() and done.read_bytes() == key:
            return None
        try:
            result = action()
        except subprocess.TimeoutExpired as e:
            return f"no end after {e.timeout} s"
        if result.returncode:
            return ((result.stderr.strip() or result.stdout.strip()).splitlines() or ["?"])[-1]
        done.write_bytes(key)


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
