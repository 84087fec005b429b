# SPDX-License-Identifier: Apache-2.0
"""Refreshes of the placements and the claims that come while one runs."""
import time

SWEEP_SECONDS = 1.0


def test_a_refresh_gives_way_to_a_claim(sim, start_daemon):
    """Each claim causes a refresh that the next one falls into. It takes one sweep, not two."""
    daemon = start_daemon(sim)
    sim.ctl("set", "nvml.latency_ms", int(SWEEP_SECONDS * 1000))
    assert daemon.claim("first").status == 201
    for name in ("second", "third"):
        begun = time.monotonic()
        assert daemon.claim(name).status == 201
        elapsed = time.monotonic() - begun
        assert SWEEP_SECONDS <= elapsed < 1.7 * SWEEP_SECONDS, name
    # What was given up is made good: the placements in use are newer than the last claim.
    end = time.monotonic() + 10
    while daemon.resources()["placements_age_ms"] / 1000 > time.monotonic() - begun - SWEEP_SECONDS:
        assert time.monotonic() < end
        time.sleep(0.01)
