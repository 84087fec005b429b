# SPDX-License-Identifier: Apache-2.0
"""One claim, and twenty at the same time, beside what no claim can do without.

That is one sweep of NVML and two commits. The three take turns, on a daemon that has nothing else
under way.
"""
import collections

from host import BenchError, Tool, running_host, wait_for
from stats import Check, noise, ratio, summary

LATENCY_MS = 20
BURST = 20
PROFILE = "L40S-2Q"  # 16 of them on each of two cards, so a burst fits


def claim(burst, name, count=1):
    """Milliseconds until the last answer, and of each answer."""
    answer = burst.ask(f"PUT {count} {name} {PROFILE}")
    if any(status != 201 for status in answer["statuses"]):
        raise BenchError(f"claims refused: {answer['statuses']}")
    return answer["usec"] / 1000, [t / 1000 for t in answer["each_usec"]]


def release(burst, host, name, count=1):
    """Milliseconds until the last answer. A busy machine may need longer than the answer waits."""
    answer = burst.ask(f"DELETE {count} {name}")
    if any(status not in (200, 202) for status in answer["statuses"]):
        raise BenchError(f"releases refused: {answer['statuses']}")
    if 202 in answer["statuses"]:
        wait_for(lambda: name.encode() not in host.get("/claims")[1], "releases to end", 60)
    return answer["usec"] / 1000


def claim_in_quiet(burst, host, series):
    host.settle()
    series["one"].append(claim(burst, "one")[0])
    host.settle()
    series["release"].append(release(burst, host, "one"))
    host.settle()


def claim_in_a_row(burst, host, series):
    """Each one falls into the refresh that the change before it has caused."""
    claim(burst, "first")
    series["after_claim"].append(claim(burst, "second")[0])
    release(burst, host, "second")
    series["after_release"].append(claim(burst, "third")[0])
    release(burst, host, "first")
    release(burst, host, "third")
    host.settle()


def claim_many(burst, host, series, counts):
    queries = host.queries()
    last, each = claim(burst, "many", BURST)
    series["burst"].append(last)
    series["burst_first"].append(min(each))
    host.settle()
    counts.append(host.queries() - queries)
    release(burst, host, "many", BURST)
    host.settle()


def ask_floor(floor, series):
    bare = floor.ask()
    series["sweep"].append(bare["sweep_usec"] / 1000)
    series["commits"].append(bare["commits_usec"] / 1000)
    series["floor"].append((bare["sweep_usec"] + bare["commits_usec"]) / 1000)


def measure(host, options):
    series, counts = collections.defaultdict(list), []
    library = host.settings["nvml_library"]
    with Tool(options.build, "floor", library, host.root / "floor.db", *host.card_addresses()) as floor, \
            Tool(options.build, "burst", host.socket) as burst:
        for number in range(options.rounds + 1):
            ask_floor(floor, series)
            claim_in_quiet(burst, host, series)
            claim_in_a_row(burst, host, series)
            claim_many(burst, host, series, counts)
            if number == 0:
                series.clear()  # caches were cold
                counts.clear()
    return series, counts


def run(options):
    with running_host(options, latency_ms=LATENCY_MS) as host:
        series, counts = measure(host, options)
    return {
        "figures": {"unit": "ms", "noise": noise(series["floor"]), "sweep_latency_ms": LATENCY_MS,
                    "profile": PROFILE, "claims_of_burst": BURST, "queries_of_burst": counts,
                    **{name: summary(values) for name, values in series.items()}},
        "checks": [
            Check("claim", "one claim / (one bare NVML sweep + two commits)",
                  ratio(series["one"], series["floor"]), "<=", 1.5),
            Check("claim-row", "one right after another or after a release / the same",
                  ratio(series["after_claim"] + series["after_release"], series["floor"]), "<=", 1.5),
            Check("burst", f"{BURST} claims at the same time / one claim",
                  ratio(series["burst"], series["one"]), "<=", 3),
        ],
    }
