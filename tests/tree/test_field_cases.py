# SPDX-License-Identifier: Apache-2.0
"""docs/field-cases.md and the tests that carry its cases' numbers say the same."""
import ast
import os
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get('BERTH_SHARED', ROOT.parent / 'shared'))
TESTS = ROOT / 'tests'
# A comment that begins with cases, right before a test's function.
C_MARK = re.compile(r'/\* ((?:F\d\d ?)+)(?::(?:(?!\*/).)*)?\*/\nstatic void (\w+)\(', re.S)


def python_marks(path):
    for node in ast.walk(ast.parse(path.read_text())):
        for mark in getattr(node, 'decorator_list', []):
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == 'pytest.mark.field':
                for case in mark.args:
                    yield case.value, node.name


def c_marks(path):
    text = path.read_text()
    for cases, name in C_MARK.findall(text):
        assert re.search(rf'\b\w+\({name}\b', text.split('int main(')[1]), f'{path.name}: {name} is not run'
        for case in cases.split():
            yield case, name


def marked():
    """{(case, "file::test")}"""
    found = set()
    for path in TESTS.rglob('test*'):
        if path.suffix in ('.py', '.c'):
            for case, name in (python_marks if path.suffix == '.py' else c_marks)(path):
                found.add((case, f'{path.relative_to(TESTS)}::{name}'))
    return found


def table():
    """{case: (cells, {tests})}"""
    rows = {}
    for line in (ROOT / 'docs/field-cases.md').read_text().splitlines():
        if re.match(r'\| F\d\d \|', line):
            cells = [c.strip() for c in line.strip('|').split('|')]
            assert len(cells) == 5 and all(cells), line
            assert cells[0] not in rows, f'{cells[0]} stands there twice'
            rows[cells[0]] = cells, set(re.findall(r'`([^`]+::[^`]+)`', cells[4]))
    return rows


def test_every_case_has_a_test():
    rows = table()
    assert len(rows) >= 50
    assert not [case for case, (_, tests) in rows.items() if not tests]


def test_the_table_names_the_marked_tests():
    named = {(case, test) for case, (_, tests) in table().items() for test in tests}
    assert not named - marked(), 'named there, but not marked or not there'
    assert not marked() - named, 'marked, but not named there'


def test_every_source_is_named():
    for case, (cells, _) in table().items():
        assert 'https://' in cells[2] or re.search(r'\b[0-9a-f]{12}\b', cells[2]), case


def test_every_known_case_is_there():
    path = SHARED / 'facts/field-cases.md'
    if not path.exists():
        pytest.skip(f'{path} is not there (BERTH_SHARED names the folder above facts/)')
    known = set(re.findall(r'^### (F\d+)\b', path.read_text(), re.M))
    assert known == set(table())
