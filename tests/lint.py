#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Format and analyzers: clang-format, clang-tidy, cppcheck and gcc's -fanalyzer, with one count at the end.

Each looks for other mistakes; each has its false alarms. What is switched off for the whole tree is
listed here and in .clang-tidy with the reason; a single place is excused where it stands, by a
comment with the reason (NOLINT, cppcheck-suppress). Nothing is changed by this script.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
JOBS = max(2, os.cpu_count() or 2)
ANALYZER_BUILD = os.path.join(ROOT, 'build-analyzer')

CPPCHECK_OFF = {
    'resourceLeak': 'does not know the cleanup attribute; the tests run with the leak checker',
    'memleak': 'the same',
    'ctunullpointer': 'takes sizeof of a member for an access',
    'ctuninitvar': 'takes an out parameter for one that is read',
    'readdirCalled': 'glibc has it safe for streams that are not shared, and readdir_r deprecated',
    'missingIncludeSystem': 'system headers are not looked for',
    'unmatchedSuppression': 'a suppression may be needed by one version of cppcheck and not by another',
}
# cppcheck does not read system headers; these macros of theirs are part of the language to it.
CPPCHECK_DEFINES = [
    'BERTH_BUILT=1',  # the build's
    'json_array_foreach(a,i,v)=for((i)=0;(i)<json_array_size(a)&&((v)=json_array_get(a,i));(i)++)',
    'json_object_foreach(o,k,v)=for((k)=json_object_iter_key(json_object_iter(o));(k)&&((v)=json_object_get(o,k));)',
]
ANALYZER_OFF = {
    'malloc-leak': 'gcc 12 loses what is stored through a pointer to a pointer; the tests run with the leak checker',
    'use-of-uninitialized-value': 'gcc 12 sometimes forgets "= NULL" of a pointer with the cleanup attribute; clang looks '
                                  'for the same',
}


def run(command, **arguments):
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors='replace', **arguments)
    return done.returncode, done.stdout


def tracked_sources():
    _, out = run(['git', 'ls-files', '*.c', '*.h'])
    return [f for f in out.split() if os.path.exists(os.path.join(ROOT, f))]


def compiled_sources(build):
    """Every source of the tree that the build compiles, once."""
    with open(os.path.join(build, 'compile_commands.json'), encoding='utf-8') as f:
        entries = json.load(f)
    files = {os.path.realpath(os.path.join(e['directory'], e['file'])) for e in entries}
    return sorted(f for f in files if f.startswith(ROOT + os.sep))


def lint_format(_build):
    """Files that clang-format would change; make format changes them."""
    _, out = run(['clang-format', '--dry-run', *tracked_sources()])
    counts = {}
    for line in out.splitlines():
        m = re.match(r'(.+?):\d+:\d+: warning: code should be clang-formatted', line)
        if m:
            counts[m.group(1)] = counts.get(m.group(1), 0) + 1
    return [f'{name}: {n} places' for name, n in sorted(counts.items())]


def lint_tidy(build):
    def one(source):
        _, out = run(['clang-tidy', '-p', build, '--quiet', '--extra-arg=-Wno-unknown-warning-option', source])
        return [line.replace(ROOT + os.sep, '') for line in out.splitlines() if re.search(r': (warning|error): ', line)]

    found = set()
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for lines in pool.map(one, compiled_sources(build)):
            found.update(lines)
    return sorted(found)


def lint_cppcheck(build):
    cache = os.path.join(build, 'cppcheck')
    os.makedirs(cache, exist_ok=True)
    command = ['cppcheck', '--quiet', f'-j{JOBS}', '--std=c11', '--enable=warning,performance,portability',
               '--inline-suppr', '--template={file}:{line}: {severity}: {message} [{id}]',
               f'--cppcheck-build-dir={cache}', '--platform=unix64', '-Isrc', '-D_GNU_SOURCE', '-DUINTPTR_MAX=UINT64_MAX',
               '--library=posix']
    command += [f'-D{d}' for d in CPPCHECK_DEFINES]
    command += [f'--suppress={name}' for name in CPPCHECK_OFF]
    status, out = run(command + ['src', 'tests/unit', 'tests/fuzz'])
    lines = sorted({line for line in out.splitlines() if line.strip()})
    return lines or ([f'cppcheck ended with status {status}'] if status else [])


def analyzer_targets():
    _, out = run(['meson', 'introspect', '--targets', ANALYZER_BUILD])
    names = [f for t in json.loads(out) for f in t['filename']]
    return [os.path.relpath(f, ANALYZER_BUILD) for f in names if f'{os.sep}bin{os.sep}' in f]


def lint_analyzer(_build):
    """The programs alone: the tests' deliberate misuse is not worth the time."""
    flags = ['-fanalyzer', '-Werror'] + [f'-Wno-analyzer-{name}' for name in ANALYZER_OFF]
    if not os.path.exists(os.path.join(ANALYZER_BUILD, 'build.ninja')):
        shutil.rmtree(ANALYZER_BUILD, ignore_errors=True)
        status, out = run(['meson', 'setup', ANALYZER_BUILD], env=dict(os.environ, CC='gcc'))
        if status:
            return out.splitlines()[-5:]
    run(['meson', 'configure', ANALYZER_BUILD, '-Dc_args=' + ' '.join(flags)])
    status, out = run(['ninja', '-C', ANALYZER_BUILD, '-k0', *analyzer_targets()])
    found = {line.replace('../', '') for line in out.splitlines() if re.search(r': (warning|error): ', line)}
    return sorted(found) or (out.splitlines()[-5:] if status else [])


LINTERS = {
    'format': ('clang-format', lint_format),
    'tidy': ('clang-tidy', lint_tidy),
    'cppcheck': ('cppcheck', lint_cppcheck),
    'analyzer': ('gcc', lint_analyzer),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build', default='build', help='a Meson build directory of this tree (default: build)')
    parser.add_argument('--only', action='append', choices=list(LINTERS), help='only these (default: all)')
    args = parser.parse_args()
    build = os.path.abspath(args.build)
    if not os.path.exists(os.path.join(build, 'compile_commands.json')):
        parser.error(f'{args.build} is not a build directory; run make first')
    total = missing = 0
    for name, (program, linter) in LINTERS.items():
        if args.only and name not in args.only:
            continue
        if not shutil.which(program):
            print(f'{name}: {program} is not installed')
            missing += 1
            continue
        findings = linter(build)
        for line in findings:
            print(f'{name}: {line}')
        print(f'--- {name}: {len(findings)} findings', flush=True)
        total += len(findings)
    print(f'{total} findings, {missing} tools missing')
    return 1 if total or missing else 0


if __name__ == '__main__':
    sys.exit(main())
