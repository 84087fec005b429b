#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How much memory each placement policy serves under churn, over the model, with paired seeds.

By itself it turns the output of bench-placement-churn into the tables of docs/placement.md:
placement.py RESULTS.jsonl
"""
import collections
import json
import math
import statistics
import subprocess
import sys

from host import BenchError
from stats import Check

CARDS = (1, 2, 4, 8, 16)
MIXES = ("small", "office", "broad", "bimodal")
DEFAULT, UPSTREAM, BASE = "foresight", "least_loaded", "least_waste"


def by_cell(lines):
    """{(rule, cards, mix, load): [runs by seed]}"""
    cells = collections.defaultdict(list)
    for line in lines:
        run = json.loads(line)
        cells[run["rule"], run["cards"], run["mix"], run["load"]].append(run)
    return cells


def points(cells, rule, base, cards, mix, load):
    """Points of memory that a rule serves more than another: mean over paired seeds, and two standard
    errors of it."""
    pairs = zip(cells[rule, cards, mix, load], cells[base, cards, mix, load])
    differences = [100 * (a["gb"] - b["gb"]) for a, b in pairs]
    noise = 2 * statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else 0
    return statistics.mean(differences), noise


def mean_gb(cells, rule, cards, mix, load):
    return 100 * statistics.mean(r["gb"] for r in cells[rule, cards, mix, load])


def run(options):
    done = subprocess.run([options.build / "bench/bench-placement-churn", "--cards", ",".join(map(str, CARDS)),
                           "--rules", f"{DEFAULT},{UPSTREAM},{BASE},bound"],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"bench-placement-churn: {done.stderr}")
    cells = by_cell(done.stdout.splitlines())
    worst = min(points(cells, DEFAULT, UPSTREAM, cards, mix, 0.8)[0]
                for cards in CARDS if cards > 1 for mix in MIXES)
    choices = [r["choice_nsec"] / 1000 for key, runs in cells.items() for r in runs if key[:2] == (DEFAULT, 16)]
    figures = {"load": 0.8, "seeds": 10, "gb_served_percent": {
        rule: {mix: {cards: round(mean_gb(cells, rule, cards, mix, 0.8), 2) for cards in CARDS} for mix in MIXES}
        for rule in (UPSTREAM, BASE, DEFAULT, "bound")}}
    return {"figures": figures, "checks": [
        Check("model-broad", f"{DEFAULT} - {UPSTREAM}, 8 cards, broad mix, load 0.8",
              points(cells, DEFAULT, UPSTREAM, 8, "broad", 0.8)[0], ">=", 8, "pt"),
        Check("model-bimod", f"{DEFAULT} - {UPSTREAM}, 8 cards, bimodal mix, load 0.8",
              points(cells, DEFAULT, UPSTREAM, 8, "bimodal", 0.8)[0], ">=", 8, "pt"),
        Check("model-worst", f"{DEFAULT} - {UPSTREAM}, the worst of all mixes on 2 to 16 cards",
              worst, ">=", -0.5, "pt"),
        Check("choice", f"one choice by {DEFAULT} among 16 cards, median over runs of the mean",
              statistics.median(choices), "<=", 50, "us"),
    ]}


def print_tables(path):
    with open(path, encoding="utf-8") as f:
        cells = by_cell(f)
    rules = list(dict.fromkeys(key[0] for key in cells))
    loads = sorted({key[3] for key in cells})
    for load in loads:
        print(f"\nLoad {load:g}\n\n| | " + " | ".join(f"{mix} {'/'.join(map(str, CARDS))}" for mix in MIXES) + " |")
        print("|---" * (len(MIXES) + 1) + "|")
        for rule in (UPSTREAM, BASE, DEFAULT, "bound"):
            print(f"| {rule} | " + " | ".join(
                " / ".join(f"{mean_gb(cells, rule, c, mix, load):.1f}" for c in CARDS) for mix in MIXES) + " |")
    print("\n| rule | mean | worst cell | beyond noise | " + " | ".join(MIXES) + " | 1 card bimodal |")
    print("|---" * (len(MIXES) + 5) + "|")
    for rule in rules:
        every = {(c, m, load): points(cells, rule, BASE, c, m, load) for c in CARDS for m in MIXES for load in loads}
        worse = sum(mean < -max(noise, 0.1) for mean, noise in every.values())
        at, (low, _) = min(every.items(), key=lambda item: item[1][0])
        print(f"| {rule} | {statistics.mean(m for m, _ in every.values()):+.2f} | "
              f"{low:+.2f} ({at[0]}, {at[1]}, {at[2]:g}) | {worse} | "
              + " | ".join(f"{statistics.mean(v[0] for k, v in every.items() if k[1] == m):+.2f}" for m in MIXES)
              + f" | {every[1, 'bimodal', 0.8][0]:+.2f} |")


if __name__ == "__main__":
    print_tables(sys.argv[1])
