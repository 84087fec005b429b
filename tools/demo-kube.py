#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The device plugin on a simulated two-card L40S host with a fake kubelet: what it offers, a profile that is
configured later, an allocation, a kubelet restart. Leaves nothing behind."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

BIN = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/bin").resolve()
os.environ["BERTH_BIN"] = str(BIN)
sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/system"))

from conftest import Sim  # noqa: E402
from fake_kubelet import FakeKubelet  # noqa: E402
from plugin_host import Q2, Q4, Plugin  # noqa: E402


def say(text):
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def until(condition, what, seconds=15):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"demo: waited in vain for {what}")
        time.sleep(0.02)


def show(kubelet):
    for resource in sorted(kubelet.endpoints):
        healthy = kubelet.healthy(resource)
        print(f"  {resource}: {len(healthy)} allocatable: {' '.join(healthy)}")


def demo(root, sim, kubelet, stack):
    say("Three VFs are configured: two L40S-4Q, one L40S-2Q. What the plugin would offer:")
    for vf, profile in (("0000:41:00.4", "L40S-4Q"), ("0000:41:00.5", "L40S-4Q"), ("0000:81:00.4", "L40S-2Q")):
        sim.ctl("configure", vf, profile)
    places = ["--sysfs-root", sim.sys, "--dev-root", sim.dev, "--nvml-library", ""]
    subprocess.run([BIN / "berth-device-plugin", "--list", *places], check=True)

    say("The plugin starts, with rescans every 5 s; it serves, registers, and lists at once")
    plugin = Plugin(root, sim.sys, sim.dev, root / "device-plugins", env={"VFIO_VGPU_RESCAN_INTERVAL": "5s"})
    stack.append(plugin)
    until(lambda: kubelet.healthy(Q4) and kubelet.healthy(Q2), "the first lists")
    show(kubelet)

    say("Somebody configures an L40S-8Q and one more L40S-4Q: no restart, the next scan finds them")
    first = kubelet.endpoints[Q4]
    sim.ctl("configure", "0000:81:00.5", "L40S-8Q")
    sim.ctl("configure", "0000:41:00.6", "L40S-4Q")
    start = time.monotonic()
    until(lambda: "nvidia.com/NVIDIA_L40S-8Q" in kubelet.endpoints and len(kubelet.healthy(Q4) or []) == 3,
          "the new profile")
    print(f"  after {time.monotonic() - start:.1f} s; L40S-4Q was updated in place: {first is kubelet.endpoints[Q4]}")
    show(kubelet)

    say("A pod with two L40S-4Q is admitted")
    ids = kubelet.preferred(Q4, kubelet.healthy(Q4), 2)
    print(f"  preferred: {' '.join(ids)}")
    [(env, nodes)] = kubelet.allocate(Q4, ids)
    for name, value in env.items():
        print(f"  env   {name}={value}")
    for node in nodes:
        print(f"  node  {node}")
    kubelet.pre_start(Q4, ids)

    say("A device whose type was cleared behind everybody's back is refused, with the reason")
    sim.ctl("configure", "0000:41:00.6", 0)
    print("  {}: {}".format(*kubelet.refusal(Q4, ["0000:41:00.6"])))

    say("The kubelet restarts and wipes all sockets")
    kubelet.restart(down=1)
    start = time.monotonic()
    until(lambda: len(kubelet.endpoints) == 3 and all(kubelet.healthy(r) for r in kubelet.endpoints), "registration")
    print(f"  all registered and listed {time.monotonic() - start:.1f} s after it was back")
    show(kubelet)

    say("What KubeVirt must permit")
    subprocess.run([BIN / "berth-device-plugin", "--print-permitted", *places], check=True)
    print(f"\nreadyz: {plugin.get('/readyz')[1].strip()}")


def main():
    root = pathlib.Path(tempfile.mkdtemp(prefix="berth-demo-"))
    (root / "device-plugins").mkdir()
    sim = kubelet = None
    stack = []
    try:
        say("A simulated host with two L40S cards (32 VFs each), and a fake kubelet")
        sim = Sim(root / "host", "--nvml-latency", 0)
        kubelet = FakeKubelet(root / "device-plugins").start()
        demo(root, sim, kubelet, stack)
        status = stack[0].stop()
        say(f"SIGTERM: the plugin ended with status {status}; its sockets left: "
            f"{len(list((root / 'device-plugins').glob('berth-*')))}")
    except BaseException:
        for plugin in stack:
            print(plugin.log(), file=sys.stderr)
        raise
    finally:
        for plugin in stack:
            plugin.stop()
        if kubelet:
            kubelet.stop()
        if sim:
            sim.stop()
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
