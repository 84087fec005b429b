# SPDX-License-Identifier: Apache-2.0
"""Lists of packages that are written down in more than one place say the same."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def debian_names(text):
    return {re.split(r"[\s(\[:]", n.strip())[0] for n in re.split(r"[,\n]", text) if n.strip()}


def test_build_dependencies_agree():
    """What tools/packages.txt has for building is what the source package and the image need."""
    listed = {line.split("#")[0].strip() for line in (ROOT / "tools/packages.txt").read_text().splitlines()}
    control = (ROOT / "debian/control").read_text()
    needed = debian_names(re.search(r"^Build-Depends:(.*?)^\S", control, re.M | re.S)[1])
    libraries = {n for n in listed if n.startswith("lib") and n.endswith("-dev")} - \
        {"libcmocka-dev", "libclang-rt-14-dev", "libcurl4-openssl-dev"}  # for tests
    assert len(libraries) > 5 and libraries <= needed, libraries - needed
    image = set((ROOT / "deploy/Dockerfile").read_text().split())
    wanted = {n for n in needed if n.startswith("lib")}
    assert wanted <= image, wanted - image


def test_versions_agree():
    version = re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text())[1]
    changelog = (ROOT / "debian/changelog").read_text()
    assert re.match(r"berth \(([^)]+)\)", changelog)[1] == version
