# SPDX-License-Identifier: Apache-2.0
"""A host of plain folders and files, for what the simulator does not play: passthrough, mdev, captures."""
import os
import pathlib
import shutil

import pytest
import yaml

SHARED = pathlib.Path(os.environ.get("BERTH_SHARED", pathlib.Path(__file__).resolve().parents[3] / "shared"))


def capture(name):
    """Path of a captured host; skips, and says so, where the captures are not there."""
    path = SHARED / "data/captures" / name
    if not path.exists():
        pytest.skip(f"{path} is not there (BERTH_SHARED names the folder above data/)")
    return path


class PlainHost:
    """DIR/sys, DIR/dev and the settings that name them. Looks to Daemon like a simulator."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.sys = self.root / "sys"
        self.devices = self.sys / "bus/pci/devices"
        self.devices.mkdir(parents=True)
        (self.root / "dev/vfio/devices").mkdir(parents=True)
        (self.root / "boot_id").write_text("11111111-2222-4333-8444-555555555555\n")
        self.config = self.root / "berthd.yaml"
        self.config.write_text(yaml.safe_dump({
            "data_dir": str(self.root / "state"), "socket": str(self.root / "berthd.sock"),
            "sysfs_root": str(self.sys), "dev_root": str(self.root / "dev"),
            "boot_id_file": str(self.root / "boot_id"), "nvml_library": ""}))
        self.groups = 10

    def write(self, address, **attributes):
        for name, text in attributes.items():
            path = self.devices / address / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def link(self, address, name, target):
        path = self.devices / address / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    def function(self, address, driver, device="0x26b9", kind="0x030200", numa=0):
        self.write(address, vendor="0x10de\n", device=f"{device}\n", numa_node=f"{numa}\n",
                   **{"class": f"{kind}\n"})
        if driver:
            self.link(address, "driver", f"../../drivers/{driver}")
        self.groups += 1
        self.link(address, "iommu_group", f"../../../../kernel/iommu_groups/{self.groups}")
        (self.root / f"dev/vfio/{self.groups}").touch()

    def vf(self, card, number, address, creatable="ID    : vGPU Name\n1150  : NVIDIA L40S-4Q\n"):
        """A VF of vendor VFIO, free."""
        self.function(address, "nvidia")
        self.link(card, f"virtfn{number}", f"../{address}")
        self.link(address, "physfn", f"../{card}")
        folder = self.devices / address / "nvidia"
        folder.mkdir()
        (folder / "current_vgpu_type").write_text("0\n")
        (folder / "creatable_vgpu_types").write_text(creatable)
        for name in ("placement_id", "vgpu_params"):
            (folder / name).write_text("")

    def remove(self, address):
        shutil.rmtree(self.devices / address)

    def load_umockdev(self, path):
        """The functions of a umockdev description."""
        address = None
        for line in path.read_text().splitlines():
            kind, _, rest = line.partition(": ")
            name, _, value = rest.partition("=")
            if kind == "P":
                address = rest.rsplit("/", 1)[1]
            elif kind == "A":
                self.write(address, **{name: value.replace("\\n", "\n")})
            elif kind == "L":
                self.link(address, name, value)
