# SPDX-License-Identifier: Apache-2.0
"""One claim, and twenty at the same time, beside what no claim can do without.

That is one sweep of NVML and two commits. The three take turns, on a daemon that has nothing else
under way.
"""
import collections

from host import BenchError, Tool, running_host
from stats import Check, ratio, summary

LATENCY_MS = 20
BURST = 20
PROFILE = "L40S-2Q"  # 16 of them on each of two cards, so a burst fits


def order(burst, line, status):
    """Milliseconds until the last answer, and of each answer."""
    answer = burst.ask(line)
    if any(s != status for s in answer["statuses"]):
        raise BenchError(f"{line}: {answer['statuses']}")
    return answer["usec"] / 1000, [t / 1000 for t in answer["each_usec"]]


def claim_in_quiet(burst, host, series):
    host.settle()
    series["one"].append(order(burst, f"PUT 1 one {PROFILE}", 201)[0])
    host.settle()
    series["release"].append(order(burst, "DELETE 1 one", 200)[0])
    host.settle()


def claim_in_a_row(burst, host, series):
    """Each one falls into the refresh that the change before it has caused."""
    order(burst, f"PUT 1 first {PROFILE}", 201)
    series["after_claim"].append(order(burst, f"PUT 1 second {PROFILE}", 201)[0])
    order(burst, "DELETE 1 second", 200)
    series["after_release"].append(order(burst, f"PUT 1 third {PROFILE}", 201)[0])
    order(burst, "DELETE 1 first", 200)
    order(burst, "DELETE 1 third", 200)
    host.settle()


def claim_many(burst, host, series):
    queries = host.queries()
    usec, each = order(burst, f"PUT {BURST} many {PROFILE}", 201)
    series["burst"].append(usec)
    series["burst_first"].append(min(each))
    host.settle()
    series["queries_of_burst"].append(host.queries() - queries)
    order(burst, f"DELETE {BURST} many", 200)
    host.settle()


def ask_floor(floor, series):
    bare = floor.ask()
    series["sweep"].append(bare["sweep_usec"] / 1000)
    series["commits"].append(bare["commits_usec"] / 1000)
    series["floor"].append((bare["sweep_usec"] + bare["commits_usec"]) / 1000)


def measure(host, options):
    series = collections.defaultdict(list)
    library = host.settings["nvml_library"]
    with Tool(options.build, "floor", library, host.root / "floor.db", *host.card_addresses()) as floor, \
            Tool(options.build, "burst", host.socket) as burst:
        for number in range(options.rounds + 1):
            ask_floor(floor, series)
            claim_in_quiet(burst, host, series)
            claim_in_a_row(burst, host, series)
            claim_many(burst, host, series)
            if number == 0:
                series.clear()  # caches were cold
    return series


def run(options):
    with running_host(options, latency_ms=LATENCY_MS) as host:
        series = measure(host, options)
    return {
        "figures": {"unit": "ms", "sweep_latency_ms": LATENCY_MS, "profile": PROFILE, "burst": BURST,
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
