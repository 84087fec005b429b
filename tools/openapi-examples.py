#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Renews the examples of docs/openapi.json from what berthd answers on a simulated host.

Usage: BERTH_BIN=build/bin tools/openapi-examples.py     (after a change of any answer; then `make docs`)

Only `value` of components.examples is written; which examples there are and where they are shown is
decided in the document. Long lists are shortened, and the simulator's paths become a real host's.
"""
import json
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/system"))
from conftest import Daemon, Sim, wait_for  # noqa: E402

DOCUMENT = ROOT / "docs/openapi.json"
CARD = "/gpus/0000:81:00.0"
SHOWN = ("NVIDIA L40S-4Q", "NVIDIA L40S-24Q", "NVIDIA L40S-48Q")
METRICS = ("berth_slots", "berth_nvml_fallback_active")


class Host:
    """Answers with the paths and ids that a real host would show."""

    def __init__(self, root):
        self.sim = Sim(root, "--nvml-latency", 0)
        self.daemon = Daemon(self.sim, {"sentinel": {"scan_interval": "50ms"}})
        self.paths = {str(self.sim.sys): "/sys", str(self.sim.dev): "/dev", str(root / "console"): "/var/log/berth",
                      str(self.daemon.data_dir): "/var/lib/berth", str(self.daemon.socket): "/run/berth/berthd.sock",
                      '"uid": 0': '"uid": 64055'}

    def ask(self, method, path, body=None):
        text = json.dumps(self.daemon.request(method, path, body).json)
        for ours, real in self.paths.items():
            text = text.replace(ours, real)
        return json.loads(text)

    def close(self):
        self.daemon.stop()
        self.sim.stop()


def shorten(card):
    """One VF with a vGPU, one without, and two profiles."""
    used = {placed["vf"] for placed in card["placed"]}
    vfs = [v for v in card["vfs"] if v["address"] in used][:1] + [v for v in card["vfs"] if v["address"] not in used][:1]
    return {**card, "vfs": sorted(vfs, key=lambda v: v["number"]),
            "profiles": [p for p in card["profiles"] if p["name"] in SHOWN]}


def metric_lines(text):
    return "".join(line + "\n" for line in text.splitlines() if line.startswith(
        tuple(f"# {kind} {name} " for name in METRICS for kind in ("HELP", "TYPE")) +
        tuple(f'{name}{{gpu="0000:41' for name in METRICS)))


def begins(host, path, end):
    """As much of a file of the web page as a reader of the document wants."""
    return host.daemon.request("GET", path).body.decode().partition(end)[0] + end + "..."


def look(host):
    found = {"ClaimRequest": {"profile": "L40S-4Q", "owner": "tenant-a", "console_log": "/var/log/berth/vm1.log"}}
    found["Claim"] = host.ask("PUT", "/claims/vm1", {**found["ClaimRequest"],
                                                     "console_log": str(host.sim.root / "console/vm1.log")})
    host.daemon.claim("vm2", "L40S-24Q")
    found["Claims"] = {"claims": host.ask("GET", "/claims")["claims"][:1]}
    resources = host.ask("GET", "/resources")
    resources["gpu"]["profiles"] = [p for p in resources["gpu"]["profiles"] if p["name"] in SHOWN]
    found["Resources"] = resources
    card = found["Card"] = shorten(host.ask("GET", "/gpus")["gpus"][0])
    found["Gpus"] = {"gpus": [card]}
    found["Vfs"] = {"vfs": card["vfs"][::-1]}
    free = next(v["address"] for v in card["vfs"] if v["state"] == "free")
    found["FitRequest"] = {"profiles": {"L40S-4Q": 2, "L40S-48Q": 1}, "max_of": "L40S-4Q"}
    found["Fit"] = host.ask("POST", "/fit", found["FitRequest"])
    found["CordonedCard"] = shorten(host.ask("PUT", CARD + "/cordon"))
    host.ask("DELETE", CARD + "/cordon")
    found["DriverReleased"] = host.ask("POST", "/driver/release")
    found["DriverInUse"] = host.ask("POST", "/driver/resume")
    found["QuarantinedVf"] = host.ask("PUT", f"/vfs/{free}/quarantine")
    found["Vf"] = host.ask("DELETE", f"/vfs/{free}/quarantine")
    found["Status"] = host.ask("GET", "/status")
    host.daemon.claim("vm3", "L40S-48Q")
    found["NoRoom"] = host.ask("PUT", "/claims/vm4", {"profile": "L40S-48Q"})
    host.sim.boot(found["Claim"]["vf"])
    wait_for(lambda: host.daemon.release("vm1").status == 409, "a VF that is open")
    found["InUse"] = {**host.ask("DELETE", "/claims/vm1"), "detail": "the VF is open: pid 4711 (qemu-system-x86)"}
    found["Alive"], found["Ready"] = host.ask("GET", "/healthz"), host.ask("GET", "/readyz")
    found["Metrics"] = metric_lines(host.daemon.request("GET", "/metrics").body.decode())
    found["Releasing"] = {**host.ask("GET", "/claims/vm2"), "state": "releasing"}
    host.daemon.release("vm3")
    found["Recovery"] = {**host.ask("POST", CARD + "/recover"), "step": "cordon"}
    (host.daemon.data_dir / "gpu").mkdir(exist_ok=True)
    (host.daemon.data_dir / "gpu/vf-health.json").write_text("{")
    wait_for(lambda: host.daemon.request("GET", "/readyz").status == 503, "unreadable records")
    found["NotReady"] = host.ask("GET", "/readyz")
    shown = {key: found["Claim"][key] for key in ("name", "state", "profile", "vf", "gpu")}
    found["Page"], found["Icon"] = begins(host, "/", '<html lang="en">'), begins(host, "/icon.svg", ">")
    found["PageCss"], found["PageJs"] = begins(host, "/page.css", "*/"), begins(host, "/page.js", "\n")
    found["Event"] = f"event: claim\nid: 12\ndata: {json.dumps(shown)}\n\n"
    return found


def main():
    document = json.loads(DOCUMENT.read_text())
    examples = document["components"]["examples"]
    with tempfile.TemporaryDirectory(prefix="berth-") as folder:
        host = Host(pathlib.Path(folder) / "host")
        try:
            found = look(host)
        finally:
            host.close()
    unknown = sorted(set(examples) ^ set(found))
    if unknown:
        sys.exit(f"not in both the document and this script: {', '.join(unknown)}")
    for name, value in found.items():
        examples[name]["value"] = value
    DOCUMENT.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
