#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures berth against its targets for speed, as ratios of things measured in one run.

Writes one JSON file and prints a table. Needs root (it mounts the simulator) and a finished build.
A missed target is no error unless --strict is given.
"""
import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

import churn
import claims
import footprint
import health
import inventory
import placement
import report
import resources
from host import BenchError, terminate_on_signals

MEASUREMENTS = {"claims": claims, "resources": resources, "inventory": inventory,
                "footprint": footprint, "health": health, "placement": placement,
                "churn": churn}


# Of a reference that always does the same; above it the ratios say little.
NOISE_LIMIT = 1.5


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default="build", help="build folder (build)")
    parser.add_argument("--out", type=pathlib.Path, help="JSON file (BUILD/bench/bench.json)")
    parser.add_argument("--only", action="append", choices=MEASUREMENTS, default=[],
                        help="measure just this; may be repeated")
    parser.add_argument("--rounds", type=int, default=30, help="repetitions of each pair (30)")
    parser.add_argument("--idle-seconds", type=int, default=20, help="how long to watch it idle (20)")
    parser.add_argument("--churn-arrivals", type=int, default=600,
                        help="claims in one run of churn through the daemon (600)")
    parser.add_argument("--churn-seeds", type=int, default=10, help="runs of each policy and mix (10)")
    parser.add_argument("--churn-burst-claims", type=int, default=128,
                        help="claims measured in bursts of each size, about (128)")
    parser.add_argument("--work", type=pathlib.Path, default="/tmp",
                        help="where the simulated hosts and databases lie (/tmp)")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args()
    options.build = options.build.resolve()
    options.out = options.out or options.build / "bench/bench.json"
    return options


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def file_system(path):
    done = subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True,
                          check=False)
    return done.stdout.strip()


def machine(options):
    return {"cpu": cpu_model(), "cpus": os.cpu_count(), "kernel": platform.release(),
            "file_system": file_system(options.work), "load_before": os.getloadavg()[0]}


def print_checks(checks):
    for check in checks:
        verdict = "ok" if check.passed else "MISSED"
        print(f"  {check.name:<12} {check.value:>9.3f} {check.relation} {check.target:<6g}"
              f" {check.unit:<3} {verdict:<7} {check.what}", flush=True)


def print_series(figures):
    """The series behind the ratios: p10, median and p90 of each."""
    for name, series in figures.items():
        if isinstance(series, dict) and "median" in series:
            print(f"    {name:<18} {series['p10']:>12g} {series['median']:>12g} {series['p90']:>12g}"
                  f" {figures['unit']}", flush=True)
    if figures.get("noise", 1) > NOISE_LIMIT:
        print(f"  The machine was busy with other things: the reference varied by {figures['noise']:g}.",
              flush=True)


def main():
    options = parse_arguments()
    terminate_on_signals()
    facts = machine(options)
    results, checks, failed = {}, [], []
    for name, module in MEASUREMENTS.items():
        if options.only and name not in options.only:
            continue
        print(f"{name}: {module.__doc__.splitlines()[0]}", flush=True)
        begun = time.monotonic()
        try:
            result = module.run(options)
        except (BenchError, OSError, subprocess.SubprocessError) as e:
            print(f"  not measured: {e}", flush=True)
            failed.append(name)
            continue
        print_checks(result["checks"])
        print_series(result["figures"])
        checks += result["checks"]
        results[name] = {"seconds": round(time.monotonic() - begun, 1), **result["figures"]}
    facts["load_after"] = os.getloadavg()[0]
    missed = [c.name for c in checks if not c.passed]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(
        {"machine": facts, "rounds": options.rounds, "checks": [c.as_json() for c in checks],
         "missed": missed, "not_measured": failed, "figures": results}, indent=1) + "\n")
    report.write(options.out.with_suffix(".html"), json.loads(options.out.read_text()))
    print(f"{len(checks) - len(missed)} of {len(checks)} targets met"
          f"{', not measured: ' + ' '.join(failed) if failed else ''}; {options.out}")
    return 1 if failed or (options.strict and missed) else 0


if __name__ == "__main__":
    sys.exit(main())
