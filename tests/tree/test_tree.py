# SPDX-License-Identifier: Apache-2.0
"""Rules about the tree itself: layers, headers, format, documents."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get('BERTH_BIN', ROOT / 'build' / 'bin'))
# What each layer may include. ARCHITECTURE.md draws it.
LAYERS = {
    'base': {'base'},
    'model': {'base', 'model'},
    'config': {'base', 'model', 'config'},
    'host': {'base', 'model', 'host'},
    'nvml': {'base', 'model', 'nvml'},
    'store': {'base', 'model', 'store'},
    'grpc': {'base', 'grpc'},
    'client': {'base', 'model', 'client'},
    'helper': {'base', 'model', 'host', 'nvml', 'helper'},
    'http': {'base', 'model', 'config', 'host', 'nvml', 'store', 'http', 'daemon'},
    'daemon': {'base', 'model', 'config', 'host', 'nvml', 'store', 'http', 'daemon'},
    'plugin': {'base', 'model', 'host', 'nvml', 'grpc', 'http', 'proto', 'plugin'},
    'agent': {'base', 'agent'},
    'cli': {'base', 'model', 'config', 'host', 'nvml', 'store', 'client', 'cli'},
    'sim': {'base', 'sim'},
}
# Of http, only these may know the daemon: the others are a server of anything.
HTTP_WITH_DAEMON = re.compile(r'^api(-[a-z]+)*\.[ch]$')
# The pure layer has no business with these.
MODEL_FORBIDDEN = {'fcntl.h', 'unistd.h', 'pthread.h', 'time.h', 'sys/socket.h', 'systemd/sd-event.h', 'dirent.h'}


def tracked(*patterns):
    out = subprocess.run(['git', 'ls-files', *patterns], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / line for line in out.splitlines() if (ROOT / line).exists()]


def sources():
    return tracked('src/*.c', 'src/*.h', 'src/**/*.c', 'src/**/*.h')


def includes(path):
    text = path.read_text()
    return re.findall(r'^#include "([^"]+)"', text, re.M), re.findall(r'^#include <([^>]+)>', text, re.M)


def test_there_is_something_to_look_at():
    assert len(sources()) > 50


def test_layers_point_down():
    wrong = []
    for path in sources():
        layer = path.relative_to(ROOT / 'src').parts[0]
        for name in includes(path)[0]:
            target = name.split('/')[0]
            if name == 'embedded.h':  # made by the build from the files that go into the program
                continue
            if '/' not in name or target not in LAYERS[layer]:
                wrong.append(f'{path.relative_to(ROOT)} includes "{name}"')
            elif layer == 'http' and target == 'daemon' and not HTTP_WITH_DAEMON.search(path.name):
                wrong.append(f'{path.relative_to(ROOT)} includes "{name}"')
    assert not wrong, '\n'.join(wrong)


def test_model_is_pure():
    wrong = [f'{p.name} includes <{i}>' for p in tracked('src/model/*.[ch]') for i in includes(p)[1]
             if i in MODEL_FORBIDDEN]
    assert not wrong, '\n'.join(wrong)


def test_only_berth_nvml_loads_the_library():
    users = [p.relative_to(ROOT).as_posix() for p in sources() if 'dlopen(' in p.read_text()]
    assert [u for u in users if not u.startswith('src/sim/')] == ['src/nvml/load.c']


def test_every_source_says_what_it_is():
    wrong = []
    for path in sources():
        text = path.read_text()
        if 'SPDX-License-Identifier: Apache-2.0' not in text.splitlines()[0]:
            wrong.append(f'{path.relative_to(ROOT)}: no SPDX line')
        if path.suffix == '.h' and ('#pragma once' not in text or '/*\n * ' not in text[:200]):
            wrong.append(f'{path.relative_to(ROOT)}: header without #pragma once or opening paragraph')
        if re.search(r'\b(TODO|FIXME|XXX)\b(?! #\d)', text):
            wrong.append(f'{path.relative_to(ROOT)}: open end without an issue number')
    assert not wrong, '\n'.join(wrong)


def test_files_are_not_too_long():
    long = [f'{p.relative_to(ROOT)}: {n}' for p in sources() if (n := len(p.read_text().splitlines())) > 700]
    assert not long, '\n'.join(long)


def test_format():
    if not shutil.which('clang-format'):
        pytest.skip('clang-format is not installed')
    files = [str(p) for p in tracked('*.c', '*.h')]
    done = subprocess.run(['clang-format', '--dry-run', '-Werror', *files], cwd=ROOT, capture_output=True, text=True)
    wrong = sorted({line.split(':')[0] for line in done.stderr.splitlines() if 'clang-format' in line and ':' in line})
    assert done.returncode == 0, 'run make format:\n' + '\n'.join(wrong)


def test_python_names_exist():
    """A name that is missing in a rare branch of a test would show when that branch is needed."""
    if subprocess.run(['/usr/bin/python3', '-c', 'import pyflakes'], capture_output=True).returncode != 0:
        pytest.skip('pyflakes is not installed')
    done = subprocess.run(['/usr/bin/python3', '-m', 'pyflakes', *map(str, tracked('*.py'))], cwd=ROOT,
                          capture_output=True, text=True)
    # Fixtures are imported to be found by their names, and named again as parameters.
    wrong = [line for line in done.stdout.splitlines()
             if not re.search(r'redefinition of unused|imported but unused', line)]
    assert not wrong, '\n'.join(wrong)


def test_no_machine_paths_or_hosts():
    wrong = []
    for path in tracked():
        if path.suffix in ('.png', '.bin') or 'corpus' in path.parts:
            continue
        text = path.read_bytes().decode(errors='replace')
        if re.search(r'/work/(main|shared)\b|/root/', text) and path.name != 'test_tree.py':
            wrong.append(str(path.relative_to(ROOT)))
    assert not wrong, '\n'.join(wrong)


PROGRAMS = ['berthd', 'berth', 'berth-agent', 'berth-sim', 'berth-card', 'berth-nvml', 'berth-device-plugin']


@pytest.mark.parametrize('program', PROGRAMS)
def test_help_and_version(program):
    for option in ('--help', '--version'):
        done = subprocess.run([BIN / program, option], capture_output=True, text=True, timeout=10)
        assert done.returncode == 0, (option, done.stderr)
        assert program in done.stdout


@pytest.mark.parametrize('program', PROGRAMS)
def test_unknown_option_is_usage(program):
    done = subprocess.run([BIN / program, '--no-such-option'], capture_output=True, text=True, timeout=10)
    assert done.returncode == 2
    assert done.stderr.strip()


@pytest.mark.parametrize('page', ['berthd.8', 'berthd.yaml.5', 'berth.1', 'berth-sim.1', 'berth-card.8', 'berth-nvml.8',
                                  'berth-agent.8', 'berth-device-plugin.8', 'berth-doctor.7'])
def test_man_pages_render(page):
    if not shutil.which('scdoc'):
        pytest.skip('scdoc is not installed')
    source = (ROOT / 'man' / (page + '.scd')).read_bytes()
    done = subprocess.run(['scdoc'], input=source, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert len(done.stdout) > 500


def test_config_keys_are_documented():
    keys = set(re.findall(r'\{\s*"([a-z_]+)"', (ROOT / 'src/config/schema.c').read_text()))
    text = (ROOT / 'man/berthd.yaml.5.scd').read_text().replace('\\_', '_')
    assert keys, 'no keys found in schema.c'
    assert not {k for k in keys if k not in text}


def test_readme_names_the_two_commands():
    text = (ROOT / 'README.md').read_text()
    assert 'make demo' in text and 'make check' in text


def test_openapi_names_every_route():
    document = json.loads((ROOT / 'docs/openapi.json').read_text())
    routes = re.findall(r'\{ "([A-Z]+)", "([^"]+)", api_', (ROOT / 'src/http/api-service.c').read_text())
    assert routes
    missing = [f'{m} {p}' for m, p in routes if m.lower() not in document.get('paths', {}).get(p, {})]
    assert not missing, '\n'.join(missing)
    assert document['openapi'].startswith('3.1')


def test_ci_calls_the_readme_command():
    assert 'make' in (ROOT / '.ci/run').read_text() and 'check' in (ROOT / '.ci/run').read_text()
