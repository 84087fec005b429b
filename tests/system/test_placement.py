# SPDX-License-Identifier: Apache-2.0
"""Placement: steering to where the policy wants a vGPU, pins before driver 570, joint fit, and that no
claim is refused while a placement is free. What is free is worked out here from the simulator's state."""
import json
import os
import random
import subprocess

import pytest

from conftest import BIN, wait_for

# An L40S in mixed-size mode: placement ids by size, in the driver's order.
IDS = {48: [0], 24: [0, 24], 16: [0, 32], 12: [0, 12, 24, 36], 8: [0, 16, 24, 40],
       6: [0, 6, 12, 18, 24, 30, 36, 42], 4: [0, 8, 12, 20, 24, 32, 36, 44],
       3: [0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45],
       2: [0, 4, 6, 10, 12, 16, 18, 22, 24, 28, 30, 34, 36, 40, 42, 46],
       1: [0, 5, 6, 11, 12, 17, 18, 23, 24, 29, 30, 35, 36, 41, 42, 47]}
TYPES = {1147: 1, 1148: 2, 1149: 3, 1150: 4, 1151: 6, 1152: 8, 1153: 12, 1154: 16, 1155: 24, 1156: 48}


def profile(size):
    return f"L40S-{size}Q"


def spans(card):
    """{VF: (id, size)} of a card of the simulator's state."""
    return {v["address"]: (v["placement"], TYPES[v["type"]]) for v in card["vfs"] if v["type"]}


def board(card):
    """Units taken."""
    return {u for at, size in spans(card).values() for u in range(at, at + size)}


def free_ids(taken, size):
    return [i for i in IDS[size] if not taken.intersection(range(i, i + size))]


def value(taken):
    return sum(size * len(free_ids(taken, size)) for size in IDS)


def least_waste(cards, size):
    """(card address, id) by the rule's definition, None where nothing is free."""
    best = None
    for card in cards:
        taken = board(card)
        for i in free_ids(taken, size):
            loss = value(taken) - value(taken.union(range(i, i + size)))
            key = (loss, -len(taken))
            if best is None or key < best[0]:
                best = (key, card["address"], i)
    return best and best[1:]


def check_map(daemon, sim):
    """What GET /gpus shows is where the driver has it."""
    for shown, real in zip(daemon.get("/gpus")["gpus"], sim.state()["cards"]):
        assert {p["vf"]: (p["id"], p["size"]) for p in shown["placed"]} == spans(real)


def place_of(claim):
    return claim["gpu"], claim["placement"]["id"]


def berth(daemon, *arguments):
    return subprocess.run([BIN / "berth", *arguments], capture_output=True, text=True, timeout=30,
                          env={**os.environ, "BERTH_SOCKET": daemon.socket})


def fit(daemon, profiles, **fields):
    return daemon.request("POST", "/fit", {"profiles": profiles, **fields})


# --- Steering ---------------------------------------------------------------------------------------


def test_least_waste_lands_where_its_definition_says(sim, start_daemon):
    daemon = start_daemon(sim, {"gpu": {"placement_policy": "least_waste"}})
    rnd, held = random.Random(5), []
    for step in range(40):
        if held and rnd.random() < 0.35:
            assert daemon.release(held.pop(rnd.randrange(len(held)))).status == 200
        else:
            size = rnd.choice([1, 2, 3, 4, 6, 8, 12, 24])
            wanted = least_waste(sim.state()["cards"], size)
            answer = daemon.claim(f"c{step}", profile(size))
            assert answer.status == (201 if wanted else 409), answer
            if wanted:
                held.append(f"c{step}")
                assert place_of(answer.json) == wanted
        check_map(daemon, sim)
    assert daemon.metric("berth_placement_steer_failures_total") == 0


def test_refused_steering_keeps_the_drivers_choice(sim, start_daemon):
    daemon = start_daemon(sim, {"gpu": {"placement_policy": "least_waste"}})
    assert daemon.claim("a", profile(4)).status == 201
    for size in (1, 2, 3, 6, 8):
        card, wanted = least_waste(sim.state()["cards"], size)
        first = free_ids(board(next(c for c in sim.state()["cards"] if c["address"] == card)), size)[0]
        if wanted != first:
            break
    else:
        pytest.fail("every planned placement is the driver's first fit")
    sim.ctl("set", "sysfs.placement_errno", "EIO")
    answer = daemon.claim("b", profile(size))
    assert answer.status == 201
    assert place_of(answer.json) == (card, first)
    assert daemon.metric("berth_placement_steer_failures_total") == 1
    check_map(daemon, sim)
    sim.ctl("set", "sysfs.placement_errno", 0)
    assert daemon.release("b").status == 200
    assert place_of(daemon.claim("b", profile(size)).json) == (card, wanted)
    assert daemon.metric("berth_placement_steer_failures_total") == 1
    check_map(daemon, sim)


def test_a_vgpu_on_its_way_takes_no_second_placement(start_sim, start_daemon):
    """The driver puts a vGPU on its first fit, then it is steered. A claim that is decided in between sees
    both taken, and must not be refused for that."""
    sim = start_sim("--nvml-latency", 0, "--cards", 1)
    daemon = start_daemon(sim, {"gpu": {"placement_policy": "least_waste"}})
    for i, size in enumerate((24, 3, 8)):
        assert daemon.claim(f"c{i}", profile(size)).status == 201
    assert free_ids(board(sim.card()), 4) == [32, 36]
    assert least_waste([sim.card()], 4)[1] == 36
    sim.ctl("set", "sysfs.write_latency_ms", 300)
    first = daemon.connect()
    first.request("PUT", "/claims/first", json.dumps({"profile": profile(4)}), {"Content-Type": "application/json"})
    wait_for(lambda: 32 in [at for at, _ in spans(sim.card()).values()], "the vGPU on the driver's first fit")
    second = daemon.claim("second", profile(4))
    assert json.loads(first.getresponse().read())["placement"]["id"] == 36
    first.close()
    assert second.status == 201, second
    assert second.json["placement"]["id"] == 32
    check_map(daemon, sim)
    assert daemon.claim("third", profile(4)).status == 409


def test_claims_behind_a_refused_steering_are_planned_anew(sim, start_daemon):
    """Planned together, written one after another: what the first one got is known to the next."""
    daemon = start_daemon(sim, {"gpu": {"placement_policy": "least_waste"}})
    assert daemon.claim("a", profile(4)).status == 201
    sim.ctl("set", "sysfs.placement_errno", "EIO")
    sim.ctl("set", "sysfs.write_latency_ms", 30)
    connections = []
    for i in range(12):
        connection = daemon.connect()
        connection.request("PUT", f"/claims/b{i}", json.dumps({"profile": profile(2 if i % 2 else 1)}),
                           {"Content-Type": "application/json"})
        connections.append(connection)
    for connection in connections:
        assert connection.getresponse().status == 201
        connection.close()
    check_map(daemon, sim)
    placed = [span for card in sim.state()["cards"] for span in spans(card).values()]
    assert len(placed) == 13


def test_a_move_onto_its_own_span_is_refused_by_the_driver(sim, daemon):
    """host-sysfs.md 1.6: the new span is reserved before the old one is given up."""
    claim = daemon.claim("a", profile(3)).json
    at = claim["placement"]["id"]
    with pytest.raises(OSError):
        sim.write(claim["vf"], "placement_id", at + 1)
    check_map(daemon, sim)


# --- Before driver 570 --------------------------------------------------------------------------------


@pytest.fixture
def old_sim(start_sim):
    return start_sim("--nvml-latency", 0, "--driver", "550.163.02")


def test_old_drivers_are_pinned(old_sim, start_daemon):
    daemon = start_daemon(old_sim)
    claims = [daemon.claim(f"c{i}", profile(size)).json for i, size in enumerate((4, 24, 2))]
    for claim in claims:
        pin = f"vgpu-placement-id={claim['placement']['id']}"
        assert pin in old_sim.read(claim["vf"], "vgpu_params")
    for claim in claims:
        old_sim.boot(claim["vf"])
    for claim in claims:
        assert old_sim.vf(claim["vf"])["placement"] == claim["placement"]["id"]
    assert daemon.metric("berth_placement_steer_failures_total") == 0


def test_pins_can_be_switched_off(old_sim, start_daemon):
    daemon = start_daemon(old_sim, {"gpu": {"pin_placements": "never"}})
    claims = [daemon.claim(f"c{i}", profile(4)).json for i in range(3)]
    for claim in claims:
        assert "placement" not in old_sim.read(claim["vf"], "vgpu_params")
        assert claim["placement"] is None
    # A configured VF counts as taken although the driver has not placed it yet.
    assert daemon.available()[profile(4)] == 13


# --- Policies -------------------------------------------------------------------------------------------


def test_policy_of_host_and_of_claim(sim, start_daemon):
    daemon = start_daemon(sim, {"gpu": {"placement_policy": "least_loaded"}})
    cards = [daemon.claim(f"spread{i}", profile(8)).json["gpu"] for i in range(2)]
    assert len(set(cards)) == 2
    assert all(daemon.release(f"spread{i}").status == 200 for i in range(2))
    for policy in ("least_waste", "foresight"):
        cards = [daemon.claim(f"{policy}{i}", profile(8), policy=policy).json["gpu"] for i in range(2)]
        assert len(set(cards)) == 1, policy
    answer = daemon.claim("x", profile(2), policy="best")
    assert answer.status == 400 and "policy" in answer.json["detail"]
    done = berth(daemon, "claim", "cli", "-p", profile(2), "--policy", "least_waste", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["gpu"] == cards[0]


def test_the_default_packs(sim, daemon):
    """Eight 2Q in a row leave a 24Q's half of the same card free, and the other card empty."""
    claims = [daemon.claim(f"c{i}", profile(2)).json for i in range(8)]
    assert len({c["gpu"] for c in claims}) == 1
    assert daemon.available()[profile(48)] == 1
    assert daemon.available()[profile(24)] == 3
    check_map(daemon, sim)


def test_an_expected_mix_is_what_counts(sim, start_daemon):
    """Where only 16Q are expected, a 1Q stays out of their way: ids 0 and 32 are theirs."""
    daemon = start_daemon(sim, {"gpu": {"expected_mix": ["L40S-16Q=1"]}})
    for i in range(8):
        assert 16 <= daemon.claim(f"c{i}", profile(1)).json["placement"]["id"] < 32
    assert daemon.available()[profile(16)] == 4


# --- Blockers ---------------------------------------------------------------------------------------------


def test_what_is_in_the_way_is_named(sim, daemon):
    claims = [daemon.claim(f"c{i}", profile(2), gpu="0000:41:00.0").json for i in range(2)]
    card = daemon.get("/gpus/0000:41:00.0")
    by_name = {p["name"].removeprefix("NVIDIA "): p for p in card["profiles"]}
    assert by_name[profile(48)]["free_placements"] == 0
    assert sorted((b["id"], b["size"], b["claim"]) for b in by_name[profile(48)]["blocked_by"]) == \
        sorted((c["placement"]["id"], 2, c["name"]) for c in claims)
    assert by_name[profile(24)]["blocked_by"] == []


# --- Joint fit --------------------------------------------------------------------------------------------


def check_plan(sim, plan, wanted):
    """Every step is a free placement of its card, none overlaps another, and all that was asked for is there."""
    taken = {c["address"]: board(c) for c in sim.state()["cards"]}
    counts = {}
    for step in plan:
        at, size = step["placement"]["id"], step["placement"]["size"]
        units = set(range(at, at + size))
        assert at in IDS[size] and step["profile"] == profile(size)
        assert not units & taken[step["gpu"]]
        taken[step["gpu"]] |= units
        counts[step["profile"]] = counts.get(step["profile"], 0) + 1
    assert counts == wanted


def test_fit_and_its_plan(sim, daemon):
    assert daemon.claim("a", profile(4)).status == 201
    wanted = {profile(4): 4, profile(24): 2, profile(12): 1}
    answer = fit(daemon, wanted)
    assert answer.status == 200, answer
    assert (answer.json["fits"], answer.json["exact"], answer.json["ignored"]) == (True, True, [])
    assert answer.json["lower_bound"] == wanted
    check_plan(sim, answer.json["plan"], wanted)
    # Claimed in the plan's order, largest first, everything finds room.
    for number, step in enumerate(answer.json["plan"]):
        claim = daemon.claim(f"p{number}", step["profile"], policy="least_waste")
        assert claim.status == 201, claim
    check_map(daemon, sim)


def test_single_counts_do_not_add_up(sim, daemon):
    assert daemon.available()[profile(48)] == 2
    assert daemon.available()[profile(4)] == 16
    answer = fit(daemon, {profile(48): 1, profile(4): 9}).json
    assert (answer["fits"], answer["exact"], answer["plan"]) == (False, True, [])
    assert sum(answer["lower_bound"].values()) >= 9
    answer = fit(daemon, {profile(48): 1}, max_of=profile(4)).json
    assert answer["fits"] and answer["max"] == {"profile": profile(4), "more": 8, "exact": True}
    answer = fit(daemon, {}, max_of=profile(1)).json
    assert answer["max"] == {"profile": profile(1), "more": 32, "exact": True}
    answer = fit(daemon, {profile(48): 3}, max_of=profile(1)).json
    assert answer["fits"] is False and "max" not in answer
    assert fit(daemon, {"NVIDIA " + profile(48): 2}).json["fits"]
    assert fit(daemon, {}).json["fits"]


def test_fit_counts_cordons_and_names_what_it_left_out(sim, daemon):
    assert daemon.request("PUT", "/gpus/0000:81:00.0/cordon").status in (200, 204)
    assert fit(daemon, {profile(48): 2}).json["fits"] is False
    assert fit(daemon, {profile(48): 1}).json["fits"] is True


def test_fit_on_a_card_in_equal_size_mode(start_sim, start_daemon):
    daemon = start_daemon(start_sim("--nvml-latency", 0, "--mode", "equal"))
    answer = fit(daemon, {profile(4): 1}).json
    assert answer["fits"] is False
    assert answer["ignored"] == ["0000:41:00.0", "0000:81:00.0"]


@pytest.mark.parametrize("body, code, word", [
    ({"profiles": {"L40S-5Q": 1}}, "unknown_profile", "L40S-5Q"),
    ({"profiles": {profile(4): 1}, "max_of": "A40-4Q"}, "unknown_profile", "A40-4Q"),
    ({"profiles": {profile(4): -1}}, "bad_request", profile(4)),
    ({"profiles": {profile(4): "2"}}, "bad_request", profile(4)),
    ({"profiles": {profile(4): 1.5}}, "bad_request", profile(4)),
    ({"profiles": {profile(4): 1, "NVIDIA " + profile(4): 1}}, "bad_request", "twice"),
    ({"profiles": {profile(4): 1000, profile(2): 25}}, "bad_request", "1024"),
    ({"profiles": {f"p{i}": 1 for i in range(17)}}, "bad_request", "16"),
    ({"profiles": [profile(4)]}, "bad_request", "profiles"),
    ({}, "bad_request", "profiles"),
    ({"profiles": {}, "max_of": 4}, "bad_request", "max_of"),
    ({"profiles": {}, "more": 1}, "bad_request", "more"),
])
def test_fit_refusals(daemon, body, code, word):
    answer = daemon.request("POST", "/fit", body)
    assert answer.code == code
    assert answer.status == (422 if code == "unknown_profile" else 400)
    assert word in answer.json["detail"]


def test_a_search_that_is_cut_says_so(start_sim, start_daemon):
    """Sixteen cards with a few vGPUs each, and a question just above what fits."""
    sim = start_sim("--nvml-latency", 0, "--cards", 16)
    daemon = start_daemon(sim)
    cards = [c["address"] for c in sim.state()["cards"]]
    for number, card in enumerate(cards):
        assert daemon.claim(f"c{number}", profile((1, 2, 3)[number % 3]), gpu=card).status == 201
    answer = fit(daemon, HARD, max_of=profile(1))
    assert answer.status == 200
    body = answer.json
    assert (body["fits"], body["exact"], body["plan"]) == (None, False, [])
    assert 0 < sum(body["lower_bound"].values()) < sum(HARD.values())
    assert "max" not in body
    done = berth(daemon, "fit", *[f"{p}={n}" for p, n in HARD.items()])
    assert done.returncode == 3 and "not decided" in done.stdout and "at least" in done.stdout


HARD = {profile(4): 14, profile(2): 9, profile(24): 14, profile(8): 15, profile(12): 14}


def test_fit_on_the_command_line(sim, daemon):
    done = berth(daemon, "fit", f"{profile(4)}=3", f"{profile(24)}=1")
    assert done.returncode == 0 and done.stdout.startswith("fits\n"), done
    assert done.stdout.count(profile(4)) == 3 and done.stdout.count(profile(24)) == 1
    done = berth(daemon, "fit", f"{profile(24)}=5", "--max-of", profile(2))
    assert done.returncode == 3 and done.stdout.startswith("does not fit\n")
    assert f"4 x {profile(24)}" in done.stdout
    done = berth(daemon, "fit", f"{profile(48)}=1", "--max-of", profile(24))
    assert done.returncode == 0 and f"2 more of {profile(24)}" in done.stdout
    done = berth(daemon, "fit", "L40S-5Q=1")
    assert done.returncode == 4 and "L40S-5Q" in done.stderr
    for wrong in ([], [profile(4)], [f"{profile(4)}=x"], ["=3"], [f"{profile(4)}=1", f"{profile(4)}=2"]):
        assert berth(daemon, "fit", *wrong).returncode == 2, wrong
    done = berth(daemon, "--json", "fit", f"{profile(4)}=1")
    assert json.loads(done.stdout)["fits"] is True


# --- Churn --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy, steps", [("foresight", 150), ("least_loaded", 60)])
def test_no_claim_is_refused_while_a_placement_is_free(sim, start_daemon, policy, steps):
    daemon = start_daemon(sim, {"gpu": {"placement_policy": policy}})
    rnd, held, taken = random.Random(11), {}, {c["address"]: set() for c in sim.state()["cards"]}
    refused = 0
    for step in range(steps):
        while held and rnd.random() < 0.45:
            name = rnd.choice(list(held))
            claim = held.pop(name)
            assert daemon.release(name).status == 200
            taken[claim["gpu"]] -= set(range(claim["placement"]["id"], sum(claim["placement"].values())))
        size = rnd.choice([1, 2, 2, 4, 4, 8, 12, 24])
        room = any(free_ids(t, size) for t in taken.values())
        answer = daemon.claim(f"c{step}", profile(size))
        assert answer.status == (201 if room else 409), (step, size, answer)
        refused += not room
        if room:
            held[f"c{step}"] = answer.json
            taken[answer.json["gpu"]] |= set(range(answer.json["placement"]["id"],
                                                   sum(answer.json["placement"].values())))
    check_map(daemon, sim)
    assert {a["address"]: board(a) for a in sim.state()["cards"]} == taken
    assert refused > 0


def test_one_query_per_claim_can_be_asked_for(start_sim, start_daemon):
    """Only for measuring: a burst then costs a query for each."""
    sim = start_sim("--nvml-latency", 20)

    def queries_of_burst(**options):
        daemon = start_daemon(sim, **options)
        before = daemon.metric("berth_nvml_query_seconds_count")
        connections = []
        for i in range(8):
            connection = daemon.connect()
            connection.request("PUT", f"/claims/b{i}", json.dumps({"profile": profile(2)}),
                               {"Content-Type": "application/json"})
            connections.append(connection)
        for connection in connections:
            assert connection.getresponse().status == 201
            connection.close()
        used = daemon.metric("berth_nvml_query_seconds_count") - before
        for i in range(8):
            assert daemon.release(f"b{i}").status == 200
        daemon.stop()
        return used

    assert queries_of_burst() < 8
    assert queries_of_burst(env={"BERTH_ONE_QUERY_PER_CLAIM": "1"}) >= 8
