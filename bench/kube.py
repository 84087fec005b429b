#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the device plugin against its targets, as ratios and sizes of one run.

16 cards of 48 VFs (784 functions) on the simulator, a fake kubelet: a rescan and an allocation against the
bare system calls that they need (bench/kube-bare.c), memory with all helpers, and what many kubelet restarts
leave behind. Writes one JSON file and prints a table. Needs root and a finished build.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
CARDS, VFS, CONFIGURED = 16, 48, 24  # VFs per card, and of these with a type
SMALLEST = "NVIDIA RTX Pro 6000 Blackwell DC-2B"
RESOURCE = "nvidia.com/" + SMALLEST.replace(" ", "_")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--restarts", type=int, default=100)
    parser.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args()
    options.build = options.build.resolve()
    options.out = options.out or options.build / "bench/kube.json"
    return options


def descendants(pid):
    found = [pid]
    for task in os.listdir(f"/proc/{pid}/task"):
        children = pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split()
        found += [p for child in children for p in descendants(int(child))]
    return found


def proportional_kb(pid):
    return int(re.search(r"^Pss:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)[1])


def bare(tool, sim, *what):
    done = subprocess.run([tool, sim.sys, sim.dev, "1", *what], capture_output=True, text=True, check=True)
    return float(done.stdout)


def until(condition, what, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"bench: waited in vain for {what}")
        time.sleep(0.005)


def measure_scans(options, tool, sim, plugin):
    """Pairs, one after the other, so that the machine's other load meets both."""
    bares, scans = [], []
    for _ in range(options.rounds):
        bares.append(bare(tool, sim, "scan"))
        before = plugin.metrics()["berth_plugin_scan_seconds_sum"]
        plugin.rescan()
        scans.append((plugin.metrics()["berth_plugin_scan_seconds_sum"] - before) * 1e6)
    return bares, scans


def measure_allocations(options, tool, sim, plugin, kubelet, vfs):
    bares, server, client = [], [], []
    for i in range(options.rounds * 4):
        vf = vfs[i % len(vfs)]
        bares.append(bare(tool, sim, vf))
        before = plugin.metrics()["berth_plugin_allocation_seconds_sum"]
        start = time.monotonic()
        kubelet.allocate(RESOURCE, [vf])
        client.append((time.monotonic() - start) * 1e6)
        server.append((plugin.metrics()["berth_plugin_allocation_seconds_sum"] - before) * 1e6)
    return bares, server, client


def state_of(plugin):
    pids = descendants(plugin.process.pid)
    return {"descriptors": sum(len(os.listdir(f"/proc/{p}/fd")) for p in pids),
            "threads": sum(len(os.listdir(f"/proc/{p}/task")) for p in pids),
            "kb": sum(proportional_kb(p) for p in pids), "processes": len(pids)}


def measure_restarts(options, plugin, kubelet, n):
    def restart(times):
        for _ in range(times):
            kubelet.restart()
            until(lambda: len(kubelet.healthy(RESOURCE) or []) == n, "the list after a restart")
    restart(10)  # buffers reach their size
    before = state_of(plugin)
    restart(options.restarts)
    return before, state_of(plugin)


def run(options, root):
    sys.path.insert(0, str(HERE.parent / "tests/system"))
    from conftest import Sim
    from fake_kubelet import FakeKubelet
    from plugin_host import Plugin

    tool = root / "kube-bare"
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-D_GNU_SOURCE", "-o", tool, HERE / "kube-bare.c"], check=True)
    (root / "device-plugins").mkdir()
    sim = Sim(root / "host", "--cards", CARDS, "--model", "rtx-pro-6000", "--vfs", VFS, "--nvml-latency", 0)
    kubelet = FakeKubelet(root / "device-plugins").start()
    plugin = None
    try:
        vfs = []
        for card in sim.state()["cards"]:
            first = card["vfs"][0]["address"]
            number = next(i for i, name in sim.listed(first).items() if name == SMALLEST)
            for vf in card["vfs"][:CONFIGURED]:
                sim.write(vf["address"], "current_vgpu_type", number)
                vfs.append(vf["address"])
        plugin = Plugin(root, sim.sys, sim.dev, root / "device-plugins")
        until(lambda: len(kubelet.healthy(RESOURCE) or []) == len(vfs), "the first list")
        scans = measure_scans(options, tool, sim, plugin)
        allocations = measure_allocations(options, tool, sim, plugin, kubelet, vfs)
        memory = state_of(plugin)
        before, after = measure_restarts(options, plugin, kubelet, len(vfs))
    finally:
        if plugin:
            plugin.stop()
        kubelet.stop()
        sim.stop()
    return report(scans, allocations, memory, before, after)


def report(scans, allocations, memory, before, after):
    median = statistics.median
    checks = [
        ("rescan", median(scans[1]) / median(scans[0]), 2, "x", "784 functions, against the bare calls"),
        ("allocate", median(allocations[1]) / median(allocations[0]), 3, "x", "one VF, in the plugin"),
        ("memory", memory["kb"] / 1024, 8, "MB", f"proportional, {memory['processes']} processes"),
        ("descriptors", after["descriptors"] - before["descriptors"], 0, "", "more after the kubelet restarts"),
        ("threads", after["threads"] - before["threads"], 0, "", "more after the kubelet restarts"),
        ("growth", (after["kb"] - before["kb"]) / 1024, 0.25, "MB", "more after the kubelet restarts"),
    ]
    return {"checks": [{"name": n, "value": round(v, 3), "target": t, "unit": u, "passed": v <= t, "what": w}
                       for n, v, t, u, w in checks],
            "medians_usec": {"bare_scan": median(scans[0]), "scan": median(scans[1]),
                             "bare_allocate": median(allocations[0]), "allocate": median(allocations[1]),
                             "allocate_over_grpc_python": median(allocations[2])},
            "memory": memory, "before_restarts": before, "after_restarts": after, "load": os.getloadavg()[0]}


def main():
    options = parse_arguments()
    os.environ["BERTH_BIN"] = str(options.build / "bin")
    root = pathlib.Path(tempfile.mkdtemp(prefix="berth-bench-"))
    try:
        result = run(options, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    for c in result["checks"]:
        print(f"  {c['name']:<12} {c['value']:>9.3f} <= {c['target']:<6g} {c['unit']:<3} "
              f"{'ok' if c['passed'] else 'MISSED':<7} {c['what']}")
    print("  medians, microseconds: " + ", ".join(f"{k} {v:.0f}" for k, v in result["medians_usec"].items()))
    return int(options.strict and not all(c["passed"] for c in result["checks"]))


if __name__ == "__main__":
    sys.exit(main())
