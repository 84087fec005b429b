# SPDX-License-Identifier: Apache-2.0
"""The bench runs and writes what it says. Its figures mean nothing in so short a run."""
import json
import subprocess
import sys

from conftest import BIN, ROOT


def test_a_short_run(work):
    out = work / "bench.json"
    done = subprocess.run(
        [sys.executable, ROOT / "bench/run.py", "--build", BIN.parent, "--out", out, "--work", work,
         "--rounds", "1", "--only", "claims", "--only", "inventory"],
        capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(out.read_text())
    assert [c["name"] for c in result["checks"]] == ["claim", "claim-row", "burst", "scan"]
    for check in result["checks"]:
        assert check["value"] > 0
        assert check["passed"] == (check["value"] <= check["target"])
        assert (check["name"] in result["missed"]) != check["passed"]
    assert result["not_measured"] == []
    assert result["figures"]["claims"]["one"]["n"] == 1
    assert "Targets" in (work / "bench.html").read_text()
