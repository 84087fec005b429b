# SPDX-License-Identifier: Apache-2.0
"""berth-sim's sysfs and /dev: names, modes, bytes and errnos, against what real hosts show."""
import os
import pathlib
import stat
import subprocess

import pytest

from conftest import BIN, errno_of, mounts_below, wait_for

VF = "0000:41:00.4"
PF = "0000:41:00.0"
L40S_2Q, L40S_4Q, L40S_6Q = 1148, 1150, 1151

# nvidia/ of an unconfigured L40S VF, as captured on a real host (R570 or later).
LISTED = "ID    : vGPU Name\n" + "".join(
    f"{number:<5} : NVIDIA L40S-{name}\n" for number, name in
    [*enumerate("1B 2B 1Q 2Q 3Q 4Q 6Q 8Q 12Q 16Q 24Q 48Q 1A 2A 3A 4A 6A 8A 12A 16A 24A 48A".split(), 1145),
     (2164, "3B")])


def test_untouched_vf_equals_the_capture(sim):
    folder = sim.attribute(VF, "")
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in folder.iterdir()}
    assert modes == {"creatable_vgpu_types": 0o444, "current_vgpu_type": 0o644, "gpu_instance_id": 0o644,
                     "placement_id": 0o644, "vgpu_params": 0o644, "warm_update": 0o644}
    assert sim.read(VF, "creatable_vgpu_types") == LISTED and len(LISTED) == 555
    assert sim.read(VF, "current_vgpu_type") == "0\n"
    for name in ("gpu_instance_id", "placement_id", "vgpu_params", "warm_update"):
        assert errno_of(sim.read, VF, name) == "ENXIO"
    assert all(p.stat().st_size == 4096 for p in folder.iterdir())


def test_pci_attributes_and_links(sim):
    devices = sim.sys / "bus/pci/devices"
    assert len(list(devices.iterdir())) == 2 * 33
    pf, vf = devices / PF, devices / VF
    texts = {"vendor": "0x10de\n", "device": "0x26b9\n", "class": "0x030200\n", "revision": "0xa1\n",
             "sriov_totalvfs": "32\n", "sriov_numvfs": "32\n", "sriov_offset": "4\n", "sriov_stride": "1\n",
             "sriov_vf_device": "26b9\n", "reset_method": "flr bus\n", "numa_node": "0\n"}
    assert {name: (pf / name).read_text() for name in texts} == texts
    assert (vf / "reset_method").read_text() == "flr\n"
    assert (vf / "subsystem_device").read_text() == "0x0000\n"
    assert f"PCI_SLOT_NAME={VF}\n" in (vf / "uevent").read_text()
    assert not (vf / "sriov_totalvfs").exists() and not (pf / "nvidia").exists()
    assert (pf / "driver").resolve() == sim.sys.resolve() / "bus/pci/drivers/nvidia"
    assert (vf / "driver").resolve().name == "nvidia"
    assert (vf / "physfn").resolve() == pf.resolve()
    assert os.readlink(pf / "virtfn0") == f"../{VF}"
    assert (pf / "virtfn31").resolve().name == "0000:41:04.3"
    group = (vf / "iommu_group").resolve()
    assert group.parent.name == "iommu_groups"
    assert [p.name for p in (group / "devices").iterdir()] == [VF]
    assert (group / "devices" / VF).resolve() == vf.resolve()
    assert (sim.sys / "bus/pci/drivers/nvidia" / VF).resolve() == vf.resolve()
    assert list((sim.sys / "class/mdev_bus").iterdir()) == []
    cdev = next((vf / "vfio-dev").iterdir()).name
    assert (sim.dev / "vfio/devices" / cdev).exists() and (sim.dev / "vfio" / group.name).exists()
    assert {"vfio", "iommu", "nvidiactl", "nvidia0", "nvidia1"} == {p.name for p in sim.dev.iterdir()}
    assert (sim.dev / "vfio/vfio").exists()


def test_behaves_as_sysfs(sim):
    listed = sim.attribute(VF, "creatable_vgpu_types")
    assert errno_of(os.open, listed, os.O_WRONLY) == "EACCES"
    assert errno_of(os.open, listed, os.O_RDWR) == "EACCES"
    folder = sim.attribute(VF, "")
    assert errno_of(os.open, folder / "new", os.O_WRONLY | os.O_CREAT) == "EACCES"
    assert errno_of(os.mkdir, folder / "new") == "EPERM"
    assert errno_of(os.unlink, listed) == "EPERM"
    # As a shell, and as Go's os.WriteFile.
    subprocess.run(["sh", "-c", f"echo {L40S_4Q} > {sim.attribute(VF, 'current_vgpu_type')}"], check=True)
    assert sim.read(VF, "current_vgpu_type") == f"{L40S_4Q}\n"
    fd = os.open(sim.attribute(VF, "current_vgpu_type"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    assert os.write(fd, b"0") == 1
    os.close(fd)
    # Text is made when it is read from the beginning; a second read is the end.
    fd = os.open(sim.attribute(VF, "current_vgpu_type"), os.O_RDWR)
    assert os.read(fd, 64) == b"0\n" and os.read(fd, 64) == b""
    os.pwrite(fd, b"%d" % L40S_2Q, 0)
    assert os.pread(fd, 64, 0) == b"%d\n" % L40S_2Q
    assert os.pread(fd, 2, 2) == b"48"
    os.close(fd)
    assert errno_of(lambda: (sim.sys / f"bus/pci/devices/{PF}/sriov_numvfs").write_text("0")) == "EPERM"


def test_type_writes(sim):
    cases = [("x", "EINVAL"), ("", None), ("12 ", "EINVAL"), ("99999999999999999999", "ERANGE"), ("0", "EPERM"),
             ("4242", "EIO"), ("-1", "EIO"), ("561", "EIO"), (f"{L40S_4Q}\n", None), (L40S_4Q, "EPERM"),
             (L40S_2Q, "EPERM"), ("0\n", None)]
    for value, expected in cases:
        if value != "":
            assert errno_of(sim.write, VF, "current_vgpu_type", value) == expected, value
    sim.write(VF, "current_vgpu_type", L40S_4Q)
    assert sim.read(VF, "creatable_vgpu_types") == "ID    : vGPU Name\n"
    assert sim.read(VF, "placement_id") == "0\n"
    assert sim.read(VF, "vgpu_params") == "\n"
    sim.write(VF, "vgpu_params", "frame_rate_limiter=0, disable_vnc=1\n")
    assert sim.read(VF, "vgpu_params") == "frame_rate_limiter=0, disable_vnc=1\n"
    assert errno_of(sim.write, VF, "vgpu_params", "x" * 1025) == "E2BIG"
    assert errno_of(sim.write, VF, "placement_id", 5) == "EIO"
    sim.write(VF, "placement_id", 24)
    assert sim.vf(VF)["placement"] == 24


def test_mixed_list_hides_what_still_fits(sim):
    vfs = [vf["address"] for vf in sim.card()["vfs"]]
    for vf, kind in zip(vfs, [L40S_4Q] * 6 + [L40S_2Q] * 5):
        sim.write(vf, "current_vgpu_type", kind)
    assert L40S_4Q in sim.listed(vfs[-1])
    sim.write(vfs[11], "current_vgpu_type", L40S_2Q)
    assert L40S_4Q not in sim.listed(vfs[-1])
    sim.ctl("set", "creatable_guard", 0)
    assert L40S_4Q in sim.listed(vfs[-1])
    sim.ctl("set", "creatable_guard", 1)
    for vf, placement in ((vfs[12], 36), (vfs[13], 44)):
        sim.write(vf, "current_vgpu_type", L40S_4Q)
        assert sim.vf(vf)["placement"] == placement
    assert errno_of(sim.write, vfs[14], "current_vgpu_type", L40S_4Q) == "EIO"
    assert L40S_4Q in sim.listed(sim.card(1)["vfs"][0]["address"])


@pytest.mark.parametrize("kind", ["group", "cdev"])
def test_open_node_is_in_use(sim, kind):
    state = sim.vf(VF)
    path = sim.dev / (f"vfio/{state['group']}" if kind == "group" else f"vfio/devices/vfio{state['vfio']}")
    assert errno_of(os.open, path, os.O_RDWR) == "ENODEV"
    sim.write(VF, "current_vgpu_type", L40S_4Q)
    first, second = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)
    assert sim.vf(VF)["open"] and sim.vf(VF)["handles"] == 2
    assert sim.vf(VF)["instance"] is None
    os.close(first)
    assert errno_of(sim.write, VF, "current_vgpu_type", 0) == "EPERM"
    assert os.fstat(second).st_ino == os.stat(path).st_ino
    os.close(second)
    # The close is known at once.
    sim.write(VF, "current_vgpu_type", 0)
    assert not sim.vf(VF)["open"]


def test_old_files_of_a_function_that_came_back(sim):
    fd = os.open(sim.attribute(VF, "current_vgpu_type"), os.O_RDONLY)
    sim.ctl("remove", PF)
    assert not (sim.sys / "bus/pci/devices" / PF).exists()
    assert errno_of(os.pread, fd, 16, 0) == "ENODEV"
    sim.ctl("restore", PF)
    assert sim.read(VF, "current_vgpu_type") == "0\n"
    assert errno_of(os.pread, fd, 16, 0) == "ENODEV"
    os.close(fd)


def test_branch_550_has_three_files(start_sim):
    sim = start_sim("--driver", "550.163.02", "--cards", 1)
    assert {p.name for p in sim.attribute(VF, "").iterdir()} == \
        {"creatable_vgpu_types", "current_vgpu_type", "vgpu_params"}
    sim.write(VF, "current_vgpu_type", L40S_4Q)
    assert sim.vf(VF)["placement"] is None
    sim.write(VF, "vgpu_params", "vgpu-placement-id=24")
    pid = sim.boot(VF, "--init-ms", 0)
    assert sim.vf(VF)["placement"] == 24
    sim.write("0000:41:00.5", "current_vgpu_type", L40S_4Q)
    sim.write("0000:41:00.5", "vgpu_params", "vgpu-placement-id=24")
    failed = sim.ctl("boot", "0000:41:00.5", check=False)
    assert failed.returncode == 1 and failed.stderr
    os.kill(pid, 15)
    wait_for(lambda: sim.vf(VF)["placement"] is None)


@pytest.mark.parametrize("model,vfs,first,last,name", [
    ("l40s", 32, "0000:41:00.4", "0000:41:04.3", "NVIDIA L40S-4Q"),
    ("l4", 32, "0000:41:00.4", "0000:41:04.3", "NVIDIA L4-4Q"),
    ("a16", 16, "0000:41:00.4", "0000:41:02.3", "NVIDIA A16-4Q"),
    ("a40", 32, "0000:41:00.4", "0000:41:04.3", "NVIDIA A40-4Q"),
    ("h100-80", 20, "0000:41:00.4", "0000:41:02.7", "NVIDIA H100-4C"),
    ("rtx-pro-6000", 48, "0000:41:00.2", "0000:41:06.1", "NVIDIA RTX Pro 6000 Blackwell DC-4Q"),
])
def test_models(start_sim, model, vfs, first, last, name):
    sim = start_sim("--model", model, "--cards", 3)
    state = sim.state()
    assert [c["address"] for c in state["cards"]] == [PF, "0000:81:00.0", "0000:c1:00.0"]
    assert len(state["cards"][0]["vfs"]) == vfs
    assert state["cards"][0]["vfs"][0]["address"] == first
    assert state["cards"][0]["vfs"][-1]["address"] == last
    assert name in sim.listed(first).values()
    sim.ctl("configure", first, name)
    assert sim.vf(first)["profile"] == name


def test_other_addresses(start_sim):
    sim = start_sim("--address", "0001:41:00.0,10000:81:00.0", "--vfs", 64, "--numa", "1,-1")
    names = {p.name for p in (sim.sys / "bus/pci/devices").iterdir()}
    assert len(names) == 130 and {"0001:41:08.3", "10000:81:00.4"} <= names
    assert (sim.sys / "bus/pci/devices/10000:81:00.0/numa_node").read_text() == "-1\n"


def test_sixteen_cards(start_sim):
    sim = start_sim("--cards", 16)
    assert len({c["address"] for c in sim.state()["cards"]}) == 16
    assert len(list((sim.sys / "bus/pci/devices").iterdir())) == 16 * 33


def test_nothing_stays_mounted(start_sim):
    sim = start_sim()
    fd = os.open(sim.attribute(VF, "current_vgpu_type"), os.O_RDONLY)
    assert len(mounts_below(sim.root)) == 2
    assert sim.stop() == 0
    assert mounts_below(sim.root) == []
    errno_of(os.close, fd)  # the kernel says ENOTCONN


def test_after_a_kill(work, start_sim):
    """A simulator that was killed leaves dead mounts; the next one at that place clears them."""
    first = start_sim()
    first.process.kill()
    first.process.wait()
    second = type(first)(first.root)
    assert second.read(VF, "current_vgpu_type") == "0\n"
    assert second.stop() == 0


def test_two_at_one_place(sim):
    second = subprocess.run([BIN / "berth-sim", "run", "--root", str(sim.root)], capture_output=True, timeout=10)
    assert second.returncode == 1 and b"already" in second.stderr
    assert sim.read(VF, "current_vgpu_type") == "0\n"


def test_without_privileges(work):
    """In a user namespace of its own it mounts and works."""
    probe = subprocess.run(["unshare", "-Urm", "test", "-w", "/dev/fuse"], check=False)
    if probe.returncode:
        pytest.skip("no user namespaces, or /dev/fuse is not open to us")
    script = f"""
        {BIN}/berth-sim run --root {work}/u --cards 1 > {work}/out & pid=$!
        for i in $(seq 500); do grep -q ready {work}/out && break; sleep 0.01; done
        cat {work}/u/sys/bus/pci/devices/{VF}/nvidia/current_vgpu_type
        kill $pid; wait $pid"""
    done = subprocess.run(["unshare", "-Urm", "sh", "-ec", script], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_configuration_file(sim):
    import yaml
    config = yaml.safe_load(sim.config.read_text())
    root = str(sim.root.resolve())
    assert config["socket"] == f"{root}/berthd.sock" and config["data_dir"] == f"{root}/state"
    assert config["sysfs_root"] == f"{root}/sys" and config["dev_root"] == f"{root}/dev"
    assert config["boot_id_file"] == f"{root}/boot_id"
    assert config["sentinel"]["console_dirs"] == [f"{root}/console"]
    assert pathlib.Path(config["nvml_library"]).exists()
    assert pathlib.Path(config["boot_id_file"]).read_text().strip() == sim.state()["boot_id"]
