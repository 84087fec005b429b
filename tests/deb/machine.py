# SPDX-License-Identifier: Apache-2.0
"""A clean Debian 12 in namespaces of its own, with systemd as its first process where that works.

Its files are an overlay over a base that is made once and kept below the build folder. Everything is
mounted in a private mount namespace and runs in a pid namespace: when its first process is killed,
nothing is left but a scratch folder and a cgroup, which are removed. The host's sysfs and /proc/sys
are read-only in it, and its /dev has the few nodes that are needed.
"""
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

SUITE = "bookworm"
# What any Debian host has. Not what the packages need: apt has to bring that.
INCLUDE = "systemd,procps"
# What would run apt beside the tests, or show more of the host.
MASKED = ["apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer",
          "sys-kernel-debug.mount", "sys-kernel-tracing.mount", "sys-fs-fuse-connections.mount", "dev-hugepages.mount"]
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8",
               "DEBIAN_FRONTEND": "noninteractive"}

SETUP = r"""
set -eu
layers="lowerdir=$base,upperdir=$scratch/upper,workdir=$scratch/work"
if ! mount -t overlay overlay -o "volatile,$layers" "$root" && ! mount -t overlay overlay -o "$layers" "$root"; then
	cp -a "$base/." "$root"
	mount --bind "$root" "$root"
fi
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
[ -z "$cgroup" ] || mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
node() { mknod -m 666 "$root/dev/$1" c "$2" "$3"; }
node null 1 3; node zero 1 5; node full 1 7; node random 1 8; node urandom 1 9; node tty 5 0; node fuse 10 229
ln -s /proc/self/fd "$root/dev/fd"
ln -s pts/ptmx "$root/dev/ptmx"
mkdir "$root/dev/pts" "$root/dev/shm" "$root/dev/vfio"
for file in resolv.conf hosts; do
	[ -e "/etc/$file" ] && cat "/etc/$file" >"$root/etc/$file" || true
done
mkdir -p "$root/srv/deb" "$root/srv/source" "$root/var/cache/apt/archives/partial"
mount --bind "$debs" "$root/srv/deb"
mount --bind -o ro "$source" "$root/srv/source"
mount --bind "$cache" "$root/var/cache/apt/archives"
echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/test"
for unit in $masked; do ln -sf /dev/null "$root/etc/systemd/system/$unit"; done
# The machine's files are all that is mounted from here on: a sandbox in it starts from them, too.
cd "$root"
mkdir -p .old
pivot_root . .old
exec env -i container=berth-test PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -c "umount -l /.old && exec $init"
"""


class Unavailable(Exception):
    """Why there can be no such machine here."""


def run(command, timeout=300, **options):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", timeout=timeout, start_new_session=True, **options)


def apt_sources():
    """This machine's own files that name Debian 12: where it may fetch from is its affair."""
    folder = pathlib.Path("/etc/apt")
    files = [folder / "sources.list", *sorted(folder.glob("sources.list.d/*.list")),
             *sorted(folder.glob("sources.list.d/*.sources"))]
    return [f for f in files if f.is_file() and SUITE in f.read_text() and "debian" in f.read_text()]


def apt_options():
    options = ['APT::Install-Recommends "false"', 'Acquire::Check-Valid-Until "false"', 'Acquire::Retries "1"',
               'APT::Keep-Downloaded-Packages "true"']
    proxies = run(["apt-config", "dump", "--format", "%F \"%v\"%n", "Acquire::http::Proxy", "Acquire::https::Proxy"])
    return options + [line for line in proxies.stdout.splitlines() if not line.endswith('""')]


def make_base(folder):
    """The base system, made once for each set of sources. Gives its path."""
    sources = apt_sources()
    if os.geteuid() != 0:
        raise Unavailable("needs root")
    if not shutil.which("mmdebstrap"):
        raise Unavailable("mmdebstrap is not installed")
    if not sources:
        raise Unavailable(f"apt's sources name no Debian {SUITE}")
    key = hashlib.sha256(repr([INCLUDE, apt_options(), [f.read_text() for f in sources]]).encode()).hexdigest()[:12]
    base = folder / f"base-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if base.exists():
            return base
        for old in folder.glob("base-*"):
            shutil.rmtree(old)
        fresh = folder / "fresh"
        shutil.rmtree(fresh, ignore_errors=True)
        done = run(["mmdebstrap", "--mode=root", "--variant=apt", f"--include={INCLUDE}", "--skip=cleanup/apt/lists",
                    *(f"--aptopt={o}" for o in apt_options()), SUITE, fresh, *sources])
        if done.returncode:
            shutil.rmtree(fresh, ignore_errors=True)
            raise Unavailable("mmdebstrap cannot make a base system: " + done.stdout.strip()[-300:])
        fresh.rename(base)
    return base


def make_cgroup():
    """A cgroup for the machine, or None."""
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup2" and "rw" in options.split(","):
            path = pathlib.Path(where) / f"berth-test-{os.getpid()}"
            try:
                path.mkdir()
                return path
            except OSError:
                return None
    return None


class Machine:
    def __init__(self, build, debs, source):
        self.base = make_base(build / "deb-root")
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="berth-deb-"))
        self.cache = build / "deb-root/archives"
        (self.cache / "partial").mkdir(parents=True, exist_ok=True)
        for name in ("upper", "work", "root"):
            (self.scratch / name).mkdir()
        self.cgroup = make_cgroup()
        self.log = open(self.scratch / "log", "wb+")
        self.debs, self.source = debs, source
        self.process = self.pid = None
        self.systemd = False
        try:
            if self.cgroup and self._start("/lib/systemd/systemd --unit=multi-user.target"):
                self.systemd = self._booted()
            if not self.systemd:
                self._kill()
                if not self._start("/bin/sleep infinity"):
                    raise Unavailable("no namespaces: " + self.log_text()[-300:])
        except BaseException:
            self.stop()
            raise

    def _start(self, init):
        self.init = init.split()[0]
        names = ["--mount", "--pid", "--uts", "--ipc"] + (["--cgroup"] if self.cgroup else [])
        enter = f"echo $$ > {self.cgroup}/cgroup.procs; " if self.cgroup else ""
        command = f"{enter}exec setpriv --pdeathsig KILL unshare {' '.join(names)} --fork --kill-child --propagation private sh -c \"$SETUP\""
        variables = {**os.environ, "SETUP": SETUP, "base": str(self.base), "root": str(self.scratch / "root"),
                     "scratch": str(self.scratch), "debs": str(self.debs), "source": str(self.source),
                     "cache": str(self.cache), "cgroup": str(self.cgroup or ""), "init": init,
                     "masked": " ".join(MASKED)}
        self.process = subprocess.Popen(["sh", "-c", command], env=variables, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log, start_new_session=True)
        return self._wait(self._entered, 30)

    def _entered(self):
        """The first process runs what it is to run, and sees its own files alone."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        try:
            pid = int(children.read_text().split()[0])
            if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == os.path.basename(self.init) and \
                    " /.old" not in pathlib.Path(f"/proc/{pid}/mounts").read_text():
                self.pid = pid
        except (OSError, IndexError):
            pass
        return self.pid

    def _wait(self, condition, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            if condition():
                return True
            time.sleep(0.05)
        return False

    def _booted(self):
        return self._wait(lambda: self.run("systemctl is-system-running 2>/dev/null", check=False).stdout.strip() in
                          ("running", "degraded"), 40)

    def _kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()  # --kill-child takes the first process along, and that all others
        if self.process:
            self.process.wait(timeout=30)
        self.process = self.pid = None

    def log_text(self):
        self.log.flush()
        return (self.scratch / "log").read_text(errors="replace")

    def run(self, command, check=True, timeout=120, user=None):
        """A shell command in the machine; its output and errors together."""
        enter = ["nsenter", "-t", str(self.pid), "-m", "-p", "-u", "-i"]
        if self.cgroup:
            enter += ["-C"]
        if user:
            command = f"setpriv --reuid {user[0]} --regid {user[0]} --groups {user[1]} sh -c '{command}'"
        done = run([*enter, "sh", "-c", command], timeout=timeout, env=ENVIRONMENT)
        if check and done.returncode:
            raise AssertionError(f"{command}: status {done.returncode}\n{done.stdout}")
        return done

    def out(self, command, **options):
        return self.run(command, **options).stdout.strip()

    def write(self, path, text):
        """Through the machine, as it sees its files."""
        done = subprocess.run(["nsenter", "-t", str(self.pid), "-m", "sh", "-c", f"cat > {path}"],
                              input=text, text=True, env=ENVIRONMENT, timeout=20)
        assert done.returncode == 0

    def wait_for(self, command, seconds=20):
        """Until the command succeeds; gives its output."""
        end = time.monotonic() + seconds
        while True:
            done = self.run(command, check=False)
            if done.returncode == 0:
                return done.stdout.strip()
            assert time.monotonic() < end, f"waited {seconds} s in vain for: {command}\n{done.stdout}"
            time.sleep(0.1)

    def apt(self, arguments):
        return self.run(f"apt-get -qq -y -o Dpkg::Use-Pty=0 {arguments}", timeout=300)

    def stop(self):
        self._kill()
        self.log.close()
        if self.cgroup:
            for folder, _, _ in os.walk(self.cgroup, topdown=False):
                self._remove_cgroup(folder)
        shutil.rmtree(self.scratch)

    @staticmethod
    def _remove_cgroup(folder):
        end = time.monotonic() + 10
        while True:
            try:
                os.rmdir(folder)
                return
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
