# SPDX-License-Identifier: Apache-2.0
"""berth-device-plugin in tests: the process, and hosts made of plain files where the simulator has no such part."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import urllib.error
import urllib.request

from conftest import BIN, parse_metrics, wait_for

Q4 = "nvidia.com/NVIDIA_L40S-4Q"
Q2 = "nvidia.com/NVIDIA_L40S-2Q"
Q8 = "nvidia.com/NVIDIA_L40S-8Q"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Plugin:
    """One berth-device-plugin. Options go behind those that name the host's folders."""

    def __init__(self, work, sys, dev, kubelet_dir, *options, nvml="", env=None, interval=None, listen=True,
                 wrapper=()):
        self.port = free_port() if listen else 0
        self.log_path = pathlib.Path(work) / f"plugin-{len(list(pathlib.Path(work).glob('plugin-*.log')))}.log"
        self.command = [*wrapper, BIN / "berth-device-plugin", "--kubelet-dir", kubelet_dir, "--sysfs-root", sys,
                        "--dev-root", dev, "--nvml-library", nvml, "--health-file", pathlib.Path(work) / "vf-health.json"]
        if listen:
            self.command += ["--listen", f"127.0.0.1:{self.port}"]
        if interval:
            self.command += ["--rescan-interval", interval]
        self.command += options
        environment = {k: v for k, v in os.environ.items() if k != "VFIO_VGPU_RESCAN_INTERVAL"}
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([str(c) for c in self.command], stdout=log, stderr=log,
                                            env={**environment, **(env or {})})

    def rescan(self):
        """SIGHUP, and waits until that scan, good or bad, is over."""
        before = self.scans()
        self.process.send_signal(signal.SIGHUP)
        wait_for(lambda: self.scans() > before, "a scan")

    def scans(self):
        metrics = self.metrics()
        return sum(v for k, v in metrics.items() if k.startswith("berth_plugin_scans_total"))

    def get(self, path):
        """(status, body)"""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def answers(self):
        try:
            return self.get("/healthz")[0] == 200
        except OSError:
            assert self.process.poll() is None, self.log()
            return False

    def metrics(self):
        wait_for(self.answers, "the plugin's HTTP server")
        return parse_metrics(self.get("/metrics")[1])

    def log(self):
        return self.log_path.read_text(errors="replace")

    def kill(self):
        self.process.kill()
        self.process.wait(timeout=10)

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(timeout=20)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))


def run_once(sys, dev, *options, nvml="", env=None, timeout=60):
    """A run that ends by itself: --list and the like."""
    return subprocess.run([str(c) for c in [BIN / "berth-device-plugin", "--sysfs-root", sys, "--dev-root", dev,
                                            "--nvml-library", nvml, "--health-file", "/nonexistent", *options]],
                          capture_output=True, text=True, timeout=timeout,
                          env={**{k: v for k, v in os.environ.items() if k != "VFIO_VGPU_RESCAN_INTERVAL"},
                               **(env or {})})


def list_json(sys, dev, *options, nvml=""):
    done = run_once(sys, dev, "--list", "--json", *options, nvml=nvml)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def offered(listing):
    """{resource: [ids]} of a listing."""
    return {r["name"]: [d["id"] for d in r["devices"]] for r in listing["resources"]}


class Tree:
    """A host of plain files: functions, groups, nodes."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.sys = self.root / "sys"
        self.dev = self.root / "dev"
        self.devices = self.sys / "bus/pci/devices"
        self.devices.mkdir(parents=True)
        (self.dev / "vfio").mkdir(parents=True)
        (self.dev / "vfio/vfio").touch()

    def folder(self, bdf):
        return self.devices / bdf

    def function(self, bdf, device="0x2235", driver="vfio-pci", group=1, klass="0x030200", numa=-1, vendor="0x10de",
                 node=True, cdev=None):
        folder = self.folder(bdf)
        folder.mkdir()
        for name, value in (("vendor", vendor), ("device", device), ("class", klass), ("numa_node", numa)):
            if value is not None:
                (folder / name).write_text(f"{value}\n")
        if driver:
            self.bind(bdf, driver)
        if group is not None:
            self.join(bdf, group)
        if node and group is not None:
            (self.dev / "vfio" / str(group)).touch()
        if cdev is not None:
            (folder / "vfio-dev" / cdev).mkdir(parents=True)
        return folder

    def bind(self, bdf, driver):
        target = self.sys / "bus/pci/drivers" / driver
        target.mkdir(parents=True, exist_ok=True)
        link = self.folder(bdf) / "driver"
        link.unlink(missing_ok=True)
        link.symlink_to(f"../../../../bus/pci/drivers/{driver}")

    def join(self, bdf, group):
        target = self.sys / "kernel/iommu_groups" / str(group) / "devices"
        target.mkdir(parents=True, exist_ok=True)
        (target / bdf).symlink_to(f"../../../../bus/pci/devices/{bdf}")
        link = self.folder(bdf) / "iommu_group"
        link.unlink(missing_ok=True)
        link.symlink_to(f"../../../../kernel/iommu_groups/{group}")

    def card(self, bdf, vfs, device="0x26b9", types=None, group=20, numa=0):
        """A card bound to nvidia with VFs {bdf: type}; types {id: name} is what each VF lists."""
        folder = self.function(bdf, device, "nvidia", group, numa=numa, node=False)
        (folder / "sriov_totalvfs").write_text("32\n")
        text = "ID    : vGPU Name\n" + "".join(f"{i:<5} : {n}\n" for i, n in (types or {}).items())
        for number, (vf, current) in enumerate(vfs.items()):
            v = self.function(vf, device, "nvidia", group + 1 + number, numa=numa)
            (v / "physfn").symlink_to(f"../{bdf}")
            (folder / f"virtfn{number}").symlink_to(f"../{vf}")
            (v / "nvidia").mkdir()
            (v / "nvidia/current_vgpu_type").write_text(f"{current}\n")
            (v / "nvidia/creatable_vgpu_types").write_text(text)

    def set_type(self, vf, number):
        """In place, with the same size, inode and times: nothing but the content tells."""
        path = self.folder(vf) / "nvidia/current_vgpu_type"
        before = path.stat()
        with open(path, "r+") as f:
            f.write(f"{number}\n")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def mdev(self, uuid, parent, name, group):
        folder = self.sys / "devices/pci0000:00" / parent / uuid
        (folder / "mdev_type").mkdir(parents=True)
        (folder / "mdev_type/name").write_text(f"{name}\n")
        (self.sys / "kernel/iommu_groups" / str(group)).mkdir(parents=True, exist_ok=True)
        (folder / "iommu_group").symlink_to(f"../../../../kernel/iommu_groups/{group}")
        bus = self.sys / "bus/mdev/devices"
        bus.mkdir(parents=True, exist_ok=True)
        (bus / uuid).symlink_to(f"../../../devices/pci0000:00/{parent}/{uuid}")
        (self.dev / "vfio" / str(group)).touch()
