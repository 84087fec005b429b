# SPDX-License-Identifier: Apache-2.0
"""The web page in Debian's Chromium. page.js does all of it in one go; here each of its checks is a test."""
import functools
import json

import pytest

import browser

CHECKS = [
    "cards-and-vgpus", "bar-is-to-scale", "counts-of-profiles", "live-claim-and-release", "announced-to-screen-readers",
    "focus-folds-selection-and-scroll-stay", "ages-go-on", "cordon-and-uncordon", "release-with-the-mouse",
    "release-with-the-keyboard", "refusal-is-shown", "quarantine-shown-and-cleared", "fallback-of-a-card",
    "fallback-of-the-host", "hostile-owner-is-text", "accessible", "click-on-a-block-shows-its-claim",
    "read-only-over-tcp", "without-javascript", "foreign-page-changes-nothing", "too-many-event-readers",
    "hidden-pages-hold-no-connection", "upgraded-berthd-reloads-the-page", "lost-connection-is-shown",
    "recovers-after-a-restart", "sixteen-cards", "sixteen-cards-accessible", "accessible-with-forced-colours",
    "narrow-without-sideways-scrolling", "no-complaints-in-the-console",
]


@functools.lru_cache
def results():
    """{name: what was wrong}; "" is good. Or why there are none."""
    why = browser.missing()
    if why:
        return why
    with browser.folder() as folder:
        done = browser.run("page.js", folder, timeout=200)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {r["name"]: "" if r["ok"] else r["detail"] for r in found} | {"": done.returncode}


@pytest.mark.parametrize("name", CHECKS)
def test_page(name):
    found = results()
    if isinstance(found, str):
        pytest.skip(found)
    assert name in found, f"page.js ended with {found['']} before it came to this"
    assert not found[name], found[name]


def test_all_checks_are_known():
    found = results()
    if isinstance(found, str):
        pytest.skip(found)
    assert set(found) - {""} == set(CHECKS) and found[""] == 0
