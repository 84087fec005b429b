# SPDX-License-Identifier: Apache-2.0
"""What fits: placements from NVML against the VFs' own lists, the cached snapshot, drift."""
import concurrent.futures
import time

import pytest

from conftest import wait_for
from nvml_probe import Probe

A, B = "0000:41:00.0", "0000:81:00.0"
L40S_2Q, L40S_4Q = 1148, 1150
QUERIES = "berth_nvml_query_seconds_count"


def fallbacks(daemon):
    """{reason: count}, only what was counted."""
    prefix = 'berth_nvml_fallbacks_total{reason="'
    return {name[len(prefix):-2]: int(value) for name, value in daemon.metrics().items()
            if name.startswith(prefix) and value}


def refresh(daemon):
    """Has the placements asked for anew and waits until the answer is in."""
    done = daemon.metric(QUERIES)
    assert daemon.request("POST", "/driver/resume").status == 200
    wait_for(lambda: daemon.metric(QUERIES) > done, "an answer of NVML")
    settle(daemon.sim, 0.05)  # that answer may have been to an earlier question


def settle(sim, quiet_for=0.2):
    """Waits until nobody has asked NVML anything for a while."""
    last = [None, 0.0]

    def quiet():
        calls, now = sim.counters()["nvml_calls"], time.monotonic()
        if calls != last[0]:
            last[:] = [calls, now]
        return now - last[1] > quiet_for

    wait_for(quiet, "NVML to be left alone")


def type_ids(daemon):
    """{profile without NVIDIA: {card: type id}}"""
    ids = {}
    for card in daemon.get("/gpus")["gpus"]:
        for p in card["profiles"]:
            ids.setdefault(p["name"].removeprefix("NVIDIA "), {})[card["address"]] = p["type_id"]
    return ids


def wait_equals_nvml(daemon, probe, cards=(A, B)):
    """/resources and every card agree with NVML for every profile, where free VFs suffice."""
    ids = type_ids(daemon)

    def agree():
        free = probe.free(*cards)
        gpus = {g["address"]: g for g in daemon.get("/gpus")["gpus"]}
        want = {}
        for profile, per_card in ids.items():
            want[profile] = sum(min(free[c][t], gpus[c]["slots"]["allocatable"])
                                for c, t in per_card.items() if c in free)
        placements = {c: {p["type_id"]: p["free_placements"] for p in gpus[c]["profiles"]}
                      for c in cards}
        return daemon.available() == want and placements == free and want

    return wait_for(agree, "/resources to equal NVML's free placements")


def vf_addresses(card):
    bus = card.split(":")[1]
    return [f"0000:{bus}:{(4 + i) // 8:02x}.{(4 + i) % 8}" for i in range(32)]


def crowd(sim, card=A, n=12):
    """Upstream's busy card: six 4Q, then 2Q up to n vGPUs. From the twelfth on sysfs hides 4Q."""
    for i, vf in enumerate(vf_addresses(card)[:n]):
        sim.ctl("configure", vf, "L40S-4Q" if i < 6 else "L40S-2Q")


def test_host_run(start_sim, start_daemon):
    """upstream/000 on two cards, one with 12 vGPUs: every step as NVML counts it."""
    sim = start_sim()
    crowd(sim)
    assert L40S_4Q not in sim.listed(vf_addresses(A)[20])
    daemon = start_daemon(sim)
    with Probe(sim) as probe:
        want = wait_equals_nvml(daemon, probe)
        assert want["L40S-4Q"] == 2 + 8
        hidden = []
        for name in "ab":
            answer = daemon.claim(name, "L40S-4Q", gpu=A)
            assert answer.status == 201, answer
            hidden.append(answer.json["placement"])
            wait_equals_nvml(daemon, probe)
        assert hidden == [{"id": 36, "size": 4}, {"id": 44, "size": 4}]
        refused = daemon.claim("c", "L40S-4Q", gpu=A)
        assert (refused.status, refused.code) == (409, "insufficient_resources")
        assert refused.json["cards"] == [{"gpu": A, "reason": "no free placement"}]
        assert daemon.release("a").status == 200
        wait_equals_nvml(daemon, probe)
        for profile in ("L40S-24Q", "L40S-8Q", "L40S-2B", "L40S-1Q", "L40S-48Q", "L40S-16A"):
            answer = daemon.claim("x", profile)
            assert answer.status == 201, answer
            wait_equals_nvml(daemon, probe)
            assert daemon.release("x").status == 200
            wait_equals_nvml(daemon, probe)
        assert daemon.claim("a", "L40S-4Q", gpu=A).json["placement"]["id"] == 36
        wait_equals_nvml(daemon, probe)
        assert fallbacks(daemon) == {}


def test_hidden_placement_is_chosen_without_being_told(start_sim, start_daemon):
    """With the other card fuller, the claim lands on the card whose VFs do not list the profile."""
    sim = start_sim("--nvml-latency", 0)
    crowd(sim)
    sim.ctl("configure", vf_addresses(B)[0], "L40S-48Q")
    daemon = start_daemon(sim)
    answer = daemon.claim("vm", "L40S-4Q")
    assert answer.status == 201 and answer.json["gpu"] == A
    assert L40S_4Q not in sim.listed(vf_addresses(A)[31])
    assert sim.vf(answer.json["vf"])["type"] == L40S_4Q


def test_equal_size_card_alone_falls_back(start_sim, start_daemon):
    sim = start_sim("--nvml-latency", 0)
    crowd(sim)
    daemon = start_daemon(sim)
    free = daemon.get(f"/gpus/{A}")["profiles"]
    sim.ctl("set", "mode", "equal", "--gpu", B)
    refresh(daemon)
    def fallen_back():
        """The card, once its lists are in: until then it shows what was known before."""
        card = daemon.get(f"/gpus/{B}")
        by_name = {p["name"]: p for p in card["profiles"]}
        return card["fallback"] and by_name["NVIDIA L40S-4Q"]["available"] == 12 and (card, by_name)

    card, by_name = wait_for(fallen_back, "12, not 32 and not 8, from the lists")
    assert (card["mode"], card["source"], card["fallback"]) == ("equal", "sysfs", "equal_size")
    assert by_name["NVIDIA L40S-1Q"]["available"] == 32
    assert by_name["NVIDIA L40S-48Q"]["available"] == 1
    assert {p["free_placements"] for p in card["profiles"]} == {None}
    other = daemon.get(f"/gpus/{A}")
    assert (other["source"], other["fallback"], other["profiles"]) == ("nvml", None, free)
    assert daemon.available()["L40S-4Q"] == 2 + 12
    assert [f["gpu"] for f in daemon.resources()["fallbacks"]] == [B]
    settle(sim)
    counted = fallbacks(daemon)
    assert set(counted) == {"equal_size"}
    refresh(daemon)
    assert fallbacks(daemon) == {"equal_size": counted["equal_size"] + 1}
    # A claim there counts down as the driver does: all of one size.
    assert daemon.claim("vm", "L40S-4Q", gpu=B).status == 201
    wait_for(lambda: daemon.available()["L40S-4Q"] == 2 + 11, "11 more on the equal-size card")
    wait_for(lambda: daemon.available()["L40S-8Q"] == free[7]["available"], "8Q to be unlisted")
    assert daemon.release("vm").status == 200
    wait_for(lambda: daemon.available()["L40S-4Q"] == 2 + 12, "12 again")
    sim.ctl("set", "mode", "mixed", "--gpu", B)
    refresh(daemon)
    assert daemon.resources()["fallbacks"] == []
    assert daemon.available()["L40S-4Q"] == 2 + 8
    assert set(fallbacks(daemon)) == {"equal_size"}


def test_five_claims_on_three_placements(start_sim, start_daemon):
    sim = start_sim()
    for card, vfs in ((A, vf_addresses(A)), (B, vf_addresses(B))):
        sim.ctl("configure", vfs[0], "L40S-24Q")
    for i in range(1, 6):
        sim.ctl("configure", vf_addresses(A if i < 5 else B)[i], "L40S-4Q")
    daemon = start_daemon(sim)
    assert daemon.available()["L40S-4Q"] == 3
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda i: daemon.claim(f"vm{i}", "L40S-4Q"), range(5)))
    assert sorted(a.status for a in answers) == [201, 201, 201, 409, 409]
    assert {a.code for a in answers if a.status == 409} == {"insufficient_resources"}
    bound = {a.json["vf"] for a in answers if a.status == 201}
    typed = {v["address"] for c in sim.state()["cards"] for v in c["vfs"] if v["type"]}
    assert len(bound) == 3 and len(typed) == 2 + 5 + 3 and bound < typed
    wait_for(lambda: daemon.available()["L40S-4Q"] == 0, "none left")
    name = next(f"vm{i}" for i in range(5) if answers[i].status == 201)
    assert daemon.release(name).status == 200
    assert daemon.claim(name, "L40S-4Q").status == 201


@pytest.mark.field("F13")
def test_f13_placements_not_vfs(daemon, sim):
    """32 VFs list 4Q, eight placements are free: 8 a card; then 0 although 24 VFs are free."""
    assert L40S_4Q in sim.listed(vf_addresses(A)[31])
    assert daemon.available()["L40S-4Q"] == 16
    for i in range(8):
        assert daemon.claim(f"vm{i}", "L40S-4Q", gpu=A).status == 201
    card = daemon.get(f"/gpus/{A}")
    by_name = {p["name"]: p["available"] for p in card["profiles"]}
    assert by_name["NVIDIA L40S-4Q"] == 0 and card["slots"]["allocatable"] == 24
    refused = daemon.claim("one-more", "L40S-4Q", gpu=A)
    assert (refused.status, refused.code) == (409, "insufficient_resources")


def test_few_vfs_bound_available(start_sim, start_daemon):
    """min(free placements, free VFs): three VFs a card are three vGPUs at most."""
    daemon = start_daemon(start_sim("--vfs", 3, "--nvml-latency", 0))
    available = daemon.available()
    assert available["L40S-1Q"] == 6 and available["L40S-24Q"] == 4 and available["L40S-48Q"] == 2
    assert daemon.claim("vm", "L40S-1Q", gpu=A).status == 201
    assert daemon.available()["L40S-2Q"] == 5
    daemon.request("PUT", f"/gpus/{A}/cordon")
    assert daemon.available()["L40S-2Q"] == 3
    assert daemon.resources()["allocatable_slots"] == 3
    refused = daemon.claim("vm2", "L40S-1Q", gpu=A)
    assert (refused.status, refused.code) == (409, "cordoned")
    daemon.request("DELETE", f"/gpus/{A}/cordon")
    assert daemon.available()["L40S-2Q"] == 5


# --- The snapshot ---------------------------------------------------------------------------------


GETS = ("/resources", "/resources?profiles=false", "/gpus", f"/gpus/{A}", "/vfs", "/claims",
        "/claims/vm", "/status", "/metrics", "/healthz", "/readyz", "/openapi.json")


def test_burst_shares_queries(start_sim, start_daemon):
    """Twenty claims at once cost the sweeps of about one, not of twenty."""
    sim = start_sim("--nvml-latency", 200)
    daemon = start_daemon(sim)
    refresh(daemon)
    before = sim.counters()["nvml_calls"]
    refresh(daemon)
    sweep = sim.counters()["nvml_calls"] - before
    queries, before = daemon.metric(QUERIES), sim.counters()["nvml_calls"]
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda i: daemon.claim(f"vm{i}", "L40S-1Q"), range(20)))
    decided = sim.counters()["nvml_calls"] - before
    assert {a.status for a in answers} == {201}
    assert len({a.json["vf"] for a in answers}) == 20
    # The first may go alone; the rest share the next; refreshes after the writes coalesce.
    assert decided <= 4 * sweep
    wait_for(lambda: daemon.available()["L40S-48Q"] == 0, "the refresh")
    assert daemon.metric(QUERIES) - queries <= 6
    assert sum(len(c["placed"]) for c in daemon.get("/gpus")["gpus"]) == 20


def test_refreshes_coalesce(start_sim, start_daemon):
    """Many releases while a query runs are followed by one refresh, not by one each."""
    sim = start_sim("--nvml-latency", 0)
    daemon = start_daemon(sim)
    for i in range(12):
        assert daemon.claim(f"vm{i}", "L40S-1Q").status == 201
    wait_for(lambda: daemon.available()["L40S-1Q"] == 20, "the claims to be counted")
    sim.ctl("set", "nvml.latency_ms", 500)
    queries = daemon.metric(QUERIES)
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda i: daemon.release(f"vm{i}"), range(12)))
    assert {a.status for a in answers} == {200}
    wait_for(lambda: daemon.available()["L40S-1Q"] == 32, "the releases to be counted")
    assert 1 <= daemon.metric(QUERIES) - queries <= 3


@pytest.mark.field("F04", "F59")
def test_get_causes_no_driver_call(start_sim, start_daemon):
    """A hundred times every GET; the driver is not asked and nothing is written."""
    sim = start_sim("--nvml-latency", 0)
    daemon = start_daemon(sim)
    assert daemon.claim("vm").status == 201
    settle(sim)
    begun = time.monotonic()
    before, queries = sim.counters(), daemon.metric(QUERIES)
    files = {p: p.stat().st_mtime_ns for p in daemon.data_dir.rglob("*") if p.is_file()}
    state = sim.state()["cards"]
    connection = daemon.connect()
    for _ in range(100):
        for path in GETS:
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
    connection.close()
    after = sim.counters()
    assert after["nvml_calls"] == before["nvml_calls"] and daemon.metric(QUERIES) == queries
    # The one-second look at 64 VFs goes on beside the requests: type and, of one, placement.
    looks = int(time.monotonic() - begun) + 2
    assert after["attr_reads"] - before["attr_reads"] <= looks * 65
    assert after["attr_writes"] == before["attr_writes"]
    assert sim.state()["cards"] == state
    assert {p: p.stat().st_mtime_ns for p in daemon.data_dir.rglob("*") if p.is_file()} == files


@pytest.mark.field("F59")
def test_scrapers_do_not_drive_the_driver(start_sim, start_daemon):
    """Twenty scrapers while a query takes 3 s, then hangs: all are answered at once, none causes one."""
    sim = start_sim("--nvml-latency", 0)
    daemon = start_daemon(sim)
    settle(sim)
    age = daemon.metric("berth_placements_age_seconds")
    sim.ctl("set", "nvml.latency_ms", 3000)
    queries = daemon.metric(QUERIES)
    assert daemon.request("POST", "/driver/resume").status == 200
    calls = sim.counters()["nvml_calls"]

    def scrape(_):
        for _ in range(10):
            assert daemon.request("GET", "/metrics").status == 200
            assert daemon.request("GET", "/resources").status == 200
        return daemon.metric(QUERIES), daemon.metric("berth_placements_age_seconds")

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        seen = list(pool.map(scrape, range(20)))
        # Not one waited for the query that was out all the time.
        assert {n for n, _ in seen} == {queries}
        assert daemon.metric("berth_placements_age_seconds") > age
        sim.ctl("set", "nvml.hang", 1)
        wait_for(lambda: sim.counters()["nvml_calls"] > calls, "a call that hangs")
        calls = sim.counters()["nvml_calls"]
        hung = list(pool.map(scrape, range(20)))
    assert sim.counters()["nvml_calls"] - calls <= 1  # the helper's own next one, at most
    # The age is that of the last answer, and grows.
    assert min(a for _, a in hung) > age and daemon.metric("berth_placements_age_seconds") > min(a for _, a in hung)
    sim.ctl("set", "nvml.hang", 0)
    sim.ctl("set", "nvml.latency_ms", 0)
    wait_for(lambda: daemon.metric(QUERIES) > queries, "the query")
    wait_for(lambda: daemon.metric("berth_placements_age_seconds") < min(a for _, a in hung), "an answer")


def test_age_grows_and_falls(daemon):
    refresh(daemon)
    first = daemon.resources()["placements_age_ms"]
    wait_for(lambda: daemon.resources()["placements_age_ms"] > first + 30, "the age to grow")
    assert daemon.metric("berth_placements_age_seconds") * 1000 > first
    wait_for(lambda: daemon.resources()["placements_age_ms"] > 200, "age")
    before = time.monotonic()
    refresh(daemon)
    age = daemon.resources()["placements_age_ms"]
    assert age <= (time.monotonic() - before) * 1000 + 1  # asked for after the refresh began


def test_reconcile_refreshes(start_sim, start_daemon):
    """Each pass asks again: the mode is changed by another program and nothing tells us."""
    sim = start_sim("--nvml-latency", 0)
    daemon = start_daemon(sim, {"reconcile_interval": "300ms"})
    sim.ctl("set", "mode", "equal", "--gpu", B)
    wait_for(lambda: daemon.get(f"/gpus/{B}")["mode"] == "equal", "the pass to see the mode")


def test_first_answer_waits_for_placements(start_sim, start_daemon):
    """Before the first placements GET /resources waits; profiles=false answers at once."""
    sim = start_sim("--nvml-latency", 0)
    sim.ctl("set", "nvml.latency_ms", 2000)
    daemon = start_daemon(sim, ready=False)
    first = daemon.request("GET", "/resources?profiles=false")
    assert first.status == 200 and "profiles" not in first.json["gpu"]
    assert first.json["gpu"]["placements_age_ms"] is None
    assert daemon.metric(QUERIES) == 0
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: daemon.request("GET", "/resources"), range(3)))
    for answer in answers:
        profiles = {p["name"]: p["available"] for p in answer.json["gpu"]["profiles"]}
        assert profiles["NVIDIA L40S-4Q"] == 16
    assert daemon.metric(QUERIES) >= 1


@pytest.mark.field("F48")
def test_foreign_writes_are_seen(daemon, sim):
    """What others configure counts within about a second, and so does its end."""
    vf = vf_addresses(A)[3]
    sim.ctl("configure", vf, "L40S-24Q")
    wait_for(lambda: daemon.available()["L40S-24Q"] == 3, "the foreign vGPU to count", 3)
    wait_for(lambda: daemon.vfs()[vf]["state"] == "unclaimed", "the VF to be seen", 3)  # NVML may tell first
    assert daemon.vfs()[vf]["profile"] == "NVIDIA L40S-24Q"
    assert daemon.vfs()[vf]["placement"] == {"id": 0, "size": 24}
    card = daemon.get(f"/gpus/{A}")
    assert card["slots"] == {"total": 32, "used": 1, "allocatable": 31, "quarantined": 0}
    assert card["placed"] == [{"id": 0, "size": 24, "profile": "NVIDIA L40S-24Q", "vf": vf,
                               "claim": None}]
    # Content, not size or time: from one type to another.
    sim.ctl("configure", vf, 0)
    sim.ctl("configure", vf, "L40S-12Q")
    wait_for(lambda: daemon.vfs()[vf]["profile"] == "NVIDIA L40S-12Q", "the other type", 3)
    sim.ctl("configure", vf, 0)
    wait_for(lambda: daemon.available()["L40S-24Q"] == 4, "the room to be back", 3)
    wait_for(lambda: daemon.vfs()[vf]["state"] == "free", "the VF to be seen free", 3)
    assert daemon.metric("berth_placement_drift_total") == 0


# --- Drift ----------------------------------------------------------------------------------------


@pytest.mark.field("F10")
def test_f10_ghosts(start_sim, start_daemon):
    """Every tenth release of 200 leaves its placement taken in the driver, until there is none left:
    available follows NVML down, and what does not fit is refused at once."""
    sim = start_sim("--cards", 1, "--nvml-latency", 0)
    last = vf_addresses(A)[31]
    daemon = start_daemon(sim, {"gpu": {"exclude": [last]}})
    sim.ctl("set", "nvml.ghost", 1, "--vf", last)  # ghosts stay as long as one VF has the key
    left, refused = daemon.available()["L40S-2Q"], 0
    assert left == 16
    for i in range(200):
        answer = daemon.claim("vm", "L40S-2Q")
        if left == 0:
            assert (answer.status, answer.code) == (409, "insufficient_resources")
            refused += 1
            continue
        assert answer.status == 201, (i, answer)
        if i % 10 == 9:
            sim.ctl("set", "nvml.ghost", 1, "--vf", answer.json["vf"])
        assert daemon.release("vm").status == 200
        if i % 10 == 9:
            sim.ctl("set", "nvml.ghost", 0, "--vf", answer.json["vf"])
            left -= 1
            wait_for(lambda: daemon.available()["L40S-2Q"] == left, "available to fall")
        if left == 6:
            wait_for(lambda: daemon.get(f"/gpus/{A}")["drift"], "the drift to be shown")
    assert refused == 40
    assert daemon.metric("berth_placement_drift_total") >= 1
    card = daemon.get(f"/gpus/{A}")
    # The gap is plain to see: all VFs are free, placements are not.
    assert card["drift"] and card["slots"]["allocatable"] == 31 and card["placed"] == []
    assert {p["name"]: p["free_placements"] for p in card["profiles"]}["NVIDIA L40S-2Q"] == 0
    assert daemon.claims() == {} and not any(v["type"] for v in sim.card(0)["vfs"])


def test_no_drift_in_ordinary_traffic(start_sim, start_daemon):
    """Claims, releases and foreign writes overlapping queries are no drift."""
    sim = start_sim("--nvml-latency", 30)
    daemon = start_daemon(sim)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        def work(i):
            for k in range(6):
                if daemon.claim(f"vm{i}", "L40S-3Q").status == 201:
                    assert daemon.release(f"vm{i}").status in (200, 202)
            return True

        work_done = [pool.submit(work, i) for i in range(6)]
        for k in range(4):
            sim.ctl("configure", vf_addresses(B)[31], "L40S-1Q", check=False)
            sim.ctl("configure", vf_addresses(B)[31], 0, check=False)
        assert all(f.result() for f in work_done)
    refresh(daemon)
    assert daemon.metric("berth_placement_drift_total") == 0
    assert not any(c["drift"] for c in daemon.get("/gpus")["gpus"])


@pytest.mark.parametrize("model, address", [("rtx-pro-6000", "0001:04:00.0"), ("a16", "0000:41:00.0")])
def test_other_boards(start_sim, start_daemon, model, address):
    sim = start_sim("--model", model, "--cards", 1, "--address", address, "--nvml-latency", 0)
    daemon = start_daemon(sim)
    with Probe(sim) as probe:
        wait_equals_nvml(daemon, probe, [address])
        smallest = min(daemon.resources()["profiles"], key=lambda p: p["framebuffer_mb"])["name"]
        for i in range(3):
            assert daemon.claim(f"vm{i}", smallest).status == 201
            wait_equals_nvml(daemon, probe, [address])
