# SPDX-License-Identifier: Apache-2.0
"""Medians, percentiles, and what is compared with a target."""
import dataclasses
import math
import statistics


def percentile(values, p):
    """The nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(p / 100 * len(ordered)) - 1)]


def summary(values):
    """What bench.json says about a series of measurements."""
    return {
        "n": len(values),
        "min": round(min(values), 3),
        "p10": round(percentile(values, 10), 3),
        "median": round(statistics.median(values), 3),
        "p90": round(percentile(values, 90), 3),
        "p99": round(percentile(values, 99), 3),
        "max": round(max(values), 3),
    }


def ratio(values, others):
    """Of the medians. The two were measured in turns, so both saw the same machine."""
    return statistics.median(values) / statistics.median(others)


def noise(reference):
    """How much the same work took longer at times: 1 on a machine that has nothing else to do."""
    return round(percentile(reference, 90) / percentile(reference, 10), 2)


@dataclasses.dataclass
class Check:
    """One figure and its target."""

    name: str
    what: str
    value: float
    relation: str  # "<=" or ">="
    target: float
    unit: str = ""

    @property
    def passed(self):
        return self.value <= self.target if self.relation == "<=" else self.value >= self.target

    def as_json(self):
        return {"name": self.name, "what": self.what, "value": round(self.value, 4),
                "relation": self.relation, "target": self.target, "unit": self.unit,
                "passed": self.passed}
