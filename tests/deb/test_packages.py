# SPDX-License-Identifier: Apache-2.0
"""What is in the packages, and what lintian says of them."""
import io
import os
import re
import shutil
import subprocess
import tarfile

import pytest

from conftest import PACKAGES, ROOT

PROGRAMS = {"berth": {"usr/bin/berth", "usr/sbin/berthd", "usr/libexec/berth/berth-card", "usr/libexec/berth/berth-nvml"},
            "berth-agent": {"usr/bin/berth-agent"},
            "berth-device-plugin": {"usr/bin/berth-device-plugin", "usr/libexec/berth-device-plugin/berth-card",
                                    "usr/libexec/berth-device-plugin/berth-nvml",
                                    "usr/libexec/berth-device-plugin/berth-device-plugin"},
            "berth-sim": {"usr/bin/berth-sim"}}


def path_of(debs, package):
    found = [p for p in debs.glob(f"{package}_*.deb")]
    assert len(found) == 1, found
    return found[0]


def contents(debs, package):
    """{path: tar member}"""
    data = subprocess.run(["dpkg-deb", "--fsys-tarfile", path_of(debs, package)], capture_output=True, check=True).stdout
    return {m.name.removeprefix("./"): m for m in tarfile.open(fileobj=io.BytesIO(data))}


def field(debs, package, name):
    return subprocess.run(["dpkg-deb", "-f", path_of(debs, package), name], capture_output=True, text=True,
                          check=True).stdout.strip()


def test_lintian(debs):
    if not shutil.which("lintian"):
        pytest.skip("lintian is not installed")
    changes = list(debs.glob("*.changes"))
    done = subprocess.run(["lintian", "--allow-root", "-i", "--pedantic", "-E", "--fail-on", "error,warning", *changes],
                          capture_output=True, text=True, timeout=120)
    for tag in re.findall(r"^[PIX]: .*", done.stdout, re.M):
        print(tag)
    assert done.returncode == 0 and not re.search("^[EW]: ", done.stdout, re.M), done.stdout[-6000:] + done.stderr


def test_overrides_say_why():
    files = [*ROOT.glob("debian/*.lintian-overrides"), ROOT / "debian/source/lintian-overrides"]
    for path in files:
        lines = path.read_text().splitlines()
        assert all(lines[i - 1].startswith("#") for i, line in enumerate(lines) if line and line[0] != "#" and i), path


@pytest.mark.parametrize("package", PACKAGES)
def test_contents(debs, package):
    members = contents(debs, package)
    assert not [m for m in members if m.startswith(("usr/local", "run", "var", "srv", "tmp", "home"))]
    wrong = [m.name for m in members.values() if (m.uname, m.gname) != ("root", "root") or m.mode & 0o6022 and not m.issym()]
    assert not wrong
    programs = {n for n, m in members.items() if n.startswith(("usr/bin/", "usr/sbin/", "usr/libexec/"))
                and not m.isdir() and (m.issym() or m.mode & 0o111)}
    assert programs == PROGRAMS[package]
    assert f"usr/share/doc/{package}/copyright" in members
    pages = [n for n in members if n.startswith("usr/share/man/") and n.endswith(".gz")]
    assert len(pages) >= (5 if package == "berth" else 1)


def test_every_installed_program_has_a_page(debs):
    pages, programs = set(), set()
    for package in PACKAGES:
        members = contents(debs, package)
        pages |= {os.path.basename(n).split(".")[0] for n in members if "/man/man" in n}
        programs |= {os.path.basename(n) for n in PROGRAMS[package]}
    assert programs <= pages


def test_one_version(debs):
    version = re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text())[1]
    for package in PACKAGES:
        assert field(debs, package, "Version").split("-")[0] == version


def test_dependencies(debs):
    depends = {p: field(debs, p, "Depends") for p in PACKAGES}
    for library in ("libmicrohttpd12", "libsqlite3-0", "libyaml-0-2", "libjansson4", "libsystemd0"):
        assert library in depends["berth"]
    assert "fuse3" in depends["berth-sim"]
    assert "berth" not in re.findall(r"[^ ,|]+", depends["berth-device-plugin"])  # it needs no daemon
    assert depends["berth-agent"] == ""
    assert "musl" in field(debs, "berth-agent", "Built-Using")


def test_image_has_what_the_plugin_needs(debs):
    """deploy/Dockerfile names by hand what the package's dependencies are found out to be."""
    image = set((ROOT / "deploy/Dockerfile").read_text().split())
    needed = set(re.findall(r"lib[a-z0-9.+-]+", field(debs, "berth-device-plugin", "Depends"))) - {"libc6"}
    assert needed and needed <= image, needed - image


def test_agent_is_static(debs, tmp_path):
    subprocess.run(["dpkg-deb", "-x", path_of(debs, "berth-agent"), tmp_path], check=True)
    program = tmp_path / "usr/bin/berth-agent"
    kind = subprocess.run(["readelf", "-ld", program], capture_output=True, text=True, check=True).stdout
    assert "INTERP" not in kind and "(NEEDED)" not in kind


def test_symbols_do_not_conflict(debs):
    """Two packages with one file cannot be installed together."""
    seen = {}
    for package in [*PACKAGES, *(f"{p}-dbgsym" for p in PACKAGES if p != "berth-agent")]:
        for name, member in contents(debs, package).items():
            if not member.isdir():
                assert name not in seen, (name, package, seen[name])
                seen[name] = package
    assert "usr/sbin/berthd" in seen and any(".debug" in n for n in seen)
