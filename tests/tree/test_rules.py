# SPDX-License-Identifier: Apache-2.0
"""Rules, their tests and the dashboard, as files. tests/system/test_monitoring.py holds them against real metrics."""
import json
import os
import pathlib
import re
import subprocess

import pytest
import yaml

import promtool

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BERTH_BIN", ROOT / "build/bin"))
RULES = yaml.safe_load((promtool.MONITORING / "berth-rules.yml").read_text())
RULE_TESTS = (promtool.MONITORING / "berth-rules-test.yml").read_text()
DASHBOARD = json.loads((promtool.MONITORING / "berth-dashboard.json").read_text())
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule}
RECORDED = {rule["record"]: rule for group in RULES["groups"] for rule in group["rules"] if "record" in rule}


def anchors(path):
    """Those that a Markdown page has by its headings."""
    headings = re.findall(r"^#+ (.+?)\s*$", path.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in headings}


def test_rules_are_valid():
    done = promtool.run("check", "rules", "--lint=all", "--lint-fatal", "berth-rules.yml", cwd=promtool.MONITORING)
    assert done.returncode == 0, done.stderr


def test_rules_do_what_they_say():
    done = promtool.run("test", "rules", "berth-rules-test.yml", cwd=promtool.MONITORING)
    assert done.returncode == 0, done.stderr + done.stdout


def test_a_changed_limit_is_noticed(tmp_path):
    """The tests of the rules can fail."""
    tests = yaml.safe_load(RULE_TESTS)
    tests["tests"] = [t for t in tests["tests"] if "BerthPlacementsOld" in str(t)]
    (tmp_path / "berth-rules-test.yml").write_text(yaml.safe_dump(tests, width=10_000))
    text = (promtool.MONITORING / "berth-rules.yml").read_text()
    (tmp_path / "berth-rules.yml").write_text(text.replace("berth_placements_age_seconds > 300",
                                                           "berth_placements_age_seconds > 301"))
    done = promtool.run("test", "rules", "berth-rules-test.yml", cwd=tmp_path)
    assert done.returncode == 1 and "BerthPlacementsOld" in done.stderr + done.stdout


@pytest.mark.parametrize("name", ALERTS)
def test_alert(name):
    rule = ALERTS[name]
    assert re.fullmatch(r"Berth[A-Z]\w+", name)
    assert rule["labels"].get("severity") in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"docs/operations.md#{name.lower()}"
    # What fires in the tests has the labels that the texts show.
    fired = re.findall(r"labels: '\{alertname=\"" + name + r'"(.*?)\}', RULE_TESTS)
    assert fired, "no test has it fire"
    used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values()))) - {"job"}
    assert used <= set(re.findall(r'(\w+)="', fired[0])), "a label that the alert does not have"
    listed = re.findall(rf"^\| `{name}` \| (\w+) \|", (ROOT / "docs/monitoring.md").read_text(), re.M)
    assert listed == [rule["labels"]["severity"]], "docs/monitoring.md lists it otherwise"


def test_each_alert_has_a_runbook():
    page = ROOT / "docs/operations.md"
    if not page.exists():
        pytest.skip("there is no docs/operations.md yet")
    assert not {name for name in ALERTS if name.lower() not in anchors(page)}


def expressions():
    """(where, expression) of all rules and panels."""
    for name, rule in {**ALERTS, **RECORDED}.items():
        yield name, rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for annotation in DASHBOARD["annotations"]["list"]:
        if "expr" in annotation:
            yield annotation["name"], annotation["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


@pytest.mark.parametrize("where, expression", list(expressions()), ids=lambda v: v if len(v) < 40 else "")
def test_names_are_known(where, expression):
    assert not promtool.names_in(expression) - set(promtool.documented())
    assert not set(re.findall(r"\bberth:[\w:]+", expression)) - set(RECORDED)


def test_every_metric_is_watched_or_drawn():
    used = set().union(*(promtool.names_in(e) for _, e in expressions()))
    assert not set(promtool.documented()) - used


def test_dashboard():
    ids = [p["id"] for p in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    cells = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        taken = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not taken & cells, f"{panel['title']} lies over another panel"
        cells |= taken
        if panel["type"] == "row":
            continue
        assert panel["description"].endswith(".") and panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all(t["datasource"]["uid"] == "${datasource}" for t in panel["targets"])
    variables = {v["name"] for v in DASHBOARD["templating"]["list"]} | {"__rate_interval"}
    used = {name for _, e in expressions() for name in re.findall(r"\$(\w+)", e) if name != "labels"}
    assert used - variables == set() and {"datasource", "instance", "gpu"} <= variables
    assert DASHBOARD["schemaVersion"] >= 39 and DASHBOARD["uid"] == "berth" and DASHBOARD["id"] is None


def test_queries_name_the_host():
    """Each query of a panel keeps to the hosts that were chosen."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            for selector in re.findall(r"berth_\w+(\{[^}]*\})?", target["expr"]):
                assert re.search(r'instance=~"\$(instance|node)"', selector or ""), (panel["title"], target["expr"])


def test_configurations_in_the_documents(tmp_path):
    """Each YAML example is one: of Prometheus, of rules, or of berthd."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/monitoring.md").read_text(), re.S)
    assert len(blocks) >= 5
    (tmp_path / "berthd.yaml").write_text(blocks[0])
    done = subprocess.run([BIN / "berthd", "--config", tmp_path / "berthd.yaml", "--check"], capture_output=True,
                          text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    for block in blocks[1:]:
        # Debian's promtool is built without Kubernetes.
        (tmp_path / "example.yml").write_text(block.replace("kubernetes_sd_configs:\n  - role: pod", "static_configs: []"))
        how = ["rules"] if "groups" in yaml.safe_load(block) else ["config", "--syntax-only"]
        done = promtool.run("check", *how, "example.yml", cwd=tmp_path)
        assert done.returncode == 0, (block, done.stderr)


def test_wanted_capacity_can_be_said(tmp_path):
    """The example of docs/monitoring.md in place of the rule that comes with berth."""
    example = next(b for b in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/monitoring.md").read_text(), re.S)
                   if "groups:" in b)
    rules = [{**g, "rules": [r for r in g["rules"] if r.get("record") != "berth:profile_slots:wanted"]}
             for g in RULES["groups"]]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": yaml.safe_load(example)["groups"] + rules}))

    def series(profile, slots):
        return {"series": f'berth_profile_slots{{job="berthd",instance="a",profile="NVIDIA L40S-{profile}"}}',
                "values": f"{slots}x30"}

    names = [g["name"] for g in yaml.safe_load(example)["groups"] + rules]
    test = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "group_eval_order": names, "tests": [{
        "interval": "1m", "input_series": [series("4Q", 7), series("48Q", 1), series("2Q", 0)],
        "promql_expr_test": [{"expr": 'count by (profile) (ALERTS{alertstate="firing"})', "eval_time": "20m",
                              "exp_samples": [{"labels": '{profile="NVIDIA L40S-4Q"}', "value": 1}]}]}]}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test))
    done = promtool.run("test", "rules", "test.yml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
