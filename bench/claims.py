# SPDX-License-Identifier: Apache-2.0
"""One claim, and twenty at the same time, beside what no claim can do without.

That is one sweep of NVML and two commits. The three take turns, on a daemon that has nothing else
under way.
"""
from host import BenchError, Tool, running_host
from stats import Check, ratio, summary

LATENCY_MS = 20
BURST = 20
PROFILE = "L40S-2Q"  # 16 of them on each of two cards, so a burst fits


def order(burst, host, line, status):
    """Milliseconds until the last answer, and of each answer."""
    answer = burst.ask(line)
    if any(s != status for s in answer["statuses"]):
        raise BenchError(f"{line}: {answer['statuses']}")
    host.settle()
    return answer["usec"] / 1000, [t / 1000 for t in answer["each_usec"]]


def measure(host, options):
    series = {"floor": [], "sweep": [], "commits": [], "one": [], "burst": [], "burst_first": [],
              "release": [], "queries_of_burst": []}
    library = host.settings["nvml_library"]
    with Tool(options.build, "floor", library, host.root / "floor.db", *host.card_addresses()) as floor, \
            Tool(options.build, "burst", host.socket) as burst:
        for number in range(options.rounds + 1):
            bare = floor.ask()
            one, _ = order(burst, host, f"PUT 1 one {PROFILE}", 201)
            release, _ = order(burst, host, "DELETE 1 one", 200)
            queries = host.queries()
            many, each = order(burst, host, f"PUT {BURST} many {PROFILE}", 201)
            queries = host.queries() - queries
            order(burst, host, f"DELETE {BURST} many", 200)
            if number == 0:
                continue  # caches are cold
            series["sweep"].append(bare["sweep_usec"] / 1000)
            series["commits"].append(bare["commits_usec"] / 1000)
            series["floor"].append((bare["sweep_usec"] + bare["commits_usec"]) / 1000)
            series["one"].append(one)
            series["release"].append(release)
            series["burst"].append(many)
            series["burst_first"].append(min(each))
            series["queries_of_burst"].append(queries)
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
            Check("burst", f"{BURST} claims at the same time / one claim",
                  ratio(series["burst"], series["one"]), "<=", 3),
        ],
    }
