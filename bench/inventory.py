# SPDX-License-Identifier: Apache-2.0
"""One inventory scan of a large host beside a bare loop of the same calls in C."""
import json
import subprocess

from host import BenchError, work_folder
from stats import Check, noise, ratio, summary

CARDS = 16
VFS = 48


def make_device(root, bus_path, bdf, files, links):
    """A device as sysfs shows it: a folder below its bus, and a link in the list of all."""
    folder = root / "devices" / bus_path / bdf
    folder.mkdir(parents=True)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    for name, target in links.items():
        (folder / name).symlink_to(target)
    (root / "bus/pci/devices" / bdf).symlink_to(f"../../../devices/{bus_path}/{bdf}")


def make_card(root, index):
    bus = 0x10 * index + 1
    bridge = f"pci0000:{bus - 1:02x}/0000:{bus - 1:02x}:01.0"
    card = f"0000:{bus:02x}:00.0"
    vfs = [f"0000:{bus:02x}:{(4 + i) // 8:02x}.{(4 + i) % 8}" for i in range(VFS)]
    common = {"driver": "../../../../bus/pci/drivers/nvidia"}
    make_device(root, bridge, card,
                {"vendor": "0x10de\n", "class": "0x030200\n", "device": "0x26b9\n",
                 "sriov_totalvfs": f"{VFS}\n", "numa_node": f"{index % 2}\n"},
                {**common, "iommu_group": f"../../../../kernel/iommu_groups/{index}",
                 **{f"virtfn{i}": f"../{vf}" for i, vf in enumerate(vfs)}})
    for i, vf in enumerate(vfs):
        group = 1000 + index * VFS + i
        make_device(root, bridge, vf,
                    {"vendor": "0x10de\n", "class": "0x030200\n", "device": "0x26b9\n",
                     "nvidia/current_vgpu_type": "0\n", f"vfio-dev/vfio{group}": ""},
                    {**common, "iommu_group": f"../../../../kernel/iommu_groups/{group}",
                     "physfn": f"../{card}"})


def make_tree(root):
    (root / "bus/pci/devices").mkdir(parents=True)
    for node in range(2):
        (root / f"devices/system/node/node{node}").mkdir(parents=True)
    for index in range(CARDS):
        make_card(root, index)


def run(options):
    with work_folder(options.work) as folder:
        root = folder / "sys"
        make_tree(root)
        done = subprocess.run([options.build / "bench/bench-scan", root, str(options.rounds * 3)],
                              capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise BenchError(done.stderr)
        answer = json.loads(done.stdout)
    if (answer["cards"], answer["vfs"]) != (CARDS, CARDS * VFS):
        raise BenchError(f"the scan found {answer['cards']} cards and {answer['vfs']} VFs")
    scan = [t / 1000 for t in answer["scan_usec"]]
    bare = [t / 1000 for t in answer["bare_usec"]]
    return {
        "figures": {"unit": "ms", "noise": noise(bare), "cards": CARDS, "vfs_per_card": VFS,
                    "scan": summary(scan), "bare": summary(bare)},
        "checks": [Check("scan", "one inventory scan / a bare loop of its calls", ratio(scan, bare),
                         "<=", 2)],
    }
