# SPDX-License-Identifier: Apache-2.0
"""berth-sim's commands, faults, events and guests."""
import os
import re
import signal
import subprocess
import threading
import time

import pytest

from conftest import BIN, CtlError, errno_of, wait_for

VF, VF2, VF3 = "0000:41:00.4", "0000:41:00.5", "0000:41:00.6"
PF, PF2 = "0000:41:00.0", "0000:81:00.0"
OTHER = "0000:81:00.4"
L40S_2Q, L40S_4Q, L40S_6Q = 1148, 1150, 1151


def background(action, *args):
    """Runs action in a thread; returns the thread with its outcome in .result."""
    def run():
        thread.result = errno_of(action, *args)
    thread = threading.Thread(target=run, daemon=True)
    thread.result = "not done"
    thread.start()
    return thread


def test_state(sim):
    state = sim.state()
    assert [c["address"] for c in state["cards"]] == [PF, PF2]
    card = state["cards"][0]
    assert (card["model"], card["mode"]) == ("l40s", "mixed")
    vf = card["vfs"][0]
    assert (vf["address"], vf["type"], vf["placement"], vf["open"], vf["wedged"]) == (VF, 0, None, False, False)
    assert state["counters"] == {"nvml_calls": 0, "nvml_shutdowns": 0, "attr_reads": 0, "attr_writes": 0}


def test_counters(sim):
    sim.read(VF, "current_vgpu_type")
    sim.read(VF, "creatable_vgpu_types")
    (sim.sys / f"bus/pci/devices/{VF}/vendor").read_text()
    list(sim.attribute(VF, "").iterdir())
    errno_of(sim.write, VF, "current_vgpu_type", 0)
    counters = sim.counters()
    assert (counters["attr_reads"], counters["attr_writes"]) == (2, 1)


@pytest.mark.parametrize("args,status", [
    ([], 2), (["nonsense"], 2), (["state", "x"], 2), (["set", "mode"], 2), (["set", "nvml.hung", "1"], 2),
    (["set", "mode", "unequal"], 2), (["set", "sysfs.read_errno", "EWHAT"], 2),
    (["set", "sysfs.read_hang", "2"], 2), (["set", "nvml.hang", "1", "--vf", VF], 2),
    (["set", "nvml.hang", "1", "--for", "never"], 2), (["set", "nvml.hang", "1", "--at", "1"], 2),
    (["set", "nvml.hang", "1", "--gpu"], 2), (["set", "nvml.hang", "1", "--gpu", "0000:42:00.0"], 1),
    (["set", "mode", "mig"], 1), (["sriov", PF], 2), (["sriov", "-e", "-d", PF], 2),
    (["sriov", "-e", VF], 1), (["boot", VF], 1), (["boot", PF], 1), (["boot", VF, "--init-ms", "x"], 2),
    (["configure", VF, "L40S-5Q"], 1), (["configure", VF, "0"], 1), (["configure", "0000:99:00.4", "1150"], 1),
    (["wedge", PF], 1), (["remove", "x"], 1), (["rebind", VF, "i915"], 2), (["flap", PF, "--hz", "0"], 2),
])
def test_refusals(sim, args, status):
    done = sim.ctl(*args, check=False)
    assert done.returncode == status
    assert done.stderr.startswith("berth-sim ctl: ") and not done.stdout


def test_no_simulator(work):
    done = subprocess.run([BIN / "berth-sim", "ctl", "--root", str(work), "state"], capture_output=True)
    assert done.returncode == 1 and done.stderr
    for args in (["ctl", "state"], ["run"], ["run", "--root", str(work), "--model", "x"], ["walk"], [],
                 ["run", "--root", str(work), "--vfs", "65"], ["run", "--root", str(work), "--driver", "1"]):
        env = {k: v for k, v in os.environ.items() if k != "BERTH_SIM_ROOT"}
        done = subprocess.run([BIN / "berth-sim", *args], capture_output=True, env=env, timeout=10)
        assert done.returncode == 2 and done.stderr, args
    done = subprocess.run([BIN / "berth-sim", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "sysfs.write_hang" in done.stdout


def test_configure_by_name_and_number(sim):
    sim.ctl("configure", VF, "L40S-4Q")
    sim.ctl("configure", VF2, "NVIDIA L40S-2Q")
    sim.ctl("configure", VF3, L40S_6Q)
    assert [vf["type"] for vf in sim.card()["vfs"][:4]] == [L40S_4Q, L40S_2Q, L40S_6Q, 0]
    with pytest.raises(CtlError, match="EPERM"):
        sim.ctl("configure", VF, "L40S-4Q")
    sim.ctl("configure", VF.upper(), 0)
    assert sim.vf(VF)["type"] == 0
    assert sim.counters()["attr_writes"] == 0


# --- faults ------------------------------------------------------------------------------------


def test_errnos(sim):
    sim.ctl("set", "sysfs.read_errno", "EIO", "--vf", VF)
    assert errno_of(sim.read, VF, "current_vgpu_type") == "EIO"
    assert errno_of(sim.read, VF2, "current_vgpu_type") is None
    sim.ctl("set", "sysfs.read_errno", "ENODEV", "--gpu", PF)
    assert {errno_of(sim.read, vf, "creatable_vgpu_types") for vf in (VF, VF2)} == {"ENODEV"}
    assert errno_of(sim.read, OTHER, "creatable_vgpu_types") is None
    sim.ctl("set", "sysfs.read_errno", 0)
    assert errno_of(sim.read, VF, "current_vgpu_type") is None
    sim.ctl("set", "sysfs.release_errno", "EBUSY")
    sim.write(VF, "current_vgpu_type", L40S_4Q)
    for zero in ("0", "0\n"):
        assert errno_of(sim.write, VF, "current_vgpu_type", zero) == "EBUSY"
    sim.write(VF, "vgpu_params", "a=0")
    assert errno_of(sim.write, VF, "current_vgpu_type", L40S_4Q) == "EPERM"
    sim.ctl("set", "sysfs.release_errno", 0)
    sim.ctl("set", "sysfs.write_errno", "EROFS")
    assert errno_of(sim.write, VF, "current_vgpu_type", 0) == "EROFS"
    assert sim.vf(VF)["type"] == L40S_4Q


def test_lists_that_say_little(sim):
    sim.ctl("set", "sysfs.creatable", "header", "--vf", VF)
    sim.ctl("set", "sysfs.creatable", "empty", "--vf", VF2)
    assert sim.read(VF, "creatable_vgpu_types") == "ID    : vGPU Name\n"
    assert sim.read(VF2, "creatable_vgpu_types") == ""
    assert len(sim.listed(VF3)) == 23
    sim.ctl("set", "sysfs.creatable", "normal")
    assert len(sim.listed(VF2)) == 23
    sim.ctl("set", "sysfs.physfn_missing", 1, "--vf", VF)
    assert not os.path.lexists(sim.sys / f"bus/pci/devices/{VF}/physfn")


def test_latency_holds_up_only_its_caller(sim):
    sim.ctl("set", "sysfs.read_latency_ms", 400, "--vf", VF)
    slow = background(sim.read, VF, "current_vgpu_type")
    start = time.monotonic()
    sim.read(VF2, "current_vgpu_type")
    assert time.monotonic() - start < 0.3 and slow.is_alive()
    slow.join(5)
    assert slow.result is None and time.monotonic() - start >= 0.35


def test_hung_read(sim):
    sim.ctl("set", "sysfs.read_hang", 1, "--gpu", PF)
    hung = [background(sim.read, vf, "current_vgpu_type") for vf in (VF, VF2)]
    wait_for(lambda: sim.counters()["attr_reads"] == 2)
    assert sim.read(OTHER, "current_vgpu_type") == "0\n"
    sim.write(VF, "current_vgpu_type", L40S_4Q)
    assert all(t.is_alive() for t in hung)
    sim.ctl("set", "sysfs.read_hang", 0, "--gpu", PF)
    for thread in hung:
        thread.join(5)
        assert thread.result is None


def test_hung_write_lands_late_though_its_caller_is_dead(sim):
    sim.ctl("set", "sysfs.write_hang", 1, "--vf", VF)
    path = sim.attribute(VF, "current_vgpu_type")
    writer = subprocess.Popen(["sh", "-c", f"echo {L40S_4Q} > {path}"])
    wait_for(lambda: sim.counters()["attr_writes"] == 1)
    writer.kill()
    assert sim.vf(VF)["type"] == 0
    sim.ctl("set", "sysfs.write_hang", 0, "--vf", VF)
    writer.wait(timeout=5)
    assert sim.vf(VF)["type"] == L40S_4Q


def test_hung_requests_do_not_keep_the_simulator(start_sim):
    sim = start_sim()
    sim.ctl("set", "sysfs.read_hang", 1)
    hung = background(sim.read, VF, "current_vgpu_type")
    wait_for(lambda: sim.counters()["attr_reads"] == 1)
    assert sim.stop() == 0
    hung.join(5)
    assert hung.result not in (None, "not done")


def test_for_seconds(sim):
    sim.ctl("set", "sysfs.read_errno", "EIO")
    sim.ctl("set", "sysfs.read_errno", "EACCES", "--for", "0.2")
    assert errno_of(sim.read, VF, "current_vgpu_type") == "EACCES"
    wait_for(lambda: errno_of(sim.read, VF, "current_vgpu_type") == "EIO")
    # Two ends that overlap: what was before the first comes back.
    for _ in range(2):
        sim.ctl("set", "sysfs.read_errno", "EACCES", "--for", "0.1")
    wait_for(lambda: errno_of(sim.read, VF, "current_vgpu_type") == "EIO")
    # A later command makes the earlier end void, also that of a narrower place.
    sim.ctl("set", "sysfs.release_errno", "EBUSY", "--vf", VF, "--for", "0.05")
    sim.ctl("set", "sysfs.release_errno", "EROFS")
    sim.ctl("set", "sysfs.read_hang", 1, "--vf", VF2, "--for", "0.2")
    sim.ctl("set", "sysfs.read_hang", 0, "--vf", VF2)
    sim.ctl("set", "sysfs.read_errno", 0)
    sim.ctl("set", "sysfs.write_hang", 1, "--vf", VF, "--for=0.2")
    sim.write(VF, "current_vgpu_type", L40S_4Q)
    assert sim.vf(VF)["type"] == L40S_4Q
    assert errno_of(sim.write, VF, "current_vgpu_type", 0) == "EROFS"


def test_ghost(sim):
    sim.write(VF, "current_vgpu_type", L40S_4Q)
    sim.ctl("set", "nvml.ghost", 1)
    sim.write(VF, "current_vgpu_type", 0)
    sim.write(VF, "current_vgpu_type", L40S_4Q)
    assert sim.vf(VF)["placement"] == 8
    sim.ctl("set", "nvml.ghost", 0)
    sim.write(VF2, "current_vgpu_type", L40S_4Q)
    assert sim.vf(VF2)["placement"] == 0


# --- events ------------------------------------------------------------------------------------


def test_sriov_cycle(sim):
    sim.ctl("configure", VF, "L40S-4Q")
    sim.ctl("wedge", VF)
    holder = os.open(sim.dev / "nvidia0", os.O_RDWR)
    refused = sim.ctl("sriov", "-d", PF, check=False)
    assert (refused.returncode, refused.stderr) == (1, f"berth-sim ctl: Cannot obtain unbindLock for {PF}\n")
    os.close(holder)
    assert sim.ctl("sriov", "-d", PF) == f"Disabling VFs on {PF}\n"
    assert sim.card()["vfs"] == [] and not (sim.sys / "bus/pci/devices" / VF).exists()
    assert (sim.sys / f"bus/pci/devices/{PF}/sriov_numvfs").read_text() == "0\n"
    script = subprocess.run([sim.root / "sriov-manage", "-e", PF], capture_output=True, text=True)
    assert (script.returncode, script.stdout) == (0, f"Enabling VFs on {PF}\n")
    card = sim.card()
    assert len(card["vfs"]) == 32 and card["mode"] == "equal"
    assert (card["vfs"][0]["type"], card["vfs"][0]["wedged"]) == (0, False)
    assert sim.card(1)["mode"] == "mixed"
    assert "already" in sim.ctl("sriov", "-e", PF)


def test_sriov_while_a_vm_runs(sim):
    sim.ctl("configure", VF, "L40S-4Q")
    sim.boot(VF)
    assert sim.ctl("sriov", "-d", PF, check=False).returncode == 1


def test_numvfs_blocks_during_a_run(sim):
    sim.ctl("set", "sriov.latency_ms", 300)
    run = background(sim.ctl, "sriov", "-d", PF)
    wait_for(lambda: sim.card()["sriov_busy"])
    assert not (sim.sys / f"bus/pci/devices/{PF}/driver").exists()
    start = time.monotonic()
    assert (sim.sys / f"bus/pci/devices/{PF}/sriov_numvfs").read_text() == "0\n"
    assert time.monotonic() - start > 0.05
    run.join(5)
    assert run.result is None and (sim.sys / f"bus/pci/devices/{PF}/driver").exists()


def test_remove_and_restore(sim):
    sim.ctl("configure", VF, "L40S-4Q")
    pid = sim.boot(VF)
    sim.ctl("remove", PF)
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"))
    assert not (sim.dev / "nvidia0").exists() and (sim.dev / "nvidia1").exists()
    assert len(list((sim.sys / "bus/pci/devices").iterdir())) == 33
    sim.ctl("restore", PF)
    assert sim.vf(VF)["type"] == 0 and sim.card()["mode"] == "mixed"
    sim.ctl("remove", VF)
    assert not (sim.sys / "bus/pci/devices" / VF).exists()
    assert not os.path.lexists(sim.sys / f"bus/pci/devices/{PF}/virtfn0")
    sim.ctl("restore", VF)
    assert sim.read(VF, "current_vgpu_type") == "0\n"


def test_reboot(sim):
    before = sim.state()["boot_id"]
    sim.ctl("configure", VF, "L40S-4Q")
    pid = sim.boot(VF)
    holder = os.open(sim.dev / "nvidia0", os.O_RDWR)
    sim.ctl("reboot")
    state = sim.state()
    assert state["boot_id"] != before and (sim.root / "boot_id").read_text().strip() == state["boot_id"]
    assert [c["vfs"] for c in state["cards"]] == [[], []]
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"))
    # Handles of the former boot hold nothing.
    sim.ctl("sriov", "-e", PF)
    os.close(holder)
    assert sim.card()["mode"] == "equal" and sim.vf(VF)["type"] == 0 and sim.card()["node_handles"] == 0
    sim.ctl("set", "mode", "mixed", "--gpu", PF)
    assert sim.card()["mode"] == "mixed"


def test_mode(sim):
    sim.ctl("set", "mode", "equal")
    assert [c["mode"] for c in sim.state()["cards"]] == ["equal", "equal"]
    sim.ctl("configure", VF, "L40S-4Q")
    assert set(sim.listed(VF2).values()) == {"NVIDIA L40S-4Q", "NVIDIA L40S-4A"}
    assert errno_of(sim.write, VF2, "current_vgpu_type", L40S_2Q) == "EIO"
    with pytest.raises(CtlError, match="In use by another client"):
        sim.ctl("set", "mode", "mixed", "--gpu", PF)
    assert sim.card()["mode"] == "equal"


def test_equal_mode_on_old_boards(start_sim):
    sim = start_sim("--model", "a40", "--mode", "equal", "--cards", 1)
    sim.ctl("configure", VF, "A40-4Q")
    assert sim.vf(VF)["placement"] is None and sim.read(VF, "placement_id") == "Not Applicable\n"
    assert errno_of(sim.write, VF, "placement_id", 0) == "EIO"


def test_mig(start_sim):
    sim = start_sim("--model", "h100-80", "--mode", "mig", "--cards", 1)
    assert set(sim.listed(VF).values()) == {"NVIDIA H100-3-40C", "NVIDIA H100-2-20C", "NVIDIA H100-1-10C"}
    sim.ctl("configure", VF, "H100-2-20C")
    assert sim.read(VF, "gpu_instance_id") == "2\n"
    with pytest.raises(CtlError, match="EIO"):
        sim.ctl("configure", VF2, "H100-2-20C")
    sim.ctl("configure", VF, 0)
    sim.ctl("gi", PF, "7g.80gb")
    assert set(sim.listed(VF).values()) == {"NVIDIA H100-7-80C"}


def test_rebind(sim):
    sim.ctl("configure", VF, "L40S-4Q")
    sim.ctl("rebind", VF, "vfio-pci")
    folder = sim.sys / "bus/pci/devices" / VF
    assert os.readlink(folder / "driver").endswith("vfio-pci") and not (folder / "nvidia").exists()
    assert [p.name for p in (sim.sys / "bus/pci/drivers/vfio-pci").iterdir()] == [VF]
    sim.ctl("rebind", VF, "nvidia")
    assert errno_of(sim.write, VF, "current_vgpu_type", L40S_4Q) == "EINVAL"
    sim.ctl("sriov", "-d", PF)
    sim.ctl("sriov", "-e", PF)
    sim.write(VF, "current_vgpu_type", L40S_4Q)


def test_flap(sim):
    sim.ctl("configure", VF, "L40S-4Q")
    flap = background(sim.ctl, "flap", PF, "--hz", 200, "--for", "0.5")
    seen = set()
    while flap.is_alive():
        seen.add(os.path.exists(sim.attribute(VF2, "current_vgpu_type")))
    assert flap.result is None and seen == {True, False}
    assert len(sim.card()["vfs"]) == 32 and sim.vf(VF)["type"] == L40S_4Q


def test_shared_iommu_group(sim):
    group = sim.vf(VF)["group"]
    sim.ctl("group", VF2, group)
    folder = sim.sys / f"kernel/iommu_groups/{group}/devices"
    assert {p.name for p in folder.iterdir()} == {VF, VF2}
    sim.ctl("configure", VF2, "L40S-2Q")
    fd = os.open(sim.dev / f"vfio/{group}", os.O_RDWR)
    assert sim.vf(VF2)["open"]
    os.close(fd)
    assert not sim.vf(VF2)["open"]


# --- guests ------------------------------------------------------------------------------------

STAMP = r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[guest-agent\] "
TS = r"ts=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"
OK = re.compile(STAMP + r"BERTH-GPU-INIT-OK " + TS)
FAILED = re.compile(STAMP + r"BERTH-GPU-INIT-FAILED " + TS + r' nvrm="NVRM: [^"]*RmInitAdapter failed![^"]*"')


def markers(path):
    return [line for line in path.read_text().splitlines() if "GPU-INIT" in line] if path.exists() else []


@pytest.mark.parametrize("node", ["group", "cdev", "both"])
def test_guest(sim, node):
    console = sim.root / "console" / "vm.log"
    sim.ctl("configure", VF, "L40S-4Q")
    start = time.monotonic()
    pid = sim.boot(VF, "--console", console, "--init-ms", 300, "--node", node)
    assert time.monotonic() - start < 0.3
    vf = sim.vf(VF)
    assert vf["open"] and vf["instance"]["pid"] == pid and vf["instance"]["id"] >= 0xC0000000
    assert not vf["instance"]["driver_loaded"]
    assert errno_of(sim.write, VF, "current_vgpu_type", 0) == "EPERM"
    links = [os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")]
    assert len([link for link in links if "/dev/vfio/" in link]) == (2 if node == "both" else 1)
    wait_for(lambda: markers(console))
    assert len(markers(console)) == 1 and OK.fullmatch(markers(console)[0])
    assert sim.vf(VF)["instance"]["driver_loaded"]
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not sim.vf(VF)["open"])
    vf = sim.vf(VF)
    assert (vf["instance"], vf["wedged"], vf["type"], vf["placement"]) == (None, False, L40S_4Q, 0)
    sim.write(VF, "current_vgpu_type", 0)


def test_kill_in_the_window_wedges(sim):
    console = sim.root / "console" / "vm.log"
    sim.ctl("configure", VF, "L40S-4Q")
    os.kill(sim.boot(VF), signal.SIGKILL)
    wait_for(lambda: sim.vf(VF)["wedged"])
    sim.write(VF, "current_vgpu_type", 0)
    sim.write(VF, "current_vgpu_type", L40S_4Q)
    pid = sim.boot(VF, "--console", console, "--init-ms", 50, "--prefix", "HYPEMAN")
    wait_for(lambda: len(markers(console)) == 3)
    lines = markers(console)
    assert len(set(lines)) == 1 and FAILED.fullmatch(lines[0].replace("HYPEMAN", "BERTH"))
    assert any(re.match(r"\[ *\d+\.\d+\] NVRM: .*RmInitAdapter failed!", line)
               for line in console.read_text().splitlines())
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not sim.vf(VF)["open"])
    assert sim.vf(VF)["wedged"]


def test_what_does_not_wedge(sim):
    for vf in (VF, VF2):
        sim.ctl("configure", vf, "L40S-4Q")
    os.kill(sim.boot(VF), signal.SIGTERM)  # a clean stop inside the window
    pid = sim.boot(VF2, "--init-ms", 20)  # a hard one behind it
    wait_for(lambda: sim.vf(VF2)["instance"]["driver_loaded"])
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not sim.vf(VF)["open"] and not sim.vf(VF2)["open"])
    assert not sim.vf(VF)["wedged"] and not sim.vf(VF2)["wedged"]


def test_guests_end_with_the_simulator(start_sim):
    sim = start_sim()
    sim.ctl("configure", VF, "L40S-4Q")
    pid = sim.boot(VF)
    assert sim.ctl("boot", VF, check=False).returncode == 1
    assert sim.stop() == 0
    assert not os.path.exists(f"/proc/{pid}")
