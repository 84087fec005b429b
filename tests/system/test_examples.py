# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/ and the requests of docs/rest.md, each run against berthd on a simulated host."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

import npm
from conftest import BIN, ROOT, wait_for

EXAMPLES = ROOT / "examples"
BUILD = BIN.parent
TYPES = pathlib.Path(__file__).resolve().parents[1] / "peers/types"
STRICT = ["--skipLibCheck", "--strict", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes",
          "--noUnusedLocals", "--noUnusedParameters", "--noImplicitReturns"]


# --- How each is built, once for all workers


def packages():
    folder, why = npm.install(TYPES, BUILD / "types")
    if not folder:
        pytest.skip(why)
    return folder


def compile_typescript(folder, *sources):
    """tsc on copies of examples/claim.ts, with the types made anew; the finished process."""
    made = subprocess.run([folder / "node_modules/.bin/openapi-typescript", ROOT / "docs/openapi.json", "-o",
                           sources[0].parent / "berth.d.ts"], cwd=folder, capture_output=True, text=True, timeout=120)
    if made.returncode:
        return made
    (sources[0].parent / "package.json").write_text('{"type": "module"}')
    return subprocess.run([folder / "node_modules/.bin/tsc", *STRICT, "--module", "nodenext", "--target", "es2022",
                           "--types", "node", "--typeRoots", folder / "node_modules/@types", *sources],
                          cwd=folder, capture_output=True, text=True, timeout=120)


def build_once(name, sources, action):
    """Folder in which action(folder) has built an example."""
    folder = BUILD / "examples" / name
    why = npm.prepare(folder, b"".join(s.read_bytes() for s in sources), lambda: action(folder))
    assert not why, why
    return folder


def build_c():
    if not shutil.which("pkg-config") or subprocess.run(["pkg-config", "--exists", "libcurl", "jansson"]).returncode:
        pytest.skip("libcurl and jansson are not installed")
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "libcurl", "jansson"], capture_output=True, text=True,
                           check=True).stdout.split()
    strict = ["-std=gnu11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-fsanitize=address,undefined"]

    def compile_c(folder):
        return subprocess.run(["cc", *strict, EXAMPLES / "claim.c", "-o", folder / "claim", *flags],
                              capture_output=True, text=True, timeout=60)

    return [build_once("c", [EXAMPLES / "claim.c"], compile_c) / "claim"]


def build_sh():
    if not shutil.which("curl") or not shutil.which("jq"):
        pytest.skip("curl and jq are not installed")
    return [EXAMPLES / "claim.sh"]


def build_py():
    return ["/usr/bin/python3", EXAMPLES / "claim.py"]


def build_ts():
    tools = packages()

    def compile_ts(folder):
        shutil.copy(EXAMPLES / "claim.ts", folder)
        return compile_typescript(tools, folder / "claim.ts")

    sources = [EXAMPLES / "claim.ts", ROOT / "docs/openapi.json", TYPES / "package-lock.json"]
    return ["node", build_once("ts", sources, compile_ts) / "claim.js"]


@pytest.fixture(params=[build_c, build_sh, build_py, build_ts], ids=["c", "sh", "py", "ts"])
def start(request, daemon):
    """start(*arguments) gives the running program."""
    command = request.param()
    started = []

    def run(*arguments, socket=None):
        env = {**os.environ, "BERTH_SOCKET": str(socket or daemon.socket)}
        started.append(subprocess.Popen([*command, *arguments], env=env, stdin=subprocess.PIPE, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


# --- What each must do


def test_claims_and_releases(start, daemon, sim):
    program = start("vm1", "L40S-4Q")
    path = program.stdout.readline().strip()
    claim = daemon.claims()["vm1"]
    assert (path, claim["state"], claim["profile"]) == (claim["sysfs_path"], "bound", "NVIDIA L40S-4Q")
    assert sim.vf(claim["vf"])["type"] > 0
    out, said = program.communicate("\n", timeout=20)
    assert (program.returncode, out, said) == (0, "", "")
    wait_for(lambda: not daemon.claims(), "the release")
    assert sim.vf(claim["vf"])["type"] == 0


def test_end_of_input_releases(start, daemon):
    out, said = start("vm1", "L40S-4Q").communicate(timeout=20)
    assert out and not said
    wait_for(lambda: not daemon.claims(), "the release")


def ended(program, text=None):
    """Exit status and what was said on stderr."""
    said = program.communicate(text, timeout=20)[1]
    return program.returncode, said


def test_refusals_are_told(start, daemon, sim):
    status, said = ended(start("vm1", "L40S-5Q"))
    assert status == 1 and "unknown_profile" in said
    for n in range(2):
        assert daemon.claim(f"big{n}", "L40S-48Q").status == 201
    status, said = ended(start("vm1", "L40S-4Q"))
    assert status == 1 and "insufficient_resources" in said
    status, said = ended(start("a/b?c#d e", "L40S-4Q"))
    assert status == 1 and said.startswith("4"), said
    assert set(daemon.claims()) == {"big0", "big1"}


def test_release_of_an_open_vf(start, daemon, sim):
    program = start("vm1", "L40S-4Q")
    program.stdout.readline()
    sim.boot(daemon.claims()["vm1"]["vf"], "--init-ms", 1)
    status, said = ended(program, "\n")
    assert status == 1 and "in_use" in said
    assert daemon.claims()["vm1"]["state"] == "bound"


def test_no_berthd(start, work):
    status, said = ended(start("vm1", "L40S-4Q", socket=work / "nobody.sock"))
    assert status != 0 and said.strip()


def test_usage(start):
    assert ended(start("vm1"))[0] == 2


# --- Types and document


MISTAKES = [
    ("{ profile }", "{ profil: profile }"),  # no such field
    ("{ profile }", '{ profile, wait_ms: "5" }'),  # a wrong type
    ('"/claims/{name}", "put"', '"/claim/{name}", "put"'),  # no such path
    ('"/claims/{name}", "put"', '"/claims/{name}", "post"'),  # no such method
    ("claim.sysfs_path", "claim.sysfs_pth"),
    ("problem.code", "problem.kode"),
]


def test_types_find_mistakes(work):
    """So they are what the document says, and not `any`."""
    text = (EXAMPLES / "claim.ts").read_text()
    sources = []
    for n, (right, wrong) in enumerate(MISTAKES):
        assert right in text
        sources.append(work / f"mistake{n}.ts")
        sources[-1].write_text(text.replace(right, wrong))
    done = compile_typescript(packages(), *sources)
    found = set(re.findall(r"(mistake\d)\.ts\(", done.stdout))
    assert found == {s.stem for s in sources}, done.stdout + done.stderr


def lint(document):
    folder = packages()
    done = subprocess.run(["node", TYPES / "lint.js", folder / "node_modules", document], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_document_is_openapi(work):
    assert lint(ROOT / "docs/openapi.json") == []
    wrong = json.loads((ROOT / "docs/openapi.json").read_text())
    wrong["paths"]["/claims"]["get"]["response"] = wrong["paths"]["/claims"]["get"].pop("responses")
    (work / "wrong.json").write_text(json.dumps(wrong))
    assert any("`response`" in line for line in lint(work / "wrong.json"))


# --- The requests of the reference


def test_requests_of_the_reference(daemon, sim):
    """Each as it stands there, in that order but for the claim, which comes first; paths are the simulator's."""
    if not shutil.which("curl"):
        pytest.skip("curl is not installed")
    found = re.findall(r"^### (\w+) (/\S*)\n.*?```sh\n(.*?)```", (ROOT / "docs/rest.md").read_text(), re.M | re.S)
    document = json.loads((ROOT / "docs/openapi.json").read_text())
    assert len(found) == sum(m != "parameters" for item in document["paths"].values() for m in item)
    statuses = {}
    for method, path, command in sorted(found, key=lambda f: f[:2] != ("PUT", "/claims/{name}")):
        assert "\n### " not in command
        shown = command.replace("/run/berth/berthd.sock", daemon.socket).rstrip()
        shown = shown.replace("/var/log/berth", str(sim.root / "console"))
        limit = " --max-time 1" if path == "/events" else ""
        done = subprocess.run(["sh", "-c", f"{shown} -sS -o {sim.root}/answer -w '%{{http_code}}'{limit}"],
                              capture_output=True, text=True, timeout=30)
        statuses[f"{method} {path}"] = int(done.stdout or 0)
        assert done.returncode == (28 if limit else 0), done.stderr
        assert done.stdout in document["paths"][path][method.lower()]["responses"]
    assert not {what: status for what, status in statuses.items() if status >= 300}
