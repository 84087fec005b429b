# SPDX-License-Identifier: Apache-2.0
"""The documents against the product: what they name exists. tests/system/test_docs.py runs what they say."""
import functools
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BIN = pathlib.Path(os.environ.get("BERTH_BIN", ROOT / "build/bin"))
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
PROGRAMS = ["berthd", "berth-sim", "berth-agent", "berth-device-plugin"]
SCRIPTS = ["deploy/host/vgpu-vfs", "deploy/host/boot-test-vm"]


def fenced(text):
    """[(info, text)] of fenced blocks; with "" those that are indented by four."""
    found = [(info.strip(), body) for info, body in re.findall(r"^ *```(.*)\n((?:.*\n)*?) *```$", text, re.M)]
    rest = re.sub(r"^ *```.*\n(?:.*\n)*? *```$", "", text, flags=re.M)
    return found + [("", body) for body in re.findall(r"(?:^    .*\n)+", rest, re.M)]


def code(text):
    """Everything in code: blocks, and what stands between backticks."""
    return [body for _, body in fenced(text)] + re.findall(r"`([^`\n]+(?:\n[^`\n]+)?)`", prose(text))


def slug(heading):
    """GitHub's anchor of a heading."""
    text = re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", heading).strip().lower())
    return text.replace(" ", "-")


def anchors(page):
    return {slug(h) for h in re.findall(r"^#+ +(.*)$", prose(page.read_text()), re.M)}


@functools.lru_cache
def help_of(*command):
    done = subprocess.run([BIN / command[0], *command[1:], "--help"], capture_output=True, text=True, timeout=20)
    return done.stdout if done.returncode == 0 else ""


def prose(text):
    """What is not in blocks."""
    text = re.sub(r"^ *```.*\n(?:.*\n)*? *```$", "", text, flags=re.M)
    return re.sub(r"^    .*\n", "", text, flags=re.M)


def by_page(check):
    wrong = [f"{page.relative_to(ROOT)}: {text}" for page in PAGES for text in check(page, page.read_text())]
    assert not wrong, "\n".join(wrong)


def test_links_lead_somewhere():
    def check(page, text):
        text = prose(text)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists():
                yield f"{target}: no such file"
            elif anchor and anchor not in anchors(file):
                yield f"{target}: no such heading"
        defined = set(re.findall(r"^\[([^]]+)\]: ", text, re.M))
        for name in re.findall(r"[^]`]\[([^]`\n]+)\](?![(\[:])", re.sub(r"`[^`]*`", "", text)):
            if name not in defined and name not in ("x", " "):
                yield f"[{name}]: where to?"

    by_page(check)


def test_each_page_is_in_the_index():
    index = (DOCS / "README.md").read_text()
    missing = [p.name for p in DOCS.rglob("*.md") if p.name != "README.md" and f"({p.relative_to(DOCS)})" not in index]
    assert not missing


def test_commands_of_berth_exist():
    """`berth COMMAND ...`, its options, and where there are some its verbs."""
    def check(page, text):
        for piece in code(text):
            for words in re.findall(r"(?<![\w/.-])berth((?: +[^\s|;&)`>]+)+)", piece.replace("\\\n", " ")):
                words = words.split(" -- ")[0].split()
                while words and words[0].startswith("--"):  # options before the command
                    words = words[2:] if words[0] == "--socket" else words[1:]
                if not words or not re.fullmatch(r"[a-z]+", words[0]):
                    continue
                shown = help_of("berth", words[0])
                if not shown.startswith(f"usage: berth {words[0]}"):
                    yield f"berth {words[0]}: no such command"
                    continue
                for option in re.findall(r"(?<=\s)--[a-z][a-z-]*|(?<=\s)-[a-z](?=\s)", " " + " ".join(words[1:]) + " "):
                    if option not in shown:
                        yield f"berth {words[0]} {option}: no such option"
                verbs = re.match(r"usage: berth \w+ ([a-z]+(?: [A-Z]+)?(?: ?\| ?[a-z]+(?: [A-Z]+)?)+)", shown)
                if verbs and words[1:] and re.fullmatch(r"[a-z]+", words[1]) and words[1] not in re.findall(r"[a-z]+", verbs[1]):
                    yield f"berth {words[0]} {words[1]}: no such verb"

    by_page(check)


def test_options_of_programs_exist():
    def check(page, text):
        for piece in code(text):
            for program, words in re.findall(r"(?<![\w/-])(%s)((?: +[^\s|;&)`>]+)+)" % "|".join(PROGRAMS), piece):
                for option in re.findall(r"(?<=\s)--[a-z][a-z-]*", words):
                    if option not in help_of(program) and option not in ("--help", "--version"):
                        yield f"{program} {option}: no such option"

    by_page(check)


def test_metrics_exist():
    declared = set()
    for source in (ROOT / "src").rglob("*metrics.c"):
        declared |= set(re.findall(r'"(berth_[a-z_]+)"', source.read_text()))
    assert len(declared) > 20

    def check(page, text):
        for name in re.findall(r"\bberth_(?!\*)[a-z_]+[a-z]\b(?!\*|\.deb|\.py)", text):
            if re.sub(r"_(bucket|sum|count)$", "", name) not in declared and name not in declared:
                yield f"{name}: no such metric"

    by_page(check)


def test_settings_exist():
    source = (ROOT / "src/config/schema.c").read_text()
    keys = set(re.findall(r'^\t\{ "([a-z_.]+)", KIND_', source, re.M))
    assert {"unclaimed_vfs", "recover.verify"} <= keys
    groups = {k.split(".")[0] for k in keys if "." in k}
    points = {p for f in (ROOT / "src").rglob("*.c") for p in re.findall(r'fault_point\("([^"]+)"', f.read_text())}

    def check(page, text):
        if page.name == "rest.md":  # fields of answers are written so, too
            return
        for piece in code(text):
            for name in re.findall(r"(?<![\w./\"-])((?:%s)\.[a-z_]+)(?![\w(/:]|\.[a-z])" % "|".join(groups), piece):
                if name not in keys | points and not name.endswith((".c", ".h", ".md", ".device_path")):
                    yield f"{name}: no such setting"

    by_page(check)


def test_files_of_the_tree_exist():
    def check(page, text):
        for piece in code(text):
            for path in re.findall(r"(?<![\w/.-])((?:deploy|tests|tools|data|man|bench|src|docs)/[\w./*-]*[\w/*])", piece):
                if re.search(r"MODULE|NAME", path) or path.endswith(".pm"):  # to be filled in; somebody else's
                    continue
                if not any(ROOT.glob(path.rstrip("/"))) and not (ROOT / f"{path}.c").exists():
                    yield f"{path}: no such file"

    by_page(check)


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z-]*)(?=[ :]).*:", makefile, re.M))

    def check(page, text):
        for piece in code(text):
            for target in re.findall(r"(?:^|\s)make ([a-z][a-z-]*)(?![\w=])", piece):
                if target not in targets:
                    yield f"make {target}: no such target"

    by_page(check)


def test_manual_pages_exist():
    pages = {p.name.removesuffix(".scd") for p in (ROOT / "man").glob("*.scd")}

    def check(page, text):
        for name, section in re.findall(r"\b(berth[a-z.-]*)\(([158])\)", text):
            if f"{name}.{section}" not in pages:
                yield f"{name}({section}): no such page"

    by_page(check)


def test_each_alert_has_its_section():
    files = [p for folder in ("data", "deploy") for p in (ROOT / folder).rglob("*.y*ml")]
    rules = [p for p in files if re.search(r"^\s*- alert:", p.read_text(), re.M)]
    alerts = {a for p in rules for a in re.findall(r"^\s*- alert: *(\w+)", p.read_text(), re.M)}
    assert alerts, "no rules found"
    sections = set(re.findall(r"^## (Berth\w+)$", (DOCS / "operations.md").read_text(), re.M))
    assert sections == alerts
    for rule in rules:
        for url in re.findall(r"runbook_url: *(\S+)", rule.read_text()):
            assert url.partition("#")[0].endswith("docs/operations.md"), url
            assert url.strip("\"'").partition("#")[2] in {slug(a) for a in alerts} | {"{{"}, url


def test_shell_is_clean():
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    stand_ins = [p for p in (ROOT / "tests/system/docs-bin").iterdir() if p.read_text().startswith("#!/bin/bash")]
    done = subprocess.run(["shellcheck", *[ROOT / s for s in SCRIPTS], *stand_ins], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    for page in PAGES:
        # One shell a page, so that what an earlier block sets is known. Commands that the reader completes, and
        # addresses without quotes, are as a person would type them.
        text = "".join(body for info, body in fenced(page.read_text()) if info == "sh run")
        done = subprocess.run(["shellcheck", "-s", "bash", "-e", "SC2086,SC2154,SC2034,SC2012,SC2251", "-"], input=text,
                              capture_output=True, text=True)
        assert done.returncode == 0, f"{page.name}: {done.stdout}"


def test_units_are_valid(tmp_path):
    """Units in deploy/ and in blocks of the guides; programs that are not here become /bin/true."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    units = {p.name: p.read_text() for p in (ROOT / "deploy").rglob("*.service")}
    for page in PAGES:
        units |= {f"{page.stem}.service": body for info, body in fenced(page.read_text()) if info == "ini unit"}
    assert len(units) >= 2
    (tmp_path / "berthd.service").write_text("[Service]\nExecStart=/bin/true\n")
    for name, text in units.items():
        text = re.sub(r"^(Exec\w+)=\S+", r"\1=/bin/true", text, flags=re.M)
        (tmp_path / name).write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *[tmp_path / n for n in units]], capture_output=True,
                          text=True, timeout=60, env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"})
    ours = [line for line in done.stderr.splitlines() if any(n in line for n in units)]
    assert not ours, "\n".join(ours)
