# SPDX-License-Identifier: Apache-2.0
"""What comes along for a real host: units, the commented settings, what "make install" puts where."""
import contextlib
import fcntl
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BERTH_BIN", ROOT / "build" / "bin"))
BUILD = BIN.parent
UNITS = ["berthd.service", "berthd.socket", "berth-device-plugin.service"]
# Of systemd-analyze security, 0 (closed) to 100. berthd keeps uid 0, four capabilities, the view of all
# processes and the network: berthd.service says why. The plugin keeps the network and the devices.
EXPOSURE = {"berthd.service": 32, "berth-device-plugin.service": 20}


# --- Installing


@contextlib.contextmanager
def install_log():
    """Meson notes in the build folder what it installed last, for uninstall: one at a time, and what a
    person installed stays noted."""
    log = BUILD / "meson-logs/install-log.txt"
    with open(BUILD / "meson-logs/test-install.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = log.read_bytes() if log.exists() else None
        yield
        if before is None:
            log.unlink(missing_ok=True)
        else:
            log.write_bytes(before)


def install(folder):
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", folder], check=True,
                   capture_output=True)


def files_below(folder):
    return [p for p in folder.rglob("*") if not p.is_dir()]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """What "make install" leaves below a DESTDIR: (folder, prefix)."""
    if not (BUILD / "build.ninja").exists():
        pytest.skip(f"{BUILD} is no build folder")
    folder = tmp_path_factory.mktemp("install")
    with install_log():
        install(folder)
    options = json.loads(subprocess.run(["meson", "introspect", "--buildoptions", BUILD], check=True,
                                        capture_output=True).stdout)
    prefix = next(o["value"] for o in options if o["name"] == "prefix")
    return folder, prefix.lstrip("/")


def test_uninstall(installed, tmp_path):
    with install_log():
        install(tmp_path)
        assert files_below(tmp_path)
        subprocess.run(["ninja", "-C", BUILD, "uninstall"], check=True, capture_output=True)
    assert not files_below(tmp_path)


@pytest.mark.parametrize("folder", ["with a blank", "plain", "/tmp/absolute"])
def test_make_install_takes_any_folder(tmp_path, folder):
    (tmp_path / "meson").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    (tmp_path / "meson").chmod(0o755)
    done = subprocess.run(["make", "-s", "-o", "build", "install", f"DESTDIR={folder}"], cwd=ROOT, capture_output=True,
                          text=True, env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert done.stdout.splitlines()[-2:] == ["--destdir", str(ROOT / folder)], done.stderr


def test_install(installed):
    folder, prefix = installed
    top = folder / prefix
    for name in ("sbin/berthd", "bin/berth", "bin/berth-sim", "bin/berth-agent", "bin/berth-device-plugin",
                 "libexec/berth/berth-card", "libexec/berth/berth-nvml"):
        assert os.access(top / name, os.X_OK), name
    for name in ("libexec/berth/libnvidia-ml.so.1", "lib/sysusers.d/berth.conf", "lib/tmpfiles.d/berth.conf",
                 "share/berth/guest/berth-agent.service", "share/doc/berth/examples/berthd.yaml",
                 "share/doc/berth/README.md", "share/doc/berth/docs/health.md"):
        assert (top / name).is_file(), name
    if shutil.which("scdoc"):
        assert (top / "share/man/man8/berthd.8").is_file()
    outside = [p for p in folder.rglob("*") if p.is_file() and not p.is_relative_to(top)]
    assert not outside, outside


def test_installed_programs_find_their_helpers(installed):
    """The paths in the programs are those of the prefix, wherever that is looked at from."""
    folder, prefix = installed
    text = (folder / prefix / "sbin/berthd").read_bytes()
    assert f"/{prefix}/libexec/berth".encode() in text


# --- Units


@pytest.fixture(scope="module")
def units(installed, tmp_path_factory):
    """The units, with programs that exist."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    folder, prefix = installed
    out = tmp_path_factory.mktemp("units")
    for name in UNITS:
        text = (folder / prefix / "lib/systemd/system" / name).read_text()
        assert not re.search(r"@(s?bindir|libexecdir)@", text)
        (out / name).write_text(re.sub(r"^ExecStart=", f"ExecStart={folder}", text, flags=re.M))
    return out


@pytest.mark.parametrize("name", UNITS)
def test_unit_is_understood(units, name):
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", units / name], capture_output=True, text=True,
                          env={**os.environ, "SYSTEMD_UNIT_PATH": f"{units}:"})
    words = [line for line in done.stderr.splitlines() if "berth" in line]
    assert done.returncode == 0 and not words, done.stderr


@pytest.mark.parametrize("name, limit", EXPOSURE.items())
def test_exposure(units, name, limit):
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", f"--threshold={limit}", units / name],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


def test_every_opening_is_explained():
    """Each capability that berthd keeps is named in a comment, too."""
    text = (ROOT / "data/berthd.service.in").read_text()
    comments = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    kept = re.search(r"^CapabilityBoundingSet=(.*)$", text, re.M)[1].split()
    assert kept and all(re.search(rf"^# +{c.removeprefix('CAP_')} ", comments, re.M) for c in kept)
    for off in ("ProtectProc", "PrivateDevices", "PrivateNetwork", "IPAddressDeny"):
        assert not re.search(rf"^{off}=", text, re.M) and off in comments


def test_socket_is_the_default_one():
    text = (ROOT / "data/berthd.socket.in").read_text()
    assert f"ListenStream={settings()['socket']['standard']}\n" in text


# --- The commented settings


UNIT_USEC = {"MSEC": 1000, "SEC": 1000000, "HOUR": 3600 * 1000000}


def usec(expression):
    """A limit as schema.c writes it."""
    product = 1
    for factor in expression.split("*"):
        factor = factor.strip()
        product *= UNIT_USEC[factor] if factor in UNIT_USEC else int(factor)
    return product


def in_words(value):
    for unit, size in (("h", 3600 * 1000000), ("m", 60 * 1000000), ("s", 1000000), ("ms", 1000)):
        if value and value % size == 0:
            return f"{value // size}{unit}"
    return str(value)


def settings():
    """{path: {kind, standard, min, max}} of schema.c, numbers as they stand there."""
    text = (ROOT / "src/config/schema.c").read_text()
    found = {}
    for path, kind, rest in re.findall(r'^\t\{ "([a-z_.]+)", (KIND_[A-Z_]+)(.*?)\},$', text, re.M | re.S):
        field = {"kind": kind, "standard": None, "min": None, "max": None}
        for name, value in re.findall(r'\.(standard|min|max) = ("[^"]*"|[^,}]+)', rest):
            field[name] = value.strip().strip('"')
        found[path] = field
    return found


def example():
    """{path: (line, comment above it)} of the example, lines without their #."""
    found, section, comment = {}, "", []
    for line in (ROOT / "data/berthd.yaml").read_text().splitlines():
        match = re.fullmatch(r"#(  )?([a-z_]+):(.*)", line)
        if not match:
            comment = comment + [line] if line.startswith("# ") else []
        elif not match[1] and not match[3]:
            section = match[2] + "."
        else:
            path = (section if match[1] else "") + match[2]
            assert path not in found, f"{path} twice"
            found[path] = (line[1:], "\n".join(comment))
    return found


def check(text, tmp_path):
    path = tmp_path / "berthd.yaml"
    path.write_text(text)
    return subprocess.run([BIN / "berthd", "--check", "--config", path], capture_output=True, text=True, timeout=20)


def lines_of(paths):
    """The example with these settings in force."""
    out, section = [], None
    for path in paths:
        name = path.rpartition(".")[0]
        if name and name != section:
            out.append(f"{name}:")
        section = name
        out.append(example()[path][0])
    return "\n".join(out) + "\n"


def test_schema_was_understood():
    assert len(settings()) > 30 and settings()["reconcile_interval"]["max"] == "24 * HOUR"
    count = len(re.findall(r'^\t\{ "', (ROOT / "src/config/schema.c").read_text(), re.M))
    assert count == len(settings())


def test_example_has_every_setting():
    assert set(example()) == set(settings())
    raw = (ROOT / "data/berthd.yaml").read_text()
    assert all(line.startswith("#") or not line for line in raw.splitlines()), "everything is commented"


def test_example_as_it_is(tmp_path):
    done = check((ROOT / "data/berthd.yaml").read_text(), tmp_path)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_example_shows_the_defaults(tmp_path):
    with_default = [p for p, s in settings().items() if s["standard"] is not None]
    text = lines_of(with_default)
    done = check(text, tmp_path)
    assert done.returncode == 0, done.stderr
    document = yaml.safe_load(text)
    for path in with_default:
        value = document
        for part in path.split("."):
            value = value[part]
        shown = " ".join(value) if isinstance(value, list) else str(value)
        assert shown == settings()[path]["standard"], path


def test_example_of_what_has_no_default(tmp_path):
    without = [p for p, s in settings().items() if s["standard"] is None]
    groups = [[p] for p in without if not p.startswith("tls.")] + [[p for p in without if p.startswith("tls.")]]
    for paths in groups:
        text = lines_of(paths)
        done = check(text, tmp_path)
        # Whether the files that it names are there is another question.
        assert done.returncode == 0 or re.search(r"/etc/berth/\S+.*No such file", done.stderr), (paths, done.stderr)
        for path in paths:
            comments = example()[path][1] or example()[paths[0]][1]
            assert "efault" in comments or path.startswith(("tls.", "recover.services_start")), path


def test_example_says_ranges():
    for path, s in settings().items():
        comment = example()[path][1]
        if s["kind"] == "KIND_DURATION":
            expected = f"from {in_words(usec(s['min']))} to {in_words(usec(s['max']))}"
            assert expected in " ".join(comment.replace("#", " ").split()), (path, expected)
        elif s["kind"] == "KIND_COUNT":
            assert f"{s['min']} or more" in comment, path
    assert "docs/operations.md" in example()["gpu.vf_quarantine_threshold"][1]


def test_mistakes_in_the_example_would_be_found(tmp_path):
    assert check(lines_of(["claims"]).replace("owner", "owners"), tmp_path).returncode == 1
