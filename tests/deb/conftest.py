# SPDX-License-Identifier: Apache-2.0
"""Tests of the Debian packages, built by "make deb" (or found in BERTH_DEB_DIR), as users have them."""
import os
import pathlib
import shutil
import subprocess

import pytest

from machine import Machine, Unavailable

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
PACKAGES = ["berth", "berth-agent", "berth-device-plugin", "berth-sim"]


@pytest.fixture(scope="session")
def debs():
    """The folder with the packages."""
    folder = pathlib.Path(os.environ.get("BERTH_DEB_DIR", BUILD / "deb"))
    if not list(folder.glob("*.changes")):
        if not shutil.which("dpkg-buildpackage") or not shutil.which("dh"):
            pytest.skip("dpkg-buildpackage or debhelper is not installed")
        done = subprocess.run([ROOT / "tools/make-deb.sh", folder], capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.fixture(scope="session")
def machine(debs):
    """A clean Debian 12 with the packages in /srv/deb; nothing of them is installed yet."""
    try:
        m = Machine(BUILD, debs, ROOT)
    except Unavailable as e:
        pytest.skip(f"no clean Debian to install in: {e}")
    yield m
    m.stop()
