# SPDX-License-Identifier: Apache-2.0
"""Rules, dashboard and docs/metrics.md against what berthd and the plugin really show.

A session on a simulated host is recorded, one page of each program per step, and given to promtool as what
Prometheus would have scraped every 15 s. Each query must parse there and find data.
"""
import json
import pathlib
import re
import subprocess
import time

import pytest
import yaml

import npm
import promtool
from conftest import wait_for
from fake_kubelet import FakeKubelet
from plugin_host import Plugin, Q4
from test_capacity import B, refresh
from test_health import failed, settings
from test_metrics import parse

TESTS = pathlib.Path(__file__).resolve().parents[1]

RULES = promtool.MONITORING / "berth-rules.yml"
DASHBOARD = json.loads((promtool.MONITORING / "berth-dashboard.json").read_text())
STEP_SECONDS = 15
JOBS = ("berthd", "berth-device-plugin")


class Recorder:
    """The pages of one session, by job and step."""

    def __init__(self, sources):
        self.sources = sources  # {job: function that gives a page}
        self.steps = []  # of {job: page}

    def take(self):
        self.steps.append({job: page() for job, page in self.sources.items()})

    def families(self):
        """{name: (type, labels)} of everything that was ever shown."""
        found = {}
        for page in (p for step in self.steps for p in step.values()):
            for name, (kind, samples) in parse(page).items():
                labels = {k for _, pairs in samples for k, _ in pairs} - {"le"}
                found[name] = (kind, found.get(name, (kind, set()))[1] | labels)
        return found

    def label_values(self):
        """{label: values}"""
        found = {}
        for page in (p for step in self.steps for p in step.values()):
            for _, samples in parse(page).values():
                for _, pairs in samples:
                    for label, value in pairs:
                        found.setdefault(label, set()).add(value)
        return found

    def series(self):
        """promtool's input_series; one that is not shown any more is marked stale, as Prometheus does."""
        rows = {f'up{{job="{job}",instance="node1"}}': ["1"] * len(self.steps) for job in JOBS}
        for n, step in enumerate(self.steps):
            for job, page in step.items():
                for line in page.splitlines():
                    if line[0] == "#":
                        continue
                    name, _, value = line.rpartition(" ")
                    more = f'job="{job}",instance="node1"'
                    key = f"{name[:-1]},{more}}}" if name.endswith("}") else f"{name}{{{more}}}"
                    row = rows.setdefault(key, [])
                    row += ["_" if not row or row[-1] in ("_", "stale") else "stale"] * (n - len(row))
                    row.append(value)
        for row in rows.values():
            if len(row) < len(self.steps):
                row.append("stale")
        return [{"series": key, "values": " ".join(row)} for key, row in rows.items()]


def marker(daemon, sim, name, vf):
    """A guest on this claim reports that its driver failed."""
    with open(sim.root / "console" / f"{name}.log", "a") as log:
        log.write(failed())
    wait_for(lambda: daemon.vfs()[vf]["failures"], "the failure to be recorded")


def play(sim, daemon, plugin, kubelet, recorder):
    """A day of a host in a dozen steps: claims, refusals, a fallback, a quarantine, a restart, a broken file."""
    def claim(name, profile="L40S-4Q"):
        vf = daemon.claim(name, profile, console_log=str(sim.root / "console" / f"{name}.log")).json["vf"]
        plugin.rescan()
        wait_for(lambda: vf in (kubelet.healthy(Q4) or []) or profile != "L40S-4Q", "the plugin to list it")
        if profile == "L40S-4Q":
            kubelet.allocate(Q4, [vf])
        recorder.take()
        return vf

    recorder.take()
    marker(daemon, sim, "vm1", claim("vm1"))
    assert daemon.claim("vm1", "L40S-2Q").code == "claim_exists"
    recorder.take()
    sim.ctl("set", "nvml.error", 15, "--gpu", B)
    refresh(daemon)
    recorder.take()
    vf = claim("vm2")
    sim.ctl("set", "nvml.error", 0, "--gpu", B)
    refresh(daemon)
    assert daemon.request("PUT", f"/vfs/{vf}/quarantine").status == 200
    assert daemon.request("PUT", f"/gpus/{B}/cordon").status == 200
    recorder.take()
    claim("vm3", "L40S-24Q")
    assert daemon.release("vm3").status in (200, 202)
    health = daemon.data_dir / "gpu" / "vf-health.json"
    good = health.read_bytes()
    health.write_text("{")
    wait_for(lambda: daemon.metric("berth_vf_health_store_unavailable") == 1, "the broken file to be noticed")
    assert daemon.claim("vm4").code == "health_store_unavailable"
    recorder.take()
    health.write_bytes(good)
    wait_for(lambda: daemon.metric("berth_vf_health_store_unavailable") == 0, "the file to be read again")
    started = daemon.metric("berth_start_time_seconds")
    wait_for(lambda: time.time() >= started + 1, "another second to start in")
    recorder.take()
    daemon.restart()
    for name in ("vm5", "vm6", "vm7"):
        claim(name)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """The session, played once for the tests of a worker."""
    return {}


@pytest.fixture
def session(recorded, work, start_sim, start_daemon):
    if "recorder" in recorded:
        return recorded["recorder"]
    sim = start_sim("--nvml-latency", 0)
    daemon = start_daemon(sim, settings())
    folder = work / "device-plugins"
    folder.mkdir()
    kubelet = FakeKubelet(folder).start()
    plugin = Plugin(work, sim.sys, sim.dev, folder, interval="0")
    try:
        wait_for(plugin.answers, "the plugin")
        recorder = Recorder({"berthd": lambda: daemon.request("GET", "/metrics").body.decode(),
                             "berth-device-plugin": lambda: plugin.get("/metrics")[1]})
        play(sim, daemon, plugin, kubelet, recorder)
    finally:
        plugin.stop()
        kubelet.stop()
    recorded["recorder"] = recorder
    return recorder


def evaluate(session, folder, questions):
    """Fails with those of {what: expression} that do not parse or find no number at the session's end."""
    end = (len(session.steps) - 1) * STEP_SECONDS
    asked = [{"expr": f"count(({e}) == ({e})) > bool 0", "eval_time": f"{end}s",
              "exp_samples": [{"labels": "{}", "value": 1}]} for e in questions.values()]
    test = {"rule_files": [str(RULES)], "evaluation_interval": f"{STEP_SECONDS}s",
            "group_eval_order": ["berth-recorded", "berthd", "berth-device-plugin"],
            "tests": [{"interval": f"{STEP_SECONDS}s", "input_series": session.series(), "promql_expr_test": asked}]}
    (folder / "recorded.yml").write_text(yaml.safe_dump(test, width=10_000))
    done = promtool.run("test", "rules", "recorded.yml", cwd=folder)
    said = done.stderr + done.stdout
    silent = [what for what, e in questions.items() if json.dumps(f"count(({e}) == ({e})) > bool 0") in said]
    assert done.returncode == 0, f"no data for {silent}\n{said[:6000]}"


def filled_in(expression):
    """As Grafana fills in a panel's query, with everything chosen."""
    return re.sub(r"\$\w+", ".*", expression.replace("$__rate_interval", "1m"))


# Selectors of the rules that the recorded session has nothing for, and why.
SILENT = {'berth_nvml_fallback_active{reason=~"equal_size|mig|unsupported"}': "its cards are in mixed-size mode"}


def test_every_query_of_the_dashboard_finds_data(session, work):
    questions = {}
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            questions[f"{panel['title']} {target['refId']}"] = filled_in(target["expr"])
    for annotation in DASHBOARD["annotations"]["list"]:
        if "expr" in annotation:
            questions[annotation["name"]] = filled_in(annotation["expr"])
    assert len(questions) > 50
    evaluate(session, work, questions)


def test_a_query_without_data_is_noticed(session, work):
    with pytest.raises(AssertionError, match="no data for .'wrong'"):
        evaluate(session, work, {"right": "berth_slots", "wrong": 'berth_slots{state="allocated"}'})
    with pytest.raises(AssertionError, match="parse error"):
        evaluate(session, work, {"wrong": "sum(berth_slots"})


def test_every_variable_of_the_dashboard_has_values(session, work):
    questions = {}
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"]).groups()
            questions[variable["name"]] = f"group by ({label}) ({filled_in(selector)})"
    evaluate(session, work, questions)


def test_what_rules_select_exists(session, work):
    """Each selector of a rule, and each alternative of a label's value in it, was seen. Recorded rules give numbers."""
    rules = [r for g in yaml.safe_load(RULES.read_text())["groups"] for r in g["rules"]]
    questions = {r["record"]: r["record"] for r in rules if "record" in r}
    seen, unknown = session.label_values(), []
    for rule in rules:
        for name, matchers in re.findall(r"\b(up|berth_\w+)(\{[^}]*\})?", rule["expr"]):
            questions[name + matchers] = f"count_over_time({name}{matchers}[1h])"
            for label, value in re.findall(r'(\w+)!?=~?"([^"]*)"', matchers):
                unknown += [f"{label}={v}" for v in value.split("|") if label != "job" and v not in seen[label]]
    assert not unknown and not set(SILENT) - set(questions)
    evaluate(session, work, {k: e for k, e in questions.items() if k not in SILENT})


def test_the_session_sets_alerts_off(session, work):
    """The rules over real metrics, not only over those that their own tests invent."""
    evaluate(session, work, {name: f'ALERTS{{alertname="{name}",alertstate="firing"}}' for name in (
        "BerthVfQuarantined", "BerthClaimsFailing")})
    evaluate(session, work, {name: f'ALERTS{{alertname="{name}",alertstate="pending"}}' for name in (
        "BerthCardCordoned",)})


def test_every_metric_is_documented(session):
    assert session.families() == promtool.documented()


def test_promtool_check_metrics(session, start_sim, start_daemon):
    """Each page of the session, and one of a host without NVML."""
    pages = [page for step in session.steps for page in step.values()]
    bare = start_daemon(start_sim("--nvml-latency", 0), {"nvml_library": ""})
    for page in (*pages, bare.request("GET", "/metrics").body.decode()):
        done = promtool.run("check", "metrics", stdin=page)
        assert done.returncode == 0 and not done.stderr, (done.stderr, page)


# Grafana's own types for a dashboard, but that any text or number will do where they have a list of them.
SCHEMA = """import type { Dashboard } from "@grafana/schema";
type Loose<T> = T extends string ? string : T extends number ? number : T extends (infer U)[] ? Loose<U>[]
	: T extends object ? { [K in keyof T]: Loose<T[K]> } : T;
export const dashboard: Loose<Dashboard> = """


def schema_faults(folder, work, dashboard):
    """Lines of the compiler about a dashboard, held against Grafana's types."""
    for annotation in dashboard["annotations"]["list"]:
        for key in ("expr", "step", "titleFormat"):  # the Prometheus data source's, not Grafana's
            annotation.pop(key, None)
    if not (work / "node_modules").exists():
        (work / "node_modules").symlink_to(folder / "node_modules")
    (work / "dashboard.ts").write_text(SCHEMA + json.dumps(dashboard, indent=1))
    done = subprocess.run([folder / "node_modules/.bin/tsc", "--noEmit", "--skipLibCheck", "--strict", "--module",
                           "nodenext", "--target", "es2022", work / "dashboard.ts"], capture_output=True, text=True,
                          timeout=120)
    return [line for line in done.stdout.splitlines() if line.strip()]


def test_dashboard_has_the_schema_of_grafana(work):
    folder, why = npm.install(TESTS / "peers/types", promtool.BUILD / "types")
    if not folder:
        pytest.skip(why)
    dashboard = json.loads(json.dumps(DASHBOARD))
    assert schema_faults(folder, work, dashboard) == []
    dashboard["templating"]["list"][0]["lable"] = "x"
    assert "lable" in schema_faults(folder, work, dashboard)[0]
