# SPDX-License-Identifier: Apache-2.0
"""Claims under churn through the real daemon: memory served, wrong refusals, latencies, cost.

The policies take turns on hosts of their own, with the same arrivals. Bursts of so many claims at the
same time are set beside what none can do without, and beside berthd when it asks NVML for each claim.
"""
import json
import statistics

import footprint
from host import BenchError, Tool, running_host, wait_for
from stats import Check, percentile, summary

POLICIES = ("foresight", "least_loaded")
MIXES = ("broad", "bimodal")
SCALES = (1, 4, 16)
CLIENTS = (1, 8, 32, 128)
SERVED_CARDS = 8
LATENCY_MS = 20
BURST_PROFILE = "L40S-1Q"  # 16 on each card
GET_MSEC = 300


def churn(tool, clients, cards, mix, arrivals, seed, prefix):
    result = tool.ask(f"{clients} {cards} {mix} 0.8 {arrivals} {seed} {prefix}")
    result["seconds"] = round(result.pop("usec") / 1e6, 2)
    return result


# --- Memory served: one client, the order of the model ----------------------------------------------

def served(options, failures):
    """{mix: {policy: [percent of the memory asked for, by seed]}}; without latency of NVML, which
    changes nothing about what is served."""
    percent = {mix: {policy: [] for policy in POLICIES} for mix in MIXES}
    for policy in POLICIES:
        with running_host(options, cards=SERVED_CARDS, latency_ms=0,
                          settings={"gpu": {"placement_policy": policy}}) as host, \
                Tool(options.build, "churn", host.socket) as tool:
            for mix in MIXES:
                for seed in range(1, options.churn_seeds + 1):
                    result = churn(tool, 4, SERVED_CARDS, mix, options.churn_arrivals, seed, f"{mix}{seed}")
                    failures.append(result)
                    percent[mix][policy].append(100 * result["served_gb"] / result["asked_gb"])
    return percent


# --- Scales: as many clients as come, GETs beside them ------------------------------------------------

def cost(host):
    return sum(footprint.run_nsec(pid) for pid in host.processes()) / 1e9


def at_scale(options, cards, failures):
    figures = {}
    with running_host(options, cards=cards, latency_ms=LATENCY_MS) as host, \
            Tool(options.build, "churn", host.socket) as tool:
        for clients in CLIENTS:
            before = cost(host)
            tool.send(f"{clients} {cards} broad 0.8 {options.churn_arrivals} 1 n{clients}")
            with Tool(options.build, "load", host.socket, 2) as load:
                gets = load.ask(f"/resources {GET_MSEC}")
            result = tool.answer()
            failures.append(result)
            figures[clients] = {
                "claims_accepted": result["accepted"], "gb_served": result["served_gb"],
                "gb_asked": result["asked_gb"], "refused": result["refused"],
                "refused_while_free": result["refused_while_free"], "late_releases": result["late_releases"],
                "failed": result["failed"], "connections_in_use": result["mean_busy"],
                "claim_median_ms": result["claim_median_usec"] / 1000,
                "claim_p99_ms": result["claim_p99_usec"] / 1000,
                "gets_a_second": round(gets["requests"] / gets["usec"] * 1e6),
                "claims_a_second": round(result["arrivals"] / result["usec"] * 1e6, 1),
                "cpu_ms_a_claim": round(1000 * (cost(host) - before) / result["arrivals"], 2),
                "memory_mb": footprint.memory(host)["mb"],
            }
            host.settle()
    return figures


# --- Bursts: exactly so many at the same time, and the peers -------------------------------------------

def bursts(options, cards, environment=None):
    """{clients: [milliseconds of each claim]}, and of the floor under one claim."""
    each, floor_ms = {}, []
    with running_host(options, cards=cards, latency_ms=LATENCY_MS, environment=environment) as host, \
            Tool(options.build, "floor", host.settings["nvml_library"], host.root / "floor.db",
                 *host.card_addresses()) as floor, \
            Tool(options.build, "burst", host.socket) as burst:
        for clients in CLIENTS:
            if clients > 16 * cards:
                continue
            each[clients] = []
            for _ in range(max(2, options.churn_burst_claims // clients)):
                bare = floor.ask()
                floor_ms.append((bare["sweep_usec"] + bare["commits_usec"]) / 1000)
                answer = burst.ask(f"PUT {clients} b {BURST_PROFILE}")
                if any(s != 201 for s in answer["statuses"]):
                    raise BenchError(f"burst of {clients}: {answer['statuses']}")
                each[clients] += [usec / 1000 for usec in answer["each_usec"]]
                host.settle()
                burst.ask(f"DELETE {clients} b")
                # Some of many releases take more than a second: 202, and the name is not free yet.
                wait_for(lambda: not json.loads(host.get("/claims")[1])["claims"], "the releases to end")
                host.settle()
    return each, floor_ms


def run(options):
    failures = []
    percent = served(options, failures)
    scales = {cards: at_scale(options, cards, failures) for cards in SCALES}
    each, floor_ms = bursts(options, 16)
    alone, _ = bursts(options, 16, {"BERTH_ONE_QUERY_PER_CLAIM": "1"})
    gain = {mix: [a - b for a, b in zip(percent[mix][POLICIES[0]], percent[mix][POLICIES[1]])] for mix in MIXES}
    wrong = sum(r["refused_while_free"] for r in failures)
    asked = sum(r["arrivals"] for r in failures)
    checks = [Check(f"gb-{mix}", f"{POLICIES[0]} - {POLICIES[1]}, {SERVED_CARDS} cards, load 0.8, through berthd",
                    statistics.mean(gain[mix]), ">=", 8, "pt") for mix in MIXES]
    checks += [
        Check("refusals", f"of {asked} claims refused while a placement was free", wrong, "<=", 0),
        Check("errors", "answers that were neither a claim nor a refusal", sum(r["failed"] for r in failures), "<=", 0),
        Check("shared", "median of 32 claims at the same time / with one query for each",
              percentile(each[32], 50) / percentile(alone[32], 50), "<=", 0.5),
    ]
    return {"checks": checks, "figures": {
        "unit": "ms",
        "arrivals": options.churn_arrivals, "seeds": options.churn_seeds, "sweep_latency_ms": LATENCY_MS,
        "gb_served_percent": percent, "points_gained": {mix: summary(values) for mix, values in gain.items()},
        "scales": scales, "floor_ms": summary(floor_ms),
        "burst_ms": {n: summary(v) for n, v in each.items()},
        "burst_ms_one_query_per_claim": {n: summary(v) for n, v in alone.items()},
    }}
