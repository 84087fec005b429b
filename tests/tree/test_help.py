# SPDX-License-Identifier: Apache-2.0
"""--help, the manual and the completion files name the same commands and options, each with examples."""
import re
import subprocess

import pytest

from test_tree import BIN, PROGRAMS, ROOT

COMPLETIONS = {'bash': 'completions/berth.bash', 'zsh': 'completions/_berth', 'fish': 'completions/berth.fish'}


def help_of(*command):
    done = subprocess.run([BIN / command[0], *command[1:], '--help'], capture_output=True, text=True, timeout=10)
    assert done.returncode == 0 and not done.stderr, (command, done)
    return done.stdout


def commands():
    listed = help_of('berth').split('Commands:\n')[1].split('\n\n')[0]
    return [line.split()[0] for line in listed.splitlines()]


def options(text):
    """Long options that the text explains: those that begin its lines."""
    found = set()
    for line in text.splitlines():
        for option in re.findall(r'(?:^ {2}|^ {2}-\w, |, )(--[a-z][a-z-]+)', line.split('  (')[0]):
            found.add(option)
    return found


def complete_text(shell):
    text = (ROOT / COMPLETIONS[shell]).read_text()
    # fish writes "-l name".
    return re.sub(r'(?m)^(complete .*) -l ([a-z-]+)', r'\1 --\2', text) if shell == 'fish' else text


@pytest.mark.parametrize('program', PROGRAMS)
def test_every_program_shows_examples(program):
    text = help_of(program)
    assert re.search(r'^Examples:\n(  .*\n)+', text, re.M) and max(map(len, text.splitlines())) <= 120


def test_the_simulators_commands_show_help():
    for command in (('berth-sim', 'run'), ('berth-sim', 'ctl')):
        assert 'Examples:' in help_of(*command)


def test_there_are_commands():
    assert {'claim', 'release', 'map', 'doctor'} <= set(commands()) and 'complete' not in commands()


@pytest.mark.parametrize('command', commands() + ['complete'])
def test_every_command_shows_examples(command):
    text = help_of('berth', command)
    assert text.startswith(f'usage: berth {command}')
    assert re.search(rf'^Examples:\n(  .*berth {command}.*\n)+', text, re.M)
    assert '--json' in text and '--socket' in text and '--color' in text


@pytest.mark.parametrize('shell', COMPLETIONS)
def test_completion_names_every_command_and_option(shell):
    text = complete_text(shell)
    missing = [c for c in commands() if not re.search(rf'(?<![\w-]){c}(?![\w-])', text)]
    for command in commands():
        own = options(help_of('berth', command))
        assert own, command
        missing += [f'{command} {o}' for o in own if not re.search(rf'{o}(?![\w-])', text)]
    missing += [o for o in options(help_of('berth')) if o not in text]
    assert not missing, '\n'.join(missing)


@pytest.mark.parametrize('shell', COMPLETIONS)
def test_completion_names_nothing_else(shell):
    known = set.union(*(options(help_of('berth', c)) for c in commands()), options(help_of('berth')))
    text = re.sub(r'(?m)^\s*#.*$', '', complete_text(shell))
    named = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", text))
    # Of other programs and of the shells themselves.
    assert named - known <= {'--erase'}, named - known


def test_the_manual_names_every_command_and_option():
    text = (ROOT / 'man/berth.1.scd').read_text().replace('\\', '')
    missing = [c for c in commands() if not re.search(rf'^\*{c}\b', text, re.M)]
    missing += [f'{c} {o}' for c in commands() for o in options(help_of('berth', c)) if f'*{o}*' not in text]
    assert not missing, '\n'.join(missing)
    for name in ('BERTH_SOCKET', 'NO_COLOR', 'COLUMNS', 'TERM'):
        assert f'*{name}*' in text
