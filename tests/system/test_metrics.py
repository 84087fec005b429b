# SPDX-License-Identifier: Apache-2.0
"""/metrics of berthd, read strictly: names, types, labels, and what the counters count."""
import re
import shutil
import subprocess
import time

import pytest

from conftest import wait_for
from test_capacity import A, B, fallbacks, refresh, settle

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|\+Inf|-Inf|NaN)")

# Names of the interface that belong to capacity, claims and reconciling, with type and labels.
FAMILIES = {
    "berth_slots": ("gauge", {"gpu", "state"}),
    "berth_profile_slots": ("gauge", {"profile"}),
    "berth_nvml_fallbacks_total": ("counter", {"reason"}),
    "berth_nvml_query_seconds": ("histogram", set()),
    "berth_placements_age_seconds": ("gauge", set()),
    "berth_placement_drift_total": ("counter", set()),
    "berth_placement_steer_failures_total": ("counter", set()),
    "berth_card_stuck": ("gauge", {"gpu"}),
    "berth_claims_total": ("counter", {"result"}),
    "berth_claim_seconds": ("histogram", set()),
    "berth_reconcile_failures_total": ("counter", {"stage"}),
    "berth_claims_store_unavailable": ("gauge", set()),
    "berth_nvml_fallback_active": ("gauge", {"gpu", "reason"}),
    "berth_card_cordoned": ("gauge", {"gpu"}),
    "berth_profile_used_vfs": ("gauge", {"profile"}),
    "berth_claims_held": ("gauge", {"state"}),
    "berth_claims_with_problem": ("gauge", {"problem"}),
    "berth_vfs_with_init_failures": ("gauge", set()),
    "berth_tls_certificate_expires_seconds": ("gauge", set()),
    "berth_start_time_seconds": ("gauge", set()),
    "berth_build_info": ("gauge", {"version"}),
}


def parse(text):
    """{family: (type, {(sample name, labels): value})}; fails on anything that is not the format."""
    assert text.endswith("\n") and "\r" not in text
    families, current, helps = {}, None, set()
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name, _, help_text = line[7:].partition(" ")
            assert re.fullmatch(NAME, name) and help_text and name not in helps, line
            helps.add(name)
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert kind in ("counter", "gauge", "histogram") and name in helps and name not in families, line
            families[name] = (kind, {})
            current = name
        else:
            match = SAMPLE.fullmatch(line)
            assert match, f"not a sample: {line!r}"
            name, labels, value = match.groups()
            kind, samples = families[current]
            allowed = {"histogram": (f"{current}_bucket", f"{current}_sum", f"{current}_count")}
            assert name in allowed.get(kind, (current,)), f"{line!r} under {current}"
            pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")
            assert len({k for k, _ in pairs}) == len(pairs), line
            key = (name, frozenset(pairs))
            assert key not in samples, f"twice: {line!r}"
            samples[key] = float(value)
            if kind == "counter":
                assert samples[key] >= 0
    for name, (kind, samples) in families.items():
        if kind == "histogram" and samples:
            check_histogram(name, samples)
    return families


def check_histogram(name, samples):
    buckets = sorted((float(dict(labels)["le"]), value) for (sample, labels), value in samples.items()
                     if sample == f"{name}_bucket")
    assert buckets[-1][0] == float("inf")
    assert [v for _, v in buckets] == sorted(v for _, v in buckets)
    assert samples[(f"{name}_count", frozenset())] == buckets[-1][1]
    assert (f"{name}_sum", frozenset()) in samples


def scrape(daemon):
    answer = daemon.request("GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    return parse(answer.body.decode())


def samples(families, name):
    """{label values in order of label name, or the one label's value: value}"""
    found = {}
    for (_, labels), value in families[name][1].items():
        values = tuple(v for _, v in sorted(labels))
        found[values[0] if len(values) == 1 else values] = value
    return found


def test_names_types_and_labels(daemon, sim):
    assert daemon.claim("vm").status == 201
    sim.ctl("set", "nvml.error", 999, "--gpu", B)
    refresh(daemon)
    families = scrape(daemon)
    for name, (kind, labels) in FAMILIES.items():
        assert families[name][0] == kind, name
        for _, used in families[name][1]:
            assert {k for k, _ in used} - {"le"} == labels, name
    for name, (kind, _) in families.items():
        assert name.startswith("berth_")
        assert name.endswith("_total") == (kind == "counter"), name


def test_slots_and_profiles(daemon, sim):
    """The same numbers as /resources and /gpus."""
    for i in range(3):
        assert daemon.claim(f"vm{i}", "L40S-8Q").status == 201
    settle(sim)
    families = scrape(daemon)
    slots = samples(families, "berth_slots")
    for card in daemon.get("/gpus")["gpus"]:
        for state, count in card["slots"].items():
            assert slots[(card["address"], state)] == count
    assert len(slots) == 8
    profiles = samples(families, "berth_profile_slots")
    assert profiles == {p["name"]: p["available"] for p in daemon.resources()["profiles"]}
    assert profiles["NVIDIA L40S-8Q"] == 5
    assert samples(families, "berth_card_stuck") == {A: 0, B: 0}
    assert samples(families, "berth_build_info").keys() and 1 in samples(families, "berth_build_info").values()


def test_vanished_cards_leave_the_metrics(daemon, sim):
    sim.ctl("remove", B)
    wait_for(lambda: B not in {g for g, _ in samples(scrape(daemon), "berth_slots")}, "the card to go", 4)
    assert samples(scrape(daemon), "berth_card_stuck") == {A: 0}
    assert samples(scrape(daemon), "berth_profile_slots")["NVIDIA L40S-4Q"] == 8


def test_claims_are_counted(daemon, sim):
    def results():
        return samples(scrape(daemon), "berth_claims_total")

    def timed():
        return scrape(daemon)["berth_claim_seconds"][1][("berth_claim_seconds_count", frozenset())]

    before = results()
    assert daemon.claim("vm").status == 201
    assert results().get("ok", 0) == before.get("ok", 0) + 1 and timed() == 1
    assert daemon.claim("vm", "L40S-2Q").code == "claim_exists"
    assert results()["claim_exists"] == 1
    assert daemon.claim("vm2", "L40S-5Q").code == "unknown_profile"
    assert results()["unknown_profile"] == 1
    for i in range(2):
        daemon.request("PUT", f"/gpus/{(A, B)[i]}/cordon")
    assert daemon.claim("vm3").code == "cordoned"
    assert results()["cordoned"] == 1


def test_queries_and_fallbacks(daemon, sim):
    settle(sim)
    before = scrape(daemon)
    assert samples(before, "berth_nvml_fallbacks_total") == {
        r: 0 for r in ("equal_size", "mig", "unsupported", "library", "timeout", "error")}
    count = ("berth_nvml_query_seconds_count", frozenset())
    refresh(daemon)
    after = scrape(daemon)
    assert after["berth_nvml_query_seconds"][1][count] == before["berth_nvml_query_seconds"][1][count] + 1
    age = samples(after, "berth_placements_age_seconds")[()]
    assert 0 <= age < 10
    sim.ctl("set", "nvml.error", 15, "--gpu", B)
    refresh(daemon)
    assert samples(scrape(daemon), "berth_nvml_fallbacks_total")["error"] == 1


def test_fallback_now(daemon, sim):
    """The counter says that there was one, the gauge that there is one."""
    def active():
        return samples(scrape(daemon), "berth_nvml_fallback_active")

    assert active() == {(A, "none"): 0, (B, "none"): 0}
    sim.ctl("set", "nvml.error", 15, "--gpu", B)
    refresh(daemon)
    assert active() == {(A, "none"): 0, (B, "error"): 1}
    sim.ctl("set", "nvml.error", 0, "--gpu", B)
    refresh(daemon)
    assert active() == {(A, "none"): 0, (B, "none"): 0}
    daemon.request("POST", "/driver/release")
    wait_for(lambda: active() == {(A, "library"): 1, (B, "library"): 1}, "the host's fallback")


def test_what_is_held(daemon, sim):
    def held():
        families = scrape(daemon)
        return {k: v for k, v in samples(families, "berth_profile_used_vfs").items() if v}, \
            samples(families, "berth_claims_held"), \
            {k: v for k, v in samples(families, "berth_claims_with_problem").items() if v}

    assert held() == ({}, {"bound": 0, "releasing": 0, "external": 0}, {})
    assert set(samples(scrape(daemon), "berth_claims_with_problem")) == {
        "vf_missing", "type_lost", "type_changed", "card_stuck"}
    vf = daemon.claim("vm1").json["vf"]
    assert daemon.claim("vm2").status == 201
    assert daemon.claim("vm3", "L40S-2Q").status == 201
    assert held() == ({"NVIDIA L40S-4Q": 2, "NVIDIA L40S-2Q": 1}, {"bound": 3, "releasing": 0, "external": 0}, {})
    sim.ctl("configure", vf, 0)
    wait_for(lambda: held()[2] == {"type_lost": 1}, "the problem")
    assert held()[0] == {"NVIDIA L40S-4Q": 1, "NVIDIA L40S-2Q": 1}
    assert set(samples(scrape(daemon), "berth_profile_used_vfs")) == set(
        samples(scrape(daemon), "berth_profile_slots"))


def test_cordons_are_shown(daemon):
    assert daemon.request("PUT", f"/gpus/{B}/cordon").status == 200
    assert samples(scrape(daemon), "berth_card_cordoned") == {A: 0, B: 1}
    assert daemon.request("DELETE", f"/gpus/{B}/cordon").status == 200
    assert samples(scrape(daemon), "berth_card_cordoned") == {A: 0, B: 0}


def test_start_time_changes_with_a_restart(daemon):
    def started():
        return samples(scrape(daemon), "berth_start_time_seconds")[()]

    before, now = started(), time.time()
    assert now - 60 < before <= now
    wait_for(lambda: int(time.time()) > before, "the next second")
    daemon.restart()
    assert before < started() <= time.time()


def test_age_before_the_first(start_sim, start_daemon):
    daemon = start_daemon(start_sim("--nvml-latency", 0), {"nvml_library": ""})
    assert samples(scrape(daemon), "berth_placements_age_seconds")[()] == -1


# --- Hostile texts --------------------------------------------------------------------------------


def hostile_host(plain_host):
    """A driver whose profile names have quotes, backslashes and worse."""
    plain_host.function(A, "nvidia")
    plain_host.write(A, sriov_totalvfs="32\n")
    plain_host.vf(A, 0, "0000:41:00.4", "")
    lists = plain_host.devices / "0000:41:00.4/nvidia/creatable_vgpu_types"
    lists.write_bytes(b"ID    : vGPU Name\n"
                      b'1    : NVIDIA "quoted"-1Q\n'
                      b"2    : NVIDIA back\\slash-2Q\n"
                      b"3    : NVIDIA {brace}=x,y-3Q\n"
                      b"4    : NVIDIA \xc3\x9cmlaut-4Q\n"
                      b"5    : NVIDIA bad \xff\xfe-5Q\n"
                      b"6    : NVIDIA tab\tinside-6Q\n"
                      b"7    : NVIDIA bell\x07-7Q\n"
                      b"8    : NVIDIA plain-8Q\n")


@pytest.mark.field("F57")
def test_f57_profile_names(work, start_daemon):
    from plain_host import PlainHost
    host = PlainHost(work / "plain")
    hostile_host(host)
    daemon = start_daemon(host)
    names = {p["name"] for p in daemon.resources()["profiles"]}
    assert {'NVIDIA "quoted"-1Q', "NVIDIA back\\slash-2Q", "NVIDIA {brace}=x,y-3Q", "NVIDIA Ümlaut-4Q",
            "NVIDIA plain-8Q"} <= names
    assert not any("bad" in n or "bell" in n for n in names)
    shown = samples(scrape(daemon), "berth_profile_slots")
    unescaped = {re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], n) for n in shown}
    assert unescaped == names
    for name in names:
        answer = daemon.claim("vm", name, owner='"\\\u00fc{}', channel="unix:/a\\\"b")
        assert answer.status == 201, (name, answer)
        assert answer.json["profile"] == name
        assert daemon.claims()["vm"]["owner"] == '"\\\u00fc{}'
        scrape(daemon)
        assert daemon.release("vm").status == 200


@pytest.mark.field("F57")
def test_f57_library_path(start_sim, start_daemon):
    """A library at a path that ends up in the reason: JSON and metrics stay whole."""
    sim = start_sim("--nvml-latency", 0)
    path = str(sim.root / 'odd "\\{x="y"}\u00fc.so')
    daemon = start_daemon(sim, {"nvml_library": path})
    detail = daemon.resources()["fallbacks"][0]["detail"]
    assert path in detail or path[:60] in detail
    assert fallbacks(daemon) and daemon.get("/gpus")
    scrape(daemon)


# All of NVML's functions but one are those of the library that it is linked against.
ODD_NVML = r"""
const char *nvmlErrorString(int code);
const char *nvmlErrorString(int code) { (void)code; return "odd \"quote\" back\\slash\nnext \xff\xfe {a=\"b\"}"; }
"""


@pytest.mark.field("F57")
def test_f57_nvml_texts(start_sim, start_daemon, work):
    """What NVML calls its errors: quotes, a newline, bytes that are not UTF-8."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler here")
    sim = start_sim("--nvml-latency", 0)
    library, source = work / "odd.so.1", work / "odd.c"
    source.write_text(ODD_NVML)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-Wl,--no-as-needed", f"-L{sim.root}/lib",
                    "-l:libnvidia-ml.so.1", f"-Wl,-rpath,{sim.root}/lib"], check=True, timeout=60)
    sim.ctl("set", "nvml.error", 999, "--gpu", B)
    daemon = start_daemon(sim, {"nvml_library": str(library)})
    refresh(daemon)
    fallback, = daemon.resources()["fallbacks"]
    assert (fallback["gpu"], fallback["reason"]) == (B, "error")
    assert 'odd "quote" back\\slash' in fallback["detail"] and "(999)" in fallback["detail"]
    assert daemon.get(f"/gpus/{B}")["fallback_detail"] == fallback["detail"]
    assert samples(scrape(daemon), "berth_nvml_fallbacks_total")["error"] >= 1
    assert "\nnext" not in daemon.log() and daemon.claim("vm", gpu=B).status == 201


@pytest.mark.field("F57")
def test_f57_names_of_claims(daemon):
    """What would spoil a label is no name."""
    for name in ("a%22b", "a%5cb", "a%0ab", "a%ff%feb", "a%7bb%3d%22c%22%7d"):
        assert daemon.request("PUT", f"/claims/{name}", {"profile": "L40S-4Q"}).status in (400, 404), name
    scrape(daemon)
    assert daemon.claims() == {}
