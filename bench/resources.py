# SPDX-License-Identifier: Apache-2.0
"""GET /resources beside GET /healthz while placements are refreshed every 100 ms.

The two take turns. The refreshes come from claims and releases, so the answer is another one each
time as well.
"""
import threading
import time

from host import BenchError, Tool, running_host
from stats import Check, noise, ratio, summary

CONNECTIONS = 8
INTERVAL_SECONDS = 0.1
WINDOW_MSEC = 400
PROFILE = "L40S-4Q"


class Churn(threading.Thread):
    """Claims and releases one vGPU, each a change that is followed by a refresh."""

    def __init__(self, burst):
        super().__init__(daemon=True)
        self.burst = burst
        self.ended = threading.Event()
        self.error = None

    def run(self):
        number = 0
        due = time.monotonic()
        try:
            while not self.ended.is_set():
                # Another name each time: the release of the one before may still go on.
                order = f"DELETE 1 churn{number}" if number % 2 else f"PUT 1 churn{number + 1} {PROFILE}"
                number += 1
                answer = self.burst.ask(order)
                if answer["statuses"][0] not in (200, 201, 202):
                    raise BenchError(f"{order}: {answer['statuses']}")
                due = max(due + INTERVAL_SECONDS, time.monotonic())
                self.ended.wait(due - time.monotonic())
        except (BenchError, OSError, ValueError) as e:
            self.error = e

    def stop(self):
        self.ended.set()
        self.join(timeout=60)


def measure(host, options):
    rates = {"/resources": [], "/healthz": []}
    with Tool(options.build, "load", host.socket, CONNECTIONS) as load, \
            Tool(options.build, "burst", host.socket) as burst:
        churn = Churn(burst)
        churn.start()
        try:
            queries, begun = host.queries(), time.monotonic()
            for number in range(options.rounds + 1):
                for path, values in rates.items():
                    answer = load.ask(f"{path} {WINDOW_MSEC}")
                    if number > 0:
                        values.append(answer["requests"] / (answer["usec"] / 1e6))
            refreshes = (host.queries() - queries) / (time.monotonic() - begun)
        finally:
            churn.stop()
        if churn.error:
            raise churn.error
    return rates, refreshes


def run(options):
    with running_host(options) as host:
        rates, refreshes = measure(host, options)
    return {
        "figures": {"unit": "1/s", "noise": noise(rates["/healthz"]), "vfs": 64, "connections": CONNECTIONS,
                    "refreshes_per_second": round(refreshes, 1),
                    "resources": summary(rates["/resources"]),
                    "healthz": summary(rates["/healthz"])},
        "checks": [
            Check("resources", "GET /resources / GET /healthz, requests per second",
                  ratio(rates["/resources"], rates["/healthz"]), ">=", 0.5),
            Check("refreshes", "refreshes per second meanwhile", refreshes, ">=", 9),
        ],
    }
