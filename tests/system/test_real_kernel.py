# SPDX-License-Identifier: Apache-2.0
"""berth-agent under a real kernel, on a real serial console, with berthd reading it.

A guest is Debian's cloud kernel under QEMU by emulation, with an initramfs of busybox, berth-agent and
a module that prints the driver's lines at kernel facility; the vGPU host is simulated. Needs
qemu-system-x86, busybox-static, linux-headers-cloud-amd64 and, by `apt-get download`, the kernel image
that belongs to these; skipped where one cannot be had.
"""
import os
import pathlib
import platform
import shutil
import socket
import subprocess

import pytest

from conftest import BIN, ROOT, wait_for
from test_health import PF, VF, Host, ignored, settings

HERE = pathlib.Path(__file__).parent / "guest"
CACHE = ROOT / "build" / "guest-kernel"
MODULES = ["virtio/virtio", "virtio/virtio_ring", "virtio/virtio_pci_modern_dev", "virtio/virtio_pci_legacy_dev",
           "virtio/virtio_pci", "char/virtio_console"]


def run(*command, **keywords):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, **keywords)
    if done.returncode:
        pytest.skip(f"{' '.join(map(str, command))}: {done.stdout[-500:]}")
    return done.stdout


def kernel_release():
    found = sorted(pathlib.Path("/usr/src").glob("linux-headers-*-cloud-amd64"))
    if not found or platform.machine() != "x86_64":
        pytest.skip("linux-headers-cloud-amd64 is not installed")
    return found[-1].name.removeprefix("linux-headers-")


def kernel_image(release):
    """The folder of the unpacked image package; it is fetched once, not installed: that would change /boot."""
    folder = CACHE / release
    if not (folder / "boot").exists():
        shutil.rmtree(CACHE, ignore_errors=True)
        CACHE.mkdir(parents=True)
        run("apt-get", "-qq", "download", f"linux-image-{release}", cwd=CACHE)
        partial = CACHE / "partial"
        run("dpkg", "-x", str(next(CACHE.glob("*.deb"))), str(partial))
        partial.rename(folder)
    return folder


def archive(root):
    """The folder in the format of an initramfs (cpio, "newc")."""
    def entry(name, mode, data, number):
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08x" % f for f in fields) + name.encode() + b"\0"
        return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)

    paths = sorted(root.rglob("*"))
    entries = [entry(str(p.relative_to(root)), p.stat().st_mode, b"" if p.is_dir() else p.read_bytes(), n + 1)
               for n, p in enumerate(paths)]
    return b"".join(entries) + entry("TRAILER!!!", 0, b"", 0)


@pytest.fixture
def guest_files(work):
    """Kernel and initramfs."""
    for program in ("qemu-system-x86_64", "busybox"):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")
    release = kernel_release()
    image = kernel_image(release)
    module = work / "module"
    module.mkdir()
    shutil.copy(HERE / "nvrm.c", module)
    (module / "Makefile").write_text("obj-m := nvrm.o\n")
    environment = {k: v for k, v in os.environ.items() if k not in ("CC", "MAKEFLAGS", "MAKELEVEL")}
    run("make", "-C", f"/usr/src/linux-headers-{release}", f"M={module}", "modules", env=environment)
    root = work / "initramfs"
    for folder in ("bin", "modules", "proc", "sys", "dev"):
        (root / folder).mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), root / "bin")
    shutil.copy(BIN / "berth-agent", root / "bin")
    shutil.copy(HERE / "init", root / "init")
    os.chmod(root / "init", 0o755)
    for name in MODULES:
        shutil.copy(image / f"lib/modules/{release}/kernel/drivers/{name}.ko", root / "modules")
    shutil.copy(module / "nvrm.ko", root / "modules")
    (work / "initramfs.cpio").write_bytes(archive(root))
    return image / f"boot/vmlinuz-{release}", work / "initramfs.cpio"


class Guest:
    def __init__(self, files, console, work, mode):
        kernel, initramfs = files
        self.channel = work / "channel"
        self.control = work / "control"
        self.process = subprocess.Popen(
            ["qemu-system-x86_64", "-M", "q35", "-m", "192", "-smp", "1", "-nodefaults", "-display", "none", "-no-reboot",
             "-accel", "kvm" if os.environ.get("BERTH_TEST_KVM") else "tcg", "-kernel", kernel, "-initrd", initramfs,
             "-append", f"console=ttyS0 loglevel=4 mitigations=off panic=-1 mode={mode}",
             "-serial", f"file:{console}", "-serial", f"unix:{self.control},server=on,wait=off",
             "-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,path={self.channel},server=on,wait=off",
             "-device", "virtserialport,chardev=agent,name=org.berth.agent.0"],
            stdin=subprocess.DEVNULL)

    def go_on(self):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(self.control))
            s.sendall(b"go\n")

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=20)


def test_real_guests(guest_files, start_sim, start_daemon, work):
    sim = start_sim("--nvml-latency", 0, "--cards", 2, "--vfs", 1)
    host = Host(sim, start_daemon(sim, settings(2, scan_interval="200ms")))

    def text(name):
        return host.console(name).read_bytes().decode(errors="replace") if host.console(name).exists() else ""

    def assignment(name, mode, seen):
        host.claim(name, channel=f"unix:{work}/channel")
        guest = Guest(guest_files, host.console(name), work, mode)

        def done():
            assert guest.process.poll() is None, text(name)
            return seen()

        try:
            if mode == "forge":
                wait_for(lambda: "forged all but one\r\n" in text(name), "the guest", 60)
                host.barrier()
                assert host.failures() == 0
                guest.go_on()
            wait_for(done, f"what {mode} leads to", 30)
        except BaseException:
            print(text(name)[-3000:], host.daemon.log()[-1500:], host.daemon.metrics().get(ignored("agent")), sep="\n")
            raise
        finally:
            guest.stop()
        host.release(name)

    # An image without driver: what its users write to the kernel log and the console counts nowhere.
    assignment("vm0", "forge", lambda: host.daemon.metric(ignored("agent")) == 1)
    assert host.failures() == 0
    assignment("vm1", "fail", lambda: host.failures() == 1)
    assignment("vm2", "ok", lambda: host.failures() == 0)
    assignment("vm3", "fail", lambda: host.failures() == 1)
    assignment("vm4", "fail", lambda: host.vf()["quarantined"])
    assert [f["claim"] for f in host.vf(VF)["failures"]] == ["vm3", "vm4"]
    refused = host.daemon.claim("vm5", gpu=PF)
    assert refused.code == "insufficient_resources"
