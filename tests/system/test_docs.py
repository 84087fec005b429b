# SPDX-License-Identifier: Apache-2.0
"""The guides: their blocks marked `sh run` are run on a simulated host, one shell a page, as they stand.

Paths of a real host become those of the simulated one, and what is not berth's (systemctl, nvidia-smi, journalctl,
QEMU) are small stand-ins below tests/system/docs-bin that act on the simulator. The programs for libvirt
and Proxmox run with stand-ins for virsh and qm; QEMU's options are compared with an installed QEMU.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

from conftest import BIN, ROOT, typed_vfs

DOCS = ROOT / "docs"
STAND_INS = pathlib.Path(__file__).parent / "docs-bin"
PF = "0000:41:00.0"
HEALTH = {"version": 1, "records": [
    {"vf_address": "0000:81:00.5", "failures": [
        {"instance_id": "i-1", "assigned_at": "2026-08-20T15:04:05Z", "reported_at": "2026-08-20T15:05:00.5Z"},
        {"instance_id": "i-2", "assigned_at": "2026-08-20T16:04:05Z", "reported_at": "2026-08-20T16:05:00Z"}],
     "quarantined_at": "2026-08-20T16:05:00Z"},
    {"vf_address": "0000:81:00.6", "failures": [{"instance_id": "i-3", "reported_at": "2026-08-21T10:00:00Z"}]}]}


def blocks(page, info):
    """Fenced blocks with this info string, also indented ones; (line, text)."""
    found, start, indent = [], None, ""
    lines = page.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        fence = re.fullmatch(r"(\s*)```(.*)", line)
        if fence and start is None and fence[2].strip():
            start, indent, text, wanted = number, fence[1], [], fence[2].strip() == info
        elif fence and start is not None:
            if wanted:
                found.append((start, "\n".join(text) + "\n"))
            start = None
        elif start is not None:
            text.append(line.removeprefix(indent))
    return found


def with_blocks(info):
    return sorted(p for p in DOCS.rglob("*.md") if blocks(p, info))


class RealHost:
    """A simulated host under the paths of a real one."""

    def __init__(self, sim):
        self.sim = sim
        self.settings = yaml.safe_load(sim.config.read_text())
        self.settings["sentinel"]["scan_interval"] = "100ms"
        self.config = sim.root / "berthd-docs.yaml"
        self.bin = sim.root / "bin"
        shutil.copytree(STAND_INS, self.bin)
        shutil.copy(ROOT / "deploy/host/boot-test-vm", self.bin)
        self.environment = {**os.environ, "PATH": f"{self.bin}:{BIN}:{os.environ['PATH']}", "HOST": str(sim.root),
                            "BERTH_BIN": str(BIN), "BERTH_SOCKET": self.settings["socket"], "COLUMNS": "100",
                            "BERTHD_CONFIG": str(self.config), "BERTH_SIM_ROOT": str(sim.root),
                            "SYSFS_ROOT": str(sim.sys), "CONSOLE_DIR": str(sim.root / "console")}
        self.write_settings()

    def write_settings(self):
        self.config.write_text(yaml.safe_dump(self.settings))

    def translate(self, text):
        """Longest names first."""
        root = str(self.sim.root)
        paths = {"/etc/berth/berthd.yaml": str(self.config), "/run/berth/berthd.sock": self.settings["socket"],
                 "/usr/lib/nvidia/sriov-manage": f"{root}/sriov-manage", "/var/lib/berth": self.settings["data_dir"],
                 "/var/lib/hypeman": f"{root}/hypeman", "/usr/local/bin/": f"{self.bin}/",
                 "/var/log/berth": f"{root}/console", "/run/vms": f"{root}/vms", "/dev/nvidia": f"{root}/dev/nvidia",
                 "/tmp/": f"{root}/tmp/", "/sys/": f"{root}/sys/"}
        pattern = "|".join(re.escape(p) for p in sorted(paths, key=len, reverse=True))
        return re.sub(pattern, lambda m: paths[m[0]], text)

    def run(self, script, seconds=100):
        """Runs it in a shell that stops at the first error; gives what it printed."""
        (self.sim.root / "tmp").mkdir(exist_ok=True)
        done = subprocess.run(["bash", "-c", self.translate(script)], env=self.environment, cwd=ROOT, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds)
        assert done.returncode == 0, f"status {done.returncode}:\n{done.stdout}\n{self.log()}"
        return done.stdout

    def log(self):
        log = self.sim.root / "berthd.log"
        return log.read_text() if log.exists() else ""

    def stop(self):
        subprocess.run(["systemctl", "stop", "berthd"], env=self.environment, check=True, timeout=30)


@pytest.fixture
def start_host(start_sim):
    hosts = []

    def start(*options):
        hosts.append(RealHost(start_sim("--nvml-latency", 0, *options)))
        return hosts[-1]

    yield start
    for host in hosts:
        host.stop()


def prepare_migrate(host):
    """A hypeman has been here: three VFs are configured, one of them has a VM; it has health records."""
    vfs = [v["address"] for v in host.sim.card(0)["vfs"]][:3]
    for vf in vfs:
        host.sim.ctl("configure", vf, "L40S-4Q")
    host.sim.boot(vfs[0])
    folder = host.sim.root / "hypeman/gpu"
    folder.mkdir(parents=True)
    (folder / "vf-health.json").write_text(json.dumps(HEALTH, indent=2))


def prepare_install(host):
    host.sim.ctl("set", "mode", "equal")


def prepare_wedged(host):
    """One VF was quarantined, another failed once; what the settings' block says is set."""
    folder = pathlib.Path(host.settings["data_dir"]) / "gpu"
    folder.mkdir(parents=True)
    records = json.loads(json.dumps(HEALTH).replace("0000:81", "0000:41"))
    (folder / "vf-health.json").write_text(json.dumps(records))
    host.settings["recover"].update(yaml.safe_load(settings_of("operations.md", "recover:"))["recover"])
    host.settings["recover"]["verify"] = host.translate(host.settings["recover"]["verify"])
    host.write_settings()


def settings_of(page, first):
    return next(text for _, text in blocks(DOCS / page, "yaml config") if text.startswith(first))


PREPARE = {"migrate": prepare_migrate, "install": prepare_install, "operations": prepare_wedged}
# Pages on which berthd is started by a block of their own.
STARTS_ITSELF = {"install", "migrate"}


def check_migrate(host, output):
    assert "0000:81:00.5" in output and "quarantined" in output and "1 failed" in output
    assert output.count("released external-") == 2
    assert output.count("still in use") == 1
    assert len(typed_vfs(host.sim)) == 1


def check_operations(host, output):
    assert output.count("berth-nvml") >= 1, "what holds the driver was not found"
    assert not typed_vfs(host.sim)
    assert host.sim.card(0)["mode"] == "mixed"
    assert output.count("the driver came up") == 1


def check_install(host, output):
    assert output.count("creatable_vgpu_types") == 1 and "1150  : NVIDIA L40S-4Q" in output
    assert host.sim.card(0)["mode"] == "mixed"
    assert "released vm1" in output


def check_hardware(host, output):
    assert "8 fit\n" in output and "the VF is open" in output
    assert re.search(r"^0\nclaimed hidden: ", output, re.M)
    assert not typed_vfs(host.sim)


CHECKS = {"migrate": check_migrate, "operations": check_operations, "install": check_install,
          "tested-without-hardware": check_hardware}


@pytest.mark.parametrize("page", with_blocks("sh run"), ids=lambda p: p.stem)
def test_blocks_of_a_page_run(start_host, page):
    if not shutil.which("jq"):
        pytest.skip("jq is not installed")
    host = start_host("--vfs", 32 if page.stem == "tested-without-hardware" else 8)
    PREPARE.get(page.stem, lambda host: None)(host)
    parts = ["set -euo pipefail\n" if "-euo pipefail" in page.read_text() else "set -eu\n"]
    if page.stem not in STARTS_ITSELF:
        parts.append("systemctl start berthd\n")
    first_needs_berthd = page.stem == "migrate"
    for line, text in blocks(page, "sh run"):
        if first_needs_berthd:  # the loop that the rest of the page refers to; it is run at its place
            loop, first_needs_berthd = text, False
            continue
        parts.append(f"echo '=== line {line}'\n{text}")
        if page.stem == "migrate" and "berth vf list" in text:
            parts.append(loop)
    output = host.run("".join(parts))
    CHECKS.get(page.stem, lambda host, output: None)(host, output)


@pytest.mark.parametrize("page", with_blocks("yaml config"), ids=lambda p: p.stem)
def test_settings_are_valid(page, tmp_path):
    for line, text in blocks(page, "yaml config"):
        file = tmp_path / "berthd.yaml"
        file.write_text(text)
        done = subprocess.run([BIN / "berthd", "--check", "--config", file], capture_output=True, text=True, timeout=20)
        assert done.returncode == 0, f"{page.name}:{line}: {done.stderr}"


# --- deploy/host


class Vfs:
    """deploy/host/vgpu-vfs on a simulated host."""

    def __init__(self, sim, manage=None):
        self.sim = sim
        self.environment = {**os.environ, "PATH": f"{STAND_INS}:{BIN}:{os.environ['PATH']}", "HOST": str(sim.root),
                            "SYSFS_ROOT": str(sim.sys), "SRIOV_MANAGE": str(manage or sim.root / "sriov-manage"),
                            "BERTH_BIN": str(BIN), "BERTH_SIM_ROOT": str(sim.root), "PAUSE_SECONDS": "0",
                            "LIMIT_SECONDS": "60"}

    def run(self, *arguments, **environment):
        return subprocess.run([ROOT / "deploy/host/vgpu-vfs", *arguments], env={**self.environment, **environment},
                              capture_output=True, text=True, timeout=60)


def test_vfs_come_up_in_mixed_mode(start_sim):
    sim = start_sim("--sriov", "off")
    done = Vfs(sim).run()
    assert done.returncode == 0, done.stderr
    assert [len(c["vfs"]) for c in sim.state()["cards"]] == [32, 32]
    assert {c["mode"] for c in sim.state()["cards"]} == {"mixed"}


def test_vfs_are_asked_for_again_until_they_are_there(start_sim, work):
    """sriov-manage that exits 0 without VFs twice, and fails once."""
    sim = start_sim("--sriov", "off", "--cards", 1)
    liar = work / "sriov-manage"
    liar.write_text(f"""#!/bin/sh
n=$(cat {work}/n 2>/dev/null || echo 0); echo $((n + 1)) >{work}/n
case $n in 0|1) exit 0 ;; 2) exit 1 ;; esac
exec {sim.root}/sriov-manage "$@"
""")
    liar.chmod(0o755)
    done = Vfs(sim, liar).run("--equal")
    assert done.returncode == 0, done.stderr
    assert (work / "n").read_text() == "4\n"
    assert len(sim.card()["vfs"]) == 32 and sim.card()["mode"] == "equal"


def test_vfs_that_never_come_are_an_error(start_sim):
    sim = start_sim("--sriov", "off", "--cards", 1)
    done = Vfs(sim, "/bin/true").run(LIMIT_SECONDS="1", PAUSE_SECONDS="1")
    assert done.returncode == 1 and "0 of 32 VFs" in done.stderr


def test_a_card_with_vfs_is_left_alone(sim):
    sim.ctl("configure", "0000:41:00.4", "L40S-4Q")
    done = Vfs(sim).run(PF)
    assert done.returncode == 0 and "left alone" in done.stdout
    assert sim.vf("0000:41:00.4")["type"] == 1150


def test_vfs_without_mixed_mode_get_it_while_nothing_is_configured(start_sim):
    """The run before was killed between the two."""
    sim = start_sim("--mode", "equal", "--cards", 1)
    done = Vfs(sim).run("--equal")
    assert done.returncode == 0 and sim.card()["mode"] == "equal"
    sim.ctl("configure", "0000:41:00.4", "L40S-4Q")
    done = Vfs(sim).run()
    assert done.returncode == 0 and sim.card()["mode"] == "equal"
    assert "mixed-size mode is left as it is" in done.stdout
    sim.ctl("configure", "0000:41:00.4", 0)
    done = Vfs(sim).run()
    assert done.returncode == 0 and sim.card()["mode"] == "mixed"


def test_vfs_that_the_driver_does_not_have_are_an_error(start_sim):
    """A race at boot: the functions are there, and without the driver's files."""
    sim = start_sim("--cards", 1, "--vfs", 4)
    for vf in sim.card()["vfs"]:
        sim.ctl("rebind", vf["address"], "vfio-pci")
    done = Vfs(sim).run()
    assert done.returncode == 1 and "has none of its VFs" in done.stderr


# --- deploy/libvirt, deploy/proxmox


class Manager:
    """A VM manager's programs from deploy/, with stand-ins for virsh and qm."""

    def __init__(self, daemon, folder):
        self.daemon = daemon
        self.folder = ROOT / "deploy" / folder
        self.state = daemon.sim.root / "vms"
        self.state.mkdir()
        self.environment = {**os.environ, "PATH": f"{STAND_INS}:{BIN}:{os.environ['PATH']}", "VMS": str(self.state),
                            "BERTH_SOCKET": daemon.socket, "PVE_CONFIG_DIR": str(self.state),
                            "HOOK": str(self.folder / "berth-hook")}

    def run(self, program, *arguments, stdin=None):
        return subprocess.run([self.folder / program, *map(str, arguments)], env=self.environment, input=stdin,
                              capture_output=True, text=True, timeout=60)


DOMAIN = """<domain type='kvm'>
  <name>vm1</name>
  <metadata>{metadata}</metadata>
  <devices>
    <serial type='pty'><log file='{log}' append='off'/></serial>
  </devices>
</domain>
"""
METADATA = "<berth:vgpu xmlns:berth='urn:berth:vgpu' profile='L40S-4Q' channel='vsock:5'/>"


@pytest.fixture
def libvirt(daemon):
    manager = Manager(daemon, "libvirt")
    log = daemon.sim.root / "console/vm1.log"
    (manager.state / "vm1.xml").write_text(DOMAIN.format(metadata=METADATA, log=log))
    (manager.state / "plain.xml").write_text(DOMAIN.format(metadata="", log=log))
    return manager


def hook(manager, name, operation, phase):
    xml = (manager.state / f"{name}.xml").read_text()
    return manager.run("berth-hook", name, operation, phase, "-", stdin=xml)


def test_libvirt_vm_lives_with_a_claim(libvirt, daemon):
    done = libvirt.run("berth-virsh", "start", "vm1")
    assert done.returncode == 0, done.stderr
    claim = daemon.claims()["vm1"]
    assert (claim["profile"], claim["channel"], claim["owner"]) == ("NVIDIA L40S-4Q", "vsock:5", "libvirt")
    assert claim["console_log"].endswith("/vm1.log")
    slot, function = claim["vf"].split(":")[2].split(".")
    xml = (libvirt.state / "vm1.xml").read_text()
    assert f"slot='0x{slot}' function='0x{function}'" in xml and "managed='no'" in xml
    assert hook(libvirt, "vm1", "release", "end").returncode == 0
    assert not daemon.claims() and not typed_vfs(daemon.sim)


def test_libvirt_vm_started_again_gets_the_vf_of_its_new_claim(libvirt, daemon):
    for _ in range(2):
        (libvirt.state / "vm1.state").unlink(missing_ok=True)
        assert libvirt.run("berth-virsh", "start", "vm1").returncode == 0
        assert (libvirt.state / "vm1.xml").read_text().count("<hostdev") == 1
        assert hook(libvirt, "vm1", "prepare", "begin").returncode == 0
        hook(libvirt, "vm1", "release", "end")
    assert not daemon.claims()


def test_libvirt_hook_refuses_a_start_without_claim(libvirt, daemon):
    done = hook(libvirt, "vm1", "prepare", "begin")
    assert done.returncode == 1 and "there is no claim vm1" in done.stderr
    daemon.claim("vm1")
    done = hook(libvirt, "vm1", "prepare", "begin")
    assert done.returncode == 1 and "is defined with VF None" in done.stderr


def test_libvirt_hook_leaves_other_vms_and_operations_alone(libvirt, daemon):
    daemon.claim("plain")
    daemon.claim("vm1")
    for name, operation, phase in [("plain", "prepare", "begin"), ("plain", "release", "end"), ("vm1", "start", "begin"),
                                   ("vm1", "started", "begin"), ("vm1", "stopped", "end"), ("vm1", "reconnect", "begin"),
                                   ("vm1", "attach", "begin"), ("vm1", "migrate", "begin"), ("vm1", "restore", "begin")]:
        done = hook(libvirt, name, operation, phase)
        assert (done.returncode, done.stdout) == (0, ""), (operation, done.stderr)
    assert set(daemon.claims()) == {"plain", "vm1"}


def test_libvirt_hook_lets_a_vm_end_without_berthd(libvirt, daemon):
    libvirt.run("berth-virsh", "start", "vm1")
    daemon.stop()
    done = hook(libvirt, "vm1", "release", "end")
    assert done.returncode == 0 and "not released" in done.stderr
    daemon.start()
    assert set(daemon.claims()) == {"vm1"}
    assert hook(libvirt, "vm1", "release", "end").returncode == 0
    assert not daemon.claims()


def test_libvirt_start_that_fails_gives_the_claim_back(libvirt, daemon):
    (libvirt.state / "start-fails").touch()
    assert libvirt.run("berth-virsh", "start", "vm1").returncode == 1
    assert not daemon.claims()


def test_libvirt_in_another_language(libvirt, daemon):
    libvirt.environment |= {"LC_ALL": "de_DE.UTF-8", "LANGUAGE": "de"}
    done = libvirt.run("berth-virsh", "start", "vm1")
    assert done.returncode == 0, done.stderr


def test_libvirt_without_the_programs_it_needs(libvirt, daemon):
    libvirt.environment["PATH"] = "/nonexistent"
    for done in (libvirt.run("berth-virsh", "start", "vm1"), hook(libvirt, "vm1", "prepare", "begin"),
                 hook(libvirt, "vm1", "release", "end")):
        assert "Traceback" not in done.stderr and "No such file" in done.stderr
    assert hook(libvirt, "vm1", "prepare", "begin").returncode == 1
    assert hook(libvirt, "plain", "prepare", "begin").returncode == 0


def test_libvirt_start_passes_a_refusal_on(libvirt, daemon):
    for i in range(2):
        daemon.claim(f"big{i}", "L40S-48Q")
    done = libvirt.run("berth-virsh", "start", "vm1")
    assert done.returncode == 3 and "no card can take" in done.stderr
    assert not (libvirt.state / "vm1.state").exists()


@pytest.fixture
def proxmox(daemon):
    if subprocess.run(["perl", "-MJSON::PP", "-e1"], capture_output=True).returncode:
        pytest.skip("perl with JSON::PP is not installed")
    manager = Manager(daemon, "proxmox")
    (manager.state / "101.conf").write_text("memory: 4096\n\n[snap]\nhostpci0: 0000:41:00.4,driver=keep\n")
    return manager


def test_proxmox_vm_lives_with_a_claim(proxmox, daemon):
    done = proxmox.run("berth-qm", "start", 101, "L40S-4Q")
    assert done.returncode == 0, done.stderr
    claim = daemon.claims()["pve-101"]
    assert f"hostpci0: {claim['vf']},driver=keep\n" in (proxmox.state / "101.conf").read_text()
    assert proxmox.run("berth-hook", 101, "post-start").returncode == 0
    assert proxmox.run("berth-hook", 101, "pre-stop").returncode == 0
    assert set(daemon.claims()) == {"pve-101"}
    assert proxmox.run("berth-hook", 101, "post-stop").returncode == 0
    assert not daemon.claims() and not typed_vfs(daemon.sim)
    assert proxmox.run("berth-hook", 101, "post-stop").returncode == 0


def test_proxmox_hook_refuses_another_vf(proxmox, daemon):
    done = proxmox.run("berth-hook", 101, "pre-start")
    assert done.returncode and "there is no claim pve-101" in done.stderr
    vf = daemon.claim("pve-101").json["vf"]
    (proxmox.state / "101.conf").write_text(f"memory: 4096\nhostpci0: {vf}\n\n[snap]\nhostpci0: {vf},driver=keep\n")
    done = proxmox.run("berth-hook", 101, "pre-start")
    assert done.returncode and "it is not configured with" in done.stderr


def test_proxmox_start_that_fails_gives_the_claim_back(proxmox, daemon):
    (proxmox.state / "start-fails").touch()
    assert proxmox.run("berth-qm", "start", 101, "L40S-4Q").returncode == 1
    assert not daemon.claims()
    assert proxmox.run("berth-qm", "start", 101, "L40S-400Q").returncode == 4


# --- QEMU


def test_qemu_knows_the_options():
    if not shutil.which("qemu-system-x86_64"):
        pytest.skip("qemu-system-x86_64 is not installed")
    texts = "".join(p.read_text() for p in DOCS.rglob("*.md")).replace("\\\n", " ")
    devices = {}
    for device, options in re.findall(r"(?<!-)-device \"?([a-z0-9-]+)((?:,[a-z-]+=[^\s,]+)*)", texts):
        devices.setdefault(device, set()).update(re.findall(r",([a-z-]+)=", options))
    assert {"vfio-pci", "virtserialport", "vhost-vsock-pci"} <= set(devices)
    for device, options in devices.items():
        done = subprocess.run(["qemu-system-x86_64", "-device", f"{device},help"], capture_output=True, text=True, timeout=30)
        known = set(re.findall(r"^\s+([a-z0-9-]+)=<", done.stdout, re.M))
        assert known, f"{device}: {done.stdout}{done.stderr}"
        # From QEMU 9.0 on.
        assert not options - known - {"iommufd"}, f"{device}: {options - known}"
